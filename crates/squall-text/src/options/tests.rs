//! Tests of the option table, the parser of command lines, precedence, and messages about invalid values.

use std::collections::BTreeMap;
use std::ffi::OsString;

use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
use squall_model::job::options::{Hint, Options};
use squall_model::limits::UNLIMITED_S;
use squall_model::resource::Memory;

use super::submit::SubmitOptions;
use super::{Arg, Source, Stop, Tool, collect, counts, table};

mod effects;
mod flags;

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

/// Parses and checks a command line, without environment variables.
fn read(tool: Tool, line: &str) -> Result<SubmitOptions, Stop> {
    let args = words(line);
    let mut asked = SubmitOptions::new(tool);
    collect::apply_line(&mut asked, tool, &collect::line(tool, &args)?)?;
    collect::verify(&asked)?;
    Ok(asked)
}

fn sbatch(line: &str) -> SubmitOptions {
    read(Tool::Sbatch, line).unwrap_or_else(|stop| panic!("{line}: {stop:?}"))
}

/// Returns the message about an invalid command line, and the exit code.
fn complaint(tool: Tool, line: &str) -> String {
    match read(tool, line) {
        Ok(_) => "accepted".into(),
        Err(stop) => format!("{}exit {}", stop.complaint(tool), stop.exit()),
    }
}

#[test]
fn no_name_stands_twice() {
    for tool in [Tool::Sbatch, Tool::Srun, Tool::Salloc] {
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        for option in table::options_of(tool) {
            let short = option.short.map(|letter| format!("-{letter}"));
            let long = option.aliases.iter().chain([&option.long]).map(|name| format!("--{name}"));
            for name in long.chain(short) {
                *names.entry(name).or_default() += 1;
            }
        }
        names.retain(|_, count| *count > 1);
        assert!(names.is_empty(), "{tool:?}: {names:?}");
    }
}

#[test]
fn a_hint_gives_way_to_what_says_the_same_in_detail() {
    let settled = |line: &str, variables: &[(&str, &str)]| {
        let args = words(line);
        let mut asked = SubmitOptions::new(Tool::Srun);
        let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        collect::apply_variables(&mut asked, Tool::Srun, &lookup).unwrap();
        collect::apply_line(&mut asked, Tool::Srun, &collect::line(Tool::Srun, &args).unwrap()).unwrap();
        let said = collect::settle_hint(&mut asked).unwrap_or_default();
        let left = [asked.spec.options.hint.is_some(), asked.run.cpu_bind.is_some()];
        (left, !said.is_empty(), said.ends_with("SLURM_HINT."))
    };
    let hint = ("SLURM_HINT", "nomultithread");
    let bind = ("SLURM_CPU_BIND", "cores");
    assert_eq!(settled("--hint=nomultithread", &[]), ([true, false], false, false));
    assert_eq!(settled("--hint=nomultithread --cpu-bind=verbose", &[]), ([true, true], false, false));
    assert_eq!(settled("--hint=nomultithread --cpu-bind=cores", &[]), ([false, true], true, false));
    assert_eq!(settled("--hint=nomultithread --threads-per-core=1", &[]), ([false, false], true, false));
    assert_eq!(settled("--hint=nomultithread", &[bind]), ([true, false], false, false));
    assert_eq!(settled("--cpu-bind=cores", &[hint]), ([false, true], false, false));
    assert_eq!(settled("", &[hint, bind]), ([false, true], true, true));
    assert_eq!(settled("", &[hint]), ([true, false], false, false));
}

#[test]
fn every_variable_belongs_to_a_command() {
    for option in table::GROUPS.iter().flat_map(|group| group.options) {
        for variable in option.env {
            let read = [Tool::Sbatch, Tool::Srun, Tool::Salloc]
                .into_iter()
                .any(|tool| option.tools.has(tool) && tool.reads(variable));
            assert!(read, "--{}: nobody reads {variable}", option.long);
        }
    }
}

