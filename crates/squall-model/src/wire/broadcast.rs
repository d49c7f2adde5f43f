//! Requests of `sbcast` and `srun --bcast`, which send a file to many nodes.

use crate::encoding::ByteBuf;
use minicbor::{Decode, Encode};

use crate::id::{JobId, StepNo};
use crate::job::Digest;

/// Request to send a file to nodes.
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
    /// Whether nodes that share a disk store only one copy of the file.
    #[n(3)]
    pub shared: bool,
    /// Path and attributes of the file that nodes write. None: the file is only put into the nodes' caches.
    #[n(4)]
    pub place: Option<PlaceAt>,
    /// Time limit of the transfer, milliseconds. None: no limit as long as there is progress.
    #[n(5)]
    pub time_ms: Option<u64>,
    /// Name by which the client recognizes the unchanged file: the file's content can't have changed while its name is
    /// the same. The controller stores the name with the file's digest, so that the client needn't read the file again.
    /// None: the file has no such name.
    #[n(6)]
    pub known_as: Option<Digest>,
}

/// Which nodes get a file.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum BroadcastTo {
    /// The nodes of the caller's running job, or of some components of a heterogeneous job.
    #[n(0)]
    Job {
        /// Ids of the job or components; at least one.
        #[n(0)]
        jobs: Vec<JobId>,
        /// The file goes to the nodes of this step. None: to all nodes of the jobs.
        #[n(1)]
        step: Option<StepNo>,
    },
    /// Nodes, as a host list; empty: all connected nodes. Only operators may choose nodes in this way.
    #[n(1)]
    Nodes(#[n(0)] String),
}

/// Path and attributes of a file that nodes write, as the client requests them. The controller turns this into a
/// `Placement`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PlaceAt {
    /// Absolute path of the file, or of its folder if `per_step` is set.
    #[n(0)]
    pub path: ByteBuf,
    /// Permission bits of the file.
    #[n(1)]
    pub mode: u32,
    /// Modification time, seconds and nanoseconds. None: the time of writing.
    #[n(2)]
    pub modified: Option<(i64, u32)>,
    /// Whether to replace a file that exists at this path.
    #[n(3)]
    pub replace: bool,
    /// Whether `path` is a folder. The file in it is then named like Slurm's, after the job's next step and the node:
    /// `slurm_bcast_JOB.STEP_NODE`.
    #[n(4)]
    pub per_step: bool,
}
