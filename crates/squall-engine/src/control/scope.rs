//! The controller's children of other machines, and what each may speak of (`fabric::scope`).

use squall_model::config::Config;
use squall_model::set::NodeSet;
use squall_model::wire::fabric::UpFrame;

use super::state::State;
use super::{Controller, LinkId};
use crate::fabric::scope::Scope;

/// A child that is known by its key.
#[derive(Debug)]
pub(crate) struct Keyed {
    scope: Scope,
    ids: NodeSet,
    /// How many nodes there were when `ids` was made.
    of_nodes: usize,
}

impl Keyed {
    /// The node of that name.
    pub(crate) fn new(config: &Config, name: String) -> Self {
        Self { scope: Scope::new(config, name), ids: NodeSet::new(), of_nodes: 0 }
    }

    fn look_up(&mut self, state: &State) {
        // Nodes are added and never taken away.
        if self.of_nodes != state.nodes.len() {
            self.of_nodes = state.nodes.len();
            self.ids = self.scope.names().filter_map(|name| state.node_id(name)).collect();
        }
    }
}

/// Leaves of a child's frame what it may say.
pub(crate) fn confine(c: &mut Controller, link: LinkId, frame: &mut UpFrame) {
    if let Some(keyed) = c.links.keyed(link) {
        keyed.look_up(&c.state);
        keyed.scope.confine(frame, &keyed.ids);
    }
}
