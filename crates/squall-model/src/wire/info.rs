//! What clients are shown of jobs, nodes, partitions and counters.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::config::PartitionConfig;
use crate::event::NodeAdmin;
use crate::gang::Coscheduling;
use crate::id::{Attempt, JobId, StepNo};
use crate::job::{
    ArrayTask, ExitCode, Het, JobSpec, JobState, NodeTest, Outcome, Owner, PendingReason, Seat, Together, Usage,
};
use crate::policy::PreemptMode;
use crate::reservation::Reservation;
use crate::resource::{Hardware, Memory};
use crate::set::IndexSet;
use crate::time::{Span, Time};
use crate::wire::client::JobName;

/// Some jobs. What several of them share is sent once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsPage {
    /// Specs that `jobs` refer to.
    pub specs: Vec<Arc<JobSpec>>,
    /// Owners that `jobs` refer to.
    pub owners: Vec<Arc<Owner>>,
    /// Classes that `jobs` refer to.
    pub classes: Vec<Arc<JobClass>>,
    /// The jobs, by rising id.
    pub jobs: Vec<JobInfo>,
    /// Another page follows.
    pub more: bool,
    /// Ids asked for that are not known.
    pub unknown: Vec<JobId>,
    /// The controller's time.
    pub now: Time,
}

impl JobsPage {
    /// Adds the page that follows.
    pub fn append(&mut self, page: Self) {
        let count = |list: usize| list as u32;
        let (specs, owners, classes) = (count(self.specs.len()), count(self.owners.len()), count(self.classes.len()));
        self.specs.extend(page.specs);
        self.owners.extend(page.owners);
        self.classes.extend(page.classes);
        self.jobs.extend(page.jobs.into_iter().map(|mut job| {
            job.spec = job.spec.saturating_add(specs);
            job.owner = job.owner.saturating_add(owners);
            job.class = job.class.saturating_add(classes);
            job
        }));
        self.unknown.extend(page.unknown);
        (self.now, self.more) = (page.now, page.more);
    }

    /// The class of one of its jobs.
    pub fn class(&self, job: &JobInfo) -> Option<&JobClass> {
        self.classes.get(job.class as usize).map(|class| &**class)
    }
}

/// Where a job waits or runs, and to whom it is charged.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobClass {
    /// The partition: where it runs, else as asked, else the default.
    pub partition: String,
    /// Account, or the default.
    pub account: String,
    /// QOS, or the default.
    pub qos: String,
}

/// A job, an array task, or tasks of an array that all wait, or all ended alike without starting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Its id; of tasks together: the array's.
    pub id: JobId,
    /// Which array task it is.
    pub task: Option<ArrayTask>,
    /// Tasks that this entry stands for: none of them ever started.
    pub pending_tasks: Option<IndexSet>,
    /// Most tasks of the array that run at once.
    pub array_limit: Option<u32>,
    /// Index into [`JobsPage::specs`].
    pub spec: u32,
    /// Index into [`JobsPage::owners`].
    pub owner: u32,
    /// Index into [`JobsPage::classes`].
    pub class: u32,
    /// What it is doing.
    pub state: JobState,
    /// Why it waits.
    pub reason: PendingReason,
    /// Attempt (0: never started).
    pub attempt: Attempt,
    /// Priority; 0: held.
    pub priority: u32,
    /// When submitted.
    pub submit: Time,
    /// When it could start for the first time; 0: not known yet.
    pub eligible: Time,
    /// When the last attempt started; of a pending job: when it is expected to.
    pub start: Option<Time>,
    /// When it ended; of a running job: when its limit ends it.
    pub end: Option<Time>,
    /// Time limit in seconds; None: unlimited.
    pub time_limit_s: Option<u64>,
    /// How many nodes it has, or will have at least.
    pub num_nodes: u32,
    /// How many CPUs it has, or will have at least.
    pub num_cpus: u32,
    /// How many tasks.
    pub num_tasks: u32,
    /// Memory that it has over all nodes, MiB; pending: that it will have; 0: no limit.
    pub memory_mb: u64,
    /// Dependencies that have not come true yet, as text (`afterok:12(unfulfilled)`).
    pub dependency: String,
    /// Of which heterogeneous job it is a component.
    pub het: Option<Het>,
    /// What is known of its last run, or of its end without one; None: it waits and has never run.
    pub run: Option<Box<RunInfo>>,
}

