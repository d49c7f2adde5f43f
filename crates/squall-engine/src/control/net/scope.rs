//! The controller's children of other machines, and what each may speak of (`fabric::scope`).

use squall_model::config::Config;
use squall_model::set::NodeSet;
use squall_model::wire::fabric::UpFrame;

use crate::control::state::State;
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

    /// Leaves of the child's frame what it may say.
    pub(crate) fn confine(&mut self, state: &State, frame: &mut UpFrame) {
        self.look_up(state);
        self.scope.confine(frame, &self.ids);
    }

    fn look_up(&mut self, state: &State) {
        // Nodes are added and never taken away.
        if self.of_nodes != state.nodes.len() {
            self.of_nodes = state.nodes.len();
            self.ids = self.scope.names().filter_map(|name| state.node_id(name)).collect();
        }
    }
}
