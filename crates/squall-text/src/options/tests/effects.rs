//! Tests that every option has its declared effect: it works, it is accepted without effect, or it is refused
//! (faults.md, audit-admin.md 2.1).

use super::{Source, Stop, SubmitOptions, Tool, collect, complaint, read, sbatch, table};
use crate::options::{Effect, Opt};

const TOOLS: [Tool; 3] = [Tool::Sbatch, Tool::Srun, Tool::Salloc];

/// Options of which the test can't see the effect. Most request what Squall does in any case, for these values and
/// reasons.
const DONE_ANYWAY: &[(&str, &str)] = &[
    ("batch", "features that --constraint wants of every node: the script runs on the first"),
    ("cpu-freq", "node daemons find it among the displayed options"),
    ("bcast-exclude", "NONE: no libraries are copied"),
    ("mem-bind", "none, local: Linux gives memory near a task's CPUs"),
    ("profile", "none: no profiles are recorded"),
    ("send-libs", "no: no libraries are copied"),
];

/// Options that commands read before they apply the others.
const READ_BEFORE: &[&str] = &["het-group"];

/// Values to try; each option accepts at least one of them.
const VALUES: &[&str] = &[
    "cyclic",
    "1",
    "0",
    "none",
    "no",
    "yes",
    "2x2",
    "a",
    "now+1hour",
    "afterok:1",
    "USR1",
    "append",
    "block",
    "threads",
    "NONE",
    "nomultithread",
    "cpu=1",
    "gres/gpu:none",
    "enforce-binding",
    "sensitive",
    "low",
    "/dev/null",
    "/dev",
    "FAIL",
    "root",
    "1:1:1",
    "10",
    "1G",
    "ALL",
    "expedite",
    "replace",
    "a:exec",
    "1-4:2",
];

fn options() -> impl Iterator<Item = &'static Opt> {
    table::GROUPS.iter().flat_map(|group| group.options)
}

fn tool_of(option: &Opt) -> Tool {
    TOOLS.into_iter().find(|tool| option.tools.has(*tool)).expect("each option belongs to a command")
}

/// Returns, for each accepted value, whether the option changes the request in more than displayed values.
fn traces(option: &'static Opt) -> Vec<bool> {
    let tool = tool_of(option);
    let values = std::iter::once(None).chain(VALUES.iter().copied().map(Some));
    let mut found = Vec::new();
    for value in values.filter(|value| !matches!(option.arg, super::Arg::Needed(_)) || value.is_some()) {
        let mut asked = SubmitOptions::new(tool);
        match collect::apply_option(&mut asked, tool, &(option, value.map(str::to_owned)), &Source::Line) {
            Ok(()) => {}
            Err(Stop::Show(_) | Stop::Help | Stop::Brief) => {
                found.push(true);
                continue;
            }
            Err(_) => continue,
        }
        (asked.sources, asked.given) = Default::default();
        let mut unchanged = SubmitOptions::new(tool);
        (asked.spec.options.shown, unchanged.spec.options.shown) = Default::default();
        found.push(format!("{asked:?}") != format!("{unchanged:?}"));
    }
    found
}

#[test]
fn every_option_has_a_declared_effect() {
    let mut undeclared = Vec::new();
    for option in options() {
        let long = option.long;
        let listed = DONE_ANYWAY.iter().any(|(name, _)| *name == long) || READ_BEFORE.contains(&long);
        let traces = traces(option);
        match option.effect {
            Effect::Refused(why) => assert!(traces.is_empty() && !why.is_empty(), "--{long} is not refused"),
            Effect::Hint(why) => assert!(!traces.is_empty() && !why.is_empty(), "--{long}: no value is taken"),
            Effect::Works | Effect::Partly(_) => {
                // These options need root or a display, so the test can't try them.
                let untried = matches!(long, "uid" | "gid" | "x11");
                assert!(!traces.is_empty() || untried, "--{long}: give the test a value that it takes");
                if !(traces.contains(&true) || listed || untried) {
                    undeclared.push(long);
                }
            }
        }
    }
    assert!(
        undeclared.is_empty(),
        "{undeclared:?}: taken, and nothing acts on them: make them a hint(), or refuse them"
    );
}

