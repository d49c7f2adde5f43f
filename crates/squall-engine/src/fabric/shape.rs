//! The shape of a healthy tree, in which every node daemon runs and is attached to its own parent.
//!
//! An ordered list is split into at most `width` parts of nearly equal length. The first node of each part is the
//! parent of the others, which are split again in the same way (as Slurm's `route/default` does). So every subtree is
//! a run of adjacent nodes, and sets of nodes stay short. With routing by topology, each switch has such a tree, and
//! the heads of these trees form a tree themselves.

use std::collections::BTreeMap;

use squall_model::config::{Config, RoutePolicy};
use squall_model::hostlist;

/// The tree of a configuration's nodes.
#[derive(Debug)]
pub struct Tree<'a> {
    width: usize,
    /// Runs of nodes, each with its own tree. With several runs, their heads form a tree themselves.
    runs: Vec<Vec<&'a str>>,
    /// For each node name: index of the node's run in `runs`, and its position in that run.
    places: BTreeMap<&'a str, (usize, usize)>,
}

impl<'a> Tree<'a> {
    /// Makes the healthy tree of the nodes `names`, which are in the order of the configuration.
    pub fn new(config: &Config, names: &'a [String]) -> Self {
        let runs = match config.route_plugin {
            RoutePolicy::FanOut => vec![names.iter().map(String::as_str).collect()],
            RoutePolicy::Topology => by_switch(config, names),
        };
        let mut places = BTreeMap::new();
        for (run, nodes) in runs.iter().enumerate() {
            places.extend(nodes.iter().enumerate().map(|(at, name)| (*name, (run, at))));
        }
        Self { width: config.tree_width as usize, runs, places }
    }

    /// Returns the names of the nodes above `name`, nearest first. Empty for a node without a parent, and for one
    /// that is not in the configuration: it is attached to the controller.
    pub fn above(&self, name: &str) -> Vec<String> {
        let Some(&(run, at)) = self.places.get(name) else { return Vec::new() };
        if self.runs.len() == 1 {
            return above(at, self.runs[run].len(), self.width).into_iter().map(|at| self.named(run, at)).collect();
        }
        let heads = above(run, self.runs.len(), self.width).into_iter().map(|run| self.named(run, 0));
        if at == 0 {
            return heads.collect();
        }
        let within = above(at - 1, self.runs[run].len() - 1, self.width).into_iter().map(|at| self.named(run, at + 1));
        within.chain([self.named(run, 0)]).chain(heads).collect()
    }

    fn named(&self, run: usize, at: usize) -> String {
        self.runs[run][at].to_owned()
    }
}

/// Groups nodes by switch, in the order of the switches; nodes without a switch come last. A node of two switches
/// belongs to the first.
fn by_switch<'a>(config: &Config, names: &'a [String]) -> Vec<Vec<&'a str>> {
    let mut switches: BTreeMap<String, usize> = BTreeMap::new();
    for (at, switch) in config.switches.iter().enumerate() {
        for name in hostlist::expand(&switch.nodes).unwrap_or_default() {
            switches.entry(name).or_insert(at);
        }
    }
    let mut runs = vec![Vec::new(); config.switches.len() + 1];
    for name in names {
        runs[switches.get(name).copied().unwrap_or(config.switches.len())].push(name.as_str());
    }
    runs.retain(|run| !run.is_empty());
    runs
}