#[test]
fn values_attached_and_apart() {
    for line in ["-n4", "-n 4", "--ntasks 4", "--ntasks=4", "--ntasks-per-node=2 -n 4", "-Hn4", "-H -n4"] {
        assert_eq!(sbatch(line).spec.need.ntasks, Some(4), "{line}");
    }
    assert_eq!(sbatch("--nice").spec.nice, 100);
    assert_eq!(sbatch("--nice=5").spec.nice, 5);
    assert_eq!(sbatch("--nice=-5").spec.nice, -5);
    let srun = |line| read(Tool::Srun, line).expect(line);
    assert_eq!(srun("-I30 x").immediate_s, Some(30));
    assert_eq!(srun("-I x").immediate_s, Some(0));
    assert_eq!(srun("-K x").run.kill_on_bad_exit, Some(true));
    assert_eq!(srun("--kill-on-bad-exit=0 x").run.kill_on_bad_exit, Some(false));
}

#[test]
fn beginnings_of_names() {
    assert_eq!(sbatch("--out=x").spec.stdout.as_deref(), Some("x"));
    assert_eq!(sbatch("--tasks=3").spec.need.ntasks_per_node, Some(3), "as Slurm: --tasks-per-node");
    assert_eq!(sbatch("--tasks-per-node=3").spec.need.ntasks_per_node, Some(3));
    assert_eq!(sbatch("--part=a").spec.partition.as_deref(), Some("a"));
    assert_eq!(sbatch("--workdir=/x").spec.work_dir, "/x");
    assert!(complaint(Tool::Sbatch, "--mem-p=1").contains("is ambiguous"));
}

#[test]
fn options_end_at_the_first_operand() {
    let args = words("-n 2 script.sh -n 3 --hold");
    let line = collect::line(Tool::Sbatch, &args).expect("it is well formed");
    assert_eq!(line.options.len(), 1);
    assert_eq!(line.operands, words("script.sh -n 3 --hold"));
    let args = words("-n 2 -- --odd");
    let line = collect::line(Tool::Srun, &args).expect("it is well formed");
    assert_eq!(line.operands, words("--odd"));
    let args = words("-n2 -");
    assert_eq!(collect::line(Tool::Sbatch, &args).expect("it is well formed").operands, words("-"));
}

#[test]
fn values_as_they_are_kept() {
    let asked = sbatch("-t 1-2:03 --mem=4G -N 2-4 -c 3 -a 1-7:3%2 --signal=B:USR2@30 -d afterok:1:2 --requeue --hold");
    let spec = asked.spec;
    assert_eq!(spec.time_limit_s, Some(93_780));
    assert_eq!(spec.need.memory, Memory::PerNodeMb(4096));
    assert_eq!((spec.need.nodes_min, spec.need.nodes_max), (Some(2), Some(4)));
    assert_eq!(spec.need.cpus_per_task, Some(3));
    assert_eq!(spec.array.map(|a| (a.indices.to_string(), a.limit)), Some(("1,4,7".into(), Some(2))));
    assert_eq!(spec.signal.map(|s| (s.signal, s.before_s, s.batch_only)), Some((12, 30, true)));
    assert_eq!(spec.dependency.map(|d| d.terms.len()), Some(2));
    assert_eq!(spec.requeue, Some(true));
    assert!(spec.hold);
    for line in ["-t 0", "-t UNLIMITED", "-t infinite"] {
        assert_eq!(sbatch(line).spec.time_limit_s, Some(UNLIMITED_S), "{line}");
    }
    assert_eq!(sbatch("-t 0:30").spec.time_limit_s, Some(60), "limits count in minutes");
}

