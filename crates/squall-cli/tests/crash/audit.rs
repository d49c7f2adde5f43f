//! Compares what clients were told, what jobs did, and what Squall says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::cluster::Cluster;
use crate::load::Submission;

/// Panics unless every acknowledged job ran once to its end with its exit code and its own id.
pub(crate) fn check(cluster: &Cluster, record: &[Submission], what: &str) {
    let marks: BTreeMap<String, String> = read_all(&cluster.marks()).into_iter().collect();
    let said = accounting(cluster);
    let mut wrong = Vec::new();
    let mut ids = BTreeSet::new();
    for s in record {
        let text = marks.get(&s.tag).map_or("", String::as_str);
        let starts = text.lines().filter(|l| l.starts_with("start")).count();
        let ends = text.lines().filter(|l| *l == "end").count();
        let Some(id) = s.id else {
            // Not acknowledged: it may have run, but never twice.
            if starts > 1 {
                wrong.push(format!("{}: not acknowledged, yet started {starts} times", s.tag));
            }
            continue;
        };
        if !ids.insert(id) {
            wrong.push(format!("{}: id {id} was given twice", s.tag));
        }
        if starts != 1 || ends != 1 || !text.starts_with(&format!("start {id}\n")) {
            wrong.push(format!("{}: job {id} left {text:?}", s.tag));
        }
        let expected = (if s.exit == 0 { "COMPLETED" } else { "FAILED" }.to_owned(), format!("{}:0", s.exit));
        if said.get(&id) != Some(&expected) {
            wrong.push(format!("{}: job {id} should be {expected:?}, sacct says {:?}", s.tag, said.get(&id)));
        }
    }
    let refused: Vec<&Submission> = record.iter().filter(|s| s.id.is_none()).collect();
    eprintln!(
        "{what}: {} acknowledged, {} not; {} wrong{}",
        ids.len(),
        refused.len(),
        wrong.len(),
        refused.first().map_or(String::new(), |s| format!("; first refusal: {}", s.error.trim()))
    );
    assert!(ids.len() > 20, "too few submissions to mean anything: {}", ids.len());
    nothing_is_wrong(cluster, &wrong);
    let left: Vec<_> = cluster.processes().into_iter().filter(|(_, line)| line.contains(" step ")).collect();
    assert!(left.is_empty(), "step daemons are left: {left:?}");
}

/// Panics unless nothing was wrong and every one of these jobs has ended in its state, as sacct says.
pub(crate) fn report(cluster: &Cluster, what: &str, jobs: &[(u32, &str)], mut wrong: Vec<String>) {
    let said = accounting(cluster);
    let ids: BTreeSet<u32> = jobs.iter().map(|(id, _)| *id).collect();
    if ids.len() < jobs.len() {
        wrong.push(format!("{} ids for {} jobs", ids.len(), jobs.len()));
    }
    for (id, state) in jobs {
        let known = said.get(id).map(|(state, _)| state.as_str());
        if !known.is_some_and(|known| known.starts_with(state)) {
            wrong.push(format!("job {id} should be {state}, sacct says {known:?}"));
        }
    }
    eprintln!("{what}: {} acknowledged; {} wrong", ids.len(), wrong.len());
    nothing_is_wrong(cluster, &wrong);
}

/// Panics with the first 20 of these faults and the logs, if there is any.
fn nothing_is_wrong(cluster: &Cluster, wrong: &[String]) {
    let first = wrong[..wrong.len().min(20)].join("\n");
    assert!(wrong.is_empty(), "{} wrong:\n{first}\n{}", wrong.len(), cluster.logs());
}

/// State and exit code of every job, as sacct says.
fn accounting(cluster: &Cluster) -> BTreeMap<u32, (String, String)> {
    let output = cluster.squall(&["sacct", "-n", "-X", "-P", "-S", "1970-01-01", "-o", "JobID,State,ExitCode"]);
    assert!(output.status.success(), "sacct: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let mut words = line.split('|');
            Some((words.next()?.parse().ok()?, (words.next()?.to_owned(), words.next()?.to_owned())))
        })
        .collect()
}

/// The folder's files, by name and content.
pub(crate) fn read_all(folder: &Path) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|e| (e.file_name().to_string_lossy().into_owned(), fs::read_to_string(e.path()).unwrap_or_default()))
        .collect();
    files.sort();
    files
}
