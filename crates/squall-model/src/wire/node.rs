//! Messages between controller and nodes, independent of the way they are sent.

use crate::encoding::ByteBuf;
use minicbor::{Decode, Encode};
use std::sync::Arc;

use crate::gang::{Strobe, Turns};
use crate::id::{Epoch, Incarnation, JobId, NodeId, Session, StepKey, StepNo};
use crate::job::{Digest, JobAttempt, Owner};
use crate::resource::Hardware;
use crate::step::{BatchStart, JobFacts, StepStart, Watcher};
use crate::wire::fabric::{Ask, ContentId, Health, StreamKey, Variable};

/// Message from the controller to a node. All messages are idempotent.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Down {
    /// Offers a session to a node that asked to register. The number of the put that carries this is the session's
    /// number.
    #[n(0)]
    Identify,
    /// Asks a node to register again, because it sent something although its session is over.
    #[n(1)]
    Knock,
    /// The registration is accepted. First message of a session.
    #[n(2)]
    Welcome {
        /// Id of the node.
        #[n(0)]
        node: NodeId,
    },
    /// A job got resources on this node: create its cgroup and spool. All nodes of the job get the same message. Only
    /// the batch script's node uses `batch` and the content attached to the frame for it.
    #[n(3)]
    StartJob {
        /// The job's specification and allocation.
        #[n(0)]
        #[cbor(with = "crate::encoding::arc")]
        facts: Arc<JobFacts>,
        /// How to start the job's script. None: the job has none.
        #[n(1)]
        batch: Option<BatchStart>,
    },
    /// Starts this node's tasks of a step. `StartJob` was sent before. All nodes of the step get the same message.
    #[n(4)]
    StartStep(#[n(0)] Box<StepStart>),
    /// Sends a signal to processes of a job.
    #[n(5)]
    Signal {
        /// The job.
        #[n(0)]
        job: JobAttempt,
        /// The processes.
        #[n(1)]
        target: SignalTarget,
        /// Signal number.
        #[n(2)]
        signal: i32,
    },
    /// Ends a step: TERM, then KILL after `kill_wait_s`. Reported as `StepEnded`.
    #[n(6)]
    EndStep {
        /// The step.
        #[n(0)]
        key: StepKey,
        /// Seconds between TERM and KILL; 0: KILL at once.
        #[n(1)]
        kill_wait_s: u64,
        /// Reason, shown to the user.
        #[n(2)]
        why: EndReason,
    },
    /// Ends the job on this node: every step, then all processes that are left. Reported as `JobGone`, also if the node
    /// had no such job.
    #[n(7)]
    EndJob {
        /// The job.
        #[n(0)]
        job: JobAttempt,
        /// Seconds between TERM and KILL; 0: KILL at once.
        #[n(1)]
        kill_wait_s: u64,
        /// Whether to resume stopped processes first (signal CONT).
        #[n(2)]
        cont: bool,
        /// Reason, shown to the user in the job's standard error.
        #[n(3)]
        why: EndReason,
    },
    /// Acknowledges reports: they are journaled, and the node may forget them.
    #[n(8)]
    Known {
        /// Steps that were reported as ended or failed to start.
        #[n(0)]
        steps: Vec<StepKey>,
        /// Jobs that were reported as gone.
        #[n(1)]
        jobs: Vec<JobAttempt>,
    },
    /// Writes a variable (the second half of COMPARE-AND-WRITE).
    #[n(9)]
    Write {
        /// The variable.
        #[n(0)]
        variable: Variable,
        /// Value to write.
        #[n(1)]
        value: i64,
    },
    /// The registration is refused. The node daemon logs the reason and exits.
    #[n(10)]
    Refused {
        /// Reason, as a text for users.
        #[n(0)]
        reason: String,
    },
    /// Ends the node daemon.
    #[n(11)]
    ShutDown {
        /// Whether running steps continue. If false, all work ends first, without reports.
        #[n(0)]
        keep_jobs: bool,
    },
    /// A file will arrive in chunks: create space for it, not visible yet. `Variable::Content` has the state of the
    /// file.
    #[n(12)]
    Expect {
        /// Identifies the file.
        #[n(0)]
        content: ContentId,
        /// Length of the file, bytes.
        #[n(1)]
        size: u64,
        /// Whether one of the nodes that share a disk receives the file and the others use its copy.
        #[n(2)]
        shared: bool,
    },
    /// Every node has the whole file: make it available.
    #[n(13)]
    Commit {
        /// Identifies the file.
        #[n(0)]
        content: ContentId,
    },
    /// Not every node could receive the file: delete what has arrived.
    #[n(14)]
    Abort {
        /// Identifies the file.
        #[n(0)]
        content: ContentId,
    },
    /// Writes an available file to its place, as its user. `Variable::Placed` has the result.
    #[n(15)]
    Place(#[n(0)] Box<Placement>),
    /// Chunks of a file may arrive by multicast.
    #[n(16)]
    Hear {
        /// Identifies the file.
        #[n(0)]
        content: ContentId,
        /// Number in the datagrams of this transfer.
        #[n(1)]
        stream: u64,
        /// Key that decrypts the datagrams.
        #[n(2)]
        key: StreamKey,
    },
    /// The controller's time, from which nodes work out the slots of gang scheduling. Delay or loss does no harm.
    #[n(17)]
    Strobe(#[n(0)] Strobe),
    /// Slots of gang-scheduled jobs. Jobs that this node does not have are ignored.
    #[n(18)]
    Turns(#[n(0)] Turns),
    /// Returns a leased job unless it has started. Reported as `JobGone`, as if it had ended.
    #[n(19)]
    Recall {
        /// The job and its attempt.
        #[n(0)]
        job: JobAttempt,
    },
    /// Lets an `sattach` client follow a step.
    #[n(20)]
    Watch {
        /// The step.
        #[n(0)]
        key: StepKey,
        /// Address of the `sattach` client.
        #[n(1)]
        watcher: Watcher,
    },
    /// Shows a text to the user, in the standard error of a batch script.
    #[n(21)]
    Notify {
        /// The job.
        #[n(0)]
        job: JobAttempt,
        /// The text.
        #[n(1)]
        text: String,
    },
}

/// A file that nodes write to a path.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Placement {
    /// Epoch of the controller that ordered it.
    #[n(0)]
    pub epoch: Epoch,
    /// Number of the order within that epoch.
    #[n(1)]
    pub number: u64,
    /// Identifies the file's content.
    #[n(2)]
    pub content: ContentId,
    /// The user as which nodes write the file.
    #[n(3)]
    pub owner: Owner,
    /// Absolute path of the file.
    #[n(4)]
    pub path: ByteBuf,
    /// Permission bits of the file.
    #[n(5)]
    pub mode: u32,
    /// Modification time, seconds and nanoseconds. None: the time of writing.
    #[n(6)]
    pub modified: Option<(i64, u32)>,
    /// Whether to replace an existing file. If false, an existing file is an error unless it has the same content.
    #[n(7)]
    pub replace: bool,
    /// Whether `_` and the node's name are appended to the path.
    #[n(8)]
    pub per_node: bool,
}

impl Down {
    /// Returns the report that every node has to send for this message. None: no report.
    pub fn ask(&self) -> Option<Ask> {
        match self {
            Self::StartStep(start) => Some(Ask::Step(start.key)),
            Self::EndJob { job, .. } => Some(Ask::Job(*job)),
            _ => None,
        }
    }
    /// Returns the digests of scripts and environments that the message refers to, for the host to attach their
    /// content.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        let spec = match self {
            Self::StartJob { facts, batch: Some(_) } => Some(&facts.spec),
            _ => None,
        };
        spec.into_iter().flat_map(|spec| spec.script.into_iter().chain([spec.env]))
    }
}

