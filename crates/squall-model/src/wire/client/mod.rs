//! Messages between client commands and the controller.

mod answer;
mod host;
mod selection;
mod table;

pub use answer::{Answer, HostProblem, JobName, Refusal, Tail};
pub use host::HostRequest;
pub use selection::{AccountingQuery, JobRef, JobSelection, StateFilter};
pub use table::{CellsAsked, Origin, Right, Row};

use std::sync::Arc;

use crate::checkpoint::CheckpointVerb;
use crate::encoding::{ByteBuf, Encoded};
use minicbor::decode::Decoder;
use minicbor::encode::{Encoder, Write};
use minicbor::{Decode, Encode};

use crate::config::{Config, NodeConfig, PartitionConfig, PartitionState};
use crate::event::{NodeAdmin, NodeChange};
use crate::foreign::{Question, Reply};
use crate::id::{ClientKey, JobId, StepNo};
use crate::job::network::Switches;
use crate::job::options::AsGiven;
use crate::job::{Digest, ExitCode, JobSpec};
use crate::policy::PolicyChange;
use crate::power::PowerWish;
use crate::rotation::ControllerKeys;
use crate::step::{FirstStep, StepSpec, TaskProgram, Watcher};
use crate::time::Time;
use crate::version::ClusterVersion;
use crate::wire::broadcast::Broadcast;
use crate::wire::fabric::{Bytes, Test, Variable};
use crate::wire::feed::{FeedKind, Position};
use crate::wire::reservation::ReservationChange;

