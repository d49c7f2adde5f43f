//! What a site says of all steps.

use minicbor::{Decode, Encode};

/// What the cluster's configuration says of steps whose `srun` does not say itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct StepDefaults {
    /// `kill_on_bad_exit`: the step ends when a task fails.
    #[n(0)]
    pub kill_on_bad_exit: bool,
    /// `wait_time_s`: seconds from the end of the first task until the others are killed; 0: no limit.
    #[n(1)]
    pub wait_s: u64,
}
