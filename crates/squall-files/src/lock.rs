//! File locks, which the kernel releases when their process ends.

use std::fs::File;
use std::io;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// Number of attempts to get a lock.
const TRIES: u32 = 50;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// Locks a file for the rest of this process's run. Retries for half a second, since a predecessor that was killed
/// may take a moment to be gone. Err of kind `ResourceBusy`: another process holds the lock.
pub fn lock(file: &File) -> io::Result<()> {
    for _ in 0..TRIES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => sleep(PAUSE),
            other => return Ok(other?),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}