impl JobInfo {
    /// Of its last run; of one that has never run, of an empty one.
    pub fn run(&self) -> &RunInfo {
        static NONE: RunInfo = RunInfo {
            outcome: None,
            derived_exit: ExitCode::OK,
            suspended: None,
            idle: Span(0),
            nodes: String::new(),
            batch_host: String::new(),
            per_node: Vec::new(),
            gres: Vec::new(),
            steps: Vec::new(),
        };
        self.run.as_deref().unwrap_or(&NONE)
    }
}

/// What a job has that runs, or had when it did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The exit codes, when ended or completing.
    pub outcome: Option<Outcome>,
    /// Highest exit code of its steps.
    pub derived_exit: ExitCode,
    /// When suspended last.
    pub suspended: Option<Time>,
    /// How long it did not run since its start: suspended, or out of turn.
    pub idle: Span,
    /// Names of the nodes, compressed; empty: none.
    pub nodes: String,
    /// Name of the first node, where the script runs.
    pub batch_host: String,
    /// CPUs on each node, for `CPU_IDs` and the like: (host list, cores as a list, memory in MiB).
    pub per_node: Vec<(String, String, u64)>,
    /// Generic resources on its nodes: (host list, `gpu:2(IDX:0-1)`).
    pub gres: Vec<(String, String)>,
    /// Its steps, if asked for.
    pub steps: Vec<StepInfo>,
}

/// When and where a job that waits is expected to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedStart {
    /// The job; an array's next task: the array.
    pub id: JobId,
    /// When.
    pub time: Time,
    /// Names of the nodes, compressed.
    pub nodes: String,
}

/// A step of a running job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepInfo {
    /// Its number.
    pub step: StepNo,
    /// Its name.
    pub name: String,
    /// Names of its nodes, compressed.
    pub nodes: String,
    /// How many nodes.
    pub num_nodes: u32,
    /// How many CPUs.
    pub num_cpus: u32,
    /// How many tasks.
    pub num_tasks: u32,
    /// Memory on all of its nodes, MiB; 0: none was asked for.
    pub memory_mb: u64,
    /// When it started.
    pub start: Time,
    /// Its own time limit, seconds.
    pub time_limit_s: Option<u64>,
    /// When and how it ended.
    pub end: Option<(Time, Outcome)>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Its name.
    pub name: String,
    /// Whether it answers.
    pub up: bool,
    /// Whether it answers at present: it may be up and silent for a while.
    pub responds: bool,
    /// Whether it has ever registered.
    pub known: bool,
    /// What the operator wants of it.
    pub admin: NodeAdmin,
    /// Why it is down or drained, who said so, when.
    pub reason: Option<(String, u32, Time)>,
    /// What it has.
    pub hardware: Hardware,
    /// Features that it may have.
    pub features: Vec<String>,
    /// Nodes of less weight are given first.
    pub weight: u32,
    /// The operator's comment.
    pub comment: String,
    /// Any text, for programs.
    pub extra: String,
    /// Id and type of a machine in a cloud.
    pub instance: (String, String),
    /// CPUs held by jobs.
    pub cpus_used: u32,
    /// Memory held by jobs, MiB.
    pub memory_used_mb: u64,
    /// Whether a job holds it exclusively or fully.
    pub jobs_running: u32,
    /// Jobs on it that are completing.
    pub jobs_completing: u32,
    /// Load average, hundredths.
    pub load_centi: u32,
    /// Free memory, MiB.
    pub free_mb: u64,
    /// When the daemon registered last.
    pub registered: Time,
    /// When it was heard of last.
    pub heard: Time,
    /// Names of its partitions.
    pub partitions: Vec<String>,
    /// Version of its daemon.
    pub version: String,
    /// Generic resources: `gpu:a100:4`.
    pub gres: String,
    /// What jobs hold of them: `gpu:a100:2(IDX:0-1)`.
    pub gres_used: String,
    /// The reservation that is on there; empty: none.
    pub reservation: String,
    /// It is for work on the node.
    pub maint: bool,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionInfo {
    /// Its configuration and present state.
    pub config: PartitionConfig,
    /// How its jobs make room, by its own word or the cluster's.
    pub preempt_mode: PreemptMode,
    /// Names of its nodes, compressed.
    pub nodes: String,
    /// How many nodes.
    pub num_nodes: u32,
    /// How many CPUs.
    pub num_cpus: u32,
}

