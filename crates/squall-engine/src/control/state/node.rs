//! What is known of nodes and partitions.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use squall_model::config::{PartitionConfig, PartitionState};
use squall_model::event::NodeAdmin;
use squall_model::id::{Incarnation, JobId};
use squall_model::resource::Hardware;
use squall_model::set::{CoreSet, NodeSet};
use squall_model::time::Time;

/// A node that the configuration names or that has registered. Never removed; its id is its place in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its life; None: it never registered.
    pub incarnation: Option<Incarnation>,
    /// What it said it has.
    pub reported: Hardware,
    /// What the configuration makes of that.
    pub hardware: Hardware,
    /// When this life (or hardware) was registered.
    pub registered: Time,
    /// Whether it answers.
    pub up: bool,
    /// What the operator wants of it.
    pub admin: NodeAdmin,
    /// Why it is down or drained.
    pub reason: Option<NodeReason>,
    /// Cores that jobs hold.
    pub cores: CoreSet,
    /// Memory that jobs hold, MiB.
    pub memory_mb: u64,
    /// Jobs that hold it: running or completing.
    pub jobs: BTreeSet<JobId>,
}

/// Why a node is down or drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReason {
    /// In words.
    pub text: String,
    /// Who said so; None: the controller.
    pub by: Option<u32>,
    /// When.
    pub time: Time,
}

/// A partition as configured, with its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its configuration; `state` is the one in force.
    pub config: PartitionConfig,
    /// Its nodes.
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
