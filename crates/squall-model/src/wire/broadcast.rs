//! What `sbcast` and `srun --bcast` ask for.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::id::{JobId, StepNo};
use crate::job::Digest;

/// A file for nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broadcast {
    /// Whom it is for.
    pub to: BroadcastTo,
    /// Of the file's bytes.
    pub digest: Digest,
    /// Its length, bytes.
    pub size: u64,
    /// Nodes that share a disk share one copy.
    pub shared: bool,
    /// Where to put it; None: it is only brought into the nodes' keeping.
    pub place: Option<PlaceAt>,
    /// How long it may take, milliseconds; None: as long as there is progress.
    pub time_ms: Option<u64>,
    /// A name that the file has for the caller only as long as its bytes stay as they are, to be remembered with the
    /// digest.
    pub known_as: Option<Digest>,
}

/// Whom a file is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BroadcastTo {
    /// The nodes of the caller's running job, or of the components of one.
    Job {
        /// Which; one at least.
        jobs: Vec<JobId>,
        /// Only those of this step.
        step: Option<StepNo>,
    },
    /// These nodes, a host list; empty: all that are connected. For operators.
    Nodes(String),
}

/// Where a file is to be put. See `Placement`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceAt {
    /// Absolute path.
    pub path: ByteBuf,
    /// Permissions.
    pub mode: u32,
    /// Time of modification.
    pub modified: Option<(i64, u32)>,
    /// Replace what is there.
    pub replace: bool,
    /// The path is a folder, in which the file gets Slurm's name for the job's next step and the node:
    /// `slurm_bcast_JOB.STEP_NODE`.
    pub per_step: bool,
}
