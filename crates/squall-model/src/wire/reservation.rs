//! What `scontrol create|update reservation` asks of the controller.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// What `scontrol create|update reservation` asks, by Slurm's words. None: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationChange {
    /// ReservationName.
    pub name: Option<String>,
    /// StartTime.
    pub start: Option<Time>,
    /// EndTime.
    pub end: Option<Time>,
    /// Duration, seconds.
    pub duration_s: Option<u64>,
    /// Nodes, a host list or `ALL`.
    pub nodes: Option<String>,
    /// NodeCnt.
    pub node_count: Option<u32>,
    /// PartitionName.
    pub partition: Option<String>,
    /// Features.
    pub features: Option<String>,
    /// Users.
    pub users: Option<ListChange>,
    /// Accounts.
    pub accounts: Option<ListChange>,
    /// Flags.
    pub flags: Option<ListChange>,
}

/// A new list, or what is added to or taken from the one that there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListChange {
    /// `Key=a,b`
    Set(Vec<String>),
    /// `Key+=a,b`
    Add(Vec<String>),
    /// `Key-=a,b`
    Remove(Vec<String>),
}

impl ListChange {
    /// The list with the change.
    pub fn apply(&self, list: &[String]) -> Vec<String> {
        match self {
            Self::Set(new) => new.clone(),
            Self::Add(more) => {
                let fresh = more.iter().filter(|entry| !list.contains(entry));
                list.iter().chain(fresh).cloned().collect()
            }
            Self::Remove(less) => list.iter().filter(|entry| !less.contains(entry)).cloned().collect(),
        }
    }
}
