//! Options of jobs and steps in the form of earlier releases: pairs of an option's long name and its value.

use crate::inside::Inside;
use crate::job::ExitCode;
use crate::job::gpus::{GpuBind, GpuCount};
use crate::job::network::{self, Network};
use crate::job::options::{AsGiven, Chosen, Hint, Options};
use crate::job::spread::Spread;

/// Converts such pairs to the fields of `Options`. Values that no command accepted are left out, and so are options
/// that had no effect and were not shown: `acctg-freq`, `bcast`, `delay-boot`, `epilog`, `gres-flags`, `msg-timeout`,
/// `prolog`, `threads`.
pub(crate) fn options(pairs: &[(String, String)]) -> Options {
    if pairs.is_empty() {
        return Options::default();
    }
    let mut chosen = Chosen::default();
    for (option, value) in pairs {
        let known = gpus(&mut chosen, option, value)
            || inside(&mut chosen.inside, option, value)
            || network(&mut chosen.network, option, value)
            || texts(&mut chosen, option, value)
            || of_step(&mut chosen, option, value);
        if !known {
            single(&mut chosen, option, value);
        }
    }
    chosen.into()
}

fn gpus(chosen: &mut Chosen, option: &str, value: &str) -> bool {
    let gpus = &mut chosen.gpus;
    match option {
        "gpus" => gpus.total = GpuCount::parse(value),
        "gpus-per-node" => gpus.per_node = GpuCount::parse(value),
        "gpus-per-socket" => gpus.per_socket = GpuCount::parse(value),
        "gpus-per-task" => gpus.per_task = GpuCount::parse(value),
        "cpus-per-gpu" => gpus.cpus = value.parse().ok(),
        "mem-per-gpu" => gpus.memory_mb = AsGiven::memory(value),
        "ntasks-per-gpu" => gpus.tasks = value.parse().ok(),
        "gpu-bind" => gpus.bind = AsGiven::<GpuBind>::parse(value),
        _ => return false,
    }
    true
}

fn inside(inside: &mut Inside, option: &str, value: &str) -> bool {
    let field = match option {
        "sockets-per-node" => &mut inside.sockets,
        "cores-per-socket" => &mut inside.cores,
        "threads-per-core" => &mut inside.threads,
        "ntasks-per-socket" => &mut inside.tasks_per_socket,
        "ntasks-per-core" => &mut inside.tasks_per_core,
        _ => return false,
    };
    *field = value.parse().unwrap_or(0);
    true
}

fn network(wish: &mut Network, option: &str, value: &str) -> bool {
    match option {
        "network" => wish.class = Some(network::class(value)),
        "geometry" => wish.geometry = network::geometry(value),
        "grid" => wish.grid = network::grid(value),
        "stencil" => wish.stencil = network::stencil(value),
        "switches" => wish.switches = network::switches(value),
        _ => return false,
    }
    true
}

fn texts(chosen: &mut Chosen, option: &str, value: &str) -> bool {
    let field = match option {
        "prefer" => &mut chosen.prefer,
        "extra" => &mut chosen.notes.extra,
        "admin-comment" => &mut chosen.notes.admin_comment,
        "system-comment" => &mut chosen.notes.system_comment,
        "submit-dir" => &mut chosen.shown.submit_dir,
        "export" => &mut chosen.shown.export,
        "batch" => &mut chosen.shown.batch,
        "cpu-freq" => &mut chosen.shown.cpu_freq,
        "gpu-freq" => &mut chosen.shown.gpu_freq,
        "mem-bind" => &mut chosen.shown.mem_bind,
        "profile" => &mut chosen.shown.profile,
        "tres-per-task" => &mut chosen.shown.tres_per_task,
        "gres" => &mut chosen.step.gres,
        "mpi" => &mut chosen.step.mpi,
        _ => return false,
    };
    *field = Some(value.to_owned());
    true
}

fn of_step(chosen: &mut Chosen, option: &str, value: &str) -> bool {
    let step = &mut chosen.step;
    match option {
        "cpus-per-task" => step.cpus_per_task = value.parse().ok(),
        "ntasks-per-node" => step.ntasks_per_node = value.parse().ok(),
        "preserve-env" => step.preserve_env = true,
        "slurmd-debug" => step.slurmd_debug = value.parse().ok(),
        "srun-debug" => step.srun_debug = value.parse().ok(),
        "task-prolog" => value.clone_into(&mut step.scripts.prolog),
        "task-epilog" => value.clone_into(&mut step.scripts.epilog),
        _ => return false,
    }
    true
}

