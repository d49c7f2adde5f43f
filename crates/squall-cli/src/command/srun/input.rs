//! Standard input for the tasks, from this srun's own or from a file that it opens.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// A terminal that another program holds is looked at again after so long.
const BACKGROUND: Duration = Duration::from_secs(1);

/// Where input comes from.
#[derive(Debug)]
pub(crate) struct Input {
    file: Option<File>,
    rank: Option<u32>,
    ended: bool,
    not_before: Option<Instant>,
}

/// What reading came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// These bytes.
    Bytes(Vec<u8>),
    /// No more will come.
    End,
    /// Nothing now.
    Nothing,
}

impl Input {
    /// Of this srun itself, for one rank or for all.
    pub(crate) fn own(rank: Option<u32>) -> Self {
        Self { file: None, rank, ended: false, not_before: None }
    }

    /// From a file.
    pub(crate) fn file(file: File) -> Self {
        Self { file: Some(file), ..Self::own(None) }
    }

    /// None: no task reads anything.
    pub(crate) fn none() -> Self {
        Self { ended: true, ..Self::own(None) }
    }

    /// For whom: None is every task.
    pub(crate) fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// Whether to poll for something to read.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        !self.ended && self.not_before.is_none_or(|at| at <= now)
    }

    /// Where it comes from.
    pub(crate) fn source(&self) -> BorrowedFd<'_> {
        match &self.file {
            Some(file) => file.as_fd(),
            None => rustix::stdio::stdin(),
        }
    }

    /// When to look again at a terminal that was busy.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.not_before.filter(|_| !self.ended)
    }

    /// Reads what is there. Call when the source is readable.
    pub(crate) fn read(&mut self, now: Instant) -> Chunk {
        let mut bytes = vec![0; CHUNK_BYTES];
        let result = match &mut self.file {
            Some(file) => file.read(&mut bytes),
            None => rustix::io::read(rustix::stdio::stdin(), &mut bytes[..]).map_err(io::Error::from),
        };
        self.not_before = None;
        match result {
            Ok(0) => {
                self.ended = true;
                Chunk::End
            }
            Ok(n) => {
                bytes.truncate(n);
                Chunk::Bytes(bytes)
            }
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => Chunk::Nothing,
            // In the background of a terminal (SIGTTIN is blocked).
            Err(e) if e.raw_os_error() == Some(libc::EIO) && self.file.is_none() => {
                self.not_before = Some(now + BACKGROUND);
                Chunk::Nothing
            }
            Err(_) => {
                self.ended = true;
                Chunk::End
            }
        }
    }
}
