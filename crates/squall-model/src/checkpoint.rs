//! Checkpoints: images of a job's processes on disk, from which the job goes on later where it was.

use minicbor::{Decode, Encode};

use crate::id::NodeId;
use crate::interface::Interface;
use crate::job::JobAttempt;
use crate::set::NodeSet;
use crate::time::{Span, Time};

/// What a user wants of a job's checkpoints (`scontrol checkpoint VERB JOB`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum CheckpointVerb {
    /// `able`: says whether the job can be checkpointed where it runs.
    #[n(0)]
    Able,
    /// `create`: makes a checkpoint; the job goes on.
    #[n(1)]
    Create,
    /// `vacate`: makes a checkpoint and returns the job to the queue.
    #[n(2)]
    Vacate,
    /// `scontrol suspend --to-disk`: as `vacate`, and the job is held.
    #[n(3)]
    Hold,
    /// `restart`: has a held job go on from its last checkpoint, or takes a running one back to it.
    #[n(4)]
    Restart,
    /// Only for jobs of several nodes, between controller and nodes. As an order: all nodes are ready, so the job runs on
    /// after its checkpoint, or goes on after it was restored. As an answer: this node has restored its part of the job and
    /// waits for the order.
    #[n(5)]
    Go,
}

impl CheckpointVerb {
    /// Returns whether the job leaves its node after the checkpoint, so that it stays frozen until it is ended.
    pub fn vacates(self) -> bool {
        matches!(self, Self::Vacate | Self::Hold)
    }
}

/// `--checkpoint`: which checkpoints of a running job the controller makes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CheckpointPlan {
    /// Time between two checkpoints, seconds. 0: the job is only checkpointed to leave its node. [`Self::AUTO_S`]: the
    /// controller chooses it.
    #[n(0)]
    pub every_s: u64,
    /// Whether the job is ended if it can't be checkpointed.
    #[n(1)]
    pub must: bool,
}

impl CheckpointPlan {
    /// `--checkpoint=auto`: the time by the cost of a checkpoint and the failures of nodes.
    pub const AUTO_S: u64 = u64::MAX;
}

/// Returns the time between two checkpoints with which least of a job's time is lost: the square root of twice the product
/// of a checkpoint's cost and the mean time between failures (J. W. Young, *A first order approximation to the optimum
/// checkpoint interval*, CACM 17(9), 1974).
pub fn best_interval(cost: Span, between_failures: Span) -> Span {
    let product = 2.0 * cost.0 as f64 * between_failures.0 as f64;
    Span(product.sqrt() as u64)
}

/// An order to a node about the checkpoints of a job that runs there.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CheckpointOrder {
    /// The job.
    #[n(0)]
    pub job: JobAttempt,
    /// Number of the checkpoint to be made: 1, 2, 3 …
    #[n(1)]
    pub number: u64,
    /// What is wanted; never `Restart`.
    #[n(2)]
    pub verb: CheckpointVerb,
    /// Numbers of those that count; the node removes all others of the job.
    #[n(3)]
    pub kept: Vec<u64>,
    /// When the order was given, as the controller counts time: later orders about a job have greater ones. Absent: 0, from
    /// controllers of before.
    #[n(4)]
    #[cbor(default)]
    pub given: Time,
}

/// A node's answer to such an order.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CheckpointNote {
    /// The job.
    #[n(0)]
    pub job: JobAttempt,
    /// Number in the order.
    #[n(1)]
    pub number: u64,
    /// What was wanted. `Create` in place of `Vacate`: the checkpoint is complete, but the job runs on, as no word of the
    /// controller came in time.
    #[n(2)]
    pub verb: CheckpointVerb,
    /// The complete checkpoint. None: there is none, as with `Able`.
    #[n(3)]
    pub made: Option<Made>,
    /// Why the job can't be checkpointed, as a text for users. None: it can.
    #[n(4)]
    pub error: Option<String>,
    /// Whether the dump was killed, so that the job's processes may be damaged: the node has ended them.
    #[n(5)]
    #[cbor(default)]
    pub damaged: bool,
    /// As in the last order that this answers.
    #[n(6)]
    #[cbor(default)]
    pub given: Time,
}

/// A complete checkpoint on a node's disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Made {
    /// Size of its files, bytes.
    #[n(0)]
    pub bytes: u64,
    /// How long the job stood still for it.
    #[n(1)]
    pub stood: Span,
    /// Process id of the job's script, which it gets again.
    #[n(2)]
    pub pid: u32,
    /// The connections of a job of several nodes with what is under way on them: hashes of all their directions, combined by
    /// XOR. Both ends of a direction have the same hash, so over all nodes the result is 0 if each connection ends within the
    /// job and nothing is lost between two dumps. None: the job has one node.
    #[n(3)]
    pub links: Option<u64>,
}

