//! Processes that restore jobs from checkpoints.
//!
//! The processes of a restored job are to have the ids that they had, which other processes may have meanwhile. So they get
//! process ids of their own (pid_namespaces(7)): outside of the job they have others. Process 1 there is one of ours, which
//! only reaps. They also get mounts of their own, for `/proc`.
//!
//! A part of a job of several nodes waits for the others when all of it is there but its connections are not alive yet: a
//! connection of which the other end is missing would be lost. CRIU runs a script then, which says so and waits in two FIFOs
//! of the step's folder. The process that restores passes both on to the batch supervisor.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, PipeWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};
use squall_engine::node::attempt_of;
use squall_model::job::JobAttempt;

use super::checkpoint::{
    CONNECTED, Manifest, OPTIONS, SHARED, become_user_for_criu, identity_of, launch_of, restored_from,
};
use super::images::{MOVED, move_sockets};
use super::ports::free;
use super::saved_files::{note_rooms, open_saved, put_back};
use crate::spool::file;
use crate::sys::host::{mount_proc, part_pids};
use crate::sys::identity::{Identity, become_user};
use crate::sys::offspring::{Born, bear, leave, set_command_line};
use crate::sys::pidfd;
use crate::sys::signals::SignalFd;
use crate::sys::wait::{self, Waited, reap_pid};

/// The first process id that the kernel gives again after the last one.
const FIRST_PID: u32 = 300;
/// What is said to the batch supervisor when a part of a job is there.
const HELD: &[u8] = b"h";
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
    let checkpoint = restored_from(dir, &launch).ok_or(io::ErrorKind::InvalidInput)?;
    let manifest = Manifest::of(&checkpoint)?;
    let identity = identity_of(&launch);
    let gate = (launch.facts.nodes.len() > 1).then(|| Gate::new(step, &identity)).transpose()?;
    make_first(&identity)?;
    let (born, pid) = bear(None)?;
    if born == Born::Copy {
        let script = gate.as_ref().map(|gate| gate.script.as_path());
        let moved = launch.facts.moved.as_deref();
        let Err(e) =
            become_criu(criu, attempt_of(launch.key), (&checkpoint, step, script), &manifest, (&identity, moved));
        eprintln!("{e}");
        leave(1);
    }
    if let Some(gate) = gate {
        gate.serve(pid)?;
    }
    match reap_pid(pid)? {
        Waited::Reaped(criu) => Ok(u8::from(!criu.exit.is_ok())),
        Waited::Running | Waited::None => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Where a restored part of a job waits for the others.
struct Gate {
    /// The script that CRIU runs.
    script: PathBuf,
    /// Readable when the part is there.
    held: File,
    /// Writing to it has the part go on.
    go: File,
}

impl Gate {
    /// Makes the gate in a step's folder, where only root makes anything.
    fn new(step: &Path, identity: &Identity) -> io::Result<Self> {
        let step = std::path::absolute(step)?;
        // The folder may have been that of another step before.
        let place = |name: &str| match fs::remove_file(step.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(step.join(name)),
        };
        let fifo = |name: &str| {
            let path = place(name)?;
            mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
            chown(&path, Some(identity.uid), Some(identity.gid))?;
            // Open at both ends, so that no process waits to open it.
            let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
            Ok::<_, io::Error>((File::options().read(true).write(true).custom_flags(flags).open(&path)?, path))
        };
        let ((held, held_at), (go, go_at)) = (fifo("held")?, fifo("go")?);
        let script = place("gate")?;
        let mut file = File::options().write(true).create_new(true).mode(0o755).open(&script)?;
        let words = [held_at, go_at].map(|path| path.to_string_lossy().replace('\'', "'\\''"));
        write!(
            file,
            "#!/bin/sh\n[ \"$CRTOOLS_SCRIPT_ACTION\" = post-restore ] || exit 0\necho > '{}'\nread -r go < '{}'\n",
            words[0], words[1]
        )?;
        Ok(Self { script, held, go })
    }

    /// Passes on, between the gate and standard input, which is a socket of the batch supervisor, until a process has ended.
    fn serve(mut self, pid: u32) -> io::Result<()> {
        let process = pidfd::open(pid)?;
        let mut supervisor = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from)?;
        let (mut waits, mut asks) = (true, true);
        loop {
            // A socket that is closed at its other end always has an event.
            let held = if waits { self.held.as_fd() } else { process.as_fd() };
            let said = if asks { supervisor.as_fd() } else { process.as_fd() };
            let mut fds = [process.as_fd(), held, said].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let [ended, held, said] = fds.map(|fd| !fd.revents().is_empty());
            if ended {
                return Ok(());
            }
            if waits && held {
                waits = false;
                supervisor.write_all(HELD)?;
            }
            if asks && said {
                asks = false;
                if supervisor.read(&mut [0])? > 0 {
                    self.go.write_all(b"\n")?;
                }
            }
        }
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
    job: JobAttempt,
    (checkpoint, step, gate): (&Path, &Path, Option<&Path>),
    manifest: &Manifest,
    (identity, moved): (&Identity, Option<&[(u128, u128)]>),
) -> io::Result<std::convert::Infallible> {
    // The socket is not CRIU's.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let mut script = File::open(step.join(file::SCRIPT))?;
    script.seek(SeekFrom::Start(manifest.read))?;
    rustix::io::fcntl_setfd(&script, rustix::io::FdFlags::empty())?;
    let saved = open_saved(&manifest.shared, &checkpoint.join(SHARED))?;
    note_rooms(&manifest.shared, step.parent().ok_or(io::ErrorKind::InvalidInput)?, job)?;
    free(&manifest.ports);
    std::env::set_current_dir(checkpoint.join("images"))?;
    // CRIU and the processes that it starts for itself must not have ids of the job's.
    fs::write("/proc/sys/kernel/ns_last_pid", last_pid(&used_pids(Path::new("."))?).to_string())?;
    // Processes of the script's session get that of CRIU. With one from outside they could not be dumped again.
    rustix::process::setsid()?;
    become_user_for_criu(identity, manifest.connected)?;
    if let Some(pairs) = moved {
        move_sockets(Path::new("."), pairs)?;
        std::env::set_current_dir(MOVED)?;
    }
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
    if let Some(gate) = gate {
        command.arg("--action-script").arg(gate);
    }
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
