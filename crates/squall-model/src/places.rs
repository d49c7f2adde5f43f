//! Places of a job's nodes: what happens when a node fails, spare nodes, and nodes that took the places of failed ones.
//!
//! The place of a node is its position in the order of the job's nodes, from which ranks, `SLURM_NODEID` and
//! `SLURM_JOB_NODELIST` follow. That order is the one of node ids, except that a replacement has the place of the node
//! that it replaced. Example: a job on n1, n2 and n3 loses n2 and gets n7; the order is then n1, n7, n3.

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::gres::Count;
use crate::hostlist::HostList;
use crate::id::NodeId;
use crate::set::NodeSet;
use crate::time::Time;

/// What happens to a running job when one of its nodes fails (`--on-node-fail`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "lowercase")]
pub enum OnNodeFail {
    /// The job ends with the state NODE_FAIL.
    #[n(0)]
    End,
    /// The job is requeued if it may be, and ends otherwise.
    #[n(1)]
    Requeue,
    /// The job goes on, and another node takes the place of the failed one.
    #[n(2)]
    Replace,
    /// The job goes on with its other nodes, as with `--no-kill`.
    #[n(3)]
    Shrink,
}

impl OnNodeFail {
    /// All values with their words.
    pub const ALL: [(Self, &str); 4] =
        [(Self::End, "end"), (Self::Requeue, "requeue"), (Self::Replace, "replace"), (Self::Shrink, "shrink")];

    /// Reads a word, such as `replace`. None: unknown.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, word)| word.eq_ignore_ascii_case(text)).map(|(value, _)| value)
    }
    /// Returns the word: `replace`.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(value, _)| *value == self).map_or("", |(_, word)| word)
    }
}

/// A node that took the place of a failed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Replacement {
    /// The node that the job had in this place at its start.
    #[n(0)]
    pub place: NodeId,
    /// The node that has the place now.
    #[n(1)]
    pub node: NodeId,
}

/// A place of a failed node that no other node has taken yet, with what the job held there.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Vacancy {
    /// The node that the job had in this place at its start.
    #[n(0)]
    pub place: NodeId,
    /// The node that failed.
    #[n(1)]
    pub lost: NodeId,
    /// Number of CPUs that the job held there.
    #[n(2)]
    pub cpus: u32,
    /// Memory that the job held there, MiB; 0: no limit.
    #[n(3)]
    pub memory_mb: u64,
    /// Generic resources that the job held there.
    #[n(4)]
    #[cbor(default)]
    pub gres: Vec<Count>,
    /// Since when the place is vacant.
    #[n(5)]
    #[cbor(default)]
    pub since: Time,
}

/// Spare nodes of a running job, and what became of the places of its failed nodes. Most jobs have neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Places {
    /// Nodes of the allocation that idle until they replace a failed one (`--spare-nodes`).
    #[n(0)]
    pub spares: NodeSet,
    /// Nodes that have taken the places of failed ones.
    #[n(1)]
    pub replaced: Vec<Replacement>,
    /// Places of failed nodes that wait for a node.
    #[n(2)]
    pub vacant: Vec<Vacancy>,
}

impl Places {
    /// Returns the place of a node: the node's own, or the one that it took.
    pub fn place_of(&self, node: NodeId) -> NodeId {
        self.replaced.iter().find(|one| one.node == node).map_or(node, |one| one.place)
    }

    /// Returns the nodes of an allocation without its spares, in the order of their places.
    pub fn in_order(&self, nodes: &NodeSet) -> Vec<NodeId> {
        let mut order: Vec<NodeId> = nodes.iter().filter(|node| !self.spares.contains(*node)).collect();
        if !self.replaced.is_empty() {
            order.sort_by_key(|node| self.place_of(*node));
        }
        order
    }
}

/// The nodes of a job that has spare nodes, or that has replaced failed ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Changed {
    /// Ids of the allocation's nodes, in the order of their places. Empty: in the order of ids.
    #[n(0)]
    pub order: Vec<NodeId>,
    /// Names of the spare nodes.
    #[n(1)]
    pub spares: HostList,
}

#[cfg(test)]
mod tests {
    use super::{OnNodeFail, Places, Replacement};
    use crate::id::NodeId;

    #[test]
    fn a_replacement_stands_where_the_failed_node_stood_and_spares_stand_nowhere() {
        let nodes = [0, 2, 6, 8].into_iter().map(NodeId).collect();
        let replaced = vec![Replacement { place: NodeId(1), node: NodeId(6) }];
        let places = Places { spares: [NodeId(8)].into_iter().collect(), replaced, vacant: Vec::new() };
        assert_eq!(places.in_order(&nodes), [0, 6, 2].map(NodeId));
        assert_eq!(Places::default().in_order(&nodes), [0, 2, 6, 8].map(NodeId));
    }

    #[test]
    fn words_are_read_back() {
        for (value, word) in OnNodeFail::ALL {
            assert_eq!(OnNodeFail::parse(&word.to_uppercase()), Some(value));
            assert_eq!(value.name(), word);
        }
        assert_eq!(OnNodeFail::parse("replaced"), None);
    }
}
