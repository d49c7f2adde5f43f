//! What a policy sees, and what it answers.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::gres::{Grant, NodeGres};
use squall_model::id::{JobId, NodeId};
use squall_model::job::PendingReason;
use squall_model::policy::Limit;
use squall_model::resource::{Alloc, Hardware};
use squall_model::set::{CoreSet, NodeSet};
use squall_model::time::{Span, Time};

use crate::gate::Gate;
use crate::preempt::{Eviction, Victim};
use crate::request::Request;
use crate::topology::{Topology, Wish};

/// What stands in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    /// The job's id, or the array's.
    pub id: JobId,
    /// All tasks of the array that nothing happened to yet (its last task bears the same id).
    pub array: bool,
}

/// What waits, borrowed.
pub trait Queues {
    /// What a job asks for.
    type Need;
    /// How many partitions there are.
    fn partition_count(&self) -> usize;
    /// Partitions of a higher tier go first. None: nothing starts in this one.
    fn tier(&self, partition: usize) -> Option<u32>;
    /// Jobs that may start in a partition, by falling priority, then by rising id.
    fn queue(&self, partition: usize) -> impl Lanes<Candidate<'_, Self::Need>>;
}

/// Jobs in order. Those that ask for the same for the same time stand in one lane: where the first of a lane finds no
/// room, none of them does, nor who asks for the same and may run longer.
pub trait Lanes<C>: Iterator<Item = C> {
    /// The job that came last found no room, nor does who asks for the same and may run longer than that: they are left
    /// out.
    fn close(&mut self, longest: Span);
}

/// Jobs in order, of which each stands for itself.
#[derive(Clone, Debug)]
pub struct Single<I>(pub I);

impl<I: Iterator> Iterator for Single<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.0.next()
    }
}

impl<C, I: Iterator<Item = C>> Lanes<C> for Single<I> {
    fn close(&mut self, _: Span) {}
}

/// What the words of a job's options stand for.
pub trait Names {
    /// The node of that name.
    fn node_id(&self, name: &str) -> Option<NodeId>;
    /// Memory for each CPU of jobs that name none, MiB; 0: no limit.
    fn memory_per_cpu_mb(&self) -> u64;
}

/// A cluster and what waits for it, borrowed.
pub trait View: Queues<Need = Request> {
    /// A partition.
    fn partition(&self, at: usize) -> PartitionView<'_>;
    /// What jobs hold, in the order in which their time limits end them.
    fn ends(&self) -> impl Iterator<Item = End<'_>>;
    /// A node.
    fn node(&self, id: NodeId) -> NodeView<'_>;
    /// Nodes where jobs may start and at least one core is free. May name others too.
    fn open(&self) -> &NodeSet;
    /// All nodes in the order in which they are given, those of less weight first; empty: by their numbers.
    fn by_weight(&self) -> &[NodeId] {
        &[]
    }
    /// A node's weight.
    fn weight(&self, _id: NodeId) -> u32 {
        1
    }
    /// The network, if nodes are not all alike.
    fn topology(&self) -> Option<&Topology> {
        None
    }
    /// Nodes of running jobs that have links of their own, where there is such a network.
    fn closed(&self) -> &[Closed] {
        &[]
    }
    /// Nodes of running jobs, if some job wants none of other users beside it.
    fn claims(&self) -> &[Claim] {
        &[]
    }
    /// Which nodes reservations keep from a job that would start at that time in a partition.
    fn bars(&self, _job: &Candidate<'_>, _partition: usize, _time: Time) -> Bars {
        Bars::Open
    }
    /// When reservations that are there now begin and end.
    fn turns(&self) -> impl Iterator<Item = Time> {
        std::iter::empty()
    }
    /// The generic resources of a node, with what jobs hold of them.
    fn gres(&self, _id: NodeId) -> Option<&NodeGres> {
        None
    }
    /// How many of a license nobody holds.
    fn licenses(&self, _name: &str) -> u32 {
        0
    }
    /// When time limits end what holds licenses, and how many of which come back then.
    fn returns(&self) -> Vec<(Time, BTreeMap<String, u32>)> {
        Vec::new()
    }
    /// What a job counts against in a partition; mostly nothing.
    fn gates(&self, _item: Item, _partition: usize) -> Vec<Gate> {
        Vec::new()
    }
    /// What limits leave behind a gate: jobs, CPUs, MiB, nodes, devices, seconds, or these times seconds.
    fn room(&self, _gate: Gate) -> Vec<(Limit, u64)> {
        Vec::new()
    }
    /// Whether limits on time must have room for a job's whole time limit, and not only for its start.
    fn safe(&self) -> bool {
        false
    }
    /// Whether cores are shared anywhere.
    fn shares(&self) -> bool {
        false
    }
    /// How many jobs may hold a core in a partition if one of them is such a job. 1: it shares with nobody.
    fn rows(&self, _partition: usize, _need: &Request) -> u32 {
        1
    }
    /// Nodes where jobs may start, if only beside others on the same cores. May name others too.
    fn reachable(&self) -> &NodeSet {
        self.open()
    }
    /// Cores that a job in that row can't have: others of the row hold them, those of another rank, or jobs that share
    /// with nobody. Some jobs are left out.
    fn row(&self, node: NodeId, _row: Row, _without: &BTreeSet<JobId>) -> CoreSet {
        self.node(node).cores.clone()
    }
    /// The rank of a partition's jobs in the matrix: those of a higher one stop those of a lower one on their cores.
    /// 0: nobody stops anybody.
    fn rank(&self, _partition: usize) -> u32 {
        0
    }
    /// Whether jobs of a partition may be stopped for others.
    fn yields(&self, _partition: usize) -> bool {
        false
    }
    /// Running jobs that make room for a job in a partition if it asks; mostly none.
    fn victims(&self, _item: Item, _partition: usize) -> Vec<Victim<'_>> {
        Vec::new()
    }
}

