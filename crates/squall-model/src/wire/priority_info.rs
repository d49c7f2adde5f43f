//! Priorities and fair shares of jobs and users, as shown by `sprio` and `sshare`.

use minicbor::{Decode, Encode};

use crate::id::JobId;
use crate::job::ArrayTask;
use crate::policy::{Real, Tres};

/// Priorities of pending jobs, and how they are made up of factors (`sprio`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Priorities {
    /// Weight of each factor. All are 0 if jobs are ordered by submission only.
    #[n(0)]
    pub weights: Factors,
    /// The pending jobs; a job in several partitions has one entry for each.
    #[n(1)]
    pub jobs: Vec<JobPriority>,
    /// Points for resources that jobs request (`PriorityWeightTRES`). None: there are none.
    #[n(2)]
    pub tres: Option<String>,
}

/// One value for each factor of a job's priority: either the factor itself, between 0 and 1, or its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Factors {
    /// Factor for the time that the job has waited, or the factor's weight.
    #[n(0)]
    pub age: Real,
    /// Factor for the priority of the job's association, or the factor's weight.
    #[n(1)]
    pub assoc: Real,
    /// Factor for how far usage of the job's association is below its share, or the factor's weight.
    #[n(2)]
    pub fairshare: Real,
    /// Factor for the job's size, or the factor's weight.
    #[n(3)]
    pub size: Real,
    /// Factor for the priority of the job's partition, or the factor's weight.
    #[n(4)]
    pub partition: Real,
    /// Factor for the priority of the job's QOS, or the factor's weight.
    #[n(5)]
    pub qos: Real,
    /// Points for the resources that the job requests (the weight is 1), or the factor's weight.
    #[n(6)]
    #[cbor(default)]
    pub tres: Real,
}

/// Priority of a pending job in one of its partitions.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct JobPriority {
    /// Id of the job; for array tasks that never got an id of their own: id of their array.
    #[n(0)]
    pub id: JobId,
    /// Array and index of an array task. None: the job is not an array task.
    #[n(1)]
    pub task: Option<ArrayTask>,
    /// Name of the job's user.
    #[n(2)]
    pub user: String,
    /// Uid of the job's user.
    #[n(3)]
    pub uid: u32,
    /// Account of the job.
    #[n(4)]
    pub account: String,
    /// QOS of the job.
    #[n(5)]
    pub qos: String,
    /// Partition in which the job has this priority.
    #[n(6)]
    pub partition: String,
    /// The job's priority in this partition.
    #[n(7)]
    pub priority: u32,
    /// Whether a user or operator set the priority, so that the factors have no effect.
    #[n(8)]
    pub fixed: bool,
    /// Value of `--nice`, which lowers the priority.
    #[n(9)]
    pub nice: i32,
    /// The factors, each between 0 and 1 before it is weighted.
    #[n(10)]
    pub factors: Factors,
    /// Points of the job for each resource that it requests, as `cpu=250,gres/gpu=750`. None: there are none.
    #[n(11)]
    pub tres: Option<String>,
}

/// A line of `sshare`: shares and usage of an account, or of a user in an account.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Share {
    /// Number of the association; 1 for the root account.
    #[n(0)]
    pub id: u32,
    /// Depth in the tree of accounts; 0 for the root account.
    #[n(1)]
    pub depth: u32,
    /// Name of the account.
    #[n(2)]
    pub account: String,
    /// Name of the user. Empty: the line is about the account as a whole.
    #[n(3)]
    pub user: String,
    /// Partition of the association. Empty: the association holds in every partition.
    #[n(4)]
    pub partition: String,
    /// Number of shares. None: `fairshare=parent`.
    #[n(5)]
    pub shares: Option<u32>,
    /// The association's shares as a fraction of the shares of all associations with the same parent, between 0 and 1.
    #[n(6)]
    pub norm_shares: Real,
    /// Billing seconds (or CPU seconds, where no partition has weights) used so far, where earlier usage counts less (`priority_decay_half_life_s`).
    #[n(7)]
    pub raw_usage: Real,
    /// The association's usage as a fraction of the whole cluster's usage, between 0 and 1.
    #[n(8)]
    pub norm_usage: Real,
    /// The association's usage as a fraction of the usage of all associations with the same parent, between 0 and 1.
    #[n(9)]
    pub effective_usage: Real,
    /// For a user: rank among all users by fair share, between 0 and 1; the user with 1 is the first to be scheduled.
    #[n(10)]
    pub fairshare: Real,
    /// The association's fraction of shares divided by its fraction of usage, both among associations with the same
    /// parent. Above 1: it has used less than its share.
    #[n(11)]
    pub level: Real,
    /// Resources that the association's running jobs may still use before their time limits: CPU minutes, MiB minutes
    /// of memory, and node minutes.
    #[n(12)]
    pub run_minutes: [u64; 3],
    /// Limits on the usage of all jobs of the association together (GrpTRESMins): resource-minutes, in the order of
    /// `Tres`.
    #[n(13)]
    #[cbor(default)]
    pub group_minutes: Vec<(Tres, u64)>,
    /// CPU seconds used so far. None: as `raw_usage`.
    #[n(14)]
    pub cpu_usage: Option<Real>,
    /// Billing minutes that running jobs may still use. None: as their CPU minutes.
    #[n(15)]
    pub billing_minutes: Option<u64>,
}
