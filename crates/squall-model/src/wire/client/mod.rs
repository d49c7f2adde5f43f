//! Between client commands and the controller.

mod answer;

pub use answer::{Answer, JobName, Refusal};
use std::sync::Arc;

use crate::encoding::ByteBuf;
use minicbor::{Decode, Encode};

use crate::config::{Config, PartitionConfig, PartitionState};
use crate::event::{NodeAdmin, NodeChange};
use crate::foreign::{Question, Reply};
use crate::id::{ClientKey, JobId, StepNo};
use crate::job::network::Switches;
use crate::job::options::AsGiven;
use crate::job::{Digest, ExitCode, JobSpec};
use crate::policy::PolicyChange;
use crate::set::IndexSet;
use crate::step::{FirstStep, StepSpec, TaskProgram, Watcher};
use crate::time::Time;
use crate::wire::broadcast::Broadcast;
use crate::wire::fabric::{Bytes, Test, Variable};
use crate::wire::reservation::ReservationChange;

/// What a client asks. Who asks is what the socket says, never part of the message.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Request {
    /// `sbatch`. Answer: `Submitted`.
    #[n(0)]
    Submit {
        /// What.
        #[n(0)]
        #[cbor(with = "crate::wire::shared")]
        spec: Arc<JobSpec>,
        /// Content of the script.
        #[n(1)]
        script: ByteBuf,
        /// Content of the environment, entries ended by NUL.
        #[n(2)]
        env: ByteBuf,
        /// Makes a retry harmless.
        #[n(3)]
        key: ClientKey,
    },
    /// `sbatch --test-only`. Answer: `WouldStart`.
    #[n(1)]
    TestSubmit {
        /// What.
        #[n(0)]
        #[cbor(with = "crate::wire::shared")]
        spec: Arc<JobSpec>,
    },
    /// `salloc`, and `srun` outside of an allocation. Answers: `Submitted`, then `Allocated` when it starts.
    /// The allocation lives as long as the connection (after a lost one: until `OWNER_GRACE_S` without `Attach`).
    #[n(2)]
    Allocate {
        /// What.
        #[n(0)]
        #[cbor(with = "crate::wire::shared")]
        spec: Arc<JobSpec>,
        /// Content of the environment.
        #[n(1)]
        env: ByteBuf,
        /// Makes a retry harmless.
        #[n(2)]
        key: ClientKey,
        /// Refuse instead of waiting longer than so many seconds (`--immediate`).
        #[n(3)]
        immediate_s: Option<u32>,
        /// What `srun` wants to run there: `Allocated` is followed by the answers of `CreateStep`.
        #[n(4)]
        step: Option<Box<FirstStep>>,
    },
    /// The owner of an allocation is back on a new connection. Answer: `Allocated` when it has started.
    #[n(3)]
    Attach {
        /// The job.
        #[n(0)]
        job: JobId,
    },
    /// The owner is done with its allocation. Answer: `Done`.
    #[n(4)]
    Finish {
        /// The job.
        #[n(0)]
        job: JobId,
        /// Exit code to record.
        #[n(1)]
        exit: ExitCode,
    },
    /// What a running allocation is, for `srun --jobid` and `srun` inside a job. Answer: `Allocated`.
    #[n(5)]
    Facts {
        /// The job.
        #[n(0)]
        job: JobId,
    },
    /// `srun` in an allocation. Answers: `StepCreated` when it has cores, `StepDone` when it has ended.
    #[n(6)]
    CreateStep {
        /// The job.
        #[n(0)]
        job: JobId,
        /// What.
        #[n(1)]
        spec: Box<StepSpec>,
        /// What to run.
        #[n(2)]
        program: Box<TaskProgram>,
        /// Makes a retry harmless, and brings the program again to a restarted controller.
        #[n(3)]
        key: ClientKey,
    },
    /// Tell me when the job has ended (`sbatch --wait`). Answer: `JobDone`.
    #[n(7)]
    AwaitJob {
        /// The job; an array: when all its tasks have ended, with the highest exit code.
        #[n(0)]
        job: JobId,
    },
    /// `scancel`. Answer: `Affected`.
    #[n(8)]
    Cancel {
        /// Which jobs.
        #[n(0)]
        jobs: JobSelection,
        /// Signal and target instead of the end.
        #[n(1)]
        signal: Option<(i32, crate::wire::node::SignalTarget)>,
        /// Only this step.
        #[n(2)]
        step: Option<StepNo>,
        /// Name those to whom it does not apply (already ended, not found) in the answer.
        #[n(3)]
        verbose: bool,
    },
    /// `scontrol hold`, `uhold`. Answer: `Affected`.
    #[n(9)]
    Hold {
        /// Which jobs.
        #[n(0)]
        jobs: JobSelection,
        /// `uhold`: as its user would.
        #[n(1)]
        user: bool,
    },
    /// `scontrol release`. Answer: `Affected`.
    #[n(10)]
    Release {
        /// Which jobs.
        #[n(0)]
        jobs: JobSelection,
    },
    /// `scontrol requeue`, `requeuehold`. Answer: `Affected`, before the job's processes are ended.
    #[n(11)]
    Requeue {
        /// Which jobs.
        #[n(0)]
        jobs: JobSelection,
        /// Held afterwards.
        #[n(1)]
        hold: bool,
        /// The job from within which is asked, as it says: that one runs again however its script ends.
        #[n(2)]
        from: Option<JobId>,
    },
    /// `scontrol suspend`, `resume`. Answer: `Affected`.
    #[n(12)]
    Suspend {
        /// Which jobs.
        #[n(0)]
        jobs: JobSelection,
        /// False: go on.
        #[n(1)]
        suspend: bool,
    },
    /// `scontrol update jobid=`. Answer: `Affected`.
    #[n(13)]
    UpdateJob {
        /// Which jobs.
        #[n(0)]
        jobs: JobSelection,
        /// What.
        #[n(1)]
        change: Box<JobUpdate>,
    },
    /// `sattach`. Answers: `StepCreated`, and `StepDone` when it has ended.
    #[n(14)]
    Watch {
        /// The job.
        #[n(0)]
        job: JobId,
        /// A step of it that runs.
        #[n(1)]
        step: StepNo,
        /// Whom its step daemons are to call; None: nobody, only the layout is wanted.
        #[n(2)]
        watcher: Option<Watcher>,
    },
    /// `scontrol notify`. Answer: `Done`.
    #[n(15)]
    Notify {
        /// The job.
        #[n(0)]
        job: JobId,
        /// What its user is to be told: a batch script in its standard error, `srun` and `salloc` in theirs.
        #[n(1)]
        text: String,
    },
    /// `sstat`. Answer: `Measured`.
    #[n(16)]
    Measure {
        /// The job.
        #[n(0)]
        job: JobId,
        /// A step of it that runs.
        #[n(1)]
        step: StepNo,
    },
    /// `scontrol update nodename=`. Answer: `Done`.
    #[n(17)]
    UpdateNodes {
        /// A host list.
        #[n(0)]
        nodes: String,
        /// What they are for; None: as before.
        #[n(1)]
        admin: Option<NodeAdmin>,
        /// The reason given.
        #[n(2)]
        reason: Option<String>,
        /// What else changes.
        #[n(3)]
        change: Option<Box<NodeChange>>,
    },
    /// `scontrol update partitionname=`. Answer: `Done`.
    #[n(18)]
    UpdatePartition {
        /// Its name.
        #[n(0)]
        name: String,
        /// Its new state.
        #[n(1)]
        state: PartitionState,
    },
    /// `scontrol create`, `update` and `delete partition`. Answer: `Done`.
    #[n(19)]
    ChangePartition {
        /// Its name.
        #[n(0)]
        name: String,
        /// What it was when the caller looked (`Stale` if it is another by now); None: there was none.
        #[n(1)]
        was: Option<Box<PartitionConfig>>,
        /// What it is to be; None: nothing.
        #[n(2)]
        now: Option<Box<PartitionConfig>>,
    },
    /// `squeue`, `scontrol show job`. Answers: `Jobs` pages.
    #[n(20)]
    Jobs {
        /// Which jobs; pending tasks of an array come as one.
        #[n(0)]
        jobs: JobSelection,
        /// With jobs that have ended but are still in memory.
        #[n(1)]
        ended: bool,
        /// With their steps.
        #[n(2)]
        steps: bool,
    },
    /// `sinfo`, `scontrol show node`. Answer: `Nodes`.
    #[n(21)]
    Nodes,
    /// `sinfo`, `scontrol show partition`. Answer: `Partitions`.
    #[n(22)]
    Partitions,
    /// `scontrol show config`. Answer: `Config`.
    #[n(23)]
    Config,
    /// `scontrol ping`, and whether the cluster is ready. Answer: `Pong`.
    #[n(24)]
    Ping,
    /// `sdiag`. Answer: `Diag`.
    #[n(25)]
    Diag {
        /// Set the counters to zero afterwards.
        #[n(0)]
        reset: bool,
    },
    /// `sacct`. Answers: `Accounting` pages. Consistent with everything acknowledged before.
    #[n(26)]
    Accounting(#[n(0)] Box<AccountingQuery>),
    /// `sacctmgr modify job`: names of [`super::history::RECORDED`] and their new values. Answer: `Done`.
    #[n(27)]
    Record(#[n(0)] JobId, #[n(1)] Vec<(String, String)>),
    /// `sreport cluster utilization`, `sacctmgr show event`, `transaction` and `reservation`. Answers: `History` pages.
    #[n(28)]
    History,
    /// `scontrol write batch_script`: the script of a job. Answer: `Script`.
    #[n(29)]
    Script {
        /// The job.
        #[n(0)]
        job: JobId,
    },
    /// `scontrol reconfigure`: the host reads the file and fills in `config`. Answer: `Done`.
    #[n(30)]
    Reconfigure {
        /// The new configuration; None as sent by a client.
        #[n(0)]
        config: Option<Box<Config>>,
    },
    /// `squall down`, `scontrol shutdown`. Answer: `Done` when running jobs were dealt with.
    #[n(31)]
    ShutDown {
        /// Running jobs are left alone (else ended and requeued).
        #[n(0)]
        keep_jobs: bool,
    },
    /// COMPARE-AND-WRITE, for operators. Answer: `Queried`.
    #[n(32)]
    QueryNodes {
        /// Of which nodes, a host list; empty: all that are connected.
        #[n(0)]
        nodes: String,
        /// What is asked.
        #[n(1)]
        test: Test,
        /// Answer only when it holds, or time is up.
        #[n(2)]
        wait: bool,
        /// Written on all of these nodes if it holds on all.
        #[n(3)]
        write: Option<(Variable, i64)>,
        /// How long it may take, milliseconds.
        #[n(4)]
        time_ms: u64,
    },
    /// XFER-AND-SIGNAL: a file to nodes (`sbcast`, `srun --bcast`). Answers: `Want` for pieces that some node lacks, each
    /// to be followed by the `Chunk`s, and `Broadcast` at the end.
    #[n(33)]
    Broadcast(#[n(0)] Box<Broadcast>),
    /// A piece of the file that is being broadcast on this connection. No answer.
    #[n(34)]
    Chunk {
        /// Where it begins.
        #[n(0)]
        at: u64,
        /// The piece.
        #[n(1)]
        bytes: Bytes,
    },
    /// The digest of a file that the caller brought before, if its name (see `Broadcast::known_as`) is remembered: so
    /// that who brings it again need not read it. Answer: `Recalled`.
    #[n(35)]
    Recall {
        /// The name.
        #[n(0)]
        known_as: Digest,
    },
    /// `scontrol show licenses`. Answer: `Licenses`.
    #[n(36)]
    Licenses,
    /// `sacctmgr show`: accounts, users, associations, levels of service. Answer: `Policy`.
    #[n(37)]
    Policy,
    /// `sacctmgr add`, `modify`, `delete`. Answer: `Done`.
    #[n(38)]
    ChangePolicy {
        /// The version of what was changed.
        #[n(0)]
        version: u64,
        /// The changes, in this order.
        #[n(1)]
        changes: Vec<PolicyChange>,
    },
    /// `sprio`. Answer: `Priorities`.
    #[n(39)]
    Priorities {
        /// Which jobs.
        #[n(0)]
        jobs: JobSelection,
    },
    /// `sshare`. Answer: `Shares`.
    #[n(40)]
    Shares,
    /// `squeue --start`: when those that wait first are expected to start. Answer: `Expected`.
    #[n(41)]
    Expected,
    /// `scontrol show reservation`. Answer: `Reservations`.
    #[n(42)]
    Reservations,
    /// `scontrol create reservation`, `update reservation`. Answer: `Reserved`.
    #[n(43)]
    Reserve {
        /// What.
        #[n(0)]
        change: Box<ReservationChange>,
        /// A new one: without a name it gets one.
        #[n(1)]
        create: bool,
    },
    /// `scontrol delete reservation`. Answer: `Done`.
    #[n(44)]
    Unreserve {
        /// Its name.
        #[n(0)]
        name: String,
    },
    /// `squall why`. Answer: `Why`.
    #[n(45)]
    Why {
        /// The job.
        #[n(0)]
        job: JobId,
    },
    /// A heterogeneous job. Answers: those of `Submit` or `Allocate`, whichever the first component is for.
    #[n(46)]
    SubmitHet {
        /// The components, the first of which has the script or the owner.
        #[n(0)]
        specs: Vec<JobSpec>,
        /// Content of the script; empty for an allocation.
        #[n(1)]
        script: ByteBuf,
        /// Content of the environment, entries ended by NUL.
        #[n(2)]
        env: ByteBuf,
        /// Makes a retry harmless.
        #[n(3)]
        key: ClientKey,
        /// Refuse instead of waiting longer than so many seconds (`--immediate`).
        #[n(4)]
        immediate_s: Option<u32>,
    },
    /// A front carries questions between cells: what jobs of this one depend on in others. Answers: `Unresolved`, now and
    /// as long as the connection lasts. For operators, as are the next two.
    #[n(47)]
    Unresolved,
    /// What another cell wants to know. Answers: `Resolved`, each question once, when it has come about.
    #[n(48)]
    Resolve {
        /// The questions.
        #[n(0)]
        questions: Vec<Question>,
    },
    /// What other cells have answered. Answer: `Done`.
    #[n(49)]
    Resolved {
        /// Questions and answers.
        #[n(0)]
        replies: Vec<(Question, Reply)>,
    },
    /// `scontrol update stepid=`. Answer: `Done`.
    #[n(50)]
    UpdateStep {
        /// The job.
        #[n(0)]
        job: JobId,
        /// A step of it that runs; None: all of them.
        #[n(1)]
        step: Option<StepNo>,
        /// Seconds since the step's start; None: as long as the job.
        #[n(2)]
        time_limit_s: Option<u64>,
    },
    /// `scontrol top`. Answer: `Affected`.
    #[n(51)]
    Top {
        /// Which jobs, by id, in the order in which they are to go.
        #[n(0)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobSelection {
    /// By id; empty: any.
    #[n(0)]
    pub ids: Vec<JobRef>,
    /// By user id; empty: any.
    #[n(1)]
    pub users: Vec<u32>,
    /// By partition name; empty: any.
    #[n(2)]
    pub partitions: Vec<String>,
    /// By job name; empty: any.
    #[n(3)]
    pub names: Vec<String>,
    /// By account; empty: any.
    #[n(4)]
    pub accounts: Vec<String>,
    /// By QOS; empty: any.
    #[n(5)]
    pub qos: Vec<String>,
    /// By state; empty: any (of those not ended, if the request doesn't ask for ended ones).
    #[n(6)]
    pub states: Vec<StateFilter>,
    /// By node: jobs that hold one of these (a host list).
    #[n(7)]
    pub nodes: Option<String>,
}

/// How users name jobs.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum JobRef {
    /// `123`: a job, all tasks of an array, or all components of a heterogeneous job.
    #[n(0)]
    Job(#[n(0)] JobId),
    /// `123_4`, `123_[1-4,9]`: tasks of an array.
    #[n(1)]
    Tasks(#[n(0)] JobId, #[n(1)] IndexSet),
    /// `123+1`: one component of a heterogeneous job.
    #[n(2)]
    Component(#[n(0)] JobId, #[n(1)] u32),
}

/// A state as a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum StateFilter {
    /// PENDING
    #[n(0)]
    Pending,
    /// RUNNING
    #[n(1)]
    Running,
    /// SUSPENDED
    #[n(2)]
    Suspended,
    /// COMPLETING
    #[n(3)]
    Completing,
    /// COMPLETED
    #[n(4)]
    Completed,
    /// CANCELLED
    #[n(5)]
    Cancelled,
    /// FAILED
    #[n(6)]
    Failed,
    /// TIMEOUT
    #[n(7)]
    Timeout,
    /// NODE_FAIL
    #[n(8)]
    NodeFail,
    /// OUT_OF_MEMORY
    #[n(9)]
    OutOfMemory,
    /// PREEMPTED
    #[n(10)]
    Preempted,
    /// DEADLINE
    #[n(11)]
    Deadline,
    /// BOOT_FAIL
    #[n(12)]
    BootFail,
    /// REQUEUED: pending again after a requeue
    #[n(13)]
    Requeued,
    /// A state that Slurm knows and Squall never has (STOPPED, CONFIGURING, …): matches nothing.
    #[n(14)]
    Never,
}

/// What `scontrol update job` asks, by Slurm's words. None: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobUpdate {
    /// TimeLimit, seconds; Some(None): UNLIMITED. (The client resolves `+` and `-` itself.)
    #[n(0)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub time_limit_s: Option<Option<u64>>,
    /// Priority; 0 holds.
    #[n(1)]
    pub priority: Option<u32>,
    /// Nice.
    #[n(2)]
    pub nice: Option<i32>,
    /// JobName.
    #[n(3)]
    pub name: Option<String>,
    /// Partition.
    #[n(4)]
    pub partition: Option<String>,
    /// Account.
    #[n(5)]
    pub account: Option<String>,
    /// QOS.
    #[n(6)]
    pub qos: Option<String>,
    /// Comment.
    #[n(7)]
    pub comment: Option<String>,
    /// StartTime / EligibleTime.
    #[n(8)]
    pub begin: Option<Time>,
    /// Dependency; Some(None): none any more.
    #[n(9)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub dependency: Option<Option<crate::job::Dependency>>,
    /// NumNodes (minimum, maximum).
    #[n(10)]
    pub nodes: Option<(u32, Option<u32>)>,
    /// NumTasks.
    #[n(11)]
    pub ntasks: Option<u32>,
    /// NumCPUs per task.
    #[n(12)]
    pub cpus_per_task: Option<u32>,
    /// MinMemoryNode / MinMemoryCPU.
    #[n(13)]
    pub memory: Option<crate::resource::Memory>,
    /// ReqNodeList; Some(None): none any more.
    #[n(14)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub nodelist: Option<Option<String>>,
    /// ExcNodeList; Some(None): none any more.
    #[n(15)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub exclude: Option<Option<String>>,
    /// Features; Some(None): none any more.
    #[n(16)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub constraint: Option<Option<String>>,
    /// Requeue=0|1.
    #[n(17)]
    pub requeue: Option<bool>,
    /// ArrayTaskThrottle; Some(None): no limit.
    #[n(18)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub array_limit: Option<Option<u32>>,
    /// StdOut pattern.
    #[n(19)]
    pub stdout: Option<String>,
    /// StdErr pattern.
    #[n(20)]
    pub stderr: Option<String>,
    /// WorkDir.
    #[n(21)]
    pub work_dir: Option<String>,
    /// MailUser.
    #[n(22)]
    pub mail_user: Option<String>,
    /// MailType.
    #[n(23)]
    pub mail_type: Option<String>,
    /// Deadline.
    #[n(24)]
    pub deadline: Option<Time>,
    /// TimeMin, seconds; 0: none any more.
    #[n(25)]
    pub time_min_s: Option<u64>,
    /// EndTime of a running job.
    #[n(26)]
    pub end: Option<Time>,
    /// WCKey.
    #[n(27)]
    pub wckey: Option<String>,
    /// ReservationName; Some(None): none any more.
    #[n(28)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub reservation: Option<Option<String>>,
    /// OverSubscribe: whether it shares its resources, and whether it wants whole nodes.
    #[n(29)]
    pub oversubscribe: Option<(bool, bool)>,
    /// Contiguous.
    #[n(30)]
    pub contiguous: Option<bool>,
    /// Gres, TresPerNode; Some(None): none any more.
    #[n(31)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub gres: Option<Option<String>>,
    /// Licenses; Some(None): none any more.
    #[n(32)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub licenses: Option<Option<String>>,
    /// MinCPUsNode.
    #[n(33)]
    pub cpus_min: Option<u32>,
    /// MinTmpDiskNode, MiB.
    #[n(34)]
    pub tmp_disk_mb: Option<u64>,
    /// TasksPerNode.
    #[n(35)]
    pub ntasks_per_node: Option<u32>,
    /// StdIn pattern.
    #[n(36)]
    pub stdin: Option<String>,
    /// AdminComment; Some(None): none any more.
    #[n(38)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub admin_comment: Option<Option<String>>,
    /// Extra; Some(None): none any more.
    #[n(39)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub extra: Option<Option<String>>,
    /// Prefer; Some(None): nothing any more.
    #[n(40)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub prefer: Option<Option<String>>,
    /// Switches; Some(None): any number.
    #[n(41)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub switches: Option<Option<AsGiven<Switches>>>,
}

/// What `sacct` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct AccountingQuery {
    /// By id; empty: any.
    #[n(0)]
    pub ids: Vec<JobRef>,
    /// By step of these ids (`-j 12.0`, `12.batch`): only that step's rows.
    #[n(1)]
    pub step: Option<StepNo>,
    /// By user id; empty: any.
    #[n(2)]
    pub users: Vec<u32>,
    /// By state; empty: any.
    #[n(3)]
    pub states: Vec<StateFilter>,
    /// By job name; empty: any.
    #[n(4)]
    pub names: Vec<String>,
    /// By partition; empty: any.
    #[n(5)]
    pub partitions: Vec<String>,
    /// By account; empty: any.
    #[n(6)]
    pub accounts: Vec<String>,
    /// By node (a host list).
    #[n(7)]
    pub nodes: Option<String>,
    /// Jobs in the given states (or, without states, that existed) after this time.
    #[n(8)]
    pub start: Option<Time>,
    /// … and before this time.
    #[n(9)]
    pub end: Option<Time>,
    /// Without step rows.
    #[n(10)]
    pub allocations_only: bool,
    /// Also earlier attempts of requeued jobs.
    #[n(11)]
    pub duplicates: bool,
}
