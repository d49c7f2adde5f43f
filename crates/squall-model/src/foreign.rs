//! Dependencies across cells, as questions: what a cell has to know of the jobs of others. Each has one answer, for ever.

use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::job::DependencyJob;
use crate::time::Time;

/// What a dependent's cell asks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Question {
    /// Has it started, or ended without? Asked of its cell.
    Started(Named),
    /// Has it ended? Asked of its cell.
    Ended(Named),
    /// Have all jobs of that user and name ended that were submitted before? Asked of all other cells.
    Alone {
        /// The job or array that waits to be the only one.
        job: JobId,
        /// Its user.
        uid: u32,
        /// Its name.
        name: String,
        /// When it was submitted; of two at the same time the one with the lower id is the first.
        submit: Time,
    },
}

/// A job of another cell: a job, a whole array, or a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Named {
    /// The job or array.
    pub id: JobId,
    /// The task's index in it.
    pub index: Option<u32>,
}

impl From<Named> for DependencyJob {
    fn from(Named { id, index }: Named) -> Self {
        Self { id, index, delay_min: 0 }
    }
}

/// What is answered. A job that ends, and is requeued afterwards, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reply {
    /// It has started.
    Started(Time),
    /// It has ended.
    Ended {
        /// Completed, with exit code 0; an array: all of its tasks.
        well: bool,
    },
    /// They have ended.
    Alone,
    /// There is no such job, and never was.
    Unknown,
    /// It has ended, and only accounting knows how.
    Forgotten,
}
