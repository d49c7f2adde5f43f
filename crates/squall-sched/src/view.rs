//! Input and output of a policy.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::billing::{BillingWeights, Combine};
use squall_model::gres::{Grant, NodeGres};
use squall_model::id::{JobId, NodeId};
use squall_model::job::PendingReason;
use squall_model::policy::Limit;
use squall_model::resource::{Alloc, Hardware};
use squall_model::set::{CoreSet, NodeSet};
use squall_model::time::{Span, Time};

use crate::gate::Gate;
use crate::grain::Grain;
use crate::request::Request;
use crate::topology::{Topology, Wish};

/// An entry of the queue: a job, or an array's remaining tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    /// Id of the job, or of the array.
    pub id: JobId,
    /// Whether the entry stands for all tasks of the array that have no event of their own in the log. Distinguishes
    /// them from the array's last task, which has the same id.
    pub array: bool,
}

/// A running job that may be preempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim<'a> {
    /// Id of the job.
    pub id: JobId,
    /// The job's allocation.
    pub alloc: &'a Alloc,
    /// The job's generic resources.
    pub gres: &'a [Grant],
    /// Nodes of the allocation that the job has not released.
    pub left: &'a NodeSet,
    /// Cost of preempting the job; jobs with the lowest cost are preempted first.
    pub cost: (u64, u64),
    /// Whether the job is ending already, for any reason.
    pub leaves: bool,
    /// Whether the job would only be suspended while others run on its cores; it keeps everything else.
    pub stays: bool,
}

/// A preemption: one running job ends or is suspended for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The job to be preempted.
    pub victim: JobId,
    /// The job for which it is preempted.
    pub by: Item,
}

/// Access to the queues of pending jobs, one queue for each partition.
pub trait Queues {
    /// Resource request of a job.
    type Need;
    /// Returns the number of partitions.
    fn partition_count(&self) -> usize;
    /// Returns the partition's tier; higher tiers start first. None: no job starts in the partition.
    fn tier(&self, partition: usize) -> Option<u32>;
    /// Returns the jobs that may start in a partition, highest priority first, then lowest id first.
    fn queue(&self, partition: usize) -> impl Lanes<Candidate<'_, Self::Need>>;
}

/// Jobs in order of priority. Equal requests with equal time limits form an equivalence class: if its first job does
/// not fit, no other of the class does, nor an equal request with a longer time limit.
pub trait Lanes<C>: Iterator<Item = C> {
    /// Skips later jobs that request the same as the job returned last, which did not fit, and that have a time limit
    /// above `longest`.
    fn close(&mut self, longest: Span);
}

/// Jobs in order of priority, each in an equivalence class of its own.
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

/// Lookup of names and defaults used in job options.
pub trait Names {
    /// Returns the node with this name.
    fn node_id(&self, name: &str) -> Option<NodeId>;
    /// Returns the memory for each CPU of jobs that request none, MiB; 0: no limit.
    fn memory_per_cpu_mb(&self) -> u64;
}