#[test]
fn options_that_few_jobs_have_are_read() {
    let options = sbatch("--hint=nomultithread --gpus=a100:2 --switches=1@10:00").spec.options;
    assert_eq!(options.hint.map(Hint::name), Some("nomultithread"));
    assert_eq!(
        options.gpus.total.as_ref().map(|given| (given.text.as_str(), given.count())),
        Some(("a100:2", Some(2)))
    );
    let switches = options.network.switches.as_ref().map(|given| (given.text.as_str(), given.value.wait_s));
    assert_eq!(switches, Some(("1@10:00", Some(600))));
    assert!(sbatch("--begin=now+1hour").spec.options.begins_after_submission);
    assert!(!sbatch("--begin=now+1hour --begin=16:00").spec.options.begins_after_submission);
    assert_eq!(sbatch("-t 1").spec.options, Options::default());
}

#[test]
fn values_that_only_the_controller_would_refuse_are_refused_in_its_words() {
    for (line, detail, slurm) in [
        ("--gpus=a:b:c", "--gpus=a:b:c: use [NAME:]", "Invalid generic resource (gres) specification"),
        ("--gpus-per-task=x,1:2:3", "--gpus-per-task=x,1:2:3: use", "Invalid generic resource (gres) specification"),
        ("--geometry=4y4", "--geometry=4y4: extents like 4x4x8 are needed", "Invalid argument"),
        ("--stencil=1,x", "--stencil=1,x: what neighbours exchange", "Invalid argument"),
        ("--switches=x", "--switches=x: a number is needed", "Invalid argument"),
        ("--groups=tp", "--groups=tp: names and numbers of ranks like tp:8", "Invalid argument"),
    ] {
        let heard = complaint(Tool::Sbatch, line);
        let last = format!("sbatch: error: Batch job submission failed: {slurm}\nexit 1");
        assert!(heard.contains(detail) && heard.ends_with(&last), "{heard}");
    }
}

#[test]
fn the_command_line_overrides_variables_and_they_the_script() {
    let case = |script: &str, variable: Option<(&str, &str)>, line: &str| -> (Option<u64>, Option<String>) {
        let mut asked = SubmitOptions::new(Tool::Sbatch);
        let args = words(script);
        for found in collect::line(Tool::Sbatch, &args).expect("it is well formed").options {
            collect::apply_option(&mut asked, Tool::Sbatch, &found, &Source::Script(2)).expect("it can be");
        }
        let lookup = |name: &str| variable.filter(|(known, _)| *known == name).map(|(_, value)| value.to_owned());
        collect::apply_variables(&mut asked, Tool::Sbatch, &lookup).expect("it can be");
        let args = words(line);
        let line = collect::line(Tool::Sbatch, &args).expect("it is well formed");
        collect::apply_line(&mut asked, Tool::Sbatch, &line).expect("it can be");
        (asked.spec.time_limit_s.map(|s| s / 60), asked.spec.partition)
    };
    let partition = |name: &str| Some(name.to_owned());
    assert_eq!(case("-t 1 -p a", None, ""), (Some(1), partition("a")));
    assert_eq!(case("-t 1 -p a", Some(("SBATCH_TIMELIMIT", "2")), ""), (Some(2), partition("a")));
    assert_eq!(case("-t 1 -p a", Some(("SBATCH_TIMELIMIT", "2")), "-t 3"), (Some(3), partition("a")));
    assert_eq!(case("-t 1", Some(("SBATCH_PARTITION", "b")), "-t 3"), (Some(3), partition("b")));
    assert_eq!(case("-t 1", Some(("SLURM_TIMELIMIT", "2")), ""), (Some(1), None), "that one is srun's");
}

#[test]
fn memory_options_contradict_each_other_only_at_the_same_place() {
    assert_eq!(
        complaint(Tool::Sbatch, "--mem=1G --mem-per-cpu=1G"),
        "sbatch: error: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.\nexit 1"
    );
    let mut asked = SubmitOptions::new(Tool::Sbatch);
    let args = words("--mem=1G");
    for found in collect::line(Tool::Sbatch, &args).expect("it is well formed").options {
        collect::apply_option(&mut asked, Tool::Sbatch, &found, &Source::Script(2)).expect("it can be");
    }
    let args = words("--mem-per-cpu=2G");
    let line = collect::line(Tool::Sbatch, &args).expect("it is well formed");
    collect::apply_line(&mut asked, Tool::Sbatch, &line).expect("it can be");
    assert_eq!(asked.spec.need.memory, Memory::PerCpuMb(2048));
}

