//! sbatch, srun and salloc against a played controller and played step daemons.

mod missing;
mod played;
mod salloc;
mod sbatch;
mod srun;
