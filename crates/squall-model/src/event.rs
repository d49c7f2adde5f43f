//! Everything that can happen: the journal holds nothing else. Append-only: variants are added at the end and never
//! changed, so that an old journal reads for ever. A field can't be added: events are positional (docs/formats.md).

use minicbor::{Decode, Encode};
use std::sync::Arc;

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
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Record {
    /// 1, 2, 3 … without a gap.
    #[n(0)]
    pub seq: u64,
    /// When it was decided.
    #[n(1)]
    pub time: Time,
    /// What happened, in order.
    #[n(2)]
    pub events: Vec<Event>,
}

/// Something that happened. The only thing that changes state.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Event {
    /// A controller took over this journal.
    #[n(0)]
    ControllerStarted {
        /// Its epoch, one higher than the last.
        #[n(0)]
        epoch: Epoch,
        /// Its version, for the record.
        #[n(1)]
        version: String,
    },
    /// The configuration was read, at start or by `scontrol reconfigure`.
    #[n(1)]
    Configured {
        /// All of it.
        #[n(0)]
        #[cbor(with = "crate::encoding::arc")]
        config: Arc<Config>,
    },
    /// A node that was never seen (or has rebooted, or whose hardware changed) registered.
    #[n(2)]
    NodeRegistered {
        /// Its id: the next free one at first sight.
        #[n(0)]
        node: NodeId,
        /// Its name.
        #[n(1)]
        name: String,
        /// Its life. Jobs of another life are dead.
        #[n(2)]
        incarnation: Incarnation,
        /// What it has.
        #[n(3)]
        hardware: Hardware,
    },
    /// A node fell silent (or was set down): no new work goes there.
    #[n(3)]
    NodeDown {
        /// Which.
        #[n(0)]
        node: NodeId,
        /// Why.
        #[n(1)]
        reason: String,
    },
    /// A node that was down answers again.
    #[n(4)]
    NodeUp {
        /// Which.
        #[n(0)]
        node: NodeId,
    },
    /// The operator changed what may run on some nodes.
    #[n(5)]
    NodesSet {
        /// Which.
        #[n(0)]
        nodes: NodeSet,
        /// What for.
        #[n(1)]
        admin: NodeAdmin,
        /// The reason given.
        #[n(2)]
        reason: Option<String>,
        /// Who.
        #[n(3)]
        by: u32,
    },
    /// A job (or a whole array) was accepted.
    #[n(6)]
    JobSubmitted {
        /// Its id; an array of N tasks reserves this and the N-1 that follow.
        #[n(0)]
        id: JobId,
        /// The client's key, by which a retry is known.
        #[n(1)]
        key: ClientKey,
        /// Who.
        #[n(2)]
        #[cbor(with = "crate::encoding::arc")]
        owner: Arc<Owner>,
        /// What.
        #[n(3)]
        #[cbor(with = "crate::encoding::arc")]
        spec: Arc<JobSpec>,
    },
    /// A job got resources. For an array task that was not touched before, this makes it a job of its own.
    #[n(7)]
    JobStarted {
        /// The job.
        #[n(0)]
        id: JobId,
        /// Its new attempt, one higher than the last.
        #[n(1)]
        attempt: Attempt,
        /// Name of the partition.
        #[n(2)]
        partition: String,
        /// What it holds.
        #[n(3)]
        alloc: Alloc,
    },
    /// A step was created in a running job.
    #[n(8)]
    StepStarted {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The step's number.
        #[n(1)]
        step: StepNo,
        /// The client's key.
        #[n(2)]
        key: ClientKey,
        /// What was asked.
        #[n(3)]
        #[cbor(with = "crate::encoding::arc")]
        spec: Arc<StepSpec>,
        /// What it holds of the job's resources (empty core sets with `--overlap`).
        #[n(4)]
        alloc: Alloc,
        /// Where its tasks run.
        #[n(5)]
        layout: Layout,
    },
    /// The shares of some nodes in a step have ended, all in the same way; when none is left, the step has ended.
    #[n(9)]
    StepNodesEnded {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The attempt.
        #[n(1)]
        attempt: Attempt,
        /// The step.
        #[n(2)]
        step: StepNo,
        /// The nodes.
        #[n(3)]
        nodes: NodeSet,
        /// How, over all of them.
        #[n(4)]
        end: StepEnd,
    },
    /// How a job ends is decided. A pending job has ended with this; a running one completes:
    /// its nodes are told, and it has ended when the last has released it.
    #[n(10)]
    JobEnding {
        /// The job; the id of an array means its last task (the untouched ones: `TasksEnded`).
        #[n(0)]
        id: JobId,
        /// How.
        #[n(1)]
        outcome: Outcome,
        /// Back into the queue afterwards.
        #[n(2)]
        requeue: Option<Requeue>,
    },
    /// Nothing is left of the job on these nodes; when these are the last, the job has ended.
    #[n(11)]
    NodesReleased {
        /// The job.
        #[n(0)]
        id: JobId,
        /// The attempt.
        #[n(1)]
        attempt: Attempt,
        /// The nodes.
        #[n(2)]
        nodes: NodeSet,
    },
    /// Pending tasks of an array that were never touched ended without starting.
    #[n(12)]
    TasksEnded {
        /// The array.
        #[n(0)]
        array: JobId,
        /// Indices.
        #[n(1)]
        tasks: IndexSet,
        /// How.
        #[n(2)]
        outcome: Outcome,
    },
    /// A pending job was held.
    #[n(13)]
    JobHeld {
        /// The job, or the array with `whole`.
        #[n(0)]
        id: JobId,
        /// By the operator: its user can't release it.
        #[n(1)]
        admin: bool,
        /// All pending tasks of the array of that id (whose last task bears the same id).
        #[n(2)]
        whole: bool,
    },
    /// A held job was released.
    #[n(14)]
    JobReleased {
        /// The job, or the array with `whole`.
        #[n(0)]
        id: JobId,
        /// All pending tasks of the array of that id.
        #[n(1)]
        whole: bool,
    },
    /// `scontrol update` changed a job.
    #[n(15)]
    JobUpdated {
        /// The job, or the array with `whole`.
        #[n(0)]
        id: JobId,
        /// What changed.
        #[n(1)]
        change: JobChange,
        /// All pending tasks of the array of that id.
        #[n(2)]
        whole: bool,
    },
    /// A job that has ended goes back into the queue.
    #[n(16)]
    JobRequeued {
        /// The job.
        #[n(0)]
        id: JobId,
        /// How.
        #[n(1)]
        requeue: Requeue,
    },
    /// A running job was stopped or goes on.
    #[n(17)]
    JobSuspended {
        /// The job.
        #[n(0)]
        id: JobId,
        /// False: it goes on.
        #[n(1)]
        suspended: bool,
    },
    /// Ended jobs older than this are no longer kept in memory (accounting keeps them).
    #[n(18)]
    Forgotten {
        /// Those that ended before.
        #[n(0)]
        ended_before: Time,
    },
    /// The operator changed a partition's state.
    #[n(19)]
    PartitionSet {
        /// Its name.
        #[n(0)]
        name: String,
        /// Its new state.
        #[n(1)]
        state: crate::config::PartitionState,
    },
    /// A step got no processes (its client vanished before the launch); it has ended.
    #[n(20)]
    StepAbandoned {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// How it counts.
        #[n(2)]
        outcome: Outcome,
    },
    /// Accounts, users, associations or levels of service were changed.
    #[n(21)]
    PolicyChanged {
        /// How, in this order.
        #[n(0)]
        changes: Vec<PolicyChange>,
        /// Who.
        #[n(1)]
        by: u32,
    },
    /// A running job was told to make room; it has until then.
    #[n(22)]
    JobPreempted {
        /// The job.
        #[n(0)]
        id: JobId,
        /// The attempt.
        #[n(1)]
        attempt: Attempt,
        /// When it ends.
        #[n(2)]
        until: Time,
    },
    /// A job that has just started, or a step of it, got generic resources.
    #[n(23)]
    GresGranted {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The step; None: the job itself.
        #[n(1)]
        step: Option<StepNo>,
        /// Which devices.
        #[n(2)]
        grants: Vec<Grant>,
    },
    /// A reservation was made or changed, or comes again.
    #[n(24)]
    ReservationSet {
        /// All of it.
        #[n(0)]
        reservation: Box<Reservation>,
    },
    /// A reservation is over, or was deleted.
    #[n(25)]
    ReservationGone {
        /// Its name.
        #[n(0)]
        name: String,
    },
    /// The matrix of gang scheduling changed.
    #[n(26)]
    Ganged {
        /// Jobs whose place or share of the time changed.
        #[n(0)]
        shifts: Vec<Shift>,
    },
    /// Jobs that have just been submitted, with ids that follow each other, are the components of one.
    #[n(27)]
    HetFormed {
        /// The first of them.
        #[n(0)]
        leader: JobId,
        /// How many they are.
        #[n(1)]
        size: u32,
    },
    /// A pending job is leased to a node: that starts it, in the place of `behind`, as soon as nothing is left of that
    /// and of those that were leased there before. `JobStarted`, with this attempt, says that it has begun.
    #[n(28)]
    JobLeased {
        /// The job.
        #[n(0)]
        id: JobId,
        /// Its new attempt, one higher than the last: the lease's id.
        #[n(1)]
        attempt: Attempt,
        /// The job whose place it takes: same partition, node, cores and memory.
        #[n(2)]
        behind: JobId,
    },
    /// A node gave a leased job back: it has not begun there and will not. It waits again.
    #[n(29)]
    LeaseReturned {
        /// The job.
        #[n(0)]
        id: JobId,
        /// The attempt.
        #[n(1)]
        attempt: Attempt,
    },
    /// What jobs of this cell depend on in other cells has come about, or never can.
    #[n(30)]
    ForeignResolved {
        /// What was asked, and the answer.
        #[n(0)]
        replies: Vec<(Question, Reply)>,
    },
    /// An operator made, changed or deleted a partition. It stays so until `scontrol reconfigure`, or a start with another
    /// configuration than the last.
    #[n(31)]
    PartitionChanged {
        /// Its name.
        #[n(0)]
        name: String,
        /// What it is now; None: it is no more.
        #[n(1)]
        config: Option<Box<PartitionConfig>>,
    },
    /// A running job gave back some of its nodes, which are told to end it: it has them no more, and they are free when
    /// they have released it.
    #[n(32)]
    JobShrunk {
        /// The job.
        #[n(0)]
        id: JobId,
        /// The attempt.
        #[n(1)]
        attempt: Attempt,
        /// What it holds from now on.
        #[n(2)]
        alloc: Alloc,
    },
    /// A running step got another time limit.
    #[n(33)]
    StepLimited {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// Seconds since its start; None: as long as the job.
        #[n(2)]
        time_limit_s: Option<u64>,
    },
    /// The state is older than what nodes have seen: ids up to this one may have been given, to jobs that are lost.
    #[n(34)]
    IdsLost {
        /// The highest that a node named.
        #[n(0)]
        last: JobId,
    },
    /// `sacctmgr modify job`: what accounting keeps of a job's last attempt was changed. The job itself is as it was.
    #[n(35)]
    Recorded {
        /// The job.
        #[n(0)]
        job: JobId,
        /// Names of [`crate::wire::history::RECORDED`], and their new values.
        #[n(1)]
        values: Vec<(String, String)>,
        /// The user.
        #[n(2)]
        by: u32,
    },
    /// An operator changed how some nodes are described. Comments stay; all else stays so until `scontrol reconfigure`, or
    /// a start with another configuration than the last.
    #[n(36)]
    NodesChanged {
        /// Which.
        #[n(0)]
        nodes: NodeSet,
        /// How.
        #[n(1)]
        change: Box<NodeChange>,
    },
}