#[test]
fn complaints_are_slurms_and_say_what_would_be_right() {
    let lines = [
        "--x",
        "--x=5",
        "-y",
        "-n",
        "--time",
        "--hold=1",
        "-t abc",
        "-n abc",
        "-n 0",
        "-N x",
        "-N 4-2",
        "--mem=lots",
        "--begin=someday",
        "-d afterok",
        "-a 5-1",
        "--signal=NOPE",
        "--mail-type=SOMETIMES",
        "--open-mode=x",
        "--nice=x",
        "--priority=-1",
        "--hint=x",
        "--exclusive=x",
        "-m plane",
        "--kill-on-invalid-dep=maybe",
        "-Q -v",
    ];
    let seen: Vec<String> =
        lines.iter().map(|line| format!("$ sbatch {line}\n{}", complaint(Tool::Sbatch, line))).collect();
    insta::assert_snapshot!("complaints", seen.join("\n"));
}

#[test]
fn a_variable_that_cannot_be_is_named() {
    let lookup = |name: &str| (name == "SBATCH_TIMELIMIT").then(|| "abc".to_owned());
    let stop = collect::apply_variables(&mut SubmitOptions::new(Tool::Sbatch), Tool::Sbatch, &lookup)
        .expect_err("it can't be");
    let text = stop.complaint(Tool::Sbatch);
    assert!(text.starts_with("sbatch: error: Invalid --time specification\n"), "{text}");
    assert!(text.ends_with("it stands in the variable SBATCH_TIMELIMIT\n"), "{text}");
}

#[test]
fn what_clients_call_is_accepted() {
    for line in [
        "--ntasks-per-node=1 --kill-on-bad-exit --mpi=none --nodes=2 --nodelist=a,b --ntasks=2 orted x",
        "--cpu-bind=q --unbuffered --exact --exclusive --kill-on-bad-exit=1 --wait=60 x",
        "--export=ALL,X=Y --output=F-%t --label x",
        "--multi-prog -n 4 conf",
        "--overlap --jobid=5 -r 1 -w n1 x",
        "--cpu_bind=none --mem_bind=local -m block:cyclic x",
        "-l -u -Q --pty --preserve-env x",
        // An example of srun(1): of a range, the minimum counts.
        "-N2 -B 4-4:2-2 x",
    ] {
        assert_eq!(complaint(Tool::Srun, line), "accepted", "{line}");
    }
    for line in [
        "--get-user-env=L --export=NONE --parsable",
        "--get-user-env=10L -k --no-kill=off",
        "--wait-all-nodes=1 --acctg-freq=30 --profile=none --licenses=a:2",
        "-B 2:4:1 --tmp=1G --mincpus=2 --gres=gpu:1 --gres-flags=disable-binding",
        "--deadline=now+1day --delay-boot=5 --prefer=x --network=sensitive --reservation=r --share",
    ] {
        assert_eq!(complaint(Tool::Sbatch, line), "accepted", "{line}");
    }
    assert_eq!(sbatch("-B 2-4:1-2:*").extra_node_info, Some([2, 1, 0]));
    assert!(complaint(Tool::Sbatch, "-B 2-x").starts_with("sbatch: error: Invalid numeric value \"2-x\""));
}

/// Generates arguments: known options with any value, and any text.
fn argument() -> impl Strategy<Value = OsString> {
    let names: Vec<&'static str> = table::options_of(Tool::Sbatch).map(|option| option.long).collect();
    let known =
        (prop::sample::select(names), prop_oneof![any::<String>(), Just("1".into()), Just("a-b:c@d%e,f?g".into())])
            .prop_map(|(name, value)| format!("--{name}={value}"));
    let values = "[0-9a-z:@%,?+_\\[\\]=.-]{0,12}";
    prop_oneof![known, values, "-[a-zA-Z][0-9a-z:@%,-]{0,8}", any::<String>()].prop_map(OsString::from)
}