/// A request of a client that the controller's state machine answers. The user is identified by the socket, so no request
/// has a user id for it. [`Request::row`] has the right that it needs, and more.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Request {
    /// `sbatch`: submits a batch job or an array. Answer: `Submitted`.
    #[n(0)]
    Submit {
        /// Specification of the job.
        #[n(0)]
        #[cbor(with = "crate::wire::shared")]
        spec: Arc<JobSpec>,
        /// Content of the batch script.
        #[n(1)]
        script: ByteBuf,
        /// The job's environment: entries `NAME=VALUE`, each ended by NUL.
        #[n(2)]
        env: ByteBuf,
        /// Key that makes a retry safe: a second submission with the same key creates no second job.
        #[n(3)]
        key: ClientKey,
    },
    /// `sbatch --test-only`: when would the job start? Answer: `WouldStart`.
    #[n(1)]
    TestSubmit {
        /// Specification of the job that would be submitted.
        #[n(0)]
        #[cbor(with = "crate::wire::shared")]
        spec: Arc<JobSpec>,
    },
    /// `salloc`, and `srun` outside of an allocation. Answers: `Submitted`, then `Allocated` when the job starts. It ends
    /// with the connection, unless the client sends `Attach` on a new one within `OWNER_GRACE_S` (60 s).
    #[n(2)]
    Allocate {
        /// Specification of the job.
        #[n(0)]
        #[cbor(with = "crate::wire::shared")]
        spec: Arc<JobSpec>,
        /// The job's environment: entries `NAME=VALUE`, each ended by NUL.
        #[n(1)]
        env: ByteBuf,
        /// Key that makes a retry safe: a second request with the same key creates no second job.
        #[n(2)]
        key: ClientKey,
        /// `--immediate`: refuse the request if it has to wait longer than this many seconds. None: it may wait.
        #[n(3)]
        immediate_s: Option<u32>,
        /// First step of `srun`. The answers of `CreateStep` follow `Allocated`. None: no step (`salloc`).
        #[n(4)]
        step: Option<Box<FirstStep>>,
    },
    /// Resumes ownership of an allocation on a new connection. Answer: `Allocated` when the job has started.
    #[n(3)]
    Attach {
        /// The job of the allocation.
        #[n(0)]
        job: JobId,
    },
    /// Ends the caller's allocation, with an exit code. Answer: `Done`.
    #[n(4)]
    Finish {
        /// The job of the allocation.
        #[n(0)]
        job: JobId,
        /// Exit code to record for the job.
        #[n(1)]
        exit: ExitCode,
    },
    /// Returns the allocation of a running job, for `srun --jobid` and `srun` inside a job. Answer: `Allocated`.
    #[n(5)]
    Facts {
        /// The running job.
        #[n(0)]
        job: JobId,
    },
    /// `srun` in an allocation: starts a step. Answers: `StepCreated` when it has resources, `StepDone` when it has ended.
    #[n(6)]
    CreateStep {
        /// The job in which the step runs.
        #[n(0)]
        job: JobId,
        /// Specification of the step.
        #[n(1)]
        spec: Box<StepSpec>,
        /// Program that the step's tasks run, with its environment.
        #[n(2)]
        program: Box<TaskProgram>,
        /// Key that makes a retry safe: a client that reconnects sends the whole request again with the same key.
        #[n(3)]
        key: ClientKey,
    },
    /// Waits until a job has ended (`sbatch --wait`). Answer: `JobDone`.
    #[n(7)]
    AwaitJob {
        /// The job or array. An array is answered when all its tasks have ended, with the highest exit code.
        #[n(0)]
        job: JobId,
    },
    /// `scancel`: ends or signals jobs. Answer: `Affected`.
    #[n(8)]
    Cancel {
        /// The jobs to end or signal.
        #[n(0)]
        jobs: JobSelection,
        /// Signal and the processes that get it, if the jobs are only signalled. None: the jobs are ended.
        #[n(1)]
        signal: Option<(i32, crate::wire::node::SignalTarget)>,
        /// The step to end or signal in each job. None: the whole jobs.
        #[n(2)]
        step: Option<StepNo>,
        /// Whether the answer also lists jobs to which the request does not apply (already ended, not found).
        #[n(3)]
        verbose: bool,
    },
    /// `scontrol hold`, `uhold`: keeps pending jobs from starting. Answer: `Affected`.
    #[n(9)]
    Hold {
        /// The jobs to hold.
        #[n(0)]
        jobs: JobSelection,
        /// Whether the hold counts as the user's own (`uhold`), so that the user can release it.
        #[n(1)]
        user: bool,
    },
    /// `scontrol release`: ends the hold of jobs. Answer: `Affected`.
    #[n(10)]
    Release {
        /// The jobs to release.
        #[n(0)]
        jobs: JobSelection,
    },
    /// `scontrol requeue`, `requeuehold`. Answer: `Affected`, sent before the jobs' processes are ended.
    #[n(11)]
    Requeue {
        /// The jobs to requeue.
        #[n(0)]
        jobs: JobSelection,
        /// Whether the jobs are held after they are requeued.
        #[n(1)]
        hold: bool,
        /// The job in which the caller runs, as the caller states. That job is requeued whatever the exit code of its
        /// script. None: the caller runs outside of jobs.
        #[n(2)]
        from: Option<JobId>,
        /// Some(true): the held jobs' state is SPECIAL_EXIT (`requeuehold State=SpecialExit`).
        #[n(3)]
        special: Option<bool>,
    },
    /// `scontrol suspend`, `resume`: stops or continues running jobs. Answer: `Affected`.
    #[n(12)]
    Suspend {
        /// The jobs to suspend or resume.
        #[n(0)]
        jobs: JobSelection,
        /// Whether to suspend the jobs. False: resume them.
        #[n(1)]
        suspend: bool,
    },
    /// `scontrol update jobid=`: changes jobs. Answer: `Affected`.
    #[n(13)]
    UpdateJob {
        /// The jobs to change.
        #[n(0)]
        jobs: JobSelection,
        /// The new values of the jobs.
        #[n(1)]
        change: Box<JobUpdate>,
    },
    /// `sattach`: follows a step. Answers: `StepCreated`, and `StepDone` when the step has ended.
    #[n(14)]
    Watch {
        /// The job of the step.
        #[n(0)]
        job: JobId,
        /// Number of a running step of the job.
        #[n(1)]
        step: StepNo,
        /// Address of the client, to which the step daemons connect. None: it needs only the step's layout.
        #[n(2)]
        watcher: Option<Watcher>,
    },
    /// `scontrol notify`: shows a text to a job's user. Answer: `Done`.
    #[n(15)]
    Notify {
        /// The text is for the user of this job.
        #[n(0)]
        job: JobId,
        /// The text. It appears in the standard error of the batch script, of `srun` or of `salloc`.
        #[n(1)]
        text: String,
    },
    /// `sstat`: asks for the resources that a running step has used so far. Answer: `Measured`.
    #[n(16)]
    Measure {
        /// The job of the step.
        #[n(0)]
        job: JobId,
        /// Number of a running step of the job.
        #[n(1)]
        step: StepNo,
        /// Whether of usage over time only what was used lately is answered, in few bytes: for lists.
        #[n(2)]
        #[cbor(default)]
        lately: bool,
    },
    /// `scontrol update nodename=`: changes nodes. Answer: `Done`.
    #[n(17)]
    UpdateNodes {
        /// The nodes to change, as a host list.
        #[n(0)]
        nodes: String,
        /// New state of the nodes. None: unchanged.
        #[n(1)]
        admin: Option<NodeAdmin>,
        /// The reason for the new state. None: no reason given.
        #[n(2)]
        reason: Option<String>,
        /// Other changes of the nodes' description. None: no other changes.
        #[n(3)]
        change: Option<Box<NodeChange>>,
    },
    /// `scontrol update partitionname=` with a state. Answer: `Done`.
    #[n(18)]
    UpdatePartition {
        /// Name of the partition.
        #[n(0)]
        name: String,
        /// New state of the partition.
        #[n(1)]
        state: PartitionState,
    },
    /// `scontrol create`, `update` and `delete partition`, except changes of only the state. Answer: `Done`.
    #[n(19)]
    ChangePartition {
        /// Name of the partition.
        #[n(0)]
        name: String,
        /// Configuration that the caller has seen. If the partition has another one by now, the request is refused
        /// (`Stale`). None: there was no such partition.
        #[n(1)]
        was: Option<Box<PartitionConfig>>,
        /// New configuration. None: delete the partition.
        #[n(2)]
        now: Option<Box<PartitionConfig>>,
    },
    /// `squeue`, `scontrol show job`. Answers: pages of `Jobs`.
    #[n(20)]
    Jobs {
        /// The jobs to return. Pending tasks of an array come as one entry.
        #[n(0)]
        jobs: JobSelection,
        /// Whether to include ended jobs that are still in memory.
        #[n(1)]
        ended: bool,
        /// Whether to include the jobs' steps.
        #[n(2)]
        steps: bool,
    },
    /// `sinfo`, `scontrol show node`: all nodes. Answer: `Nodes`.
    #[n(21)]
    Nodes,
    /// `sinfo`, `scontrol show partition`: all partitions. Answer: `Partitions`.
    #[n(22)]
    Partitions,
    /// `scontrol show config`: the configuration. Answer: `Config`.
    #[n(23)]
    Config,
    /// `scontrol ping`, also sent to wait until the cluster is ready. Answer: `Pong`.
    #[n(24)]
    Ping,
    /// `sdiag`: counters of the controller. Answer: `Diag`.
    #[n(25)]
    Diag {
        /// Whether to reset the counters after the answer.
        #[n(0)]
        reset: bool,
    },
    /// `sacctmgr modify job`: the job, names from [`super::history::RECORDED`], new values. Answer: `Done`.
    #[n(27)]
    Record(#[n(0)] JobId, #[n(1)] Vec<(String, String)>),
    /// `scontrol reconfigure`. The controller's host process reads the file and sets `config`. Answer: `Done`.
    #[n(30)]
    Reconfigure {
        /// The new configuration. None: not read yet, as in the client's message.
        #[n(0)]
        config: Option<Box<Config>>,
    },
    /// `squall down`, `scontrol shutdown`. Answer: `Done` when running jobs were requeued or left running.
    #[n(31)]
    ShutDown {
        /// Whether running jobs continue. If false they are ended and requeued.
        #[n(0)]
        keep_jobs: bool,
    },
    /// COMPARE-AND-WRITE: compares a variable on nodes, and perhaps sets one. For operators. Answer: `Queried`.
    #[n(32)]
    QueryNodes {
        /// The nodes, as a host list. Empty: all connected nodes.
        #[n(0)]
        nodes: String,
        /// The comparison that each node makes.
        #[n(1)]
        test: Test,
        /// Whether nodes delay their answers until the comparison holds or the time limit is over.
        #[n(2)]
        wait: bool,
        /// Variable to set on all of these nodes, and its value, if the comparison holds on all. None: nothing is set.
        #[n(3)]
        write: Option<(Variable, i64)>,
        /// Time limit of the request, milliseconds.
        #[n(4)]
        time_ms: u64,
    },
    /// XFER-AND-SIGNAL: sends a file to nodes (`sbcast`, `srun --bcast`). Answers: `Want` for parts of the file that
    /// some node lacks, each of which the client sends as `Chunk`s, and `Broadcast` at the end.
    #[n(33)]
    Broadcast(#[n(0)] Box<Broadcast>),
    /// A piece of the file that the client broadcasts on this connection. Not answered.
    #[n(34)]
    Chunk {
        /// Offset of the piece in the file, bytes.
        #[n(0)]
        at: u64,
        /// Content of the piece.
        #[n(1)]
        bytes: Bytes,
    },
    /// Returns the digest of a file that the caller sent before, if the controller still has its name (see
    /// `Broadcast::known_as`), so that the client needn't read the file again. Answer: `Recalled`.
    #[n(35)]
    Recall {
        /// Name of the unchanged file, as in `Broadcast::known_as`.
        #[n(0)]
        known_as: Digest,
    },
    /// `scontrol show licenses`: all licenses. Answer: `Licenses`.
    #[n(36)]
    Licenses,
    /// `sacctmgr show`: accounts, users, associations and QOS. Answer: `Policy`.
    #[n(37)]
    Policy,
    /// `sacctmgr add`, `modify`, `delete`: changes accounts, users, associations and QOS. Answer: `Done`.
    #[n(38)]
    ChangePolicy {
        /// Version of the policy that the caller has seen. If it is another by now, the request is refused.
        #[n(0)]
        version: u64,
        /// The changes, in the order in which they are made.
        #[n(1)]
        changes: Vec<PolicyChange>,
    },
    /// `sprio`: priorities of pending jobs. Answer: `Priorities`.
    #[n(39)]
    Priorities {
        /// The priorities of these jobs are returned.
        #[n(0)]
        jobs: JobSelection,
    },
    /// `sshare`: fair shares of accounts and users. Answer: `Shares`.
    #[n(40)]
    Shares,
    /// `squeue --start`: expected start times of the first pending jobs. Answer: `Expected`.
    #[n(41)]
    Expected,
    /// `scontrol show reservation`: all reservations. Answer: `Reservations`.
    #[n(42)]
    Reservations,
    /// `scontrol create reservation`, `update reservation`: creates or changes a reservation. Answer: `Reserved`.
    #[n(43)]
    Reserve {
        /// Values of the reservation that the user gave.
        #[n(0)]
        change: Box<ReservationChange>,
        /// Whether to create a reservation. A new one gets a name if none is given.
        #[n(1)]
        create: bool,
    },
    /// `scontrol delete reservation`. Answer: `Done`.
    #[n(44)]
    Unreserve {
        /// Name of the reservation.
        #[n(0)]
        name: String,
    },
    /// `squall why`: why a job is pending, and what would let it start. Answer: `Why`.
    #[n(45)]
    Why {
        /// The pending job.
        #[n(0)]
        job: JobId,
    },
    /// Submits a heterogeneous job. Answers: those of `Submit` if the first component has a script, otherwise those of
    /// `Allocate`.
    #[n(46)]
    SubmitHet {
        /// Specification of each component. The script, or the allocation's owner, belongs to the first component.
        #[n(0)]
        specs: Vec<JobSpec>,
        /// Content of the batch script; empty for an allocation.
        #[n(1)]
        script: ByteBuf,
        /// The job's environment: entries `NAME=VALUE`, each ended by NUL.
        #[n(2)]
        env: ByteBuf,
        /// Key that makes a retry safe: a second request with the same key creates no second job.
        #[n(3)]
        key: ClientKey,
        /// `--immediate`: refuse the request if it has to wait longer than this many seconds. None: it may wait.
        #[n(4)]
        immediate_s: Option<u32>,
    },
    /// Asks a cell for its questions about jobs of other cells. Sent by the front (gateway of the cells), which relays
    /// them. Answers: `Unresolved`, now and for new questions. For operators, like `Resolve` and `Resolved`.
    #[n(47)]
    Unresolved,
    /// Questions of another cell about jobs of this one. Answers: `Resolved`, once for each question when its answer is
    /// known.
    #[n(48)]
    Resolve {
        /// The questions of the other cell.
        #[n(0)]
        questions: Vec<Question>,
    },
    /// Answers of other cells to questions of this one. Answer: `Done`.
    #[n(49)]
    Resolved {
        /// Questions with their answers.
        #[n(0)]
        replies: Vec<(Question, Reply)>,
    },
    /// `scontrol update stepid=`: changes the time limit of steps. Answer: `Done`.
    #[n(50)]
    UpdateStep {
        /// The job of the steps.
        #[n(0)]
        job: JobId,
        /// Number of a running step of the job. None: all of its steps.
        #[n(1)]
        step: Option<StepNo>,
        /// New time limit in seconds since the step's start. None: as long as the job.
        #[n(2)]
        time_limit_s: Option<u64>,
    },
    /// `scontrol top`: reorders a user's own pending jobs. Answer: `Affected`.
    #[n(51)]
    Top {
        /// The jobs, by id, in the order in which they are to be scheduled.
        #[n(0)]
        jobs: JobSelection,
    },
    /// Asks as whom the controller regards the caller. Answer: `Caller`.
    #[n(60)]
    Caller,
    /// `scontrol upgrade`: raises the version of the cluster, from which on its daemons use what older releases lack. For
    /// operators. Answer: `Done`.
    #[n(53)]
    RaiseVersion {
        /// The new version. None: the newest that the controller which leads can work with.
        #[n(0)]
        to: Option<ClusterVersion>,
        /// The newest version that each other controller can work with, by name. The host of the controller which leads
        /// sets it; what a client sends is ignored.
        #[n(1)]
        #[cbor(default)]
        others: Vec<(String, ClusterVersion)>,
    },
    /// `squall events`, `squeue --follow`: follows the events of the cluster. Answers: `Followed`, at once and whenever
    /// there are new events, until the connection ends. The connection should have no other request.
    #[n(52)]
    Follow {
        /// Position from which to follow, as in the last page of an earlier connection. None: from now on.
        #[n(0)]
        from: Option<Position>,
        /// Selects events. With conditions on jobs: events of such jobs only. With nodes: events of these nodes and of
        /// jobs on them.
        #[n(1)]
        jobs: Box<JobSelection>,
        /// Kinds of the events. Empty: all.
        #[n(2)]
        kinds: Vec<FeedKind>,
    },
    /// `scontrol reboot`: reboots nodes when no job is on them. Answer: `Done`. The numbers before 75 are left out.
    #[n(75)]
    Reboot {
        /// Nodes as a host list; `ALL`: all.
        #[n(0)]
        nodes: String,
        /// Whether no job starts on the nodes before their reboot (`ASAP`).
        #[n(1)]
        asap: bool,
        /// State of the nodes after the reboot (`nextstate=`). None: as before.
        #[n(2)]
        next: Option<NodeAdmin>,
        /// Reason for the reboot.
        #[n(3)]
        reason: Option<String>,
    },
    /// `scontrol cancel_reboot`: cancels reboots that were not ordered yet. Answer: `Done`.
    #[n(76)]
    CancelReboot {
        /// Nodes as a host list; `ALL`: all.
        #[n(0)]
        nodes: String,
    },
    /// `scontrol power`: powers nodes up or down. Answer: `Done`. The numbers before 88 are left out.
    #[n(88)]
    Power {
        /// Nodes as a host list; `ALL`: all.
        #[n(0)]
        nodes: String,
        /// What is wished.
        #[n(1)]
        wish: PowerWish,
    },
    /// `scontrol create nodename=`: creates nodes with names (a host list) that the configuration does not have. Answer:
    /// `Done`. The numbers from 77 to 84 are left out.
    #[n(85)]
    CreateNodes(#[n(0)] Box<NodeConfig>),
    /// `scontrol delete nodename=`: removes such nodes, given as a host list. Their jobs run to their end. Answer: `Done`.
    #[n(86)]
    DeleteNodes(#[n(0)] String),
    /// `sinfo --future`, `scontrol --future show node`: the nodes that are `FUTURE`. Answer: `Nodes`.
    #[n(87)]
    FutureNodes,
    /// `scontrol rotate keys`: makes new keys for the controllers. For operators. Answer: `Done`. The numbers from 89 to
    /// 96 are left out.
    #[n(97)]
    RotateKeys {
        /// Seconds for which controllers still answer to the key before.
        #[n(0)]
        grace_s: u64,
        /// The new keys. The host of the controller which leads sets them; what a client sends is ignored.
        #[n(1)]
        keys: Option<Box<ControllerKeys>>,
    },
    /// `scontrol replace`: another node takes the place of this drained or failing one in a running job. Answer: `Done`.
    /// The numbers from 98 to 103 are left out.
    #[n(104)]
    Replace(#[n(0)] JobId, #[n(1)] String),
    /// `scontrol checkpoint`: makes a checkpoint of a job, or has it go on from its last one. Answer: `Done`, when it
    /// counts. The numbers from 105 to 111 are left out.
    #[n(112)]
    Checkpoint(#[n(0)] JobId, #[n(1)] CheckpointVerb),
}

impl Request {
    /// Replaces the idempotency key of a submission: a controller without the new key takes it for another one.
    pub fn rekey(&mut self, new: ClientKey) {
        if let Self::Submit { key, .. } | Self::Allocate { key, .. } | Self::SubmitHet { key, .. } = self {
            *key = new;
        }
    }
}

/// What a client sends: a request for the state machine, or for the daemon around it. It is sent as the request in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnyRequest {
    /// The controller's state machine answers.
    Machine(Box<Request>),
    /// The controller's daemon answers.
    Host(HostRequest),
}

/// What can be sent to the controller.
pub trait Sendable: Encoded {}

impl Sendable for Request {}
impl Sendable for HostRequest {}
impl Sendable for AnyRequest {}

impl AnyRequest {
    /// Returns the request's row in the table of requests.
    pub fn row(&self) -> Row<'_> {
        match self {
            Self::Machine(request) => request.row(),
            Self::Host(request) => request.row(),
        }
    }
}

impl From<Request> for AnyRequest {
    fn from(request: Request) -> Self {
        Self::Machine(Box::new(request))
    }
}

impl From<HostRequest> for AnyRequest {
    fn from(request: HostRequest) -> Self {
        Self::Host(request)
    }
}

impl<C> Encode<C> for AnyRequest {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, ctx: &mut C) -> Result<(), minicbor::encode::Error<W::Error>> {
        match self {
            Self::Machine(request) => request.encode(e, ctx),
            Self::Host(request) => request.encode(e, ctx),
        }
    }
}

impl<'b, C> Decode<'b, C> for AnyRequest {
    fn decode(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Self, minicbor::decode::Error> {
        let start = d.position();
        match Request::decode(d, ctx) {
            Err(e) if e.is_unknown_variant() => {
                d.set_position(start);
                HostRequest::decode(d, ctx).map(Self::Host)
            }
            decoded => decoded.map(Self::from),
        }
    }
}

/// Values of `scontrol update job`, each documented with Slurm's key for it. None: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobUpdate {
    /// Time limit (TimeLimit), seconds; Some(None): UNLIMITED. The client resolves `+` and `-` to a value.
    #[n(0)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub time_limit_s: Option<Option<u64>>,
    /// Priority of the job (Priority); 0 holds the job.
    #[n(1)]
    pub priority: Option<u32>,
    /// Nice value (Nice), which lowers the priority.
    #[n(2)]
    pub nice: Option<i32>,
    /// Name of the job (JobName).
    #[n(3)]
    pub name: Option<String>,
    /// Name of the partition, or several names separated by commas (Partition).
    #[n(4)]
    pub partition: Option<String>,
    /// Name of the account (Account).
    #[n(5)]
    pub account: Option<String>,
    /// Name of the QOS (QOS).
    #[n(6)]
    pub qos: Option<String>,
    /// Text for the user's own use (Comment).
    #[n(7)]
    pub comment: Option<String>,
    /// Earliest start (StartTime, EligibleTime).
    #[n(8)]
    pub begin: Option<Time>,
    /// Dependency (Dependency); Some(None): removed.
    #[n(9)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub dependency: Option<Option<crate::job::Dependency>>,
    /// Fewest and most nodes (NumNodes). If the second is None, only the first was given.
    #[n(10)]
    pub nodes: Option<(u32, Option<u32>)>,
    /// Number of tasks (NumTasks).
    #[n(11)]
    pub ntasks: Option<u32>,
    /// CPUs per task (NumCPUs).
    #[n(12)]
    pub cpus_per_task: Option<u32>,
    /// Memory of each node or of each CPU (MinMemoryNode, MinMemoryCPU).
    #[n(13)]
    pub memory: Option<crate::resource::Memory>,
    /// Nodes that the job must get (ReqNodeList), as a host list; Some(None): removed.
    #[n(14)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub nodelist: Option<Option<String>>,
    /// Nodes that the job must not get (ExcNodeList), as a host list; Some(None): removed.
    #[n(15)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub exclude: Option<Option<String>>,
    /// Features that the job's nodes must have (Features), as an expression; Some(None): removed.
    #[n(16)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub constraint: Option<Option<String>>,
    /// Whether the job may be requeued (Requeue=0|1).
    #[n(17)]
    pub requeue: Option<bool>,
    /// Most tasks of an array that run at once (ArrayTaskThrottle); Some(None): no limit.
    #[n(18)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub array_limit: Option<Option<u32>>,
    /// Path of standard output, with patterns (StdOut).
    #[n(19)]
    pub stdout: Option<String>,
    /// Path of standard error, with patterns (StdErr).
    #[n(20)]
    pub stderr: Option<String>,
    /// Working directory (WorkDir).
    #[n(21)]
    pub work_dir: Option<String>,
    /// User or address that gets mail about the job (MailUser).
    #[n(22)]
    pub mail_user: Option<String>,
    /// Events for which mail is sent (MailType).
    #[n(23)]
    pub mail_type: Option<String>,
    /// Time by which the job must have ended (Deadline).
    #[n(24)]
    pub deadline: Option<Time>,
    /// Least time limit down to which the job may be shortened to start earlier (TimeMin), seconds; 0: removed.
    #[n(25)]
    pub time_min_s: Option<u64>,
    /// Time at which a running job reaches its time limit (EndTime).
    #[n(26)]
    pub end: Option<Time>,
    /// Accounting label (WCKey).
    #[n(27)]
    pub wckey: Option<String>,
    /// Name of the reservation (ReservationName); Some(None): removed.
    #[n(28)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub reservation: Option<Option<String>>,
    /// Whether the job may share cores with other jobs, and whether it gets whole nodes (OverSubscribe).
    #[n(29)]
    pub oversubscribe: Option<(bool, bool)>,
    /// Whether the job's nodes must be adjacent (Contiguous).
    #[n(30)]
    pub contiguous: Option<bool>,
    /// Generic resources of each node (Gres, TresPerNode); Some(None): removed.
    #[n(31)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub gres: Option<Option<String>>,
    /// Licenses (Licenses), as `fluent:2`; Some(None): removed.
    #[n(32)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub licenses: Option<Option<String>>,
    /// Fewest CPUs that each node must have (MinCPUsNode).
    #[n(33)]
    pub cpus_min: Option<u32>,
    /// Least scratch space that each node must have, MiB (MinTmpDiskNode).
    #[n(34)]
    pub tmp_disk_mb: Option<u64>,
    /// Tasks on each node (TasksPerNode).
    #[n(35)]
    pub ntasks_per_node: Option<u32>,
    /// Path of standard input, with patterns (StdIn).
    #[n(36)]
    pub stdin: Option<String>,
    /// Operators' comment on the job (AdminComment); Some(None): removed.
    #[n(38)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub admin_comment: Option<Option<String>>,
    /// Text for other programs (Extra); Some(None): removed.
    #[n(39)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub extra: Option<Option<String>>,
    /// Features that nodes should have if possible (Prefer); Some(None): removed.
    #[n(40)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub prefer: Option<Option<String>>,
    /// Most leaf switches of the allocation, and how long to wait for that (Switches); Some(None): any number.
    #[n(41)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub switches: Option<Option<AsGiven<Switches>>>,
    /// Seconds in which the job gets only nodes that are up (DelayBoot). The numbers 42 to 47 are left out.
    #[n(48)]
    pub delay_boot_s: Option<u64>,
    /// Whether the job's nodes are rebooted before it starts (Reboot).
    #[n(49)]
    pub reboot: Option<bool>,
    /// What the running job says of its progress (Progress), as `step 1200`.
    #[n(50)]
    pub progress: Option<String>,
}
