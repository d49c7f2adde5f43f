//! Dependencies on jobs of other cells. The cell of the dependent job sends questions about these jobs to their cells.
//! Each question has one answer, which never changes.

use crate::id::JobId;
use crate::job::DependencyJob;
use crate::time::Time;
use minicbor::{Decode, Encode};

/// A question of one cell about jobs of another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Question {
    /// Asks whether the job has started, or ended without starting. Sent to the job's cell.
    #[n(0)]
    Started(#[n(0)] Named),
    /// Asks whether the job has ended. Sent to the job's cell.
    #[n(1)]
    Ended(#[n(0)] Named),
    /// Asks whether all earlier jobs with this user and name have ended (dependency `singleton`). Sent to all other
    /// cells.
    #[n(2)]
    Alone {
        /// The job or array that has the dependency.
        #[n(0)]
        job: JobId,
        /// Uid of the user of the job that has the dependency.
        #[n(1)]
        uid: u32,
        /// Name of the job that has the dependency.
        #[n(2)]
        name: String,
        /// When the dependent job was submitted. Of two jobs submitted at the same time, the one with the lower id is
        /// earlier.
        #[n(3)]
        submit: Time,
    },
}

/// Names a job, an array or an array task of another cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Named {
    /// Id of the job or array.
    #[n(0)]
    pub id: JobId,
    /// Index of the array task. None: the job, or the whole array.
    #[n(1)]
    pub index: Option<u32>,
}

impl From<Named> for DependencyJob {
    fn from(Named { id, index }: Named) -> Self {
        Self { id, index, delay_min: 0 }
    }
}

/// Answer of a cell to a `Question`. A job that has ended counts as ended even if it is requeued afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Reply {
    /// The job in question started at this time.
    #[n(0)]
    Started(#[n(0)] Time),
    /// The job in question has ended.
    #[n(1)]
    Ended {
        /// Whether the job completed with exit code 0; for an array, whether all of its tasks did.
        #[n(0)]
        well: bool,
    },
    /// All jobs of the cell that `Question::Alone` asks about have ended.
    #[n(2)]
    Alone,
    /// The cell has no job with this id and never had one.
    #[n(3)]
    Unknown,
    /// The job has ended and is only in accounting, so the controller does not have its exit code.
    #[n(4)]
    Forgotten,
}
