//! What is known of nodes and partitions.

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};
use squall_model::config::{PartitionConfig, PartitionState};
use squall_model::event::NodeAdmin;
use squall_model::id::{Incarnation, JobId};
use squall_model::resource::Hardware;
use squall_model::set::{CoreSet, NodeSet};
use squall_model::time::Time;

/// A node that the configuration names or that has registered. Never removed; its id is its place in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Node {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// Its life; None: it never registered.
    #[n(1)]
    pub incarnation: Option<Incarnation>,
    /// What it said it has.
    #[n(2)]
    pub reported: Hardware,
    /// What the configuration makes of that.
    #[n(3)]
    pub hardware: Hardware,
    /// When this life (or hardware) was registered.
    #[n(4)]
    pub registered: Time,
    /// Whether it answers.
    #[n(5)]
    pub up: bool,
    /// What the operator wants of it.
    #[n(6)]
    pub admin: NodeAdmin,
    /// Why it is down or drained.
    #[n(7)]
    pub reason: Option<NodeReason>,
    /// Cores that jobs hold.
    #[n(8)]
    pub cores: CoreSet,
    /// Memory that jobs hold, MiB.
    #[n(9)]
    pub memory_mb: u64,
    /// Jobs that hold it: running or completing.
    #[n(10)]
    pub jobs: BTreeSet<JobId>,
}

/// Why a node is down or drained.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NodeReason {
    /// In words.
    #[n(0)]
    pub text: String,
    /// Who said so; None: the controller.
    #[n(1)]
    pub by: Option<u32>,
    /// When.
    #[n(2)]
    pub time: Time,
}

/// A partition as configured, with its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Partition {
    /// Its configuration; `state` is the one in force.
    #[n(0)]
    pub config: PartitionConfig,
    /// Its nodes.
    #[n(1)]
    pub nodes: NodeSet,
}

impl Node {
    /// Whether jobs may start there.
    pub fn usable(&self) -> bool {
        self.up && self.admin == NodeAdmin::Resume
    }
    /// CPUs that no job holds.
    pub fn free_cpus(&self) -> u32 {
        self.hardware.cpus.saturating_sub(self.cores.len() as u32)
    }
}

impl Partition {
    /// Whether jobs are accepted.
    pub(crate) fn takes_jobs(&self) -> bool {
        matches!(self.config.state, PartitionState::Up | PartitionState::Down)
    }
    /// Whether jobs are started.
    pub(crate) fn starts_jobs(&self) -> bool {
        matches!(self.config.state, PartitionState::Up | PartitionState::Drain)
    }
}
