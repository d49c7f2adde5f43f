//! Nodes that running jobs have lost, as long as they run.

use squall_model::cost::{Loss, LostTime};

/// Losses of a running job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Losing {
    /// Nodes that it has lost.
    pub(crate) all: Vec<Loss>,
    /// The time lost that is counted.
    pub(crate) counted: LostTime,
}