/// A checkpoint that counts.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Checkpoint {
    /// Number of the checkpoint within its job.
    #[n(0)]
    pub number: u64,
    /// The node that made it and has it: the first one, if several have it.
    #[n(1)]
    pub node: NodeId,
    /// When it began to count.
    #[n(2)]
    pub time: Time,
    /// Size, and how long the job stood still.
    #[n(3)]
    pub made: Made,
    /// For how long the job had run until then, in all attempts that led there.
    #[n(4)]
    pub ran: Span,
    /// The nodes that each have a part of it. None: one has all of it.
    #[n(5)]
    pub nodes: Option<NodeSet>,
    /// Some: from the parts the job can also go on on other nodes. The addresses of its nodes, in the order of their ids.
    #[n(6)]
    pub interfaces: Option<Vec<Vec<Interface>>>,
}

impl Checkpoint {
    /// Returns the nodes that have it, or parts of it.
    pub fn holders(&self) -> NodeSet {
        self.nodes.clone().unwrap_or_else(|| NodeSet::one(self.node))
    }
}

/// A change of the checkpoints that count.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CheckpointChange {
    /// The job, and the attempt that made the checkpoint or could not be restored from it.
    #[n(0)]
    pub job: JobAttempt,
    /// Number of the checkpoint within its job.
    #[n(1)]
    pub number: u64,
    /// The node that has it.
    #[n(2)]
    pub node: NodeId,
    /// The checkpoint is complete, and counts. None: a restore from it failed, and it no longer counts; or, if its number
    /// is higher than that of any that counted, it could not be made.
    #[n(3)]
    pub made: Option<Made>,
    /// Why the restore failed, or why the checkpoint could not be made, as a text for users.
    #[n(4)]
    pub error: Option<String>,
    /// Some(true): the dump was killed, which ended the attempt.
    #[n(5)]
    pub damaged: Option<bool>,
    /// The nodes that each have a part of the checkpoint. None: one has all of it.
    #[n(6)]
    pub nodes: Option<NodeSet>,
    /// As in [`Checkpoint`].
    #[n(7)]
    pub interfaces: Option<Vec<Vec<Interface>>>,
}

/// The checkpoints of a job that count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Checkpoints {
    /// The checkpoints, the latest last; at most [`CHECKPOINTS_KEPT`](crate::limits::CHECKPOINTS_KEPT).
    #[n(0)]
    pub kept: Vec<Checkpoint>,
    /// Number of the last one that ever counted.
    #[n(1)]
    pub last: u64,
    /// Why the last restore failed, as a text for users. None: none failed since the last checkpoint.
    #[n(2)]
    pub failed: Option<String>,
    /// Whether the job is bound to the node only by its checkpoint, and not by `--nodelist`.
    #[n(3)]
    pub bound: bool,
    /// Why the controller could not make a checkpoint of `--checkpoint`, or why a dump has ended the job, as a text for
    /// users. None: the last one was made.
    #[n(4)]
    pub refused: Option<String>,
    /// How many dumps in a row have ended the job, as they were killed.
    #[n(5)]
    #[cbor(default)]
    pub damages: u32,
    /// What the job asked for before its checkpoint bound it to nodes. None: nothing was changed.
    #[n(6)]
    pub asked: Option<Asked>,
}

/// What a job asked for, of that which changes when it is bound to nodes by a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Asked {
    /// `--nodelist`.
    #[n(0)]
    pub nodelist: Option<String>,
    /// Least number of nodes.
    #[n(1)]
    pub nodes_min: Option<u32>,
    /// Most nodes.
    #[n(2)]
    pub nodes_max: Option<u32>,
    /// `--ntasks-per-node`.
    #[n(3)]
    pub ntasks_per_node: Option<u32>,
}

/// The checkpoint from which an attempt goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Restore {
    /// Number of the checkpoint.
    #[n(0)]
    pub number: u64,
    /// For how long the job had run until then.
    #[n(1)]
    pub ran: Span,
    /// Process id of the job's script.
    #[n(2)]
    pub pid: u32,
}

/// A job's last checkpoint as users see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct CheckpointInfo {
    /// Its number.
    #[n(0)]
    pub number: u64,
    /// When it began to count. None: none counts any more.
    #[n(1)]
    pub time: Option<Time>,
    /// Name of the node that has it.
    #[n(2)]
    pub node: String,
    /// Size, and how long the job stood still.
    #[n(3)]
    pub made: Made,
    /// Why the last restore failed. None: none failed since.
    #[n(4)]
    pub failed: Option<String>,
    /// Why a checkpoint of `--checkpoint` could not be made. None: the last one could.
    #[n(5)]
    pub refused: Option<String>,
}
