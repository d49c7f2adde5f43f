//! Options about accelerators and about the places of nodes and tasks.

use squall_model::job::frequency::Frequency;
use squall_model::job::gpus::{GpuBind, GpuCount};
use squall_model::job::network;
use squall_model::job::options::{AsGiven, Hint, SegmentPlacing};

use crate::options::Arg::{Maybe, Needed, None as Flag};
use crate::options::submit::SubmitOptions;
use crate::options::table::{checked, counted, ignore, read, some};
use crate::options::values;
use crate::options::{GivenOption, NO, Opt, Stop, Tools, opt};

/// Entries of the options about GPUs, sockets and cores of nodes, and the network.
pub const OPTIONS: &[Opt] = &[
    opt(
        "core-spec",
        'S',
        Needed("cores"),
        Tools::ALL,
        &["SBATCH_CORE_SPEC", "SALLOC_CORE_SPEC", "SLURM_CORE_SPEC"],
        "cores of each node left to the system",
        |asked, given| specialized(asked, given, "-S"),
    )
    .hint("a job sets no cores aside (a site does, by `core_spec_count`); each use prints a warning"),
    opt(
        "cores-per-socket",
        NO,
        Needed("C"),
        Tools::ALL,
        &["SLURM_NCORES_PER_SOCKET"],
        "cores that each socket has at least",
        |asked, given| {
            asked.spec.options.inside.cores = counted(given, true)?;
            Ok(())
        },
    ),
    opt(
        "cpu-freq",
        NO,
        Needed("min[-max[:gov]]"),
        Tools::ALL,
        &["SBATCH_CPU_FREQ_REQ", "SALLOC_CPU_FREQ_REQ", "SLURM_CPU_FREQ_REQ"],
        "frequency of the CPUs of steps, kHz or low, medium, highm1, high; or a governor such as performance",
        cpu_freq,
    )
    .partly("a step whose node can't set the frequency of its CPUs does not start, and says why"),
    opt(
        "cpus-per-gpu",
        NO,
        Needed("n"),
        Tools::ALL,
        &["SBATCH_CPUS_PER_GPU", "SALLOC_CPUS_PER_GPU", "SLURM_CPUS_PER_GPU"],
        "CPUs for each GPU",
        |asked, given| {
            asked.spec.options.gpus.cpus = Some(counted(given, true)?);
            Ok(())
        },
    ),
    opt(
        "extra-node-info",
        'B',
        Needed("S[:C[:T]]"),
        Tools::ALL,
        &[],
        "sockets, cores per socket, threads per core at least",
        extra_node_info,
    ),
    opt(
        "geometry",
        NO,
        Needed("AxBxC"),
        Tools::ALL,
        &["SBATCH_GEOMETRY", "SALLOC_GEOMETRY", "SLURM_GEOMETRY"],
        "extents of the job's prism on a torus, in routers",
        |asked, given| {
            asked.spec.options.network.geometry = read(given, network::geometry, "extents like 4x4x8 are needed")?;
            Ok(())
        },
    ),
    opt(
        "gpu-bind",
        NO,
        Needed("..."),
        Tools::ALL,
        &["SBATCH_GPU_BIND", "SALLOC_GPU_BIND", "SLURM_GPU_BIND"],
        "which task gets which GPU: closest, none, map_gpu:LIST, mask_gpu:LIST, per_task:GPUS, single:TASKS",
        |asked, given| gpu_bind(asked, given, given.text()),
    )
    .partly("verbose is answered with a warning"),
    opt(
        "gpu-freq",
        NO,
        Needed("..."),
        Tools::ALL,
        &["SBATCH_GPU_FREQ", "SALLOC_GPU_FREQ", "SLURM_GPU_FREQ"],
        "",
        |_, given| {
            checked(given, values::checked::gpu_frequency, "use [memory=]low, medium, high, highm1 or MHz")?;
            Err(given.not_done(FREQUENCY))
        },
    )
    .refused(FREQUENCY),
    opt(
        "gpus",
        'G',
        Needed("n"),
        Tools::ALL,
        &["SBATCH_GPUS", "SALLOC_GPUS", "SLURM_GPUS"],
        "GPUs of the whole job",
        |asked, given| {
            asked.spec.options.gpus.total = gpus(given)?;
            Ok(())
        },
    ),
    opt(
        "gpus-per-node",
        NO,
        Needed("n"),
        Tools::ALL,
        &["SBATCH_GPUS_PER_NODE", "SALLOC_GPUS_PER_NODE", "SLURM_GPUS_PER_NODE"],
        "GPUs of each node",
        |asked, given| {
            asked.spec.options.gpus.per_node = gpus(given)?;
            Ok(())
        },
    ),
    opt(
        "gpus-per-socket",
        NO,
        Needed("n"),
        Tools::ALL,
        &["SBATCH_GPUS_PER_SOCKET", "SALLOC_GPUS_PER_SOCKET", "SLURM_GPUS_PER_SOCKET"],
        "",
        |asked, given| {
            let count = gpus(given)?;
            if count.as_ref().and_then(GpuCount::count).is_some_and(|count| count > 0) {
                return Err(given.not_done("GPUs of sockets are not counted: use --gpus-per-node or --gpus-per-task"));
            }
            asked.spec.options.gpus.per_socket = count;
            Ok(())
        },
    )
    .partly("only 0 is taken: GPUs of sockets are not counted"),
    opt(
        "gpus-per-task",
        NO,
        Needed("n"),
        Tools::ALL,
        &["SBATCH_GPUS_PER_TASK", "SALLOC_GPUS_PER_TASK", "SLURM_GPUS_PER_TASK"],
        "GPUs for each task",
        |asked, given| {
            asked.spec.options.gpus.per_task = gpus(given)?;
            Ok(())
        },
    ),
    opt(
        "gres-flags",
        NO,
        Needed("opts"),
        Tools::ALL,
        &["SBATCH_GRES_FLAGS", "SALLOC_GRES_FLAGS", "SLURM_GRES_FLAGS"],
        "how generic resources and cores go together",
        |asked, given| match given.text() {
            word @ ("disable-binding" | "enforce-binding") => {
                asked.spec.options.enforce_binding = (word == "enforce-binding").then_some(true);
                Ok(())
            }
            "one-task-per-sharing" | "multiple-tasks-per-sharing" | "allow-task-sharing" => {
                Err(given.not_done("devices are not divided among jobs: leave it out"))
            }
            _ => Err(given.invalid("use enforce-binding or disable-binding")),
        },
    )
    .partly(
        "enforce-binding and disable-binding are taken: with the latter, devices near a job's cores are still preferred; devices are never divided",
    ),
    opt(
        "grid",
        NO,
        Needed("AxBxC[:periodic]"),
        Tools::ALL,
        &["SBATCH_GRID", "SALLOC_GRID", "SLURM_GRID"],
        "ranks are a grid of processes: on a torus the job gets a prism on which neighbours are near",
        |asked, given| {
            let remedy = "use 1 to 4 extents like 32x32x32, and :periodic if the ends are neighbours";
            let grid = network::grid(given.text()).ok_or_else(|| given.invalid(remedy))?;
            asked.spec.options.network.grid = Some(grid);
            Ok(())
        },
    ),
    opt(
        "groups",
        NO,
        Needed("NAME:RANKS,..."),
        Tools::ALL,
        &["SBATCH_GROUPS", "SALLOC_GROUPS", "SLURM_GROUPS"],
        "parallel groups of ranks, those with the most traffic first: tp:8,pp:4,dp:16; they stand together in blocks",
        |asked, given| {
            let problem = "names and numbers of ranks like tp:8,pp:4,dp:16 are needed, each name once";
            asked.spec.options.network.groups = read(given, network::groups, problem)?;
            Ok(())
        },
    )
    .partly("of blocks and switches; it means nothing where all nodes are alike, and is refused on rings and tori"),
    opt(
        "hint",
        NO,
        Needed("TYPE"),
        Tools::ALL,
        &["SLURM_HINT", "SBATCH_HINT", "SALLOC_HINT"],
        "compute_bound, memory_bound, multithread or nomultithread",
        |asked, given| {
            let unknown = || {
                let line = format!("unrecognized --hint argument \"{}\", see --hint=help", given.text());
                let remedy = given.remedy("use compute_bound, memory_bound, multithread or nomultithread");
                Stop::Bad { lines: vec![line, remedy], exit: 1 }
            };
            asked.spec.options.hint = Some(Hint::parse(given.text()).ok_or_else(unknown)?);
            Ok(())
        },
    ),
    opt(
        "mem-bind",
        NO,
        Needed("TYPE"),
        Tools::ALL,
        &["SBATCH_MEM_BIND", "SALLOC_MEM_BIND", "SLURM_MEM_BIND"],
        "which memory tasks use: none or local (Linux gives it near a task's CPUs)",
        mem_bind,
    )
    .or(&["mem_bind"])
    .partly("rank, map_mem, mask_mem and sort are refused; with all others Linux gives memory near a task's CPUs"),
    opt(
        "network",
        NO,
        Needed("TYPE"),
        Tools::ALL,
        &["SBATCH_NETWORK", "SALLOC_NETWORK", "SLURM_NETWORK"],
        "sensitive (links of its own), local or tolerant; Moab's words, too",
        |asked, given| {
            if !network::knows(given.text()) {
                let why = "nothing is handed to a switch: use sensitive, local or tolerant, or leave it out";
                return Err(given.not_done(why));
            }
            asked.spec.options.network.class = Some(network::class(given.text()));
            Ok(())
        },
    )
    .partly("words for switch plugins are refused, for there are none"),
    opt(
        "ntasks-per-gpu",
        NO,
        Needed("COUNT"),
        Tools::ALL,
        &["SLURM_NTASKS_PER_TRES", "SLURM_NTASKS_PER_GPU"],
        "tasks for each GPU",
        |asked, given| {
            asked.spec.options.gpus.tasks = Some(counted(given, true)?);
            Ok(())
        },
    )
    .or(&["ntasks-per-tres"]),
    opt("prefer", NO, Needed("LIST"), Tools::ALL, &[], "features that the nodes should have", |asked, given| {
        asked.spec.options.prefer = some(given)?;
        Ok(())
    }),
    opt(
        "segment",
        NO,
        Needed("COUNT"),
        Tools::ALL,
        &["SBATCH_SEGMENT_SIZE", "SALLOC_SEGMENT_SIZE", "SRUN_SEGMENT_SIZE"],
        "nodes that stand together in a block",
        |asked, given| {
            asked.spec.options.segment = Some(counted(given, true)?);
            Ok(())
        },
    )
    .partly("of blocks; it means nothing on switches, and is refused on rings and tori"),
    opt(
        "consolidate-segments",
        NO,
        Flag,
        Tools::ALL,
        &["SBATCH_CONSOLIDATE_SEGMENTS", "SALLOC_CONSOLIDATE_SEGMENTS", "SLURM_CONSOLIDATE_SEGMENTS"],
        "all segments stand in one aggregated block",
        |asked, given| {
            place_segments(asked, |placing| placing.together = given.set);
            Ok(())
        },
    ),
    opt(
        "spread-segments",
        NO,
        Flag,
        Tools::ALL,
        &["SBATCH_SPREAD_SEGMENTS", "SALLOC_SPREAD_SEGMENTS", "SLURM_SPREAD_SEGMENTS"],
        "each segment stands in a block of its own",
        |asked, given| {
            place_segments(asked, |placing| placing.apart = given.set);
            Ok(())
        },
    ),
    opt(
        "sockets-per-node",
        NO,
        Needed("S"),
        Tools::ALL,
        &["SLURM_NSOCKETS_PER_NODE"],
        "sockets that each node has at least",
        |asked, given| {
            asked.spec.options.inside.sockets = counted(given, true)?;
            Ok(())
        },
    ),
    opt(
        "stencil",
        NO,
        Needed("WEIGHTS"),
        Tools::ALL,
        &["SBATCH_STENCIL", "SALLOC_STENCIL", "SLURM_STENCIL"],
        "what neighbours in the grid exchange along each dimension, relatively: 4,4,1; halo: all alike",
        |asked, given| {
            let problem = "what neighbours exchange along each dimension of the grid is needed, like 4,4,1";
            asked.spec.options.network.stencil = read(given, network::stencil, problem)?;
            Ok(())
        },
    ),
    opt(
        "switches",
        NO,
        Needed("max-switches{@max-time-to-wait}"),
        Tools::ALL,
        &["SBATCH_REQ_SWITCH", "SALLOC_REQ_SWITCH", "SLURM_REQ_SWITCH"],
        "at most so many leaf switches, waiting so long for them",
        |asked, given| {
            asked.spec.options.network.switches = read(given, network::switches, "a number is needed")?;
            Ok(())
        },
    ),
    opt(
        "thread-spec",
        NO,
        Needed("threads"),
        Tools::ALL,
        &["SBATCH_THREAD_SPEC", "SALLOC_THREAD_SPEC", "SLURM_THREAD_SPEC"],
        "threads of each node left to the system",
        |asked, given| specialized(asked, given, "--thread-spec"),
    )
    .hint("a job sets no threads aside (a site does, by `core_spec_count`); each use prints a warning"),
    opt(
        "threads-per-core",
        NO,
        Needed("T"),
        Tools::ALL,
        &["SBATCH_THREADS_PER_CORE", "SALLOC_THREADS_PER_CORE", "SLURM_THREADS_PER_CORE"],
        "hardware threads to use of each core",
        |asked, given| {
            asked.spec.options.inside.threads = counted(given, true)?;
            Ok(())
        },
    ),
    opt(
        "oom-kill-step",
        NO,
        Maybe("0|1"),
        Tools::ALL,
        &["SBATCH_OOM_KILL_STEP", "SALLOC_OOM_KILL_STEP", "SLURM_OOM_KILL_STEP"],
        "1: a task that runs out of memory ends its step",
        |asked, given| {
            asked.spec.options.oom_kill_step = match given.text() {
                "" | "1" => Some(true),
                "0" => Some(false),
                _ => return Err(given.invalid("0 or 1 is needed")),
            };
            Ok(())
        },
    ),
    opt("stepmgr", NO, Flag, Tools::ALL, &[], "", ignore).hint("the controller is quick enough to create all steps"),
    opt(
        "tres-bind",
        NO,
        Needed("gres/gpu:TYPE"),
        Tools::ALL,
        &["SBATCH_TRES_BIND", "SALLOC_TRES_BIND", "SLURM_TRES_BIND"],
        "which task gets which GPU",
        tres_bind,
    )
    .partly("only gres/gpu is taken, with the types of --gpu-bind"),
    opt(
        "tres-per-task",
        NO,
        Needed("LIST"),
        Tools::ALL,
        &["SBATCH_TRES_PER_TASK", "SALLOC_TRES_PER_TASK", "SLURM_TRES_PER_TASK"],
        "CPUs and GPUs for each task: cpu=2,gres/gpu=1",
        tres_per_task,
    )
    .partly("only cpu and gres/gpu are taken: of other resources a task has no part of its own"),
];