// docs/options-without-effect.md lists these by the table.
#[test]
fn options_with_refused_values_say_so() {
    for line in [
        "--container-name=n:exec",
        "--exclusive=mcs",
        "--gpus-per-socket=1",
        "--nodes=1,2",
        "--nodes=1-4:2",
        "--profile=task",
    ] {
        let heard = complaint(Tool::Sbatch, line);
        let (long, value) = line.trim_start_matches("--").split_once('=').expect(line);
        assert!(heard.contains(value) && !heard.ends_with("exit 0"), "{line}: {heard}");
        let option = options().find(|option| option.long == long).expect(line);
        assert!(matches!(option.effect, Effect::Partly(why) if !why.is_empty()), "{line}");
    }
}

#[test]
fn d3_d4_d7_what_would_change_what_runs_is_refused_by_name() {
    for (line, said, exit) in [
        ("--container=", "Invalid --container specification", 255),
        ("--container-id=x", "--container-id=x: ", 1),
        ("--container-image=ubuntu --container-mounts=x", "Invalid --container-mounts specification", 255),
        ("--container-mounts=/x", "--container-mounts needs --container or --container-image", 1),
        ("--container-image=ubuntu --container-workdir=x", "Invalid --container-workdir specification", 255),
        ("--container-name=x/y", "Invalid --container-name specification", 255),
        ("--context=x", "--context=x: ", 1),
        ("--mcs-label=x", "--mcs-label=x: ", 1),
        ("--exclusive=mcs", "--exclusive=mcs: ", 1),
        ("--bb=x", "--bb=x: ", 1),
        ("--bbf=/nonexistent", "Invalid --bbf specification", 1),
        ("--bbf=/dev/null", "--bbf=/dev/null: ", 1),
        ("--container-type=x", "--container-type=x: ", 1),
        ("--mem-update=1G@10", "--mem-update=1G@10: ", 1),
        ("--resources=x", "--resources=x: ", 1),
        ("--cluster-constraint=x", "--cluster-constraint=x: ", 1),
        ("--power=level", "--power=level: ", 1),
        ("--gres-flags=one-task-per-sharing", "--gres-flags=one-task-per-sharing: ", 1),
        ("--gres-flags=x", "Invalid --gres-flags specification", 255),
        ("--gres=gpu=2", "Invalid generic resource (gres) specification", 1),
        ("--network=x", "--network=x: ", 1),
        ("--mem-bind=rank", "--mem-bind=rank: ", 1),
        ("--mem-bind=foo", "unrecognized --mem-bind argument \"foo\"", 255),
        ("--gpu-bind=foo", "Invalid --gpu-bind argument: gpu:foo", 255),
        ("--profile=all", "--profile=all: ", 1),
        ("--profile=foo", "invalid --profile=foo option", 255),
        ("--cpu-freq=foo", "unrecognized --cpu-freq argument \"foo\"\nNAME: error: Invalid --cpu-freq argument", 255),
        ("--gpu-freq=medium", "--gpu-freq=medium: frequencies of GPUs are left to the nodes", 1),
        ("--gpu-freq=foo", "Invalid --gpu-freq argument: gpu:foo", 255),
        ("--acctg-freq=foo", "Invalid --acctg-freq specification: foo", 255),
        ("--delay-boot=foo", "Invalid --delay-boot specification", 255),
        ("--mail-type=foo", "Invalid --mail-type specification", 255),
        ("--mail-user=-f", "Invalid --mail-user specification", 255),
        ("--core-spec=foo", "Invalid numeric value \"foo\" for --core-spec.", 1),
    ] {
        for tool in TOOLS {
            let heard = complaint(tool, line);
            let said = said.replace("NAME", tool.name());
            assert!(heard.contains(&said) && heard.ends_with(&format!("exit {exit}")), "{tool:?} {line}: {heard}");
        }
    }
}

