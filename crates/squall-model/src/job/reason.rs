//! Why a pending job does not run, and how the nodes of a job are placed in the network.

use crate::policy::{Limit, Whose};
use minicbor::{Decode, Encode};

/// Why a pending job does not run, or what a running one waits for. Users see Slurm's names of these reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum PendingReason {
    /// The scheduler has not considered the job yet.
    #[default]
    #[n(0)]
    None,
    /// Jobs that come earlier in the partition's queue are pending, too.
    #[n(1)]
    Priority,
    /// The nodes that the job could use are busy.
    #[n(2)]
    Resources,
    /// A dependency is not satisfied yet.
    #[n(3)]
    Dependency,
    /// A dependency can never be satisfied.
    #[n(4)]
    DependencyNeverSatisfied,
    /// The time of `--begin` is in the future.
    #[n(5)]
    BeginTime,
    /// The job's user held it.
    #[n(6)]
    JobHeldUser,
    /// An operator held the job.
    #[n(7)]
    JobHeldAdmin,
    /// As many tasks of its array are running as `%N` allows.
    #[n(8)]
    JobArrayTaskLimit,
    /// The job requests more nodes than the partition has.
    #[n(9)]
    PartitionNodeLimit,
    /// The job's time limit is longer than the partition allows.
    #[n(10)]
    PartitionTimeLimit,
    /// The partition is down.
    #[n(11)]
    PartitionDown,
    /// The partition is inactive.
    #[n(12)]
    PartitionInactive,
    /// Nodes that the job requests are down, drained or reserved.
    #[n(13)]
    ReqNodeNotAvail,
    /// No set of the cluster's nodes fits the request, even if all are idle.
    #[n(14)]
    BadConstraints,
    /// The launch failed with this error; the job is delayed before the next attempt.
    #[n(15)]
    LaunchFailed(#[n(0)] String),
    /// The launch failed, and the job was requeued and held.
    #[n(16)]
    JobHoldMaxRequeue,
    /// Processes of the previous attempt are not gone from all nodes yet.
    #[n(17)]
    Cleaning,
    /// Other jobs hold licenses that the job needs.
    #[n(18)]
    Licenses,
    /// A limit is reached: the kind of object on which it is set (association or QOS), and which limit.
    #[n(19)]
    Limit(#[n(0)] Whose, #[n(1)] Limit),
    /// The job's reservation has not begun.
    #[n(20)]
    Reservation,
    /// The job's reservation was deleted.
    #[n(21)]
    ReservationDeleted,
    /// The job requests more CPUs than the partition has.
    #[n(22)]
    PartitionConfig,
    /// The job was requeued and held (`scontrol requeuehold`).
    #[n(23)]
    RequeuedHeld,
    /// As `RequeuedHeld`, and the job's state is SPECIAL_EXIT.
    #[n(24)]
    SpecialExit,
    /// As `ReqNodeNotAvail`, with the names of the nodes as a host list.
    #[n(25)]
    NodesNotAvail(#[n(0)] String),
    /// The job runs, and a node of it does not answer.
    #[n(26)]
    NodeNotResponding,
    /// The job runs, and another node is to take the place of one that failed.
    #[n(27)]
    NodeToBeReplaced,
    /// The job waits on disk, at its last checkpoint, for the node that has it. The numbers from 28 to 31 are left out.
    #[n(32)]
    Checkpointed,
    /// The fair-share factor of the job's user is below the threshold of the job's QOS. The numbers from 33 to 35 are left
    /// out.
    #[n(36)]
    UsageThreshold,
}

/// Result of testing a node for a pending job: the first test that the node fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum NodeTest {
    /// The node fails no test.
    #[n(0)]
    Free,
    /// The node is down or drained.
    #[n(1)]
    Unusable,
    /// The node does not answer at present.
    #[n(2)]
    Silent,
    /// `--nodelist` names all nodes that the job can have, and this node is not among these.
    #[n(3)]
    Unlisted,
    /// `--exclude` names the node, or an earlier launch of the job failed there.
    #[n(4)]
    Excluded,
    /// The node is reserved, and the job does not run in that reservation.
    #[n(5)]
    Reserved,
    /// The node lacks a feature that the job requires.
    #[n(6)]
    Features,
    /// The node has too little scratch space.
    #[n(7)]
    TmpDisk,
    /// The node has too few CPUs, even when idle.
    #[n(8)]
    FewCpus,
    /// The node has too little memory, even when idle.
    #[n(9)]
    LittleMemory,
    /// The node has too few generic resources, even when idle.
    #[n(10)]
    FewGres,
    /// Other jobs hold too many of the node's CPUs.
    #[n(11)]
    BusyCpus,
    /// Other jobs hold too much of the node's memory.
    #[n(12)]
    BusyMemory,
    /// Other jobs hold too many of the node's generic resources.
    #[n(13)]
    BusyGres,
    /// Jobs of other users run on the node, and this job or one of those is `--exclusive=user`.
    #[n(14)]
    OtherUsers,
    /// The node is not powered up, and the job waits for nodes that are (`--delay-boot`). The numbers 15 to 20 are left
    /// out.
    #[n(21)]
    PoweredDown,
}

/// Constraint on the positions of a pending job's nodes relative to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum Together {
    /// `--contiguous`: the nodes have consecutive numbers.
    #[n(0)]
    Contiguous,
    /// `--switches`: the nodes are at few leaf switches.
    #[n(1)]
    Switches,
    /// `--geometry`: the nodes form a prism (a box of routers) of a torus with given extents.
    #[n(2)]
    Geometry,
    /// `--grid`: the nodes form a prism of a torus onto which the job's process grid maps well.
    #[n(3)]
    Grid,
    /// `--network`, or a job of more than a few nodes: a prism of a torus with links that no other job uses.
    #[n(4)]
    Prism,
    /// The nodes are neighbours on a ring.
    #[n(5)]
    Ring,
    /// `--segment`: equal parts of the nodes each stand in one block.
    #[n(6)]
    Segments,
    /// The nodes are in no more blocks than can hold the job.
    #[n(7)]
    Block,
}

/// Position of a running job's nodes in the network, and the way in which they were found. `Listed`, `Prism` and
/// `Order` are tried one after the other, so the ways before the given one found nothing free.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Seat {
    /// The prism of a torus that the user requested (`--geometry`, `--grid`), as text.
    #[n(0)]
    Asked(#[n(0)] String),
    /// A prism with a shape from the topology file's list (`Placements`), as text.
    #[n(1)]
    Listed(#[n(0)] String),
    /// A prism of another shape that keeps its traffic inside, as text.
    #[n(2)]
    Prism(#[n(0)] String),
    /// No prism: nodes that follow each other in an ordering of the torus's routers, with the ordering's name.
    #[n(3)]
    Order(#[n(0)] String),
    /// Leaf switches, blocks or rings of the nodes: the kind, and the names.
    #[n(4)]
    Groups(#[n(0)] String, #[n(1)] Vec<String>),
}
