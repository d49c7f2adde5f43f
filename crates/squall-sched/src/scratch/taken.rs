//! Cores and memory in use on those nodes where a plan has changed it.

use squall_model::id::NodeId;
use squall_model::set::CoreSet;

use crate::view::NodeView;

/// What is in use by node: found by number, for passes ask it of each node that they look at.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Where a node stands in the list, counted from 1; 0: nowhere.
    places: Vec<u32>,
    list: List,
}

/// What is in use on some nodes: cores and MiB of memory.
pub(crate) type List = Vec<(NodeId, (CoreSet, u64))>;

impl Taken {
    /// What is in use on a node, if the plan has changed it.
    pub(crate) fn get(&self, id: NodeId) -> Option<&(CoreSet, u64)> {
        match self.places.get(id.index()) {
            None | Some(0) => None,
            Some(place) => self.list.get(*place as usize - 1).map(|(_, taken)| taken),
        }
    }
    /// The same, to be changed: as the node has it until then.
    pub(crate) fn of(&mut self, id: NodeId, node: &NodeView<'_>) -> &mut (CoreSet, u64) {
        if self.get(id).is_none() {
            self.set(id, (node.cores.clone(), node.memory_mb));
        }
        &mut self.list[self.places[id.index()] as usize - 1].1
    }
    /// From now on that is in use on a node of which nothing was known.
    pub(crate) fn set(&mut self, id: NodeId, taken: (CoreSet, u64)) {
        if self.places.len() <= id.index() {
            self.places.resize(id.index() + 1, 0);
        }
        self.list.push((id, taken));
        self.places[id.index()] = self.list.len() as u32;
    }
    /// Nothing is known of any node.
    pub(crate) fn clear(&mut self) {
        for (id, _) in self.list.drain(..) {
            self.places[id.index()] = 0;
        }
    }
    /// What is known: for a way back.
    pub(crate) fn saved(&self) -> List {
        self.list.clone()
    }
    /// Exactly that is known again.
    pub(crate) fn restore(&mut self, list: List) {
        self.clear();
        for (id, taken) in list {
            self.set(id, taken);
        }
    }
}
