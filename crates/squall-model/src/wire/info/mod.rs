//! Data about jobs, nodes, partitions and counters, as clients show it.

mod controllers;
mod fabric;
mod page;
mod resources;
mod why;

pub use controllers::{ControllerInfo, ControllerRole};
pub use fabric::FabricCounts;
pub use page::JobsPage;
pub use resources::{LicenseInfo, SpecResources};
use std::sync::Arc;
pub use why::{Why, WhyChange, WhyMisfit, WhyPartition, WhySilent, WhySpan, WhyStart, WhyVacant};

use minicbor::{Decode, Encode};

use crate::billing::Billing;
use crate::checkpoint::CheckpointInfo;
use crate::config::PartitionConfig;
use crate::cost::{Losses, LostTime};
use crate::event::NodeAdmin;
use crate::fault::Fault;
use crate::gang::Coscheduling;
use crate::id::{Attempt, Epoch, JobId, StepNo};
use crate::job::{ArrayTask, ExitCode, Het, JobSpec, JobState, Outcome, Owner, PendingReason, Usage};
use crate::policy::PreemptMode;
use crate::power::Power;
use crate::reservation::Reservation;
use crate::resource::Hardware;
use crate::series::Series;
use crate::set::IndexSet;
use crate::time::{Span, Time};
use crate::wire::counts::{Latencies, NodeCounts};

/// Partition, account and QOS of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct JobClass {
    /// Partition in which the job runs; for a pending job: the requested or default partition.
    #[n(0)]
    pub partition: String,
    /// Account of the job: the requested or default one.
    #[n(1)]
    pub account: String,
    /// QOS of the job: the requested or default one.
    #[n(2)]
    pub qos: String,
}

/// A job, an array task, or several tasks of an array in one entry: tasks that are all pending, or have all ended in
/// the same way without starting.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct JobInfo {
    /// Id of the job; for an entry of several tasks: id of their array.
    #[n(0)]
    pub id: JobId,
    /// Array and index of an array task. None: the job is not an array task.
    #[n(1)]
    pub task: Option<ArrayTask>,
    /// For an entry of several array tasks: the tasks' indices. None: the entry is a single job or task.
    #[n(2)]
    pub pending_tasks: Option<IndexSet>,
    /// Most tasks of the array that run at once. None: no limit.
    #[n(3)]
    pub array_limit: Option<u32>,
    /// Index of the job's specification in [`JobsPage::specs`].
    #[n(4)]
    pub spec: u32,
    /// Index of the job's owner in [`JobsPage::owners`].
    #[n(5)]
    pub owner: u32,
    /// Index of the job's partition, account and QOS in [`JobsPage::classes`].
    #[n(6)]
    pub class: u32,
    /// State of the job.
    #[n(7)]
    pub state: JobState,
    /// Why the job is pending, held or not running at present.
    #[n(8)]
    pub reason: PendingReason,
    /// Number of the job's last attempt, from 1. 0: the job never started.
    #[n(9)]
    pub attempt: Attempt,
    /// Priority of the job. 0: the job is held.
    #[n(10)]
    pub priority: u32,
    /// When the job was submitted.
    #[n(11)]
    pub submit: Time,
    /// When the job first could have started, its begin time and dependencies considered. 0: not known yet.
    #[n(12)]
    pub eligible: Time,
    /// When the last attempt started; for a pending job: the expected start. None: not known.
    #[n(13)]
    pub start: Option<Time>,
    /// When the job ended; for a running job: when its time limit ends it. None: not known, or unlimited.
    #[n(14)]
    pub end: Option<Time>,
    /// Time limit in seconds; None: unlimited.
    #[n(15)]
    pub time_limit_s: Option<u64>,
    /// Number of nodes; for a pending job: the fewest that it will have.
    #[n(16)]
    pub num_nodes: u32,
    /// Number of CPUs; for a pending job: the fewest that it will have.
    #[n(17)]
    pub num_cpus: u32,
    /// Number of tasks of the job.
    #[n(18)]
    pub num_tasks: u32,
    /// Memory over all nodes, MiB; for a pending job: the memory that it will have. 0: no limit.
    #[n(19)]
    pub memory_mb: u64,
    /// Dependencies not satisfied yet, as text (`afterok:12(unfulfilled)`).
    #[n(20)]
    pub dependency: String,
    /// The heterogeneous job of which this is a component. None: it is not a component.
    #[n(21)]
    pub het: Option<Het>,
    /// Data of the last attempt, or of a job that ended without one. None: the job is pending and has never run.
    #[n(22)]
    pub run: Option<Box<RunInfo>>,
    /// How often the job was requeued after it had run.
    #[n(23)]
    #[cbor(default)]
    pub restarts: u32,
    /// The job's last checkpoint. None: it never had one. The numbers from 24 to 27 are left out.
    #[n(28)]
    pub checkpoint: Option<Box<CheckpointInfo>>,
    /// What the job is billed, or a pending job will be. None: its CPUs.
    #[n(29)]
    pub billing: Option<Billing>,
}

