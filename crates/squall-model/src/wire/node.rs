//! Messages between controller and node daemons, independent of how they are transported.

use crate::encoding::ByteBuf;
use minicbor::{Decode, Encode};
use std::sync::Arc;

use crate::checkpoint::CheckpointOrder;
use crate::gang::{Strobe, Turns};
use crate::id::{Epoch, Incarnation, JobId, NodeId, Session, StepKey, StepNo};
use crate::job::{Digest, ExitCode, JobAttempt, Owner};
use crate::resource::Hardware;
use crate::rotation::ControllerKeys;
use crate::step::{BatchStart, JobFacts, StepStart, Watcher};
use crate::time::Time;
use crate::version::ClusterVersion;
use crate::wire::fabric::{Ask, ContentId, Health, StreamKey, Variable};

/// Message from the controller to a node daemon. All messages are idempotent.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Down {
    /// Offers a session to a node that asked to register. The session's number is the number of the put (message to a
    /// set of nodes) that carries this offer.
    #[n(0)]
    Identify,
    /// Asks a node to register again. Sent when it reports something although its session is over.
    #[n(1)]
    Knock,
    /// Accepts the registration of a node. First message of a session.
    #[n(2)]
    Welcome {
        /// Id of the registered node.
        #[n(0)]
        node: NodeId,
        /// Name of the registered node: no other node takes this message. None: an older controller.
        #[n(1)]
        name: Option<String>,
    },
    /// A job got resources on this node: the node daemon creates the job's cgroup and spool. All nodes of the job get
    /// the same message. Only the node of the batch script uses `batch` and the script attached to the message.
    #[n(3)]
    StartJob {
        /// The job's specification and allocation.
        #[n(0)]
        #[cbor(with = "crate::encoding::arc")]
        facts: Arc<JobFacts>,
        /// How to start the job's batch script. None: the job has no script.
        #[n(1)]
        batch: Option<BatchStart>,
    },
    /// Starts the tasks of a step on this node. Always preceded by `StartJob`. All nodes of the step get the same
    /// message.
    #[n(4)]
    StartStep(#[n(0)] Box<StepStart>),
    /// Sends a signal to processes of a job.
    #[n(5)]
    Signal {
        /// The job that is signalled.
        #[n(0)]
        job: JobAttempt,
        /// The processes of the job that get the signal.
        #[n(1)]
        target: SignalTarget,
        /// Signal number.
        #[n(2)]
        signal: i32,
    },
    /// Ends a step: signal TERM, then KILL after `kill_wait_s`. The node daemon reports `StepEnded` afterwards.
    #[n(6)]
    EndStep {
        /// The step to end.
        #[n(0)]
        key: StepKey,
        /// Seconds between the signals TERM and KILL; 0: KILL at once.
        #[n(1)]
        kill_wait_s: u64,
        /// Why the step is ended, for the message to the user.
        #[n(2)]
        why: EndReason,
    },
    /// Ends the job on this node: every step, then all processes that are left. The node daemon reports `JobGone`
    /// afterwards, also if the node had no such job.
    #[n(7)]
    EndJob {
        /// The job to end.
        #[n(0)]
        job: JobAttempt,
        /// Seconds between the signals TERM and KILL; 0: KILL at once.
        #[n(1)]
        kill_wait_s: u64,
        /// Whether to resume stopped processes (signal CONT) before they are ended.
        #[n(2)]
        cont: bool,
        /// Why the job is ended, for the message in its standard error.
        #[n(3)]
        why: EndReason,
        /// Exit code of the job, for its epilog. None: there is no epilog, or the code is not known. The numbers before
        /// 8 are left out.
        #[n(8)]
        exit: Option<ExitCode>,
    },
    /// Acknowledges reports: they are in the controller's journal, so the node need not send them again.
    #[n(8)]
    Known {
        /// Steps with a reported end or a reported failed start.
        #[n(0)]
        steps: Vec<StepKey>,
        /// Jobs that were reported as having no processes left on the node.
        #[n(1)]
        jobs: Vec<JobAttempt>,
    },
    /// Sets a variable of the node (the second half of COMPARE-AND-WRITE).
    #[n(9)]
    Write {
        /// The variable to set.
        #[n(0)]
        variable: Variable,
        /// The new value.
        #[n(1)]
        value: i64,
    },
    /// Refuses the registration of a node. The node daemon logs the reason and exits.
    #[n(10)]
    Refused {
        /// Why the registration is refused, as a text for users.
        #[n(0)]
        reason: String,
        /// Name of the refused node: no other node takes this message. None: an older controller.
        #[n(1)]
        name: Option<String>,
    },
    /// Ends the node daemon.
    #[n(11)]
    ShutDown {
        /// Whether running steps continue. If false, all steps are ended first, and not reported.
        #[n(0)]
        keep_jobs: bool,
    },
    /// Announces a file that will arrive in chunks. The node daemon reserves disk space for it; the file is not usable
    /// before `Commit`. The node's variable `Variable::Content` has the state of the file.
    #[n(12)]
    Expect {
        /// The announced file.
        #[n(0)]
        content: ContentId,
        /// Length of the file, bytes.
        #[n(1)]
        size: u64,
        /// Whether, of the nodes that share a disk, only one receives the file and the others use its copy.
        #[n(2)]
        shared: bool,
    },
    /// Makes a received file usable. Sent when every node has the whole file.
    #[n(13)]
    Commit {
        /// The file that becomes usable.
        #[n(0)]
        content: ContentId,
    },
    /// Deletes the received part of a file. Sent when some node could not receive it.
    #[n(14)]
    Abort {
        /// The received part of this file is deleted.
        #[n(0)]
        content: ContentId,
    },
    /// Writes a received file to a path, with the rights of the job's user. The node's variable `Variable::Placed` has
    /// the result.
    #[n(15)]
    Place(#[n(0)] Box<Placement>),
    /// Prepares the node daemon for chunks of a file that arrive by multicast.
    #[n(16)]
    Hear {
        /// The file to which the chunks belong.
        #[n(0)]
        content: ContentId,
        /// Number that identifies this transfer in its datagrams.
        #[n(1)]
        stream: u64,
        /// Key that decrypts the datagrams of this transfer.
        #[n(2)]
        key: StreamKey,
    },
    /// The controller's time, from which node daemons calculate the current time slot of gang scheduling. Delay or loss
    /// does no harm.
    #[n(17)]
    Strobe(#[n(0)] Strobe),
    /// Time slots of gang-scheduled jobs. A node daemon ignores jobs that it does not have.
    #[n(18)]
    Turns(#[n(0)] Turns),
    /// Takes a leased (prefetched) job back unless it has started. The node daemon then reports `JobGone`, as if the
    /// job had ended.
    #[n(19)]
    Recall {
        /// The job to take back, with its attempt.
        #[n(0)]
        job: JobAttempt,
    },
    /// Lets an `sattach` client follow the output of a step.
    #[n(20)]
    Watch {
        /// The step to follow.
        #[n(0)]
        key: StepKey,
        /// Address of the `sattach` client, to which the step daemon connects.
        #[n(1)]
        watcher: Watcher,
    },
    /// Shows a text to the user, in the standard error of a batch script (`scontrol notify`).
    #[n(21)]
    Notify {
        /// The job of the batch script.
        #[n(0)]
        job: JobAttempt,
        /// The text to show.
        #[n(1)]
        text: String,
    },
    /// Reboots the node's machine, unless it has rebooted since. The numbers 22 and 23 are left out.
    #[n(24)]
    Reboot {
        /// Incarnation of the node that is to end.
        #[n(0)]
        incarnation: Incarnation,
    },
    /// The controllers have these keys from now on. This message is the last that the key before has signed. The numbers
    /// from 25 to 28 are left out.
    #[n(29)]
    Keys(#[n(0)] Box<ControllerKeys>),
    /// Runs `after_fault` on a node that accepts no jobs before it succeeds. The numbers from 30 to 39 are left out.
    #[n(40)]
    Check {
        /// When the fault was found, by the controller's clock. The report has the same.
        #[n(0)]
        fault: Time,
    },
    /// Makes a checkpoint of a job, or says whether it could. `NodeNote::Checkpoint` answers. The numbers from 41 to 49
    /// are left out.
    #[n(50)]
    Checkpoint(#[n(0)] Box<CheckpointOrder>),
    /// Removes the checkpoints of a job that has ended.
    #[n(51)]
    ForgetCheckpoints {
        /// The job.
        #[n(0)]
        job: JobId,
    },
}

/// Order to nodes to write a received file to a path.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Placement {
    /// Epoch of the controller that gave this order.
    #[n(0)]
    pub epoch: Epoch,
    /// Number of this order, counted within the controller's epoch.
    #[n(1)]
    pub number: u64,
    /// The content of the file.
    #[n(2)]
    pub content: ContentId,
    /// The user with whose rights nodes write the file.
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
    /// Whether to replace an existing file. If false, an existing file with other content is an error.
    #[n(7)]
    pub replace: bool,
    /// Whether each node appends `_` and its name to the path.
    #[n(8)]
    pub per_node: bool,
    /// The job with processes that know the file by this path. None: the path is the node's.
    #[n(12)]
    pub job: Option<JobAttempt>,
}

impl Down {
    /// Returns the report that every receiving node has to send later because of this message. None: no report.
    pub fn ask(&self) -> Option<Ask> {
        match self {
            Self::StartStep(start) => Some(Ask::Step(start.key)),
            Self::EndJob { job, .. } => Some(Ask::Job(*job)),
            _ => None,
        }
    }
    /// Returns the digests of the script and the environment that the message refers to. The host attaches their
    /// content.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        let spec = match self {
            Self::StartJob { facts, batch: Some(_) } => Some(&facts.spec),
            _ => None,
        };
        spec.into_iter().flat_map(|spec| spec.script.into_iter().chain([spec.env]))
    }
}

/// Why a job or step is ended early. It selects the text for the user: `*** JOB 12 ON n1 CANCELLED AT … DUE TO TIME
/// LIMIT ***`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum EndReason {
    /// No message to the user: the job or step had ended already, or only leftover processes are killed.
    #[default]
    #[n(0)]
    None,
    /// A user or operator cancelled the job or step (`scancel`).
    #[n(1)]
    Cancelled,
    /// The job or step reached its time limit.
    #[n(2)]
    TimeLimit,
    /// Another node of the job's allocation failed.
    #[n(3)]
    NodeFail,
    /// The job was preempted by another job.
    #[n(4)]
    Preempted,
    /// The job was requeued by `scontrol requeue` from outside the job, or by `squall down`.
    #[n(5)]
    Requeued,
    /// The job was requeued by `scontrol requeue` from within the job. Its script gets a moment to receive the answer
    /// first.
    #[n(6)]
    RequeuesItself,
    /// The job can't be checkpointed, and asked for `--checkpoint=…,must`.
    #[n(7)]
    Unsaved,
    /// A dump of the job was killed, so that its processes may be damaged. Only nodes say it, to their step daemons.
    #[n(8)]
    Damaged,
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
    /// The tasks of the step with this number.
    #[n(4)]
    Step(#[n(0)] StepNo),
}

/// Data that a node daemon reports about its node when it registers.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Registration {
    /// Name of the node.
    #[n(0)]
    pub name: String,
    /// The session that the controller offered to the node.
    #[n(1)]
    pub session: Session,
    /// Incarnation of the node, which changes when its machine reboots or its spool is wiped.
    #[n(2)]
    pub incarnation: Incarnation,
    /// Hardware of the node.
    #[n(3)]
    pub hardware: Hardware,
    /// Jobs that were started on the node and that the node daemon has not reported as ended yet.
    #[n(4)]
    pub jobs: Vec<JobAttempt>,
    /// Steps that were started on the node and that the node daemon has not reported as ended yet.
    #[n(5)]
    pub steps: Vec<StepKey>,
    /// Jobs that the node accepted in an earlier incarnation and that certainly never started a process.
    #[n(6)]
    pub unstarted: Vec<JobAttempt>,
    /// The highest job id that this node daemon has had since its start.
    #[n(7)]
    pub last_job: JobId,
    /// Load, free memory and counters of the node.
    #[n(8)]
    pub health: Health,
    /// Version of the node daemon.
    #[n(9)]
    pub version: String,
    /// The newest session that any controller had offered to the node before this one.
    #[n(10)]
    #[cbor(default)]
    pub heard: Session,
    /// The newest version of a cluster that the node daemon can work with.
    #[n(11)]
    #[cbor(default)]
    pub speaks: ClusterVersion,
}
