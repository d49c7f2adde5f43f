//! Between controller and nodes.

use serde::{Deserialize, Serialize};

use crate::id::{Incarnation, NodeId, Session, StepKey, StepNo};
use crate::job::{Blob, JobAttempt};
use crate::report::Report;
use crate::resource::Hardware;
use crate::step::{BatchStart, JobFacts, StepStart};

/// A frame from controller to node. A node takes only frames of its session whose `seq` follows the last;
/// anything else means that the link lost or mixed something: it registers anew.
///
/// Where scripts and environments are too much for one frame the host sends them ahead of it, in frames without messages whose
/// `seq` is 0; the node's host keeps them for the next frame, and the machines on both sides see nothing of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DownFrame {
    /// The session.
    pub session: Session,
    /// 1, 2, 3 … within the session.
    pub seq: u64,
    /// The messages, in order.
    pub messages: Vec<Down>,
    /// Scripts and environments that the messages refer to. Filled in by the host.
    pub blobs: Vec<Blob>,
}

/// What the controller tells a node. All are idempotent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Down {
    /// Registration accepted. First message of a session.
    Welcome {
        /// The id of this node.
        node: NodeId,
        /// Heartbeat interval, seconds.
        heartbeat_s: u64,
    },
    /// The job holds this node from now on: make ready (cgroup, spool). The same message serves all nodes of the job,
    /// but only the batch script's node needs `batch`, and what is attached to a frame for its sake.
    StartJob {
        /// The job.
        facts: Box<JobFacts>,
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
    /// Reports up to this number are journaled: forget them.
    Ack {
        /// The number.
        up_to: u64,
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
    /// `scontrol requeue`.
    Requeued,
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

/// A frame from node to controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpFrame {
    /// First frame on a link.
    Register(Box<Registration>),
    /// Reports, numbered from `first` on; sent again on every new session until acknowledged.
    Reports {
        /// The session.
        session: Session,
        /// Number of the first report.
        first: u64,
        /// The reports.
        reports: Vec<Report>,
    },
    /// The node is alive.
    Heartbeat {
        /// The session.
        session: Session,
        /// Load average over one minute, in hundredths.
        load_centi: u32,
        /// Free memory, MiB.
        free_mb: u64,
    },
}

/// What a node says of itself when it connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Its name.
    pub name: String,
    /// Its life.
    pub incarnation: Incarnation,
    /// What it has.
    pub hardware: Hardware,
    /// Jobs that it knows: started here and not yet reported gone.
    pub jobs: Vec<JobAttempt>,
    /// Steps that it knows: launched here and not yet reported ended.
    pub steps: Vec<StepKey>,
    /// Version of the daemon.
    pub version: String,
}