impl JobInfo {
    /// Returns the data of the last attempt, or empty data if there was none.
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
            places: None,
            progress: None,
        };
        self.run.as_deref().unwrap_or(&NONE)
    }
}

/// Data of a job's last attempt, which runs or has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct RunInfo {
    /// Exit codes of the job. None: the job is neither completing nor ended.
    #[n(0)]
    pub outcome: Option<Outcome>,
    /// Highest exit code of the job's steps.
    #[n(1)]
    pub derived_exit: ExitCode,
    /// When the job was last suspended. None: never in this attempt.
    #[n(2)]
    pub suspended: Option<Time>,
    /// How long the job did not run since its start, because it was suspended or waited for its gang scheduling slot.
    #[n(3)]
    pub idle: Span,
    /// Names of the job's nodes, as a host list. Empty: none.
    #[n(4)]
    pub nodes: String,
    /// Name of the first node, on which the batch script runs.
    #[n(5)]
    pub batch_host: String,
    /// CPUs on each group of equal nodes, as shown by `CPU_IDs`: nodes as a host list, cores as a list, memory in MiB.
    #[n(6)]
    pub per_node: Vec<(String, String, u64)>,
    /// Generic resources on each group of equal nodes: host list, and text such as `gpu:2(IDX:0-1)`.
    #[n(7)]
    pub gres: Vec<(String, String)>,
    /// Steps of the job. Empty unless the request includes them.
    #[n(8)]
    pub steps: Vec<StepInfo>,
    /// Spare nodes, and places of failed nodes. None: the job has neither.
    #[n(9)]
    pub places: Option<Box<PlacesInfo>>,
    /// What the job said last of its progress. None: nothing.
    #[n(10)]
    pub progress: Option<String>,
}

/// Spare nodes of a job, and its failed nodes that are to be replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct PlacesInfo {
    /// Names of the spare nodes, as a host list.
    #[n(0)]
    pub spares: String,
    /// Names of failed nodes that wait to be replaced, as a host list.
    #[n(1)]
    pub vacant: String,
}

/// Where and when a pending job is expected to start.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ExpectedStart {
    /// Id of the job; for the next task of an array: id of the array.
    #[n(0)]
    pub id: JobId,
    /// When the job is expected to start.
    #[n(1)]
    pub time: Time,
    /// Names of the nodes on which the job would start, as a host list.
    #[n(2)]
    pub nodes: String,
}

/// A step of a job, as clients show it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StepInfo {
    /// Number of the step.
    #[n(0)]
    pub step: StepNo,
    /// Name of the step.
    #[n(1)]
    pub name: String,
    /// Names of the step's nodes, as a host list.
    #[n(2)]
    pub nodes: String,
    /// Number of nodes of the step.
    #[n(3)]
    pub num_nodes: u32,
    /// Number of CPUs of the step.
    #[n(4)]
    pub num_cpus: u32,
    /// Number of tasks of the step.
    #[n(5)]
    pub num_tasks: u32,
    /// Memory over all nodes of the step, MiB. 0: none was requested.
    #[n(6)]
    pub memory_mb: u64,
    /// When the step started.
    #[n(7)]
    pub start: Time,
    /// Time limit of the step, seconds. None: the step may run as long as the job.
    #[n(8)]
    pub time_limit_s: Option<u64>,
    /// When and how the step ended. None: it is running.
    #[n(9)]
    pub end: Option<(Time, Outcome)>,
    /// Ports that the step has reserved on its nodes. None: it has none.
    #[n(13)]
    pub ports: Option<IndexSet>,
    /// `--cpu-freq` of the step, as given. None: not given.
    #[n(14)]
    pub cpu_freq: Option<String>,
    /// Generic resources that the step asked for on each node: `gres/gpu:1`. None: it asked for none of its own.
    #[n(15)]
    pub tres_per_node: Option<String>,
}

