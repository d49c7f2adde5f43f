//! Soft state of gang scheduling. The matrix itself is in the state.

use squall_model::set::NodeSet;
use squall_model::time::Time;

/// Soft state of gang scheduling.
#[derive(Debug, Default)]
pub(crate) struct Gang {
    /// Whether the matrix may have to change.
    pub(crate) changed: bool,
    /// Nodes with jobs that share cores.
    pub(crate) nodes: NodeSet,
    /// Nodes that have to be sent the time now.
    pub(crate) news: NodeSet,
    pub(crate) next_strobe: Option<Time>,
    pub(crate) next_skew: Option<Time>,
    /// Clock skew that the next question to nodes tests, microseconds.
    pub(crate) skew_asked_us: u64,
}