const FREQUENCY: &str = "frequencies of GPUs are left to the nodes: leave it out";

fn tres_bind(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    let bind = match given.text().split_once("gres/gpu:") {
        Some((verbose, bind)) if matches!(verbose, "" | "verbose," | "v,") && !bind.contains("gres/") => bind,
        _ => return Err(given.invalid("GPUs are bound: use gres/gpu:map:0,1 or gres/gpu:single:1")),
    };
    gpu_bind(asked, given, bind)
}

fn gpu_bind(asked: &mut SubmitOptions, given: &GivenOption<'_>, bind: &str) -> Result<(), Stop> {
    let known = "closest, none, map_gpu:LIST, mask_gpu:LIST, per_task:GPUS or single:TASKS";
    let bind = AsGiven::<GpuBind>::parse(bind).ok_or_else(|| {
        let lines = vec![format!("Invalid --gpu-bind argument: gpu:{bind}"), given.remedy(&format!("use {known}"))];
        Stop::Bad { lines, exit: 255 }
    })?;
    warn_untold(asked, given, "each task's CUDA_VISIBLE_DEVICES has its GPUs");
    asked.spec.options.gpus.bind = Some(bind);
    Ok(())
}

fn warn_untold(asked: &mut SubmitOptions, given: &GivenOption<'_>, instead: &str) {
    if given.text().split(',').any(|word| matches!(word, "v" | "verbose")) && !asked.quiet {
        asked.warnings.push(format!("--{}: verbose prints nothing here: {instead}", given.option.long));
    }
}