/// State, hardware and description of a node, as clients show it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct NodeInfo {
    /// Name of the node.
    #[n(0)]
    pub name: String,
    /// Whether the node counts as up. It stays up for a while after it stops responding.
    #[n(1)]
    pub up: bool,
    /// Whether the node responds at present.
    #[n(2)]
    pub responds: bool,
    /// Whether the node has ever registered.
    #[n(3)]
    pub known: bool,
    /// State of the node as set by an operator.
    #[n(4)]
    pub admin: NodeAdmin,
    /// Why the node is down or drained: reason, uid of the user that set it, time. None: no reason is set.
    #[n(5)]
    pub reason: Option<(String, u32, Time)>,
    /// Hardware of the node.
    #[n(6)]
    #[cbor(with = "crate::encoding::arc")]
    pub hardware: Arc<Hardware>,
    /// Features that the node may have.
    #[n(7)]
    pub features: Vec<String>,
    /// Weight of the node. Nodes of lower weight are allocated first.
    #[n(8)]
    pub weight: u32,
    /// Operators' comment on the node.
    #[n(9)]
    pub comment: String,
    /// Text on the node for other programs.
    #[n(10)]
    pub extra: String,
    /// Id and type of the machine in a cloud, as set by an operator. Empty: not set.
    #[n(11)]
    pub instance: (String, String),
    /// CPUs allocated to jobs.
    #[n(12)]
    pub cpus_used: u32,
    /// Memory allocated to jobs, MiB.
    #[n(13)]
    pub memory_used_mb: u64,
    /// Number of jobs running on the node.
    #[n(14)]
    pub jobs_running: u32,
    /// Number of jobs completing on the node.
    #[n(15)]
    pub jobs_completing: u32,
    /// Load average of the node over one minute, times 100.
    #[n(16)]
    pub load_centi: u32,
    /// Free memory of the node, MiB.
    #[n(17)]
    pub free_mb: u64,
    /// When the node daemon last registered.
    #[n(18)]
    pub registered: Time,
    /// When the controller last received a message from the node.
    #[n(19)]
    pub heard: Time,
    /// Names of the node's partitions.
    #[n(20)]
    pub partitions: Vec<String>,
    /// Version of the node daemon.
    #[n(21)]
    pub version: String,
    /// Generic resources of the node, as `gpu:a100:4`.
    #[n(22)]
    pub gres: String,
    /// Generic resources allocated to jobs, as `gpu:a100:2(IDX:0-1)`.
    #[n(23)]
    pub gres_used: String,
    /// Name of the reservation that is active on the node. Empty: none.
    #[n(24)]
    pub reservation: String,
    /// Whether the active reservation is for maintenance.
    #[n(25)]
    pub maint: bool,
    /// Whether the node was ordered to reboot. None: no reboot is to come. The numbers 26 to 39 are left out.
    #[n(40)]
    pub reboot: Option<bool>,
    /// Power of the node. None: it is up as far as is known. The numbers 41 to 43 are left out.
    #[n(44)]
    pub power: Option<Power>,
    /// Whether the node comes and goes with its power (`State=CLOUD`).
    #[n(45)]
    #[cbor(default)]
    pub cloud: bool,
    /// Whether the node is `FUTURE`: it has yet to join. The numbers from 41 to 49 are left out.
    #[n(50)]
    #[cbor(default)]
    pub future: bool,
    /// What of the node is kept for the system; None: nothing. The numbers 41 to 52 are left out.
    #[n(53)]
    pub kept: Option<SpecResources>,
    /// State of the node after the reboot that is to come (`nextstate=`). None: as before, or there is none to come.
    /// The numbers from 54 to 56 are left out.
    #[n(57)]
    pub next: Option<NodeAdmin>,
    /// Faults of the node, the newest last. The numbers from 58 to 59 are left out.
    #[n(60)]
    #[cbor(default)]
    pub faults: Vec<Fault>,
    /// When the node is resumed by itself (`ResumeAfter`). None: it is not. The numbers from 61 to 63 are left out.
    #[n(64)]
    pub resumes: Option<Time>,
}

