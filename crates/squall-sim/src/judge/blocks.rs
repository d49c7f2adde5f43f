//! Invariant of blocks: in those of a job with `--exclusive=topo` runs no other job.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::id::{JobId, NodeId};
use squall_model::set::NodeSet;
use squall_sched::topology::{Topology, TopologyKind};

use super::Judge;
use crate::world::client::Clients;

/// Blocks of nodes, and the jobs that run in them.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    network: Topology,
    held: BTreeMap<JobId, Held>,
}

/// A running job: whether it has its blocks alone, and the nodes that it has not released.
#[derive(Debug)]
struct Held {
    alone: bool,
    left: NodeSet,
}

impl Blocks {
    /// Creates the record of a network in which no job runs. Networks of other kinds have no blocks.
    pub(super) fn new(network: Topology) -> Self {
        let has_blocks = matches!(network.kind, TopologyKind::Block { .. });
        Self { network: if has_blocks { network } else { Topology::default() }, held: BTreeMap::new() }
    }
}

impl Judge {
    /// Records that a job starts on these nodes. Checks that neither it nor another in its blocks has them alone.
    pub(super) fn enter_blocks(&mut self, id: JobId, nodes: &NodeSet, clients: &Clients) {
        if self.blocks.network.is_flat() {
            return;
        }
        let order = self.submission_of(id).and_then(|(_, order)| clients.order(order));
        let alone = order.is_some_and(|order| order.options.exclusive_topo == Some(true));
        let own = self.blocks_of(nodes);
        let meets = |held: &Held| (alone || held.alone) && !own.is_disjoint(&self.blocks_of(&held.left));
        let other = self.blocks.held.iter().find(|(other, held)| **other != id && meets(held)).map(|(other, _)| *other);
        self.blocks.held.insert(id, Held { alone, left: nodes.clone() });
        if let Some(other) = other {
            self.violate("no job runs in the blocks of one that has them alone", format!("job {id} and job {other}"));
        }
    }

    /// Records that a job has released these nodes.
    pub(super) fn leave_blocks(&mut self, id: JobId, nodes: &NodeSet) {
        // because there are no blocks
        let Some(held) = self.blocks.held.get_mut(&id) else { return };
        held.left.subtract(nodes);
        if held.left.is_empty() {
            self.blocks.held.remove(&id);
        }
    }

    /// Records that a job goes on with these nodes alone.
    pub(super) fn keep_blocks(&mut self, id: JobId, nodes: &NodeSet) {
        if let Some(held) = self.blocks.held.get_mut(&id) {
            held.left = held.left.intersection(nodes);
        }
    }

    fn blocks_of(&self, nodes: &NodeSet) -> BTreeSet<usize> {
        let hosts = nodes.iter().filter_map(|node| Some(NodeId(self.host(node)? as u32)));
        hosts.filter_map(|host| Some(self.blocks.network.place(host)?.0)).collect()
    }
}
