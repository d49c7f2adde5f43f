//! Requests of `sbcast` and `srun --bcast`.

use crate::encoding::ByteBuf;
use minicbor::{Decode, Encode};

use crate::id::{JobId, StepNo};
use crate::job::Digest;

/// A file to be sent to nodes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Broadcast {
    /// The nodes that get the file.
    #[n(0)]
    pub to: BroadcastTo,
    /// Digest of the file's content.
    #[n(1)]
    pub digest: Digest,
    /// Length of the file, bytes.
    #[n(2)]
    pub size: u64,
    /// Whether nodes that share a disk share one copy.
    #[n(3)]
    pub shared: bool,
    /// Where nodes write the file. None: it is only put into their caches.
    #[n(4)]
    pub place: Option<PlaceAt>,
    /// Time limit, milliseconds. None: no limit as long as there is progress.
    #[n(5)]
    pub time_ms: Option<u64>,
    /// Name by which the caller recognizes the unchanged file (its content can't have changed while the name is the
    /// same). The controller remembers it with the digest, so that the file needn't be read again.
    #[n(6)]
    pub known_as: Option<Digest>,
}

/// Nodes that get a file.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum BroadcastTo {
    /// The nodes of the caller's running job, or of some components of a heterogeneous job.
    #[n(0)]
    Job {
        /// Ids of the job or components; at least one.
        #[n(0)]
        jobs: Vec<JobId>,
        /// If set, only the nodes of this step.
        #[n(1)]
        step: Option<StepNo>,
    },
    /// Nodes given as a host list; empty: all connected ones. For operators.
    #[n(1)]
    Nodes(#[n(0)] String),
}

/// Where and how nodes write a file. See `Placement`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PlaceAt {
    /// Absolute path.
    #[n(0)]
    pub path: ByteBuf,
    /// Permission bits of the file.
    #[n(1)]
    pub mode: u32,
    /// Modification time, seconds and nanoseconds. None: the time of writing.
    #[n(2)]
    pub modified: Option<(i64, u32)>,
    /// Whether to replace an existing file.
    #[n(3)]
    pub replace: bool,
    /// Whether the path is a folder, in which the file gets Slurm's name for the job's next step and the node:
    /// `slurm_bcast_JOB.STEP_NODE`.
    #[n(4)]
    pub per_step: bool,
}
