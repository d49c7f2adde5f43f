//! Between client commands and the controller.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::config::{Config, PartitionConfig, PartitionState};
use crate::event::{NodeAdmin, NodeChange};
use crate::foreign::{Question, Reply};
use crate::id::{ClientKey, JobId, StepNo};
use crate::job::{ArrayTask, Digest, ExitCode, JobSpec, Outcome, Usage};
use crate::policy::{Limit, Policy, PolicyChange, Whose};
use crate::set::IndexSet;
use crate::step::{FirstStep, JobFacts, Layout, StepSpec, TaskProgram, Watcher};
use crate::time::Time;
use crate::wire::broadcast::Broadcast;
use crate::wire::fabric::{Bytes, Test, Variable};
use crate::wire::info::{
    AccountingRow, Diag, ExpectedStart, JobsPage, LicenseInfo, NodeInfo, PartitionInfo, ReservationInfo, Why,
};
use crate::wire::reservation::ReservationChange;
use crate::wire::standing::{Priorities, Share};

/// What a client asks. Who asks is what the socket says, never part of the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// `sbatch`. Answer: `Submitted`.
    Submit {
        /// What.
        #[serde(with = "super::shared")]
        spec: Arc<JobSpec>,
        /// Content of the script.
        script: ByteBuf,
        /// Content of the environment, entries ended by NUL.
        env: ByteBuf,
        /// Makes a retry harmless.
        key: ClientKey,
    },
    /// `sbatch --test-only`. Answer: `WouldStart`.
    TestSubmit {
        /// What.
        #[serde(with = "super::shared")]
        spec: Arc<JobSpec>,
    },
    /// `salloc`, and `srun` outside of an allocation. Answers: `Submitted`, then `Allocated` when it starts.
    /// The allocation lives as long as the connection (after a lost one: until `OWNER_GRACE_S` without `Attach`).
    Allocate {
        /// What.
        #[serde(with = "super::shared")]
        spec: Arc<JobSpec>,
        /// Content of the environment.
        env: ByteBuf,
        /// Makes a retry harmless.
        key: ClientKey,
        /// Refuse instead of waiting longer than so many seconds (`--immediate`).
        immediate_s: Option<u32>,
        /// What `srun` wants to run there: `Allocated` is followed by the answers of `CreateStep`.
        step: Option<Box<FirstStep>>,
    },
    /// The owner of an allocation is back on a new connection. Answer: `Allocated` when it has started.
    Attach {
        /// The job.
        job: JobId,
    },
    /// The owner is done with its allocation. Answer: `Done`.
    Finish {
        /// The job.
        job: JobId,
        /// Exit code to record.
        exit: ExitCode,
    },
    /// What a running allocation is, for `srun --jobid` and `srun` inside a job. Answer: `Allocated`.
    Facts {
        /// The job.
        job: JobId,
    },
    /// `srun` in an allocation. Answers: `StepCreated` when it has cores, `StepDone` when it has ended.
    CreateStep {
        /// The job.
        job: JobId,
        /// What.
        spec: Box<StepSpec>,
        /// What to run.
        program: Box<TaskProgram>,
        /// Makes a retry harmless, and brings the program again to a restarted controller.
        key: ClientKey,
    },
    /// Tell me when the job has ended (`sbatch --wait`). Answer: `JobDone`.
    AwaitJob {
        /// The job; an array: when all its tasks have ended, with the highest exit code.
        job: JobId,
    },
    /// `scancel`. Answer: `Affected`.
    Cancel {
        /// Which jobs.
        jobs: JobSelection,
        /// Signal and target instead of the end.
        signal: Option<(i32, crate::wire::node::SignalTarget)>,
        /// Only this step.
        step: Option<StepNo>,
        /// Name those to whom it does not apply (already ended, not found) in the answer.
        verbose: bool,
    },
    /// `scontrol hold`, `uhold`. Answer: `Affected`.
    Hold {
        /// Which jobs.
        jobs: JobSelection,
        /// `uhold`: as its user would.
        user: bool,
    },
    /// `scontrol release`. Answer: `Affected`.
    Release {
        /// Which jobs.
        jobs: JobSelection,
    },
    /// `scontrol requeue`, `requeuehold`. Answer: `Affected`, before the job's processes are ended.
    Requeue {
        /// Which jobs.
        jobs: JobSelection,
        /// Held afterwards.
        hold: bool,
        /// The job from within which is asked, as it says: that one runs again however its script ends.
        from: Option<JobId>,
    },
    /// `scontrol suspend`, `resume`. Answer: `Affected`.
    Suspend {
        /// Which jobs.
        jobs: JobSelection,
        /// False: go on.
        suspend: bool,
    },
    /// `scontrol update jobid=`. Answer: `Affected`.
    UpdateJob {
        /// Which jobs.
        jobs: JobSelection,
        /// What.
        change: Box<JobUpdate>,
    },
    /// `sattach`. Answers: `StepCreated`, and `StepDone` when it has ended.
    Watch {
        /// The job.
        job: JobId,
        /// A step of it that runs.
        step: StepNo,
        /// Whom its step daemons are to call; None: nobody, only the layout is wanted.
        watcher: Option<Watcher>,
    },
    /// `scontrol notify`. Answer: `Done`.
    Notify {
        /// The job.
        job: JobId,
        /// What its user is to be told: a batch script in its standard error, `srun` and `salloc` in theirs.
        text: String,
    },
    /// `sstat`. Answer: `Measured`.
    Measure {
        /// The job.
        job: JobId,
        /// A step of it that runs.
        step: StepNo,
    },
    /// `scontrol update nodename=`. Answer: `Done`.
    UpdateNodes {
        /// A host list.
        nodes: String,
        /// What they are for; None: as before.
        admin: Option<NodeAdmin>,
        /// The reason given.
        reason: Option<String>,
        /// What else changes.
        change: Option<Box<NodeChange>>,
    },
    /// `scontrol update partitionname=`. Answer: `Done`.
    UpdatePartition {
        /// Its name.
        name: String,
        /// Its new state.
        state: PartitionState,
    },
    /// `scontrol create`, `update` and `delete partition`. Answer: `Done`.
    ChangePartition {
        /// Its name.
        name: String,
        /// What it was when the caller looked (`Stale` if it is another by now); None: there was none.
        was: Option<Box<PartitionConfig>>,
        /// What it is to be; None: nothing.
        now: Option<Box<PartitionConfig>>,
    },
    /// `squeue`, `scontrol show job`. Answers: `Jobs` pages.
    Jobs {
        /// Which jobs; pending tasks of an array come as one.
        jobs: JobSelection,
        /// With jobs that have ended but are still in memory.
        ended: bool,
        /// With their steps.
        steps: bool,
    },
    /// `sinfo`, `scontrol show node`. Answer: `Nodes`.
    Nodes,
    /// `sinfo`, `scontrol show partition`. Answer: `Partitions`.
    Partitions,
    /// `scontrol show config`. Answer: `Config`.
    Config,
    /// `scontrol ping`, and whether the cluster is ready. Answer: `Pong`.
    Ping,
    /// `sdiag`. Answer: `Diag`.
    Diag {
        /// Set the counters to zero afterwards.
        reset: bool,
    },
    /// `sacct`. Answers: `Accounting` pages. Consistent with everything acknowledged before.
    Accounting(Box<AccountingQuery>),
    /// `sacctmgr modify job`: names of [`super::history::RECORDED`] and their new values. Answer: `Done`.
    Record(JobId, Vec<(String, String)>),
    /// `sreport cluster utilization`, `sacctmgr show event`, `transaction` and `reservation`. Answers: `History` pages.
    History,
    /// `scontrol write batch_script`: the script of a job. Answer: `Script`.
    Script {
        /// The job.
        job: JobId,
    },
    /// `scontrol reconfigure`: the host reads the file and fills in `config`. Answer: `Done`.
    Reconfigure {
        /// The new configuration; None as sent by a client.
        config: Option<Box<Config>>,
    },
    /// `squall down`, `scontrol shutdown`. Answer: `Done` when running jobs were dealt with.
    ShutDown {
        /// Running jobs are left alone (else ended and requeued).
        keep_jobs: bool,
    },
    /// COMPARE-AND-WRITE, for operators. Answer: `Queried`.
    QueryNodes {
        /// Of which nodes, a host list; empty: all that are connected.
        nodes: String,
        /// What is asked.
        test: Test,
        /// Answer only when it holds, or time is up.
        wait: bool,
        /// Written on all of these nodes if it holds on all.
        write: Option<(Variable, i64)>,
        /// How long it may take, milliseconds.
        time_ms: u64,
    },
    /// XFER-AND-SIGNAL: a file to nodes (`sbcast`, `srun --bcast`). Answers: `Want` for pieces that some node lacks, each
    /// to be followed by the `Chunk`s, and `Broadcast` at the end.
    Broadcast(Box<Broadcast>),
    /// A piece of the file that is being broadcast on this connection. No answer.
    Chunk {
        /// Where it begins.
        at: u64,
        /// The piece.
        bytes: Bytes,
    },
    /// The digest of a file that the caller brought before, if its name (see `Broadcast::known_as`) is remembered: so
    /// that who brings it again need not read it. Answer: `Recalled`.
    Recall {
        /// The name.
        known_as: Digest,
    },
    /// `scontrol show licenses`. Answer: `Licenses`.
    Licenses,
    /// `sacctmgr show`: accounts, users, associations, levels of service. Answer: `Policy`.
    Policy,
    /// `sacctmgr add`, `modify`, `delete`. Answer: `Done`.
    ChangePolicy {
        /// The version of what was changed.
        version: u64,
        /// The changes, in this order.
        changes: Vec<PolicyChange>,
    },
    /// `sprio`. Answer: `Priorities`.
    Priorities {
        /// Which jobs.
        jobs: JobSelection,
    },
    /// `sshare`. Answer: `Shares`.
    Shares,
    /// `squeue --start`: when those that wait first are expected to start. Answer: `Expected`.
    Expected,
    /// `scontrol show reservation`. Answer: `Reservations`.
    Reservations,
    /// `scontrol create reservation`, `update reservation`. Answer: `Reserved`.
    Reserve {
        /// What.
        change: Box<ReservationChange>,
        /// A new one: without a name it gets one.
        create: bool,
    },
    /// `scontrol delete reservation`. Answer: `Done`.
    Unreserve {
        /// Its name.
        name: String,
    },
    /// `squall why`. Answer: `Why`.
    Why {
        /// The job.
        job: JobId,
    },
    /// A heterogeneous job. Answers: those of `Submit` or `Allocate`, whichever the first component is for.
    SubmitHet {
        /// The components, the first of which has the script or the owner.
        specs: Vec<JobSpec>,
        /// Content of the script; empty for an allocation.
        script: ByteBuf,
        /// Content of the environment, entries ended by NUL.
        env: ByteBuf,
        /// Makes a retry harmless.
        key: ClientKey,
        /// Refuse instead of waiting longer than so many seconds (`--immediate`).
        immediate_s: Option<u32>,
    },
    /// A front carries questions between cells: what jobs of this one depend on in others. Answers: `Unresolved`, now and
    /// as long as the connection lasts. For operators, as are the next two.
    Unresolved,
    /// What another cell wants to know. Answers: `Resolved`, each question once, when it has come about.
    Resolve {
        /// The questions.
        questions: Vec<Question>,
    },
    /// What other cells have answered. Answer: `Done`.
    Resolved {
        /// Questions and answers.
        replies: Vec<(Question, Reply)>,
    },
    /// `scontrol update stepid=`. Answer: `Done`.
    UpdateStep {
        /// The job.
        job: JobId,
        /// A step of it that runs; None: all of them.
        step: Option<StepNo>,
        /// Seconds since the step's start; None: as long as the job.
        time_limit_s: Option<u64>,
    },
    /// `scontrol top`. Answer: `Affected`.
    Top {
        /// Which jobs, by id, in the order in which they are to go.
        jobs: JobSelection,
    },
}