/// A row of the matrix: each rank has rows of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The rank.
    pub rank: u32,
    /// The row; None: all of them.
    pub slot: Option<u32>,
}

impl Row {
    /// Whether jobs in two rows are in each other's way on a core.
    pub fn meets(self, other: Self) -> bool {
        let apart = |(one, two): (u32, u32)| self.rank == other.rank && one != two;
        !self.slot.zip(other.slot).is_some_and(apart)
    }
}

/// Nodes around which links are one job's own, for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The job's nodes.
    pub nodes: NodeSet,
    /// From when on.
    pub from: Time,
    /// Until when, as far as is known.
    pub until: Time,
}

/// Nodes that a job has for some time, noted where users may have to be kept apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The job's user.
    pub user: u32,
    /// No job of another user runs on these nodes meanwhile.
    pub alone: bool,
    /// The job's nodes.
    pub nodes: NodeSet,
    /// From when on.
    pub from: Time,
    /// Until when, as far as is known.
    pub until: Time,
}

/// What reservations leave to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bars {
    /// Everything.
    Open,
    /// Everything but these nodes.
    Barred(NodeSet),
    /// Nothing at that time: it waits for its own.
    Waits(PendingReason),
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
    /// Time limit of jobs that set none, seconds; None: unlimited.
    pub time_default_s: Option<u64>,
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

/// A job that holds resources.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// When it ends at the latest. May have passed.
    pub time: Time,
    /// What it was given.
    pub alloc: &'a Alloc,
    /// The generic resources that it was given.
    pub gres: &'a [Grant],
    /// The nodes of these that it still holds.
    pub left: &'a NodeSet,
}

/// A job in the queue, or all tasks of an array that may start.
#[derive(Debug)]
pub struct Candidate<'a, N = Request> {
    /// The job, or an array: each start takes its next task.
    pub item: Item,
    /// Higher goes first.
    pub priority: u64,
    /// What it needs.
    pub need: &'a N,
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
    /// It is a component of a heterogeneous job, which shares its cores with nobody.
    pub alone: bool,
    /// What starts with it or not at all: the other components.
    pub others: &'a [Component<N>],
    /// The user, where users may have to be kept apart.
    pub user: Option<u32>,
}

/// A component of a heterogeneous job that is not its first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component<N = Request> {
    /// The job.
    pub item: Item,
    /// Partitions in which it may run.
    pub partitions: Vec<usize>,
    /// What it needs.
    pub need: N,
    /// Its time limit in seconds: None: the partition's default, Some(None): unlimited.
    pub time_limit_s: Option<Option<u64>>,
    /// What it wishes of the network.
    pub wish: Wish,
    /// Nodes on which its launch failed: used only if nothing else will do.
    pub avoid: Option<NodeSet>,
    /// The user, where users may have to be kept apart.
    pub user: Option<u32>,
}

impl<N> Component<N> {
    /// As if it stood in the queue itself.
    pub fn candidate(&self) -> Candidate<'_, N> {
        Candidate {
            item: self.item,
            priority: 0,
            need: &self.need,
            time_limit_s: self.time_limit_s,
            wish: self.wish,
            copies: 1,
            group: None,
            avoid: self.avoid.as_ref(),
            alone: true,
            others: &[],
            user: self.user,
        }
    }
}

impl<N> Clone for Candidate<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for Candidate<'_, N> {}

/// Jobs of which only some may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The array.
    pub id: JobId,
    /// How many more of it may start.
    pub room: u32,
}

/// What a job gets of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Nodes, cores and memory.
    pub alloc: Alloc,
    /// Generic resources.
    pub gres: Vec<Grant>,
    /// The row of the gang matrix in which it has its cores; None: it shares them with nobody, ever.
    pub slot: Option<u32>,
    /// Where the other components of a heterogeneous job start at the same time.
    pub others: Vec<Start>,
}

/// What a policy wants done. Printable, comparable; means nothing until somebody does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<G = Given> {
    /// What starts, in order.
    pub starts: Vec<Start<G>>,
    /// The first job of each partition that has to wait for resources.
    pub heads: Vec<Head>,
    /// For whom room is kept, and from when on. Who kept nobody up may be missing.
    pub reserved: Vec<Reserved<G>>,
    /// Jobs that can't start in this partition as the cluster is now, whatever ends; they hold up nobody.
    pub skips: Vec<Skip>,
    /// Running jobs that make room for those that wait.
    pub evictions: Vec<Eviction>,
    /// How many jobs were looked at.
    pub looked_at: u64,
    /// How many of these behind one that waits.
    pub behind: u64,
    /// For how many of those there was room beside what runs.
    pub tried: u64,
    /// How many of those started.
    pub backfilled: u64,
}

impl<G> Default for Plan<G> {
    fn default() -> Self {
        Self {
            starts: Vec::new(),
            heads: Vec::new(),
            reserved: Vec::new(),
            skips: Vec::new(),
            evictions: Vec::new(),
            looked_at: 0,
            behind: 0,
            tried: 0,
            backfilled: 0,
        }
    }
}

/// A job starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start<G = Given> {
    /// What.
    pub item: Item,
    /// In which partition.
    pub partition: usize,
    /// On what.
    pub given: G,
}

/// A job waits for resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// What.
    pub item: Item,
    /// In which partition.
    pub partition: usize,
}

/// Room is kept for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved<G = Given> {
    /// What.
    pub item: Item,
    /// In which partition.
    pub partition: usize,
    /// When it starts at the latest, if what runs ends in time.
    pub time: Time,
    /// On what.
    pub given: G,
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
