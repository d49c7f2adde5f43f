//! Jobs that a request selects.

use minicbor::{Decode, Encode};

use crate::id::JobId;
use crate::set::IndexSet;

/// Selects the jobs of a request. All conditions that are set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobSelection {
    /// Jobs and array tasks, of which the job must be one. Empty: any.
    #[n(0)]
    pub ids: Vec<JobRef>,
    /// Uids of users, one of which must own the job. Empty: any.
    #[n(1)]
    pub users: Vec<u32>,
    /// Names of partitions, one of which the job must have. Empty: any.
    #[n(2)]
    pub partitions: Vec<String>,
    /// Names, one of which the job must have. Empty: any.
    #[n(3)]
    pub names: Vec<String>,
    /// Names of accounts, one of which the job must have. Empty: any.
    #[n(4)]
    pub accounts: Vec<String>,
    /// Names of QOS, one of which the job must have. Empty: any.
    #[n(5)]
    pub qos: Vec<String>,
    /// States, one of which the job must have. Empty: any; ended jobs then only if the request includes them.
    #[n(6)]
    pub states: Vec<StateFilter>,
    /// Nodes as a host list, at least one of which the job must hold. None: any.
    #[n(7)]
    pub nodes: Option<String>,
}

/// A job, tasks of an array, or a component of a heterogeneous job, as users write it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum JobRef {
    /// `123`: a job, all tasks of an array, or all components of a heterogeneous job.
    #[n(0)]
    Job(#[n(0)] JobId),
    /// `123_4`, `123_[1-4,9]`: tasks of an array, by id and indices.
    #[n(1)]
    Tasks(#[n(0)] JobId, #[n(1)] IndexSet),
    /// `123+1`: a component of a heterogeneous job, by id and offset.
    #[n(2)]
    Component(#[n(0)] JobId, #[n(1)] u32),
}

/// State of jobs that a request selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum StateFilter {
    /// Jobs that wait in the queue (PENDING).
    #[n(0)]
    Pending,
    /// Jobs that run (RUNNING).
    #[n(1)]
    Running,
    /// Running jobs that are suspended (SUSPENDED).
    #[n(2)]
    Suspended,
    /// Jobs with processes that are being ended (COMPLETING).
    #[n(3)]
    Completing,
    /// Jobs that ended with exit code 0 (COMPLETED).
    #[n(4)]
    Completed,
    /// Jobs that a user or operator cancelled (CANCELLED).
    #[n(5)]
    Cancelled,
    /// Jobs that failed, as with an exit code other than 0 (FAILED).
    #[n(6)]
    Failed,
    /// Jobs that reached their time limit (TIMEOUT).
    #[n(7)]
    Timeout,
    /// Jobs that ended because a node failed (NODE_FAIL).
    #[n(8)]
    NodeFail,
    /// Jobs that ran out of memory (OUT_OF_MEMORY).
    #[n(9)]
    OutOfMemory,
    /// Jobs that were preempted (PREEMPTED).
    #[n(10)]
    Preempted,
    /// Jobs that could not end before their deadline (DEADLINE).
    #[n(11)]
    Deadline,
    /// Jobs that ended with state BOOT_FAIL.
    #[n(12)]
    BootFail,
    /// REQUEUED: pending again after a requeue.
    #[n(13)]
    Requeued,
    /// Matches no job: a state of Slurm that Squall does not have (STOPPED, CONFIGURING, …).
    #[n(14)]
    Never,
}
