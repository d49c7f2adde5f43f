//! Records of nodes and partitions.

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};
use squall_model::config::{PartitionConfig, PartitionState};
use squall_model::event::NodeAdmin;
use squall_model::id::{Incarnation, JobId};
use squall_model::resource::Hardware;
use squall_model::set::{CoreSet, NodeSet};
use squall_model::time::Time;

/// A node that the configuration names or that has registered. It is never removed; its id is its position in
/// `State::nodes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Node {
    /// The node's name.
    #[n(0)]
    pub name: String,
    /// Number of the node's boot; None: it never registered.
    #[n(1)]
    pub incarnation: Option<Incarnation>,
    /// Hardware as the node reported it.
    #[n(2)]
    pub reported: Hardware,
    /// Hardware that jobs can use: as reported, with configuration and operators' changes applied.
    #[n(3)]
    pub hardware: Hardware,
    /// When the node registered with this boot or this hardware.
    #[n(4)]
    pub registered: Time,
    /// Whether the node responds.
    #[n(5)]
    pub up: bool,
    /// The administrative state that an operator set: resume, drain or down.
    #[n(6)]
    pub admin: NodeAdmin,
    /// Why the node is down or drained; None: no reason was given.
    #[n(7)]
    pub reason: Option<NodeReason>,
    /// Cores of the node that jobs hold.
    #[n(8)]
    pub cores: CoreSet,
    /// Memory of the node that jobs hold, MiB.
    #[n(9)]
    pub memory_mb: u64,
    /// Jobs that hold resources on the node: running, completing or leased ones.
    #[n(10)]
    pub jobs: BTreeSet<JobId>,
}

/// Why a node is down or drained.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NodeReason {
    /// The reason as text.
    #[n(0)]
    pub text: String,
    /// Uid of the operator who set the reason; None: the controller set it.
    #[n(1)]
    pub by: Option<u32>,
    /// When the reason was set.
    #[n(2)]
    pub time: Time,
}

/// A partition as configured, with its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Partition {
    /// The partition's configuration; its field `state` has the current state.
    #[n(0)]
    pub config: PartitionConfig,
    /// The nodes of the partition.
    #[n(1)]
    pub nodes: NodeSet,
}

impl Node {
    /// Returns whether jobs may start on the node: it responds and is neither drained nor down.
    pub fn usable(&self) -> bool {
        self.up && self.admin == NodeAdmin::Resume
    }
    /// Returns the number of the node's CPUs that no job holds.
    pub fn free_cpus(&self) -> u32 {
        self.hardware.cpus.saturating_sub(self.cores.len() as u32)
    }
}

impl Partition {
    /// Returns whether the partition accepts jobs.
    pub(crate) fn takes_jobs(&self) -> bool {
        matches!(self.config.state, PartitionState::Up | PartitionState::Down)
    }
    /// Returns whether the partition's jobs may start.
    pub(crate) fn starts_jobs(&self) -> bool {
        matches!(self.config.state, PartitionState::Up | PartitionState::Drain)
    }
}