/// Returns the positions of the nodes above position `at` in a tree of `count` nodes, nearest first. Empty: its parent
/// is the root.
pub fn above(at: usize, count: usize, width: usize) -> Vec<usize> {
    let width = width.max(2);
    let mut path = Vec::new();
    let (mut first, mut len) = (0, count);
    while at < first + len {
        // `first .. first + len` are the descendants of the last node on the path.
        let parts = width.min(len);
        let (short, longer) = (len / parts, len % parts);
        let within = at - first;
        let in_longer = (short + 1) * longer;
        let (start, length) = if within < in_longer {
            (within / (short + 1) * (short + 1), short + 1)
        } else {
            (in_longer + (within - in_longer) / short * short, short)
        };
        let head = first + start;
        if head == at {
            break;
        }
        path.push(head);
        (first, len) = (head + 1, length - 1);
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use squall_model::config::{Config, RoutePolicy, SwitchConfig};

    use super::{Tree, above};

    /// Returns the positions of the children of the node at position `at` (None: the root) in a tree of `count` nodes.
    fn children(at: Option<usize>, count: usize, width: usize) -> Vec<usize> {
        (0..count).filter(|&node| above(node, count, width).first().copied() == at).collect()
    }

    #[test]
    fn by_fan_out_the_order_is_the_configurations() {
        let names: Vec<String> = (0..7).map(|n| format!("n{n}")).collect();
        let config = Config { tree_width: 2, ..Config::default() };
        let tree = Tree::new(&config, &names);
        assert_eq!(tree.above("n2"), ["n1", "n0"]);
        assert!(tree.above("n0").is_empty() && tree.above("stranger").is_empty());
    }

    #[test]
    fn by_topology_a_switch_is_a_subtree() {
        let names: Vec<String> = (0..12).map(|n| format!("n{n}")).collect();
        let switch = |name: &str, nodes: &str| SwitchConfig { name: name.into(), nodes: nodes.into() };
        // n3 is at two, n11 at none.
        let switches = vec![switch("a", "n[0,2,4,6,8]"), switch("b", "n[1,3,5]"), switch("c", "n[3,7,9,10]")];
        let config = Config { tree_width: 2, route_plugin: RoutePolicy::Topology, switches, ..Config::default() };
        let tree = Tree::new(&config, &names);
        assert_eq!(tree.above("n8"), ["n6", "n0"]);
        assert_eq!(tree.above("n2"), ["n0"]);
        // Heads: n0 n1 n7 n11, split into [n0 n1] [n7 n11].
        assert_eq!(tree.above("n3"), ["n1", "n0"]);
        assert_eq!(tree.above("n11"), ["n7"]);
        assert!(tree.above("n0").is_empty() && tree.above("n7").is_empty());
        let switch_of =
            |name: &str| ["n0", "n1", "n7", "n11"].iter().find(|head| tree.above(name).contains(&(**head).to_owned()));
        for name in ["n9", "n10"] {
            assert_eq!(switch_of(name), Some(&"n7"), "{name}");
        }
    }

    #[test]
    fn a_small_tree() {
        // 7 nodes, width 2: [0 1 2 3] [4 5 6]; 0 heads [1 2] [3], 4 heads [5] [6].
        assert_eq!(children(None, 7, 2), [0, 4]);
        assert_eq!(children(Some(0), 7, 2), [1, 3]);
        assert_eq!(children(Some(1), 7, 2), [2]);
        assert_eq!(children(Some(4), 7, 2), [5, 6]);
        assert_eq!(above(2, 7, 2), [1, 0]);
    }

    #[test]
    fn every_node_has_one_parent_and_no_one_has_too_many_children() {
        for (count, width) in [(1, 16), (16, 16), (17, 16), (300, 7), (1000, 16)] {
            let mut seen = vec![0; count];
            for parent in std::iter::once(None).chain((0..count).map(Some)) {
                let below = children(parent, count, width);
                assert!(below.len() <= width, "{count} {width}");
                for child in below {
                    seen[child] += 1;
                    assert!(parent.is_none_or(|parent| parent < child));
                }
            }
            assert!(seen.iter().all(|&times| times == 1), "{count} {width}");
        }
    }

    #[test]
    fn depth_grows_as_the_logarithm() {
        let depth = |count| (0..count).map(|node| above(node, count, 16).len()).max().unwrap_or_default();
        assert_eq!(depth(16), 0);
        assert_eq!(depth(272), 1);
        assert!(depth(10_080) <= 3);
    }
}
