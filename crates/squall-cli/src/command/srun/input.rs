//! Standard input for the tasks: srun's own, or a file that srun opens.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Number of bytes that are read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Interval at which reading from the terminal is retried while another program holds it.
const BACKGROUND: Duration = Duration::from_secs(1);

/// Source of the tasks' standard input: srun's own standard input, a file, or none.
#[derive(Debug)]
pub(crate) struct Input {
    file: Option<File>,
    rank: Option<u32>,
    ended: bool,
    not_before: Option<Instant>,
}

/// Result of one attempt to read from the source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// Bytes that were read.
    Bytes(Vec<u8>),
    /// The source has ended: no more bytes will come.
    End,
    /// The source has no bytes to read now.
    Nothing,
}

impl Input {
    /// Creates an input that reads srun's own standard input. `rank`: the only rank that gets it; None: all ranks.
    pub(crate) fn own(rank: Option<u32>) -> Self {
        Self { file: None, rank, ended: false, not_before: None }
    }

    /// Creates an input that reads a file, for all ranks.
    pub(crate) fn file(file: File) -> Self {
        Self { file: Some(file), ..Self::own(None) }
    }

    /// Creates an input without a source: tasks have no standard input.
    pub(crate) fn none() -> Self {
        Self { ended: true, ..Self::own(None) }
    }

    /// Returns the rank that gets the input; None: every task.
    pub(crate) fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// Returns whether the source should be polled now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        !self.ended && self.not_before.is_none_or(|at| at <= now)
    }

    /// Returns the descriptor of the source, to be polled for input.
    pub(crate) fn source(&self) -> BorrowedFd<'_> {
        match &self.file {
            Some(file) => file.as_fd(),
            None => rustix::stdio::stdin(),
        }
    }

    /// Returns when to retry reading from a terminal that another program held. None: no retry is planned.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.not_before.filter(|_| !self.ended)
    }

    /// Reads available bytes. Call it when the source is readable.
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
            // This process is in the background of a terminal (SIGTTIN is blocked).
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