fn gpus(given: &GivenOption<'_>) -> Result<Option<GpuCount>, Stop> {
    read(given, GpuCount::parse, "use [NAME:][TYPE:]COUNT, such as gpu:2 or gpu:a100:1")
}

fn mem_bind(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    match values::checked::memory_binding(given.text()) {
        Ok(false) => {
            warn_untold(asked, given, "`numactl --show` in a task tells");
            asked.spec.options.shown.mem_bind = some(given)?;
            Ok(())
        }
        Ok(true) => {
            Err(given.not_done("memory is given near a task's CPUs: use none or local, or numactl in the script"))
        }
        Err(line) => Err(Stop::Bad { lines: vec![line, given.remedy("use none or local")], exit: 255 }),
    }
}

fn cpu_freq(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    Frequency::parse(given.text()).map_err(|line| Stop::Bad {
        lines: vec![
            line,
            "Invalid --cpu-freq argument".into(),
            given.remedy("use P1[-P2[:GOVERNOR]], such as low-high"),
        ],
        exit: 255,
    })?;
    asked.spec.options.shown.cpu_freq = some(given)?;
    Ok(())
}

fn specialized(asked: &mut SubmitOptions, given: &GivenOption<'_>, named: &str) -> Result<(), Stop> {
    counted(given, false)?;
    asked.warnings.push(format!(
        "error: Ignoring {named} since it's not allowed by configuration (AllowSpecResourcesUsage = No)"
    ));
    Ok(())
}

