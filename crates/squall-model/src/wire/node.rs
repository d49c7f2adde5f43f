//! What controller and nodes say to each other, whatever lies between them.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::sync::Arc;

use crate::gang::{Strobe, Turns};
use crate::id::{Epoch, Incarnation, JobId, NodeId, Session, StepKey, StepNo};
use crate::job::{Digest, JobAttempt, Owner};
use crate::resource::Hardware;
use crate::step::{BatchStart, JobFacts, StepStart, Watcher};
use crate::wire::fabric::{Ask, ContentId, Health, StreamKey, Variable};

/// What the controller tells a node. All are idempotent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Down {
    /// To a node that knocked: say who you are. The number of the put that brings this is the session's.
    Identify,
    /// To a node that answers though its session is over: knock.
    Knock,
    /// Registration accepted. First message of a session.
    Welcome {
        /// The node's id.
        node: NodeId,
    },
    /// The job holds this node from now on: make ready (cgroup, spool). The same message serves all nodes of the job,
    /// but only the batch script's node needs `batch`, and what is attached to a frame for its sake.
    StartJob {
        /// The job.
        facts: Arc<JobFacts>,
        /// The launch of its script.
        batch: Option<BatchStart>,
    },
    /// Run this node's share of a step. The job was started here earlier. The same for all nodes of the step.
    StartStep(Box<StepStart>),
    /// Send a signal to processes of a job.
    Signal {
        /// The job.
        job: JobAttempt,
        /// Which processes.
        target: SignalTarget,
        /// Signal number.
        signal: i32,
    },
    /// End a step: TERM, then KILL after `kill_wait_s`. Reported as `StepEnded`.
    EndStep {
        /// The step.
        key: StepKey,
        /// Seconds between TERM and KILL; 0: KILL at once.
        kill_wait_s: u64,
        /// What for, told to the user.
        why: EndReason,
    },
    /// End the job here: every step, then all that is left. Reported as `JobGone`, also when nothing was there.
    EndJob {
        /// The job.
        job: JobAttempt,
        /// Seconds between TERM and KILL; 0: KILL at once.
        kill_wait_s: u64,
        /// First bring stopped processes to life (`CONT`).
        cont: bool,
        /// What for, told to the user in the job's standard error.
        why: EndReason,
    },
    /// What was reported of these is journaled: forget it.
    Known {
        /// Steps that ended or could not be started.
        steps: Vec<StepKey>,
        /// Jobs of which nothing is left.
        jobs: Vec<JobAttempt>,
    },
    /// Write a variable (the second half of COMPARE-AND-WRITE).
    Write {
        /// Which.
        variable: Variable,
        /// Its new value.
        value: i64,
    },
    /// The registration can't be accepted; the daemon says so and ends.
    Refused {
        /// Why.
        reason: String,
    },
    /// End: `keep_jobs` false ends all work first (without reports).
    ShutDown {
        /// Whether running steps are left alone.
        keep_jobs: bool,
    },
    /// A file will come in chunks: make room for it, in the shadow. What became of it is in `Variable::Content`.
    Expect {
        /// Which.
        content: ContentId,
        /// Its length, bytes.
        size: u64,
        /// One of the nodes that share a disk is enough to take it in; the others take it from there.
        shared: bool,
    },
    /// Every node has all of the file: it is there now.
    Commit {
        /// Which.
        content: ContentId,
    },
    /// Not every node could take in the file: what of it is in the shadow goes.
    Abort {
        /// Which.
        content: ContentId,
    },
    /// Lay down a file that is there, as its user. What became of it is in `Variable::Placed`.
    Place(Box<Placement>),
    /// Pieces of a file may come by multicast.
    Hear {
        /// Of which file.
        content: ContentId,
        /// What the datagrams say to which stream they belong.
        stream: u64,
        /// What opens them.
        key: StreamKey,
    },
    /// The time: the slots of gang scheduling follow from it. Late or lost it does no harm.
    Strobe(Strobe),
    /// When these jobs run; those that are not here are no concern of this node.
    Turns(Turns),
    /// Give a leased job back, unless it has begun: that nothing of it is here is reported as at any end.
    Recall {
        /// The job.
        job: JobAttempt,
    },
    /// Let somebody watch a step.
    Watch {
        /// The step.
        key: StepKey,
        /// Who.
        watcher: Watcher,
    },
    /// Tell the user something, in the standard error of a batch script.
    Notify {
        /// The job.
        job: JobAttempt,
        /// What.
        text: String,
    },
}

/// A file to be laid down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The incarnation of the controller that ordered it.
    pub epoch: Epoch,
    /// Which order of that incarnation.
    pub number: u64,
    /// The file.
    pub content: ContentId,
    /// Who writes it.
    pub owner: Owner,
    /// Where to, absolute.
    pub path: ByteBuf,
    /// Its permissions.
    pub mode: u32,
    /// Its time of modification, seconds and nanoseconds; None: now.
    pub modified: Option<(i64, u32)>,
    /// Replace what is there; otherwise only the same file may be there.
    pub replace: bool,
    /// `_` and the node's name end the path.
    pub per_node: bool,
}

impl Down {
    /// The report that every node owes for this message.
    pub fn ask(&self) -> Option<Ask> {
        match self {
            Self::StartStep(start) => Some(Ask::Step(start.key)),
            Self::EndJob { job, .. } => Some(Ask::Job(*job)),
            _ => None,
        }
    }
    /// The scripts and environments that the message refers to, for the host to attach.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        let spec = match self {
            Self::StartJob { facts, batch: Some(_) } => Some(&facts.spec),
            _ => None,
        };
        spec.into_iter().flat_map(|spec| spec.script.into_iter().chain([spec.env]))
    }
}

/// Why a job or step is ended before its time: `*** JOB 12 ON n1 CANCELLED AT … DUE TO TIME LIMIT ***`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EndReason {
    /// Nothing to tell: it had ended anyway, or only leftovers are cleared.
    #[default]
    None,
    /// `scancel`.
    Cancelled,
    /// Its time limit.
    TimeLimit,
    /// Another node of its allocation died.
    NodeFail,
    /// To make room.
    Preempted,
    /// `scontrol requeue` by others, `squall down`.
    Requeued,
    /// `scontrol requeue` by the job itself: its script has a moment to hear the answer.
    RequeuesItself,
}

/// Which processes of a job a signal goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignalTarget {
    /// Every step's tasks, not the batch script (`scancel --signal`).
    Steps,
    /// Every step's tasks and the batch script's own process.
    All,
    /// The batch script's process only (`--batch`).
    Batch,
    /// The batch script and all its children (`--full`).
    Full,
    /// One step.
    Step(StepNo),
}

/// What a node says of itself when it connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Its name.
    pub name: String,
    /// The session that the controller offered.
    pub session: Session,
    /// Its life.
    pub incarnation: Incarnation,
    /// What it has.
    pub hardware: Hardware,
    /// Jobs that it knows: started here and not yet reported gone.
    pub jobs: Vec<JobAttempt>,
    /// Steps that it knows: launched here and not yet reported ended.
    pub steps: Vec<StepKey>,
    /// Jobs that it took in an earlier life, of which it is proven that nothing ran.
    pub unstarted: Vec<JobAttempt>,
    /// The highest job id that it has heard in this life of its daemon.
    pub last_job: JobId,
    /// How it feels.
    pub health: Health,
    /// Version of the daemon.
    pub version: String,
}
