//! Answers of the controller to clients, and reasons for refusing a request.

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
    /// The job is accepted, durably. No other job gets its id.
    #[n(0)]
    Submitted {
        /// The job's or array's id.
        #[n(0)]
        job: JobId,
        /// Why an allocation has to wait, if it is known at once: the reason for which `--immediate` would be refused.
        #[n(1)]
        note: Option<Refusal>,
    },
    /// Expected start of a job that was not submitted.
    #[n(1)]
    WouldStart {
        /// Id that the job would get.
        #[n(0)]
        job: JobId,
        /// Expected start.
        #[n(1)]
        time: Time,
        /// Number of CPUs.
        #[n(2)]
        cpus: u32,
        /// Nodes, as a host list.
        #[n(3)]
        nodes: String,
        /// Name of the partition.
        #[n(4)]
        partition: String,
    },
    /// The allocation has started.
    #[n(2)]
    Allocated(#[n(0)] Box<JobFacts>),
    /// The step has started, or is about to.
    #[n(3)]
    StepCreated {
        /// Number of the step.
        #[n(0)]
        step: StepNo,
        /// Nodes and tasks of the step.
        #[n(1)]
        layout: Box<Layout>,
        /// Specification and allocation of the job.
        #[n(2)]
        facts: Box<JobFacts>,
        /// Seconds between TERM and KILL when the step is ended.
        #[n(3)]
        kill_wait_s: u64,
    },
    /// The step has ended, durably.
    #[n(4)]
    StepDone {
        /// Number of the step.
        #[n(0)]
        step: StepNo,
        /// How the step ended.
        #[n(1)]
        outcome: Outcome,
    },
    /// The job has ended, durably.
    #[n(5)]
    JobDone {
        /// The job.
        #[n(0)]
        job: JobId,
        /// How the job ended. For an array: the outcome of the task with the highest exit code.
        #[n(1)]
        outcome: Outcome,
    },
    /// The request was carried out, durably.
    #[n(6)]
    Done,
    /// The jobs to which a request was applied, durably, and those to which it could not be.
    #[n(7)]
    Affected {
        /// The jobs to which it was applied.
        #[n(0)]
        jobs: Vec<JobName>,
        /// The others: each as the request named it, with the reason.
        #[n(1)]
        refused: Vec<(JobName, Refusal)>,
    },
    /// A page of jobs.
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
    /// The controller is running.
    #[n(12)]
    Pong {
        /// Host name of the controller.
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
    },
    /// Counters, for `sdiag`.
    #[n(13)]
    Diag(#[n(0)] Box<Diag>),
    /// Accounting rows.
    #[n(14)]
    Accounting {
        /// The rows, in order of submission.
        #[n(0)]
        rows: Vec<AccountingRow>,
        /// Whether another page follows.
        #[n(1)]
        more: bool,
        /// On the last page: ranges of job ids (both ends included) of which rows may be missing.
        #[n(2)]
        lost: Vec<(JobId, JobId)>,
    },
    /// Accounting data other than jobs, in order of time, and whether another page follows.
    #[n(15)]
    History(#[n(0)] Vec<crate::wire::history::HistoryRow>, #[n(1)] bool),
    /// A batch script.
    #[n(16)]
    Script(#[n(0)] ByteBuf),
    /// The request is refused for this reason.
    #[n(17)]
    Refused(#[n(0)] Refusal),
    /// Result of a query: the comparison holds on all nodes asked but these.
    #[n(18)]
    Queried {
        /// Nodes on which the comparison does not hold.
        #[n(0)]
        no: Vec<String>,
        /// The nodes that did not answer in time.
        #[n(1)]
        unreachable: Vec<String>,
    },
    /// Asks the client for these bytes of the file, in pieces of `chunk_bytes`, after all bytes asked for before.
    #[n(19)]
    Want {
        /// Offset of the first byte.
        #[n(0)]
        from: u64,
        /// Offset after the last byte.
        #[n(1)]
        through: u64,
        /// Length of a piece, bytes.
        #[n(2)]
        chunk_bytes: u32,
    },
    /// The broadcast has ended: either all nodes have the file, or none got it.
    #[n(20)]
    Broadcast {
        /// Number of nodes that have the file.
        #[n(0)]
        nodes: u32,
        /// Number of nodes to which its content was sent.
        #[n(1)]
        sent: u32,
        /// Nodes on which the broadcast failed, and one of the reasons: an errno, or 0 if the node did not answer.
        #[n(2)]
        failed: Option<(Vec<String>, i32)>,
    },
    /// Usage of the tasks of a running step so far, and the number of its nodes that did not answer.
    #[n(21)]
    Measured(#[n(0)] Usage, #[n(1)] u32),
    /// Sent to the owner of an allocation: a text to show to the user.
    #[n(22)]
    Notice(#[n(0)] String),
    /// Digest of a file that the caller sent before. None: the controller does not remember it.
    #[n(23)]
    Recalled(#[n(0)] Option<Digest>),
    /// Licenses, by name.
    #[n(24)]
    Licenses(#[n(0)] Vec<LicenseInfo>),
    /// All accounts, users, associations and QOS.
    #[n(25)]
    Policy(#[n(0)] Box<Policy>),
    /// Priorities of pending jobs with their factors.
    #[n(26)]
    Priorities(#[n(0)] Box<Priorities>),
    /// Fair shares of accounts and users, each account before those below it.
    #[n(27)]
    Shares(#[n(0)] Vec<Share>),
    /// Expected starts of pending jobs.
    #[n(28)]
    Expected(#[n(0)] Vec<ExpectedStart>),
    /// Reservations, by name.
    #[n(29)]
    Reservations(#[n(0)] Vec<ReservationInfo>),
    /// The reservation with this name was created or changed, durably.
    #[n(30)]
    Reserved(#[n(0)] String),
    /// Why a job is pending.
    #[n(31)]
    Why(#[n(0)] Box<Why>),
    /// The answers that follow lack the data of these cells, which don't respond.
    #[n(32)]
    Without(#[n(0)] Vec<u32>),
    /// Questions for other cells that were not sent on this connection yet.
    #[n(33)]
    Unresolved(#[n(0)] Vec<Question>),
    /// Answers for another cell.
    #[n(34)]
    Resolved(#[n(0)] Vec<(Question, Reply)>),
}

/// A job as users write it: `123` or `123_4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct JobName {
    /// The job's own id.
    #[n(0)]
    pub id: JobId,
    /// Array and index, if it is an array task.
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

/// Why a request is refused. The cli has Slurm's texts for users.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Refusal {
    /// The job does not exist.
    #[n(0)]
    InvalidJobId,
    /// The step does not exist.
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
    /// An option has a value that is not possible.
    #[n(7)]
    InvalidValue {
        /// The option.
        #[n(0)]
        option: String,
        /// The value.
        #[n(1)]
        value: String,
        /// What is wrong with the value, and what would be right.
        #[n(2)]
        problem: String,
    },
    /// No node of the partition has enough of this resource.
    #[n(8)]
    NodeConfigNotAvailable(#[n(0)] String),
    /// More of this (nodes or tasks) than the allocation has.
    #[n(9)]
    TooManyRequested(#[n(0)] String),
    /// A dependency is on an unknown job, or on the job itself.
    #[n(10)]
    DependencyProblem,
    /// The caller has no permission.
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
    /// The job's state, given as a text, does not allow the request.
    #[n(15)]
    WrongState(#[n(0)] String),
    /// The job was submitted with `--no-requeue`, or is not a batch job.
    #[n(16)]
    NotRequeueable,
    /// The job was held by an operator, so the user can't release it.
    #[n(17)]
    HeldByAdmin,
    /// The job is held and must be released first.
    #[n(18)]
    Held,
    /// The array has higher indices than the site allows.
    #[n(19)]
    ArrayTooLarge {
        /// The highest index allowed.
        #[n(0)]
        highest: u32,
    },
    /// A script, environment or string (named in the text) is longer than this limit in bytes.
    #[n(20)]
    TooLarge(#[n(0)] String, #[n(1)] u64),
    /// The queue has this many jobs, the most that the site allows.
    #[n(21)]
    QueueFull(#[n(0)] u32),
    /// The controller's disk is full. New jobs are refused, running jobs continue.
    #[n(22)]
    DiskFull,
    /// The client's key was used before for another request.
    #[n(23)]
    KeyReused,
    /// `--immediate`: the resources did not become free in time.
    #[n(24)]
    Busy,
    /// `--immediate`: the partition with this name does not start jobs at present.
    #[n(25)]
    PartitionDown(#[n(0)] String),
    /// `--immediate`: nodes that the job names are down, drained or reserved.
    #[n(26)]
    NodeNotAvailable,
    /// The allocation was ended or cancelled.
    #[n(27)]
    Revoked,
    /// This controller does not understand the request.
    #[n(28)]
    NotSupported(#[n(0)] String),
    /// The controller is going down.
    #[n(29)]
    ShuttingDown,
    /// A limit is reached, and jobs beyond it are not accepted into the queue.
    #[n(30)]
    Limit(#[n(0)] Whose, #[n(1)] Limit),
    /// The object to be changed has been changed by another request meanwhile.
    #[n(31)]
    Stale,
    /// The change of accounts would contradict other settings: the object, and the reason.
    #[n(32)]
    Contradiction(#[n(0)] String, #[n(1)] String),
    /// The reservation does not exist, or can't be made or changed like this; the text has the reason.
    #[n(33)]
    ReservationInvalid(#[n(0)] String),
    /// The user may not use the reservation with this name.
    #[n(34)]
    ReservationAccess(#[n(0)] String),
    /// Running jobs use the reservation with this name.
    #[n(35)]
    ReservationBusy(#[n(0)] String),
    /// The reservation with this name has some of the nodes at the same time.
    #[n(36)]
    ReservationOverlap(#[n(0)] String),
    /// An array can't be a component of a heterogeneous job.
    #[n(37)]
    HetArray,
    /// The cell with this number does not respond. The request was not sent to it.
    #[n(38)]
    CellAway(#[n(0)] u32),
    /// Fewer job ids are free than this request needs.
    #[n(39)]
    OutOfIds,
    /// The partition with this name has pending or running jobs.
    #[n(40)]
    PartitionBusy(#[n(0)] String),
}
