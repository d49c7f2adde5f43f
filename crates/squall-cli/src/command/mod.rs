//! The commands, one file (or folder) each.

pub(crate) mod allocation;
pub(crate) mod bench;
pub(crate) mod daemons;
pub(crate) mod down;
pub(crate) mod links;
pub(crate) mod listing;
pub(crate) mod sacct;
pub(crate) mod salloc;
pub(crate) mod sbatch;
pub(crate) mod scancel;
pub(crate) mod scontrol;
pub(crate) mod sdiag;
pub(crate) mod sim;
pub(crate) mod sinfo;
pub(crate) mod squeue;
pub(crate) mod srun;
pub(crate) mod step;
pub(crate) mod submission;
pub(crate) mod up;
