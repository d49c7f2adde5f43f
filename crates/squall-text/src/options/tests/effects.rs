//! Tests that every option has its declared effect: it works, it is accepted without effect, or it is refused
//! (faults.md, audit-admin.md 2.1).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::{Asked, Source, Stop, Tool, collect, complaint, read, sbatch, table};
use crate::options::{Effect, Opt};

const TOOLS: [Tool; 3] = [Tool::Sbatch, Tool::Srun, Tool::Salloc];

/// Options that request what Squall does in any case, with the values and the reason.
const DONE_ANYWAY: &[(&str, &str)] = &[
    ("batch", "features that --constraint wants of every node: the script runs on the first"),
    ("bcast-exclude", "NONE: no libraries are copied"),
    ("gres-flags", "disable-binding: devices near the job's cores are only preferred"),
    ("mem-bind", "none, local: Linux gives memory near a task's CPUs"),
    ("profile", "none: no profiles are recorded"),
    ("send-libs", "no: no libraries are copied"),
    ("wait-all-nodes", "every node is ready before a script runs"),
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
    "disable-binding",
    "sensitive",
    "low",
    "/dev/null",
    "FAIL",
    "root",
    "1:1:1",
    "10",
    "1G",
    "ALL",
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
        let mut asked = Asked::new(tool);
        match collect::obey(&mut asked, tool, &(option, value.map(str::to_owned)), &Source::Line) {
            Ok(()) => {}
            Err(Stop::Show(_) | Stop::Help | Stop::Brief) => {
                found.push(true);
                continue;
            }
            Err(_) => continue,
        }
        (asked.sources, asked.given) = Default::default();
        let mut unchanged = Asked::new(tool);
        (asked.spec.options.shown, unchanged.spec.options.shown) = Default::default();
        found.push(format!("{asked:?}") != format!("{unchanged:?}"));
    }
    found
}

/// Returns the path of a source file, given relative to the folder of crates.
fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a folder").join(path)
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
                // Only root may use these options, so the test can't try them.
                let untried = matches!(long, "uid" | "gid");
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

/// Returns the reason why an option with this effect is in a list. None: it is not.
type Pick = fn(Effect) -> Option<&'static str>;

/// Returns the documentation page about options without effect, generated from the table.
fn page() -> String {
    let mut text = String::from(
        "# Options without effect\n\n\
         What sbatch, srun and salloc do with options of Slurm that Squall does not fully have. An option works, or is in\n\
         one of these lists. The same holds for `#SBATCH` lines and for the variables of the options. This page is made\n\
         from the option table (`crates/squall-text/src/options/table/`); a test keeps them in step.\n",
    );
    let commands = |option: &Opt| {
        let of: Vec<&str> = TOOLS.into_iter().filter(|tool| option.tools.has(*tool)).map(Tool::name).collect();
        if of.len() == TOOLS.len() { "all".to_owned() } else { of.join(", ") }
    };
    let lists: [(&str, &str, Pick); 3] = [
        (
            "Taken without effect",
            "They are checked and change nothing of what runs. With `-v` the command names each that was given.",
            |effect| if let Effect::Hint(why) = effect { Some(why) } else { None },
        ),
        (
            "Refused",
            "They would change what runs, so the command ends with an error that names the option.",
            |effect| if let Effect::Refused(why) = effect { Some(why) } else { None },
        ),
        ("Some values are refused", "These options work, but not with every value.", |effect| {
            if let Effect::Partly(why) = effect { Some(why) } else { None }
        }),
    ];
    for (title, what, pick) in lists {
        let _ = write!(text, "\n## {title}\n\n{what}\n\n| option | commands | why |\n|---|---|---|\n");
        let mut rows: Vec<(&Opt, &str)> = options().filter_map(|option| Some((option, pick(option.effect)?))).collect();
        rows.sort_by_key(|(option, _)| option.long);
        for (option, why) in rows {
            let _ = writeln!(text, "| `--{}` | {} | {} |", option.long, commands(option), why.replace('|', "\\|"));
        }
    }
    text.push_str(
        "\nOptions that neither Squall nor the Slurm it follows knows, such as those of the pyxis plugin\n\
         (`--container-image`), are refused as unrecognized.\n",
    );
    text
}

