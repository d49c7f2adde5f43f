//! What clients are shown of jobs, nodes, partitions and counters.

mod why;

use std::sync::Arc;
pub use why::{Why, WhyChange, WhyMisfit, WhyPartition, WhyStart};

use minicbor::{Decode, Encode};

use crate::config::PartitionConfig;
use crate::event::NodeAdmin;
use crate::gang::Coscheduling;
use crate::id::{Attempt, JobId, StepNo};
use crate::job::{ArrayTask, ExitCode, Het, JobSpec, JobState, Outcome, Owner, PendingReason, Usage};
use crate::policy::PreemptMode;
use crate::reservation::Reservation;
use crate::resource::Hardware;
use crate::set::IndexSet;
use crate::time::{Span, Time};

/// Some jobs. What several of them share is sent once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobsPage {
    /// Specs that `jobs` refer to.
    #[n(0)]
    #[cbor(with = "crate::encoding::arcs")]
    pub specs: Vec<Arc<JobSpec>>,
    /// Owners that `jobs` refer to.
    #[n(1)]
    #[cbor(with = "crate::encoding::arcs")]
    pub owners: Vec<Arc<Owner>>,
    /// Classes that `jobs` refer to.
    #[n(2)]
    #[cbor(with = "crate::encoding::arcs")]
    pub classes: Vec<Arc<JobClass>>,
    /// The jobs, by rising id.
    #[n(3)]
    pub jobs: Vec<JobInfo>,
    /// Another page follows.
    #[n(4)]
    pub more: bool,
    /// Ids asked for that are not known.
    #[n(5)]
    pub unknown: Vec<JobId>,
    /// The controller's time.
    #[n(6)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct JobClass {
    /// The partition: where it runs, else as asked, else the default.
    #[n(0)]
    pub partition: String,
    /// Account, or the default.
    #[n(1)]
    pub account: String,
    /// QOS, or the default.
    #[n(2)]
    pub qos: String,
}

/// A job, an array task, or tasks of an array that all wait, or all ended alike without starting.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct JobInfo {
    /// Its id; of tasks together: the array's.
    #[n(0)]
    pub id: JobId,
    /// Which array task it is.
    #[n(1)]
    pub task: Option<ArrayTask>,
    /// Tasks that this entry stands for: none of them ever started.
    #[n(2)]
    pub pending_tasks: Option<IndexSet>,
    /// Most tasks of the array that run at once.
    #[n(3)]
    pub array_limit: Option<u32>,
    /// Index into [`JobsPage::specs`].
    #[n(4)]
    pub spec: u32,
    /// Index into [`JobsPage::owners`].
    #[n(5)]
    pub owner: u32,
    /// Index into [`JobsPage::classes`].
    #[n(6)]
    pub class: u32,
    /// What it is doing.
    #[n(7)]
    pub state: JobState,
    /// Why it waits.
    #[n(8)]
    pub reason: PendingReason,
    /// Attempt (0: never started).
    #[n(9)]
    pub attempt: Attempt,
    /// Priority; 0: held.
    #[n(10)]
    pub priority: u32,
    /// When submitted.
    #[n(11)]
    pub submit: Time,
    /// When it could start for the first time; 0: not known yet.
    #[n(12)]
    pub eligible: Time,
    /// When the last attempt started; of a pending job: when it is expected to.
    #[n(13)]
    pub start: Option<Time>,
    /// When it ended; of a running job: when its limit ends it.
    #[n(14)]
    pub end: Option<Time>,
    /// Time limit in seconds; None: unlimited.
    #[n(15)]
    pub time_limit_s: Option<u64>,
    /// How many nodes it has, or will have at least.
    #[n(16)]
    pub num_nodes: u32,
    /// How many CPUs it has, or will have at least.
    #[n(17)]
    pub num_cpus: u32,
    /// How many tasks.
    #[n(18)]
    pub num_tasks: u32,
    /// Memory that it has over all nodes, MiB; pending: that it will have; 0: no limit.
    #[n(19)]
    pub memory_mb: u64,
    /// Dependencies that have not come true yet, as text (`afterok:12(unfulfilled)`).
    #[n(20)]
    pub dependency: String,
    /// Of which heterogeneous job it is a component.
    #[n(21)]
    pub het: Option<Het>,
    /// What is known of its last run, or of its end without one; None: it waits and has never run.
    #[n(22)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct RunInfo {
    /// The exit codes, when ended or completing.
    #[n(0)]
    pub outcome: Option<Outcome>,
    /// Highest exit code of its steps.
    #[n(1)]
    pub derived_exit: ExitCode,
    /// When suspended last.
    #[n(2)]
    pub suspended: Option<Time>,
    /// How long it did not run since its start: suspended, or out of turn.
    #[n(3)]
    pub idle: Span,
    /// Names of the nodes, compressed; empty: none.
    #[n(4)]
    pub nodes: String,
    /// Name of the first node, where the script runs.
    #[n(5)]
    pub batch_host: String,
    /// CPUs on each node, for `CPU_IDs` and the like: (host list, cores as a list, memory in MiB).
    #[n(6)]
    pub per_node: Vec<(String, String, u64)>,
    /// Generic resources on its nodes: (host list, `gpu:2(IDX:0-1)`).
    #[n(7)]
    pub gres: Vec<(String, String)>,
    /// Its steps, if asked for.
    #[n(8)]
    pub steps: Vec<StepInfo>,
}

