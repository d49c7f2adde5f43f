//! Why a controller can't start or has to stop.

use std::path::PathBuf;

use squall_engine::replica::Why;
use squall_model::id::JobId;
use squall_model::version::TooOld;
use squall_model::wire::fabric::Newer;
use squall_store::LogError;
use squall_store::file::JournalError;

/// Why the controller could not start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The journal can't be opened or read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An append to the journal failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The configuration is wrong.
    #[error("{}: {problem}", path.display())]
    Config {
        /// The configuration file with the error.
        path: PathBuf,
        /// What is wrong in the configuration, with the line.
        problem: String,
    },
    /// Most nodes report a newer epoch or job id than this state has, so it is an old copy.
    #[error(
        "this state is older than what nodes have seen, as most of them say: {} has heard epoch {} and job {}, the state ends with \
         epoch {ours} and job {last}. \
         It is of a backup, or of another copy. Restore the newest one; or, to go on without what came after it, start once \
         with `squall up --accept-loss` (or `squall controller --accept-loss`). If you did: the clock of this machine is behind",
        newer.name,
        newer.session.epoch.0,
        newer.last_job
    )]
    Older {
        /// The newest epoch and job id that a node reports.
        newer: Newer,
        /// The newest epoch (run of the controller) in this state.
        ours: u64,
        /// The last job id in this state.
        last: JobId,
    },
    /// It led, as one of several controllers, and leads no more. The process goes on as a standby.
    #[error("{0}")]
    Deposed(Why),
    /// It can't follow the log of the cluster's controllers.
    #[error("{0}")]
    Unfit(Why),
    /// What comes after its journal is not in etcd any more.
    #[error("etcd begins with record {first}, after the end of this journal: a copy of the leader's is needed")]
    Behind {
        /// Number of the first record that is in etcd.
        first: u64,
    },
    /// Its copy of the log can't be read, and other controllers have it.
    #[error(
        "{0}. The log is in etcd, and the leader has all of it: a copy of that is fetched. If no controller can lead any more, \
         start one once with `squall up --accept-loss`"
    )]
    Broken(String),
    /// It is older than the version of the cluster.
    #[error("{0}")]
    TooOld(TooOld),
    /// A batch of the log in etcd can't be read.
    #[error(
        "cannot read the batch in etcd that ends with record {last}: {problem}. A newer release may have written it: install the \
         release that the other controllers have, and start it again"
    )]
    Batch {
        /// Number of its last record.
        last: u64,
        /// What is wrong.
        problem: String,
    },
    /// A system call failed.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// The action that failed, e.g. `write`.
        doing: &'static str,
        /// The file or folder concerned.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
}

impl ControllerError {
    pub(crate) fn io(doing: &'static str, path: PathBuf) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Io { doing, path, error }
    }
}
