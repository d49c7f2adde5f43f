//! Why a job waits.

use crate::policy::{Limit, Whose};
use minicbor::{Decode, Encode};

/// Why a pending job does not run. The names that users see are Slurm's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum PendingReason {
    /// Not looked at yet.
    #[default]
    #[n(0)]
    None,
    /// Earlier jobs of the partition wait.
    #[n(1)]
    Priority,
    /// Nodes are busy.
    #[n(2)]
    Resources,
    /// A dependency has not come true.
    #[n(3)]
    Dependency,
    /// A dependency never can.
    #[n(4)]
    DependencyNeverSatisfied,
    /// `--begin` lies ahead.
    #[n(5)]
    BeginTime,
    /// Held by its user.
    #[n(6)]
    JobHeldUser,
    /// Held by the operator.
    #[n(7)]
    JobHeldAdmin,
    /// `%N` tasks of its array run.
    #[n(8)]
    JobArrayTaskLimit,
    /// More nodes than the partition has.
    #[n(9)]
    PartitionNodeLimit,
    /// Longer than the partition allows.
    #[n(10)]
    PartitionTimeLimit,
    /// The partition is down.
    #[n(11)]
    PartitionDown,
    /// The partition is inactive.
    #[n(12)]
    PartitionInactive,
    /// The nodes asked for are down, drained or reserved.
    #[n(13)]
    ReqNodeNotAvail,
    /// No set of nodes of the cluster, even empty, could hold it.
    #[n(14)]
    BadConstraints,
    /// The launch failed; it waits before another try.
    #[n(15)]
    LaunchFailed(#[n(0)] String),
    /// Requeued with hold.
    #[n(16)]
    JobHoldMaxRequeue,
    /// Waits for the previous attempt's processes to be gone.
    #[n(17)]
    Cleaning,
    /// Other jobs hold licenses that it needs.
    #[n(18)]
    Licenses,
    /// A limit leaves no room for it.
    #[n(19)]
    Limit(#[n(0)] Whose, #[n(1)] Limit),
    /// Its reservation has not begun.
    #[n(20)]
    Reservation,
    /// Its reservation is no more.
    #[n(21)]
    ReservationDeleted,
    /// More CPUs than the partition has.
    #[n(22)]
    PartitionConfig,
}

/// How a node stands to a job that waits: the first test that it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum NodeTest {
    /// It fails none.
    #[n(0)]
    Free,
    /// It is down or drained.
    #[n(1)]
    Unusable,
    /// It does not answer at present.
    #[n(2)]
    Silent,
    /// `--nodelist` names all nodes of the job, and not this one.
    #[n(3)]
    Unlisted,
    /// `--exclude` names it, or the job's launch failed there.
    #[n(4)]
    Excluded,
    /// A reservation keeps it.
    #[n(5)]
    Reserved,
    /// It lacks a feature.
    #[n(6)]
    Features,
    /// It has too little scratch space.
    #[n(7)]
    TmpDisk,
    /// It has too few CPUs.
    #[n(8)]
    FewCpus,
    /// It has too little memory.
    #[n(9)]
    LittleMemory,
    /// It has too few generic resources.
    #[n(10)]
    FewGres,
    /// Jobs hold its CPUs.
    #[n(11)]
    BusyCpus,
    /// Jobs hold its memory.
    #[n(12)]
    BusyMemory,
    /// Jobs hold its generic resources.
    #[n(13)]
    BusyGres,
    /// Other users' jobs run on it, and one of the two jobs is `--exclusive=user`.
    #[n(14)]
    OtherUsers,
}

/// How the nodes of a job that waits have to stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum Together {
    /// `--contiguous`: numbers that follow each other.
    #[n(0)]
    Contiguous,
    /// `--switches`: at few leaf switches.
    #[n(1)]
    Switches,
    /// `--geometry`: a prism of a torus with these extents.
    #[n(2)]
    Geometry,
    /// `--grid`: a prism on which its ranks lie well.
    #[n(3)]
    Grid,
    /// `--network`, or more nodes than a few: a prism with links of its own.
    #[n(4)]
    Prism,
    /// Neighbours on a ring.
    #[n(5)]
    Ring,
}

/// How the nodes of a job that runs stand in the network, and by which step of the choice they were found: what stands
/// before it in this list was not free.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Seat {
    /// The prism of a torus that it asked for (`--geometry`, `--grid`), as text.
    #[n(0)]
    Asked(#[n(0)] String),
    /// A prism of the topology file's list (`Placements`).
    #[n(1)]
    Listed(#[n(0)] String),
    /// Another prism whose traffic stays inside.
    #[n(2)]
    Prism(#[n(0)] String),
    /// No such prism: put together in an order of the torus's routers, by name.
    #[n(3)]
    Order(#[n(0)] String),
    /// At these leaf switches, blocks or rings: what they are, and their names.
    #[n(4)]
    Groups(#[n(0)] String, #[n(1)] Vec<String>),
}
