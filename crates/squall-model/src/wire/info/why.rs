//! Why a job is pending and what would let it start: data of `squall why`.

use crate::id::JobId;
use crate::job::{JobState, NodeTest, PendingReason, Seat, Together};
use crate::resource::Memory;
use crate::time::Time;
use crate::wire::client::JobName;
use minicbor::{Decode, Encode};

/// Why a job is pending.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Why {
    /// The job.
    #[n(0)]
    pub job: JobName,
    /// State of the job. The other fields are empty unless it is pending, except `runs`.
    #[n(1)]
    pub state: JobState,
    /// For a running job: names of its nodes as a host list, and their places in the network if nodes are not all
    /// alike.
    #[n(2)]
    pub runs: Option<(String, Option<Seat>)>,
    /// All reasons for which it is pending, the most important first.
    #[n(3)]
    pub reasons: Vec<PendingReason>,
    /// The job does not start before this time (`--begin`).
    #[n(4)]
    pub begin: Option<Time>,
    /// Dependencies not satisfied yet, as text.
    #[n(5)]
    pub dependency: String,
    /// Licenses that it requests: name, requested, free.
    #[n(6)]
    pub licenses: Vec<(String, u32, u32)>,
    /// Reservations that keep it from nodes, and its own: name, start, end.
    #[n(7)]
    pub reservations: Vec<(String, Time, Time)>,
    /// What the job lacks in each of its partitions.
    #[n(8)]
    pub partitions: Vec<WhyPartition>,
    /// The first jobs before it in the queue.
    #[n(9)]
    pub ahead: Vec<JobName>,
    /// Number of all jobs before it in the queue.
    #[n(10)]
    pub ahead_total: u32,
    /// Expected start. None: it can't be predicted.
    #[n(11)]
    pub start: Option<WhyStart>,
    /// Changes each of which alone would let it start sooner, with the start expected then.
    #[n(12)]
    pub changes: Vec<(WhyChange, Time)>,
}

impl Default for Why {
    fn default() -> Self {
        Self {
            job: JobName { id: JobId(0), task: None },
            state: JobState::Pending,
            runs: None,
            reasons: Vec::new(),
            begin: None,
            dependency: String::new(),
            licenses: Vec::new(),
            reservations: Vec::new(),
            partitions: Vec::new(),
            ahead: Vec::new(),
            ahead_total: 0,
            start: None,
            changes: Vec::new(),
        }
    }
}

/// When and where a job is expected to start.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WhyStart {
    /// Expected start.
    #[n(0)]
    pub time: Time,
    /// Partition in which it would start.
    #[n(1)]
    pub partition: String,
    /// Names of the nodes, as a host list.
    #[n(2)]
    pub nodes: String,
    /// On a torus: the prism that the nodes form.
    #[n(3)]
    pub prism: Option<String>,
}

/// What a pending job lacks in one of its partitions.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WhyPartition {
    /// Name of the partition.
    #[n(0)]
    pub name: String,
    /// Number of nodes of the partition.
    #[n(1)]
    pub nodes: u32,
    /// Fewest nodes that the job needs.
    #[n(2)]
    pub nodes_min: u32,
    /// Whether the job fits into the free resources now, regardless of the queue and other reasons.
    #[n(3)]
    pub room: bool,
    /// Whether it could start if no job ran.
    #[n(4)]
    pub empty: bool,
    /// Whether it could start if no job ran, all nodes were up and none was reserved.
    #[n(5)]
    pub ideal: bool,
    /// Nodes by the first test that they fail: test, names as a host list, number.
    #[n(6)]
    pub tests: Vec<(NodeTest, String, u32)>,
    /// Set if there are enough nodes but not in the positions that the job requires.
    #[n(7)]
    pub misfit: Option<WhyMisfit>,
}

/// Why a job can't use nodes that pass all other tests: their positions in the network.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WhyMisfit {
    /// The required positions.
    #[n(0)]
    pub together: Together,
    /// Options that require these positions, with their values. Empty: every job of that size requires them.
    #[n(1)]
    pub options: Vec<(String, String)>,
    /// True: enough nodes are free now. False: only if no job ran.
    #[n(2)]
    pub free: bool,
    /// The first of the shapes that would do, if a shape is required.
    #[n(3)]
    pub shapes: Vec<String>,
}

/// A change of a job that could let it start sooner.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum WhyChange {
    /// Without `--nodelist`.
    #[n(0)]
    WithoutNodelist,
    /// Without `--exclude`.
    #[n(1)]
    WithoutExclude,
    /// Without `--constraint`.
    #[n(2)]
    WithoutConstraint,
    /// Without `--exclusive`.
    #[n(3)]
    WithoutExclusive,
    /// Without `--contiguous`.
    #[n(4)]
    WithoutContiguous,
    /// Without `--switches`.
    #[n(5)]
    WithoutSwitches,
    /// Without `--geometry`, on the same number of nodes.
    #[n(6)]
    WithoutGeometry,
    /// Without `--grid`.
    #[n(7)]
    WithoutGrid,
    /// With `--network=local` or `--network=tolerant`.
    #[n(8)]
    Network,
    /// Without `--licenses`.
    #[n(9)]
    WithoutLicenses,
    /// Without `--reservation`.
    #[n(10)]
    WithoutReservation,
    /// Without `--gres` and `--gpus…`.
    #[n(11)]
    WithoutGres,
    /// Other number of tasks (`--ntasks`).
    #[n(12)]
    Tasks(#[n(0)] u32),
    /// Other number of nodes (`--nodes`).
    #[n(13)]
    Nodes(#[n(0)] u32),
    /// Other number of CPUs per task (`--cpus-per-task`).
    #[n(14)]
    CpusPerTask(#[n(0)] u32),
    /// Other memory (`--mem`, `--mem-per-cpu`).
    #[n(15)]
    Memory(#[n(0)] Memory),
    /// Other time limit (`--time`), seconds.
    #[n(16)]
    TimeLimit(#[n(0)] u64),
    /// Other partition (`--partition`).
    #[n(17)]
    Partition(#[n(0)] String),
}
