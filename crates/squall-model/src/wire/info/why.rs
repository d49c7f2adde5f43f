//! Why a job waits, and what would start it: what `squall why` shows.

use crate::id::JobId;
use crate::job::{JobState, NodeTest, PendingReason, Seat, Together};
use crate::resource::Memory;
use crate::time::Time;
use crate::wire::client::JobName;
use minicbor::{Decode, Encode};

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Why {
    /// The job.
    #[n(0)]
    pub job: JobName,
    /// What it is doing; all else is empty unless it is pending, but where it runs.
    #[n(1)]
    pub state: JobState,
    /// The nodes on which it runs, compressed, and how they stand in the network if nodes are not all alike.
    #[n(2)]
    pub runs: Option<(String, Option<Seat>)>,
    /// All that keeps it, the one that counts first.
    #[n(3)]
    pub reasons: Vec<PendingReason>,
    /// Before this time it does not start.
    #[n(4)]
    pub begin: Option<Time>,
    /// Dependencies that have not come true, as text.
    #[n(5)]
    pub dependency: String,
    /// Its licenses: name, how many it wants, how many are free.
    #[n(6)]
    pub licenses: Vec<(String, u32, u32)>,
    /// Reservations that keep nodes from it, and its own: name, begin, end.
    #[n(7)]
    pub reservations: Vec<(String, Time, Time)>,
    /// How it stands in each of its partitions.
    #[n(8)]
    pub partitions: Vec<WhyPartition>,
    /// The first of those ahead of it.
    #[n(9)]
    pub ahead: Vec<JobName>,
    /// How many are ahead of it.
    #[n(10)]
    pub ahead_total: u32,
    /// When and where it is expected to start, if that can be foretold.
    #[n(11)]
    pub start: Option<WhyStart>,
    /// Changes each of which, by itself, would let it start sooner, and when.
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
    /// When.
    #[n(0)]
    pub time: Time,
    /// In which partition.
    #[n(1)]
    pub partition: String,
    /// Names of the nodes, compressed.
    #[n(2)]
    pub nodes: String,
    /// The prism that these are, on a torus.
    #[n(3)]
    pub prism: Option<String>,
}

/// How a job stands in a partition.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WhyPartition {
    /// The partition.
    #[n(0)]
    pub name: String,
    /// How many nodes it has.
    #[n(1)]
    pub nodes: u32,
    /// How many of them the job needs at least.
    #[n(2)]
    pub nodes_min: u32,
    /// There is room for it now, whoever is ahead and whatever else it waits for.
    #[n(3)]
    pub room: bool,
    /// It would start if nothing ran.
    #[n(4)]
    pub empty: bool,
    /// It would start if nothing ran, all nodes were up and none was reserved.
    #[n(5)]
    pub ideal: bool,
    /// Nodes by the first test that they fail: the test, their names, how many.
    #[n(6)]
    pub tests: Vec<(NodeTest, String, u32)>,
    /// There would be nodes enough, but not such that stand together as it wants them.
    #[n(7)]
    pub misfit: Option<WhyMisfit>,
}

/// What keeps a job from nodes that pass all other tests.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WhyMisfit {
    /// How they have to stand together.
    #[n(0)]
    pub together: Together,
    /// The options that say so, with their values; none: it is so of all jobs of that size.
    #[n(1)]
    pub options: Vec<(String, String)>,
    /// Enough are free now. Else they would be if nothing ran.
    #[n(2)]
    pub free: bool,
    /// The first of the shapes that would do, if it is one.
    #[n(3)]
    pub shapes: Vec<String>,
}

/// A change of a job.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum WhyChange {
    /// No `--nodelist`.
    #[n(0)]
    WithoutNodelist,
    /// No `--exclude`.
    #[n(1)]
    WithoutExclude,
    /// No `--constraint`.
    #[n(2)]
    WithoutConstraint,
    /// No `--exclusive`.
    #[n(3)]
    WithoutExclusive,
    /// No `--contiguous`.
    #[n(4)]
    WithoutContiguous,
    /// No `--switches`.
    #[n(5)]
    WithoutSwitches,
    /// No `--geometry`, on as many nodes.
    #[n(6)]
    WithoutGeometry,
    /// No `--grid`.
    #[n(7)]
    WithoutGrid,
    /// `--network=local`, or tolerant.
    #[n(8)]
    Network,
    /// No `--licenses`.
    #[n(9)]
    WithoutLicenses,
    /// No `--reservation`.
    #[n(10)]
    WithoutReservation,
    /// No `--gres` and no `--gpus…`.
    #[n(11)]
    WithoutGres,
    /// `--ntasks`.
    #[n(12)]
    Tasks(#[n(0)] u32),
    /// `--nodes`.
    #[n(13)]
    Nodes(#[n(0)] u32),
    /// `--cpus-per-task`.
    #[n(14)]
    CpusPerTask(#[n(0)] u32),
    /// `--mem`, `--mem-per-cpu`.
    #[n(15)]
    Memory(#[n(0)] Memory),
    /// `--time`, seconds.
    #[n(16)]
    TimeLimit(#[n(0)] u64),
    /// `--partition`.
    #[n(17)]
    Partition(#[n(0)] String),
}
