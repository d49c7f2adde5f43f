//! sbatch, srun and salloc against a played controller and played step daemons.
#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod missing;
mod played;
mod salloc;
mod sbatch;
mod srun;