impl Request {
    /// The same submission under another key: another one, to all who don't know the first.
    pub fn rekey(&mut self, new: ClientKey) {
        if let Self::Submit { key, .. } | Self::Allocate { key, .. } | Self::SubmitHet { key, .. } = self {
            *key = new;
        }
    }
}

/// Which jobs a request is about. All conditions that are set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSelection {
    /// By id; empty: any.
    pub ids: Vec<JobRef>,
    /// By user id; empty: any.
    pub users: Vec<u32>,
    /// By partition name; empty: any.
    pub partitions: Vec<String>,
    /// By job name; empty: any.
    pub names: Vec<String>,
    /// By account; empty: any.
    pub accounts: Vec<String>,
    /// By QOS; empty: any.
    pub qos: Vec<String>,
    /// By state; empty: any (of those not ended, if the request doesn't ask for ended ones).
    pub states: Vec<StateFilter>,
    /// By node: jobs that hold one of these (a host list).
    pub nodes: Option<String>,
}

/// How users name jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobRef {
    /// `123`: a job, all tasks of an array, or all components of a heterogeneous job.
    Job(JobId),
    /// `123_4`, `123_[1-4,9]`: tasks of an array.
    Tasks(JobId, IndexSet),
    /// `123+1`: one component of a heterogeneous job.
    Component(JobId, u32),
}