/// When and where a job that waits is expected to start.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ExpectedStart {
    /// The job; an array's next task: the array.
    #[n(0)]
    pub id: JobId,
    /// When.
    #[n(1)]
    pub time: Time,
    /// Names of the nodes, compressed.
    #[n(2)]
    pub nodes: String,
}

/// A step of a running job.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StepInfo {
    /// Its number.
    #[n(0)]
    pub step: StepNo,
    /// Its name.
    #[n(1)]
    pub name: String,
    /// Names of its nodes, compressed.
    #[n(2)]
    pub nodes: String,
    /// How many nodes.
    #[n(3)]
    pub num_nodes: u32,
    /// How many CPUs.
    #[n(4)]
    pub num_cpus: u32,
    /// How many tasks.
    #[n(5)]
    pub num_tasks: u32,
    /// Memory on all of its nodes, MiB; 0: none was asked for.
    #[n(6)]
    pub memory_mb: u64,
    /// When it started.
    #[n(7)]
    pub start: Time,
    /// Its own time limit, seconds.
    #[n(8)]
    pub time_limit_s: Option<u64>,
    /// When and how it ended.
    #[n(9)]
    pub end: Option<(Time, Outcome)>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NodeInfo {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// Whether it answers.
    #[n(1)]
    pub up: bool,
    /// Whether it answers at present: it may be up and silent for a while.
    #[n(2)]
    pub responds: bool,
    /// Whether it has ever registered.
    #[n(3)]
    pub known: bool,
    /// What the operator wants of it.
    #[n(4)]
    pub admin: NodeAdmin,
    /// Why it is down or drained, who said so, when.
    #[n(5)]
    pub reason: Option<(String, u32, Time)>,
    /// What it has.
    #[n(6)]
    pub hardware: Hardware,
    /// Features that it may have.
    #[n(7)]
    pub features: Vec<String>,
    /// Nodes of less weight are given first.
    #[n(8)]
    pub weight: u32,
    /// The operator's comment.
    #[n(9)]
    pub comment: String,
    /// Any text, for programs.
    #[n(10)]
    pub extra: String,
    /// Id and type of a machine in a cloud.
    #[n(11)]
    pub instance: (String, String),
    /// CPUs held by jobs.
    #[n(12)]
    pub cpus_used: u32,
    /// Memory held by jobs, MiB.
    #[n(13)]
    pub memory_used_mb: u64,
    /// Whether a job holds it exclusively or fully.
    #[n(14)]
    pub jobs_running: u32,
    /// Jobs on it that are completing.
    #[n(15)]
    pub jobs_completing: u32,
    /// Load average, hundredths.
    #[n(16)]
    pub load_centi: u32,
    /// Free memory, MiB.
    #[n(17)]
    pub free_mb: u64,
    /// When the daemon registered last.
    #[n(18)]
    pub registered: Time,
    /// When it was heard of last.
    #[n(19)]
    pub heard: Time,
    /// Names of its partitions.
    #[n(20)]
    pub partitions: Vec<String>,
    /// Version of its daemon.
    #[n(21)]
    pub version: String,
    /// Generic resources: `gpu:a100:4`.
    #[n(22)]
    pub gres: String,
    /// What jobs hold of them: `gpu:a100:2(IDX:0-1)`.
    #[n(23)]
    pub gres_used: String,
    /// The reservation that is on there; empty: none.
    #[n(24)]
    pub reservation: String,
    /// It is for work on the node.
    #[n(25)]
    pub maint: bool,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PartitionInfo {
    /// Its configuration and present state.
    #[n(0)]
    pub config: PartitionConfig,
    /// How its jobs make room, by its own word or the cluster's.
    #[n(1)]
    pub preempt_mode: PreemptMode,
    /// Names of its nodes, compressed.
    #[n(2)]
    pub nodes: String,
    /// How many nodes.
    #[n(3)]
    pub num_nodes: u32,
    /// How many CPUs.
    #[n(4)]
    pub num_cpus: u32,
}

/// A license of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct LicenseInfo {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// How many there are.
    #[n(1)]
    pub total: u32,
    /// How many jobs hold.
    #[n(2)]
    pub used: u32,
    /// How many reservations keep.
    #[n(3)]
    pub reserved: u32,
}

