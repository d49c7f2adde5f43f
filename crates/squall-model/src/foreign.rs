//! Dependencies across cells, as questions: what a cell has to know of the jobs of others. Each has one answer, for ever.

use crate::id::JobId;
use crate::job::DependencyJob;
use crate::time::Time;
use minicbor::{Decode, Encode};

/// What a dependent's cell asks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Question {
    /// Has it started, or ended without? Asked of its cell.
    #[n(0)]
    Started(#[n(0)] Named),
    /// Has it ended? Asked of its cell.
    #[n(1)]
    Ended(#[n(0)] Named),
    /// Have all jobs of that user and name ended that were submitted before? Asked of all other cells.
    #[n(2)]
    Alone {
        /// The job or array that waits to be the only one.
        #[n(0)]
        job: JobId,
        /// Its user.
        #[n(1)]
        uid: u32,
        /// Its name.
        #[n(2)]
        name: String,
        /// When it was submitted; of two at the same time the one with the lower id is the first.
        #[n(3)]
        submit: Time,
    },
}

/// A job of another cell: a job, a whole array, or a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Named {
    /// The job or array.
    #[n(0)]
    pub id: JobId,
    /// The task's index in it.
    #[n(1)]
    pub index: Option<u32>,
}

impl From<Named> for DependencyJob {
    fn from(Named { id, index }: Named) -> Self {
        Self { id, index, delay_min: 0 }
    }
}

/// What is answered. A job that ends, and is requeued afterwards, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Reply {
    /// It has started.
    #[n(0)]
    Started(#[n(0)] Time),
    /// It has ended.
    #[n(1)]
    Ended {
        /// Completed, with exit code 0; an array: all of its tasks.
        #[n(0)]
        well: bool,
    },
    /// They have ended.
    #[n(2)]
    Alone,
    /// There is no such job, and never was.
    #[n(3)]
    Unknown,
    /// It has ended, and only accounting knows how.
    #[n(4)]
    Forgotten,
}
