//! Jobs that a request selects.

use minicbor::{Decode, Encode};

use crate::id::{JobId, StepNo};
use crate::set::IndexSet;
use crate::time::Time;

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
    /// Whether jobs of hidden partitions are left out.
    #[n(8)]
    #[cbor(with = "crate::encoding::truth", has_nil)]
    pub no_hidden: bool,
}

impl JobSelection {
    /// Returns whether the selection has conditions other than ids.
    pub fn is_filtered(&self) -> bool {
        let texts = [&self.partitions, &self.names, &self.accounts, &self.qos];
        let listed = texts.iter().any(|list| !list.is_empty());
        listed || !self.users.is_empty() || !self.states.is_empty() || self.nodes.is_some()
    }
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

impl JobRef {
    /// Returns the id that was written: of the job, the array or the first component.
    pub fn id(&self) -> JobId {
        let (Self::Job(id) | Self::Tasks(id, _) | Self::Component(id, _)) = self;
        *id
    }
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
    /// Matches no job: a state of Slurm that Squall does not have (STOPPED, RESIZING, …).
    #[n(14)]
    Never,
    /// Jobs that hold an allocation that is not ready (CONFIGURING).
    #[n(15)]
    Configuring,
    /// Held jobs that were requeued with `State=SpecialExit` (SPECIAL_EXIT).
    #[n(16)]
    SpecialExit,
}

/// Conditions of a `sacct` query. All conditions that are set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct AccountingQuery {
    /// Jobs and array tasks, of which the job must be one. Empty: any.
    #[n(0)]
    pub ids: Vec<JobRef>,
    /// Number of a step (`-j 12.0`, `12.batch`), to select only rows of steps with this number. None: all rows.
    #[n(1)]
    pub step: Option<StepNo>,
    /// Uids of users, one of which must own the job. Empty: any.
    #[n(2)]
    pub users: Vec<u32>,
    /// States, one of which the job must have had. Empty: any.
    #[n(3)]
    pub states: Vec<StateFilter>,
    /// Names, one of which the job must have. Empty: any.
    #[n(4)]
    pub names: Vec<String>,
    /// Names of partitions, one of which the job must have. Empty: any.
    #[n(5)]
    pub partitions: Vec<String>,
    /// Names of accounts, one of which the job must have. Empty: any.
    #[n(6)]
    pub accounts: Vec<String>,
    /// Nodes as a host list, at least one of which the job must have held. None: any.
    #[n(7)]
    pub nodes: Option<String>,
    /// Start of the period in which the jobs had one of `states` or, without states, existed. None: unlimited.
    #[n(8)]
    pub start: Option<Time>,
    /// End of the period that `start` begins. None: unlimited.
    #[n(9)]
    pub end: Option<Time>,
    /// Whether to leave out the rows of steps, so that only jobs are listed.
    #[n(10)]
    pub allocations_only: bool,
    /// Whether to include earlier attempts of requeued jobs, not only the last.
    #[n(11)]
    pub duplicates: bool,
    /// Whether to say what steps used over time.
    #[n(12)]
    #[cbor(default)]
    pub series: bool,
}