/// A reservation, with its nodes by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ReservationInfo {
    /// The reservation.
    #[n(0)]
    pub reservation: Reservation,
    /// Names of its nodes, compressed.
    #[n(1)]
    pub nodes: String,
    /// How many cores its nodes have.
    #[n(2)]
    pub cores: u32,
    /// How many CPUs.
    #[n(3)]
    pub cpus: u32,
}

/// A row of accounting: a job's attempt or a step of it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct AccountingRow {
    /// The job.
    #[n(0)]
    pub id: JobId,
    /// Which array task it is.
    #[n(1)]
    pub task: Option<ArrayTask>,
    /// Of an array's record: its tasks that have not started.
    #[n(2)]
    pub pending_tasks: Option<IndexSet>,
    /// Attempt; 0: never started.
    #[n(3)]
    pub attempt: Attempt,
    /// The step; None: the job itself.
    #[n(4)]
    pub step: Option<StepNo>,
    /// What was asked.
    #[n(5)]
    #[cbor(with = "crate::encoding::arc")]
    pub spec: Arc<JobSpec>,
    /// Who.
    #[n(6)]
    #[cbor(with = "crate::encoding::arc")]
    pub owner: Arc<Owner>,
    /// Name of job or step.
    #[n(7)]
    pub name: String,
    /// The partition.
    #[n(8)]
    pub partition: String,
    /// Account.
    #[n(9)]
    pub account: String,
    /// QOS.
    #[n(10)]
    pub qos: String,
    /// What it is doing or how it ended.
    #[n(11)]
    pub state: JobState,
    /// Exit codes.
    #[n(12)]
    pub exit: ExitCode,
    /// Highest exit code of its steps.
    #[n(13)]
    pub derived_exit: ExitCode,
    /// What the state doesn't say.
    #[n(14)]
    pub reason: Option<String>,
    /// When submitted.
    #[n(15)]
    pub submit: Time,
    /// When it could start; 0: not known yet.
    #[n(16)]
    pub eligible: Time,
    /// When started.
    #[n(17)]
    pub start: Option<Time>,
    /// When ended.
    #[n(18)]
    pub end: Option<Time>,
    /// Seconds suspended.
    #[n(19)]
    pub suspended_s: u64,
    /// Time limit in seconds; None: unlimited.
    #[n(20)]
    pub time_limit_s: Option<u64>,
    /// Names of its nodes, compressed.
    #[n(21)]
    pub nodes: String,
    /// How many nodes.
    #[n(22)]
    pub num_nodes: u32,
    /// How many CPUs held (0: never started).
    #[n(23)]
    pub num_cpus: u32,
    /// CPUs asked for.
    #[n(24)]
    pub req_cpus: u32,
    /// How many tasks.
    #[n(25)]
    pub num_tasks: u32,
    /// Memory held over all nodes, MiB.
    #[n(26)]
    pub memory_mb: u64,
    /// What its tasks used.
    #[n(27)]
    pub usage: Usage,
    /// The whole command line.
    #[n(28)]
    pub submit_line: String,
    /// Of which heterogeneous job it is a component.
    #[n(29)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Diag {
    /// When the counters start.
    #[n(0)]
    pub since: Time,
    /// The controller's time.
    #[n(1)]
    pub now: Time,
    /// Jobs submitted.
    #[n(2)]
    pub jobs_submitted: u64,
    /// Jobs started.
    #[n(3)]
    pub jobs_started: u64,
    /// Jobs completed.
    #[n(4)]
    pub jobs_completed: u64,
    /// Jobs cancelled.
    #[n(5)]
    pub jobs_canceled: u64,
    /// Jobs failed.
    #[n(6)]
    pub jobs_failed: u64,
    /// Pending at present (array tasks counted).
    #[n(7)]
    pub jobs_pending: u64,
    /// Running at present.
    #[n(8)]
    pub jobs_running: u64,
    /// Scheduling passes.
    #[n(9)]
    pub cycles: u64,
    /// Time of the last pass, microseconds.
    #[n(10)]
    pub cycle_last_us: u64,
    /// Longest pass, microseconds.
    #[n(11)]
    pub cycle_max_us: u64,
    /// All passes together, microseconds.
    #[n(12)]
    pub cycle_total_us: u64,
    /// Jobs looked at in all passes.
    #[n(13)]
    pub cycle_depth_total: u64,
    /// Jobs in the queue at the last pass.
    #[n(14)]
    pub queue_length: u64,
    /// Records written to the journal.
    #[n(15)]
    pub journal_records: u64,
    /// Events in these records.
    #[n(16)]
    pub journal_events: u64,
    /// Bytes of these records.
    #[n(17)]
    pub journal_bytes: u64,
    /// Flushes.
    #[n(18)]
    pub journal_flushes: u64,
    /// All flushes together, microseconds.
    #[n(19)]
    pub flush_total_us: u64,
    /// Longest flush, microseconds.
    #[n(20)]
    pub flush_max_us: u64,
    /// Requests and node messages by kind: name, count, total microseconds.
    #[n(21)]
    pub messages: Vec<(String, u64, u64)>,
    /// Requests by user id: count, total microseconds.
    #[n(22)]
    pub users: Vec<(u32, u64, u64)>,
    /// Connections of clients at present.
    #[n(23)]
    pub clients: u64,
    /// Connections of nodes at present.
    #[n(24)]
    pub nodes: u64,
    /// What came up the fabric's tree, and how.
    #[n(25)]
    pub fabric: FabricCounts,
    /// Gang scheduling.
    #[n(26)]
    pub gang: GangCounts,
    /// Who passed those that wait.
    #[n(27)]
    pub backfill: BackfillCounts,
    /// How often an invariant of the controller was broken, since it began: a fault of the program.
    #[n(28)]
    #[cbor(default)]
    pub broken: u64,
}