/// A license of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LicenseInfo {
    /// Its name.
    pub name: String,
    /// How many there are.
    pub total: u32,
    /// How many jobs hold.
    pub used: u32,
    /// How many reservations keep.
    pub reserved: u32,
}

/// A reservation, with its nodes by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationInfo {
    /// The reservation.
    pub reservation: Reservation,
    /// Names of its nodes, compressed.
    pub nodes: String,
    /// How many cores its nodes have.
    pub cores: u32,
    /// How many CPUs.
    pub cpus: u32,
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// The job.
    pub job: JobName,
    /// What it is doing; all else is empty unless it is pending, but where it runs.
    pub state: JobState,
    /// The nodes on which it runs, compressed, and how they stand in the network if nodes are not all alike.
    pub runs: Option<(String, Option<Seat>)>,
    /// All that keeps it, the one that counts first.
    pub reasons: Vec<PendingReason>,
    /// Before this time it does not start.
    pub begin: Option<Time>,
    /// Dependencies that have not come true, as text.
    pub dependency: String,
    /// Its licenses: name, how many it wants, how many are free.
    pub licenses: Vec<(String, u32, u32)>,
    /// Reservations that keep nodes from it, and its own: name, begin, end.
    pub reservations: Vec<(String, Time, Time)>,
    /// How it stands in each of its partitions.
    pub partitions: Vec<WhyPartition>,
    /// The first of those ahead of it.
    pub ahead: Vec<JobName>,
    /// How many are ahead of it.
    pub ahead_total: u32,
    /// When and where it is expected to start, if that can be foretold.
    pub start: Option<WhyStart>,
    /// Changes each of which, by itself, would let it start sooner, and when.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyStart {
    /// When.
    pub time: Time,
    /// In which partition.
    pub partition: String,
    /// Names of the nodes, compressed.
    pub nodes: String,
    /// The prism that these are, on a torus.
    pub prism: Option<String>,
}

/// How a job stands in a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyPartition {
    /// The partition.
    pub name: String,
    /// How many nodes it has.
    pub nodes: u32,
    /// How many of them the job needs at least.
    pub nodes_min: u32,
    /// There is room for it now, whoever is ahead and whatever else it waits for.
    pub room: bool,
    /// It would start if nothing ran.
    pub empty: bool,
    /// It would start if nothing ran, all nodes were up and none was reserved.
    pub ideal: bool,
    /// Nodes by the first test that they fail: the test, their names, how many.
    pub tests: Vec<(NodeTest, String, u32)>,
    /// There would be nodes enough, but not such that stand together as it wants them.
    pub misfit: Option<WhyMisfit>,
}

/// What keeps a job from nodes that pass all other tests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyMisfit {
    /// How they have to stand together.
    pub together: Together,
    /// The options that say so, with their values; none: it is so of all jobs of that size.
    pub options: Vec<(String, String)>,
    /// Enough are free now. Else they would be if nothing ran.
    pub free: bool,
    /// The first of the shapes that would do, if it is one.
    pub shapes: Vec<String>,
}

/// A change of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhyChange {
    /// No `--nodelist`.
    WithoutNodelist,
    /// No `--exclude`.
    WithoutExclude,
    /// No `--constraint`.
    WithoutConstraint,
    /// No `--exclusive`.
    WithoutExclusive,
    /// No `--contiguous`.
    WithoutContiguous,
    /// No `--switches`.
    WithoutSwitches,
    /// No `--geometry`, on as many nodes.
    WithoutGeometry,
    /// No `--grid`.
    WithoutGrid,
    /// `--network=local`, or tolerant.
    Network,
    /// No `--licenses`.
    WithoutLicenses,
    /// No `--reservation`.
    WithoutReservation,
    /// No `--gres` and no `--gpus…`.
    WithoutGres,
    /// `--ntasks`.
    Tasks(u32),
    /// `--nodes`.
    Nodes(u32),
    /// `--cpus-per-task`.
    CpusPerTask(u32),
    /// `--mem`, `--mem-per-cpu`.
    Memory(Memory),
    /// `--time`, seconds.
    TimeLimit(u64),
    /// `--partition`.
    Partition(String),
}

