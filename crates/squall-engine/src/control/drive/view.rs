//! What the scheduling policy sees of state and queue.

use squall_model::id::NodeId;
use squall_model::policy::Limit;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_sched::topology::Topology;
use squall_sched::{Candidate, Gate, Item, NodeView, PartitionView, View};

use super::queue::{Queue, pending};
use crate::control::limits;
use crate::control::state::State;

/// State and queue, borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a> {
    /// The journaled state.
    pub(crate) state: &'a State,
    /// The queue.
    pub(crate) queue: &'a Queue,
    /// The present.
    pub(crate) now: Time,
}

impl View for Sight<'_> {
    fn partition_count(&self) -> usize {
        self.state.partitions.len()
    }
    fn partition(&self, at: usize) -> PartitionView<'_> {
        let partition = &self.state.partitions[at];
        PartitionView {
            nodes: &partition.nodes,
            tier: partition.config.priority_tier,
            nodes_min: partition.config.min_nodes.max(1),
            nodes_max: partition.config.max_nodes,
            time_max_s: partition.config.max_time_s,
            starts: partition.starts_jobs(),
        }
    }
    fn queue(&self, partition: usize) -> impl Iterator<Item = Candidate<'_>> {
        self.queue.ready(partition).filter_map(|item| {
            let pending = pending(self.state, item)?;
            Some(Candidate {
                item,
                priority: pending.priority(),
                need: &pending.spec.need,
                time_limit_s: pending.standing.time_limit_s.or(pending.spec.limit_s()),
                wish: self.queue.wish(self.state, &pending),
                copies: pending.copies(self.state),
                group: pending.group(self.state),
                avoid: if item.array { None } else { self.queue.avoid.get(&item.id) },
            })
        })
    }
    fn node(&self, id: NodeId) -> NodeView<'_> {
        // Ids come from partitions, which name nodes that exist.
        let node = &self.state.nodes[id.index()];
        NodeView { hardware: &node.hardware, cores: &node.cores, memory_mb: node.memory_mb, usable: node.usable() }
    }
    fn open(&self) -> &NodeSet {
        &self.queue.open
    }
    fn node_id(&self, name: &str) -> Option<NodeId> {
        self.state.node_id(name)
    }
    fn memory_per_cpu_mb(&self) -> u64 {
        self.state.config.def_mem_per_cpu_mb
    }
    fn topology(&self) -> Option<&Topology> {
        Some(&*self.state.index.topology).filter(|topology| !topology.is_flat())
    }
    fn closed(&self) -> &[NodeSet] {
        &self.queue.closed
    }
    fn licenses(&self, name: &str) -> u32 {
        let held = self.state.index.licenses.get(name).copied().unwrap_or_default();
        self.queue.licenses.get(name).map_or(0, |total| total.saturating_sub(held))
    }
    fn gates(&self, item: Item, partition: usize) -> Vec<Gate> {
        if self.state.policy.is_empty() {
            return Vec::new();
        }
        let (Some(pending), Some(partition)) = (pending(self.state, item), self.state.partitions.get(partition)) else {
            return Vec::new();
        };
        limits::gates(self.state, pending.owner, pending.spec, &partition.config.name)
    }
    fn room(&self, gate: Gate) -> Vec<(Limit, u64)> {
        limits::room(self.state, gate, self.now)
    }
}