/// Read access to a cluster and its pending jobs, for a policy.
pub trait View: Queues<Need = Request> {
    /// Returns the partition with the index `at`.
    fn partition(&self, at: usize) -> PartitionView<'_>;
    /// Returns the resources of running jobs, in the order in which the jobs' time limits end.
    fn ends(&self) -> impl Iterator<Item = End<'_>>;
    /// Returns the node with this id.
    fn node(&self, id: NodeId) -> NodeView<'_>;
    /// Returns nodes where jobs may start and at least one core is free. May include further nodes.
    fn open(&self) -> &NodeSet;
    /// Returns all nodes in the order in which they are allocated, lower weights first; empty: the order of numbers.
    fn by_weight(&self) -> &[NodeId] {
        &[]
    }
    /// Returns a node's weight; lower weights are allocated first.
    fn weight(&self, _id: NodeId) -> u32 {
        1
    }
    /// Returns whether jobs hold memory of their own. Otherwise a job only needs nodes with as much memory as it asks
    /// for.
    fn gives_memory(&self) -> bool {
        true
    }
    /// Returns the CPUs of each job of a partition on a node that runs until after `time` by its time limit.
    fn held_by(&self, _partition: usize, _node: NodeId, _time: Time) -> impl Iterator<Item = &CoreSet> {
        std::iter::empty()
    }
    /// Returns whether the nodes of a job that holds more CPUs than its tasks need are filled one after the other.
    fn packs(&self) -> bool {
        false
    }
    /// Returns the network. None: all nodes are equivalent.
    fn topology(&self) -> Option<&Topology> {
        None
    }
    /// Returns the nodes of running jobs with network links that no other job may use, if there are such jobs.
    fn closed(&self) -> &[Closed] {
        &[]
    }
    /// Returns the nodes of all running jobs, if some job excludes other users from its nodes or other jobs from its
    /// blocks.
    fn claims(&self) -> &[Claim] {
        &[]
    }
    /// Returns which nodes reservations bar for a job that would start at `time` in a partition.
    fn bars(&self, _job: &Candidate<'_>, _partition: usize, _time: Time) -> Bars {
        Bars::Open
    }
    /// Returns the weights by which jobs of a partition are billed, and how they are combined. None: by their CPUs.
    fn weights(&self, _partition: usize) -> Option<(&BillingWeights, Combine)> {
        None
    }
    /// Returns until when a job gets only nodes that are powered up, and the nodes that are not. None: it may get all.
    fn boots_from(&self, _job: &Candidate<'_>) -> Option<(Time, &NodeSet)> {
        None
    }
    /// Returns the times at which existing reservations begin and end.
    fn turns(&self) -> impl Iterator<Item = Time> {
        std::iter::empty()
    }
    /// Returns a node's generic resources, with their usage.
    fn gres(&self, _id: NodeId) -> Option<&NodeGres> {
        None
    }
    /// Returns how many licenses of this name are free.
    fn licenses(&self, _name: &str) -> u32 {
        0
    }
    /// Returns the licenses that existing reservations keep from a job in a partition, over time.
    fn kept_licenses(&self, _job: &Candidate<'_>, _partition: usize) -> Vec<KeptLicenses> {
        Vec::new()
    }
    /// Returns when jobs with licenses reach their time limits, and the licenses that become free then.
    fn returns(&self) -> Vec<(Time, BTreeMap<String, u32>)> {
        Vec::new()
    }
    /// Returns the limit buckets that a job in a partition counts against; mostly none.
    fn gates(&self, _item: Item, _partition: usize) -> Vec<Gate> {
        Vec::new()
    }
    /// Returns each limit of a bucket with the amount left of it, in the limit's unit: jobs, CPUs, MiB, nodes, devices,
    /// seconds, or one of these times seconds.
    fn room(&self, _gate: Gate) -> Vec<(Limit, u64)> {
        Vec::new()
    }
    /// Returns whether a limit on used time must suffice for a job's whole time limit, not only for its start.
    fn safe(&self) -> bool {
        false
    }
    /// Returns whether jobs share cores in any partition.
    fn shares(&self) -> bool {
        false
    }
    /// Returns how many jobs may share a core in a partition with a job of this request. 1: it shares its cores with
    /// no job.
    fn rows(&self, _partition: usize, _need: &Request) -> u32 {
        1
    }
    /// Returns nodes where jobs may start, possibly on cores that other jobs use, too. May include further nodes.
    fn reachable(&self) -> &NodeSet {
        self.open()
    }
    /// Returns nodes with recent faults, of which wide jobs get none if others are free: the one with the newest first.
    fn faulty(&self) -> Vec<NodeId> {
        Vec::new()
    }
    /// Returns the cores of a node that a job in this row of the gang matrix cannot have: those used by other jobs of
    /// the row, by jobs of another rank, or by jobs that do not share cores. Jobs in `without` are ignored.
    fn row(&self, node: NodeId, _row: Row, _without: &BTreeSet<JobId>) -> CoreSet {
        self.node(node).cores.clone()
    }
    /// Returns the gang matrix rank of a partition's jobs. Jobs of a higher rank suspend those of a lower rank on
    /// their cores. 0: no job suspends another.
    fn rank(&self, _partition: usize) -> u32 {
        0
    }
    /// Returns whether jobs of a partition may be suspended for others.
    fn yields(&self, _partition: usize) -> bool {
        false
    }
    /// Returns running jobs that may be preempted for a job in a partition; mostly none.
    fn victims(&self, _item: Item, _partition: usize) -> Vec<Victim<'_>> {
        Vec::new()
    }
}

/// A row of the gang matrix. Each rank of jobs has its own rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Rank of the jobs in this row; jobs of a higher rank suspend those of a lower rank on their cores.
    pub rank: u32,
    /// Number of the row. None: all rows of the rank.
    pub slot: Option<u32>,
}

