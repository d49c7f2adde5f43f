//! Soft state of gang scheduling. The matrix of jobs and time slices itself is in the state.

use squall_model::set::NodeSet;
use squall_model::time::Time;

/// Soft state of gang scheduling.
#[derive(Debug, Default)]
pub(crate) struct Gang {
    /// Whether the gang scheduling matrix must be packed again because jobs or nodes have changed.
    pub(crate) changed: bool,
    /// Nodes with jobs that share cores in time slices.
    pub(crate) nodes: NodeSet,
    /// Nodes to which the time signal (strobe) is sent in this turn.
    pub(crate) news: NodeSet,
    /// When the next time signal (strobe) is sent to all nodes of `nodes`; None: no jobs share cores.
    pub(crate) next_strobe: Option<Time>,
    /// When nodes are next asked for their clock skew; None: no jobs share cores.
    pub(crate) next_skew: Option<Time>,
    /// Clock skew that the next query to nodes tests, microseconds.
    pub(crate) skew_asked_us: u64,
}
