//! The SLURM_* variables of jobs, steps and tasks, as a pure function of what is known of them.
