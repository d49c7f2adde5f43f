//! What a policy sees, and what it answers.

use std::collections::BTreeMap;

use squall_model::id::{JobId, NodeId};
use squall_model::job::{Need, PendingReason};
use squall_model::policy::Limit;
use squall_model::resource::{Alloc, Hardware};
use squall_model::set::{CoreSet, NodeSet};

use crate::gate::Gate;
use crate::topology::{Memory, Topology, Wish};

/// What stands in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    /// The job's id, or the array's.
    pub id: JobId,
    /// All tasks of the array that nothing happened to yet (its last task bears the same id).
    pub array: bool,
}

/// Cluster and queue, borrowed.
pub trait View {
    /// How many partitions there are.
    fn partition_count(&self) -> usize;
    /// A partition.
    fn partition(&self, at: usize) -> PartitionView<'_>;
    /// Jobs that may start in a partition, by falling priority, then by rising id.
    fn queue(&self, partition: usize) -> impl Iterator<Item = Candidate<'_>>;
    /// A node.
    fn node(&self, id: NodeId) -> NodeView<'_>;
    /// Nodes where jobs may start and at least one core is free. May name others too.
    fn open(&self) -> &NodeSet;
    /// The node of that name.
    fn node_id(&self, name: &str) -> Option<NodeId>;
    /// Memory for each CPU of jobs that name none, MiB; 0: no limit.
    fn memory_per_cpu_mb(&self) -> u64;
    /// The network, if nodes are not all alike.
    fn topology(&self) -> Option<&Topology> {
        None
    }
    /// Nodes of running jobs that have links of their own, where there is such a network.
    fn closed(&self) -> &[NodeSet] {
        &[]
    }
    /// How many of a license nobody holds.
    fn licenses(&self, _name: &str) -> u32 {
        0
    }
    /// What a job counts against in a partition; mostly nothing.
    fn gates(&self, _item: Item, _partition: usize) -> Vec<Gate> {
        Vec::new()
    }
    /// What limits leave behind a gate: jobs, CPUs, MiB, nodes, seconds.
    fn room(&self, _gate: Gate) -> Vec<(Limit, u64)> {
        Vec::new()
    }
}

/// A partition as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct PartitionView<'a> {
    /// Its nodes, usable or not.
    pub nodes: &'a NodeSet,
    /// Partitions of a higher tier go first.
    pub tier: u32,
    /// Least nodes of one job.
    pub nodes_min: u32,
    /// Most nodes of one job.
    pub nodes_max: Option<u32>,
    /// Longest time limit, seconds.
    pub time_max_s: Option<u64>,
    /// Whether jobs start here.
    pub starts: bool,
}

/// A node as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    /// What it has.
    pub hardware: &'a Hardware,
    /// Cores that jobs hold.
    pub cores: &'a CoreSet,
    /// Memory that jobs hold, MiB.
    pub memory_mb: u64,
    /// Whether jobs may start there.
    pub usable: bool,
}

/// A job in the queue, or all tasks of an array that may start.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The job, or an array: each start takes its next task.
    pub item: Item,
    /// Higher goes first.
    pub priority: u32,
    /// What it needs.
    pub need: &'a Need,
    /// Its time limit in seconds: None: the partition's default, Some(None): unlimited.
    pub time_limit_s: Option<Option<u64>>,
    /// What it wishes of the network.
    pub wish: Wish,
    /// How many may start: 1, or tasks of an array.
    pub copies: u32,
    /// The array whose limit it counts against.
    pub group: Option<Group>,
    /// Nodes on which its launch failed: used only if nothing else will do.
    pub avoid: Option<&'a NodeSet>,
}

/// Jobs of which only some may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The array.
    pub id: JobId,
    /// How many more of it may start.
    pub room: u32,
}

/// What a policy wants done. Printable, comparable; means nothing until somebody does it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What starts, in order.
    pub starts: Vec<Start>,
    /// The first job of each partition that has to wait for resources: all behind it wait too.
    pub heads: Vec<Head>,
    /// Jobs that can't start in this partition as the cluster is now, whatever ends; they hold up nobody.
    pub skips: Vec<Skip>,
    /// How many jobs were looked at.
    pub looked_at: u64,
}

/// A job starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// What.
    pub item: Item,
    /// In which partition.
    pub partition: usize,
    /// On what.
    pub alloc: Alloc,
}

/// A job waits for resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// What.
    pub item: Item,
    /// In which partition.
    pub partition: usize,
}

/// A job is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// What.
    pub item: Item,
    /// In which partition.
    pub partition: usize,
    /// Why.
    pub reason: PendingReason,
}

/// Memory that a policy uses again from pass to pass. Its content never matters between passes.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Cores and memory in use on nodes on which this plan has placed something.
    pub(crate) taken: BTreeMap<NodeId, (CoreSet, u64)>,
    /// Nodes with free cores after what this plan has placed.
    pub(crate) open: NodeSet,
    /// Nodes that wait for blocked partitions of a higher tier.
    pub(crate) withheld: NodeSet,
    /// Nodes that could take tasks, and how many.
    pub(crate) fits: Vec<(NodeId, u32)>,
    /// What choices by topology keep.
    pub(crate) network: Memory,
    /// Nodes of jobs with links of their own, those that this plan starts included.
    pub(crate) closed: Vec<NodeSet>,
    /// Licenses that what this plan has placed takes.
    pub(crate) licenses: BTreeMap<String, u32>,
}

impl Scratch {
    pub(crate) fn reset(&mut self, view: &impl View) {
        self.taken.clear();
        self.open.clone_from(view.open());
        self.closed.clear();
        self.closed.extend_from_slice(view.closed());
        self.withheld = NodeSet::new();
        self.licenses.clear();
    }
}
