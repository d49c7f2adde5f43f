//! Records of nodes and partitions.

use std::collections::BTreeSet;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use squall_model::config::{NodeConfig, PartitionConfig, PartitionState};
use squall_model::event::NodeAdmin;
use squall_model::fault::Fault;
use squall_model::id::{Incarnation, JobId};
use squall_model::power::{Power, PowerPhase, Reboot};
use squall_model::resource::Hardware;
use squall_model::set::{CoreSet, NodeSet};
use squall_model::time::Time;

/// A node that the configuration names, that an operator created or that has registered. The record of a removed node
/// stays, so that its id, the position in `State::nodes`, is that of no other name.
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
    #[cbor(with = "squall_model::encoding::arc")]
    pub hardware: Arc<Hardware>,
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
    /// The reboot that is to come. None: none. The numbers before 16 are left out.
    #[n(16)]
    pub reboot: Option<Box<Reboot>>,
    /// Power of the node. None: it is up, as far as is known. The numbers before 24 are left out.
    #[n(24)]
    pub power: Option<Power>,
    /// When the node was removed from the cluster. No job starts there, and those that run go on to their end. None: it
    /// was not. The numbers 17 to 19 are left out.
    #[n(20)]
    pub removed: Option<Time>,
    /// Description by the operator who created the node. None: the configuration describes it, or nothing does.
    #[n(21)]
    pub made: Option<Box<NodeConfig>>,
    /// Faults of the node, the newest last. The numbers from 22 to 24 are left out.
    #[n(25)]
    #[cbor(default)]
    pub faults: Vec<Fault>,
    /// When the node is resumed by itself (`ResumeAfter`). None: it is not. The numbers from 26 to 28 are left out.
    #[n(29)]
    pub resumes: Option<Time>,
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
    /// Returns whether jobs may start on the node: it responds or can be powered up, is neither drained nor down, and is
    /// not about to reboot or to be powered down, and was not removed.
    pub fn usable(&self) -> bool {
        let reboots = self.reboot.as_ref().is_some_and(|reboot| reboot.asap || reboot.issued.is_some());
        let there = self.power.map_or(self.up, |power| power.takes_jobs() && (self.up || self.sleeps()));
        there && self.admin == NodeAdmin::Resume && !reboots && self.removed.is_none()
    }
    /// Returns whether the node is not powered up: its silence is no failure, and its jobs wait for it.
    pub fn sleeps(&self) -> bool {
        self.power.is_some_and(|power| power.phase != PowerPhase::On)
    }
    /// Returns whether the node was ordered to reboot and has not come back.
    pub(crate) fn is_rebooting(&self) -> bool {
        self.reboot.as_ref().is_some_and(|reboot| reboot.issued.is_some())
    }
    /// Returns whether the node never registered.
    pub(crate) fn is_unknown(&self) -> bool {
        self.incarnation.is_none()
    }

    /// Returns whether the node was removed and no job holds it any more. Users do not see such a node, and it can't
    /// register.
    pub fn is_gone(&self) -> bool {
        self.removed.is_some() && self.jobs.is_empty()
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
