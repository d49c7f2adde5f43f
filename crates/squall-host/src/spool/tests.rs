//! Tests of the spool on a real disk.

use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use squall_model::id::{Attempt, Epoch, JobId, NodeId, Session, StepKey, StepNo};
use squall_model::job::{Digest, ExitCode, JobAttempt, Owner, Usage};
use squall_model::report::StepEnd;
use squall_model::set::NodeSet;
use squall_model::step::{JobFacts, StepLaunch};
use squall_model::time::{Span, Time};

use super::{
    BatchFiles, FromStepd, JOBS, LEFTOVERS, RESULT_BYTES, STEPS, Spool, TaskPid, file, mark_begun, note_exit,
    parse_key, parse_tasks,
};
use crate::spool::memory::{Ground, INCARNATION, LIFE, Remembered, SESSION, checked};
use crate::traces::Traces;

/// A temporary folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("squall-spool-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn launch(job: u32, step: StepNo) -> StepLaunch {
    let key = StepKey { job: JobId(job), attempt: Attempt(1), step };
    StepLaunch {
        key,
        facts: JobFacts {
            key: StepKey { step: StepNo::BATCH, ..key },
            owner: Owner { uid: rustix::process::geteuid().as_raw(), ..Owner::default() }.into(),
            nodes: ["n1"].into_iter().collect(),
            ids: NodeSet::one(NodeId(0)),
            ..JobFacts::default()
        }
        .into(),
        node: "n1".into(),
        ..StepLaunch::default()
    }
}

fn ended(note: String) -> FromStepd {
    FromStepd::Ended(StepEnd {
        exit: ExitCode { code: 3, signal: 0 },
        oom: false,
        lost: false,
        usage: Usage::default(),
        started: Time(1),
        ended: Time(2),
        note: Some(note),
        series: None,
    })
}

#[test]
fn lives_are_counted_and_incarnations_change_with_the_boot() {
    let scratch = Scratch::new("lives");
    let first = Spool::open(&scratch.0).unwrap().begin(&ground("boot-a"), 7, None).unwrap();
    assert_eq!((first.life, first.fresh), (1, true));
    let spool = Spool::open(&scratch.0).unwrap();
    spool.add_step(&launch(1, StepNo(0)), None, ("", None)).unwrap();
    let newest = Session { epoch: Epoch(3), number: 9 };
    spool.save_session(newest).unwrap();
    let second = spool.begin(&ground("boot-a"), 8, None).unwrap();
    assert_eq!((second.life, second.fresh, second.session), (2, false, newest));
    assert_eq!(second.incarnation, first.incarnation);
    assert_eq!(spool.steps().0.len(), 1);
    let third = spool.begin(&ground("boot-b"), 9, None).unwrap();
    assert!(third.fresh && third.incarnation != first.incarnation);
    assert_eq!(third.session, newest, "an old session stays refused");
    assert!(spool.steps().0.is_empty(), "its steps died with the machine");
}

fn ground(boot: &str) -> Ground {
    Ground { boot: format!("{boot:->36}"), init: "1-1".into() }
}

/// Returns the names of files moved aside as damaged.
fn aside(scratch: &Scratch) -> Vec<String> {
    let folder = std::fs::read_dir(scratch.0.join("damaged")).into_iter().flatten().flatten();
    let mut names: Vec<String> = folder.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Regression test of fault A12 in faults.md.
#[test]
fn a12_one_wrong_digit_is_seen_and_the_node_comes_back() {
    let scratch = Scratch::new("digit");
    let newest = Session { epoch: Epoch(3), number: 9 };
    let (seen, first) = {
        let spool = Spool::open(&scratch.0).unwrap();
        let first = spool.begin(&ground("a"), 7, None).unwrap();
        spool.save_session(newest).unwrap();
        (spool.begin(&ground("a"), 8, None).unwrap(), first)
    };
    assert_eq!((seen.life, seen.session, seen.fresh), (2, newest, false));
    for name in [LIFE, SESSION, INCARNATION] {
        let whole = std::fs::read(scratch.0.join(name)).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(scratch.0.join(name), bytes).unwrap();
            let again = Spool::open(&scratch.0).unwrap().begin(&ground("a"), 10, None).unwrap();
            let said = again.notes.iter().any(|note| note.contains(&format!("'{name}' is damaged")));
            assert!(said || at == whole.len() - 1, "{name} byte {at}: {:?}", again.notes);
            let _ = std::fs::remove_dir_all(scratch.0.join("damaged"));
            assert!(name == INCARNATION || again.incarnation == first.incarnation, "{name} byte {at}");
            std::fs::write(scratch.0.join(INCARNATION), checked(&format!("{:032x} {} 1-1", 7, ground("a").boot)))
                .unwrap();
        }
    }
    // Files of earlier versions are still accepted.
    std::fs::write(scratch.0.join(INCARNATION), format!("{:032x} {}\n", 7, ground("a").boot)).unwrap();
    std::fs::write(scratch.0.join(LIFE), format!("{:020}\n", 5)).unwrap();
    std::fs::write(scratch.0.join(SESSION), format!("{:020} {:020}\n", 3, 9)).unwrap();
    let old = Spool::open(&scratch.0).unwrap().begin(&ground("a"), 11, None).unwrap();
    assert_eq!((old.life, old.session, old.fresh, old.incarnation), (6, newest, false, first.incarnation));
    assert!(!old.notes.iter().any(|note| note.contains("damaged")), "{:?}", old.notes);
}

