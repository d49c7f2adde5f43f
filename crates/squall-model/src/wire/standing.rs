//! What clients are shown of priorities and shares: `sprio`, `sshare`.

use minicbor::{Decode, Encode};

use crate::id::JobId;
use crate::job::ArrayTask;
use crate::policy::Real;

/// What the priorities of pending jobs are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Priorities {
    /// What each factor is worth: nothing where there is one order, that of submission.
    #[n(0)]
    pub weights: Factors,
    /// The jobs, each once for each of its partitions.
    #[n(1)]
    pub jobs: Vec<JobPriority>,
}

/// One value for each factor of a priority: its size between 0 and 1, or its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Factors {
    /// How long it has waited.
    #[n(0)]
    pub age: Real,
    /// The association's priority.
    #[n(1)]
    pub assoc: Real,
    /// How far it is below its share.
    #[n(2)]
    pub fairshare: Real,
    /// How large it is.
    #[n(3)]
    pub size: Real,
    /// The partition.
    #[n(4)]
    pub partition: Real,
    /// The QOS.
    #[n(5)]
    pub qos: Real,
}

/// A pending job's priority.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct JobPriority {
    /// The job; of untouched tasks: their array.
    #[n(0)]
    pub id: JobId,
    /// Which array task it is.
    #[n(1)]
    pub task: Option<ArrayTask>,
    /// Its user's name.
    #[n(2)]
    pub user: String,
    /// Its user's id.
    #[n(3)]
    pub uid: u32,
    /// Account.
    #[n(4)]
    pub account: String,
    /// QOS.
    #[n(5)]
    pub qos: String,
    /// Partition.
    #[n(6)]
    pub partition: String,
    /// All together.
    #[n(7)]
    pub priority: u32,
    /// Set by somebody: the factors have no say.
    #[n(8)]
    pub fixed: bool,
    /// `--nice`.
    #[n(9)]
    pub nice: i32,
    /// The factors.
    #[n(10)]
    pub factors: Factors,
}

/// A line of `sshare`: an account, or a user in it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Share {
    /// The association's number.
    #[n(0)]
    pub id: u32,
    /// How far below the root.
    #[n(1)]
    pub depth: u32,
    /// Account.
    #[n(2)]
    pub account: String,
    /// User; empty: the account itself.
    #[n(3)]
    pub user: String,
    /// Partition; empty: any.
    #[n(4)]
    pub partition: String,
    /// Shares; None: as its parent.
    #[n(5)]
    pub shares: Option<u32>,
    /// Its part of its siblings' shares.
    #[n(6)]
    pub norm_shares: Real,
    /// CPU seconds used, decayed.
    #[n(7)]
    pub raw_usage: Real,
    /// Its part of all usage.
    #[n(8)]
    pub norm_usage: Real,
    /// Its part of its siblings' usage.
    #[n(9)]
    pub effective_usage: Real,
    /// Users: place in the order of all, between 0 and 1.
    #[n(10)]
    pub fairshare: Real,
    /// Shares by usage, among siblings.
    #[n(11)]
    pub level: Real,
    /// Minutes of CPUs, MiB and nodes that its running jobs may still use.
    #[n(12)]
    pub run_minutes: [u64; 3],
}
