//! Everything that can happen: the journal holds nothing else. Append-only: variants are added at the end and never
//! changed, so that an old journal reads for ever. A field can't be added: events are positional (docs/formats.md).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::config::{Config, PartitionConfig};
use crate::foreign::{Question, Reply};
use crate::gang::Shift;
use crate::gres::Grant;
use crate::id::{Attempt, ClientKey, Epoch, Incarnation, JobId, NodeId, StepNo};
use crate::job::{JobSpec, Outcome, Owner};
use crate::policy::PolicyChange;
use crate::report::StepEnd;
use crate::reservation::Reservation;
use crate::resource::{Alloc, Hardware};
use crate::set::{IndexSet, NodeSet};
use crate::step::{Layout, StepSpec};
use crate::time::Time;

/// One batch of events: what one turn of the controller decided, durable as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// 1, 2, 3 … without a gap.
    pub seq: u64,
    /// When it was decided.
    pub time: Time,
    /// What happened, in order.
    pub events: Vec<Event>,
}

/// Something that happened. The only thing that changes state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A controller took over this journal.
    ControllerStarted {
        /// Its epoch, one higher than the last.
        epoch: Epoch,
        /// Its version, for the record.
        version: String,
    },
    /// The configuration was read, at start or by `scontrol reconfigure`.
    Configured {
        /// All of it.
        config: Arc<Config>,
    },
    /// A node that was never seen (or has rebooted, or whose hardware changed) registered.
    NodeRegistered {
        /// Its id: the next free one at first sight.
        node: NodeId,
        /// Its name.
        name: String,
        /// Its life. Jobs of another life are dead.
        incarnation: Incarnation,
        /// What it has.
        hardware: Hardware,
    },
    /// A node fell silent (or was set down): no new work goes there.
    NodeDown {
        /// Which.
        node: NodeId,
        /// Why.
        reason: String,
    },
    /// A node that was down answers again.
    NodeUp {
        /// Which.
        node: NodeId,
    },
    /// The operator changed what may run on some nodes.
    NodesSet {
        /// Which.
        nodes: NodeSet,
        /// What for.
        admin: NodeAdmin,
        /// The reason given.
        reason: Option<String>,
        /// Who.
        by: u32,
    },
    /// A job (or a whole array) was accepted.
    JobSubmitted {
        /// Its id; an array of N tasks reserves this and the N-1 that follow.
        id: JobId,
        /// The client's key, by which a retry is known.
        key: ClientKey,
        /// Who.
        owner: Arc<Owner>,
        /// What.
        spec: Arc<JobSpec>,
    },
    /// A job got resources. For an array task that was not touched before, this makes it a job of its own.
    JobStarted {
        /// The job.
        id: JobId,
        /// Its new attempt, one higher than the last.
        attempt: Attempt,
        /// Name of the partition.
        partition: String,
        /// What it holds.
        alloc: Alloc,
    },
    /// A step was created in a running job.
    StepStarted {
        /// The job.
        job: JobId,
        /// The step's number.
        step: StepNo,
        /// The client's key.
        key: ClientKey,
        /// What was asked.
        spec: Arc<StepSpec>,
        /// What it holds of the job's resources (empty core sets with `--overlap`).
        alloc: Alloc,
        /// Where its tasks run.
        layout: Layout,
    },
    /// The shares of some nodes in a step have ended, all in the same way; when none is left, the step has ended.
    StepNodesEnded {
        /// The job.
        job: JobId,
        /// The attempt.
        attempt: Attempt,
        /// The step.
        step: StepNo,
        /// The nodes.
        nodes: NodeSet,
        /// How, over all of them.
        end: StepEnd,
    },
    /// How a job ends is decided. A pending job has ended with this; a running one completes:
    /// its nodes are told, and it has ended when the last has released it.
    JobEnding {
        /// The job; the id of an array means its last task (the untouched ones: `TasksEnded`).
        id: JobId,
        /// How.
        outcome: Outcome,
        /// Back into the queue afterwards.
        requeue: Option<Requeue>,
    },
    /// Nothing is left of the job on these nodes; when these are the last, the job has ended.
    NodesReleased {
        /// The job.
        id: JobId,
        /// The attempt.
        attempt: Attempt,
        /// The nodes.
        nodes: NodeSet,
    },
    /// Pending tasks of an array that were never touched ended without starting.
    TasksEnded {
        /// The array.
        array: JobId,
        /// Indices.
        tasks: IndexSet,
        /// How.
        outcome: Outcome,
    },
    /// A pending job was held.
    JobHeld {
        /// The job, or the array with `whole`.
        id: JobId,
        /// By the operator: its user can't release it.
        admin: bool,
        /// All pending tasks of the array of that id (whose last task bears the same id).
        whole: bool,
    },
    /// A held job was released.
    JobReleased {
        /// The job, or the array with `whole`.
        id: JobId,
        /// All pending tasks of the array of that id.
        whole: bool,
    },
    /// `scontrol update` changed a job.
    JobUpdated {
        /// The job, or the array with `whole`.
        id: JobId,
        /// What changed.
        change: JobChange,
        /// All pending tasks of the array of that id.
        whole: bool,
    },
    /// A job that has ended goes back into the queue.
    JobRequeued {
        /// The job.
        id: JobId,
        /// How.
        requeue: Requeue,
    },
    /// A running job was stopped or goes on.
    JobSuspended {
        /// The job.
        id: JobId,
        /// False: it goes on.
        suspended: bool,
    },
    /// Ended jobs older than this are no longer kept in memory (accounting keeps them).
    Forgotten {
        /// Those that ended before.
        ended_before: Time,
    },
    /// The operator changed a partition's state.
    PartitionSet {
        /// Its name.
        name: String,
        /// Its new state.
        state: crate::config::PartitionState,
    },
    /// A step got no processes (its client vanished before the launch); it has ended.
    StepAbandoned {
        /// The job.
        job: JobId,
        /// The step.
        step: StepNo,
        /// How it counts.
        outcome: Outcome,
    },
    /// Accounts, users, associations or levels of service were changed.
    PolicyChanged {
        /// How, in this order.
        changes: Vec<PolicyChange>,
        /// Who.
        by: u32,
    },
    /// A running job was told to make room; it has until then.
    JobPreempted {
        /// The job.
        id: JobId,
        /// The attempt.
        attempt: Attempt,
        /// When it ends.
        until: Time,
    },
    /// A job that has just started, or a step of it, got generic resources.
    GresGranted {
        /// The job.
        job: JobId,
        /// The step; None: the job itself.
        step: Option<StepNo>,
        /// Which devices.
        grants: Vec<Grant>,
    },
    /// A reservation was made or changed, or comes again.
    ReservationSet {
        /// All of it.
        reservation: Box<Reservation>,
    },
    /// A reservation is over, or was deleted.
    ReservationGone {
        /// Its name.
        name: String,
    },
    /// The matrix of gang scheduling changed.
    Ganged {
        /// Jobs whose place or share of the time changed.
        shifts: Vec<Shift>,
    },
    /// Jobs that have just been submitted, with ids that follow each other, are the components of one.
    HetFormed {
        /// The first of them.
        leader: JobId,
        /// How many they are.
        size: u32,
    },
    /// A pending job is leased to a node: that starts it, in the place of `behind`, as soon as nothing is left of that
    /// and of those that were leased there before. `JobStarted`, with this attempt, says that it has begun.
    JobLeased {
        /// The job.
        id: JobId,
        /// Its new attempt, one higher than the last: the lease's id.
        attempt: Attempt,
        /// The job whose place it takes: same partition, node, cores and memory.
        behind: JobId,
    },
    /// A node gave a leased job back: it has not begun there and will not. It waits again.
    LeaseReturned {
        /// The job.
        id: JobId,
        /// The attempt.
        attempt: Attempt,
    },
    /// What jobs of this cell depend on in other cells has come about, or never can.
    ForeignResolved {
        /// What was asked, and the answer.
        replies: Vec<(Question, Reply)>,
    },
    /// An operator made, changed or deleted a partition. It stays so until `scontrol reconfigure`, or a start with another
    /// configuration than the last.
    PartitionChanged {
        /// Its name.
        name: String,
        /// What it is now; None: it is no more.
        config: Option<Box<PartitionConfig>>,
    },
    /// A running job gave back some of its nodes, which are told to end it: it has them no more, and they are free when
    /// they have released it.
    JobShrunk {
        /// The job.
        id: JobId,
        /// The attempt.
        attempt: Attempt,
        /// What it holds from now on.
        alloc: Alloc,
    },
    /// A running step got another time limit.
    StepLimited {
        /// The job.
        job: JobId,
        /// The step.
        step: StepNo,
        /// Seconds since its start; None: as long as the job.
        time_limit_s: Option<u64>,
    },
    /// The state is older than what nodes have seen: ids up to this one may have been given, to jobs that are lost.
    IdsLost {
        /// The highest that a node named.
        last: JobId,
    },
    /// `sacctmgr modify job`: what accounting keeps of a job's last attempt was changed. The job itself is as it was.
    Recorded {
        /// The job.
        job: JobId,
        /// Names of [`crate::wire::history::RECORDED`], and their new values.
        values: Vec<(String, String)>,
        /// The user.
        by: u32,
    },
    /// An operator changed how some nodes are described. Comments stay; all else stays so until `scontrol reconfigure`, or
    /// a start with another configuration than the last.
    NodesChanged {
        /// Which.
        nodes: NodeSet,
        /// How.
        change: Box<NodeChange>,
    },
}

