//! Test of the option tables of all Slurm's commands: each row has a test of its effect (`effects.txt`), is refused, or
//! changes nothing, for a reason that the documentation shows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use squall_model::id::JobId;
use squall_model::policy::Real;
use squall_model::wire::client::Answer;
use squall_model::wire::priority_info::{Factors, JobPriority, Priorities};
use squall_text::options::flag::Flag;
use squall_text::options::table::GROUPS;
use squall_text::options::{Arg, Effect, Tool};
use squall_text::page::Options;

use super::COMMANDS;
use crate::command::listing::call::{Call, Fail};
use crate::command::listing::fake::{CommandResult, fake, run_with};
use crate::command::{sacct, sacctmgr, scancel, scontrol, sdiag, seff, sinfo, sprio, squeue, sreport, sshare, sstat};

type Main = fn(&mut Call<'_>, &[String]) -> Result<(), Fail>;

/// An option of a command: all its names, with dashes.
struct Row {
    command: &'static str,
    /// The commands that have the option, for the documentation.
    tools: Vec<&'static str>,
    names: Vec<String>,
    effect: Effect,
}

const TOOLS: [Tool; 3] = [Tool::Sbatch, Tool::Srun, Tool::Salloc];

/// Returns the rows of all tables. The commands that share a table are called `job`.
fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = GROUPS
        .iter()
        .flat_map(|group| group.options)
        .map(|option| {
            let names = std::iter::once(&option.long).chain(option.aliases).map(|name| format!("--{name}"));
            let tools = TOOLS.into_iter().filter(|tool| option.tools.has(*tool)).map(Tool::name).collect();
            Row { command: "job", tools, names: names.collect(), effect: option.effect }
        })
        .collect();
    for command in COMMANDS.iter().filter(|command| command.slurm) {
        let Options::Own(flags) = command.page.options else { continue };
        let first = rows.len();
        for flag in flags {
            let letter = (flag.letter != '\0').then(|| format!("-{}", flag.letter));
            let long = (!flag.long.is_empty()).then(|| format!("--{}", flag.long));
            let same = letter.as_ref().and_then(|l| rows[first..].iter().position(|row| row.names.contains(l)));
            match same {
                Some(at) => rows[first + at].names.extend(long),
                None => rows.push(Row {
                    command: command.page.name,
                    tools: vec![command.page.name],
                    names: long.into_iter().chain(letter).collect(),
                    effect: flag.effect,
                }),
            }
        }
    }
    rows
}

/// A line of `effects.txt`.
struct EffectsLine {
    command: &'static str,
    test: &'static str,
    names: Vec<String>,
}

fn lines() -> Vec<EffectsLine> {
    let text = include_str!("effects.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    text.map(|line| {
        let (head, names) = line.split_once(": ").expect(line);
        let (command, test) = head.split_once(' ').expect(line);
        let dashed = |name: &str| if name.starts_with('-') { name.to_owned() } else { format!("--{name}") };
        EffectsLine { command, test, names: names.split(' ').map(dashed).collect() }
    })
    .collect()
}

/// Returns the folder of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate is in crates/").to_owned()
}

/// Returns the tests in the files below `folder`, each with its body: functions with the attribute, and those that a
/// list of stories names.
fn tests(folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).expect("the folder is readable").flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            tests(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).expect("the file is text");
            let stories = path.parent().is_some_and(|parent| parent.ends_with("stories"));
            let mut marked = false;
            for (at, line) in text.match_indices('\n').map(|(at, _)| at + 1).map(|at| (at, &text[at..])) {
                let line = line.lines().next().unwrap_or_default();
                let code = line.trim_start();
                if let Some(rest) = code.strip_prefix("fn ").filter(|_| marked || stories) {
                    let name = rest.split('(').next().unwrap_or_default();
                    let end = format!("\n{}}}", &line[..line.len() - code.len()]);
                    let body = &text[at..];
                    let body = &body[..body.find(&end).unwrap_or(body.len())];
                    found.entry(name.to_owned()).or_default().push_str(body);
                }
                marked = code.starts_with("#[test]") || (marked && code.starts_with("#["));
            }
        }
    }
}

