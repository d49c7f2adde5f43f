//! Nodes that running jobs have lost, as long as they run.

use squall_model::cost::{Loss, LostTime};
use squall_model::id::NodeId;
use squall_model::time::Time;

/// Losses of a running job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Losing {
    /// Nodes that it has lost.
    pub(crate) nodes: Vec<NodeId>,
    /// The losses of these, in their order.
    pub(crate) all: Vec<Loss>,
    /// The time lost that is counted.
    pub(crate) counted: LostTime,
}

impl Losing {
    /// Returns whether the loss of a node is recorded, and with it all work since `kept`: several steps may tell of it.
    pub(crate) fn tells(&self, node: NodeId, kept: Time) -> bool {
        let mut all = self.nodes.iter().zip(&self.all);
        all.any(|(lost, loss)| *lost == node && loss.again.or(loss.replaced).is_none() && loss.kept <= kept)
    }
}