/// What `scontrol update node` changes of how a node is described. None: as it was, or as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeChange {
    /// Nodes of less weight are given first.
    pub weight: Option<u32>,
    /// Features that it may have.
    pub features: Option<Vec<String>>,
    /// Those of them that it has: what `--constraint` asks for.
    pub active_features: Option<Vec<String>>,
    /// Generic resources: `gpu:a100:4`.
    pub gres: Option<String>,
    /// A comment.
    pub comment: Option<String>,
    /// Any text, for programs.
    pub extra: Option<String>,
    /// The id of a machine in a cloud.
    pub instance_id: Option<String>,
    /// Its type.
    pub instance_type: Option<String>,
}

impl NodeChange {
    /// Makes another change after this one.
    pub fn follow(&mut self, next: &Self) {
        fn take<T: Clone>(here: &mut Option<T>, next: Option<&T>) {
            if let Some(next) = next {
                *here = Some(next.clone());
            }
        }
        take(&mut self.weight, next.weight.as_ref());
        take(&mut self.features, next.features.as_ref());
        take(&mut self.active_features, next.active_features.as_ref());
        take(&mut self.gres, next.gres.as_ref());
        take(&mut self.comment, next.comment.as_ref());
        take(&mut self.extra, next.extra.as_ref());
        take(&mut self.instance_id, next.instance_id.as_ref());
        take(&mut self.instance_type, next.instance_type.as_ref());
    }
    /// Takes back what a configuration says as well.
    pub fn reset(&mut self) {
        (self.weight, self.features, self.active_features, self.gres) = (None, None, None, None);
    }
}

/// How a job goes back into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requeue {
    /// Held until released (`scontrol requeuehold`, or too many launch failures).
    pub hold: bool,
    /// Not before this time.
    pub not_before: Option<Time>,
}

/// What the operator wants of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodeAdmin {
    /// Jobs may start (`state=resume`, `undrain`).
    #[default]
    Resume,
    /// Running jobs finish, none starts.
    Drain,
    /// Down: its jobs are lost.
    Down,
    /// As `Drain`, of a node that is expected to fail.
    Fail,
}

/// What `scontrol update job` may change. None: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobChange {
    /// A whole new spec: whatever was changed of name, partition, nodes, comment, dependency, …
    pub spec: Option<Arc<JobSpec>>,
    /// New time limit in seconds; Some(None): unlimited.
    pub time_limit_s: Option<Option<u64>>,
    /// New priority.
    pub priority: Option<u32>,
    /// New `%N` of an array.
    pub array_limit: Option<Option<u32>>,
}