/// A state as a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StateFilter {
    /// PENDING
    Pending,
    /// RUNNING
    Running,
    /// SUSPENDED
    Suspended,
    /// COMPLETING
    Completing,
    /// COMPLETED
    Completed,
    /// CANCELLED
    Cancelled,
    /// FAILED
    Failed,
    /// TIMEOUT
    Timeout,
    /// NODE_FAIL
    NodeFail,
    /// OUT_OF_MEMORY
    OutOfMemory,
    /// PREEMPTED
    Preempted,
    /// DEADLINE
    Deadline,
    /// BOOT_FAIL
    BootFail,
    /// REQUEUED: pending again after a requeue
    Requeued,
    /// A state that Slurm knows and Squall never has (STOPPED, CONFIGURING, …): matches nothing.
    Never,
}

/// What `scontrol update job` asks, by Slurm's words. None: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUpdate {
    /// TimeLimit, seconds; Some(None): UNLIMITED. (The client resolves `+` and `-` itself.)
    pub time_limit_s: Option<Option<u64>>,
    /// Priority; 0 holds.
    pub priority: Option<u32>,
    /// Nice.
    pub nice: Option<i32>,
    /// JobName.
    pub name: Option<String>,
    /// Partition.
    pub partition: Option<String>,
    /// Account.
    pub account: Option<String>,
    /// QOS.
    pub qos: Option<String>,
    /// Comment.
    pub comment: Option<String>,
    /// StartTime / EligibleTime.
    pub begin: Option<Time>,
    /// Dependency; Some(None): none any more.
    pub dependency: Option<Option<crate::job::Dependency>>,
    /// NumNodes (minimum, maximum).
    pub nodes: Option<(u32, Option<u32>)>,
    /// NumTasks.
    pub ntasks: Option<u32>,
    /// NumCPUs per task.
    pub cpus_per_task: Option<u32>,
    /// MinMemoryNode / MinMemoryCPU.
    pub memory: Option<crate::resource::Memory>,
    /// ReqNodeList; Some(None): none any more.
    pub nodelist: Option<Option<String>>,
    /// ExcNodeList; Some(None): none any more.
    pub exclude: Option<Option<String>>,
    /// Features; Some(None): none any more.
    pub constraint: Option<Option<String>>,
    /// Requeue=0|1.
    pub requeue: Option<bool>,
    /// ArrayTaskThrottle; Some(None): no limit.
    pub array_limit: Option<Option<u32>>,
    /// StdOut pattern.
    pub stdout: Option<String>,
    /// StdErr pattern.
    pub stderr: Option<String>,
    /// WorkDir.
    pub work_dir: Option<String>,
    /// MailUser.
    pub mail_user: Option<String>,
    /// MailType.
    pub mail_type: Option<String>,
    /// Deadline.
    pub deadline: Option<Time>,
    /// TimeMin, seconds; 0: none any more.
    pub time_min_s: Option<u64>,
    /// EndTime of a running job.
    pub end: Option<Time>,
    /// WCKey.
    pub wckey: Option<String>,
    /// ReservationName; Some(None): none any more.
    pub reservation: Option<Option<String>>,
    /// OverSubscribe: whether it shares its resources, and whether it wants whole nodes.
    pub oversubscribe: Option<(bool, bool)>,
    /// Contiguous.
    pub contiguous: Option<bool>,
    /// Gres, TresPerNode; Some(None): none any more.
    pub gres: Option<Option<String>>,
    /// Licenses; Some(None): none any more.
    pub licenses: Option<Option<String>>,
    /// MinCPUsNode.
    pub cpus_min: Option<u32>,
    /// MinTmpDiskNode, MiB.
    pub tmp_disk_mb: Option<u64>,
    /// TasksPerNode.
    pub ntasks_per_node: Option<u32>,
    /// StdIn pattern.
    pub stdin: Option<String>,
    /// Options that are kept by name (`admin-comment`, `extra`, `switches`, …); None: none any more.
    pub others: Vec<(String, Option<String>)>,
}

