//! Invariant of a torus: no two jobs that need links of their own share one. Checked by routing every message that
//! they could send, not by the rule that placed them.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::id::{JobId, NodeId};
use squall_model::set::NodeSet;
use squall_sched::topology::{Topology, Wish};
use squall_sched::torus::Link;

use super::Judge;
use crate::world::client::Clients;

/// Network of a torus, and the links that running jobs use.
#[derive(Debug, Default)]
pub(super) struct Wires {
    network: Topology,
    held: BTreeMap<JobId, HeldLinks>,
}

/// Nodes and links that a running job uses.
#[derive(Debug)]
struct HeldLinks {
    left: NodeSet,
    links: BTreeSet<Link>,
}

impl Wires {
    /// Creates the record of a network of which no job uses a link.
    pub(super) fn new(network: Topology) -> Self {
        Self { network, held: BTreeMap::new() }
    }
}

impl Judge {
    /// Records that a job starts on these nodes. Checks that it shares no link with another job, if both need links of
    /// their own, and no block, if one has it alone.
    pub(super) fn wire(&mut self, id: JobId, nodes: &NodeSet, clients: &Clients) {
        self.enter_blocks(id, nodes, clients);
        if self.wires.network.is_flat() {
            return;
        }
        let order = self.submission_of(id).and_then(|(_, order)| clients.order(order));
        let wish = order.and_then(|order| Wish::of(&order.options.network).ok()).unwrap_or_default();
        if !wish.is_sensitive(nodes.len() as u32) {
            return;
        }
        let hosts: Vec<NodeId> = nodes.iter().filter_map(|node| Some(NodeId(self.host(node)? as u32))).collect();
        let pairs = hosts.iter().flat_map(|from| hosts.iter().map(move |to| (*from, *to)));
        let network = &self.wires.network;
        let links: BTreeSet<Link> = pairs.flat_map(|(from, to)| network.links(from, to).unwrap_or_default()).collect();
        let shares =
            self.wires.held.iter().find(|(_, other)| !other.links.is_disjoint(&links)).map(|(other, _)| *other);
        self.wires.held.insert(id, HeldLinks { left: nodes.clone(), links });
        if let Some(other) = shares {
            self.violate("no link is shared by jobs that need their own", format!("job {id} and job {other}"));
        }
    }

    /// Records that a job has released these nodes.
    pub(super) fn unwire(&mut self, id: JobId, nodes: &NodeSet) {
        self.leave_blocks(id, nodes);
        let Some(held) = self.wires.held.get_mut(&id) else { return };
        held.left.subtract(nodes);
        if held.left.is_empty() {
            self.wires.held.remove(&id);
        }
    }
}
