//! Typed ids: what names a job, a step, a node, an attempt, an epoch.

use std::fmt;

use minicbor::{Decode, Encode};

use crate::limits::CELL_IDS;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
        #[cbor(transparent)]
        pub struct $name(#[n(0)] pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A job's number. Never given twice: the high-water mark is part of the journaled state.
    /// An array of N tasks reserves N consecutive ids (see [`crate::job::ArraySpec::task_id`]).
    JobId(u32)
);
id!(
    /// A node's dense index, given once per name and never reused.
    NodeId(u32)
);
id!(
    /// Which execution of a job this is, from 1; a requeue makes the next. 0: never started.
    Attempt(u32)
);
id!(
    /// The controller's incarnation, one higher at each start; messages of an older one are refused.
    Epoch(u64)
);

impl JobId {
    /// The cell that gives this id, where there are cells.
    pub fn cell(self) -> u32 {
        self.0 / CELL_IDS
    }
}

impl NodeId {
    /// The id as an index into dense arrays.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A step's number within its job: 0, 1, 2… for `srun`, and one name for the batch script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct StepNo(#[n(0)] pub u32);

impl StepNo {
    /// The batch script, shown as `123.batch`.
    pub const BATCH: Self = Self(u32::MAX - 1);
}

impl fmt::Display for StepNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::BATCH { f.write_str("batch") } else { self.0.fmt(f) }
    }
}

/// One attempt of one step: what a step daemon serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct StepKey {
    /// The job.
    #[n(0)]
    pub job: JobId,
    /// The attempt of the job.
    #[n(1)]
    pub attempt: Attempt,
    /// The step within the job.
    #[n(2)]
    pub step: StepNo,
}

impl fmt::Display for StepKey {
    /// `JOB.ATTEMPT.STEP`, as in the names of spool folders.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.job, self.attempt, self.step)
    }
}

/// What a client chose to make a request idempotent: the same key gives the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ClientKey(#[n(0)] pub u128);

/// One life of one node: changes at reboot or when the node's spool was wiped, not when its
/// daemon restarts. A job that ran under another incarnation is proven dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Incarnation(#[n(0)] pub u128);

/// One registration of a node; messages of an older one are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Session {
    /// The controller's incarnation.
    #[n(0)]
    pub epoch: Epoch,
    /// The number of the put that offered it, within that incarnation.
    #[n(1)]
    pub number: u64,
}
