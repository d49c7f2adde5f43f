//! Events by which nodes become members of the cluster or leave it.

use squall_model::config::{Config, NodeConfig, NodeStart, PartitionConfig};
use squall_model::hostlist;
use squall_model::id::NodeId;
use squall_model::set::NodeSet;
use squall_model::time::Time;

use crate::control::state::State;
use crate::control::state::node::{Node, Partition};
use crate::invariant::invariant;

impl State {
    /// Removes the nodes that only the configuration `before` has described, and takes back those that the present one
    /// names.
    pub(super) fn members_configured(&mut self, time: Time, before: &Config) {
        let described = self.described_by(&self.config);
        let named = self.named_by(&self.config);
        let mut left = self.described_by(before);
        left.subtract(&named);
        for id in named.iter() {
            self.take_back(id);
        }
        for id in described.iter() {
            self.nodes[id.index()].made = None;
        }
        let made = |id: &NodeId| self.nodes[id.index()].made.is_some();
        let left = left.iter().filter(|id| !made(id)).collect();
        self.remove(time, &left);
    }

    pub(super) fn nodes_removed(&mut self, time: Time, nodes: &NodeSet) {
        self.remove(time, nodes);
        self.regroup(time);
    }

    pub(super) fn nodes_created(&mut self, time: Time, made: &NodeConfig) {
        for name in hostlist::expand(&made.name).unwrap_or_default() {
            let id = match self.ever_id(&name) {
                Some(id) => id,
                None => self.add_node(&name),
            };
            self.take_back(id);
            self.nodes[id.index()].made = Some(Box::new(NodeConfig { name, ..made.clone() }));
            self.describe(id);
        }
        self.put_clouds_to_sleep(time);
        self.count_gres();
        self.order_nodes();
        self.regroup(time);
    }

    /// Makes the partitions again after nodes have become members or left.
    pub(super) fn regroup(&mut self, time: Time) {
        self.settle_ledger(time);
        let outside = self.outside();
        let again = |partition: &Partition| self.partition_from(&partition.config, &outside);
        self.partitions = self.partitions.iter().map(again).collect();
        self.recount(time);
    }

    /// Removes nodes, from reservations as well.
    fn remove(&mut self, time: Time, nodes: &NodeSet) {
        for id in nodes.iter() {
            if let Some(node) = self.nodes.get_mut(id.index()) {
                node.removed.get_or_insert(time);
                node.reboot = None;
                node.made = None;
            }
        }
        for reservation in self.reservations.values_mut() {
            reservation.nodes.subtract(nodes);
        }
    }

    /// Makes a removed node a member again. Nothing is kept of one that is gone, unless it has not noticed yet.
    fn take_back(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id.index()) else { return invariant!("a node that has a name is counted") };
        let was_gone = node.is_gone() && !node.up;
        node.removed = None;
        if was_gone {
            *node = Node { name: std::mem::take(&mut node.name), ..Node::default() };
            self.node_changes.remove(&id);
            self.count_faults();
        }
    }

    /// Marks the nodes that had left the configuration when a snapshot without such marks was written: those that a
    /// partition of all nodes lacks.
    pub(in crate::control::state) fn note_removed(&mut self) {
        // because a cluster may have no partition of all nodes
        let Some(whole) = self.partitions.iter().find(|partition| partition.config.has_all_nodes()) else { return };
        let outside = self.outside();
        let left = |id: &NodeId| !whole.nodes.contains(*id) && !outside.contains(*id);
        let left: Vec<NodeId> = (0..self.nodes.len() as u32).map(NodeId).filter(left).collect();
        for id in left {
            self.nodes[id.index()].removed = Some(Time(0));
        }
    }

    /// Returns whether a node may join some day and has not done so.
    pub(crate) fn is_future(&self, id: NodeId) -> bool {
        let waits = self.node(id).is_some_and(|node| node.incarnation.is_none());
        waits && self.entry(id).is_some_and(|entry| entry.state == NodeStart::Future)
    }

    /// Returns the nodes that may join some day and have not done so.
    pub(crate) fn futures(&self) -> NodeSet {
        let entries = self.config.nodes.iter().filter(|entry| entry.state == NodeStart::Future);
        let names = entries.flat_map(|entry| hostlist::expand(&entry.name).unwrap_or_default());
        let configured = names.filter_map(|name| self.ever_id(&name));
        let made = (0..).map(NodeId).zip(&self.nodes).filter(|(_, node)| node.made.is_some()).map(|(id, _)| id);
        configured.chain(made).filter(|id| self.is_future(*id)).collect()
    }

    /// Returns the nodes that belong to no partition: removed ones, and those that have yet to join.
    pub(super) fn outside(&self) -> NodeSet {
        let removed = (0..).map(NodeId).zip(&self.nodes).filter(|(_, node)| node.removed.is_some());
        let mut outside: NodeSet = removed.map(|(id, _)| id).collect();
        outside.union_with(&self.futures());
        outside
    }

    /// Returns the nodes that a configuration describes.
    fn described_by(&self, config: &Config) -> NodeSet {
        let names = config.nodes.iter().flat_map(|entry| hostlist::expand(&entry.name).unwrap_or_default());
        names.filter_map(|name| self.ever_id(&name)).collect()
    }

    /// Returns the nodes that a configuration describes, or names in a partition.
    fn named_by(&self, config: &Config) -> NodeSet {
        let lists = config.partitions.iter().map(PartitionConfig::named_nodes);
        let names = lists.flat_map(|list| hostlist::expand(list).unwrap_or_default());
        let mut named = self.described_by(config);
        named.union_with(&names.filter_map(|name| self.ever_id(&name)).collect());
        named
    }
}

/// Returns whether a configuration describes a node, or names it in a partition.
pub(crate) fn names_it(config: &Config, name: &str) -> bool {
    let mut partitions = config.partitions.iter().map(PartitionConfig::named_nodes);
    let mut entries = config.nodes.iter();
    entries.any(|entry| hostlist::contains(&entry.name, name)) || partitions.any(|list| hostlist::contains(list, name))
}
