//! Priorities and fair shares of jobs and users, as shown by `sprio` and `sshare`.

use minicbor::{Decode, Encode};

use crate::id::JobId;
use crate::job::ArrayTask;
use crate::policy::Real;

/// Priorities of pending jobs with their factors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Priorities {
    /// Weight of each factor. All are 0 if jobs are ordered by submission only.
    #[n(0)]
    pub weights: Factors,
    /// The jobs, each once for each of its partitions.
    #[n(1)]
    pub jobs: Vec<JobPriority>,
}

/// One value for each factor of a priority: either the factor, between 0 and 1, or its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Factors {
    /// Factor or weight of the time that the job has waited.
    #[n(0)]
    pub age: Real,
    /// Factor or weight of the association's priority.
    #[n(1)]
    pub assoc: Real,
    /// Factor or weight of how far its association is below its share.
    #[n(2)]
    pub fairshare: Real,
    /// Factor or weight of the job's size.
    #[n(3)]
    pub size: Real,
    /// Factor or weight of the partition.
    #[n(4)]
    pub partition: Real,
    /// Factor or weight of the QOS.
    #[n(5)]
    pub qos: Real,
}

/// A pending job's priority.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct JobPriority {
    /// Id of the job; of tasks that were never separated: id of their array.
    #[n(0)]
    pub id: JobId,
    /// Array and index, if it is an array task.
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
    /// Partition for which this priority holds.
    #[n(6)]
    pub partition: String,
    /// The whole priority.
    #[n(7)]
    pub priority: u32,
    /// Whether a user or operator set the priority, so that the factors don't count.
    #[n(8)]
    pub fixed: bool,
    /// Value of `--nice`.
    #[n(9)]
    pub nice: i32,
    /// The factors of the priority.
    #[n(10)]
    pub factors: Factors,
}

/// A line of `sshare`: the share of an account, or of a user in it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Share {
    /// Number of the association.
    #[n(0)]
    pub id: u32,
    /// Depth in the tree of accounts; 0 for the root account.
    #[n(1)]
    pub depth: u32,
    /// Name of the account.
    #[n(2)]
    pub account: String,
    /// Name of the user. Empty: the line is the account's.
    #[n(3)]
    pub user: String,
    /// Partition of the association. Empty: any.
    #[n(4)]
    pub partition: String,
    /// Number of shares. None: the parent's.
    #[n(5)]
    pub shares: Option<u32>,
    /// Fraction of its siblings' shares.
    #[n(6)]
    pub norm_shares: Real,
    /// CPU seconds used, decayed over time.
    #[n(7)]
    pub raw_usage: Real,
    /// Fraction of the whole cluster's usage.
    #[n(8)]
    pub norm_usage: Real,
    /// Fraction of its siblings' usage.
    #[n(9)]
    pub effective_usage: Real,
    /// For a user: position among all users by fair share, between 0 and 1; 1 is served first.
    #[n(10)]
    pub fairshare: Real,
    /// Ratio of shares to usage, among siblings; above 1: less used than its share.
    #[n(11)]
    pub level: Real,
    /// What its running jobs may still use: CPU minutes, MiB minutes of memory, and node minutes.
    #[n(12)]
    pub run_minutes: [u64; 3],
}