/// What `sacct` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountingQuery {
    /// By id; empty: any.
    pub ids: Vec<JobRef>,
    /// By step of these ids (`-j 12.0`, `12.batch`): only that step's rows.
    pub step: Option<StepNo>,
    /// By user id; empty: any.
    pub users: Vec<u32>,
    /// By state; empty: any.
    pub states: Vec<StateFilter>,
    /// By job name; empty: any.
    pub names: Vec<String>,
    /// By partition; empty: any.
    pub partitions: Vec<String>,
    /// By account; empty: any.
    pub accounts: Vec<String>,
    /// By node (a host list).
    pub nodes: Option<String>,
    /// Jobs in the given states (or, without states, that existed) after this time.
    pub start: Option<Time>,
    /// … and before this time.
    pub end: Option<Time>,
    /// Without step rows.
    pub allocations_only: bool,
    /// Also earlier attempts of requeued jobs.
    pub duplicates: bool,
}

/// An answer. Some requests get several, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Accepted, durably. The id is given to nobody else.
    Submitted {
        /// The job's or array's id.
        job: JobId,
        /// Why an allocation will wait, if that can be said at once: what `--immediate` would be refused for.
        note: Option<Refusal>,
    },
    /// When it would start.
    WouldStart {
        /// The id that it might have.
        job: JobId,
        /// When.
        time: Time,
        /// CPUs.
        cpus: u32,
        /// Host list.
        nodes: String,
        /// Name of the partition.
        partition: String,
    },
    /// The allocation runs.
    Allocated(Box<JobFacts>),
    /// The step runs (or is about to).
    StepCreated {
        /// Its number.
        step: StepNo,
        /// Which task runs where.
        layout: Box<Layout>,
        /// Facts of the allocation.
        facts: Box<JobFacts>,
        /// Seconds between TERM and KILL for a step that is ended.
        kill_wait_s: u64,
    },
    /// The step has ended, durably.
    StepDone {
        /// Its number.
        step: StepNo,
        /// How.
        outcome: Outcome,
    },
    /// The job has ended, durably.
    JobDone {
        /// The job.
        job: JobId,
        /// How (arrays: of the task with the highest exit code).
        outcome: Outcome,
    },
    /// Done, durably.
    Done,
    /// What was done to which jobs, durably; and to which it could not be done.
    Affected {
        /// The jobs.
        jobs: Vec<JobName>,
        /// Why not: the job as asked for, and the refusal.
        refused: Vec<(JobName, Refusal)>,
    },
    /// Jobs.
    Jobs(Box<JobsPage>),
    /// Nodes.
    Nodes(Vec<NodeInfo>),
    /// Partitions.
    Partitions(Vec<PartitionInfo>),
    /// The configuration.
    Config(Box<Config>),
    /// The controller lives.
    Pong {
        /// Its host.
        host: String,
        /// Its version.
        version: String,
        /// Nodes that have registered and are not down.
        nodes_up: u32,
        /// Nodes that the configuration expects.
        nodes_expected: u32,
        /// Why submissions are refused at present, if they are.
        trouble: Option<String>,
        /// When it started.
        started: Time,
        /// The id of the next job.
        next_job: JobId,
    },
    /// Counters.
    Diag(Box<Diag>),
    /// Accounting rows.
    Accounting {
        /// The rows, by submission.
        rows: Vec<AccountingRow>,
        /// Another page follows.
        more: bool,
        /// On the last page: of jobs in these ranges, both ends included, rows may be missing.
        lost: Vec<(JobId, JobId)>,
    },
    /// What accounting keeps beside jobs, in the order in which it happened, and whether another page follows.
    History(Vec<super::history::HistoryRow>, bool),
    /// A batch script.
    Script(ByteBuf),
    /// No.
    Refused(Refusal),
    /// Of the nodes that were asked, it holds on all but these.
    Queried {
        /// Where it does not hold.
        no: Vec<String>,
        /// Who did not answer in time.
        unreachable: Vec<String>,
    },
    /// These bytes of the file are wanted, in pieces of that length, after all that were wanted before.
    Want {
        /// The first.
        from: u64,
        /// After the last.
        through: u64,
        /// Length of a piece.
        chunk_bytes: u32,
    },
    /// All nodes have the file, or none has got it.
    Broadcast {
        /// Nodes that have it.
        nodes: u32,
        /// Nodes to which its bytes had to be sent.
        sent: u32,
        /// Where it failed, with one of the reasons: an error number, 0 if the node does not answer.
        failed: Option<(Vec<String>, i32)>,
    },
    /// What the tasks of a running step have used so far, and how many of its nodes did not say.
    Measured(Usage, u32),
    /// To the owner of an allocation: for its user.
    Notice(String),
    /// The digest of a file.
    Recalled(Option<Digest>),
    /// Licenses, by name.
    Licenses(Vec<LicenseInfo>),
    /// Accounts, users, associations, levels of service.
    Policy(Box<Policy>),
    /// What priorities are made of.
    Priorities(Box<Priorities>),
    /// Accounts and their users, each account before what is below it.
    Shares(Vec<Share>),
    /// Starts as they are foretold, of jobs that wait.
    Expected(Vec<ExpectedStart>),
    /// Reservations, by name.
    Reservations(Vec<ReservationInfo>),
    /// The reservation of that name stands, durably.
    Reserved(String),
    /// Why a job waits.
    Why(Box<Why>),
    /// What comes next is without what these cells have, which don't answer.
    Without(Vec<u32>),
    /// Questions for other cells that were not told on this connection.
    Unresolved(Vec<Question>),
    /// Answers for another cell.
    Resolved(Vec<(Question, Reply)>),
}

