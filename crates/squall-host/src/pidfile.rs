//! Pid files that are never stale: a daemon keeps its file locked for as long as it runs.

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FlockOperation;
use squall_files::lock;

use crate::processes;
use crate::sys::pidfd;

/// Only the owner may open the file: whoever can open it can lock it, and with it the file of a daemon that has died would
/// be believed, or the daemon kept from starting.
const MODE: u32 = 0o600;
/// Longest wait for a killed process to end.
const GONE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// The pid file of this process; removed when dropped.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    file: File,
}

impl PidFile {
    /// Writes this process's id. Err of kind `ResourceBusy`: another daemon with this file runs.
    pub fn write(path: &Path) -> io::Result<Self> {
        let mut file = Self::locked(path)?;
        // Written in place, without truncating first: on a full disk an existing file has room, a new one may not.
        let text = format!("{}\n", std::process::id());
        match file.write_all(text.as_bytes()) {
            // The daemon runs even without a complete pid file.
            Err(e) if e.kind() == io::ErrorKind::StorageFull => {}
            written => written?,
        }
        file.set_len(text.len() as u64)?;
        Ok(Self { path: path.to_owned(), file })
    }
}

impl PidFile {
    /// Opens and locks the file that has this path then. A daemon that ends may remove its file between the two: a lock
    /// on that one would mean nothing.
    fn locked(path: &Path) -> io::Result<File> {
        loop {
            let file = std::fs::OpenOptions::new()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .mode(MODE)
                .open(path)?;
            // One of an earlier release may be readable by all.
            file.set_permissions(Permissions::from_mode(MODE))?;
            lock::lock(&file)?;
            let own = file.metadata()?;
            if std::fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())) {
                return Ok(file);
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Removed while it is still locked, so that it is never a successor's file.
        drop(std::fs::remove_file(&self.path));
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Returns the process id of the running daemon with this pid file; None: it does not run. If the daemon was killed and
/// is just ending, waits for its end, so that a caller that kills and restarts a daemon gets a new one.
pub fn living(path: &Path) -> Option<i32> {
    let pid = holder(path)?;
    let id = pid.unsigned_abs();
    if processes::is_ending(id) {
        let process = pidfd::open(id).ok();
        let _ = process.map(|process| poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&GONE)));
        return holder(path);
    }
    Some(pid)
}

/// Returns the process id in a pid file that is locked. None: it is not locked, or has none.
fn holder(path: &Path) -> Option<i32> {
    let mut file = File::open(path).ok()?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => {}
        _ => return None,
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let pid = text.trim().parse().ok().filter(|pid: &i32| *pid > 1)?;
    // Root ends daemons of users, too: a user's file can't name a process of somebody else.
    let owner = file.metadata().ok()?.uid();
    let own = owner == 0 || owner == rustix::process::geteuid().as_raw();
    (own || processes::belongs_to(pid.unsigned_abs(), owner)).then_some(pid)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{PidFile, living};

    #[test]
    fn a_pid_file_is_believed_while_its_daemon_lives() {
        let path = std::env::temp_dir().join(format!("squall-pidfile-{}", std::process::id()));
        std::fs::write(&path, "4194303\n").unwrap();
        assert_eq!(living(&path), None);
        let own = PidFile::write(&path).unwrap();
        assert_eq!(living(&path), Some(std::process::id() as i32));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1), None).unwrap();
            assert_eq!(living(&path), None, "a file of user 1 that names a process of root");
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "nobody else can lock it");
        assert_eq!(PidFile::write(&path).unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
        drop(own);
        assert!(!path.exists());
    }
}