impl Row {
    /// Returns whether jobs in two rows exclude each other on a core.
    pub fn meets(self, other: Self) -> bool {
        let apart = |(one, two): (u32, u32)| self.rank == other.rank && one != two;
        !self.slot.zip(other.slot).is_some_and(apart)
    }
}

/// Nodes of a job with network links that no other job may use for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Nodes that the job uses.
    pub nodes: NodeSet,
    /// Start of the job's use of these links.
    pub from: Time,
    /// Expected end of the job's use of these links.
    pub until: Time,
}

/// Nodes that a job uses for some time, with its user. Recorded only where a job may exclude other users from its
/// nodes, or other jobs from its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The job; for a job that starts only now, its entry in the queue.
    pub job: JobId,
    /// User ID of the job's user.
    pub user: u32,
    /// Whether no job of another user may run on these nodes meanwhile.
    pub alone: bool,
    /// Whether no other job may run in the blocks of these nodes meanwhile.
    pub blocks: bool,
    /// Nodes of the job.
    pub nodes: NodeSet,
    /// Start of the job's use of the nodes.
    pub from: Time,
    /// Expected end of the job's use of the nodes.
    pub until: Time,
}

impl Claim {
    /// Returns whether these are the nodes of the job itself. Tasks of an array are jobs of their own.
    pub(crate) fn is_of(&self, job: &Candidate<'_>) -> bool {
        self.job == job.item.id && !job.item.array
    }
}

/// Licenses that an existing reservation keeps from a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLicenses {
    /// Start of the reservation.
    pub from: Time,
    /// End of the reservation.
    pub until: Time,
    /// Number of licenses by license name, without those that the reservation's own jobs hold.
    pub counts: BTreeMap<String, u32>,
}

/// Nodes that existing reservations leave to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bars {
    /// The job may use all nodes.
    Open,
    /// The job may use all nodes except these.
    Barred(NodeSet),
    /// The job may use no nodes at that time: it waits for its own reservation.
    Waits(PendingReason),
}

/// A partition as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct PartitionView<'a> {
    /// Nodes of the partition, usable or not.
    pub nodes: &'a NodeSet,
    /// Tier; jobs in partitions of a higher tier start first.
    pub tier: u32,
    /// Minimum number of nodes of one job.
    pub nodes_min: u32,
    /// Maximum number of nodes of one job.
    pub nodes_max: Option<u32>,
    /// Greatest time limit of a job, seconds. None: unlimited.
    pub time_max_s: Option<u64>,
    /// Default time limit, seconds. None: unlimited.
    pub time_default_s: Option<u64>,
    /// Whether jobs may start in the partition.
    pub starts: bool,
    /// Whether nodes with the most free CPUs are taken first, among nodes of equal weight.
    pub least_loaded: bool,
    /// Limits on the CPUs that all jobs of the partition together hold on a node. None: no limit.
    pub cap: Option<Cap>,
}

/// Limits on the CPUs that all jobs of a partition together hold on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Index of the partition.
    pub partition: usize,
    /// Greatest number of CPUs; `u32::MAX`: no limit.
    pub cpus: u32,
    /// Greatest number of CPUs on each socket. None: no limit.
    pub socket: Option<u32>,
}

impl Cap {
    /// Returns the limits of a partition: CPUs on a node, and on each socket. None: there are none.
    pub fn of(partition: usize, node: Option<u32>, socket: Option<u32>) -> Option<Self> {
        (node.is_some() || socket.is_some()).then(|| Self { partition, cpus: node.unwrap_or(u32::MAX), socket })
    }
}

/// A node's usage as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    /// Hardware of the node.
    pub hardware: &'a Hardware,
    /// Cores that jobs use.
    pub cores: &'a CoreSet,
    /// Memory that jobs use, MiB.
    pub memory_mb: u64,
    /// Whether jobs may start on the node.
    pub usable: bool,
    /// Unit in which the node's CPUs are given to jobs.
    pub grain: Grain,
}

/// The resources of a running job, and the time at which they become free.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// End of the job's time limit; may have passed.
    pub time: Time,
    /// Nodes, cores and memory that the job was given.
    pub alloc: &'a Alloc,
    /// Generic resources that the job was given.
    pub gres: &'a [Grant],
    /// Nodes of the allocation that the job has not released.
    pub left: &'a NodeSet,
}

