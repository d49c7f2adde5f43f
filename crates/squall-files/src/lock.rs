//! Locks of files, which the kernel releases with their process.

use std::fs::File;
use std::io;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// How often a lock is tried.
const TRIES: u32 = 50;
/// The pause between tries.
const PAUSE: Duration = Duration::from_millis(10);

/// Locks a file for the life of this process. A predecessor that was killed may take a moment to be gone.
/// Err of kind `ResourceBusy`: another process holds it.
pub fn lock(file: &File) -> io::Result<()> {
    for _ in 0..TRIES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => sleep(PAUSE),
            other => return Ok(other?),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}
