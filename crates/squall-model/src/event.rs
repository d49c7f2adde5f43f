//! All events that can change the state. The journal holds nothing else. Variants are added at the end and never
//! changed, so that old journals stay readable. No field can be added, because events are positional (docs/formats.md).

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

/// A batch of events from one controller iteration. It is durable as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Record {
    /// Sequence number: 1, 2, 3 … without gaps.
    #[n(0)]
    pub seq: u64,
    /// When the events were decided.
    #[n(1)]
    pub time: Time,
    /// The events, in order.
    #[n(2)]
    pub events: Vec<Event>,
}

/// A change of the cluster's state. State changes in no other way.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Event {
    /// A controller started with this journal.
    #[n(0)]
    ControllerStarted {
        /// Epoch of the controller, one higher than that of the controller before.
        #[n(0)]
        epoch: Epoch,
        /// Version of its program, for information.
        #[n(1)]
        version: String,
    },
    /// The configuration was read, at start or by `scontrol reconfigure`.
    #[n(1)]
    Configured {
        /// The whole configuration.
        #[n(0)]
        #[cbor(with = "crate::encoding::arc")]
        config: Arc<Config>,
    },
    /// A node registered for the first time, after a reboot, or with other hardware.
    #[n(2)]
    NodeRegistered {
        /// Id of the node: the next free one at its first registration.
        #[n(0)]
        node: NodeId,
        /// Name of the node.
        #[n(1)]
        name: String,
        /// Incarnation of the node. Jobs that ran under another one have ended.
        #[n(2)]
        incarnation: Incarnation,
        /// Hardware of the node.
        #[n(3)]
        hardware: Hardware,
    },
    /// A node stopped responding or was set down. No new work goes there.
    #[n(3)]
    NodeDown {
        /// The node.
        #[n(0)]
        node: NodeId,
        /// Reason, as a text for users.
        #[n(1)]
        reason: String,
    },
    /// A node that was down responds again.
    #[n(4)]
    NodeUp {
        /// The node.
        #[n(0)]
        node: NodeId,
    },
    /// An operator changed what may run on some nodes.
    #[n(5)]
    NodesSet {
        /// The nodes.
        #[n(0)]
        nodes: NodeSet,
        /// Their new state.
        #[n(1)]
        admin: NodeAdmin,
        /// The reason that the operator gave.
        #[n(2)]
        reason: Option<String>,
        /// Uid of the operator.
        #[n(3)]
        by: u32,
    },
    /// A job (or a whole array) was accepted.
    #[n(6)]
    JobSubmitted {
        /// Id of the job. An array of N tasks reserves this id and the N-1 after it.
        #[n(0)]
        id: JobId,
        /// The client's key, by which a repeated submission is recognized.
        #[n(1)]
        key: ClientKey,
        /// The user that submitted the job.
        #[n(2)]
        #[cbor(with = "crate::encoding::arc")]
        owner: Arc<Owner>,
        /// Specification of the job.
        #[n(3)]
        #[cbor(with = "crate::encoding::arc")]
        spec: Arc<JobSpec>,
    },
    /// A job got resources. A task that was part of its array's entry until now becomes a job of its own.
    #[n(7)]
    JobStarted {
        /// The job.
        #[n(0)]
        id: JobId,
        /// Number of the new attempt, one higher than the last.
        #[n(1)]
        attempt: Attempt,
        /// Name of the partition.
        #[n(2)]
        partition: String,
        /// Resources allocated to the job.
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
        /// The client's key, by which a repeated request is recognized.
        #[n(2)]
        key: ClientKey,
        /// Specification of the step.
        #[n(3)]
        #[cbor(with = "crate::encoding::arc")]
        spec: Arc<StepSpec>,
        /// Resources of the job that the step uses (empty core sets with `--overlap`).
        #[n(4)]
        alloc: Alloc,
        /// The nodes and tasks of the step.
        #[n(5)]
        layout: Layout,
    },
    /// The tasks of a step ended on some nodes, in the same way on all. When no node is left, the step has ended.
    #[n(9)]
    StepNodesEnded {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The attempt of the job.
        #[n(1)]
        attempt: Attempt,
        /// The step.
        #[n(2)]
        step: StepNo,
        /// The nodes on which the step's tasks ended.
        #[n(3)]
        nodes: NodeSet,
        /// How the tasks ended, combined over the nodes.
        #[n(4)]
        end: StepEnd,
    },
    /// The outcome of a job was decided. A pending job has ended with this. The nodes of a running job are told to end
    /// it, and it has ended when the last one has released it.
    #[n(10)]
    JobEnding {
        /// The job. The id of an array means its last task; for its tasks that were never separated see `TasksEnded`.
        #[n(0)]
        id: JobId,
        /// Exit code and reason of the job's end.
        #[n(1)]
        outcome: Outcome,
        /// Whether and how the job is requeued afterwards.
        #[n(2)]
        requeue: Option<Requeue>,
    },
    /// Some nodes have no processes of the job any more. When no node is left, the job has ended.
    #[n(11)]
    NodesReleased {
        /// The job.
        #[n(0)]
        id: JobId,
        /// The attempt of the job.
        #[n(1)]
        attempt: Attempt,
        /// The nodes that released the job.
        #[n(2)]
        nodes: NodeSet,
    },
    /// Pending tasks of an array that were never separated ended without starting.
    #[n(12)]
    TasksEnded {
        /// The array.
        #[n(0)]
        array: JobId,
        /// Indices of the tasks.
        #[n(1)]
        tasks: IndexSet,
        /// Exit code and reason of each task's end.
        #[n(2)]
        outcome: Outcome,
    },
    /// A pending job was held.
    #[n(13)]
    JobHeld {
        /// The job, or the array if `whole`.
        #[n(0)]
        id: JobId,
        /// Whether an operator held it, so that its user can't release it.
        #[n(1)]
        admin: bool,
        /// Whether all pending tasks of the array with this id are meant. Without it the id is that of its last task.
        #[n(2)]
        whole: bool,
    },
    /// A held job was released.
    #[n(14)]
    JobReleased {
        /// The job, or the array if `whole`.
        #[n(0)]
        id: JobId,
        /// Whether all pending tasks of the array with this id are meant.
        #[n(1)]
        whole: bool,
    },
    /// `scontrol update` changed a job.
    #[n(15)]
    JobUpdated {
        /// The job, or the array if `whole`.
        #[n(0)]
        id: JobId,
        /// New values of the job.
        #[n(1)]
        change: JobChange,
        /// Whether all pending tasks of the array with this id are meant.
        #[n(2)]
        whole: bool,
    },
    /// A job that has ended was requeued.
    #[n(16)]
    JobRequeued {
        /// The job.
        #[n(0)]
        id: JobId,
        /// How the job is requeued: held, or not before a time.
        #[n(1)]
        requeue: Requeue,
    },
    /// A running job was suspended or resumed.
    #[n(17)]
    JobSuspended {
        /// The job.
        #[n(0)]
        id: JobId,
        /// True: suspended; false: resumed.
        #[n(1)]
        suspended: bool,
    },
    /// Ended jobs were removed from memory. Accounting keeps them.
    #[n(18)]
    Forgotten {
        /// All jobs that ended before this time were removed.
        #[n(0)]
        ended_before: Time,
    },
    /// An operator changed a partition's state.
    #[n(19)]
    PartitionSet {
        /// Name of the partition.
        #[n(0)]
        name: String,
        /// New state of the partition.
        #[n(1)]
        state: crate::config::PartitionState,
    },
    /// A step ended before any process of it started, because its client disconnected.
    #[n(20)]
    StepAbandoned {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// Exit code and reason of the step's end.
        #[n(2)]
        outcome: Outcome,
    },
    /// Accounts, users, associations or QOS were changed.
    #[n(21)]
    PolicyChanged {
        /// The changes, in order.
        #[n(0)]
        changes: Vec<PolicyChange>,
        /// Uid of the user that made the changes.
        #[n(1)]
        by: u32,
    },
    /// A running job is preempted and must end by a given time.
    #[n(22)]
    JobPreempted {
        /// The job.
        #[n(0)]
        id: JobId,
        /// The attempt of the job.
        #[n(1)]
        attempt: Attempt,
        /// Time at which the job is ended.
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
        /// The devices on each node.
        #[n(2)]
        grants: Vec<Grant>,
    },
    /// A reservation was created or changed, or moved to its next time.
    #[n(24)]
    ReservationSet {
        /// The whole reservation.
        #[n(0)]
        reservation: Box<Reservation>,
    },
    /// A reservation has ended or was deleted.
    #[n(25)]
    ReservationGone {
        /// Name of the reservation.
        #[n(0)]
        name: String,
    },
    /// The gang matrix (jobs by time slot) changed.
    #[n(26)]
    Ganged {
        /// Jobs whose slots changed.
        #[n(0)]
        shifts: Vec<Shift>,
    },
    /// Jobs just submitted, with consecutive ids, became components of one heterogeneous job.
    #[n(27)]
    HetFormed {
        /// Id of the first component.
        #[n(0)]
        leader: JobId,
        /// Number of components.
        #[n(1)]
        size: u32,
    },
    /// A pending job was leased to a node. The node starts it as soon as `behind`, and every job leased there before
    /// it, has no processes left. `JobStarted` with this attempt records the start.
    #[n(28)]
    JobLeased {
        /// The job.
        #[n(0)]
        id: JobId,
        /// Number of the new attempt, one higher than the last. It identifies the lease.
        #[n(1)]
        attempt: Attempt,
        /// The job whose resources it takes over: same partition, node, cores and memory.
        #[n(2)]
        behind: JobId,
    },
    /// A node returned a leased job that it has not started and will not start. The job is pending again.
    #[n(29)]
    LeaseReturned {
        /// The job.
        #[n(0)]
        id: JobId,
        /// The attempt that identified the lease.
        #[n(1)]
        attempt: Attempt,
    },
    /// Dependencies of this cell's jobs on other cells were satisfied, or never can be.
    #[n(30)]
    ForeignResolved {
        /// Questions about jobs of other cells, with their answers.
        #[n(0)]
        replies: Vec<(Question, Reply)>,
    },
    /// An operator created, changed or deleted a partition. This holds until `scontrol reconfigure`, or until a start
    /// with a changed configuration.
    #[n(31)]
    PartitionChanged {
        /// Name of the partition.
        #[n(0)]
        name: String,
        /// New configuration of the partition. None: it was deleted.
        #[n(1)]
        config: Option<Box<PartitionConfig>>,
    },
    /// A running job gave up some of its nodes. They are told to end it there, and become free when they have released
    /// it.
    #[n(32)]
    JobShrunk {
        /// The job.
        #[n(0)]
        id: JobId,
        /// The attempt of the job.
        #[n(1)]
        attempt: Attempt,
        /// Resources that the job keeps.
        #[n(2)]
        alloc: Alloc,
    },
    /// The time limit of a running step changed.
    #[n(33)]
    StepLimited {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The step.
        #[n(1)]
        step: StepNo,
        /// Limit in seconds since the step's start. None: as long as the job.
        #[n(2)]
        time_limit_s: Option<u64>,
    },
    /// The journal is older than what nodes have seen. Ids up to `last` may have been given to jobs that are lost, so
    /// they are not given again.
    #[n(34)]
    IdsLost {
        /// The highest id that a node reported.
        #[n(0)]
        last: JobId,
    },
    /// `sacctmgr modify job` changed the accounting record of a job's last attempt. The job itself is unchanged.
    #[n(35)]
    Recorded {
        /// The job.
        #[n(0)]
        job: JobId,
        /// Names from [`crate::wire::history::RECORDED`] with their new values.
        #[n(1)]
        values: Vec<(String, String)>,
        /// Uid of the user that made the change.
        #[n(2)]
        by: u32,
    },
    /// An operator changed the description of some nodes. Comments persist. The other changes hold until `scontrol
    /// reconfigure`, or until a start with a changed configuration.
    #[n(36)]
    NodesChanged {
        /// The nodes.
        #[n(0)]
        nodes: NodeSet,
        /// New values of the nodes' description.
        #[n(1)]
        change: Box<NodeChange>,
    },
}

