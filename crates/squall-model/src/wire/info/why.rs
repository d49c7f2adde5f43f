//! Why a job is pending and what would let it start: data of `squall why`.

use crate::id::JobId;
use crate::job::{JobState, NodeTest, PendingReason, Seat, Together};
use crate::resource::Memory;
use crate::time::Time;
use crate::wire::client::JobName;
use minicbor::{Decode, Encode};

/// Why a job is pending, and what would let it start.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Why {
    /// The job in question.
    #[n(0)]
    pub job: JobName,
    /// State of the job. If the job is not pending, all other fields except `runs`, `silent` and `vacant` are empty.
    #[n(1)]
    pub state: JobState,
    /// For a running job: names of its nodes as a host list, and their positions in the network if nodes are not all
    /// alike.
    #[n(2)]
    pub runs: Option<(String, Option<Seat>)>,
    /// All reasons for which the job is pending, the most important first.
    #[n(3)]
    pub reasons: Vec<PendingReason>,
    /// The job does not start before this time (`--begin`). None: no such time.
    #[n(4)]
    pub begin: Option<Time>,
    /// Dependencies of the job that are not satisfied yet, as text.
    #[n(5)]
    pub dependency: String,
    /// Licenses that the job requests: name, number requested, number free.
    #[n(6)]
    pub licenses: Vec<(String, u32, u32)>,
    /// Reservations that keep nodes from the job, and the job's own: name, start, end.
    #[n(7)]
    pub reservations: Vec<(String, Time, Time)>,
    /// What the job lacks in each of its partitions.
    #[n(8)]
    pub partitions: Vec<WhyPartition>,
    /// The first few of the jobs before it in the queue.
    #[n(9)]
    pub ahead: Vec<JobName>,
    /// Number of all jobs before it in the queue.
    #[n(10)]
    pub ahead_total: u32,
    /// Expected start of the job. None: it can't be predicted.
    #[n(11)]
    pub start: Option<WhyStart>,
    /// Changes of the job, each of which alone would let it start sooner, with the start expected after that change.
    #[n(12)]
    pub changes: Vec<(WhyChange, Time)>,
    /// For a running or completing job: its nodes that do not answer. None: all answer.
    #[n(13)]
    pub silent: Option<WhySilent>,
    /// For a running job: places of failed nodes that wait for another node.
    #[n(14)]
    #[cbor(default)]
    pub vacant: Vec<WhyVacant>,
    /// For a running job with parallel groups (`--groups`): how far each kind reaches. Empty: it has none, or the network
    /// has no blocks or switches.
    #[n(15)]
    #[cbor(default)]
    pub spans: Vec<WhySpan>,
}

/// How far the groups of one kind of a job reach.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WhySpan {
    /// Name of the kind, such as `tp`.
    #[n(0)]
    pub name: String,
    /// Number of blocks, or of leaf switches, of the group that has the most.
    #[n(1)]
    pub most: u32,
    /// Mean of that number over all groups of the kind, hundredths.
    #[n(2)]
    pub mean_hundredths: u32,
}

/// A place of a running job that waits for a node.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WhyVacant {
    /// Name of the node that failed.
    #[n(0)]
    pub lost: String,
    /// Number of the place in the order of the job's nodes: 0, 1, 2 … (`SLURM_NODEID`).
    #[n(1)]
    pub place: u32,
    /// Since when the place is vacant.
    #[n(2)]
    pub since: Time,
    /// CPUs that the job needs on the node.
    #[n(3)]
    pub cpus: u32,
    /// Memory that the job needs on the node, MiB; 0: no limit.
    #[n(4)]
    pub memory_mb: u64,
    /// Generic resources that the job needs on the node, such as `gpu:4`. Empty: none.
    #[n(5)]
    pub gres: String,
    /// Partition from which the node may come.
    #[n(6)]
    pub partition: String,
}

/// Nodes of a job that do not answer, and what the job waits for.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WhySilent {
    /// Names of the nodes as a host list.
    #[n(0)]
    pub nodes: String,
    /// When the one that has been silent longest was heard last, or when the controller started, if that is later.
    #[n(1)]
    pub since: Time,
    /// When the job is given up, if that node does not answer by then. None: never.
    #[n(2)]
    pub given_up: Option<Time>,
    /// Whether the job runs again after that, or after an operator has set the node down.
    #[n(3)]
    pub again: bool,
    /// Some: the job has a node fence, so its processes there end by themselves before it is given up.
    #[n(4)]
    pub fenced: Option<bool>,
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
            silent: None,
            vacant: Vec::new(),
            spans: Vec::new(),
        }
    }
}