/// Configuration and size of a partition, as clients show it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PartitionInfo {
    /// Configuration of the partition, with its present state.
    #[n(0)]
    pub config: PartitionConfig,
    /// What happens to preempted jobs of the partition: its own setting or the cluster's.
    #[n(1)]
    pub preempt_mode: PreemptMode,
    /// Names of the partition's nodes, as a host list.
    #[n(2)]
    pub nodes: String,
    /// Number of nodes of the partition.
    #[n(3)]
    pub num_nodes: u32,
    /// Number of CPUs of the partition.
    #[n(4)]
    pub num_cpus: u32,
    /// What a job with all of the partition would be billed. None: its CPUs.
    #[n(5)]
    pub billing: Option<Billing>,
}

/// A reservation, with the names of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ReservationInfo {
    /// The reservation, with its nodes by id.
    #[n(0)]
    pub reservation: Reservation,
    /// Names of the reserved nodes, as a host list.
    #[n(1)]
    pub nodes: String,
    /// Number of cores of the reserved nodes.
    #[n(2)]
    pub cores: u32,
    /// Number of CPUs of the reserved nodes.
    #[n(3)]
    pub cpus: u32,
}

/// A row of accounting: an attempt of a job, or a step in it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct AccountingRow {
    /// Id of the job.
    #[n(0)]
    pub id: JobId,
    /// Array and index of an array task. None: the job is not an array task.
    #[n(1)]
    pub task: Option<ArrayTask>,
    /// For a row of an array: indices of its tasks that have not started. None: the row is of a single job.
    #[n(2)]
    pub pending_tasks: Option<IndexSet>,
    /// Number of the attempt, from 1. 0: the job never started.
    #[n(3)]
    pub attempt: Attempt,
    /// Number of the step. None: the row is of the whole job.
    #[n(4)]
    pub step: Option<StepNo>,
    /// Specification of the job.
    #[n(5)]
    #[cbor(with = "crate::encoding::arc")]
    pub spec: Arc<JobSpec>,
    /// The user that submitted the job.
    #[n(6)]
    #[cbor(with = "crate::encoding::arc")]
    pub owner: Arc<Owner>,
    /// Name of the job or step.
    #[n(7)]
    pub name: String,
    /// Name of the partition.
    #[n(8)]
    pub partition: String,
    /// Name of the account.
    #[n(9)]
    pub account: String,
    /// Name of the QOS.
    #[n(10)]
    pub qos: String,
    /// State of the job or step, with the way in which it ended.
    #[n(11)]
    pub state: JobState,
    /// Exit code of the job or step.
    #[n(12)]
    pub exit: ExitCode,
    /// Highest exit code of the job's steps.
    #[n(13)]
    pub derived_exit: ExitCode,
    /// Reason for the state, as a text for users. None: no reason.
    #[n(14)]
    pub reason: Option<String>,
    /// When the job was submitted.
    #[n(15)]
    pub submit: Time,
    /// When the job first could have started, its begin time and dependencies considered. 0: not known yet.
    #[n(16)]
    pub eligible: Time,
    /// When the job or step started. None: it has not started.
    #[n(17)]
    pub start: Option<Time>,
    /// When the job or step ended. None: it has not ended.
    #[n(18)]
    pub end: Option<Time>,
    /// Time for which the job was suspended, seconds.
    #[n(19)]
    pub suspended_s: u64,
    /// Time limit in seconds; None: unlimited.
    #[n(20)]
    pub time_limit_s: Option<u64>,
    /// Names of the nodes of the job or step, as a host list.
    #[n(21)]
    pub nodes: String,
    /// Number of nodes of the job or step.
    #[n(22)]
    pub num_nodes: u32,
    /// Number of CPUs held by the job or step. 0: it never started.
    #[n(23)]
    pub num_cpus: u32,
    /// Number of CPUs that the job requested.
    #[n(24)]
    pub req_cpus: u32,
    /// Number of tasks of the job or step.
    #[n(25)]
    pub num_tasks: u32,
    /// Memory held by the job over all nodes, MiB.
    #[n(26)]
    pub memory_mb: u64,
    /// Resources that the tasks of the job or step used.
    #[n(27)]
    pub usage: Usage,
    /// The command line that submitted the job.
    #[n(28)]
    pub submit_line: String,
    /// The heterogeneous job of which this is a component. None: it is not a component.
    #[n(29)]
    pub het: Option<Het>,
    /// Nodes that the job has lost until the end of this run. None: it has lost none, or the row is of a step.
    #[n(30)]
    pub losses: Option<Box<Losses>>,
    /// What a step that has ended used over time. None: it was too short, or it was not asked for.
    #[n(31)]
    pub series: Option<Box<Series>>,
    /// What the job was billed. None: its CPUs, or the row is of a step.
    #[n(32)]
    pub billing: Option<Billing>,
    /// What the job would be billed for what it requested. None: its CPUs, or the row is of a step.
    #[n(33)]
    pub req_billing: Option<Billing>,
}

