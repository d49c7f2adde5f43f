//! What the controller answers to clients, and why it refuses.

use crate::config::Config;
use crate::encoding::ByteBuf;
use crate::foreign::{Question, Reply};
use crate::id::{JobId, StepNo};
use crate::job::{ArrayTask, Digest, Outcome, Usage};
use crate::policy::{Limit, Policy, Whose};
use crate::step::{JobFacts, Layout};
use crate::time::Time;
use crate::wire::info::{
    AccountingRow, Diag, ExpectedStart, JobsPage, LicenseInfo, NodeInfo, PartitionInfo, ReservationInfo, Why,
};
use crate::wire::standing::{Priorities, Share};
use minicbor::{Decode, Encode};

/// An answer. Some requests get several, in order.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Answer {
    /// Accepted, durably. No other job gets the id.
    #[n(0)]
    Submitted {
        /// The job's or array's id.
        #[n(0)]
        job: JobId,
        /// Why an allocation will wait, if that can be said at once: what `--immediate` would be refused for.
        #[n(1)]
        note: Option<Refusal>,
    },
    /// When it would start.
    #[n(1)]
    WouldStart {
        /// The id that it might have.
        #[n(0)]
        job: JobId,
        /// When.
        #[n(1)]
        time: Time,
        /// CPUs.
        #[n(2)]
        cpus: u32,
        /// Host list.
        #[n(3)]
        nodes: String,
        /// Name of the partition.
        #[n(4)]
        partition: String,
    },
    /// The allocation runs.
    #[n(2)]
    Allocated(#[n(0)] Box<JobFacts>),
    /// The step runs (or is about to).
    #[n(3)]
    StepCreated {
        /// Its number.
        #[n(0)]
        step: StepNo,
        /// Which task runs where.
        #[n(1)]
        layout: Box<Layout>,
        /// Facts of the allocation.
        #[n(2)]
        facts: Box<JobFacts>,
        /// Seconds between TERM and KILL for a step that is ended.
        #[n(3)]
        kill_wait_s: u64,
    },
    /// The step has ended, durably.
    #[n(4)]
    StepDone {
        /// Its number.
        #[n(0)]
        step: StepNo,
        /// How.
        #[n(1)]
        outcome: Outcome,
    },
    /// The job has ended, durably.
    #[n(5)]
    JobDone {
        /// The job.
        #[n(0)]
        job: JobId,
        /// How (arrays: of the task with the highest exit code).
        #[n(1)]
        outcome: Outcome,
    },
    /// Done, durably.
    #[n(6)]
    Done,
    /// What was done to which jobs, durably; and to which it could not be done.
    #[n(7)]
    Affected {
        /// The jobs.
        #[n(0)]
        jobs: Vec<JobName>,
        /// Why not: the job as asked for, and the refusal.
        #[n(1)]
        refused: Vec<(JobName, Refusal)>,
    },
    /// Jobs.
    #[n(8)]
    Jobs(#[n(0)] Box<JobsPage>),
    /// Nodes.
    #[n(9)]
    Nodes(#[n(0)] Vec<NodeInfo>),
    /// Partitions.
    #[n(10)]
    Partitions(#[n(0)] Vec<PartitionInfo>),
    /// The configuration.
    #[n(11)]
    Config(#[n(0)] Box<Config>),
    /// The controller lives.
    #[n(12)]
    Pong {
        /// Its host.
        #[n(0)]
        host: String,
        /// Its version.
        #[n(1)]
        version: String,
        /// Nodes that have registered and are not down.
        #[n(2)]
        nodes_up: u32,
        /// Nodes that the configuration expects.
        #[n(3)]
        nodes_expected: u32,
        /// Why submissions are refused at present, if they are.
        #[n(4)]
        trouble: Option<String>,
        /// When it started.
        #[n(5)]
        started: Time,
        /// The id of the next job.
        #[n(6)]
        next_job: JobId,
    },
    /// Counters.
    #[n(13)]
    Diag(#[n(0)] Box<Diag>),
    /// Accounting rows.
    #[n(14)]
    Accounting {
        /// The rows, by submission.
        #[n(0)]
        rows: Vec<AccountingRow>,
        /// Another page follows.
        #[n(1)]
        more: bool,
        /// On the last page: of jobs in these ranges, both ends included, rows may be missing.
        #[n(2)]
        lost: Vec<(JobId, JobId)>,
    },
    /// What accounting keeps beside jobs, in the order in which it happened, and whether another page follows.
    #[n(15)]
    History(#[n(0)] Vec<crate::wire::history::HistoryRow>, #[n(1)] bool),
    /// A batch script.
    #[n(16)]
    Script(#[n(0)] ByteBuf),
    /// No.
    #[n(17)]
    Refused(#[n(0)] Refusal),
    /// Of the nodes that were asked, it holds on all but these.
    #[n(18)]
    Queried {
        /// Where it does not hold.
        #[n(0)]
        no: Vec<String>,
        /// The nodes that did not answer in time.
        #[n(1)]
        unreachable: Vec<String>,
    },
    /// These bytes of the file are wanted, in pieces of that length, after all that were wanted before.
    #[n(19)]
    Want {
        /// The first.
        #[n(0)]
        from: u64,
        /// After the last.
        #[n(1)]
        through: u64,
        /// Length of a piece.
        #[n(2)]
        chunk_bytes: u32,
    },
    /// All nodes have the file, or none has got it.
    #[n(20)]
    Broadcast {
        /// Nodes that have it.
        #[n(0)]
        nodes: u32,
        /// Nodes to which its bytes had to be sent.
        #[n(1)]
        sent: u32,
        /// Where it failed, with one of the reasons: an error number, 0 if the node does not answer.
        #[n(2)]
        failed: Option<(Vec<String>, i32)>,
    },
    /// What the tasks of a running step have used so far, and how many of its nodes did not say.
    #[n(21)]
    Measured(#[n(0)] Usage, #[n(1)] u32),
    /// To the owner of an allocation: for its user.
    #[n(22)]
    Notice(#[n(0)] String),
    /// The digest of a file.
    #[n(23)]
    Recalled(#[n(0)] Option<Digest>),
    /// Licenses, by name.
    #[n(24)]
    Licenses(#[n(0)] Vec<LicenseInfo>),
    /// Accounts, users, associations, levels of service.
    #[n(25)]
    Policy(#[n(0)] Box<Policy>),
    /// What priorities are made of.
    #[n(26)]
    Priorities(#[n(0)] Box<Priorities>),
    /// Accounts and their users, each account before what is below it.
    #[n(27)]
    Shares(#[n(0)] Vec<Share>),
    /// Starts as they are foretold, of jobs that wait.
    #[n(28)]
    Expected(#[n(0)] Vec<ExpectedStart>),
    /// Reservations, by name.
    #[n(29)]
    Reservations(#[n(0)] Vec<ReservationInfo>),
    /// The reservation of that name stands, durably.
    #[n(30)]
    Reserved(#[n(0)] String),
    /// Why a job waits.
    #[n(31)]
    Why(#[n(0)] Box<Why>),
    /// What comes next is without what these cells have, which don't answer.
    #[n(32)]
    Without(#[n(0)] Vec<u32>),
    /// Questions for other cells that were not told on this connection.
    #[n(33)]
    Unresolved(#[n(0)] Vec<Question>),
    /// Answers for another cell.
    #[n(34)]
    Resolved(#[n(0)] Vec<(Question, Reply)>),
}

/// A job as users name it: `123` or `123_4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct JobName {
    /// The job's own id.
    #[n(0)]
    pub id: JobId,
    /// Which array task it is.
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

/// Why a request is refused. The texts that users see are Slurm's and stand in the cli.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Refusal {
    /// No such job.
    #[n(0)]
    InvalidJobId,
    /// No such step.
    #[n(1)]
    InvalidStepId,
    /// No such partition.
    #[n(2)]
    InvalidPartition(#[n(0)] String),
    /// The partition takes no jobs.
    #[n(3)]
    PartitionNotAvailable(#[n(0)] String),
    /// No such node: the name.
    #[n(4)]
    InvalidNode(#[n(0)] String),
    /// No such account.
    #[n(5)]
    InvalidAccount(#[n(0)] String),
    /// No such QOS.
    #[n(6)]
    InvalidQos(#[n(0)] String),
    /// A value can't be: option and value and what is wrong.
    #[n(7)]
    InvalidValue {
        /// The option.
        #[n(0)]
        option: String,
        /// The value.
        #[n(1)]
        value: String,
        /// What is wrong, and what would be right.
        #[n(2)]
        problem: String,
    },
    /// No node of the partition could ever hold it: which resource.
    #[n(8)]
    NodeConfigNotAvailable(#[n(0)] String),
    /// More nodes or tasks than the allocation has.
    #[n(9)]
    TooManyRequested(#[n(0)] String),
    /// A dependency names a job that is not known, or itself.
    #[n(10)]
    DependencyProblem,
    /// The caller may not.
    #[n(11)]
    AccessDenied,
    /// The job has ended already.
    #[n(12)]
    AlreadyDone,
    /// The job is not pending (any more).
    #[n(13)]
    NotPending,
    /// The job is not running.
    #[n(14)]
    NotRunning,
    /// The job is not in a state for that.
    #[n(15)]
    WrongState(#[n(0)] String),
    /// The job was submitted with `--no-requeue`, or is not a batch job.
    #[n(16)]
    NotRequeueable,
    /// Held by the operator: the user can't release it.
    #[n(17)]
    HeldByAdmin,
    /// The job is held: only a release changes that.
    #[n(18)]
    Held,
    /// The array is larger than the site allows.
    #[n(19)]
    ArrayTooLarge {
        /// The highest index allowed.
        #[n(0)]
        highest: u32,
    },
    /// A script, environment or string is too long: what, and the limit in bytes.
    #[n(20)]
    TooLarge(#[n(0)] String, #[n(1)] u64),
    /// The queue holds as many jobs as the site allows.
    #[n(21)]
    QueueFull(#[n(0)] u32),
    /// The controller's disk is full: nothing new is accepted, running jobs go on.
    #[n(22)]
    DiskFull,
    /// The key was used before for something else.
    #[n(23)]
    KeyReused,
    /// `--immediate`: nothing was free in time.
    #[n(24)]
    Busy,
    /// `--immediate`: jobs of the partition do not start now.
    #[n(25)]
    PartitionDown(#[n(0)] String),
    /// `--immediate`: nodes that are named are down, drained or reserved.
    #[n(26)]
    NodeNotAvailable,
    /// The allocation has been ended or cancelled.
    #[n(27)]
    Revoked,
    /// The request is not one that this controller understands.
    #[n(28)]
    NotSupported(#[n(0)] String),
    /// The controller is going down.
    #[n(29)]
    ShuttingDown,
    /// A limit is reached, and jobs above it are not even queued.
    #[n(30)]
    Limit(#[n(0)] Whose, #[n(1)] Limit),
    /// What was to be changed has changed meanwhile.
    #[n(31)]
    Stale,
    /// What is set up would contradict itself: what, and why.
    #[n(32)]
    Contradiction(#[n(0)] String, #[n(1)] String),
    /// There is no such reservation, or what is asked of it can't be: in words.
    #[n(33)]
    ReservationInvalid(#[n(0)] String),
    /// The reservation is not for this user.
    #[n(34)]
    ReservationAccess(#[n(0)] String),
    /// Running jobs use the reservation.
    #[n(35)]
    ReservationBusy(#[n(0)] String),
    /// Another reservation has some of the nodes at some of the time: which.
    #[n(36)]
    ReservationOverlap(#[n(0)] String),
    /// An array can't be a component of a heterogeneous job.
    #[n(37)]
    HetArray,
    /// That cell does not answer, and was not told of the request.
    #[n(38)]
    CellAway(#[n(0)] u32),
    /// So many job ids are not left.
    #[n(39)]
    OutOfIds,
    /// Jobs of the partition wait or run.
    #[n(40)]
    PartitionBusy(#[n(0)] String),
}