/// Regression test of fault A4, N3 in faults.md.
#[test]
fn a4_another_first_process_makes_another_incarnation() {
    let scratch = Scratch::new("container");
    let spool = Spool::open(&scratch.0).unwrap();
    let first = spool.begin(&ground("a"), 7, None).unwrap();
    spool.add_step(&launch(1, StepNo::BATCH), None, ("", None)).unwrap();
    let restarted = Ground { init: "1-2".into(), ..ground("a") };
    let again = Spool::open(&scratch.0).unwrap().begin(&restarted, 8, None).unwrap();
    assert!(again.fresh && again.incarnation != first.incarnation);
    assert!(spool.steps().0.is_empty());
}

/// Returns a spool with a witness, after its first start, with steps of these jobs.
fn witnessed(scratch: &Scratch, jobs: &[u32]) -> (Spool, PathBuf, Remembered) {
    let witness = scratch.0.with_extension("witness");
    let _ = std::fs::remove_file(&witness);
    let spool = Spool::open(&scratch.0).unwrap();
    let first = spool.begin(&ground("a"), 7, Some(&witness)).unwrap();
    for job in jobs {
        spool.add_step(&launch(*job, StepNo::BATCH), None, ("", None)).unwrap();
    }
    (spool, witness, first)
}

/// Regression test of fault A4 in faults.md.
#[test]
fn a4_a_spool_that_lost_a_folder_makes_another_incarnation() {
    let scratch = Scratch::new("lost");
    let (spool, witness, first) = witnessed(&scratch, &[1, 2]);
    spool.remove_step(launch(2, StepNo::BATCH).key).unwrap();
    let whole = Spool::open(&scratch.0).unwrap().begin(&ground("a"), 8, Some(&witness)).unwrap();
    assert_eq!((whole.fresh, whole.incarnation), (false, first.incarnation), "{:?}", whole.notes);
    std::fs::remove_dir_all(spool.step(launch(1, StepNo::BATCH).key)).unwrap();
    let lost = Spool::open(&scratch.0).unwrap().begin(&ground("a"), 9, Some(&witness)).unwrap();
    assert!(lost.fresh && lost.incarnation != first.incarnation);
    assert!(lost.notes.iter().any(|note| note.contains("1.1.batch")), "{:?}", lost.notes);
    let after = Spool::open(&scratch.0).unwrap().begin(&ground("a"), 10, Some(&witness)).unwrap();
    assert_eq!((after.fresh, after.incarnation), (false, lost.incarnation));
    std::fs::remove_file(witness).unwrap();
}