/// What `scontrol update node` changes of how a node is described. None: as it was, or as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct NodeChange {
    /// Nodes of less weight are given first.
    #[n(0)]
    pub weight: Option<u32>,
    /// Features that it may have.
    #[n(1)]
    pub features: Option<Vec<String>>,
    /// Those of them that it has: what `--constraint` asks for.
    #[n(2)]
    pub active_features: Option<Vec<String>>,
    /// Generic resources: `gpu:a100:4`.
    #[n(3)]
    pub gres: Option<String>,
    /// A comment.
    #[n(4)]
    pub comment: Option<String>,
    /// Any text, for programs.
    #[n(5)]
    pub extra: Option<String>,
    /// The id of a machine in a cloud.
    #[n(6)]
    pub instance_id: Option<String>,
    /// Its type.
    #[n(7)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Requeue {
    /// Held until released (`scontrol requeuehold`, or too many launch failures).
    #[n(0)]
    pub hold: bool,
    /// Not before this time.
    #[n(1)]
    pub not_before: Option<Time>,
}

/// What the operator wants of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum NodeAdmin {
    /// Jobs may start (`state=resume`, `undrain`).
    #[default]
    #[n(0)]
    Resume,
    /// Running jobs finish, none starts.
    #[n(1)]
    Drain,
    /// Down: its jobs are lost.
    #[n(2)]
    Down,
    /// As `Drain`, of a node that is expected to fail.
    #[n(3)]
    Fail,
}

/// What `scontrol update job` may change. None: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobChange {
    /// A whole new spec: whatever was changed of name, partition, nodes, comment, dependency, …
    #[n(0)]
    #[cbor(with = "crate::encoding::arc_or_none", has_nil)]
    pub spec: Option<Arc<JobSpec>>,
    /// New time limit in seconds; Some(None): unlimited.
    #[n(1)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub time_limit_s: Option<Option<u64>>,
    /// New priority.
    #[n(2)]
    pub priority: Option<u32>,
    /// New `%N` of an array.
    #[n(3)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub array_limit: Option<Option<u32>>,
}
