//! Limits of what a child on another machine may report: itself, and the nodes below it in the tree.
//!
//! The child's key proves its name and nothing else, so its reports about other nodes are dropped. An intruder on one
//! machine therefore can't control the cluster.

use std::collections::BTreeSet;

use squall_model::config::Config;
use squall_model::hostlist;
use squall_model::id::StepKey;
use squall_model::set::NodeSet;
use squall_model::wire::fabric::{Chunk, Composite, Letter, Tally, UpFrame, Upward};

use super::shape::Tree;

/// Names of the nodes that a child may report about.
#[derive(Clone, Debug)]
pub struct Scope {
    own: String,
    names: BTreeSet<String>,
}

impl Scope {
    /// Makes the scope of the child named `own`: itself, and the nodes below it in a healthy tree.
    pub fn new(config: &Config, own: String) -> Self {
        let all: Vec<String> =
            config.nodes.iter().flat_map(|entry| hostlist::expand(&entry.name).unwrap_or_default()).collect();
        let tree = Tree::new(config, &all);
        let below = all.iter().filter(|name| tree.above(name).contains(&own)).cloned();
        let names = below.chain([own.clone()]).collect();
        Self { own, names }
    }

    /// Returns the name of the child itself.
    pub(crate) fn own(&self) -> &str {
        &self.own
    }

    /// Returns the names of the nodes that the child may report about.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Removes from a frame what the child may not report. `ids`: ids of the nodes in scope that have one.
    ///
    /// Every struct of a frame is destructured field by field. So a struct with a new field does not compile until this
    /// function handles the field.
    pub fn confine(&self, frame: &mut UpFrame, ids: &NodeSet) {
        let UpFrame { hop: _, says } = frame;
        for say in says {
            match say {
                Upward::Composite { batch: _, composite } => self.confine_reports(composite, ids),
                Upward::Tally { epoch: _, number: _, tally } => confine_answers(tally, ids),
                Upward::Letter(letter) => {
                    // The sender does not limit the receivers of a letter, and a letter asks nothing of the
                    // controller.
                    let Letter { step, sender, to: _, message: _ } = &mut **letter;
                    if !ids.contains(*sender) {
                        // The sender's id is another node's: no step has this key, so no step daemon receives the
                        // letter.
                        *step = StepKey::default();
                    }
                }
                // A file is identified by its digest, no matter which node brings it.
                Upward::Chunk(Chunk { to: _, cascade: _, content: _, at: _, bytes: _ }) => {}
            }
        }
    }

    fn confine_reports(&self, composite: &mut Composite, ids: &NodeSet) {
        let Composite { lost, ended, failed, gone, knocks, registrations, newer, reports: _, waited_us: _, notes } =
            composite;
        lost.retain(|node, _| ids.contains(*node));
        for ends in ended.values_mut() {
            ends.retain_mut(|(nodes, _)| {
                nodes.intersect_with(ids);
                !nodes.is_empty()
            });
        }
        failed.retain(|(node, _)| ids.contains(*node));
        for notes in notes.iter_mut() {
            notes.retain(|(node, _)| ids.contains(*node));
        }
        gone.retain(|_, nodes| {
            nodes.intersect_with(ids);
            !nodes.is_empty()
        });
        knocks.retain(|(route, name)| self.names.contains(name) && route.is_empty() == (*name == self.own));
        registrations.retain(|said| self.names.contains(&said.name));
        newer.retain(|newer| self.names.contains(&newer.name));
    }
}

fn confine_answers(tally: &mut Tally, ids: &NodeSet) {
    // Usage is a sum without names.
    let Tally { yes, no, witness, health, used: _, series: _ } = tally;
    yes.intersect_with(ids);
    no.intersect_with(ids);
    *witness = witness.filter(|(node, _)| ids.contains(*node));
    health.retain(|(node, _)| ids.contains(*node));
}

#[cfg(test)]
mod tests {
    use squall_model::config::{Config, NodeConfig};
    use squall_model::id::{Attempt, JobId, NodeId, StepKey};
    use squall_model::job::JobAttempt;
    use squall_model::set::NodeSet;
    use squall_model::wire::fabric::{Composite, Letter, Tally, UpFrame, Upward};
    use squall_model::wire::peer::PeerMessage;
    use squall_model::wire::sealed::Sealed;

    use super::Scope;

    fn config() -> Config {
        // n1 heads n2 n3, n4 heads n5 n6.
        let nodes = vec![NodeConfig { name: "n[1-6]".into(), ..NodeConfig::default() }];
        Config { nodes, tree_width: 2, ..Config::default() }
    }

    #[test]
    fn a_child_speaks_for_itself_and_those_below_it() {
        let of = |name: &str| Scope::new(&config(), name.into()).names().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(of("n1"), ["n1", "n2", "n3"]);
        assert_eq!(of("n5"), ["n5"]);
        assert_eq!(of("stranger"), ["stranger"]);
    }

    #[test]
    fn cve_2022_29501_what_a_node_says_of_others_is_left_out() {
        let (job, both) = (JobAttempt { job: JobId(7), attempt: Attempt(1) }, [NodeId(4), NodeId(5)]);
        let mut composite = Composite { reports: 3, ..Composite::default() };
        composite.add_gone(job, &both.into_iter().collect());
        composite.lost.extend(both.map(|node| (node, 9)));
        composite.knocks =
            vec![(vec![], "n5".into()), (vec![], "n6".into()), (vec![1], "n6".into()), (vec![1], "n5".into())];
        let tally = Tally { yes: both.into_iter().collect(), witness: Some((NodeId(5), 1)), ..Tally::default() };
        let composite = Upward::Composite { batch: 1, composite: Box::new(composite) };
        let tally = Upward::Tally { epoch: squall_model::id::Epoch(1), number: 1, tally };
        let step = StepKey { job: JobId(7), ..StepKey::default() };
        let message = Sealed::new(PeerMessage::Ask { ticket: 1, rank: 0 });
        let letter =
            |sender| Upward::Letter(Box::new(Letter { step, sender, to: NodeId(1), message: message.clone() }));
        let mut frame = UpFrame { hop: 1, says: vec![composite, tally, letter(both[0]), letter(both[1])] };
        let own = NodeSet::one(NodeId(4));
        Scope::new(&config(), "n5".into()).confine(&mut frame, &own);
        let [Upward::Composite { composite, .. }, Upward::Tally { tally, .. }, letters @ ..] = &frame.says[..] else {
            panic!()
        };
        let heard = letters.iter().map(|say| matches!(say, Upward::Letter(letter) if letter.step == step));
        assert_eq!(heard.collect::<Vec<_>>(), [true, false]);
        assert_eq!(composite.gone.get(&job), Some(&own));
        assert_eq!(composite.lost.keys().collect::<Vec<_>>(), [&NodeId(4)]);
        assert_eq!(composite.knocks, [(vec![], "n5".to_owned())]);
        assert_eq!((&tally.yes, tally.witness), (&own, None));
    }
}
