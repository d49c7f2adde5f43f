//! Processes that restore jobs from checkpoints.
//!
//! The processes of a restored job are to have the ids that they had, which other processes may have meanwhile. So they get
//! process ids of their own (pid_namespaces(7)): outside of the job they have others. Process 1 there is one of ours, which
//! only reaps. They also get mounts of their own, for `/proc`.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, PipeWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, set_parent_process_death_signal};
use squall_model::encoding;

use super::checkpoint::{CONNECTED, Manifest, OPTIONS, SHARED, become_user_for_criu, folder, identity_of, launch_of};
use super::ports::free;
use super::surroundings::{open_saved, put_back};
use crate::spool::file;
use crate::sys::host::{mount_proc, part_pids};
use crate::sys::identity::{Identity, become_user};
use crate::sys::offspring::{Born, bear, leave, set_command_line};
use crate::sys::signals::SignalFd;
use crate::sys::wait::{self, Waited, reap_pid};

/// The first process id that the kernel gives again after the last one.
const FIRST_PID: u32 = 300;
/// Process ids that CRIU may need for itself.
const OF_CRIU: u32 = 100;

/// Carries out `squall step --restore CRIU DIR STEP`: restores the job's script as the step's user. It becomes a child of this
/// process, and when this one has ended, of the one that has started this one.
pub fn run_restore(args: &[OsString]) -> u8 {
    let [criu, dir, step] = args else { return 2 };
    restore(criu, Path::new(dir), Path::new(step)).unwrap_or_else(|e| {
        eprintln!("{e}");
        1
    })
}

/// Returns 0 if CRIU has restored the job.
fn restore(criu: &OsStr, dir: &Path, step: &Path) -> io::Result<u8> {
    let launch = launch_of(step)?;
    let number = launch.facts.restore.ok_or(io::ErrorKind::InvalidInput)?.number;
    let checkpoint = folder(dir, launch.key.job.0).join(number.to_string());
    let manifest = fs::read(checkpoint.join("manifest"))
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", checkpoint.display())))?;
    let manifest: Manifest = encoding::from_slice(&manifest).map_err(io::Error::other)?;
    let identity = identity_of(&launch);
    make_first(&identity)?;
    let (born, pid) = bear(None)?;
    if born == Born::Copy {
        let Err(e) = become_criu(criu, &checkpoint, step, &manifest, &identity);
        eprintln!("{e}");
        leave(1);
    }
    match reap_pid(pid)? {
        Waited::Reaped(criu) => Ok(u8::from(!criu.exit.is_ok())),
        Waited::Running | Waited::None => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Makes process 1 of the job, and waits until its `/proc` is there.
fn make_first(identity: &Identity) -> io::Result<()> {
    let (mut said, says) = io::pipe()?;
    part_pids()?;
    let (born, _) = bear(None)?;
    if born == Born::Copy {
        drop(said);
        be_first(identity, says);
    }
    drop(says);
    let mut text = String::new();
    said.read_to_string(&mut text)?;
    if text.is_empty() { Ok(()) } else { Err(io::Error::other(text)) }
}

/// Reaps the processes of the job that have lost their parents, as process 1 must, until it is killed.
fn be_first(identity: &Identity, mut says: PipeWriter) -> ! {
    let ready = mount_proc().and_then(|()| become_user(identity).map_err(io::Error::other));
    let signals = ready.and_then(|()| SignalFd::new(&[libc::SIGCHLD]));
    let signals = match signals {
        Ok(signals) => signals,
        Err(e) => {
            drop(write!(says, "process 1 of the restored job: {e}"));
            leave(1);
        }
    };
    // Only `ps` shows it.
    drop(set_command_line(&[b"squall", b"step", b"--first"]));
    drop(says);
    loop {
        let _ = poll(&mut [PollFd::new(&signals, PollFlags::IN)], None);
        while signals.take().is_some() {}
        while let Ok(Waited::Reaped(_)) = wait::reap() {}
    }
}

/// Puts the job's files back and executes CRIU. Returns only if that fails.
fn become_criu(
    criu: &OsStr,
    checkpoint: &Path,
    step: &Path,
    manifest: &Manifest,
    identity: &Identity,
) -> io::Result<std::convert::Infallible> {
    let mut script = File::open(step.join(file::SCRIPT))?;
    script.seek(SeekFrom::Start(manifest.read))?;
    rustix::io::fcntl_setfd(&script, rustix::io::FdFlags::empty())?;
    let saved = open_saved(&manifest.shared, &checkpoint.join(SHARED))?;
    free(&manifest.ports);
    std::env::set_current_dir(checkpoint.join("images"))?;
    // CRIU and the processes that it starts for itself must not have ids of the job's.
    fs::write("/proc/sys/kernel/ns_last_pid", last_pid(&used_pids(Path::new("."))?).to_string())?;
    // Processes of the script's session get that of CRIU. With one from outside they could not be dumped again.
    rustix::process::setsid()?;
    become_user_for_criu(identity, manifest.connected)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    put_back(&manifest.shared, saved)?;
    for (path, size) in &manifest.files {
        cut(Path::new(OsStr::from_bytes(path)), *size)?;
    }
    let place = OsStr::from_bytes(manifest.script.strip_prefix(b"/").unwrap_or(&manifest.script));
    let mut inherit = OsString::from(format!("fd[{}]:", script.as_raw_fd()));
    inherit.push(place);
    let mut command = Command::new(criu);
    command.arg("restore").args(OPTIONS).args(manifest.connected.then_some(CONNECTED));
    command.args(["-d", "-S", "--inherit-fd"]).arg(inherit);
    Err(command.exec())
}

/// Returns the process and thread ids that images have.
fn used_pids(images: &Path) -> io::Result<BTreeSet<u32>> {
    let names = fs::read_dir(images)?.flatten().map(|entry| entry.file_name());
    let id = |name: &OsStr| name.to_str()?.strip_prefix("core-")?.strip_suffix(".img")?.parse().ok();
    Ok(names.filter_map(|name| id(&name)).collect())
}

/// Returns an id after which there are some that are not used.
fn last_pid(used: &BTreeSet<u32>) -> u32 {
    let mut last = FIRST_PID;
    for pid in used.range(FIRST_PID..) {
        if pid - last > OF_CRIU {
            break;
        }
        last = *pid;
    }
    last
}

/// Takes back what was appended to a file since the checkpoint. A file that is gone or shorter is left to CRIU.
fn cut(path: &Path, size: u64) -> io::Result<()> {
    let longer = fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.len() > size);
    if longer {
        let wrong = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = File::options().write(true).custom_flags(flags).open(path).map_err(wrong)?;
        file.set_len(size).map_err(wrong)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{FIRST_PID, last_pid};

    #[test]
    fn criu_gets_ids_that_the_job_has_not() {
        assert_eq!(last_pid(&[].into()), FIRST_PID);
        assert_eq!(last_pid(&[2, 299, 5000].into()), FIRST_PID);
        assert_eq!(last_pid(&[310, 350, 460, 600].into()), 350);
    }
}
