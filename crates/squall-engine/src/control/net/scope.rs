//! The controller's children on other machines, and what each may report about (`fabric::scope`).

use squall_model::config::Config;
use squall_model::set::NodeSet;
use squall_model::wire::fabric::UpFrame;

use crate::control::state::State;
use crate::fabric::scope::Scope;

/// A child on another machine that has proved its node's name by a key, with the nodes that it may report about.
#[derive(Debug)]
pub(crate) struct Keyed {
    scope: Scope,
    ids: NodeSet,
    /// Number of nodes in the state when `ids` was calculated; with more nodes it is calculated again.
    of_nodes: usize,
}

impl Keyed {
    /// Determines what the node of this name may report about, from the configuration.
    pub(crate) fn new(config: &Config, name: String) -> Self {
        Self { scope: Scope::new(config, name), ids: NodeSet::new(), of_nodes: 0 }
    }

    /// Returns whether the child is the node of this name.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.scope.own() == name
    }

    /// Removes from a child's frame everything that it may not report.
    pub(crate) fn confine(&mut self, state: &State, frame: &mut UpFrame) {
        self.look_up(state);
        self.scope.confine(frame, &self.ids);
    }

    fn look_up(&mut self, state: &State) {
        // Ids are added and stay those of their names.
        if self.of_nodes != state.nodes.len() {
            self.of_nodes = state.nodes.len();
            self.ids = self.scope.names().filter_map(|name| state.ever_id(name)).collect();
        }
    }
}
