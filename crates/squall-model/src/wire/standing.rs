//! What clients are shown of priorities and shares: `sprio`, `sshare`.

use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::job::ArrayTask;
use crate::policy::Real;

/// What the priorities of pending jobs are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Priorities {
    /// What each factor is worth: nothing where there is one order, that of submission.
    pub weights: Factors,
    /// The jobs, each once for each of its partitions.
    pub jobs: Vec<JobPriority>,
}

/// One value for each factor of a priority: its size between 0 and 1, or its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Factors {
    /// How long it has waited.
    pub age: Real,
    /// The association's priority.
    pub assoc: Real,
    /// How far it is below its share.
    pub fairshare: Real,
    /// How large it is.
    pub size: Real,
    /// The partition.
    pub partition: Real,
    /// The QOS.
    pub qos: Real,
}

/// A pending job's priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPriority {
    /// The job; of untouched tasks: their array.
    pub id: JobId,
    /// Which array task it is.
    pub task: Option<ArrayTask>,
    /// Its user's name.
    pub user: String,
    /// Its user's id.
    pub uid: u32,
    /// Account.
    pub account: String,
    /// QOS.
    pub qos: String,
    /// Partition.
    pub partition: String,
    /// All together.
    pub priority: u32,
    /// Set by somebody: the factors have no say.
    pub fixed: bool,
    /// `--nice`.
    pub nice: i32,
    /// The factors.
    pub factors: Factors,
}

/// A line of `sshare`: an account, or a user in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The association's number.
    pub id: u32,
    /// How far below the root.
    pub depth: u32,
    /// Account.
    pub account: String,
    /// User; empty: the account itself.
    pub user: String,
    /// Partition; empty: any.
    pub partition: String,
    /// Shares; None: as its parent.
    pub shares: Option<u32>,
    /// Its part of its siblings' shares.
    pub norm_shares: Real,
    /// CPU seconds used, decayed.
    pub raw_usage: Real,
    /// Its part of all usage.
    pub norm_usage: Real,
    /// Its part of its siblings' usage.
    pub effective_usage: Real,
    /// Users: place in the order of all, between 0 and 1.
    pub fairshare: Real,
    /// Shares by usage, among siblings.
    pub level: Real,
    /// Minutes of CPUs, MiB and nodes that its running jobs may still use.
    pub run_minutes: [u64; 3],
}
