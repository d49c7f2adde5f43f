//! Which nodes a partition has.

use super::PartitionConfig;

impl PartitionConfig {
    /// Value of `nodes` of a partition without nodes.
    pub const NO_NODES: &'static str = "NONE";

    /// Returns whether every node of the cluster belongs to the partition.
    pub fn has_all_nodes(&self) -> bool {
        self.nodes.is_empty() || self.nodes.eq_ignore_ascii_case("ALL")
    }

    /// Returns the host list of the partition's nodes. Empty: it names none, because it has all or no nodes.
    pub fn named_nodes(&self) -> &str {
        if self.has_all_nodes() || self.nodes.eq_ignore_ascii_case(Self::NO_NODES) { "" } else { &self.nodes }
    }
}