/// A job in the queue, or those tasks of an array that may start.
#[derive(Debug)]
pub struct Candidate<'a, N = Request> {
    /// The job; or the array, of which each start takes the next task.
    pub item: Item,
    /// Priority; higher ones start first.
    pub priority: u64,
    /// The job's resource request.
    pub need: &'a N,
    /// Time limit, seconds. None: the partition's default; Some(None): unlimited.
    pub time_limit_s: Option<Option<u64>>,
    /// The job's requirements on the network.
    pub wish: Wish,
    /// Number of starts: 1, or the number of an array's tasks that may start.
    pub copies: u32,
    /// The array and its limit on running tasks. None: no such limit applies.
    pub group: Option<Group>,
    /// Nodes with faults from which the job suffered; they are used only if the job fits nowhere else. None: there are
    /// none.
    pub avoid: Option<&'a NodeSet>,
    /// Whether the job is a component of a heterogeneous job, which shares its cores with no other job.
    pub alone: bool,
    /// Other components of the heterogeneous job, which start together with this one.
    pub others: &'a [Component<N>],
    /// User ID, set only where a job may exclude other users from its nodes.
    pub user: Option<u32>,
    /// Whether resources are reserved for the job when it has to wait.
    pub reserves: bool,
}

/// A component of a heterogeneous job other than the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component<N = Request> {
    /// Queue entry of the component.
    pub item: Item,
    /// Indices of partitions in which the component may run.
    pub partitions: Vec<usize>,
    /// The component's resource request.
    pub need: N,
    /// Time limit, seconds. None: the partition's default; Some(None): unlimited.
    pub time_limit_s: Option<Option<u64>>,
    /// The component's requirements on the network.
    pub wish: Wish,
    /// Nodes with faults from which the component suffered; they are used only if it fits nowhere else. None: there are
    /// none.
    pub avoid: Option<NodeSet>,
    /// User ID, set only where a job may exclude other users from its nodes.
    pub user: Option<u32>,
}

impl<N> Component<N> {
    /// Returns the component as if it were in the queue itself.
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
            reserves: true,
        }
    }
}

impl<N> Clone for Candidate<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for Candidate<'_, N> {}

/// An array with a limit on running tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Job id of the array.
    pub id: JobId,
    /// Number of further tasks of the array that may start.
    pub room: u32,
}

/// Resources that a cluster gives a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Allocated nodes, cores and memory.
    pub alloc: Alloc,
    /// Allocated generic resources, by name.
    pub gres: Vec<Grant>,
    /// Row of the gang matrix in which the job uses its cores. None: it never shares them.
    pub slot: Option<u32>,
    /// Starts of the other components of a heterogeneous job, at the same time.
    pub others: Vec<Start>,
}

/// Decisions of a scheduling pass. A plan has no effect until it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<G = Given> {
    /// Jobs to start, in order.
    pub starts: Vec<Start<G>>,
    /// First job of each partition that must wait for resources.
    pub heads: Vec<Head>,
    /// Reservations for pending jobs. Reservations that no later job could have delayed may be missing.
    pub reserved: Vec<Reserved<G>>,
    /// Jobs that cannot start in this partition in the cluster's present configuration, whichever jobs end. They block
    /// no other job.
    pub skips: Vec<Skip>,
    /// Running jobs to preempt for pending ones.
    pub evictions: Vec<Eviction>,
    /// Number of jobs that the pass tried to start.
    pub looked_at: u64,
    /// Number of jobs that the pass tried behind one that must wait.
    pub behind: u64,
    /// Number of jobs behind one that must wait that could have started if nothing were reserved for other jobs.
    pub tried: u64,
    /// Number of jobs that started behind one that must wait (backfilled).
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

/// The start of a job, as decided by a scheduling pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start<G = Given> {
    /// The started job or array.
    pub item: Item,
    /// Index of the partition.
    pub partition: usize,
    /// Resources that the job is given.
    pub given: G,
}

/// The first job of a partition that must wait for resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The waiting job or array.
    pub item: Item,
    /// Index of the partition.
    pub partition: usize,
}

/// A reservation for a pending job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved<G = Given> {
    /// The job or array for which resources are reserved.
    pub item: Item,
    /// Index of the partition.
    pub partition: usize,
    /// Latest start, if running jobs end within their time limits.
    pub time: Time,
    /// Reserved resources.
    pub given: G,
}

/// A job that cannot start and is skipped in this scheduling pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The skipped job or array.
    pub item: Item,
    /// Index of the partition.
    pub partition: usize,
    /// Reason why the job cannot start.
    pub reason: PendingReason,
}
