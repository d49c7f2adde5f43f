//! Step daemons that are copies of a nursery.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::Duration;

use squall_host::spool::file;
use squall_host::stepd::Nursery;
use squall_host::sys::wait::{Waited, reap_pid};
use squall_model::codec;
use squall_model::step::Program;
use squall_model::wire::stepd::FromStepd;

use super::testing::launch;
use super::{Step, Test, code};

pub(crate) const TESTS: [Test; 1] =
    [("copies::a_copy_is_our_child_and_outlives_the_nursery", a_copy_is_our_child_and_outlives_the_nursery)];

fn a_copy_is_our_child_and_outlives_the_nursery() {
    let dir = std::env::temp_dir().join(format!("squall-copies-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(dir.join("spool")).unwrap();
    let script = "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.01; done\nps -o sid= -p $PPID > sid\nexit 6\n";
    let spool = Step::folder(&dir, |dir| (launch(Program::Batch, dir), script.to_owned()));
    fs::write(spool.join(file::LOG), "").unwrap();
    let program = std::ffi::CString::new(std::env::current_exe().unwrap().as_os_str().as_bytes()).unwrap();
    let mut nursery = Nursery::start(&program).unwrap();
    let pid = nursery.birth(&spool, &[], None).unwrap();
    while !spool.join(file::PIDS).exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    // Even a second one for the same folder starts nothing.
    let second = nursery.birth(&spool, &[], None).unwrap();
    assert!(matches!(reap_pid(second), Ok(Waited::Reaped(r)) if r.exit == code(0)));
    drop(nursery);
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let expected = [b"squall\0step\0--spool\0", spool.as_os_str().as_bytes(), b"\0"].concat();
    assert!(words.starts_with(&expected), "{}", String::from_utf8_lossy(&words));
    assert!(Command::new("touch").arg(dir.join("go")).status().unwrap().success());
    assert!(matches!(reap_pid(pid), Ok(Waited::Reaped(r)) if r.exit == code(0)));
    let result = fs::read(spool.join(file::RESULT)).unwrap();
    let (last, _) = codec::take::<FromStepd>(&result).unwrap().unwrap();
    assert!(matches!(&last, FromStepd::Ended(end) if end.exit == code(6)), "{last:?}");
    assert_eq!(fs::read_to_string(dir.join("sid")).unwrap().trim(), pid.to_string());
    fs::remove_dir_all(&dir).unwrap();
}