/// When and where a job is expected to start.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WhyStart {
    /// Time at which the job is expected to start.
    #[n(0)]
    pub time: Time,
    /// Partition in which the job would start.
    #[n(1)]
    pub partition: String,
    /// Names of the nodes on which the job would start, as a host list.
    #[n(2)]
    pub nodes: String,
    /// On a torus: the prism (box of nodes) in which the job would start. None: the network is no torus.
    #[n(3)]
    pub prism: Option<String>,
}

/// What a pending job lacks in one of its partitions.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WhyPartition {
    /// Name of the partition.
    #[n(0)]
    pub name: String,
    /// Number of nodes in the partition.
    #[n(1)]
    pub nodes: u32,
    /// Fewest nodes that the job needs.
    #[n(2)]
    pub nodes_min: u32,
    /// Whether the job fits into the free resources now, regardless of the queue and other reasons.
    #[n(3)]
    pub room: bool,
    /// Whether the job could start if no other jobs were running.
    #[n(4)]
    pub empty: bool,
    /// Whether the job could start if no other jobs were running, all nodes were up and none was reserved.
    #[n(5)]
    pub ideal: bool,
    /// Nodes of the partition, grouped by the first test that they fail (`Free`: they fail none): test, names as a host
    /// list, number of nodes.
    #[n(6)]
    pub tests: Vec<(NodeTest, String, u32)>,
    /// Set if there are enough nodes, but not in the network positions that the job requires. None: positions are no
    /// problem.
    #[n(7)]
    pub misfit: Option<WhyMisfit>,
}

/// Why a job can't use nodes that pass all other tests: their positions in the network.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WhyMisfit {
    /// How the job requires its nodes to be placed in the network.
    #[n(0)]
    pub together: Together,
    /// Options of the job that require this placement, with their values. Empty: every job of that size requires it.
    #[n(1)]
    pub options: Vec<(String, String)>,
    /// Whether enough nodes are free now. False: there would be enough only if no other jobs were running.
    #[n(2)]
    pub free: bool,
    /// The first few shapes (sizes of boxes of nodes) that would do. Empty: no shape is required.
    #[n(3)]
    pub shapes: Vec<String>,
}

/// A change of a pending job that could let it start sooner.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum WhyChange {
    /// The job could start sooner without its `--nodelist`.
    #[n(0)]
    WithoutNodelist,
    /// The job could start sooner without its `--exclude`.
    #[n(1)]
    WithoutExclude,
    /// The job could start sooner without its `--constraint`.
    #[n(2)]
    WithoutConstraint,
    /// The job could start sooner without its `--exclusive`.
    #[n(3)]
    WithoutExclusive,
    /// The job could start sooner without its `--contiguous`.
    #[n(4)]
    WithoutContiguous,
    /// The job could start sooner without its `--switches`.
    #[n(5)]
    WithoutSwitches,
    /// The job could start sooner without its `--geometry`, on the same number of nodes.
    #[n(6)]
    WithoutGeometry,
    /// The job could start sooner without its `--grid`.
    #[n(7)]
    WithoutGrid,
    /// The job could start sooner with `--network=local` or `--network=tolerant`.
    #[n(8)]
    Network,
    /// The job could start sooner without its `--licenses`.
    #[n(9)]
    WithoutLicenses,
    /// The job could start sooner without its `--reservation`.
    #[n(10)]
    WithoutReservation,
    /// The job could start sooner without its `--gres` and `--gpus…`.
    #[n(11)]
    WithoutGres,
    /// The job could start sooner with this number of tasks (`--ntasks`).
    #[n(12)]
    Tasks(#[n(0)] u32),
    /// The job could start sooner with this number of nodes (`--nodes`).
    #[n(13)]
    Nodes(#[n(0)] u32),
    /// The job could start sooner with this number of CPUs per task (`--cpus-per-task`).
    #[n(14)]
    CpusPerTask(#[n(0)] u32),
    /// The job could start sooner with this amount of memory (`--mem`, `--mem-per-cpu`).
    #[n(15)]
    Memory(#[n(0)] Memory),
    /// The job could start sooner with this time limit (`--time`), seconds.
    #[n(16)]
    TimeLimit(#[n(0)] u64),
    /// The job could start sooner in this partition (`--partition`).
    #[n(17)]
    Partition(#[n(0)] String),
    /// The job could start sooner without its `--segment`.
    #[n(18)]
    WithoutSegments,
    /// The job could start sooner without its `--groups`.
    #[n(19)]
    WithoutGroups,
}