#[test]
fn the_page_of_options_without_effect_is_in_step_with_the_table() {
    let path = source("../docs/options-without-effect.md");
    let page = page();
    if std::env::var_os("SQUALL_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "run this test with SQUALL_WRITE_DOCS=1 to write {}", path.display());
}

#[test]
fn d3_d4_d7_what_would_change_what_runs_is_refused_by_name() {
    let unknown = "unrecognized option";
    for (line, said, exit) in [
        ("--container=/x", "--container=/x: ", 1),
        ("--container-id=x", "--container-id=x: ", 1),
        ("--container-image=ubuntu", unknown, 255),
        ("--container-mounts=/x", unknown, 255),
        ("--container-workdir=/x", unknown, 255),
        ("--container-name=x", unknown, 255),
        ("--context=x", "--context=x: ", 1),
        ("--mcs-label=x", "--mcs-label=x: ", 1),
        ("--exclusive=mcs", "--exclusive=mcs: ", 1),
        ("--exclusive=topo", "Invalid --exclusive specification", 255),
        ("--bb=x", "--bb=x: ", 1),
        ("--bbf=/nonexistent", "Invalid --bbf specification", 1),
        ("--bbf=/dev/null", "--bbf=/dev/null: ", 1),
        ("--reboot", "--reboot: ", 1),
        ("--cluster-constraint=x", "--cluster-constraint=x: ", 1),
        ("--power=level", "--power=level: ", 1),
        ("--gres-flags=enforce-binding", "--gres-flags=enforce-binding: ", 1),
        ("--gres-flags=x", "Invalid --gres-flags specification", 255),
        ("--gres=gpu=2", "Invalid generic resource (gres) specification", 1),
        ("--network=x", "--network=x: ", 1),
        ("--mem-bind=rank", "--mem-bind=rank: ", 1),
        ("--mem-bind=foo", "unrecognized --mem-bind argument \"foo\"", 255),
        ("--gpu-bind=closest", "--gpu-bind=closest: ", 1),
        ("--gpu-bind=foo", "Invalid --gpu-bind argument: gpu:foo", 255),
        ("--tres-bind=gres/gpu:closest", "--tres-bind=gres/gpu:closest: ", 1),
        ("--profile=all", "--profile=all: ", 1),
        ("--profile=foo", "invalid --profile=foo option", 255),
        ("--cpu-freq=foo", "unrecognized --cpu-freq argument \"foo\"\nNAME: error: Invalid --cpu-freq argument", 255),
        ("--gpu-freq=foo", "Invalid --gpu-freq argument: gpu:foo", 255),
        ("--acctg-freq=foo", "Invalid --acctg-freq specification: foo", 255),
        ("--delay-boot=foo", "Invalid --delay-boot specification", 255),
        ("--mail-type=foo", "Invalid --mail-type specification", 255),
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
        (Tool::Srun, "--resv-ports=2 x", "--resv-ports=2: ", 1),
        (Tool::Srun, "--send-libs x", "--send-libs: ", 1),
        (Tool::Srun, "--send-libs=foo x", "Invalid --send-libs specification", 255),
        (Tool::Srun, "--bcast-exclude=/x x", "--bcast-exclude=/x: ", 1),
        (Tool::Srun, "--compress=foo x", "--compress=foo: ", 1),
        (Tool::Srun, "--msg-timeout=foo x", "Invalid numeric value \"foo\" for --msg-timeout.", 1),
        (Tool::Srun, "--threads=foo x", "Invalid numeric value \"foo\" for --threads.", 1),
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
fn d7_x11_without_a_display_ends_as_by_slurm() {
    let heard = complaint(Tool::Srun, "--x11 x");
    let slurm = "srun: error: No DISPLAY variable set, cannot setup x11 forwarding.\nexit 255";
    let display = std::env::var_os("DISPLAY").is_some_and(|display| !display.is_empty());
    assert!(if display { heard.contains("--x11: ") } else { heard == slurm }, "{heard}");
}

#[test]
fn variables_are_refused_as_options_are() {
    for (tool, variable, value, option) in [
        (Tool::Sbatch, "SBATCH_CONTAINER", "/x", "--container=/x"),
        (Tool::Srun, "SRUN_CONTAINER", "/x", "--container=/x"),
        (Tool::Salloc, "SALLOC_BURST_BUFFER", "x", "--bb=x"),
        (Tool::Srun, "SLURM_PROFILE", "all", "--profile=all"),
        (Tool::Srun, "SLURM_MEM_BIND", "rank", "--mem-bind=rank"),
    ] {
        let lookup = |name: &str| (name == variable).then(|| value.to_owned());
        let stop = collect::obey_variables(&mut Asked::new(tool), tool, &lookup).expect_err(variable);
        let text = stop.complaint(tool);
        assert!(text.contains(option) && text.contains(variable), "{variable}: {text}");
    }
}

#[test]
fn d7_verbose_names_what_is_taken_without_effect() {
    let lines = |tool, line: &str| super::super::shown::without_effect(&read(tool, line).expect(line), tool).join("\n");
    let told = lines(Tool::Sbatch, "--mail-type=END --mail-user=me --cpu-freq=low --acctg-freq=30 -t 1");
    for option in ["--mail-type", "--mail-user", "--cpu-freq", "--acctg-freq"] {
        assert!(told.contains(&format!("{option} is taken without effect: ")), "{told}");
    }
    assert_eq!(told.lines().count(), 4);
    assert_eq!(lines(Tool::Srun, "-n 1 x"), "");
    let warned = sbatch("-S 1 --thread-spec=1").warnings;
    assert_eq!(
        warned,
        ["-S", "--thread-spec"].map(|option| format!(
            "error: Ignoring {option} since it's not allowed by configuration (AllowSpecResourcesUsage = No)"
        ))
    );
}