proptest! {
    #[test]
    fn any_command_line_is_read_without_panic(args in prop::collection::vec(argument(), 0..6)) {
        for tool in [Tool::Sbatch, Tool::Srun, Tool::Salloc] {
            if let Ok(line) = collect::line(tool, &args) {
                let mut asked = SubmitOptions::new(tool);
                let _ = collect::apply_line(&mut asked, tool, &line).and_then(|()| collect::verify(&asked));
            }
        }
    }

    #[test]
    fn any_value_of_any_option_is_answered(value in "\\PC{0,20}") {
        for option in table::GROUPS.iter().flat_map(|group| group.options).filter(|o| o.arg != Arg::None) {
            for tool in [Tool::Sbatch, Tool::Srun, Tool::Salloc].into_iter().filter(|tool| option.tools.has(*tool)) {
                let found = (option, Some(value.clone()));
                if let Err(stop) = collect::apply_option(&mut SubmitOptions::new(tool), tool, &found, &Source::Line) {
                    assert!(stop.exit() != 0 || matches!(stop, Stop::Show(_) | Stop::Help | Stop::Brief), "{option:?}={value}");
                }
            }
        }
    }
}

#[test]
fn tres_per_task_is_cpus_and_gpus_or_refused() {
    let asked = sbatch("--tres-per-task=cpu=3,gres/gpu:a100:2");
    assert_eq!(asked.spec.need.cpus_per_task, Some(3));
    let per_task = |asked: &SubmitOptions| asked.spec.options.gpus.per_task.as_ref().map(|given| given.text.clone());
    assert_eq!(per_task(&asked).as_deref(), Some("a100:2"));
    assert_eq!(per_task(&sbatch("--tres-per-task=gres/gpu")).as_deref(), Some("1"));
    for list in ["cpu", "cpu::3", "cpu:3cpu:3", "gres//gpu::1", "gres/shard:3", "license/x:7", "cpu=0", "", "gres/:1"] {
        let said = complaint(Tool::Srun, &format!("--tres-per-task={list}"));
        assert!(said.contains("--tres-per-task"), "{list}: {said}");
    }
}

#[test]
fn gpus_of_job_and_node_say_how_many_nodes() {
    let nodes = |line: &str| {
        let mut asked = sbatch(line);
        drop(counts::complete(&mut asked));
        (asked.spec.need.nodes_min, asked.spec.need.nodes_max)
    };
    assert_eq!(nodes("--gpus=4 --gpus-per-node=2"), (Some(2), Some(2)));
    assert_eq!(nodes("--gpus=a100:4 --gpus-per-node=a100:2 -N1"), (Some(1), None), "what is said holds");
    assert_eq!((nodes("--gpus=3 --gpus-per-node=2"), nodes("--gpus=3")), ((None, None), (None, None)));
}

// faults.md E, section 3 of the newcomer's table: a node list may name fewer nodes than the job has, but not more.
#[test]
fn e_more_nodes_are_named_than_there_may_be() {
    for (line, said) in [("-w n1,n2 -N1", "-N 2-1"), ("-w n[1-3] -N1-2", "-N 3-2"), ("-w n1,n2,n1 -N1", "-N 2-1")] {
        for tool in [Tool::Sbatch, Tool::Srun, Tool::Salloc] {
            let mut asked = read(tool, line).expect(line);
            let stop = counts::complete(&mut asked).expect_err(line);
            assert!(stop.complaint(tool).contains(&format!("invalid number of nodes ({said})")), "{tool:?} {line}");
        }
    }
    assert!(counts::complete(&mut sbatch("-w n1,n1 -N1")).is_ok());
}

