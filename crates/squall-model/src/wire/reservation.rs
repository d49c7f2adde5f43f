//! Values of `scontrol create|update reservation`, as sent to the controller.

use minicbor::{Decode, Encode};

use crate::time::Time;

/// Values of `scontrol create|update reservation`, each documented with Slurm's key for it. None: not given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ReservationChange {
    /// Name of the reservation (ReservationName).
    #[n(0)]
    pub name: Option<String>,
    /// Start of the reservation (StartTime).
    #[n(1)]
    pub start: Option<Time>,
    /// End of the reservation (EndTime).
    #[n(2)]
    pub end: Option<Time>,
    /// Length of the reservation, seconds (Duration).
    #[n(3)]
    pub duration_s: Option<u64>,
    /// Nodes to reserve, as a host list or `ALL` (Nodes).
    #[n(4)]
    pub nodes: Option<String>,
    /// Number of nodes to reserve (NodeCnt).
    #[n(5)]
    pub node_count: Option<u32>,
    /// Partition from which the reserved nodes are chosen (PartitionName).
    #[n(6)]
    pub partition: Option<String>,
    /// Features that the reserved nodes must have (Features).
    #[n(7)]
    pub features: Option<String>,
    /// Users that may use the reservation (Users).
    #[n(8)]
    pub users: Option<ListChange>,
    /// Accounts that may use the reservation (Accounts).
    #[n(9)]
    pub accounts: Option<ListChange>,
    /// Names of Slurm's reservation flags, as `MAINT` (Flags).
    #[n(10)]
    pub flags: Option<ListChange>,
    /// Groups whose members may use the reservation, each as `NAME:GID` (Groups).
    #[n(11)]
    pub groups: Option<ListChange>,
    /// QOS whose jobs may use the reservation (QOS).
    #[n(12)]
    pub qos: Option<ListChange>,
    /// Partitions whose jobs may use the reservation (AllowedPartitions).
    #[n(13)]
    pub allowed_partitions: Option<ListChange>,
    /// Comment; empty: none (Comment).
    #[n(14)]
    pub comment: Option<String>,
    /// Licenses to reserve, as `fluent:2`; empty: none (Licenses).
    #[n(15)]
    pub licenses: Option<String>,
    /// Time without jobs after which the reservation ends, seconds (`PURGE_COMP=TIME` of Flags).
    #[n(16)]
    pub purge_s: Option<u64>,
    /// Nodes to add to those reserved, as a host list (`Nodes+=`).
    #[n(17)]
    pub more_nodes: Option<String>,
    /// Nodes to take from those reserved, as a host list (`Nodes-=`).
    #[n(18)]
    pub less_nodes: Option<String>,
    /// Whether the present time of a recurring reservation is left out (Skip).
    #[n(19)]
    #[cbor(with = "crate::encoding::truth", has_nil)]
    pub skip: bool,
}

/// Change of a list: a new list, or entries to add to or remove from the existing one.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ListChange {
    /// Replaces the list (`Key=a,b`).
    #[n(0)]
    Set(#[n(0)] Vec<String>),
    /// Adds the entries that the list lacks (`Key+=a,b`).
    #[n(1)]
    Add(#[n(0)] Vec<String>),
    /// Removes these entries from the list (`Key-=a,b`).
    #[n(2)]
    Remove(#[n(0)] Vec<String>),
}

impl ListChange {
    /// Returns the entries of the change.
    pub fn entries_mut(&mut self) -> &mut Vec<String> {
        match self {
            Self::Set(list) | Self::Add(list) | Self::Remove(list) => list,
        }
    }
    /// Returns `list` with the change applied.
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