/// A row of accounting: a job's attempt or a step of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountingRow {
    /// The job.
    pub id: JobId,
    /// Which array task it is.
    pub task: Option<ArrayTask>,
    /// Of an array's record: its tasks that have not started.
    pub pending_tasks: Option<IndexSet>,
    /// Attempt; 0: never started.
    pub attempt: Attempt,
    /// The step; None: the job itself.
    pub step: Option<StepNo>,
    /// What was asked.
    pub spec: Arc<JobSpec>,
    /// Who.
    pub owner: Arc<Owner>,
    /// Name of job or step.
    pub name: String,
    /// The partition.
    pub partition: String,
    /// Account.
    pub account: String,
    /// QOS.
    pub qos: String,
    /// What it is doing or how it ended.
    pub state: JobState,
    /// Exit codes.
    pub exit: ExitCode,
    /// Highest exit code of its steps.
    pub derived_exit: ExitCode,
    /// What the state doesn't say.
    pub reason: Option<String>,
    /// When submitted.
    pub submit: Time,
    /// When it could start; 0: not known yet.
    pub eligible: Time,
    /// When started.
    pub start: Option<Time>,
    /// When ended.
    pub end: Option<Time>,
    /// Seconds suspended.
    pub suspended_s: u64,
    /// Time limit in seconds; None: unlimited.
    pub time_limit_s: Option<u64>,
    /// Names of its nodes, compressed.
    pub nodes: String,
    /// How many nodes.
    pub num_nodes: u32,
    /// How many CPUs held (0: never started).
    pub num_cpus: u32,
    /// CPUs asked for.
    pub req_cpus: u32,
    /// How many tasks.
    pub num_tasks: u32,
    /// Memory held over all nodes, MiB.
    pub memory_mb: u64,
    /// What its tasks used.
    pub usage: Usage,
    /// The whole command line.
    pub submit_line: String,
    /// Of which heterogeneous job it is a component.
    pub het: Option<Het>,
}

impl AccountingRow {
    /// Of a job of one CPU of which nothing is known but that it was submitted.
    pub fn submitted(id: JobId, submit: Time, owner: Arc<Owner>, spec: Arc<JobSpec>) -> Self {
        Self {
            id,
            task: None,
            pending_tasks: None,
            attempt: Attempt(1),
            step: None,
            name: spec.name.clone(),
            spec,
            owner,
            partition: String::new(),
            account: String::new(),
            qos: String::new(),
            state: JobState::Pending,
            exit: ExitCode::OK,
            derived_exit: ExitCode::OK,
            reason: None,
            submit,
            eligible: submit,
            start: None,
            end: None,
            suspended_s: 0,
            time_limit_s: None,
            nodes: String::new(),
            num_nodes: 1,
            num_cpus: 1,
            req_cpus: 1,
            num_tasks: 1,
            memory_mb: 0,
            usage: Usage::default(),
            submit_line: String::new(),
            het: None,
        }
    }
}

/// Counters of the controller since its start or the last reset: the one source of sdiag, metrics and benches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diag {
    /// When the counters start.
    pub since: Time,
    /// The controller's time.
    pub now: Time,
    /// Jobs submitted.
    pub jobs_submitted: u64,
    /// Jobs started.
    pub jobs_started: u64,
    /// Jobs completed.
    pub jobs_completed: u64,
    /// Jobs cancelled.
    pub jobs_canceled: u64,
    /// Jobs failed.
    pub jobs_failed: u64,
    /// Pending at present (array tasks counted).
    pub jobs_pending: u64,
    /// Running at present.
    pub jobs_running: u64,
    /// Scheduling passes.
    pub cycles: u64,
    /// Time of the last pass, microseconds.
    pub cycle_last_us: u64,
    /// Longest pass, microseconds.
    pub cycle_max_us: u64,
    /// All passes together, microseconds.
    pub cycle_total_us: u64,
    /// Jobs looked at in all passes.
    pub cycle_depth_total: u64,
    /// Jobs in the queue at the last pass.
    pub queue_length: u64,
    /// Records written to the journal.
    pub journal_records: u64,
    /// Events in these records.
    pub journal_events: u64,
    /// Bytes of these records.
    pub journal_bytes: u64,
    /// Flushes.
    pub journal_flushes: u64,
    /// All flushes together, microseconds.
    pub flush_total_us: u64,
    /// Longest flush, microseconds.
    pub flush_max_us: u64,
    /// Requests and node messages by kind: name, count, total microseconds.
    pub messages: Vec<(String, u64, u64)>,
    /// Requests by user id: count, total microseconds.
    pub users: Vec<(u32, u64, u64)>,
    /// Connections of clients at present.
    pub clients: u64,
    /// Connections of nodes at present.
    pub nodes: u64,
    /// What came up the fabric's tree, and how.
    pub fabric: FabricCounts,
    /// Gang scheduling.
    pub gang: GangCounts,
    /// Who passed those that wait.
    pub backfill: BackfillCounts,
    /// How often an invariant of the controller was broken, since it began: a fault of the program.
    pub broken: u64,
}