// faults.md E: combinations of options about GPUs have the same results as in Slurm.
#[test]
fn e_gpus_and_tasks_that_share_them() {
    let settled = |line: &str| {
        let mut asked = sbatch(line);
        counts::complete(&mut asked).map(|()| asked.spec.need).map_err(|stop| stop.complaint(Tool::Sbatch))
    };
    let each = |line: &str| settled(line).map(|need| need.ntasks_per_node);
    assert_eq!(each("--ntasks-per-gpu=1 --gpus-per-node=2 -n4"), Ok(Some(2)), "two nodes, not four tasks on two GPUs");
    assert_eq!(each("--ntasks-per-gpu=1 --gpus-per-node=2"), Ok(None));
    // faults.md P3: each node gets as many tasks as can share its GPUs.
    for (line, tasks, of_node) in [
        ("-N2 --gpus-per-node=1 --ntasks-per-gpu=2", 4, Some(2)),
        ("-N2 --gres=gpu:1 --ntasks-per-gpu=2", 4, Some(2)),
        ("-N2 --gres=gpu:a100:1,gpu:v100:1 --ntasks-per-gpu=1", 4, Some(2)),
        ("-N2 --gpus=2 --ntasks-per-gpu=2", 4, Some(2)),
        ("-N2 --gpus=a100:2,v100:1 --ntasks-per-gpu=1", 3, Some(2)),
        ("--gpus=3 --ntasks-per-gpu=1", 3, None),
    ] {
        assert_eq!(settled(line).map(|need| (need.ntasks, need.ntasks_per_node)), Ok((Some(tasks), of_node)), "{line}");
    }
    for (line, said) in [
        ("--mem-per-gpu=1000", "--mem-per-gpu is about the GPUs of a job"),
        ("--gpus-per-task=1", "Failed to validate job spec. --gpus-per-task used without either"),
    ] {
        let heard = settled(line).expect_err(line);
        assert!(heard.contains(said) && heard.contains("Invalid generic resource (gres) specification"), "{heard}");
    }
    assert!(settled("--mem-per-gpu=1000 --gres=gpu:1").is_ok());
}

// faults.md E: `--exclusive=user` does not request whole nodes; of several `--exclusive` the last counts.
#[test]
fn e_exclusive_user_is_no_whole_node() {
    let asked = |line: &str| {
        let asked = sbatch(line);
        (asked.spec.need.exclusive, asked.spec.options.exclusive_user)
    };
    let (user, whole) = ((false, true), (true, false));
    assert_eq!((asked("--exclusive=user"), asked("--exclusive=USER")), (user, user));
    assert_eq!(asked("--exclusive=topo"), whole);
    assert_eq!((asked("--exclusive"), asked("--exclusive=exclusive")), (whole, whole));
    assert_eq!((asked("--exclusive --exclusive=user"), asked("--exclusive=user --exclusive")), (user, whole));
}

#[test]
fn tres_bind_is_gpu_bind_and_what_has_no_counterpart_is_refused() {
    let bind = |line: &str| sbatch(line).spec.options.gpus.bind.as_ref().map(|given| given.text.clone());
    assert_eq!(bind("--tres-bind=gres/gpu:map:0,1").as_deref(), Some("map:0,1"));
    assert_eq!(bind("--tres-bind=gres/gpu:per_task:1").as_deref(), Some("per_task:1"));
    assert!(complaint(Tool::Srun, "--tres-bind=gres/fpga:closest").contains("gres/gpu:map:0,1"));
    assert_eq!(complaint(Tool::Sbatch, "--oom-kill-step=0"), "accepted");
    assert_eq!(complaint(Tool::Sbatch, "--oom-kill-step=1"), "accepted");
    assert!(complaint(Tool::Sbatch, "--oom-kill-step=2").contains("0 or 1 is needed"));
    let report = |line: &str| sbatch(line).spec.options.report;
    assert_eq!(["", "--report", "--report=0"].map(report), [None, Some(true), Some(false)]);
    assert!(complaint(Tool::Sbatch, "--report=yes").contains("0 or 1 is needed"));
}
