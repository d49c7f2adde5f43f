//! Gang scheduling: what is known beside the matrix, which is in the state.

use squall_model::set::NodeSet;
use squall_model::time::Time;

/// Soft state.
#[derive(Debug, Default)]
pub(crate) struct Gang {
    /// The matrix may look otherwise now.
    pub(crate) changed: bool,
    /// Nodes with jobs that share.
    pub(crate) nodes: NodeSet,
    /// Nodes that have to be told the time now.
    pub(crate) news: NodeSet,
    pub(crate) next_strobe: Option<Time>,
    pub(crate) next_skew: Option<Time>,
    /// What is asked next, microseconds.
    pub(crate) skew_asked_us: u64,
}