/// Changes of `scontrol update node` to the description of nodes. None: unchanged, or as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct NodeChange {
    /// Weight: nodes of lower weight are allocated first.
    #[n(0)]
    pub weight: Option<u32>,
    /// Features that the node may have.
    #[n(1)]
    pub features: Option<Vec<String>>,
    /// Features that the node has at present, which `--constraint` is compared with.
    #[n(2)]
    pub active_features: Option<Vec<String>>,
    /// Generic resources, as `gpu:a100:4`.
    #[n(3)]
    pub gres: Option<String>,
    /// The operator's comment.
    #[n(4)]
    pub comment: Option<String>,
    /// Any text, for other programs.
    #[n(5)]
    pub extra: Option<String>,
    /// Id of the machine in a cloud.
    #[n(6)]
    pub instance_id: Option<String>,
    /// Type of the machine in a cloud.
    #[n(7)]
    pub instance_type: Option<String>,
}

impl NodeChange {
    /// Adds a later change: values that are set in it replace earlier ones.
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
    /// Removes the changes to values that the configuration has too. Comments and cloud data stay.
    pub fn reset(&mut self) {
        (self.weight, self.features, self.active_features, self.gres) = (None, None, None, None);
    }
}

/// How a job is requeued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Requeue {
    /// Whether it is held until released (`scontrol requeuehold`, or too many launch failures).
    #[n(0)]
    pub hold: bool,
    /// Earliest time at which it may start again. None: at once.
    #[n(1)]
    pub not_before: Option<Time>,
}

/// State of a node as set by an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum NodeAdmin {
    /// Jobs may start (`state=resume`, `undrain`).
    #[default]
    #[n(0)]
    Resume,
    /// Running jobs continue, none starts.
    #[n(1)]
    Drain,
    /// Down: jobs on the node are lost.
    #[n(2)]
    Down,
    /// Like `Drain`, for a node that is expected to fail.
    #[n(3)]
    Fail,
}

/// Changes of `scontrol update job`. None: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobChange {
    /// The whole new specification, if any part of it changed: name, partition, nodes, comment, dependency, …
    #[n(0)]
    #[cbor(with = "crate::encoding::arc_or_none", has_nil)]
    pub spec: Option<Arc<JobSpec>>,
    /// New time limit in seconds. Some(None): unlimited.
    #[n(1)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub time_limit_s: Option<Option<u64>>,
    /// New priority.
    #[n(2)]
    pub priority: Option<u32>,
    /// New limit on tasks of an array that run at once (`%N`). Some(None): no limit.
    #[n(3)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub array_limit: Option<Option<u32>>,
}
