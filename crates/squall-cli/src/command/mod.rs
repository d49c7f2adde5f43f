//! The commands, one file (or folder) each.

pub(crate) mod bench;
pub(crate) mod listing;
pub(crate) mod sbatch;
pub(crate) mod sim;
pub(crate) mod sinfo;
pub(crate) mod squeue;
pub(crate) mod submission;