/// How jobs share cores at present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct GangCounts {
    /// By which policy.
    #[n(0)]
    pub policy: Coscheduling,
    /// How long a slot lasts.
    #[n(1)]
    pub slice: Span,
    /// Jobs that share.
    #[n(2)]
    pub jobs: u64,
    /// Slots of the longest round.
    #[n(3)]
    pub rows: u32,
    /// Their nodes.
    #[n(4)]
    pub nodes: u64,
    /// How often the matrix changed.
    #[n(5)]
    pub changes: u64,
    /// How often these nodes were told the time.
    #[n(6)]
    pub strobes: u64,
    /// Their slots were out of step by less than this when they were asked last, microseconds; None: not known yet.
    #[n(7)]
    pub skew_us: Option<u64>,
    /// A node that is worse, and by how much, if one is known.
    #[n(8)]
    pub worst: Option<(String, u64)>,
}

/// Passes in which some job waited and others behind it were looked at: who is backfilled starts in these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct BackfillCounts {
    /// Jobs that passed one that waits, since the controller started.
    #[n(0)]
    pub jobs_ever: u64,
    /// The same since the counters start.
    #[n(1)]
    pub jobs: u64,
    /// Such passes.
    #[n(2)]
    pub cycles: u64,
    /// When the last of them was.
    #[n(3)]
    pub last: Option<Time>,
    /// Its time, microseconds.
    #[n(4)]
    pub last_us: u64,
    /// The longest, microseconds.
    #[n(5)]
    pub max_us: u64,
    /// All together, microseconds.
    #[n(6)]
    pub total_us: u64,
    /// Jobs looked at behind one that waits, alike ones once: in the last, in all.
    #[n(7)]
    pub depth: (u64, u64),
    /// Those of them for which there was room beside what runs.
    #[n(8)]
    pub tried: (u64, u64),
    /// Jobs that were pending.
    #[n(9)]
    pub queue: (u64, u64),
    /// Times at which room was looked for to be kept.
    #[n(10)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct FabricCounts {
    /// Messages of nodes that reached the controller, of all kinds.
    #[n(0)]
    pub messages: u64,
    /// Time spent on them, microseconds.
    #[n(1)]
    pub messages_us: u64,
    /// Nodes that let go of a job, each counted once however often it was said: the oracle of `bench aggregate`.
    #[n(2)]
    pub node_epilogs: u64,
    /// Messages that carried reports of more than one node.
    #[n(3)]
    pub composites: u64,
    /// Reports of single nodes that these stood for.
    #[n(4)]
    pub composite_reports: u64,
    /// Messages with reports by how many they stood for: 1, 2-3, 4-7, …; index is the power of two.
    #[n(5)]
    pub windows: Vec<u64>,
    /// Reports of single nodes that told nothing new: said again after a way was lost, or of what had been given up.
    #[n(6)]
    pub repeats: u64,
    /// Pieces of files that were sent again because some node lacked them.
    #[n(7)]
    pub retransmits: u64,
    /// Bytes of files that were sent by multicast, each once for all nodes.
    #[n(8)]
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
