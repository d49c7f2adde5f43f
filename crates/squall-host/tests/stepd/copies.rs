//! Step daemons that are copies of a zygote.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use squall_host::processes::Stat;
use squall_host::spool::{Spool, file};
use squall_host::stepd::Zygote;
use squall_host::sys::signals::kill;
use squall_host::sys::wait::{Waited, reap_pid};
use squall_model::codec;
use squall_model::id::StepKey;
use squall_model::step::Program;
use squall_model::wire::stepd::FromStepd;

use super::testing::launch;
use super::{Step, Test, code};

pub(crate) const TESTS: [Test; 3] = [
    ("copies::copies_outlive_the_node_daemon", copies_outlive_the_node_daemon),
    ("copies::an_exit_status_outlives_both_daemons", an_exit_status_outlives_both_daemons),
    ("copies::m6_no_process_outlives_its_job_by_killing_its_daemon", no_process_outlives_its_job),
];

/// Says that it runs, and ends when it is told to.
const SCRIPT: &str = "#!/bin/sh\n: > up\nwhile [ ! -e go ]; do if [ -e escape ]; then mv escape begun; (sh begun &); fi; sleep 0.01; done\nps -o sid= -p $PPID > sid\nexit 6\n";

/// A place for jobs, the folder of a step in a node's spool, its key, and a zygote.
fn begin(name: &str) -> (PathBuf, PathBuf, StepKey, Zygote) {
    let dir = std::env::temp_dir().join(format!("squall-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    for folder in ["spool", "steps"] {
        fs::create_dir_all(dir.join(folder)).unwrap();
    }
    let drafted = Step::folder(&dir, |dir| (launch(Program::Batch, dir), SCRIPT.to_owned()));
    fs::write(drafted.join(file::LOG), "").unwrap();
    let key = launch(Program::Batch, &dir).key;
    let folder = dir.join("steps").join(key.to_string());
    fs::rename(drafted, &folder).unwrap();
    let program = CString::new(std::env::current_exe().unwrap().as_os_str().as_bytes()).unwrap();
    (dir, folder, key, Zygote::start(&program).unwrap())
}

fn wait_until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn let_go(dir: &Path) {
    assert!(Command::new("touch").arg(dir.join("go")).status().unwrap().success());
}

fn copies_outlive_the_node_daemon() {
    let (dir, folder, _, mut zygote) = begin("copies");
    let pid = zygote.birth(&folder, &[], None).unwrap();
    wait_until(|| folder.join(file::PIDS).exists());
    // Even a second one for the same folder starts nothing.
    let second = zygote.birth(&folder, &[], None).unwrap();
    wait_until(|| Stat::of(second).is_none());
    let parent = Stat::of(pid).unwrap().parent;
    drop(zygote);
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let expected = [b"squall\0step\0--spool\0", folder.as_os_str().as_bytes(), b"\0"].concat();
    assert!(words.starts_with(&expected), "{}", String::from_utf8_lossy(&words));
    let_go(&dir);
    assert!(matches!(reap_pid(parent), Ok(Waited::Reaped(r)) if r.exit == code(0)), "it ends after its last copy");
    let result = fs::read(folder.join(file::RESULT)).unwrap();
    let (last, _) = codec::take::<FromStepd>(&result).unwrap().unwrap();
    assert!(matches!(&last, FromStepd::Ended(end) if end.exit == code(6)), "{last:?}");
    assert_eq!(fs::read_to_string(dir.join("sid")).unwrap().trim(), pid.to_string());
    fs::remove_dir_all(&dir).unwrap();
}

fn an_exit_status_outlives_both_daemons() {
    let (dir, folder, key, mut zygote) = begin("recorder");
    let pid = zygote.birth(&folder, &[], None).unwrap();
    let spool = Spool::open(&dir).unwrap();
    // It has noted itself before that, but who has yet to be executed may be in want of a daemon that tries again: another
    // test's process has the script open for writing until it is executed itself.
    wait_until(|| dir.join("up").exists());
    assert_eq!(spool.tasks(key).len(), 1);
    let parent = Stat::of(pid).unwrap().parent;
    drop(zygote);
    kill(pid, 9).unwrap();
    wait_until(|| Stat::of(pid).is_none());
    assert!(spool.exits(key).is_empty(), "its task runs on");
    let_go(&dir);
    assert!(matches!(reap_pid(parent), Ok(Waited::Reaped(r)) if r.exit == code(0)), "it waits for the task too");
    let exits = spool.exits(key);
    assert!(matches!(&exits[..], [(0, exit, usage)] if *exit == code(6) && usage.max_rss_kb > 0), "{exits:?}");
    fs::remove_dir_all(&dir).unwrap();
}

/// faults.md M6: the process has left its parents, its session and its environment, and no v2 cgroup knows it.
fn no_process_outlives_its_job() {
    let (dir, folder, _, mut zygote) = begin("escape");
    let pid = zygote.birth(&folder, &[], None).unwrap();
    wait_until(|| dir.join("up").exists());
    let escape = "cd / && exec env -i setsid sh -c 'sleep 1000 & echo $! > ESCAPED.new; mv ESCAPED.new ESCAPED; wait'";
    let escaped = dir.join("escaped");
    let escape = escape.replace("ESCAPED", escaped.to_str().unwrap());
    fs::write(dir.join("escape.new"), escape).unwrap();
    fs::rename(dir.join("escape.new"), dir.join("escape")).unwrap();
    wait_until(|| escaped.exists());
    let sleeper: u32 = fs::read_to_string(&escaped).unwrap().trim().parse().unwrap();
    kill(pid, 9).unwrap();
    wait_until(|| Stat::of(pid).is_none());
    let_go(&dir);
    assert!(Stat::of(sleeper).is_some(), "as long as the step is not over it is its own business");
    fs::remove_dir_all(&folder).unwrap();
    wait_until(|| Stat::of(sleeper).is_none_or(|stat| stat.state == b'Z'));
    drop(zygote);
    fs::remove_dir_all(&dir).unwrap();
}
