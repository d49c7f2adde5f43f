//! Nodes by where they stand: on a torus, at switches, in blocks or rings, or by their names.

use std::collections::{BTreeMap, HashMap};

use squall_model::config::Config;
use squall_model::hostlist;
use squall_model::id::NodeId;
use squall_model::wire::info::NodeInfo;
use squall_sched::topology::{Source, Topology, TopologyKind, Torus};
use squall_text::format::node::{Base, NodeState};

/// Most nodes that are drawn together unless a switch has more.
const GROUP: usize = 128;
/// Nodes side by side in a group that is no plane of a torus.
const COLUMNS: usize = 16;
/// Most nodes side by side in a plane of a torus.
const WIDE: usize = 128;

/// Nodes that stand together.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Indices of the nodes, row by row. None: a hole.
    pub(crate) cells: Vec<Option<usize>>,
    /// Number of nodes side by side.
    pub(crate) columns: usize,
}

impl Group {
    fn new(name: String, nodes: impl IntoIterator<Item = usize>) -> Self {
        Self { name, cells: nodes.into_iter().map(Some).collect(), columns: COLUMNS }
    }

    /// Returns the indices of the nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = usize> {
        self.cells.iter().copied().flatten()
    }
}

/// Returns the nodes in groups, as the network has them; those without a place by their names.
pub(crate) fn groups(nodes: &[NodeInfo], config: &Config) -> Vec<Group> {
    let index: HashMap<&str, usize> = nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
    let mut all = network(&index, config);
    if all.is_empty() {
        let at = |name: &String| index.get(name.as_str()).copied();
        let names = |list: &str| hostlist::expand_within(list, nodes.len()).unwrap_or_default();
        let own = |list: &str| names(list).iter().filter_map(at).collect::<Vec<usize>>();
        all.extend(config.switches.iter().map(|switch| Group::new(switch.name.clone(), own(&switch.nodes))));
    }
    all.retain(|group| group.nodes().next().is_some());
    let mut placed = vec![false; nodes.len()];
    all.iter().flat_map(Group::nodes).for_each(|at| placed[at] = true);
    let mut rest: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for at in (0..nodes.len()).filter(|at| !placed[*at]) {
        rest.entry(nodes[at].name.trim_end_matches(|c: char| c.is_ascii_digit())).or_default().push(at);
    }
    for part in rest.values().flat_map(|list| list.chunks(GROUP)) {
        let name = hostlist::compress(part.iter().map(|at| &nodes[*at].name));
        all.push(Group::new(name, part.iter().copied()));
    }
    all
}

/// Returns the groups of the topology file; none without one.
fn network(index: &HashMap<&str, usize>, config: &Config) -> Vec<Group> {
    let file = &config.topology;
    let (plugin, param) = (config.topology_plugin.as_str(), config.topology_param.as_str());
    let source = Source { name: &file.name, text: &file.text, plugin, param };
    let id = |name: &str| index.get(name).map(|at| NodeId(*at as u32));
    let found = if file.name.is_empty() { None } else { Topology::read(&source, &id, &[]).ok() };
    match found.unwrap_or_default().kind {
        TopologyKind::Flat => Vec::new(),
        TopologyKind::Tree { switches, .. } => {
            let leaves = switches.into_iter().filter(|switch| switch.level == 0);
            leaves.map(|leaf| Group::new(leaf.name, leaf.nodes.iter().map(NodeId::index).collect::<Vec<_>>())).collect()
        }
        TopologyKind::Block { blocks: lists, .. } | TopologyKind::Ring(lists) => {
            lists.into_iter().map(|list| Group::new(list.name, list.nodes.into_iter().map(NodeId::index))).collect()
        }
        TopologyKind::Torus(tori) => tori.iter().flat_map(planes).collect(),
    }
}

/// Returns the planes of a torus along its first two axes.
fn planes(torus: &Torus) -> Vec<Group> {
    let axes = torus.frame.axes();
    let (across, down) = (axes[0].extent as usize, axes.get(1).map_or(1, |axis| axis.extent as usize));
    let each = torus.frame.per_router() as usize;
    let columns = across * each;
    let mut planes: BTreeMap<Vec<u32>, Vec<Option<usize>>> = BTreeMap::new();
    for (cell, nodes) in torus.cells.iter().enumerate() {
        let at = torus.frame.coords(cell);
        let others = at[2.min(axes.len())..axes.len()].to_vec();
        let plane = planes.entry(others).or_insert_with(|| vec![None; columns * down]);
        let first = at[1] as usize * columns + at[0] as usize * each;
        for (place, node) in plane[first..first + each].iter_mut().zip(nodes) {
            *place = Some(node.index());
        }
    }
    let name = |others: &[u32]| match others {
        [] => torus.name.clone(),
        others => {
            let others: Vec<String> = others.iter().map(u32::to_string).collect();
            format!("{} plane {}", torus.name, others.join(","))
        }
    };
    let group = |(others, cells): (Vec<u32>, _)| Group { name: name(&others), cells, columns: columns.min(WIDE) };
    planes.into_iter().map(group).collect()
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
        Base::Down | Base::Unknown | Base::Future => 6,
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
    use squall_model::config::{Config, TopologyFile};
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

    #[test]
    fn a_torus_is_drawn_in_planes() {
        let node = |n| NodeInfo { name: format!("r{n}"), ..NodeInfo::default() };
        let nodes: Vec<NodeInfo> = (1..=25).map(node).collect();
        let text = "TorusName=pod Dims=2x3x2 Nodes=r[1-24] NodesPerRouter=2\n".to_owned();
        let topology = TopologyFile { name: "topology.conf".into(), text };
        let all = groups(&nodes, &Config { topology, ..Config::default() });
        let seen: Vec<_> =
            all.iter().map(|group| (group.name.as_str(), group.columns, group.nodes().count())).collect();
        assert_eq!(seen, [("pod plane 0", 4, 12), ("pod plane 1", 4, 12), ("r25", 16, 1)]);
        assert_eq!(all[0].nodes().collect::<Vec<_>>(), (0..12).collect::<Vec<_>>(), "the first axis counts fastest");
    }
}
