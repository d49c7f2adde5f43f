//! What a simulation knows of nodes that were removed.

use std::collections::BTreeSet;

use squall_model::time::Time;

use crate::seed::Seed;

/// Removed nodes, as the operator knows them, and the keys that are revoked.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Randomness of an operator who removes and creates nodes. None: there is none.
    pub(crate) seed: Option<Seed>,
    /// When that operator stops.
    pub(crate) until: Time,
    /// Nodes of which the removal was requested and that were not created since.
    pub(crate) removed: BTreeSet<usize>,
    /// Nodes that were removed at any time.
    pub(crate) ever: BTreeSet<usize>,
    /// Nodes of which the removal or creation is under way.
    pub(crate) busy: BTreeSet<usize>,
    /// Nodes without a valid key.
    pub(crate) revoked: BTreeSet<usize>,
}