/// Regression test of fault A4 in faults.md.
#[test]
fn a4_a_spool_that_was_rolled_back_makes_another_incarnation() {
    let scratch = Scratch::new("rolled");
    let (spool, witness, first) = witnessed(&scratch, &[1]);
    let before = [LIFE, SESSION].map(|name| (name, std::fs::read(scratch.0.join(name)).unwrap()));
    spool.add_step(&launch(2, StepNo::BATCH), None, ("", None)).unwrap();
    spool.remove_step(launch(2, StepNo::BATCH).key).unwrap();
    let newest = Session { epoch: Epoch(3), number: 9 };
    spool.save_session(newest).unwrap();
    for (name, bytes) in before {
        std::fs::write(scratch.0.join(name), bytes).unwrap();
    }
    let back = Spool::open(&scratch.0).unwrap().begin(&ground("a"), 8, Some(&witness)).unwrap();
    assert!(back.fresh && back.incarnation != first.incarnation);
    assert!(back.notes.iter().any(|note| note.contains("older")), "{:?}", back.notes);
    assert_eq!(back.session, newest, "the session of the state of that time stays refused");
    std::fs::remove_file(witness).unwrap();
}

/// Regression test of fault A4 in faults.md.
#[test]
fn a4_without_a_witness_the_spool_is_believed() {
    let scratch = Scratch::new("unwitnessed");
    let (_, witness, first) = witnessed(&scratch, &[1]);
    std::fs::write(&witness, "rubbish").unwrap();
    let again = Spool::open(&scratch.0).unwrap().begin(&ground("a"), 8, Some(&witness)).unwrap();
    assert_eq!((again.fresh, again.incarnation), (false, first.incarnation));
    std::fs::remove_dir_all(scratch.0.join(STEPS).join("1.1.batch")).unwrap();
    let lost = Spool::open(&scratch.0).unwrap().begin(&ground("a"), 9, Some(&witness)).unwrap();
    assert!(lost.fresh, "it was made anew from what the spool held");
    std::fs::remove_file(witness).unwrap();
}

/// Regression test of fault A1 in faults.md.
#[test]
fn a1_what_cant_be_read_is_kept() {
    let scratch = Scratch::new("kept");
    let spool = Spool::open(&scratch.0).unwrap();
    let batch = launch(1, StepNo::BATCH);
    spool.add_step(&batch, None, ("", None)).unwrap();
    spool.add_job(&launch(4, StepNo::BATCH).facts).unwrap();
    let (path, mark) = (spool.step(batch.key).join(file::LAUNCH), scratch.0.join(JOBS).join("4.1"));
    for file in [&path, &mark] {
        let mut bytes = std::fs::read(file).unwrap();
        bytes[20] ^= 1;
        std::fs::write(file, bytes).unwrap();
    }
    let four = JobAttempt { job: JobId(4), attempt: Attempt(1) };
    assert_eq!(spool.jobs(), (vec![], vec![four]));
    assert_eq!(spool.steps(), (vec![], vec![batch.key]));
    assert!(path.exists() && mark.exists(), "they stay where they are");
    assert_eq!((spool.ranks(batch.key), spool.result(batch.key)), (vec![0], None));
    spool.write_result(batch.key, &ended("done".into())).unwrap();
    assert_eq!(spool.result(batch.key), Some(ended("done".into())));
    assert!(spool.remove_step(batch.key).unwrap().contains("damaged/1.1.batch"));
    spool.remove_job(four).unwrap();
    assert_eq!(aside(&scratch), ["1.1.batch", "4.1"]);
    assert!(!path.exists() && !mark.exists());
}

/// Regression test of fault A1 in faults.md.
#[test]
fn a1_a_lost_mark_of_the_first_task_does_not_hide_it() {
    let scratch = Scratch::new("mark");
    let spool = Spool::open(&scratch.0).unwrap();
    let launch = launch(1, StepNo::BATCH);
    spool.add_step(&launch, None, ("", None)).unwrap();
    assert!(!spool.was_taken(launch.key) && !spool.has_begun(launch.key));
    spool.open_file(launch.key, file::PIDS).unwrap().write_all(b"0 100 5000\n\n").unwrap();
    assert!(spool.has_begun(launch.key), "one bit of the result's mark was wrong");
}

