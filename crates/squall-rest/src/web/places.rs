//! Nodes by where they stand: at switches, or by their names.

use std::collections::{BTreeMap, HashMap};

use squall_model::config::Config;
use squall_model::hostlist;
use squall_model::wire::info::NodeInfo;
use squall_text::format::node::{Base, NodeState};

/// Most nodes that are drawn together unless a switch has more.
const GROUP: usize = 128;

/// Nodes that stand together.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Indices of the nodes.
    pub(crate) nodes: Vec<usize>,
}

/// Returns the nodes in groups: by leaf switch if the configuration has switches, otherwise by name.
pub(crate) fn groups(nodes: &[NodeInfo], config: &Config) -> Vec<Group> {
    let index: HashMap<&str, usize> = nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
    let mut placed = vec![false; nodes.len()];
    let mut all = Vec::new();
    for switch in &config.switches {
        let names = hostlist::expand_within(&switch.nodes, nodes.len()).unwrap_or_default();
        let mut at: Vec<usize> = names.iter().filter_map(|name| index.get(name.as_str()).copied()).collect();
        at.retain(|at| !std::mem::replace(&mut placed[*at], true));
        if !at.is_empty() {
            all.push(Group { name: switch.name.clone(), nodes: at });
        }
    }
    let mut rest: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for at in (0..nodes.len()).filter(|at| !placed[*at]) {
        rest.entry(nodes[at].name.trim_end_matches(|c: char| c.is_ascii_digit())).or_default().push(at);
    }
    for part in rest.values().flat_map(|list| list.chunks(GROUP)) {
        let name = hostlist::compress(part.iter().map(|at| &nodes[*at].name));
        all.push(Group { name, nodes: part.to_vec() });
    }
    all
}

/// How nodes are drawn: class, word, and whether jobs may start there.
pub(crate) const LOOKS: [(&str, &str); 7] = [
    ("allocated", "allocated"),
    ("mixed", "mixed"),
    ("idle", "idle"),
    ("completing", "completing"),
    ("reserved", "reserved"),
    ("drain", "drained"),
    ("down", "down"),
];

/// Returns how a node is drawn, as an index of [`LOOKS`].
pub(crate) fn look(node: &NodeInfo) -> usize {
    let state = NodeState::of(node);
    match state.base {
        Base::Down | Base::Unknown => 6,
        _ if state.drain || state.fail => 5,
        Base::Allocated => 0,
        Base::Mixed => 1,
        Base::Idle if state.completing => 3,
        Base::Idle if state.reserved || state.maint => 4,
        Base::Idle => 2,
    }
}

/// Returns how many nodes look each way.
pub(crate) fn counts<'a>(nodes: impl IntoIterator<Item = &'a NodeInfo>) -> [u64; LOOKS.len()] {
    let mut counts = [0; LOOKS.len()];
    for node in nodes {
        counts[look(node)] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use squall_model::config::Config;
    use squall_model::wire::info::NodeInfo;

    use super::groups;

    #[test]
    fn nodes_stand_at_switches_or_by_name() {
        let node = |name: String| NodeInfo { name, ..NodeInfo::default() };
        let nodes: Vec<NodeInfo> = (1..=200).map(|n| node(format!("n{n:03}"))).chain([node("gpu1".into())]).collect();
        let names = |config: &Config| groups(&nodes, config).into_iter().map(|g| g.name).collect::<Vec<_>>();
        assert_eq!(names(&Config::default()), ["gpu1", "n[001-128]", "n[129-200]"]);
        let config = Config::from_toml("[[switches]]\nname = \"s1\"\nnodes = \"n[001-150]\"\n").unwrap();
        assert_eq!(names(&config), ["s1", "gpu1", "n[151-200]"]);
    }
}
