//! What Slurm's releases since 24.05 changed for users has an answer: `release_notes.txt` and `changelog.txt` say which, and
//! here each is tried.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{Cluster, text};

/// A row of the table.
#[derive(Debug)]
struct Row<'a> {
    source: &'a str,
    how: &'a str,
    what: &'a str,
    said: &'a str,
}

fn rows() -> impl Iterator<Item = Row<'static>> {
    let files = [include_str!("release_notes.txt"), include_str!("changelog.txt")];
    let lines = files.into_iter().flat_map(str::lines).filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [source, _, how, what, said @ ..] = &cells[..] else { panic!("too few cells: {line}") };
        Row { source, how, what, said: said.first().copied().unwrap_or_default() }
    })
}

/// Runs a command line, with quotes and variables as in a shell, but for what is in double quotes: these are its words.
fn run(c: &Cluster, line: &str) -> (bool, String) {
    let line = c.filled(line);
    let (words, quoted) = line.split_once(" \"").unwrap_or((&line, ""));
    let mut words: Vec<&str> = words.split(' ').collect();
    words.extend(quoted.strip_suffix('"'));
    let mut set = None;
    if words[0] == "env" {
        words.remove(0);
        set = words[0].split_once('=').filter(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
        words.drain(..usize::from(set.is_some()));
    }
    let mut command = c.command(&words);
    command.envs(set);
    let out = command.output().unwrap();
    (out.status.success(), text(&out))
}

/// Checks a configuration of Slurm's with a line; returns what is said.
fn checked(c: &Cluster, line: &str) -> String {
    let (place, line) = line.split_once(' ').unwrap();
    let dir = c.dir.join("slurm");
    drop(fs::remove_dir_all(&dir));
    fs::create_dir(&dir).unwrap();
    let with = |wanted: &str| if place == wanted { line } else { "" };
    let conf = format!(
        "ClusterName=x\nSlurmctldHost=h\nNodeName=n1 CPUs=2 RealMemory=1000 {}\nPartitionName=p Nodes=n1 {}\n{}\n",
        with("node"),
        with("partition"),
        with("global")
    );
    fs::write(dir.join("slurm.conf"), conf).unwrap();
    if place.contains('.') {
        fs::write(dir.join(place), format!("{line}\n")).unwrap();
    }
    text(&c.squall(&["check", dir.to_str().unwrap()]))
}

/// Returns whether a function of this name is in the tests.
fn has_test(name: &str) -> bool {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let found = Command::new("grep").args(["-rqs", "--include=*.rs", &format!("fn {name}(")]).arg(crates).status();
    found.unwrap().success()
}

#[test]
fn each_change_of_slurms_releases_has_an_answer() {
    let c = Cluster::new("release-notes", "all");
    c.up("[[nodes]]\nname = \"n[1-2]\"\ncpus = 4\nmemory_mb = 1000\nforce = true\n", &[]);
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/slurm-versions.md")).unwrap();
    let mut wrong = Vec::new();
    for row in rows() {
        let seen = match row.how {
            "run" => match run(&c, row.what) {
                (true, _) => None,
                (false, said) => Some(said),
            },
            "refuse" => {
                let (good, said) = run(&c, row.what);
                (good || row.said.is_empty() || !said.contains(row.said)).then_some(said)
            }
            "conf" => {
                let said = checked(&c, row.what);
                let good = said.contains(": good") && !said.contains("missing: ");
                let answered = if row.said == "good" { good } else { !row.said.is_empty() && said.contains(row.said) };
                (!answered).then_some(said)
            }
            "test" => (!has_test(row.what)).then(|| "there is no such test".to_owned()),
            "page" => (!page.contains(row.what)).then(|| "docs/slurm-versions.md does not say it".to_owned()),
            "words" => row.what.is_empty().then(|| "say why".to_owned()),
            _ => Some("use run, refuse, conf, test, page or words".to_owned()),
        };
        wrong.extend(seen.map(|seen| format!("{}: {} {}: {seen}", row.source, row.how, row.what)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `scripts/slurm-news` finds the rows by these: see there.
#[test]
fn rows_name_release_file_and_line() {
    for row in rows() {
        let (release, place) = row.source.split_once(' ').unwrap();
        let (file, line) = place.rsplit_once(':').unwrap();
        assert!(
            ["25.05", "25.11", "26.05"].contains(&release)
                && Path::new(file).extension().is_some_and(|ending| ending == "md"),
            "{row:?}"
        );
        assert!(line.split(',').all(|line| line.parse::<u32>().is_ok()), "{row:?}");
    }
}
