//! What `scontrol create|update reservation` asks of the controller.

use minicbor::{Decode, Encode};

use crate::time::Time;

/// What `scontrol create|update reservation` asks, by Slurm's words. None: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ReservationChange {
    /// ReservationName.
    #[n(0)]
    pub name: Option<String>,
    /// StartTime.
    #[n(1)]
    pub start: Option<Time>,
    /// EndTime.
    #[n(2)]
    pub end: Option<Time>,
    /// Duration, seconds.
    #[n(3)]
    pub duration_s: Option<u64>,
    /// Nodes, a host list or `ALL`.
    #[n(4)]
    pub nodes: Option<String>,
    /// NodeCnt.
    #[n(5)]
    pub node_count: Option<u32>,
    /// PartitionName.
    #[n(6)]
    pub partition: Option<String>,
    /// Features.
    #[n(7)]
    pub features: Option<String>,
    /// Users.
    #[n(8)]
    pub users: Option<ListChange>,
    /// Accounts.
    #[n(9)]
    pub accounts: Option<ListChange>,
    /// Flags.
    #[n(10)]
    pub flags: Option<ListChange>,
}

/// A new list, or what is added to or taken from the one that there is.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ListChange {
    /// `Key=a,b`
    #[n(0)]
    Set(#[n(0)] Vec<String>),
    /// `Key+=a,b`
    #[n(1)]
    Add(#[n(0)] Vec<String>),
    /// `Key-=a,b`
    #[n(2)]
    Remove(#[n(0)] Vec<String>),
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
