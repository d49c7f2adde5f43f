//! What controller and nodes say to each other, whatever lies between them.

use crate::encoding::ByteBuf;
use minicbor::{Decode, Encode};
use std::sync::Arc;

use crate::gang::{Strobe, Turns};
use crate::id::{Epoch, Incarnation, JobId, NodeId, Session, StepKey, StepNo};
use crate::job::{Digest, JobAttempt, Owner};
use crate::resource::Hardware;
use crate::step::{BatchStart, JobFacts, StepStart, Watcher};
use crate::wire::fabric::{Ask, ContentId, Health, StreamKey, Variable};

/// What the controller tells a node. All are idempotent.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Down {
    /// To a node that knocked: say who you are. The number of the put that brings this is the session's.
    #[n(0)]
    Identify,
    /// To a node that answers though its session is over: knock.
    #[n(1)]
    Knock,
    /// Registration accepted. First message of a session.
    #[n(2)]
    Welcome {
        /// The node's id.
        #[n(0)]
        node: NodeId,
    },
    /// The job holds this node from now on: make ready (cgroup, spool). The same message serves all nodes of the job,
    /// but only the batch script's node needs `batch`, and what is attached to a frame for its sake.
    #[n(3)]
    StartJob {
        /// The job.
        #[n(0)]
        #[cbor(with = "crate::encoding::arc")]
        facts: Arc<JobFacts>,
        /// The launch of its script.
        #[n(1)]
        batch: Option<BatchStart>,
    },
    /// Run this node's share of a step. The job was started here earlier. The same for all nodes of the step.
    #[n(4)]
    StartStep(#[n(0)] Box<StepStart>),
    /// Send a signal to processes of a job.
    #[n(5)]
    Signal {
        /// The job.
        #[n(0)]
        job: JobAttempt,
        /// Which processes.
        #[n(1)]
        target: SignalTarget,
        /// Signal number.
        #[n(2)]
        signal: i32,
    },
    /// End a step: TERM, then KILL after `kill_wait_s`. Reported as `StepEnded`.
    #[n(6)]
    EndStep {
        /// The step.
        #[n(0)]
        key: StepKey,
        /// Seconds between TERM and KILL; 0: KILL at once.
        #[n(1)]
        kill_wait_s: u64,
        /// What for, told to the user.
        #[n(2)]
        why: EndReason,
    },
    /// End the job here: every step, then all that is left. Reported as `JobGone`, also when nothing was there.
    #[n(7)]
    EndJob {
        /// The job.
        #[n(0)]
        job: JobAttempt,
        /// Seconds between TERM and KILL; 0: KILL at once.
        #[n(1)]
        kill_wait_s: u64,
        /// First bring stopped processes to life (`CONT`).
        #[n(2)]
        cont: bool,
        /// What for, told to the user in the job's standard error.
        #[n(3)]
        why: EndReason,
    },
    /// What was reported of these is journaled: forget it.
    #[n(8)]
    Known {
        /// Steps that ended or could not be started.
        #[n(0)]
        steps: Vec<StepKey>,
        /// Jobs of which nothing is left.
        #[n(1)]
        jobs: Vec<JobAttempt>,
    },
    /// Write a variable (the second half of COMPARE-AND-WRITE).
    #[n(9)]
    Write {
        /// Which.
        #[n(0)]
        variable: Variable,
        /// Its new value.
        #[n(1)]
        value: i64,
    },
    /// The registration can't be accepted; the daemon says so and ends.
    #[n(10)]
    Refused {
        /// Why.
        #[n(0)]
        reason: String,
    },
    /// End: `keep_jobs` false ends all work first (without reports).
    #[n(11)]
    ShutDown {
        /// Whether running steps are left alone.
        #[n(0)]
        keep_jobs: bool,
    },
    /// A file will come in chunks: make room for it, in the shadow. What became of it is in `Variable::Content`.
    #[n(12)]
    Expect {
        /// Which.
        #[n(0)]
        content: ContentId,
        /// Its length, bytes.
        #[n(1)]
        size: u64,
        /// One of the nodes that share a disk is enough to take it in; the others take it from there.
        #[n(2)]
        shared: bool,
    },
    /// Every node has all of the file: it is there now.
    #[n(13)]
    Commit {
        /// Which.
        #[n(0)]
        content: ContentId,
    },
    /// Not every node could take in the file: what of it is in the shadow goes.
    #[n(14)]
    Abort {
        /// Which.
        #[n(0)]
        content: ContentId,
    },
    /// Lay down a file that is there, as its user. What became of it is in `Variable::Placed`.
    #[n(15)]
    Place(#[n(0)] Box<Placement>),
    /// Pieces of a file may come by multicast.
    #[n(16)]
    Hear {
        /// Of which file.
        #[n(0)]
        content: ContentId,
        /// What the datagrams say to which stream they belong.
        #[n(1)]
        stream: u64,
        /// What opens them.
        #[n(2)]
        key: StreamKey,
    },
    /// The time: the slots of gang scheduling follow from it. Late or lost it does no harm.
    #[n(17)]
    Strobe(#[n(0)] Strobe),
    /// When these jobs run; those that are not here are no concern of this node.
    #[n(18)]
    Turns(#[n(0)] Turns),
    /// Give a leased job back, unless it has begun: that nothing of it is here is reported as at any end.
    #[n(19)]
    Recall {
        /// The job.
        #[n(0)]
        job: JobAttempt,
    },
    /// Let somebody watch a step.
    #[n(20)]
    Watch {
        /// The step.
        #[n(0)]
        key: StepKey,
        /// Who.
        #[n(1)]
        watcher: Watcher,
    },
    /// Tell the user something, in the standard error of a batch script.
    #[n(21)]
    Notify {
        /// The job.
        #[n(0)]
        job: JobAttempt,
        /// What.
        #[n(1)]
        text: String,
    },
}

/// A file to be laid down.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Placement {
    /// The incarnation of the controller that ordered it.
    #[n(0)]
    pub epoch: Epoch,
    /// Which order of that incarnation.
    #[n(1)]
    pub number: u64,
    /// The file.
    #[n(2)]
    pub content: ContentId,
    /// Who writes it.
    #[n(3)]
    pub owner: Owner,
    /// Where to, absolute.
    #[n(4)]
    pub path: ByteBuf,
    /// Its permissions.
    #[n(5)]
    pub mode: u32,
    /// Its time of modification, seconds and nanoseconds; None: now.
    #[n(6)]
    pub modified: Option<(i64, u32)>,
    /// Replace what is there; otherwise only the same file may be there.
    #[n(7)]
    pub replace: bool,
    /// `_` and the node's name end the path.
    #[n(8)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum EndReason {
    /// Nothing to tell: it had ended anyway, or only leftovers are cleared.
    #[default]
    #[n(0)]
    None,
    /// `scancel`.
    #[n(1)]
    Cancelled,
    /// Its time limit.
    #[n(2)]
    TimeLimit,
    /// Another node of its allocation died.
    #[n(3)]
    NodeFail,
    /// To make room.
    #[n(4)]
    Preempted,
    /// `scontrol requeue` by others, `squall down`.
    #[n(5)]
    Requeued,
    /// `scontrol requeue` by the job itself: its script has a moment to hear the answer.
    #[n(6)]
    RequeuesItself,
}

/// Which processes of a job a signal goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum SignalTarget {
    /// Every step's tasks, not the batch script (`scancel --signal`).
    #[n(0)]
    Steps,
    /// Every step's tasks and the batch script's own process.
    #[n(1)]
    All,
    /// The batch script's process only (`--batch`).
    #[n(2)]
    Batch,
    /// The batch script and all its children (`--full`).
    #[n(3)]
    Full,
    /// One step.
    #[n(4)]
    Step(#[n(0)] StepNo),
}

/// What a node says of itself when it connects.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Registration {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// The session that the controller offered.
    #[n(1)]
    pub session: Session,
    /// Its life.
    #[n(2)]
    pub incarnation: Incarnation,
    /// What it has.
    #[n(3)]
    pub hardware: Hardware,
    /// Jobs that it knows: started here and not yet reported gone.
    #[n(4)]
    pub jobs: Vec<JobAttempt>,
    /// Steps that it knows: launched here and not yet reported ended.
    #[n(5)]
    pub steps: Vec<StepKey>,
    /// Jobs that it took in an earlier life, of which it is proven that nothing ran.
    #[n(6)]
    pub unstarted: Vec<JobAttempt>,
    /// The highest job id that it has heard in this life of its daemon.
    #[n(7)]
    pub last_job: JobId,
    /// How it feels.
    #[n(8)]
    pub health: Health,
    /// Version of the daemon.
    #[n(9)]
    pub version: String,
}