/// A job as users name it: `123` or `123_4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobName {
    /// The job's own id.
    pub id: JobId,
    /// Which array task it is.
    pub task: Option<ArrayTask>,
}

impl std::fmt::Display for JobName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.task {
            Some(t) => write!(f, "{}_{}", t.array, t.index),
            None => self.id.fmt(f),
        }
    }
}

/// Why a request is refused. The texts that users see are Slurm's and stand in the cli.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// No such job.
    InvalidJobId,
    /// No such step.
    InvalidStepId,
    /// No such partition.
    InvalidPartition(String),
    /// The partition takes no jobs.
    PartitionNotAvailable(String),
    /// No such node: the name.
    InvalidNode(String),
    /// No such account.
    InvalidAccount(String),
    /// No such QOS.
    InvalidQos(String),
    /// A value can't be: option and value and what is wrong.
    InvalidValue {
        /// The option.
        option: String,
        /// The value.
        value: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// No node of the partition could ever hold it: which resource.
    NodeConfigNotAvailable(String),
    /// More nodes or tasks than the allocation has.
    TooManyRequested(String),
    /// A dependency names a job that is not known, or itself.
    DependencyProblem,
    /// The caller may not.
    AccessDenied,
    /// The job has ended already.
    AlreadyDone,
    /// The job is not pending (any more).
    NotPending,
    /// The job is not running.
    NotRunning,
    /// The job is not in a state for that.
    WrongState(String),
    /// The job was submitted with `--no-requeue`, or is not a batch job.
    NotRequeueable,
    /// Held by the operator: the user can't release it.
    HeldByAdmin,
    /// The job is held: only a release changes that.
    Held,
    /// The array is larger than the site allows.
    ArrayTooLarge {
        /// The highest index allowed.
        highest: u32,
    },
    /// A script, environment or string is too long: what, and the limit in bytes.
    TooLarge(String, u64),
    /// The queue holds as many jobs as the site allows.
    QueueFull(u32),
    /// The controller's disk is full: nothing new is accepted, running jobs go on.
    DiskFull,
    /// The key was used before for something else.
    KeyReused,
    /// `--immediate`: nothing was free in time.
    Busy,
    /// `--immediate`: jobs of the partition do not start now.
    PartitionDown(String),
    /// `--immediate`: nodes that are named are down, drained or reserved.
    NodeNotAvailable,
    /// The allocation has been ended or cancelled.
    Revoked,
    /// The request is not one that this controller understands.
    NotSupported(String),
    /// The controller is going down.
    ShuttingDown,
    /// A limit is reached, and jobs above it are not even queued.
    Limit(Whose, Limit),
    /// What was to be changed has changed meanwhile.
    Stale,
    /// What is set up would contradict itself: what, and why.
    Contradiction(String, String),
    /// There is no such reservation, or what is asked of it can't be: in words.
    ReservationInvalid(String),
    /// The reservation is not for this user.
    ReservationAccess(String),
    /// Running jobs use the reservation.
    ReservationBusy(String),
    /// Another reservation has some of the nodes at some of the time: which.
    ReservationOverlap(String),
    /// An array can't be a component of a heterogeneous job.
    HetArray,
    /// That cell does not answer, and was not told of the request.
    CellAway(u32),
    /// So many job ids are not left.
    OutOfIds,
    /// Jobs of the partition wait or run.
    PartitionBusy(String),
}
