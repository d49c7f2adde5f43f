//! Errors of the journal; their messages name the file, the place in it and the remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use squall_model::journal::{Damage, FORMAT, Problem};

use crate::log::LogError;

/// Why the journal can't be used.
#[derive(Debug)]
pub enum JournalError {
    /// A system call failed.
    Io {
        /// The action that failed, e.g. `write`.
        doing: &'static str,
        /// The file concerned.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Durable bytes differ from what was written.
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// Offset of the damage in the file, bytes.
        offset: u64,
        /// What should be there, e.g. a frame with its records.
        what: String,
        /// What is wrong with the damaged part.
        problem: Problem,
    },
    /// A required file is missing.
    Missing {
        /// The missing file.
        path: PathBuf,
        /// Why the missing file must exist.
        why: String,
    },
    /// The journal ends before records that were acknowledged.
    Short {
        /// Number of the last record in the journal.
        have: u64,
        /// Number of the last record that accounting has stored.
        seen: u64,
    },
    /// The journal is to be written without flushes, but is not new.
    NotNew {
        /// The journal's folder.
        path: PathBuf,
    },
    /// Another controller uses the state directory.
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The state directory belongs to another cluster.
    OtherCluster {
        /// The file with the name of its cluster.
        path: PathBuf,
        /// Name of the cluster to which the directory belongs.
        theirs: String,
        /// Name of the cluster that is to be started.
        ours: String,
    },
}

impl std::error::Error for JournalError {}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, error } => write!(f, "cannot {doing} {}: {error}", path.display()),
            Self::Damaged { path, problem: problem @ Problem::Format(..FORMAT), .. } => write!(
                f,
                "{}: {problem}: it was written by a build before release 0.2.0. Nothing was changed. Start the build that \
                 wrote it, or begin with another state folder (--state)",
                path.display()
            ),
            Self::Damaged { path, problem: problem @ Problem::Format(_), .. } => write!(
                f,
                "{}: {problem}: it was written by a newer version of squall; start that version",
                path.display()
            ),
            Self::Damaged { path, offset, what, problem: problem @ Problem::Unknown(_) } => write!(
                f,
                "{} holds something at offset {offset} ({what}) that is not damaged but of another version: {problem}. \
                 Nothing was changed. Start the version of squall that wrote it",
                path.display()
            ),
            Self::Damaged { path, .. } if path.extension().is_some_and(|e| e == "snap") => write!(
                f,
                "{}. Nothing was changed. Restore the file from a copy of the journal folder",
                self.loss().unwrap_or_default()
            ),
            Self::Damaged { .. } => write!(
                f,
                "{}. Nothing was changed. Restore the file from a copy; or, to go on without this and everything after \
                 it, start once with `squall controller --accept-loss`",
                self.loss().unwrap_or_default()
            ),
            Self::Missing { .. } => write!(
                f,
                "{}. Restore the file; or, to go on without it and everything after it, start once with `squall \
                 controller --accept-loss`",
                self.loss().unwrap_or_default()
            ),
            Self::Short { have, seen } => write!(
                f,
                "the journal ends with record {have}, but accounting has seen record {seen}: {} acknowledged records \
                 are missing. Restore the journal folder; or, to go on without them, start once with \
                 `squall controller --accept-loss`",
                seen - have
            ),
            Self::NotNew { path } => write!(
                f,
                "{} holds a journal already: `--without-durability` is for clusters that are made to be measured and \
                 thrown away. Start without it, or with another --state",
                path.display()
            ),
            Self::Locked { path } => {
                write!(f, "another controller is running on this state directory ({} is locked)", path.display())
            }
            Self::OtherCluster { path, theirs, ours } => write!(
                f,
                "{} says that this state directory belongs to cluster `{theirs}`, not to `{ours}`: use another \
                 --state, or set `cluster = \"{theirs}\"`",
                path.display()
            ),
        }
    }
}

impl JournalError {
    /// Converts an I/O error; for `map_err`.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { doing, path, error }
    }

    /// Describes a damaged frame, with the number of the record that should follow.
    pub(crate) fn frame(path: &Path, damage: Damage, next_seq: u64) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            offset: damage.offset as u64,
            what: format!("frame {}, record {next_seq}", damage.frame),
            problem: damage.problem,
        }
    }

    /// Returns what the journal has lost, without a remedy. None: it has lost nothing, as far as this version can judge.
    pub fn loss(&self) -> Option<String> {
        match self {
            Self::Damaged { path, offset, what, problem } if self.is_damage() => {
                Some(format!("{} is damaged at offset {offset} ({what}): {problem}", path.display()))
            }
            Self::Missing { path, why } => Some(format!("{} is missing: {why}", path.display())),
            _ => None,
        }
    }

    /// Whether the file's bytes are lost, as far as this version can judge. Data of another version is not damage: it
    /// is never set aside, even when the operator accepts a loss.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { problem, .. } => !matches!(problem, Problem::Format(_) | Problem::Unknown(_)),
            Self::Io { error, .. } => error.raw_os_error() == Some(Errno::IO.raw_os_error()),
            _ => false,
        }
    }

    /// Whether another version of squall wrote something that this one can't read.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Damaged { problem: Problem::Format(_) | Problem::Unknown(_), .. })
    }

    /// Whether the disk is full, so that trying again later may help.
    pub(crate) fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { error, .. } if is_no_space(error))
    }
}

impl From<JournalError> for LogError {
    fn from(error: JournalError) -> Self {
        if error.is_no_space() { Self::NoRoom(error.into()) } else { Self::Failed(error.into()) }
    }
}

/// Whether the disk or the quota is full.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    let full = [Errno::NOSPC, Errno::DQUOT].map(|e| Some(e.raw_os_error()));
    full.contains(&error.raw_os_error())
}
