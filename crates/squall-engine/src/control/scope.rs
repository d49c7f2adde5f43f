//! What a child of another machine may speak of: itself, and the nodes below it in the tree. Its key proves its name and
//! nothing else, so what it says of others is not heard: who has taken over a machine has not taken over the cluster.

use std::collections::BTreeSet;

use squall_model::config::Config;
use squall_model::hostlist;
use squall_model::set::NodeSet;
use squall_model::wire::fabric::{Composite, Tally, UpFrame, Upward};

use super::state::State;
use super::{Controller, LinkId};
use crate::fabric::shape::Tree;

/// The nodes of which a child may speak.
#[derive(Debug)]
pub(crate) struct Scope {
    own: String,
    names: BTreeSet<String>,
    ids: NodeSet,
    /// How many nodes there were when `ids` was made.
    of_nodes: usize,
}

impl Scope {
    /// Of the child that is the node of that name.
    pub(crate) fn new(config: &Config, own: String) -> Self {
        let all: Vec<String> =
            config.nodes.iter().flat_map(|entry| hostlist::expand(&entry.name).unwrap_or_default()).collect();
        let tree = Tree::new(config, &all);
        let below = all.iter().filter(|name| tree.above(name).contains(&own)).cloned();
        let names = below.chain([own.clone()]).collect();
        Self { own, names, ids: NodeSet::new(), of_nodes: 0 }
    }

    fn look_up(&mut self, state: &State) {
        // Nodes are added and never taken away.
        if self.of_nodes != state.nodes.len() {
            self.of_nodes = state.nodes.len();
            self.names.iter().filter_map(|name| state.node_id(name)).for_each(|id| {
                self.ids.insert(id);
            });
        }
    }

    fn confine(&self, composite: &mut Composite) {
        composite.lost.retain(|node, _| self.ids.contains(*node));
        for ends in composite.ended.values_mut() {
            ends.retain_mut(|(nodes, _)| {
                nodes.intersect_with(&self.ids);
                !nodes.is_empty()
            });
        }
        composite.failed.retain(|(node, _)| self.ids.contains(*node));
        composite.gone.retain(|_, nodes| {
            nodes.intersect_with(&self.ids);
            !nodes.is_empty()
        });
        composite.knocks.retain(|(route, name)| self.names.contains(name) && route.is_empty() == (*name == self.own));
        composite.registrations.retain(|said| self.names.contains(&said.name));
    }

    fn confine_answers(&self, tally: &mut Tally) {
        tally.yes.intersect_with(&self.ids);
        tally.no.intersect_with(&self.ids);
        tally.witness = tally.witness.filter(|(node, _)| self.ids.contains(*node));
        tally.health.retain(|(node, _)| self.ids.contains(*node));
    }
}

/// Leaves of a child's frame what it may say.
pub(crate) fn confine(c: &mut Controller, link: LinkId, frame: &mut UpFrame) {
    let Some(scope) = c.links.scope(link) else { return };
    scope.look_up(&c.state);
    for say in &mut frame.says {
        match say {
            Upward::Composite { composite, .. } => scope.confine(composite),
            Upward::Tally { tally, .. } => scope.confine_answers(tally),
            Upward::Chunk(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use squall_model::config::{Config, NodeConfig};

    use super::Scope;

    #[test]
    fn a_child_speaks_for_itself_and_those_below_it() {
        let nodes = vec![NodeConfig { name: "n[1-6]".into(), ..NodeConfig::default() }];
        let config = Config { nodes, tree_width: 2, ..Config::default() };
        // n1 heads n2 n3, n4 heads n5 n6.
        let of = |name: &str| Scope::new(&config, name.into()).names.into_iter().collect::<Vec<_>>();
        assert_eq!(of("n1"), ["n1", "n2", "n3"]);
        assert_eq!(of("n5"), ["n5"]);
        assert_eq!(of("stranger"), ["stranger"]);
    }
}
