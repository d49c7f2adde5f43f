//! Dependencies on jobs of other cells, as questions from the dependent job's cell. Each question has one answer, which
//! never changes.

use crate::id::JobId;
use crate::job::DependencyJob;
use crate::time::Time;
use minicbor::{Decode, Encode};

/// A question about jobs of another cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Question {
    /// Has the job started, or ended without starting? Sent to the job's cell.
    #[n(0)]
    Started(#[n(0)] Named),
    /// Has the job ended? Sent to the job's cell.
    #[n(1)]
    Ended(#[n(0)] Named),
    /// Have all earlier jobs with this user and name ended (dependency `singleton`)? Sent to all other cells.
    #[n(2)]
    Alone {
        /// The job or array with the dependency.
        #[n(0)]
        job: JobId,
        /// Uid of the job's user.
        #[n(1)]
        uid: u32,
        /// Name of the job.
        #[n(2)]
        name: String,
        /// When the job was submitted. Of two jobs with the same time the one with the lower id is earlier.
        #[n(3)]
        submit: Time,
    },
}

/// A job, array or array task of another cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Named {
    /// Id of the job or array.
    #[n(0)]
    pub id: JobId,
    /// Index of the array task. None: the job or the whole array.
    #[n(1)]
    pub index: Option<u32>,
}

impl From<Named> for DependencyJob {
    fn from(Named { id, index }: Named) -> Self {
        Self { id, index, delay_min: 0 }
    }
}

/// Answer to a `Question`. A job that ended counts as ended even if it is requeued afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Reply {
    /// The job started at this time.
    #[n(0)]
    Started(#[n(0)] Time),
    /// The job has ended.
    #[n(1)]
    Ended {
        /// Whether it completed with exit code 0; for an array, all of its tasks.
        #[n(0)]
        well: bool,
    },
    /// All of those jobs have ended.
    #[n(2)]
    Alone,
    /// The cell has and had no such job.
    #[n(3)]
    Unknown,
    /// The job has ended and is in accounting only, so its exit code is not known here.
    #[n(4)]
    Forgotten,
}
