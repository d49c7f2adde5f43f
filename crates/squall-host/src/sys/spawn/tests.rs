//! Tests of the environment in which a spawned process runs.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

use super::{Note, PID_ROOM, Session, Spawn};
use crate::sys::identity::Identity;
use crate::sys::wait::{Waited, reap_pid};

fn run(script: &str, change: impl FnOnce(&mut Spawn<'_>)) -> (String, u8) {
    let null = File::open("/dev/null").unwrap();
    let (mut out, write) = io::pipe().unwrap();
    let argv = [c"sh", c"-c"].map(CStr::to_owned).into_iter().chain([CString::new(script).unwrap()]);
    let argv: Vec<CString> = argv.collect();
    let env = [c"PATH=/usr/bin:/bin".to_owned(), CString::new(format!("MY_PID={PID_ROOM}")).unwrap()];
    let stdio = [null.as_fd(), write.as_fd(), write.as_fd()];
    let mut spawn = Spawn { env: &env, env_pid: Some(1), ..Spawn::new(c"/bin/sh", &argv, stdio) };
    change(&mut spawn);
    let child = spawn.start().unwrap();
    drop(write);
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    let Waited::Reaped(reaped) = reap_pid(child.pid).unwrap() else { panic!("it was our child") };
    assert_eq!(reaped.pid, child.pid);
    (text.trim_end().to_owned(), reaped.exit.code)
}

#[test]
fn it_has_its_own_number_in_its_environment() {
    assert_eq!(run("[ \"$MY_PID\" = $$ ] && echo same; exit 7", |_| {}), ("same".into(), 7));
}

#[test]
fn it_has_three_descriptors_and_no_blocked_or_ignored_signal() {
    let open = File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
    // Asked for one by one: a pipeline or a glob would open further descriptors.
    let script = "for f in 0 1 2 3 4 5 6 7 8 9; do [ ! -e /proc/$$/fd/$f ] || printf '%s ' $f; done";
    assert_eq!(run(script, |_| {}).0, "0 1 2");
    let (text, _) = run("grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '\\t\\n'", |_| {});
    // faults.md P13: nor are signals 32 and 33, which the C library uses.
    assert_eq!(text, "SigBlk:0000000000000000SigIgn:0000000000000000");
}

#[test]
fn group_session_directory_and_mask_are_as_asked() {
    let (text, _) = run("cd -P .; pwd; umask; cut -d' ' -f5,6 /proc/$$/stat; echo $$", |s| {
        s.dir = Some(c"/usr");
        s.umask = Some(0o027);
        s.session = Session::New;
    });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(&lines[..2], ["/usr", "0027"]);
    assert_eq!(lines[2], format!("{0} {0}", lines[3]));
}

#[test]
fn soft_limits_are_set_and_never_above_the_hard_ones() {
    let (text, _) = run("ulimit -S -n; ulimit -H -n", |s| s.rlimits = &[(libc::RLIMIT_NOFILE, 77)]);
    assert_eq!(text.lines().next(), Some("77"));
    let (text, _) = run("ulimit -S -n; ulimit -H -n", |s| s.rlimits = &[(libc::RLIMIT_NOFILE, u64::MAX)]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], lines[1]);
}

#[test]
fn what_fails_is_named_and_nothing_runs() {
    let null = File::open("/dev/null").unwrap();
    let argv = [c"x".to_owned()];
    let mut spawn = Spawn::new(c"/nonexistent/program", &argv, [null.as_fd(); 3]);
    let error = spawn.start().unwrap_err();
    assert_eq!((error.call, error.errno()), ("execve", libc::ENOENT));
    spawn.program = c"/etc/passwd";
    let error = spawn.start().unwrap_err();
    assert_eq!((error.call, error.errno()), ("execve", libc::EACCES));
    spawn.dir = Some(c"/nonexistent");
    let error = spawn.start().unwrap_err();
    assert_eq!((error.call, error.errno()), ("chdir", libc::ENOENT));
}

#[test]
fn cve_2016_10030_it_is_the_user_before_it_goes_anywhere() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let nobody: &Identity = Box::leak(Box::new(Identity { uid: 4321, gid: 4322, groups: vec![4322, 4323] }));
    let script = "id -u; id -g; id -G";
    let (text, _) = run(script, |s| s.identity = Some(nobody));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..3], ["4321", "4322", "4322 4323"]);
    assert!(rustix::process::geteuid().is_root(), "the parent is who it was");
    let folder = std::env::temp_dir().join(format!("squall-private-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let dir = CString::new(folder.to_str().unwrap()).unwrap();
    let null = File::open("/dev/null").unwrap();
    let argv = [c"true".to_owned()];
    let stdio = [null.as_fd(); 3];
    let spawn = Spawn { dir: Some(&dir), identity: Some(nobody), ..Spawn::new(c"/bin/true", &argv, stdio) };
    let error = spawn.start().unwrap_err();
    assert_eq!((error.call, error.errno()), ("chdir", libc::EACCES));
    std::fs::remove_dir(&folder).unwrap();
}

#[test]
fn what_cannot_note_itself_does_not_run() {
    let null = File::open("/dev/null").unwrap();
    let argv = [c"touch".to_owned(), c"/nowhere/at/all".to_owned()];
    // Opened for reading only, so that writing fails.
    let note = Note { file: null.as_fd(), offset: 0, line: PID_ROOM.into(), room: 0 };
    let stdio = [null.as_fd(); 3];
    let spawn = Spawn { note: Some(note), ..Spawn::new(c"/bin/touch", &argv, stdio) };
    let error = spawn.start().unwrap_err();
    assert_eq!((error.call, error.errno()), ("pwrite", libc::EBADF));
}

#[test]
fn what_is_noted_and_cannot_be_executed_takes_its_note_back() {
    let path = std::env::temp_dir().join(format!("squall-note-{}", std::process::id()));
    std::fs::write(&path, "0 11 22\n\n").unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let (null, argv) = (File::open("/dev/null").unwrap(), [c"x".to_owned()]);
    let line = format!("1 {PID_ROOM} 33\n\n");
    let note = Note { file: file.as_fd(), offset: 8, line: line.clone().into(), room: 2 };
    let stdio = [null.as_fd(); 3];
    let mut spawn = Spawn { note: Some(note), ..Spawn::new(c"/nonexistent/program", &argv, stdio) };
    assert_eq!(spawn.start().unwrap_err().call, "execve");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("0 11 22\n\n") && text.len() == 8 + line.len(), "{text:?}");
    spawn.program = c"/bin/true";
    let child = spawn.start().unwrap();
    assert!(reap_pid(child.pid).is_ok());
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, format!("0 11 22\n1 {:<10} 33\n\n", child.pid));
    std::fs::remove_file(path).unwrap();
}