#[test]
fn a_step_is_found_again_with_all_that_was_given() {
    let scratch = Scratch::new("step");
    let spool = Spool::open(&scratch.0).unwrap();
    let batch = launch(12, StepNo::BATCH);
    let files = BatchFiles { script: b"#!/bin/sh\n", environment: b"A=1\0" };
    spool.add_step(&batch, Some(files), ("join /x\n", None)).unwrap();
    spool.add_step(&launch(2, StepNo(4)), None, ("", None)).unwrap();
    let again = spool.add_step(&batch, Some(files), ("", None)).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    let folder = spool.step(batch.key);
    assert!(folder.ends_with("steps/12.1.batch"));
    assert_eq!(std::fs::read(folder.join(file::SCRIPT)).unwrap(), b"#!/bin/sh\n");
    assert_eq!(std::fs::metadata(folder.join(file::SCRIPT)).unwrap().permissions().mode() & 0o777, 0o500);
    assert_eq!(std::fs::metadata(folder.join(file::RESULT)).unwrap().size(), RESULT_BYTES as u64 + 28);
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o711);
    let found: Vec<StepKey> = spool.steps().0.iter().map(|launch| launch.key).collect();
    assert_eq!(found, [launch(2, StepNo(4)).key, batch.key]);
    assert_eq!(*spool.steps().0[1], batch);
    std::fs::write(folder.join(file::LOG), "something to say\n").unwrap();
    assert_eq!(spool.remove_step(batch.key).unwrap(), "something to say\n");
    assert!(!folder.exists());
    spool.remove_step(batch.key).unwrap();
}

#[test]
fn results_are_written_over_reserved_room() {
    let scratch = Scratch::new("result");
    let spool = Spool::open(&scratch.0).unwrap();
    let launch = launch(1, StepNo::BATCH);
    spool.add_step(&launch, None, ("", None)).unwrap();
    assert_eq!(spool.result(launch.key), None);
    spool.write_result(launch.key, &ended("short".into())).unwrap();
    assert_eq!(spool.result(launch.key), Some(ended("short".into())));
    spool.write_result(launch.key, &ended("ü".repeat(RESULT_BYTES))).unwrap();
    let Some(FromStepd::Ended(end)) = spool.result(launch.key) else { panic!("no result") };
    assert!(end.note.unwrap().len() > RESULT_BYTES / 2);
    let size = std::fs::metadata(spool.step(launch.key).join(file::RESULT)).unwrap().size();
    assert_eq!(size, RESULT_BYTES as u64 + 28);
    assert!(!spool.has_begun(launch.key), "the longest result leaves the mark alone");
    mark_begun(&spool.open_file(launch.key, file::RESULT).unwrap()).unwrap();
    assert!(spool.has_begun(launch.key) && spool.result(launch.key).is_some() && spool.exits(launch.key).is_empty());
    let killed = ExitCode { code: 0, signal: 9 };
    let usage = Usage { user: Span::from_millis(3), system: Span(1 << 40), max_rss_kb: 70_000, ..Usage::default() };
    note_exit(&spool.open_file(launch.key, file::RESULT).unwrap(), 0, killed, &usage).unwrap();
    assert_eq!((spool.exits(launch.key), spool.has_begun(launch.key)), (vec![(0, killed, usage)], true));
    let path = spool.step(launch.key).join(file::RESULT);
    let mut torn = std::fs::read(&path).unwrap();
    torn[20] ^= 1;
    std::fs::write(&path, torn).unwrap();
    assert_eq!(spool.result(launch.key), None, "a damaged result is none");
}

#[test]
fn drafts_are_cleared() {
    let scratch = Scratch::new("drafts");
    let spool = Spool::open(&scratch.0).unwrap();
    let steps = scratch.0.join(STEPS);
    for name in [".1.1.batch", "nonsense"] {
        std::fs::create_dir(steps.join(name)).unwrap();
        std::fs::write(steps.join(name).join(file::LAUNCH), b"\x10\0\0\0half").unwrap();
    }
    std::fs::write(scratch.0.join(JOBS).join(".3"), b"\x10\0\0\0half").unwrap();
    spool.add_job(&launch(4, StepNo::BATCH).facts).unwrap();
    assert_eq!(spool.steps(), (vec![], vec![]));
    assert_eq!(spool.jobs().0.len(), 1);
    assert_eq!(std::fs::read_dir(&steps).unwrap().count(), 0);
    spool.remove_job(JobAttempt { job: JobId(4), attempt: Attempt(1) }).unwrap();
    assert_eq!(spool.jobs(), (vec![], vec![]));
}

