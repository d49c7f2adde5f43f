//! What a node has, and what a job got of it.

use serde::{Deserialize, Serialize};

use crate::id::NodeId;
use crate::set::{CoreSet, NodeSet};

/// What a node daemon found on its machine, or what the configuration lowered it to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// Schedulable CPUs (hardware threads).
    pub cpus: u32,
    /// Sockets; at least 1.
    pub sockets: u32,
    /// Cores per socket; at least 1.
    pub cores_per_socket: u32,
    /// Hardware threads per core; at least 1.
    pub threads_per_core: u32,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Scratch space in MiB.
    pub tmp_disk_mb: u64,
    /// CPU architecture, as `uname -m`.
    pub arch: String,
    /// Operating system, as `uname -sr`.
    pub os: String,
    /// When the machine booted, seconds since the Unix epoch.
    pub boot_time_s: u64,
    /// Address at which others reach the node.
    pub address: String,
    /// Feature names for `--constraint`.
    pub features: Vec<String>,
}

/// Memory as a job asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Memory {
    /// Nothing said: the partition's default, or no limit.
    #[default]
    Unset,
    /// `--mem`, MiB on each node; 0 asks for all of the node's memory.
    PerNodeMb(u64),
    /// `--mem-per-cpu`, MiB for each allocated CPU.
    PerCpuMb(u64),
}

/// What a job holds: groups of nodes on which it holds the same cores and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alloc {
    /// Disjoint groups; a wide exclusive job on equal nodes is one group.
    pub groups: Vec<AllocGroup>,
}

/// The same cores and memory on each node of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocGroup {
    /// The nodes.
    pub nodes: NodeSet,
    /// The cores held on each of them.
    pub cores: CoreSet,
    /// The memory held on each of them, MiB; 0: no memory is held.
    pub memory_mb: u64,
}

impl Alloc {
    /// Every node of the allocation.
    pub fn nodes(&self) -> NodeSet {
        let mut all = NodeSet::new();
        for g in &self.groups {
            all.union_with(&g.nodes);
        }
        all
    }
    /// Cores and memory on one node.
    pub fn on(&self, node: NodeId) -> Option<&AllocGroup> {
        self.groups.iter().find(|g| g.nodes.contains(node))
    }
    /// CPUs over all nodes.
    pub fn cpus(&self) -> u32 {
        self.groups.iter().map(|g| (g.nodes.len() * g.cores.len()) as u32).sum()
    }
    /// Memory over all nodes, MiB.
    pub fn memory_mb(&self) -> u64 {
        self.groups.iter().map(|g| g.nodes.len() as u64 * g.memory_mb).sum()
    }
    /// Adds one node, joining an existing group where cores and memory are the same. Which group it is in then.
    pub fn push(&mut self, node: NodeId, cores: CoreSet, memory_mb: u64) -> usize {
        if let Some(place) = self.groups.iter().position(|g| g.cores == cores && g.memory_mb == memory_mb) {
            self.groups[place].nodes.insert(node);
            return place;
        }
        self.groups.push(AllocGroup { nodes: NodeSet::one(node), cores, memory_mb });
        self.groups.len() - 1
    }
    /// Adds nodes that are not in it yet, joining an existing group where cores and memory are the same.
    pub fn add(&mut self, group: AllocGroup) {
        match self.groups.iter_mut().find(|g| g.cores == group.cores && g.memory_mb == group.memory_mb) {
            Some(g) => g.nodes.union_with(&group.nodes),
            None => self.groups.push(group),
        }
    }
    /// What of it is on these nodes, and what is not.
    pub fn split(&self, nodes: &NodeSet) -> (Self, Self) {
        let part = |of: &dyn Fn(&mut NodeSet)| {
            let mut groups = self.groups.clone();
            for group in &mut groups {
                of(&mut group.nodes);
            }
            groups.retain(|group| !group.nodes.is_empty());
            Self { groups }
        };
        (part(&|all| all.intersect_with(nodes)), part(&|all| all.subtract(nodes)))
    }
    /// The place of a node among all nodes of the allocation, in the order of their ids: the allocation's order.
    pub fn place(&self, node: NodeId) -> Option<usize> {
        self.on(node).map(|_| self.groups.iter().map(|g| g.nodes.rank(node)).sum())
    }
}
