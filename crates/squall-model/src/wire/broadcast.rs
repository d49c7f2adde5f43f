//! What `sbcast` and `srun --bcast` ask for.

use crate::encoding::ByteBuf;
use minicbor::{Decode, Encode};

use crate::id::{JobId, StepNo};
use crate::job::Digest;

/// A file for nodes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Broadcast {
    /// Whom it is for.
    #[n(0)]
    pub to: BroadcastTo,
    /// Of the file's bytes.
    #[n(1)]
    pub digest: Digest,
    /// Its length, bytes.
    #[n(2)]
    pub size: u64,
    /// Nodes that share a disk share one copy.
    #[n(3)]
    pub shared: bool,
    /// Where to put it; None: it is only brought into the nodes' keeping.
    #[n(4)]
    pub place: Option<PlaceAt>,
    /// How long it may take, milliseconds; None: as long as there is progress.
    #[n(5)]
    pub time_ms: Option<u64>,
    /// A name that the file has for the caller only as long as its bytes stay as they are, to be remembered with the
    /// digest.
    #[n(6)]
    pub known_as: Option<Digest>,
}

/// Whom a file is for.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum BroadcastTo {
    /// The nodes of the caller's running job, or of the components of one.
    #[n(0)]
    Job {
        /// Which; one at least.
        #[n(0)]
        jobs: Vec<JobId>,
        /// Only those of this step.
        #[n(1)]
        step: Option<StepNo>,
    },
    /// These nodes, a host list; empty: all that are connected. For operators.
    #[n(1)]
    Nodes(#[n(0)] String),
}

/// Where a file is to be put. See `Placement`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PlaceAt {
    /// Absolute path.
    #[n(0)]
    pub path: ByteBuf,
    /// Permissions.
    #[n(1)]
    pub mode: u32,
    /// Time of modification.
    #[n(2)]
    pub modified: Option<(i64, u32)>,
    /// Replace what is there.
    #[n(3)]
    pub replace: bool,
    /// The path is a folder, in which the file gets Slurm's name for the job's next step and the node:
    /// `slurm_bcast_JOB.STEP_NODE`.
    #[n(4)]
    pub per_step: bool,
}