fn single(chosen: &mut Chosen, option: &str, value: &str) {
    match option {
        "distribution" => chosen.distribution = AsGiven::of(value, Some(Spread::of(value))),
        "hint" => chosen.hint = Hint::parse(value),
        "segment" => chosen.segment = value.parse().ok(),
        "use-min-nodes" => chosen.use_min_nodes = true,
        "exclusive" => chosen.exclusive_user = value == "user",
        "begin" => chosen.begins_after_submission = true,
        "no-shell" => chosen.no_shell = true,
        "content-bytes" => chosen.content_bytes = value.parse().unwrap_or(0),
        "derived-exit-code" => chosen.notes.derived_exit = ExitCode::parse(value),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::options;
    use crate::encoding::{from_slice, to_vec};
    use crate::job::options::{Hint, Options};

    /// Every option that may occur in the pairs, with a value and with the field that `Debug` prints for it.
    const ALL: [(&str, &str, &str); 54] = [
        ("admin-comment", "x", "admin_comment: Some(\"x\")"),
        ("batch", "x", "batch: Some(\"x\")"),
        ("begin", "now+1hour", "begins_after_submission: true"),
        ("content-bytes", "70000", "content_bytes: 70000"),
        ("cores-per-socket", "2", "cores: 2"),
        ("cpu-freq", "low", "cpu_freq: Some(\"low\")"),
        ("cpus-per-gpu", "3", "cpus: Some(3)"),
        ("cpus-per-task", "3", "cpus_per_task: Some(3)"),
        ("derived-exit-code", "7:9", "derived_exit: Some(ExitCode { code: 7, signal: 9 })"),
        ("distribution", "cyclic", "distribution: Some(AsGiven { text: \"cyclic\""),
        ("exclusive", "user", "exclusive_user: true"),
        ("export", "NONE", "export: Some(\"NONE\")"),
        ("extra", "x", "extra: Some(\"x\")"),
        ("geometry", "4x4", "geometry: Some(AsGiven { text: \"4x4\", value: [4, 4] })"),
        ("gpu-bind", "per_task:1", "bind: Some(AsGiven { text: \"per_task:1\", value: PerTask(1) })"),
        ("gpu-freq", "low", "gpu_freq: Some(\"low\")"),
        ("gpus", "2", "total: Some(AsGiven { text: \"2\""),
        ("gpus-per-node", "a100:2", "per_node: Some(AsGiven { text: \"a100:2\""),
        ("gpus-per-socket", "0", "per_socket: Some(AsGiven { text: \"0\""),
        ("gpus-per-task", "1", "per_task: Some(AsGiven { text: \"1\""),
        ("gres", "gpu:1", "gres: Some(\"gpu:1\")"),
        ("grid", "2x2", "grid: Some(AsGiven { text: \"2x2\""),
        ("hint", "nomultithread", "hint: Some(NoMultithread)"),
        ("mem-bind", "local", "mem_bind: Some(\"local\")"),
        ("mem-per-gpu", "4G", "memory_mb: Some(AsGiven { text: \"4G\", value: 4096 })"),
        ("mpi", "none", "mpi: Some(\"none\")"),
        ("network", "local", "class: Some(AsGiven { text: \"local\", value: Local })"),
        ("no-shell", "", "no_shell: true"),
        ("ntasks-per-core", "1", "tasks_per_core: 1"),
        ("ntasks-per-gpu", "2", "tasks: Some(2)"),
        ("ntasks-per-node", "2", "ntasks_per_node: Some(2)"),
        ("ntasks-per-socket", "2", "tasks_per_socket: 2"),
        ("prefer", "fast", "prefer: Some(\"fast\")"),
        ("preserve-env", "", "preserve_env: true"),
        ("profile", "none", "profile: Some(\"none\")"),
        ("segment", "2", "segment: Some(2)"),
        ("slurmd-debug", "3", "slurmd_debug: Some(3)"),
        ("sockets-per-node", "2", "sockets: 2"),
        ("srun-debug", "3", "srun_debug: Some(3)"),
        ("stencil", "halo", "stencil: Some(AsGiven { text: \"halo\", value: [] })"),
        ("submit-dir", "/tmp", "submit_dir: Some(\"/tmp\")"),
        ("switches", "1@10", "value: Switches { count: 1, wait_s: Some(600) }"),
        ("system-comment", "x", "system_comment: Some(\"x\")"),
        ("task-epilog", "/e", "epilog: \"/e\""),
        ("task-prolog", "/p", "prolog: \"/p\""),
        ("threads-per-core", "1", "threads: 1"),
        ("tres-per-task", "cpu=1", "tres_per_task: Some(\"cpu=1\")"),
        ("use-min-nodes", "", "use_min_nodes: true"),
        // Options without a field.
        ("acctg-freq", "30", ""),
        ("bcast", "/x", ""),
        ("delay-boot", "1", ""),
        ("gres-flags", "disable-binding", ""),
        ("msg-timeout", "1", ""),
        ("threads", "1", ""),
    ];

    #[test]
    fn every_option_that_was_a_pair_is_found_in_its_field() {
        for (option, value, shown) in ALL {
            let bytes = to_vec(&[(option, value)]);
            let read: Options = from_slice(&bytes).unwrap();
            let found = format!("{:?}", *read);
            assert!(found.contains(shown), "{option}: {found}");
            assert_eq!(read == Options::default(), shown.is_empty(), "{option}: {found}");
            assert_eq!(from_slice::<Options>(&to_vec(&read)), Ok(read), "{option}");
        }
        let all: Vec<_> = ALL.iter().map(|(option, value, _)| ((*option).to_owned(), (*value).to_owned())).collect();
        let read = options(&all);
        assert!(ALL.iter().all(|(_, _, shown)| format!("{:?}", *read).contains(shown)), "{read:?}");
        assert_eq!((read.hint, from_slice::<Options>(&[0x80])), (Some(Hint::NoMultithread), Ok(Options::default())));
    }

    #[test]
    fn a_value_that_no_command_took_is_left_out() {
        for (option, value) in
            [("gpus", "a:b:c"), ("hint", "x"), ("switches", "x"), ("cpus-per-gpu", "x"), ("new", "x")]
        {
            let read: Options = from_slice(&to_vec(&[(option, value)])).unwrap();
            assert_eq!(read, Options::default(), "{option}");
        }
    }
}