#[test]
fn a_step_that_was_not_taken_never_will_be() {
    let scratch = Scratch::new("fence");
    let spool = Spool::open(&scratch.0).unwrap();
    let launch = launch(1, StepNo::BATCH);
    spool.add_step(&launch, None, ("", None)).unwrap();
    assert!(!spool.was_taken(launch.key));
    let folder = spool.step(launch.key);
    let taken = std::fs::rename(folder.join(file::UNTAKEN), folder.join(file::PIDS));
    assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::NotFound, "its daemon can't take it any more");
    assert!(spool.was_taken(launch.key));
}

#[test]
fn a_step_whose_daemon_died_before_its_task_was_there_left_nothing() {
    let scratch = Scratch::new("blank");
    let spool = Spool::open(&scratch.0).unwrap();
    let launch = launch(1, StepNo::BATCH);
    spool.add_step(&launch, None, ("", None)).unwrap();
    let folder = spool.step(launch.key);
    assert!(std::fs::metadata(folder.join(file::UNTAKEN)).unwrap().size() > 40, "there is room for what it notes");
    std::fs::rename(folder.join(file::UNTAKEN), folder.join(file::PIDS)).unwrap();
    mark_begun(&spool.open_file(launch.key, file::RESULT).unwrap()).unwrap();
    // The group is empty, so no task is about to record itself.
    let group = scratch.0.join("group");
    let left = || Traces::of(&spool, launch.key, Some(&group));
    assert!(left().is_blank() && left().missing() == [0]);
    spool.open_file(launch.key, file::PIDS).unwrap().write_all(b"0 100 5000\n\n").unwrap();
    assert!(!left().is_blank() && left().missing().is_empty());
}

#[test]
fn cve_2023_41914_2023_41915_2006_5677_links_are_not_followed() {
    let scratch = Scratch::new("links");
    let spool = Spool::open(&scratch.0).unwrap();
    let launch = launch(1, StepNo::BATCH);
    spool.add_step(&launch, None, ("", None)).unwrap();
    let result = spool.step(launch.key).join(file::RESULT);
    let outside = scratch.0.join("outside");
    std::fs::write(&outside, b"mine").unwrap();
    std::fs::remove_file(&result).unwrap();
    std::os::unix::fs::symlink(&outside, &result).unwrap();
    assert!(spool.write_result(launch.key, &ended(String::new())).is_err());
    assert_eq!(std::fs::read(&outside).unwrap(), b"mine");
    let elsewhere = scratch.0.join("elsewhere");
    std::os::unix::fs::symlink(&scratch.0, &elsewhere).unwrap();
    assert!(Spool::open(&elsewhere).is_err(), "nor is the spool itself a link");
}

#[test]
fn what_a_user_has_left_in_a_steps_folder_holds_nobody_up() {
    let scratch = Scratch::new("left");
    let launch = launch(1, StepNo(0));
    Spool::open(&scratch.0).unwrap().add_step(&launch, None, ("", None)).unwrap();
    let spool = Spool::open(&scratch.0).unwrap();
    let full = |path: PathBuf| {
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        std::fs::write(path.join("a/file"), "").unwrap();
    };
    full(spool.step(launch.key).join("own"));
    // Of an earlier daemon, which died.
    full(scratch.0.join(LEFTOVERS).join("0"));
    spool.remove_step(launch.key).unwrap();
    assert!(!spool.step(launch.key).exists());
    spool.remove_left();
    let begun = std::time::Instant::now();
    while std::fs::read_dir(scratch.0.join(LEFTOVERS)).unwrap().next().is_some() {
        assert!(begun.elapsed() < std::time::Duration::from_mins(1));
        std::thread::yield_now();
    }
}

#[test]
fn cve_2026_65109_names_in_a_spool_lead_nowhere_else() {
    for name in ["../1.1.0", "1.1./etc", "1.1...", "1./../..", "1.1.batch/../..", "+1.1.0\n", ".1.0", ""] {
        assert_eq!(parse_key(name).map(|key| key.to_string()).filter(|own| own.contains('/')), None, "{name}");
        assert!(!name.contains('/') || parse_key(name).is_none(), "{name}");
    }
}

#[test]
fn tasks_and_keys_are_read_back() {
    let tasks = parse_tasks("0 100 5000\n3 101 5001\nrubbish\n4 10");
    assert_eq!(tasks, parse_tasks("0 100 5000\n3 101 5001\n\n9 900 9000\n"), "the rest is of an earlier step");
    let task = |rank, pid, start| TaskPid { rank, pid, start };
    assert_eq!(tasks, [task(0, 100, 5000), task(3, 101, 5001)]);
    for step in [StepNo(0), StepNo(77), StepNo::BATCH] {
        let key = StepKey { job: JobId(9), attempt: Attempt(2), step };
        assert_eq!(parse_key(&key.to_string()), Some(key));
    }
    assert_eq!(parse_key("1.2"), None);
    assert_eq!(parse_key("1.2.x"), None);
}