/// Why a job or step is ended before its time, for the message to the user: `*** JOB 12 ON n1 CANCELLED AT … DUE TO
/// TIME LIMIT ***`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum EndReason {
    /// No message: it had ended already, or only remaining processes are killed.
    #[default]
    #[n(0)]
    None,
    /// By `scancel`.
    #[n(1)]
    Cancelled,
    /// Time limit reached.
    #[n(2)]
    TimeLimit,
    /// Another node of the job's allocation failed.
    #[n(3)]
    NodeFail,
    /// Preempted for another job.
    #[n(4)]
    Preempted,
    /// By `scontrol requeue` from outside the job, or `squall down`.
    #[n(5)]
    Requeued,
    /// By `scontrol requeue` from within the job. The script gets a moment to receive the answer first.
    #[n(6)]
    RequeuesItself,
}

/// Which processes of a job get a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum SignalTarget {
    /// The tasks of every step, but not the batch script (`scancel --signal`).
    #[n(0)]
    Steps,
    /// The tasks of every step and the batch script's own process.
    #[n(1)]
    All,
    /// Only the batch script's own process (`--batch`).
    #[n(2)]
    Batch,
    /// The batch script and all its descendants (`--full`).
    #[n(3)]
    Full,
    /// The tasks of one step.
    #[n(4)]
    Step(#[n(0)] StepNo),
}

/// What a node reports about itself when it registers.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Registration {
    /// Name of the node.
    #[n(0)]
    pub name: String,
    /// The session that the controller offered.
    #[n(1)]
    pub session: Session,
    /// Incarnation of the node.
    #[n(2)]
    pub incarnation: Incarnation,
    /// Hardware of the node.
    #[n(3)]
    pub hardware: Hardware,
    /// Jobs that were started on the node and not yet reported gone.
    #[n(4)]
    pub jobs: Vec<JobAttempt>,
    /// Steps that were launched on the node and not yet reported ended.
    #[n(5)]
    pub steps: Vec<StepKey>,
    /// Jobs that the node accepted in an earlier incarnation and of which certainly no process started.
    #[n(6)]
    pub unstarted: Vec<JobAttempt>,
    /// The highest job id that this node daemon has seen since its start.
    #[n(7)]
    pub last_job: JobId,
    /// Load and free memory.
    #[n(8)]
    pub health: Health,
    /// Version of the node daemon.
    #[n(9)]
    pub version: String,
}
