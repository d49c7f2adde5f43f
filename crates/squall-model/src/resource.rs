//! Resources of nodes, and those allocated to jobs.

use crate::confinement::Confinement;
use crate::found::FoundDevice;
use crate::id::NodeId;
use crate::interface::Interface;
use crate::set::{CoreSet, NodeSet};
use minicbor::{Decode, Encode};

/// Hardware of a node, as its daemon detected it or with the lower values of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Hardware {
    /// Schedulable CPUs (hardware threads).
    #[n(0)]
    pub cpus: u32,
    /// Sockets; at least 1.
    #[n(1)]
    pub sockets: u32,
    /// Cores per socket; at least 1.
    #[n(2)]
    pub cores_per_socket: u32,
    /// Hardware threads per core; at least 1.
    #[n(3)]
    pub threads_per_core: u32,
    /// Memory in MiB.
    #[n(4)]
    pub memory_mb: u64,
    /// Scratch space in MiB.
    #[n(5)]
    pub tmp_disk_mb: u64,
    /// CPU architecture, as `uname -m`.
    #[n(6)]
    pub arch: String,
    /// Operating system, as `uname -sr`.
    #[n(7)]
    pub os: String,
    /// When the machine booted, seconds since the Unix epoch.
    #[n(8)]
    pub boot_time_s: u64,
    /// Host name or address at which other nodes reach this one.
    #[n(9)]
    pub address: String,
    /// Feature names for `--constraint`.
    #[n(10)]
    pub features: Vec<String>,
    /// How jobs are kept to what they hold. None: an older daemon, or an emulated node. The numbers before are left out.
    #[n(16)]
    pub confinement: Option<Confinement>,
    /// Devices that the node daemon has found. None: it does not look for any (`auto_detect`).
    #[n(17)]
    pub devices: Option<Vec<FoundDevice>>,
    /// Addresses of the node. None: jobs do not move from one node to another with their connections (`checkpoint_shared`).
    #[n(18)]
    pub interfaces: Option<Vec<Interface>>,
}

/// Memory that a job requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Memory {
    /// Not given: the partition's default applies, or no limit if it has none.
    #[default]
    #[n(0)]
    Unset,
    /// `--mem`, MiB on each node; 0 asks for all of the node's memory.
    #[n(1)]
    PerNodeMb(#[n(0)] u64),
    /// `--mem-per-cpu`, MiB for each allocated CPU.
    #[n(2)]
    PerCpuMb(#[n(0)] u64),
}

/// Resources allocated to a job: groups of nodes with the same cores and memory on each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Alloc {
    /// Groups without common nodes. An exclusive job on many equal nodes has a single group.
    #[n(0)]
    pub groups: Vec<AllocGroup>,
}

/// The same cores and memory on each of several nodes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct AllocGroup {
    /// Nodes on which these cores and this memory are allocated.
    #[n(0)]
    pub nodes: NodeSet,
    /// Cores allocated on each node.
    #[n(1)]
    pub cores: CoreSet,
    /// Memory allocated on each node, MiB. 0: the job requested none and has no limit.
    #[n(2)]
    pub memory_mb: u64,
}

impl Alloc {
    /// Returns all nodes of the allocation.
    pub fn nodes(&self) -> NodeSet {
        let mut all = NodeSet::new();
        for g in &self.groups {
            all.union_with(&g.nodes);
        }
        all
    }
    /// Returns the group with the cores and memory allocated on `node`. None: the node is not in the allocation.
    pub fn on(&self, node: NodeId) -> Option<&AllocGroup> {
        self.groups.iter().find(|g| g.nodes.contains(node))
    }
    /// Returns the number of CPUs over all nodes.
    pub fn cpus(&self) -> u32 {
        self.groups.iter().map(|g| (g.nodes.len() * g.cores.len()) as u32).sum()
    }
    /// Returns the memory over all nodes, MiB.
    pub fn memory_mb(&self) -> u64 {
        self.groups.iter().map(|g| g.nodes.len() as u64 * g.memory_mb).sum()
    }
    /// Adds a node to the group with the same cores and memory, or to a new group. Returns the index of the group.
    pub fn push(&mut self, node: NodeId, cores: CoreSet, memory_mb: u64) -> usize {
        if let Some(place) = self.groups.iter().position(|g| g.cores == cores && g.memory_mb == memory_mb) {
            self.groups[place].nodes.insert(node);
            return place;
        }
        self.groups.push(AllocGroup { nodes: NodeSet::one(node), cores, memory_mb });
        self.groups.len() - 1
    }
    /// Adds a group of nodes that are not in the allocation yet, joined to an existing group if cores and memory are
    /// the same.
    pub fn add(&mut self, group: AllocGroup) {
        match self.groups.iter_mut().find(|g| g.cores == group.cores && g.memory_mb == group.memory_mb) {
            Some(g) => g.nodes.union_with(&group.nodes),
            None => self.groups.push(group),
        }
    }
    /// Splits the allocation into the part on `nodes` and the rest.
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
    /// Returns the index of a node among all nodes of the allocation, in the order of their ids. None: it is not in it.
    pub fn place(&self, node: NodeId) -> Option<usize> {
        self.on(node).map(|_| self.groups.iter().map(|g| g.nodes.rank(node)).sum())
    }
}