/// Runs a batch step, doing the writes of its step daemon.
fn run(spool: &Spool, launch: &StepLaunch, files: BatchFiles<'_>, groups: &str) {
    spool.add_step(launch, Some(files), (groups, None)).unwrap();
    assert!(spool.result(launch.key).is_none() && !spool.has_begun(launch.key) && spool.exits(launch.key).is_empty());
    assert!(spool.tasks(launch.key).is_empty() && spool.launch(launch.key).as_deref() == Some(launch));
    let folder = spool.step(launch.key);
    let read = |name| std::fs::read(folder.join(name)).unwrap_or_default();
    assert_eq!((read(file::SCRIPT).as_slice(), read(file::ENVIRONMENT).as_slice()), (files.script, files.environment));
    assert_eq!(read(file::CGROUPS), groups.as_bytes());
    assert_eq!(std::fs::metadata(folder.join(file::SCRIPT)).unwrap().permissions().mode() & 0o777, 0o500);
    assert!(!spool.was_taken(launch.key));
    std::fs::write(folder.join(file::PIDS), "0 77 5000\n").unwrap();
    let result = spool.open_file(launch.key, file::RESULT).unwrap();
    mark_begun(&result).unwrap();
    note_exit(&result, 0, ExitCode { code: 9, signal: 0 }, &Usage::default()).unwrap();
    spool.write_result(launch.key, &ended("done".into())).unwrap();
}

#[test]
fn folders_are_written_over_and_nothing_of_the_step_before_shows() {
    let scratch = Scratch::new("spare");
    let spool = Spool::open(&scratch.0).unwrap();
    let named = |job, script: &[u8]| {
        let mut launch = launch(job, StepNo::BATCH);
        Arc::make_mut(&mut Arc::make_mut(&mut launch.facts).spec).script = Some(Digest::of(script));
        launch
    };
    let inode = |launch: &StepLaunch, name| std::fs::metadata(spool.step(launch.key).join(name)).unwrap().ino();
    let (long, short) = (b"#!/bin/sh\necho a long one\n", b"#!/bin/sh\n");
    let first = named(1, long);
    run(&spool, &first, BatchFiles { script: long, environment: b"LONG=environment\0" }, "join /a/long/one\n");
    let (folder, script) = (inode(&first, "."), inode(&first, file::SCRIPT));
    spool.remove_step(first.key).unwrap();
    let same = named(2, long);
    run(&spool, &same, BatchFiles { script: long, environment: b"" }, "");
    assert_eq!((inode(&same, "."), inode(&same, file::SCRIPT)), (folder, script), "the same folder, the same script");
    // The owner changes the script.
    let path = spool.step(same.key).join(file::SCRIPT);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(&path, "#!/bin/sh\necho evil\n").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o500)).unwrap();
    spool.remove_step(same.key).unwrap();
    let third = named(3, long);
    run(&spool, &third, BatchFiles { script: long, environment: b"A=1\0" }, "join /x\n");
    assert_eq!(inode(&third, "."), folder);
    spool.remove_step(third.key).unwrap();
    let other = named(4, short);
    run(&spool, &other, BatchFiles { script: short, environment: b"" }, "");
    assert_eq!(inode(&other, "."), folder);
    spool.spoil(other.key);
    spool.remove_step(other.key).unwrap();
    assert_eq!(std::fs::read_dir(scratch.0.join(STEPS)).unwrap().count(), 0, "a spoilt one is removed");
    spool.add_step(&launch(5, StepNo(0)), None, ("", None)).unwrap();
    std::fs::write(spool.step(launch(5, StepNo(0)).key).join(file::LOG), "oops\n").unwrap();
    assert_eq!(spool.remove_step(launch(5, StepNo(0)).key).unwrap(), "oops\n");
    assert_eq!(std::fs::read_dir(scratch.0.join(STEPS)).unwrap().count(), 0, "one with a log, too");
}
