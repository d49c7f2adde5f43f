//! All events that can change the controller's state. The journal holds events, and the contents of files that they
//! refer to by digest. Variants are added at the end and never changed, so that old journals stay readable. A release
//! can't read the events of a later one: a new event occurs only from some version of the cluster on (`version.rs`).

use minicbor::{Decode, Encode};
use std::sync::Arc;

use crate::billing::Billing;
use crate::checkpoint::CheckpointChange;
use crate::config::{Config, NodeConfig, PartitionConfig};
use crate::fault::NodeFault;
use crate::foreign::{Question, Reply};
use crate::gang::Shift;
use crate::gres::Grant;
use crate::id::{Attempt, ClientKey, Epoch, Incarnation, JobId, NodeId, StepNo};
use crate::job::{EndState, JobSpec, Outcome, Owner};
use crate::policy::PolicyChange;
use crate::power::{PowerPhase, PowerWish, Reboot};
use crate::report::StepEnd;
use crate::reservation::Reservation;
use crate::resource::{Alloc, Hardware};
use crate::rotation::ControllerKeys;
use crate::set::{IndexSet, NodeSet};
use crate::step::{Layout, StepSpec};
use crate::time::Time;
use crate::version::ClusterVersion;

mod node_change;

/// A batch of events from one iteration of the controller's loop. It is durable as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Record {
    /// Sequence number of the record: 1, 2, 3 … without gaps.
    #[n(0)]
    pub seq: u64,
    /// When the controller decided the events.
    #[n(1)]
    pub time: Time,
    /// The events, in the order in which they apply.
    #[n(2)]
    pub events: Vec<Event>,
}