fn tres_per_task(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    for word in given.text().split(',') {
        let (name, count) = word.rsplit_once(['=', ':']).unwrap_or((word, "1"));
        let number = count.parse().ok().filter(|number: &u32| *number > 0);
        match (name, number) {
            ("cpu", Some(number)) if word != name => asked.spec.need.cpus_per_task = Some(number),
            ("gres/gpu", Some(number)) => asked.spec.options.gpus.per_task = Some(GpuCount::any(number)),
            (name, Some(number)) if name.strip_prefix("gres/gpu:").is_some_and(is_plain) => {
                let count = format!("{}:{number}", &name["gres/gpu:".len()..]);
                let unreadable = || given.invalid("use a list such as cpu=2,gres/gpu=1");
                asked.spec.options.gpus.per_task = Some(GpuCount::parse(&count).ok_or_else(unreadable)?);
            }
            (name, _) if name.strip_prefix("gres/").is_some_and(is_plain) || name.starts_with("license/") => {
                return Err(given.invalid("of these a task has no part of its own: use --gres or --licenses"));
            }
            _ => return Err(given.invalid("use a list such as cpu=2,gres/gpu=1")),
        }
    }
    asked.spec.options.shown.tres_per_task = some(given)?;
    Ok(())
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains([':', '=', '/'])
}

fn place_segments(asked: &mut SubmitOptions, change: impl FnOnce(&mut SegmentPlacing)) {
    let mut placing = asked.spec.options.segments.unwrap_or_default();
    change(&mut placing);
    asked.spec.options.segments = Some(placing).filter(|placing| *placing != SegmentPlacing::default());
}

fn extra_node_info(asked: &mut SubmitOptions, given: &GivenOption<'_>) -> Result<(), Stop> {
    let mut parts = [0; 3];
    for (at, (part, place)) in given.text().split(':').zip(["first", "second", "third", "fourth"]).enumerate() {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse().ok().filter(|count: &u32| *count > 0);
        let count = if part == "*" { Some(0) } else { number(low).filter(|_| number(high).is_some()) };
        if let (Some(field), Some(count)) = (parts.get_mut(at), count) {
            *field = count;
        } else {
            let line = format!("Invalid numeric value \"{part}\" for {place} arg of -B.");
            return Err(Stop::Bad {
                lines: vec![line, given.remedy("use SOCKETS[:CORES[:THREADS]], each a number or *")],
                exit: 1,
            });
        }
    }
    asked.extra_node_info = Some(parts);
    Ok(())
}