#[test]
fn d3_d7_options_of_one_command_are_refused_by_name() {
    for (tool, line, said, exit) in [
        (Tool::Sbatch, "--batch=x", "Job --batch option is invalid or not a subset of --constraints", 1),
        (Tool::Sbatch, "--batch=b -C a", "Job --batch option is invalid", 1),
        (Tool::Sbatch, "--batch=a -C a|b", "without | and counts", 1),
        (Tool::Srun, "--accel-bind=g x", "--accel-bind=g: ", 1),
        (Tool::Sbatch, "--resv-ports", "--resv-ports: ports are reserved for steps", 1),
        (Tool::Salloc, "--resv-ports=2", "--resv-ports=2: ports are reserved for steps", 1),
        (Tool::Srun, "--resv-ports=x x", "Invalid numeric value \"x\" for --resv-ports.", 1),
        (Tool::Srun, "--send-libs x", "--send-libs: ", 1),
        (Tool::Srun, "--send-libs=foo x", "Invalid --send-libs specification", 255),
        (Tool::Srun, "--bcast-exclude=/x x", "--bcast-exclude=/x: ", 1),
        (Tool::Srun, "--compress=foo x", "--compress=foo: ", 1),
        (Tool::Srun, "--msg-timeout=foo x", "Invalid numeric value \"foo\" for --msg-timeout.", 1),
        (Tool::Srun, "--threads=foo x", "Invalid numeric value \"foo\" for --threads.", 1),
        (Tool::Srun, "--mem-update=20@60 x", "--mem-update=20@60: a running job keeps its memory", 1),
        (Tool::Srun, "--overlap=foo x", "Invalid --overlap specification", 255),
        (Tool::Srun, "--debugger-test x", "--debugger-test: ", 1),
        (Tool::Srun, "--external-launcher x", "--external-launcher: ", 1),
        (Tool::Srun, "--ignore-signals=INT x", "--ignore-signals=INT: ", 1),
        (Tool::Srun, "--treewidth=2 x", "--treewidth=2: ", 1),
        (Tool::Srun, "-Z x", "--no-allocate: ", 1),
        (Tool::Salloc, "--get-user-env", "--get-user-env: ", 1),
    ] {
        let heard = complaint(tool, line);
        assert!(heard.contains(said) && heard.ends_with(&format!("exit {exit}")), "{tool:?} {line}: {heard}");
    }
    for (tool, line) in [
        (Tool::Sbatch, "--batch=a -C a&b"),
        (Tool::Srun, "--compress=none --send-libs=no --bcast-exclude=NONE x"),
        (Tool::Srun, "--gpu-bind=mask_gpu:0x1,0x2 --mem-bind=local x"),
        (Tool::Salloc, "--gpu-bind=none --segment=2 -w n1,n2 -N2-4"),
        (Tool::Sbatch, "--open-mode=apend --array=1-5% -d afterok:1_[1-2]"),
    ] {
        assert_eq!(complaint(tool, line), "accepted", "{line}");
    }
    assert_eq!(sbatch("--open-mode=apend").spec.append, Some(true));
    let file = std::env::temp_dir().join(format!("squall-exclude-{}", std::process::id()));
    std::fs::write(&file, "n1\nn2\n").expect("the file can be written");
    let exclude = sbatch(&format!("-x {}", file.display())).spec.need.exclude;
    std::fs::remove_file(&file).expect("it was written");
    assert_eq!(exclude.as_deref(), Some("n1,n2"), "names in a file");
    assert_eq!(sbatch("--ntasks-per-tres=2").spec.options.gpus.tasks, Some(2));
    assert_eq!(sbatch("--array=1-5%0").spec.array.map(|array| (array.limit, array.text)), Some((None, "1-5".into())));
}