impl AccountingRow {
    /// Returns the row of a job that was just submitted: it counts one node and one CPU, and nothing else is known.
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
            losses: None,
            series: None,
            billing: None,
            req_billing: None,
        }
    }
}

/// Counters of the controller since its start or their last reset. `sdiag`, metrics and benchmarks all read these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Diag {
    /// When the counters were last 0: start of the controller or last reset.
    #[n(0)]
    pub since: Time,
    /// The controller's time when it made the answer.
    #[n(1)]
    pub now: Time,
    /// Number of jobs that were submitted.
    #[n(2)]
    pub jobs_submitted: u64,
    /// Number of jobs that were started.
    #[n(3)]
    pub jobs_started: u64,
    /// Number of jobs that ended with state COMPLETED.
    #[n(4)]
    pub jobs_completed: u64,
    /// Number of jobs that ended with state CANCELLED.
    #[n(5)]
    pub jobs_canceled: u64,
    /// Number of jobs that ended with any state but COMPLETED and CANCELLED.
    #[n(6)]
    pub jobs_failed: u64,
    /// Number of jobs pending at present; each task of an array counts.
    #[n(7)]
    pub jobs_pending: u64,
    /// Number of jobs running at present.
    #[n(8)]
    pub jobs_running: u64,
    /// Number of scheduling passes (runs of the scheduler over the queue).
    #[n(9)]
    pub cycles: u64,
    /// Duration of the last scheduling pass, microseconds.
    #[n(10)]
    pub cycle_last_us: u64,
    /// Duration of the longest scheduling pass, microseconds.
    #[n(11)]
    pub cycle_max_us: u64,
    /// Duration of all scheduling passes together, microseconds.
    #[n(12)]
    pub cycle_total_us: u64,
    /// Number of jobs tried in all scheduling passes together.
    #[n(13)]
    pub cycle_depth_total: u64,
    /// Number of jobs in the queue at the last scheduling pass.
    #[n(14)]
    pub queue_length: u64,
    /// Number of records (batches of events) written to the journal.
    #[n(15)]
    pub journal_records: u64,
    /// Number of events in the records written to the journal.
    #[n(16)]
    pub journal_events: u64,
    /// Length of the records written to the journal, bytes.
    #[n(17)]
    pub journal_bytes: u64,
    /// Number of times that the journal was flushed to disk.
    #[n(18)]
    pub journal_flushes: u64,
    /// Duration of all flushes of the journal together, microseconds.
    #[n(19)]
    pub flush_total_us: u64,
    /// Duration of the longest flush of the journal, microseconds.
    #[n(20)]
    pub flush_max_us: u64,
    /// Requests and node messages by kind: name, count, total processing time in microseconds.
    #[n(21)]
    pub messages: Vec<(String, u64, u64)>,
    /// Requests by user: uid, count, total processing time in microseconds.
    #[n(22)]
    pub users: Vec<(u32, u64, u64)>,
    /// Number of client connections at present.
    #[n(23)]
    pub clients: u64,
    /// Number of node connections at present.
    #[n(24)]
    pub nodes: u64,
    /// Counters of messages from nodes and of file transfers.
    #[n(25)]
    pub fabric: FabricCounts,
    /// State and counters of gang scheduling.
    #[n(26)]
    pub gang: GangCounts,
    /// Counters of backfill scheduling (starting jobs ahead of pending ones that precede them).
    #[n(27)]
    pub backfill: BackfillCounts,
    /// Number of broken invariants found since the controller started. Each is a bug in the program.
    #[n(28)]
    #[cbor(default)]
    pub broken: u64,
    /// Distributions of the durations that users and operators wait for.
    #[n(29)]
    #[cbor(default)]
    pub latency: Latencies,
    /// Counters of all node daemons together, as far as they have reported them since the counters of the controller
    /// were last 0.
    #[n(30)]
    #[cbor(default)]
    pub node_daemons: NodeCounts,
    /// When, and with which epoch, the state last began without its end, as it was restored from a backup or its end was
    /// lost. None: it never did.
    #[n(31)]
    pub restored: Option<(Time, Epoch)>,
    /// How often work of a running job stopped because it lost a node.
    #[n(32)]
    #[cbor(default)]
    pub nodes_lost: u64,
    /// What jobs lost with these nodes, as far as their work has started again or has ended.
    #[n(33)]
    #[cbor(default)]
    pub lost: LostTime,
}