/// A change of the cluster's state. The state changes only by events.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Event {
    /// A controller started with this journal.
    #[n(0)]
    ControllerStarted {
        /// Epoch of the controller, one higher than that of its predecessor.
        #[n(0)]
        epoch: Epoch,
        /// Version of the controller's program, for information only.
        #[n(1)]
        version: String,
    },
    /// The configuration was read, at start or by `scontrol reconfigure`.
    #[n(1)]
    Configured {
        /// The whole configuration that was read.
        #[n(0)]
        #[cbor(with = "crate::encoding::arc")]
        config: Arc<Config>,
    },
    /// A node registered for the first time, after a reboot, or with other hardware.
    #[n(2)]
    NodeRegistered {
        /// Id of the node: at its first registration, the next id that is free.
        #[n(0)]
        node: NodeId,
        /// Name of the node.
        #[n(1)]
        name: String,
        /// Incarnation of the node. Jobs that ran under another incarnation have ended.
        #[n(2)]
        incarnation: Incarnation,
        /// Hardware of the node.
        #[n(3)]
        hardware: Hardware,
    },
    /// A node stopped responding or was set down. No new work is started on it.
    #[n(3)]
    NodeDown {
        /// The node that is down.
        #[n(0)]
        node: NodeId,
        /// Why the node is down, as a text for users.
        #[n(1)]
        reason: String,
    },
    /// A node that was down responds again.
    #[n(4)]
    NodeUp {
        /// The node that is up again.
        #[n(0)]
        node: NodeId,
    },
    /// An operator set the state of nodes (drain, resume, down …).
    #[n(5)]
    NodesSet {
        /// The nodes that got the new state.
        #[n(0)]
        nodes: NodeSet,
        /// The new state of the nodes.
        #[n(1)]
        admin: NodeAdmin,
        /// The reason that the operator gave. None: no reason.
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
        /// Key of the client's request. A submission with the same key is recognized as a retry.
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
    /// A job got resources and starts. If it was a pending task kept in its array's entry, it becomes a job of its own.
    #[n(7)]
    JobStarted {
        /// The job that starts.
        #[n(0)]
        id: JobId,
        /// Number of the new attempt, one higher than the last.
        #[n(1)]
        attempt: Attempt,
        /// Name of the partition in which the job runs.
        #[n(2)]
        partition: String,
        /// Resources allocated to the job.
        #[n(3)]
        alloc: Alloc,
    },
    /// A step was created in a running job.
    #[n(8)]
    StepStarted {
        /// The job of the step.
        #[n(0)]
        job: JobId,
        /// Number of the step within its job.
        #[n(1)]
        step: StepNo,
        /// Key of the client's request. A request with the same key is recognized as a retry.
        #[n(2)]
        key: ClientKey,
        /// Specification of the new step.
        #[n(3)]
        #[cbor(with = "crate::encoding::arc")]
        spec: Arc<StepSpec>,
        /// Resources of the job that the step uses. With `--overlap` the sets of cores are empty.
        #[n(4)]
        alloc: Alloc,
        /// Nodes of the step, and its tasks on each.
        #[n(5)]
        layout: Layout,
    },
    /// The tasks of a step ended on some nodes, in the same way on all of these. A step has ended when its tasks have
    /// ended on all of its nodes.
    #[n(9)]
    StepNodesEnded {
        /// The job of the step.
        #[n(0)]
        job: JobId,
        /// Attempt of the job.
        #[n(1)]
        attempt: Attempt,
        /// Number of the step within its job.
        #[n(2)]
        step: StepNo,
        /// The nodes on which the step's tasks ended.
        #[n(3)]
        nodes: NodeSet,
        /// How the tasks ended, combined over the nodes.
        #[n(4)]
        end: StepEnd,
        /// TIMEOUT or CANCELLED: the controller has ended the step, for its own time limit or for `scancel`. None: it has
        /// not.
        #[n(5)]
        cut: Option<EndState>,
    },
    /// The outcome of a job was decided. A pending job has ended with this event. The nodes of a running job are told
    /// to end it; it has ended when the last of them has released it.
    #[n(10)]
    JobEnding {
        /// The job. An array's id stands for the array's last task, which has the same id. Pending tasks without ids of
        /// their own end by `TasksEnded`.
        #[n(0)]
        id: JobId,
        /// Exit code of the job, and why it ends.
        #[n(1)]
        outcome: Outcome,
        /// How the job is requeued afterwards. None: it is not requeued.
        #[n(2)]
        requeue: Option<Requeue>,
    },
    /// Some nodes have no processes of a job any more. The job has ended when no node is left.
    #[n(11)]
    NodesReleased {
        /// The released job.
        #[n(0)]
        id: JobId,
        /// Attempt of the job.
        #[n(1)]
        attempt: Attempt,
        /// The nodes that released the job.
        #[n(2)]
        nodes: NodeSet,
    },
    /// Pending tasks of an array ended without starting. These tasks never got ids of their own.
    #[n(12)]
    TasksEnded {
        /// Id of the array.
        #[n(0)]
        array: JobId,
        /// Indices of the tasks that ended.
        #[n(1)]
        tasks: IndexSet,
        /// Exit code of each of the tasks, and why they ended.
        #[n(2)]
        outcome: Outcome,
    },
    /// A pending job was held.
    #[n(13)]
    JobHeld {
        /// The held job, or the array if `whole` is set.
        #[n(0)]
        id: JobId,
        /// Whether an operator held the job, so that its user can't release it.
        #[n(1)]
        admin: bool,
        /// Whether `id` stands for all pending tasks of the array. Otherwise an array's id stands for its last task
        /// only.
        #[n(2)]
        whole: bool,
    },
    /// A held job was released.
    #[n(14)]
    JobReleased {
        /// The released job, or the array if `whole` is set.
        #[n(0)]
        id: JobId,
        /// Whether `id` stands for all pending tasks of the array. Otherwise an array's id stands for its last task
        /// only.
        #[n(1)]
        whole: bool,
    },
    /// `scontrol update` changed a job.
    #[n(15)]
    JobUpdated {
        /// The changed job, or the array if `whole` is set.
        #[n(0)]
        id: JobId,
        /// New values of the job.
        #[n(1)]
        change: JobChange,
        /// Whether `id` stands for all pending tasks of the array. Otherwise an array's id stands for its last task
        /// only.
        #[n(2)]
        whole: bool,
    },
    /// A job that has ended was put back into the queue.
    #[n(16)]
    JobRequeued {
        /// The requeued job.
        #[n(0)]
        id: JobId,
        /// Whether the job is held, and before which time it does not start.
        #[n(1)]
        requeue: Requeue,
    },
    /// A running job was suspended or resumed.
    #[n(17)]
    JobSuspended {
        /// The suspended or resumed job.
        #[n(0)]
        id: JobId,
        /// Whether the job was suspended. False: it was resumed.
        #[n(1)]
        suspended: bool,
    },
    /// Ended jobs were removed from the controller's memory. Their accounting rows stay.
    #[n(18)]
    Forgotten {
        /// The removed jobs are all that had ended before this time.
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
    /// A step ended before any of its processes started, because its client disconnected.
    #[n(20)]
    StepAbandoned {
        /// The job of the step.
        #[n(0)]
        job: JobId,
        /// Number of the step within its job.
        #[n(1)]
        step: StepNo,
        /// Exit code of the step, and why it ended.
        #[n(2)]
        outcome: Outcome,
    },
    /// Accounts, users, associations or QOS were changed.
    #[n(21)]
    PolicyChanged {
        /// The changes, in the order in which they were made.
        #[n(0)]
        changes: Vec<PolicyChange>,
        /// Uid of the user that made the changes.
        #[n(1)]
        by: u32,
    },
    /// A running job was preempted, and must end by a given time.
    #[n(22)]
    JobPreempted {
        /// The preempted job.
        #[n(0)]
        id: JobId,
        /// Attempt of the job.
        #[n(1)]
        attempt: Attempt,
        /// Time at which the job is ended if it still runs.
        #[n(2)]
        until: Time,
    },
    /// A job or step that has just started got generic resources (as GPUs).
    #[n(23)]
    GresGranted {
        /// The job that got the resources, or the job of the step that got them.
        #[n(0)]
        job: JobId,
        /// The step that got the resources. None: the job as a whole.
        #[n(1)]
        step: Option<StepNo>,
        /// The devices that the job or step got on each node.
        #[n(2)]
        grants: Vec<Grant>,
    },
    /// A reservation was created or changed, or a recurring one moved to its next time.
    #[n(24)]
    ReservationSet {
        /// The reservation as it is after the change.
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
        /// Jobs with changed time slots, each with its new slots.
        #[n(0)]
        shifts: Vec<Shift>,
    },
    /// Jobs just submitted, which have consecutive ids, became the components of one heterogeneous job.
    #[n(27)]
    HetFormed {
        /// Id of the first component of the heterogeneous job.
        #[n(0)]
        leader: JobId,
        /// Number of components of the heterogeneous job.
        #[n(1)]
        size: u32,
    },
    /// A pending job was leased to a node. The node starts it as soon as two things hold: the job `behind` has no
    /// processes left, and so has every job leased to the node before for the same resources. The start is recorded by
    /// `JobStarted` with this attempt.
    #[n(28)]
    JobLeased {
        /// The leased job.
        #[n(0)]
        id: JobId,
        /// Number of the new attempt, one higher than that of the job's last attempt. It identifies the lease.
        #[n(1)]
        attempt: Attempt,
        /// The job from which the leased job takes over the resources: same partition, node, cores and memory.
        #[n(2)]
        behind: JobId,
    },
    /// A node returned a leased job that it has not started and will not start. The job is pending again.
    #[n(29)]
    LeaseReturned {
        /// The returned job.
        #[n(0)]
        id: JobId,
        /// Attempt given when the job was leased, which identifies the lease.
        #[n(1)]
        attempt: Attempt,
    },
    /// Questions about jobs of other cells were answered, so that dependencies of this cell's jobs on them are
    /// satisfied, or never can be.
    #[n(30)]
    ForeignResolved {
        /// Questions about jobs of other cells, with the answers that these cells gave.
        #[n(0)]
        replies: Vec<(Question, Reply)>,
    },
    /// An operator created, changed or deleted a partition. The change holds until `scontrol reconfigure`, or until the
    /// controller starts with a changed configuration.
    #[n(31)]
    PartitionChanged {
        /// Name of the partition.
        #[n(0)]
        name: String,
        /// New configuration of the partition. None: it was deleted.
        #[n(1)]
        config: Option<Box<PartitionConfig>>,
    },
    /// A running job gave up some of its nodes. These nodes are told to end the job, and become free when they have
    /// released it.
    #[n(32)]
    JobShrunk {
        /// The job that gave up nodes.
        #[n(0)]
        id: JobId,
        /// Attempt of the job.
        #[n(1)]
        attempt: Attempt,
        /// Resources that the job keeps.
        #[n(2)]
        alloc: Alloc,
        /// The failed node that another node is to replace. None: the job goes on without it.
        #[n(3)]
        vacant: Option<NodeId>,
    },
    /// The time limit of a running step changed.
    #[n(33)]
    StepLimited {
        /// The job of the step.
        #[n(0)]
        job: JobId,
        /// Number of the step within its job.
        #[n(1)]
        step: StepNo,
        /// New limit in seconds since the step's start. None: as long as the job.
        #[n(2)]
        time_limit_s: Option<u64>,
    },
    /// The journal is older than the state that nodes have seen. Job ids up to `last` may belong to lost jobs, so they
    /// are not given again.
    #[n(34)]
    IdsLost {
        /// The highest job id that a node reported.
        #[n(0)]
        last: JobId,
    },
    /// `sacctmgr modify job` changed the accounting record of a job's last attempt. The controller's data about the job
    /// is unchanged.
    #[n(35)]
    Recorded {
        /// The job with the changed accounting record.
        #[n(0)]
        job: JobId,
        /// Names of the changed fields, from [`crate::wire::history::RECORDED`], with their new values.
        #[n(1)]
        values: Vec<(String, String)>,
        /// Uid of the user that changed the record.
        #[n(2)]
        by: u32,
    },
    /// An operator changed the description of some nodes. Comments persist. Other changes hold until `scontrol
    /// reconfigure`, or until the controller starts with a changed configuration.
    #[n(36)]
    NodesChanged {
        /// The nodes with a changed description.
        #[n(0)]
        nodes: NodeSet,
        /// New values of the nodes' description.
        #[n(1)]
        change: Box<NodeChange>,
    },
    /// The state was restored from a backup. What happened after the backup is lost: pending jobs may have run, so they
    /// are held, and job ids up to `last` may have been given, so they are not given again.
    #[n(37)]
    Restored {
        /// The last job id that is passed over.
        #[n(0)]
        last: JobId,
    },
    /// An operator raised the version of the cluster, or it began with this one.
    #[n(38)]
    VersionRaised {
        /// The new version. It is never lower than the one before.
        #[n(0)]
        to: ClusterVersion,
        /// Uid of the operator.
        #[n(1)]
        by: u32,
    },
    /// The controller's prolog of a job has succeeded, so the job is sent to its nodes. The numbers from 39 to 44 are
    /// left out.
    #[n(45)]
    JobConfigured {
        /// The job of the prolog.
        #[n(0)]
        id: JobId,
        /// Attempt of the job.
        #[n(1)]
        attempt: Attempt,
    },
    /// The controller's epilog of a job that no node holds has ended. With that the job has ended.
    #[n(46)]
    EpilogEnded {
        /// The job of the epilog.
        #[n(0)]
        id: JobId,
        /// Attempt of the job.
        #[n(1)]
        attempt: Attempt,
    },
    /// A reboot of nodes was requested, ordered, cancelled, or is over.
    #[n(47)]
    NodesReboot {
        /// The nodes of the reboot.
        #[n(0)]
        nodes: NodeSet,
        /// The reboot that is to come. None: there is none any more.
        #[n(1)]
        reboot: Option<Box<Reboot>>,
    },
    /// Nodes have entered a phase of their power: they were ordered up or down, or are there. The numbers from 48 to 63
    /// are left out.
    #[n(64)]
    NodesPower {
        /// The nodes.
        #[n(0)]
        nodes: NodeSet,
        /// The phase.
        #[n(1)]
        phase: PowerPhase,
        /// Whether the program of the phase is to be run.
        #[n(2)]
        owed: bool,
    },
    /// An operator has said what the power of nodes is to be.
    #[n(65)]
    PowerWished {
        /// The nodes.
        #[n(0)]
        nodes: NodeSet,
        /// What is wished.
        #[n(1)]
        wish: PowerWish,
        /// Uid of the operator.
        #[n(2)]
        by: u32,
    },
    /// The program of a phase has ended, whether it succeeded or not. It is not run again for these nodes.
    #[n(66)]
    PowerProgramEnded {
        /// The nodes that the program was called with.
        #[n(0)]
        nodes: NodeSet,
        /// The phase.
        #[n(1)]
        phase: PowerPhase,
    },
    /// All nodes of a job are powered up. The job is sent to them, and its time begins.
    #[n(67)]
    JobAwake {
        /// The job.
        #[n(0)]
        id: JobId,
        /// Attempt of the job.
        #[n(1)]
        attempt: Attempt,
    },
    /// An operator removed nodes from the cluster (`scontrol delete nodename=`). No job starts there from now on. A node
    /// is gone when no job holds it any more. The numbers from 48 to 59 are left out.
    #[n(60)]
    NodesRemoved {
        /// The removed nodes.
        #[n(0)]
        nodes: NodeSet,
        /// Uid of the operator.
        #[n(1)]
        by: u32,
    },
    /// An operator created nodes (`scontrol create nodename=`). A name that a removed node had gets that node's id.
    #[n(61)]
    NodesCreated {
        /// The nodes' names, as a host list, and their description.
        #[n(0)]
        node: Box<NodeConfig>,
        /// Uid of the operator.
        #[n(1)]
        by: u32,
    },
    /// A node took the place of a failed one in a running job.
    #[n(81)]
    NodeReplaced {
        /// The job.
        #[n(0)]
        id: JobId,
        /// Attempt of the job.
        #[n(1)]
        attempt: Attempt,
        /// The node that failed.
        #[n(2)]
        lost: NodeId,
        /// The node that takes its place.
        #[n(3)]
        node: NodeId,
        /// Resources that the job holds from then on. It holds a spare node before.
        #[n(4)]
        alloc: Alloc,
        /// Generic resources that the job gets on that node.
        #[n(5)]
        gres: Vec<Grant>,
    },
    /// Work of a running job stopped because the job lost a node. Later events say what becomes of the job.
    #[n(91)]
    NodeLost {
        /// The job.
        #[n(0)]
        id: JobId,
        /// Attempt of the job.
        #[n(1)]
        attempt: Attempt,
        /// The node.
        #[n(2)]
        node: NodeId,
        /// When the node was heard last.
        #[n(3)]
        heard: Time,
        /// When work of the job was last kept: at its last progress, or else at the start of what the loss stops.
        #[n(4)]
        kept: Time,
    },
    /// An operator rotated the controllers' keys. The numbers from 68 to 79 are left out.
    #[n(80)]
    KeysRotated {
        /// The new keys.
        #[n(0)]
        keys: Box<ControllerKeys>,
        /// Uid of the operator.
        #[n(1)]
        by: u32,
    },
    /// A fault of a node was found. The numbers from 82 to 89 are left out.
    #[n(90)]
    NodeFault(#[n(0)] NodeFault),
    /// A checkpoint of a running job counts from now on, or no longer. The numbers from 91 to 99 are left out.
    #[n(100)]
    Checkpoint(#[n(0)] Box<CheckpointChange>),
    /// What a job that has just got resources is billed for them, by the weights of its partition. A job without this event
    /// is billed for its CPUs. The numbers from 101 to 109 are left out.
    #[n(110)]
    JobBilled {
        /// The job.
        #[n(0)]
        id: JobId,
        /// Attempt of the job.
        #[n(1)]
        attempt: Attempt,
        /// What it is billed from now on.
        #[n(2)]
        billing: Billing,
    },
}

impl Record {
    /// Returns the version of the cluster from this record on. None: the record does not change it.
    pub fn raises(&self) -> Option<ClusterVersion> {
        let to = |event: &Event| if let Event::VersionRaised { to, .. } = event { Some(*to) } else { None };
        self.events.iter().filter_map(to).max()
    }
}

/// Changes of `scontrol update node` to the description of nodes. None: the value is unchanged, or as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct NodeChange {
    /// Weight of the nodes. Nodes of lower weight are allocated first.
    #[n(0)]
    pub weight: Option<u32>,
    /// Features that the nodes may have.
    #[n(1)]
    pub features: Option<Vec<String>>,
    /// Features that the nodes have at present, which `--constraint` is compared with.
    #[n(2)]
    pub active_features: Option<Vec<String>>,
    /// Generic resources of each node, as `gpu:a100:4`.
    #[n(3)]
    pub gres: Option<String>,
    /// Operators' comment on the nodes.
    #[n(4)]
    pub comment: Option<String>,
    /// Text on the nodes for other programs.
    #[n(5)]
    pub extra: Option<String>,
    /// Id of the machine in a cloud, for nodes that run there.
    #[n(6)]
    pub instance_id: Option<String>,
    /// Type of the machine in a cloud, for nodes that run there.
    #[n(7)]
    pub instance_type: Option<String>,
    /// Seconds after which nodes that are down or drained are resumed, from the event's time on; 0: they are not. The number
    /// 8 is left out.
    #[n(9)]
    pub resume_after_s: Option<u64>,
}

/// How a job that has ended is put back into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Requeue {
    /// Whether the job is held until it is released (after `scontrol requeuehold`, or too many launch failures).
    #[n(0)]
    pub hold: bool,
    /// Earliest time at which the job may start again. None: at once.
    #[n(1)]
    pub not_before: Option<Time>,
    /// Some(true): the held job's state is SPECIAL_EXIT (`requeuehold State=SpecialExit`).
    #[n(2)]
    pub special: Option<bool>,
    /// Some(true): the job goes before all others in the queue, after a failure of a node (`--requeue=expedite`).
    #[n(3)]
    pub expedite: Option<bool>,
}

/// State of a node as set by an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum NodeAdmin {
    /// Jobs may start on the node (`state=resume`, `undrain`).
    #[default]
    #[n(0)]
    Resume,
    /// Running jobs continue on the node, and no job starts (`state=drain`).
    #[n(1)]
    Drain,
    /// The node is down, and its jobs are lost (`state=down`).
    #[n(2)]
    Down,
    /// Like `Drain`, but for a node that is expected to fail (`state=fail`).
    #[n(3)]
    Fail,
}

/// Changes of `scontrol update job` to a job, and that its dependency is met. None: the value is unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobChange {
    /// The whole new specification. None: the change does not concern it (name, partition, nodes, comment, dependency
    /// …).
    #[n(0)]
    #[cbor(with = "crate::encoding::arc_or_none", has_nil)]
    pub spec: Option<Arc<JobSpec>>,
    /// New time limit in seconds. Some(None): unlimited.
    #[n(1)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub time_limit_s: Option<Option<u64>>,
    /// New priority of the job.
    #[n(2)]
    pub priority: Option<u32>,
    /// New limit on tasks of an array that run at once (`%N`). Some(None): no limit.
    #[n(3)]
    #[cbor(with = "crate::encoding::change", has_nil)]
    pub array_limit: Option<Option<u32>>,
    /// Some(true): nobody changed the job, its dependency is met from now on.
    #[n(4)]
    pub independent: Option<bool>,
    /// What the job says of its progress. Nothing else changes.
    #[n(5)]
    pub progress: Option<String>,
}