#[test]
fn every_option_has_a_test_a_refusal_or_a_reason_to_change_nothing() {
    let (rows, lines) = (rows(), lines());
    let mut found = BTreeMap::new();
    tests(&repository().join("crates"), &mut found);
    let mut wrong = String::new();
    for line in &lines {
        if !found.contains_key(line.test) {
            let _ = writeln!(wrong, "{} {}: there is no such test", line.command, line.test);
        }
        for name in &line.names {
            let known = rows
                .iter()
                .any(|row| (row.command == line.command || line.command == "every") && row.names.contains(name));
            if !known {
                let _ = writeln!(wrong, "{} {name}: there is no such option", line.command);
            }
        }
    }
    for row in &rows {
        match row.effect {
            Effect::Refused(why) | Effect::Hint(why) => assert!(!why.is_empty(), "{} {:?}", row.command, row.names),
            Effect::Works | Effect::Partly(_) => {
                let covers = |line: &&EffectsLine| {
                    (line.command == row.command || line.command == "every")
                        && line.names.iter().any(|name| row.names.contains(name))
                };
                if !lines.iter().any(|line| covers(&line)) {
                    let _ = writeln!(wrong, "{} {:?}: no test of its effect is named", row.command, row.names);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "mend crates/squall-cli/src/table/effects.txt, or the option:\n{wrong}");
}

/// Returns the reason why an option with this effect is in a list. None: it is not.
type Pick = fn(Effect) -> Option<&'static str>;

/// Returns a table for the documentation: the options that `pick` chooses, with their commands and its reasons.
fn table(rows: &[Row], pick: Pick) -> String {
    let mut chosen: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for row in rows {
        if let Some(why) = pick(row.effect) {
            chosen.entry((&row.names[0], why)).or_default().extend(&row.tools);
        }
    }
    let mut text = String::from("| option | commands | why |\n|---|---|---|\n");
    for ((name, why), tools) in chosen {
        let _ = writeln!(text, "| `{name}` | {} | {} |", tools.join(", "), why.replace('|', "\\|"));
    }
    text
}

/// The lists of the documentation: title, introduction, and which options are in it.
const LISTS: [(&str, &str, Pick); 3] = [
    (
        "Taken without effect",
        "They change nothing here, for the reason in the table. With `-v`, `sbatch`, `srun` and `salloc` name each that was given.",
        |effect| if let Effect::Hint(why) = effect { Some(why) } else { None },
    ),
    ("Refused", "They would change what is done, so the command ends with an error that names the option.", |effect| {
        if let Effect::Refused(why) = effect { Some(why) } else { None }
    }),
    ("Some values are refused", "These options work, but not with every value.", |effect| {
        if let Effect::Partly(why) = effect { Some(why) } else { None }
    }),
];

/// Returns a section of the documentation for one of the lists.
fn section(rows: &[Row], (title, what, pick): (&str, &str, Pick)) -> String {
    format!("## {title}\n\n{what}\n\n{}", table(rows, pick))
}

#[test]
fn the_documentation_lists_what_has_no_effect_and_what_is_refused() {
    let rows = rows();
    let mut page = String::from(
        "# Options without effect\n\n\
         What Squall's commands do with options of Slurm that they do not fully have. An option works, or is in one of\n\
         these lists. The same holds for `#SBATCH` lines and for the variables of the options. This page is made from the\n\
         tables of options; a test (`crates/squall-cli/src/table/effects.rs`) keeps them in step.\n",
    );
    for list in LISTS {
        let _ = write!(page, "\n{}", section(&rows, list));
    }
    page.push_str("\nOptions that neither Squall nor the Slurm it follows knows are refused as unrecognized.\n");
    let docs = repository().join("docs");
    let read = |name: &str| std::fs::read_to_string(docs.join(name)).expect(name);
    let slurm = read("slurm.md");
    let heading = format!("## {}\n", LISTS[0].0);
    let begin = slurm.find(&heading).expect("slurm.md has the list");
    let end = slurm[begin + 1..].find("\n## ").map_or(slurm.len(), |at| begin + 1 + at);
    let coming = format!("{}{}{}", &slurm[..begin], section(&rows, LISTS[0]), &slurm[end..]);
    let write = std::env::var_os("SQUALL_WRITE_DOCS").is_some();
    for (name, text) in [("options-without-effect.md", page), ("slurm.md", coming)] {
        if write {
            std::fs::write(docs.join(name), &text).expect("the page can be written");
        }
        assert!(read(name) == text, "run this test with SQUALL_WRITE_DOCS=1 to write docs/{name}");
    }
}

/// Collects the texts behind `NotSupported(` in the sources below `folder` that begin with an option's name.
fn refused_by_controllers(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("the folder is readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            refused_by_controllers(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).expect("the file is text");
            for behind in text.split("NotSupported(").skip(1) {
                let text = behind.trim_start();
                let text = text.strip_prefix("format!(").unwrap_or(text).trim_start();
                let said = text.strip_prefix('"').unwrap_or_default();
                let name: String = said.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
                found.extend(name.strip_prefix("--").filter(|name| !name.is_empty()).map(|_| name.clone()));
            }
        }
    }
}

#[test]
fn no_option_is_refused_that_the_tables_call_working() {
    let rows = rows();
    let mut refused = Vec::new();
    refused_by_controllers(&repository().join("crates/squall-engine/src"), &mut refused);
    assert!(refused.contains(&"--gpus-per-socket".to_owned()), "{refused:?}");
    for name in refused {
        let row = rows.iter().find(|row| row.command == "job" && row.names.contains(&name)).expect(&name);
        assert!(row.effect != Effect::Works, "{name}: the controller refuses it, and its row does not say so");
    }
    for command in COMMANDS.iter().filter(|command| command.slurm) {
        for flag in flags_of(command.page.name) {
            let works = flag.effect == Effect::Works;
            assert!(!(works && flag.doc.contains("refused")), "{} --{}: mark it", command.page.name, flag.long);
        }
    }
}

/// Commands that list, each with arguments with which it prints something.
const CALLS: &[(&str, Main, &[&str])] = &[
    ("squeue", squeue::squeue, &[]),
    ("sinfo", sinfo::sinfo, &[]),
    ("sacct", sacct::sacct, &["-j", "40"]),
    ("scancel", scancel::scancel, &["10"]),
    ("scontrol", scontrol::scontrol, &["show", "nodes"]),
    ("sstat", sstat::sstat, &["10"]),
    ("sacctmgr", sacctmgr::sacctmgr, &["show", "user"]),
    ("sshare", sshare::sshare, &[]),
    ("sreport", sreport::sreport, &["cluster", "utilization"]),
    ("sprio", sprio::sprio, &[]),
    ("sdiag", sdiag::sdiag, &[]),
    ("seff", seff::seff, &["40"]),
];

fn flags_of(command: &str) -> &'static [Flag] {
    let page = COMMANDS.iter().find(|one| one.page.name == command).expect(command).page;
    if let Options::Own(flags) = page.options { flags } else { &[] }
}

/// Runs a command with further options before its arguments.
fn seen(command: &str, options: &[&str]) -> CommandResult {
    let (name, main, args) = CALLS.iter().find(|(name, ..)| *name == command).expect(command);
    let mut fake = fake();
    fake.nodes[3].up = *name != "sinfo";
    if *name == "sprio" {
        let factors = Factors { age: Real(0.5), ..Factors::default() };
        let job = |id| JobPriority {
            tres: None,
            id: JobId(id),
            task: None,
            user: "ann".into(),
            uid: 1000,
            account: "phys".into(),
            qos: "normal".into(),
            partition: "debug".into(),
            priority: 3000,
            fixed: false,
            nice: 0,
            factors,
        };
        let weights = Factors { age: Real(1000.0), ..Factors::default() };
        fake.answers.push(Answer::Priorities(Box::new(Priorities { weights, jobs: vec![job(11)], tres: None })));
    }
    run_with(&mut fake, name, *main, &[options, args].concat(), &[])
}

/// Returns the option as on a command line, with a value if it needs one.
fn given(flag: &Flag) -> String {
    let value = if matches!(flag.arg, Arg::Needed(_)) { "=1" } else { "" };
    format!("--{}{value}", flag.long)
}

#[test]
fn options_without_effect_change_nothing() {
    for (command, ..) in CALLS {
        let plain = seen(command, &[]);
        assert!(!plain.out.is_empty() || *command == "scancel" || *command == "sstat", "{command}: {plain:?}");
        for flag in flags_of(command).iter().filter(|flag| matches!(flag.effect, Effect::Hint(_))) {
            assert_eq!(seen(command, &[&given(flag)]), plain, "{command} {}", given(flag));
        }
    }
}

#[test]
fn options_that_are_refused_are_refused_by_name() {
    for command in COMMANDS.iter().filter(|command| command.slurm) {
        for flag in flags_of(command.page.name) {
            let Effect::Refused(why) = flag.effect else { continue };
            assert_eq!(command.page.parse(&[given(flag)]), Err(format!("{}: {why}", given(flag))));
        }
    }
}

#[test]
fn options_that_no_other_test_tries_change_the_output() {
    for (command, options) in [
        ("squeue", "--array-unique --helpFormat --helpstate --licenses=x --notme --reservation=x --running-over=9-0"),
        ("squeue", "--running-under=0 --verbose"),
        ("sinfo", "--iterate=0 --responding --verbose --yaml"),
        (
            "sacct",
            "--constraints=x --gid=x --helpstate --qos=x --timelimit-max=1 --timelimit-min=9-0 --wckeys=x --yaml",
        ),
        ("scancel", "--clusters=elsewhere"),
        ("scontrol", "--cluster=elsewhere --yaml"),
        ("sstat", "--helpformat"),
        ("sshare", "--cluster=elsewhere --helpformat --parsable --partition --yaml"),
        ("sreport", "--cluster=elsewhere --parsable --sort=x"),
        ("sprio", "--cluster=elsewhere --helpformat --verbose"),
        ("sdiag", "--yaml"),
        ("seff", "--cluster=elsewhere"),
    ] {
        let plain = seen(command, &[]);
        for option in options.split(' ') {
            let changed = seen(command, &[option]);
            assert_ne!(changed, plain, "{command} {option}");
            assert!(changed.code == 0 || !changed.err.is_empty(), "{command} {option}: {changed:?}");
        }
    }
}