impl Diag {
    /// Returns when the state was restored by a release that counted epochs on, so that a second restoration could run
    /// jobs again and give ids twice. None: it was not.
    pub fn restored_by_count(&self) -> Option<Time> {
        // As a time in microseconds, in January 1970.
        const COUNTED: Epoch = Epoch(1_000_000_000_000);
        self.restored.filter(|(_, epoch)| *epoch < COUNTED).map(|(time, _)| time)
    }
}

/// State and counters of gang scheduling.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct GangCounts {
    /// How jobs share the time of a core.
    #[n(0)]
    pub policy: Coscheduling,
    /// Length of a gang scheduling slot.
    #[n(1)]
    pub slice: Span,
    /// Number of jobs that share cores with others.
    #[n(2)]
    pub jobs: u64,
    /// Number of time slots in the longest round of the gang matrix. In a round each job has its turn.
    #[n(3)]
    pub rows: u32,
    /// Number of nodes on which jobs share cores.
    #[n(4)]
    pub nodes: u64,
    /// Number of changes of the gang matrix (jobs by time slot).
    #[n(5)]
    pub changes: u64,
    /// Number of messages with the controller's time, sent to nodes to keep their slots aligned.
    #[n(6)]
    pub strobes: u64,
    /// Bound in microseconds on the deviation of all nodes' slots from the controller's, measured at the last query.
    /// None: not known yet, or a node deviated more.
    #[n(7)]
    pub skew_us: Option<u64>,
    /// A node with slots that deviated too much from the controller's at the last query: its name, and the deviation in
    /// microseconds. None: no node deviated too much.
    #[n(8)]
    pub worst: Option<(String, u64)>,
}

/// Counters of backfill passes: scheduling passes in which a job stayed pending and jobs after it in the queue were
/// tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct BackfillCounts {
    /// Number of jobs started before a pending job that precedes them in the queue, since the controller started.
    #[n(0)]
    pub jobs_ever: u64,
    /// Number of jobs started before a pending job that precedes them in the queue, since the last reset of the
    /// counters.
    #[n(1)]
    pub jobs: u64,
    /// Number of backfill passes.
    #[n(2)]
    pub cycles: u64,
    /// When the last backfill pass was. None: there was none.
    #[n(3)]
    pub last: Option<Time>,
    /// Duration of the last backfill pass, microseconds.
    #[n(4)]
    pub last_us: u64,
    /// Duration of the longest backfill pass, microseconds.
    #[n(5)]
    pub max_us: u64,
    /// Duration of all backfill passes together, microseconds.
    #[n(6)]
    pub total_us: u64,
    /// Number of jobs tried that come after a pending one, equal jobs counted once: in the last pass, in all passes.
    #[n(7)]
    pub depth: (u64, u64),
    /// Number of tried jobs that fit next to the running jobs: in the last pass, in all passes.
    #[n(8)]
    pub tried: (u64, u64),
    /// Number of pending jobs: at the last pass, summed over all passes.
    #[n(9)]
    pub queue: (u64, u64),
    /// Number of points in time examined to find reservations for pending jobs: in the last pass, in all passes.
    #[n(10)]
    pub times: (u64, u64),
}

impl BackfillCounts {
    /// Adds the numbers of a scheduling pass at `now`: `started` jobs were started ahead of a pending one, and `queue`
    /// jobs were pending.
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

/// Numbers of one scheduling pass that concern jobs after a pending one in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// Number of jobs tried.
    pub depth: u64,
    /// Number of tried jobs that fit next to the running jobs.
    pub tried: u64,
    /// Number of points in time examined to find reservations for pending jobs.
    pub times: u64,
}
