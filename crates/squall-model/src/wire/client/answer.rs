//! Answers of the controller to clients, and reasons for refusing a request.

use crate::config::Config;
use crate::encoding::ByteBuf;
use crate::foreign::{Question, Reply};
use crate::id::{JobId, StepNo};
use crate::job::{ArrayTask, Digest, ExitCode, Outcome, Usage};
use crate::policy::{Limit, Policy, Whose};
use crate::series::Series;
use crate::step::{JobFacts, Layout, StepDefaults};
use crate::time::Time;
use crate::version::ClusterVersion;
use crate::wire::feed::FeedPage;
use crate::wire::info::{
    AccountingRow, ControllerInfo, Diag, ExpectedStart, JobsPage, LicenseInfo, NodeInfo, PartitionInfo,
    ReservationInfo, Why,
};
use crate::wire::priority_info::{Priorities, Share};
use minicbor::{Decode, Encode};

/// An answer of the controller to a client. Some requests get several answers, in order.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Answer {
    /// The job was accepted and is in the journal. No other job gets its id while it is in memory.
    #[n(0)]
    Submitted {
        /// Id of the job or array.
        #[n(0)]
        job: JobId,
        /// Why the allocation can't start at once, as the refusal that `--immediate` would get; or what of the job is
        /// not supported. None: nothing is to be said.
        #[n(1)]
        note: Option<Refusal>,
        /// What the site's submit filter tells the user, perhaps in several lines. None: nothing.
        #[n(2)]
        message: Option<String>,
    },
    /// Expected start of a job that was only tested (`sbatch --test-only`).
    #[n(1)]
    WouldStart {
        /// Id that the job would get.
        #[n(0)]
        job: JobId,
        /// Expected start of the job.
        #[n(1)]
        time: Time,
        /// Number of CPUs that the job would get.
        #[n(2)]
        cpus: u32,
        /// Nodes on which the job would start, as a host list.
        #[n(3)]
        nodes: String,
        /// Name of the partition in which the job would start.
        #[n(4)]
        partition: String,
    },
    /// The allocation has started: its job and resources.
    #[n(2)]
    Allocated(#[n(0)] Box<JobFacts>),
    /// The step has its resources, and its tasks start.
    #[n(3)]
    StepCreated {
        /// Number of the step within its job.
        #[n(0)]
        step: StepNo,
        /// Nodes and tasks of the step.
        #[n(1)]
        layout: Box<Layout>,
        /// Specification and allocation of the step's job.
        #[n(2)]
        facts: Box<JobFacts>,
        /// Seconds between the signals TERM and KILL when the step is ended.
        #[n(3)]
        kill_wait_s: u64,
        /// What the cluster's configuration says of steps. None: nothing.
        #[n(4)]
        usual: Option<StepDefaults>,
    },
    /// The step has ended, and this is in the journal.
    #[n(4)]
    StepDone {
        /// Number of the step within its job.
        #[n(0)]
        step: StepNo,
        /// How the step ended.
        #[n(1)]
        outcome: Outcome,
        /// Names of the step's nodes that its running job has lost, as a host list. None: it has lost none.
        #[n(2)]
        lost: Option<String>,
    },
    /// The tasks of a step have ended on some of its nodes in a way that their step daemons can't report: these have
    /// died, or the nodes were lost. Sent to the step's `srun`.
    #[n(47)]
    StepPart {
        /// Number of the step within its job.
        #[n(0)]
        step: StepNo,
        /// The nodes, as a host list.
        #[n(1)]
        nodes: String,
        /// The worst exit of a task on these nodes.
        #[n(2)]
        exit: ExitCode,
    },
    /// The job has ended, and this is in the journal.
    #[n(5)]
    JobDone {
        /// The job or array that has ended.
        #[n(0)]
        job: JobId,
        /// How the job ended. For an array: the outcome of the task with the highest exit code.
        #[n(1)]
        outcome: Outcome,
    },
    /// The request was carried out; changes are in the journal.
    #[n(6)]
    Done,
    /// Jobs to which a request was applied, with the changes in the journal, and jobs to which it could not be applied.
    #[n(7)]
    Affected {
        /// The jobs to which the request was applied.
        #[n(0)]
        jobs: Vec<JobName>,
        /// The jobs to which the request was not applied, as the request names them, each with the reason.
        #[n(1)]
        refused: Vec<(JobName, Refusal)>,
    },
    /// A page of jobs; another one follows unless it is the last.
    #[n(8)]
    Jobs(#[n(0)] Box<JobsPage>),
    /// All nodes, with their states.
    #[n(9)]
    Nodes(#[n(0)] Vec<NodeInfo>),
    /// All partitions, with their states.
    #[n(10)]
    Partitions(#[n(0)] Vec<PartitionInfo>),
    /// The configuration that the controller uses, with its own addresses and ports.
    #[n(11)]
    Config(
        #[n(0)]
        #[cbor(encode_with = "crate::config::encode_whole")]
        Box<Config>,
    ),
    /// The controller is running: its host, version and state.
    #[n(12)]
    Pong {
        /// Name of the host on which the controller runs.
        #[n(0)]
        host: String,
        /// Version of the controller.
        #[n(1)]
        version: String,
        /// Number of nodes that have registered and are not down.
        #[n(2)]
        nodes_up: u32,
        /// Number of nodes that the configuration expects.
        #[n(3)]
        nodes_expected: u32,
        /// Why submissions are refused at present. None: they are accepted.
        #[n(4)]
        trouble: Option<String>,
        /// When the controller started.
        #[n(5)]
        started: Time,
        /// Id that the next job will get.
        #[n(6)]
        next_job: JobId,
        /// Version of the cluster.
        #[n(7)]
        #[cbor(default)]
        cluster_version: ClusterVersion,
        /// The newest version of a cluster that the controller can work with.
        #[n(8)]
        #[cbor(default)]
        speaks: ClusterVersion,
        /// Why the records of accounting lag behind, in a sentence. None: they do not.
        #[n(9)]
        records: Option<String>,
    },
    /// Counters of the controller, for `sdiag`.
    #[n(13)]
    Diag(#[n(0)] Box<Diag>),
    /// A page of accounting rows.
    #[n(14)]
    Accounting {
        /// The rows, in order of the jobs' submission.
        #[n(0)]
        rows: Vec<AccountingRow>,
        /// Whether another page of rows follows.
        #[n(1)]
        more: bool,
        /// Ranges of job ids (first and last) of which rows may be missing. Only set on the last page.
        #[n(2)]
        lost: Vec<(JobId, JobId)>,
    },
    /// A page of accounting data other than jobs, in order of time, and whether another page follows.
    #[n(15)]
    History(#[n(0)] Vec<crate::wire::history::HistoryRow>, #[n(1)] bool),
    /// Content of a job's batch script.
    #[n(16)]
    Script(#[n(0)] ByteBuf),
    /// The request is refused, for the reason given.
    #[n(17)]
    Refused(#[n(0)] Refusal),
    /// Result of a query: the comparison holds on all nodes that were asked, except for those listed here.
    #[n(18)]
    Queried {
        /// Nodes on which the comparison does not hold.
        #[n(0)]
        no: Vec<String>,
        /// Nodes that did not answer in time.
        #[n(1)]
        unreachable: Vec<String>,
    },
    /// Asks the client for a range of the file's bytes, in pieces of `chunk_bytes`. Ranges are sent in the order in
    /// which they were asked for.
    #[n(19)]
    Want {
        /// Offset of the first byte of the range in the file.
        #[n(0)]
        from: u64,
        /// Offset after the last byte of the range in the file.
        #[n(1)]
        through: u64,
        /// Most bytes of each piece in which the client sends the range.
        #[n(2)]
        chunk_bytes: u32,
    },
    /// The broadcast has ended: either all nodes have the file, or none got it.
    #[n(20)]
    Broadcast {
        /// Number of nodes that have the file.
        #[n(0)]
        nodes: u32,
        /// Number of nodes to which the file's content was sent.
        #[n(1)]
        sent: u32,
        /// Nodes on which the broadcast failed, and one of the reasons: an errno, or 0 if the node did not answer.
        /// None: it failed on no node.
        #[n(2)]
        failed: Option<(Vec<String>, i32)>,
    },
    /// Resources used so far by the tasks of a running step, and the number of its nodes that did not answer.
    #[n(21)]
    Measured(#[n(0)] Usage, #[n(1)] u32, #[n(2)] Option<Box<Series>>),
    /// Text to show to the user. Sent to the client that owns an allocation.
    #[n(22)]
    Notice(#[n(0)] String),
    /// Digest of a file that the caller sent before. None: the controller does not have it (any more).
    #[n(23)]
    Recalled(#[n(0)] Option<Digest>),
    /// All licenses of the cluster, by name.
    #[n(24)]
    Licenses(#[n(0)] Vec<LicenseInfo>),
    /// All accounts, users, associations and QOS.
    #[n(25)]
    Policy(#[n(0)] Box<Policy>),
    /// Priorities of pending jobs, and how they are made up.
    #[n(26)]
    Priorities(#[n(0)] Box<Priorities>),
    /// Fair shares of accounts and users, each account before those below it.
    #[n(27)]
    Shares(#[n(0)] Vec<Share>),
    /// Expected starts of pending jobs.
    #[n(28)]
    Expected(#[n(0)] Vec<ExpectedStart>),
    /// All reservations, by name.
    #[n(29)]
    Reservations(#[n(0)] Vec<ReservationInfo>),
    /// The reservation with this name was created or changed, and this is in the journal.
    #[n(30)]
    Reserved(#[n(0)] String),
    /// Why a job is pending, and what would let it start.
    #[n(31)]
    Why(#[n(0)] Box<Why>),
    /// Numbers of cells that don't respond. The answers that follow lack their data.
    #[n(32)]
    Without(#[n(0)] Vec<u32>),
    /// Questions about jobs of other cells. Only those that were not sent on this connection before.
    #[n(33)]
    Unresolved(#[n(0)] Vec<Question>),
    /// Answers to questions of another cell.
    #[n(34)]
    Resolved(#[n(0)] Vec<(Question, Reply)>),
    /// The user as whom the controller regards the caller.
    #[n(40)]
    Caller {
        /// The user's id.
        #[n(0)]
        uid: u32,
        /// The user's name.
        #[n(1)]
        user: String,
        /// Name of the user's group.
        #[n(2)]
        group: String,
        /// Whether the user may act on everything.
        #[n(3)]
        operator: bool,
    },
    /// A token (JWT) by which its bearer is a user.
    #[n(41)]
    Token(#[n(0)] String),
    /// All controllers of the cluster, in order of preference. Empty: there is only one.
    #[n(42)]
    Controllers(#[n(0)] Vec<ControllerInfo>),
    /// The next bytes of a backup.
    #[n(43)]
    Backup(#[n(0)] ByteBuf),
    /// The end of a job's output.
    #[n(44)]
    Tail(#[n(0)] Box<Tail>),
    /// Events that the client has not got before.
    #[n(35)]
    Followed(#[n(0)] Box<FeedPage>),
}

/// A job as users write it: `123` or `123_4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct JobName {
    /// Id of the job or of the array task.
    #[n(0)]
    pub id: JobId,
    /// Array and index of an array task. None: the job is not an array task.
    #[n(1)]
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

/// The end of a job's output file, as the job's owner can read it on the controller's host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Tail {
    /// Path of the file.
    #[n(0)]
    pub path: String,
    /// Size of the file, bytes.
    #[n(1)]
    pub size: u64,
    /// Its last bytes.
    #[n(2)]
    pub bytes: ByteBuf,
    /// Why it can't be read. None: it could.
    #[n(3)]
    pub problem: Option<String>,
}

/// Why a request is refused. `squall-cli` has the texts that users see, as Slurm's.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Refusal {
    /// The job of the request does not exist.
    #[n(0)]
    InvalidJobId,
    /// The step of the request does not exist.
    #[n(1)]
    InvalidStepId,
    /// The partition with this name does not exist.
    #[n(2)]
    InvalidPartition(#[n(0)] String),
    /// The partition with this name does not accept jobs.
    #[n(3)]
    PartitionNotAvailable(#[n(0)] String),
    /// The node with this name does not exist.
    #[n(4)]
    InvalidNode(#[n(0)] String),
    /// The account with this name does not exist.
    #[n(5)]
    InvalidAccount(#[n(0)] String),
    /// The QOS with this name does not exist.
    #[n(6)]
    InvalidQos(#[n(0)] String),
    /// An option has a value that is not allowed.
    #[n(7)]
    InvalidValue {
        /// Name of the option.
        #[n(0)]
        option: String,
        /// The refused value.
        #[n(1)]
        value: String,
        /// What is wrong with the value, and which values are allowed.
        #[n(2)]
        problem: String,
    },
    /// No node of the partition has enough of this resource.
    #[n(8)]
    NodeConfigNotAvailable(#[n(0)] String),
    /// The request needs more nodes or tasks (the text says which) than the allocation has.
    #[n(9)]
    TooManyRequested(#[n(0)] String),
    /// The job depends on an unknown job, or on itself.
    #[n(10)]
    DependencyProblem,
    /// The caller has no permission for the request.
    #[n(11)]
    AccessDenied,
    /// The job has ended already.
    #[n(12)]
    AlreadyDone,
    /// The job is not pending, or no longer.
    #[n(13)]
    NotPending,
    /// The job is not running.
    #[n(14)]
    NotRunning,
    /// The job's state, given as a text, does not allow the request.
    #[n(15)]
    WrongState(#[n(0)] String),
    /// The job can't be requeued: it was submitted with `--no-requeue`, or is not a batch job.
    #[n(16)]
    NotRequeueable,
    /// The job was held by an operator, so the user can't release it.
    #[n(17)]
    HeldByAdmin,
    /// The job is held and must be released first.
    #[n(18)]
    Held,
    /// The array has a higher index than the site allows.
    #[n(19)]
    ArrayTooLarge {
        /// The highest index that the site allows.
        #[n(0)]
        highest: u32,
    },
    /// A script, environment or string is too long: what it is, and the limit in bytes.
    #[n(20)]
    TooLarge(#[n(0)] String, #[n(1)] u64),
    /// The queue is full: it has this many jobs, the most that the site allows.
    #[n(21)]
    QueueFull(#[n(0)] u32),
    /// The controller's disk is full. New jobs are refused, running jobs continue.
    #[n(22)]
    DiskFull,
    /// The request has the key of an earlier request, but another content.
    #[n(23)]
    KeyReused,
    /// The resources are in use: `--immediate` did not get them in time, or jobs use nodes that are to be reserved.
    #[n(24)]
    Busy,
    /// `--immediate`: the partition with this name does not start jobs at present.
    #[n(25)]
    PartitionDown(#[n(0)] String),
    /// `--immediate`: nodes that the job names are down, drained or reserved.
    #[n(26)]
    NodeNotAvailable,
    /// The allocation was cancelled or ended before it could be used.
    #[n(27)]
    Revoked,
    /// The controller does not support this request; the text says what.
    #[n(28)]
    NotSupported(#[n(0)] String),
    /// The controller is shutting down.
    #[n(29)]
    ShuttingDown,
    /// The job would exceed this limit, and jobs that exceed it are not accepted into the queue. The first value is the
    /// kind of object on which the limit is set.
    #[n(30)]
    Limit(#[n(0)] Whose, #[n(1)] Limit),
    /// The object to be changed was changed by another request after the caller read it.
    #[n(31)]
    Stale,
    /// The change of accounts would contradict other settings: the object that can't be changed, and the reason.
    #[n(32)]
    Contradiction(#[n(0)] String, #[n(1)] String),
    /// The reservation does not exist, or can't be created or changed like this; the text is the reason.
    #[n(33)]
    ReservationInvalid(#[n(0)] String),
    /// The user may not use the reservation with this name.
    #[n(34)]
    ReservationAccess(#[n(0)] String),
    /// Running jobs use the reservation with this name.
    #[n(35)]
    ReservationBusy(#[n(0)] String),
    /// The reservation with this name already has some of the nodes in the requested period.
    #[n(36)]
    ReservationOverlap(#[n(0)] String),
    /// An array can't be a component of a heterogeneous job.
    #[n(37)]
    HetArray,
    /// The cell with this number does not respond. The request was not sent to the cell.
    #[n(38)]
    CellAway(#[n(0)] u32),
    /// The controller has fewer free job ids than this request needs.
    #[n(39)]
    OutOfIds,
    /// The partition with this name has pending or running jobs.
    #[n(40)]
    PartitionBusy(#[n(0)] String),
    /// The command comes from the machine with this name, and may not come from there for this reason.
    #[n(41)]
    NotFrom(#[n(0)] String, #[n(1)] HostProblem),
    /// The caller's token is not accepted, for this reason.
    #[n(42)]
    BadToken(#[n(0)] String),
    /// None of the cluster's controllers leads at the moment; the text says what was tried.
    #[n(43)]
    NoLeader(#[n(0)] String),
    /// The generic resource with this name is requested both with and without a type.
    #[n(44)]
    MixedTypes(#[n(0)] String),
    /// The site's submit filter refuses the job, with this error number of Slurm (1: none in particular) and this text for
    /// the user, perhaps in several lines.
    #[n(45)]
    Filtered(#[n(0)] u32, #[n(1)] String),
}

/// Why the controller does not accept a command from another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum HostProblem {
    /// The machine has no key that the controller knows, or no longer.
    #[n(0)]
    Revoked,
    /// The machine is a node, and the user has no job there.
    #[n(1)]
    NoJob,
    /// The user is root, which the machine may not vouch for.
    #[n(2)]
    Root,
    /// The controller's machine knows no user with this uid.
    #[n(3)]
    UnknownUser(#[n(0)] u32),
    /// The user is not in the group with this gid, as the controller's machine knows the groups.
    #[n(4)]
    NotInGroup(#[n(0)] u32),
    /// The user is a system user: the machine may vouch for users from this uid on.
    #[n(5)]
    SystemUser(#[n(0)] u32),
    /// The machine is a node, and neither the job nor the one in which it was submitted is there.
    #[n(6)]
    OtherJob,
    /// The machine is a node, which may not ask for tokens of users.
    #[n(7)]
    Token,
}
