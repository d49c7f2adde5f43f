//! What `docs/security.md` says of known faults of other systems: each has the test that the page names.

use std::collections::BTreeSet;
use std::fs;

use crate::{files_below, root};

/// Names of all functions.
fn functions() -> BTreeSet<String> {
    let named = |line: &str| {
        let line = line.trim_start();
        let rest = ["fn ", "async fn ", "pub(super) fn "].iter().find_map(|start| line.strip_prefix(start))?;
        Some(rest.split_once('(')?.0.to_owned())
    };
    let sources = files_below(&root().join("crates"), "rs");
    sources
        .iter()
        .flat_map(|file| fs::read_to_string(file).unwrap().lines().filter_map(named).collect::<Vec<_>>())
        .collect()
}

/// The attacks that were tried on Squall itself: each has its tests.
#[test]
fn each_attack_has_its_tests() {
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let table = page.split("| attack |").nth(1).expect("a table of attacks").lines().skip(2);
    let (tests, mut rows) = (functions(), 0);
    for row in table.take_while(|line| line.starts_with('|')) {
        let named = row.rsplit('|').nth(1).unwrap();
        let missing: Vec<&str> = named.split('`').skip(1).step_by(2).filter(|test| !tests.contains(*test)).collect();
        assert!(missing.is_empty() && (named.contains('`') || named.contains("not tried")), "{row}: {missing:?}");
        rows += 1;
    }
    assert!(rows >= 24, "{rows} rows");
}

/// attack-trial.md B6: a child of the controller becomes the user whose output it shows.
#[test]
fn b6_the_controllers_unit_leaves_it_what_the_page_says() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let unit = read("packaging/systemd/squall-controller.service");
    let value = |key: &str| unit.lines().rev().find_map(|line| line.strip_prefix(key)).unwrap_or_default().to_owned();
    assert_eq!(value("CapabilityBoundingSet="), "CAP_SETUID CAP_SETGID");
    assert_eq!(value("ProtectHome="), "read-only");
    let calls = value("SystemCallFilter=");
    for call in ["capset", "setgroups", "setresgid", "setresuid"] {
        assert!(calls.split(' ').any(|allowed| allowed == call), "{calls}");
    }
    assert!(read("docs/security.md").contains("all capabilities but those to become a user"));
}

#[test]
fn each_known_fault_has_its_test() {
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let table = page.split("| CVE |").nth(1).expect("a table of CVEs").lines().skip(2);
    let tests = functions();
    let (mut rows, mut wrong) = (0, Vec::new());
    for row in table.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, faults, _, test, verdict, _] = cells[..] else { panic!("{row}") };
        rows += 1;
        if test == "-" && verdict == "not there" {
            continue;
        }
        let test = test.trim_matches('`');
        let numbers = faults.split(|c: char| !(c.is_ascii_digit() || c == '-')).filter(|word| word.len() > 8);
        let missing = numbers.filter(|number| !test.contains(&number.replace('-', "_")));
        wrong.extend(missing.map(|number| format!("{number}: `{test}` does not bear its number")));
        if !tests.contains(test) {
            wrong.push(format!("there is no test `{test}`"));
        }
        if verdict.contains("unsafe") {
            wrong.push(format!("{faults}: {verdict}"));
        }
    }
    assert!(rows > 20 && wrong.is_empty(), "{rows} rows, {wrong:#?}");
}
