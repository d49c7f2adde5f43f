//! Usage of cores and memory on nodes where a plan has changed it.

use squall_model::id::NodeId;
use squall_model::set::CoreSet;

use crate::view::NodeView;

/// Usage of the nodes where a plan has changed it. Access by node number is fast, because passes ask for each node
/// that they examine.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// By node number: position of the node's entry in the list, counted from 1; 0: no entry.
    places: Vec<u32>,
    list: List,
}

/// Usage of some nodes: cores, and memory in MiB.
pub(crate) type List = Vec<(NodeId, (CoreSet, u64))>;

impl Taken {
    /// Returns a node's usage; None: the plan has not changed it.
    pub(crate) fn get(&self, id: NodeId) -> Option<&(CoreSet, u64)> {
        match self.places.get(id.index()) {
            None | Some(0) => None,
            Some(place) => self.list.get(*place as usize - 1).map(|(_, taken)| taken),
        }
    }
    /// Returns a node's usage, to be changed. A new entry starts with the usage by running jobs.
    pub(crate) fn of(&mut self, id: NodeId, node: &NodeView<'_>) -> &mut (CoreSet, u64) {
        if self.get(id).is_none() {
            self.set(id, (node.cores.clone(), node.memory_mb));
        }
        &mut self.list[self.places[id.index()] as usize - 1].1
    }
    /// Sets the usage of a node that has no entry yet.
    pub(crate) fn set(&mut self, id: NodeId, taken: (CoreSet, u64)) {
        if self.places.len() <= id.index() {
            self.places.resize(id.index() + 1, 0);
        }
        self.list.push((id, taken));
        self.places[id.index()] = self.list.len() as u32;
    }
    /// Removes the entries of all nodes.
    pub(crate) fn clear(&mut self) {
        for (id, _) in self.list.drain(..) {
            self.places[id.index()] = 0;
        }
    }
    /// Returns a copy of all entries, for `restore`.
    pub(crate) fn saved(&self) -> List {
        self.list.clone()
    }
    /// Replaces all entries by saved ones.
    pub(crate) fn restore(&mut self, list: List) {
        self.clear();
        for (id, taken) in list {
            self.set(id, taken);
        }
    }
}