/// How jobs share cores at present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangCounts {
    /// By which policy.
    pub policy: Coscheduling,
    /// How long a slot lasts.
    pub slice: Span,
    /// Jobs that share.
    pub jobs: u64,
    /// Slots of the longest round.
    pub rows: u32,
    /// Their nodes.
    pub nodes: u64,
    /// How often the matrix changed.
    pub changes: u64,
    /// How often these nodes were told the time.
    pub strobes: u64,
    /// Their slots were out of step by less than this when they were asked last, microseconds; None: not known yet.
    pub skew_us: Option<u64>,
    /// A node that is worse, and by how much, if one is known.
    pub worst: Option<(String, u64)>,
}

/// Passes in which some job waited and others behind it were looked at: who is backfilled starts in these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillCounts {
    /// Jobs that passed one that waits, since the controller started.
    pub jobs_ever: u64,
    /// The same since the counters start.
    pub jobs: u64,
    /// Such passes.
    pub cycles: u64,
    /// When the last of them was.
    pub last: Option<Time>,
    /// Its time, microseconds.
    pub last_us: u64,
    /// The longest, microseconds.
    pub max_us: u64,
    /// All together, microseconds.
    pub total_us: u64,
    /// Jobs looked at behind one that waits, alike ones once: in the last, in all.
    pub depth: (u64, u64),
    /// Those of them for which there was room beside what runs.
    pub tried: (u64, u64),
    /// Jobs that were pending.
    pub queue: (u64, u64),
    /// Times at which room was looked for to be kept.
    pub times: (u64, u64),
}

impl BackfillCounts {
    /// Counts a pass.
    pub fn pass(&mut self, now: Time, looks: Looks, started: u64, queue: u64) {
        self.jobs_ever += started;
        self.jobs += started;
        if looks.depth == 0 {
            return;
        }
        self.cycles += 1;
        self.last = Some(now);
        let counts = [&mut self.depth, &mut self.tried, &mut self.queue, &mut self.times];
        for (count, more) in counts.into_iter().zip([looks.depth, looks.tried, queue, looks.times]) {
            *count = (more, count.1 + more);
        }
    }
}

/// What a pass looked at behind jobs that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// Jobs.
    pub depth: u64,
    /// Jobs for which there was room beside what runs.
    pub tried: u64,
    /// Times at which room was looked for to be kept.
    pub times: u64,
}

/// What nodes told the controller, and in what packing it came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricCounts {
    /// Messages of nodes that reached the controller, of all kinds.
    pub messages: u64,
    /// Time spent on them, microseconds.
    pub messages_us: u64,
    /// Nodes that let go of a job, each counted once however often it was said: the oracle of `bench aggregate`.
    pub node_epilogs: u64,
    /// Messages that carried reports of more than one node.
    pub composites: u64,
    /// Reports of single nodes that these stood for.
    pub composite_reports: u64,
    /// Messages with reports by how many they stood for: 1, 2-3, 4-7, …; index is the power of two.
    pub windows: Vec<u64>,
    /// Reports of single nodes that told nothing new: said again after a way was lost, or of what had been given up.
    pub repeats: u64,
    /// Pieces of files that were sent again because some node lacked them.
    pub retransmits: u64,
    /// Bytes of files that were sent by multicast, each once for all nodes.
    pub multicast_bytes: u64,
}

impl FabricCounts {
    /// Counts a message that stood for so many reports (none: nothing to count).
    pub fn window(&mut self, reports: u64) {
        let Some(power) = reports.checked_ilog2() else { return };
        let power = power as usize;
        if self.windows.len() <= power {
            self.windows.resize(power + 1, 0);
        }
        self.windows[power] += 1;
    }
}