#[test]
fn a_node_file_is_a_list_of_nodes() {
    let file = std::env::temp_dir().join(format!("squall-nodes-{}", std::process::id()));
    std::fs::write(&file, "n1\nn3 n2\n").expect("the file can be written");
    let named = sbatch(&format!("--nodefile={}", file.display())).spec.need.nodelist;
    std::fs::remove_file(&file).expect("it was written");
    assert_eq!(named.as_deref(), Some("n1,n3,n2"));
}

#[test]
fn calls_of_the_command_itself() {
    let bell = |line| read(Tool::Salloc, line).expect(line).alloc.bell;
    assert_eq!([bell(""), bell("--bell"), bell("--no-bell")], [None, Some(true), Some(false)]);
}

#[test]
fn d7_x11_without_a_display_ends_as_by_slurm() {
    let heard = complaint(Tool::Srun, "--x11 x");
    let slurm = "srun: error: No DISPLAY variable set, cannot setup x11 forwarding.\nexit 255";
    let display = std::env::var_os("DISPLAY").is_some_and(|display| !display.is_empty());
    assert!(if display { heard == "accepted" } else { heard == slurm }, "{heard}");
}

#[test]
fn variables_are_refused_as_options_are() {
    for (tool, variable, value, option) in [
        (Tool::Sbatch, "SBATCH_CONTAINER_ID", "x", "--container-id=x"),
        (Tool::Srun, "SRUN_CONTAINER_ID", "x", "--container-id=x"),
        (Tool::Salloc, "SALLOC_BURST_BUFFER", "x", "--bb=x"),
        (Tool::Srun, "SLURM_PROFILE", "all", "--profile=all"),
        (Tool::Srun, "SLURM_MEM_BIND", "rank", "--mem-bind=rank"),
    ] {
        let lookup = |name: &str| (name == variable).then(|| value.to_owned());
        let stop = collect::apply_variables(&mut SubmitOptions::new(tool), tool, &lookup).expect_err(variable);
        let text = stop.complaint(tool);
        assert!(text.contains(option) && text.contains(variable), "{variable}: {text}");
    }
}

#[test]
fn d7_verbose_names_what_is_taken_without_effect() {
    let lines = |tool, line: &str| super::super::shown::without_effect(&read(tool, line).expect(line), tool).join("\n");
    let told = lines(Tool::Sbatch, "--mail-type=END --mail-user=me --wait-all-nodes=1 --acctg-freq=30 -t 1");
    for option in ["--wait-all-nodes", "--acctg-freq"] {
        assert!(told.contains(&format!("{option} is taken without effect: ")), "{told}");
    }
    assert_eq!(told.lines().count(), 2);
    assert_eq!(lines(Tool::Srun, "-n 1 x"), "");
    let untold = sbatch("--gpu-bind=v,single:1 --mem-bind=verbose,local --tres-bind=verbose,gres/gpu:none").warnings;
    let options = ["gpu-bind", "mem-bind", "tres-bind"];
    assert_eq!(untold.len(), options.len(), "{untold:?}");
    for option in options {
        let said = format!("--{option}: verbose prints nothing here: ");
        assert!(untold.iter().any(|line| line.starts_with(&said)), "{untold:?}");
    }
    let warned = sbatch("-S 1 --thread-spec=1").warnings;
    assert_eq!(
        warned,
        ["-S", "--thread-spec"].map(|option| format!(
            "error: Ignoring {option} since it's not allowed by configuration (AllowSpecResourcesUsage = No)"
        ))
    );
}

#[test]
fn an_empty_name_is_none() {
    for tool in TOOLS {
        let line = "--account= --qos= --reservation= --wckey= --mail-user= --nice= -t 1";
        let spec = read(tool, line).expect(line).spec;
        let names = [spec.account, spec.qos, spec.reservation, spec.wckey, spec.mail_user];
        assert_eq!((names, spec.nice), (Default::default(), 0), "{tool:?}");
    }
    let taken_back = sbatch("--account=a --account= --reservation=r --reservation= -t 1").spec;
    assert_eq!((taken_back.account, taken_back.reservation), (None, None));
}
