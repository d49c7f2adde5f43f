//! Typed ids of jobs, steps, nodes, attempts and controller epochs.

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
    /// Id of a job. An id is not given again while its job is known: the highest id given is part of the journaled
    /// state. An array of N tasks reserves N consecutive ids (see [`crate::job::ArraySpec::task_id`]).
    JobId(u32)
);
id!(
    /// Id of a node, small enough to be an index of arrays. Each node name gets one id, which is never given to another
    /// name.
    NodeId(u32)
);
id!(
    /// Number of a job's execution, from 1. Each requeue starts the next one. 0: the job has never started.
    Attempt(u32)
);
id!(
    /// Number of the controller's incarnation, one higher at each start. Messages from an older controller are refused.
    Epoch(u64)
);

impl JobId {
    /// Returns the number of the cell that gave this id; 0 without cells.
    pub fn cell(self) -> u32 {
        self.0 / CELL_IDS
    }
}

impl NodeId {
    /// Returns the id as an array index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A step's number within its job: 0, 1, 2… for `srun`, and a constant for the batch script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct StepNo(#[n(0)] pub u32);

impl StepNo {
    /// Number of the batch script, printed as `batch` (`123.batch`).
    pub const BATCH: Self = Self(u32::MAX - 1);

    /// Number of the batch script in Slurm.
    const SLURM_BATCH: u32 = 0xffff_fffb;

    /// Returns the number that Slurm has for this step: another one for the batch script.
    pub fn slurm_number(self) -> u32 {
        if self == Self::BATCH { Self::SLURM_BATCH } else { self.0 }
    }

    /// Returns whether a step with this number in Slurm is one of `srun`.
    pub fn is_srun_number(number: u32) -> bool {
        number < Self::SLURM_BATCH
    }
}

impl fmt::Display for StepNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::BATCH { f.write_str("batch") } else { self.0.fmt(f) }
    }
}

/// Identifies one attempt of one step. A step daemon serves exactly one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct StepKey {
    /// The job of the step.
    #[n(0)]
    pub job: JobId,
    /// Attempt of the job.
    #[n(1)]
    pub attempt: Attempt,
    /// Number of the step within the job.
    #[n(2)]
    pub step: StepNo,
}

impl fmt::Display for StepKey {
    /// Writes `JOB.ATTEMPT.STEP`, as in the names of spool folders.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.job, self.attempt, self.step)
    }
}

/// Key by which a client makes a request idempotent: a repeated request with the same key gets the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ClientKey(#[n(0)] pub u128);

/// Incarnation of a node. It changes when the machine reboots or the node's spool is wiped, not when its daemon
/// restarts. A job that ran under another incarnation has certainly ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Incarnation(#[n(0)] pub u128);

/// Identifies one registration of a node. Messages of an older registration are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Session {
    /// Epoch of the controller that accepted the registration.
    #[n(0)]
    pub epoch: Epoch,
    /// Number of the put (message to a set of nodes) that offered the session, counted within the epoch.
    #[n(1)]
    pub number: u64,
}
