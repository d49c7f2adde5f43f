//! The network of a cluster: flat, a tree of switches, a dragonfly, blocks, rings, tori and meshes. It is read from
//! Slurm's files, and provides neighbourhoods, addresses, distances and good sets of nodes.

mod blocks;
mod build;
mod draft;
pub mod groups;
mod pick;
pub mod segments;
mod shapes;
mod yaml;

use std::collections::BTreeSet;
use std::fmt;

use squall_model::id::NodeId;
use squall_model::set::NodeSet;

use crate::torus::{Coords, Frame, Link, Order, Shapes, across, route, turned};

pub(crate) use pick::{Memory, Scene, arrange};
pub use pick::{Wish, WishFault, block_sizes};
pub(crate) use shapes::shapes;

/// An error in a topology file, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Number of the line with the error, from 1.
    pub line: usize,
    /// Description of the error.
    pub text: String,
}

impl Fault {
    pub(crate) fn new(line: usize, text: impl Into<String>) -> Self {
        Self { line, text: text.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// Kind of topology, as in Slurm's plugin names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plugin {
    /// All nodes are equivalent.
    #[default]
    Flat,
    /// Switches in a tree.
    Tree,
    /// Blocks of nodes of equal size.
    Block,
    /// Rings of nodes.
    Ring,
    /// Tori and meshes of any number of axes.
    Torus3d,
}

impl Plugin {
    /// Parses `topology/tree` and so on; `topology/default` and `topology/none` are flat. None: the name is unknown.
    pub fn named(name: &str) -> Option<Self> {
        match name.strip_prefix("topology/").unwrap_or(name) {
            "flat" | "default" | "none" => Some(Self::Flat),
            "tree" => Some(Self::Tree),
            "block" => Some(Self::Block),
            "ring" => Some(Self::Ring),
            "torus3d" | "torus" | "3d_torus" => Some(Self::Torus3d),
            _ => None,
        }
    }
}

/// A network switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// Name of the switch.
    pub name: String,
    /// Level in the tree; 0: a leaf switch, to which nodes are attached.
    pub level: u32,
    /// Value of `LinkSpeed` in the topology file.
    pub speed: u32,
    /// All nodes below the switch.
    pub nodes: NodeSet,
    /// Indices of the switches directly below.
    pub children: Vec<usize>,
    /// Index of the switch above. None: it is at the top.
    pub parent: Option<usize>,
}

/// A block or ring: a named list of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Name of the block or ring.
    pub name: String,
    /// Nodes in the order of the file.
    pub nodes: Vec<NodeId>,
}

/// A torus or mesh with its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torus {
    /// Name of the torus.
    pub name: String,
    /// Axes of the torus.
    pub frame: Frame,
    /// For each cell (router): the nodes at it; empty at a hole.
    pub cells: Vec<Vec<NodeId>>,
    /// Prism shapes that are tried first; other schedulers call them nodesets.
    pub placements: Vec<Coords>,
    /// Linear order in which free nodes are taken for jobs that need no prism, when no prism is free.
    pub order: Order,
}

/// Kind of network, with its structure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TopologyKind {
    /// All nodes are equivalent.
    #[default]
    Flat,
    /// A tree of switches. `dragonfly`: a job that does not fit at one leaf is spread over many.
    Tree {
        /// Leaf switches and those above them.
        switches: Vec<Switch>,
        /// `TopologyParam=dragonfly` is set.
        dragonfly: bool,
    },
    /// Blocks of nodes.
    Block {
        /// The blocks, each with its nodes.
        blocks: Vec<Group>,
        /// Number of nodes of a base block, and of each size combined from base blocks.
        sizes: Vec<u32>,
    },
    /// Rings of nodes, each with its nodes in order.
    Ring(Vec<Group>),
    /// Tori and meshes, with their nodes.
    Torus(Vec<Torus>),
}

/// The network, with the position of each node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Kind of network, with its structure.
    pub kind: TopologyKind,
    /// By node number: index of the node's leaf switch, block, ring or torus, and its position in that (on a torus its
    /// cell). None: the node has no position.
    place: Vec<Option<(u32, u32)>>,
    /// Nodes that the file names although they do not exist, names twice, or omits.
    oddities: Vec<Fault>,
}

impl Torus {
    /// Returns whether a prism with these extents, in some order of the axes, keeps the traffic between its nodes
    /// inside.
    pub fn takes(&self, size: &Coords) -> bool {
        !turned(&self.frame, size).is_empty()
    }
    /// Returns the extents most similar to these, in any order of axes, among prisms that keep the traffic between
    /// their nodes inside and have at least as many cells. If all are smaller, returns the largest. None: there are no
    /// such prisms.
    pub fn nearest(&self, size: &Coords) -> Option<Coords> {
        let wanted = size.iter().fold(1_u64, |cells, n| cells.saturating_mul(u64::from(*n)));
        let mut sorted = *size;
        sorted.sort_unstable();
        let apart = |other: &Coords| {
            let mut other = *other;
            other.sort_unstable();
            other.iter().zip(sorted).map(|(a, b)| u64::from(a.abs_diff(b))).sum::<u64>()
        };
        let shapes = Shapes::new(&self.frame);
        let enough = shapes.all().iter().filter(|shape| u64::from(shape.volume) >= wanted);
        let nearest = enough.min_by_key(|shape| (apart(&shape.size), shape.volume)).map(|shape| shape.size);
        nearest.or_else(|| shapes.all().last().map(|shape| shape.size))
    }
}

impl Topology {
    /// Parses a topology file. `name` ends in `.yaml` or `.conf`. `node`: lookup of a node name; `expected`: nodes
    /// that should have a position. Wrong node names are not errors, as in Slurm, but listed in
    /// [`Topology::oddities`].
    pub fn read(
        source: &Source<'_>,
        node: &dyn Fn(&str) -> Option<NodeId>,
        expected: &[String],
    ) -> Result<Self, Fault> {
        let yaml = source.name.rsplit('.').next().is_some_and(|end| end.eq_ignore_ascii_case("yaml"));
        let draft = if yaml { draft::from_yaml(source.text)? } else { draft::from_conf(source.text)? };
        build::build(draft, source, node, expected)
    }
    /// Returns nodes that the file names although they do not exist, names twice, or omits. The network is usable
    /// without them.
    pub fn oddities(&self) -> &[Fault] {
        &self.oddities
    }
    /// Returns whether all nodes are equivalent.
    pub fn is_flat(&self) -> bool {
        self.kind == TopologyKind::Flat
    }
    /// Returns the index of a node's leaf switch, block, ring or torus, and its position in that. None: the node has no
    /// position.
    pub fn place(&self, node: NodeId) -> Option<(usize, usize)> {
        let (group, at) = (*self.place.get(node.index())?)?;
        Some((group as usize, at as usize))
    }
    /// Returns a node's path from the top, such as `root.s1.n3`, and the kinds of its parts, such as
    /// `switch.switch.node`.
    pub fn address(&self, node: NodeId, name: &str) -> (String, String) {
        let Some((group, at)) = self.place(node) else { return (name.to_owned(), "node".to_owned()) };
        let (path, kind): (Vec<String>, &str) = match &self.kind {
            TopologyKind::Flat => (Vec::new(), ""),
            TopologyKind::Tree { switches, .. } => {
                let up = std::iter::successors(Some(group), |&at| switches[at].parent);
                let mut path: Vec<String> = up.map(|at| switches[at].name.clone()).collect();
                path.reverse();
                (path, "switch")
            }
            TopologyKind::Block { blocks, .. } => (vec![blocks[group].name.clone()], "block"),
            TopologyKind::Ring(rings) => (vec![rings[group].name.clone()], "ring"),
            TopologyKind::Torus(tori) => {
                let torus = &tori[group];
                let coords = torus.frame.coords(at)[..torus.frame.axes().len()].to_vec();
                let place = coords.iter().map(u32::to_string).collect::<Vec<_>>().join("x");
                return (format!("{}.{place}.{name}", torus.name), "torus.router.node".to_owned());
            }
        };
        let pattern = std::iter::repeat_n(kind, path.len()).chain(["node"]).collect::<Vec<_>>().join(".");
        (path.into_iter().chain([name.to_owned()]).collect::<Vec<_>>().join("."), pattern)
    }
    /// Returns the number of hops between two nodes. None: there is no path, or it is unknown.
    pub fn distance(&self, a: NodeId, b: NodeId) -> Option<u32> {
        if a == b {
            return Some(0);
        }
        let ((ga, pa), (gb, pb)) = (self.place(a)?, self.place(b)?);
        match &self.kind {
            TopologyKind::Flat => Some(1),
            TopologyKind::Tree { switches, .. } => {
                let path = |leaf: usize| std::iter::successors(Some(leaf), |&at| switches[at].parent);
                let up = path(ga).position(|at| path(gb).any(|other| other == at))?;
                Some(2 * (up as u32 + 1))
            }
            TopologyKind::Block { .. } => Some(if ga == gb { 1 } else { 3 }),
            TopologyKind::Ring(rings) => (ga == gb).then(|| {
                let n = rings[ga].nodes.len() as u32;
                across(pa as u32, pb as u32, n, true, true).0
            }),
            TopologyKind::Torus(tori) => (ga == gb).then(|| {
                let mut hops = 0;
                route(&tori[ga].frame, pa, pb, true, |_| hops += 1);
                hops
            }),
        }
    }
    /// Returns the links that a message uses on its way between two nodes of a torus. None: the nodes are not on the
    /// same torus.
    pub fn links(&self, from: NodeId, to: NodeId) -> Option<Vec<Link>> {
        let TopologyKind::Torus(tori) = &self.kind else { return None };
        let ((ga, pa), (gb, pb)) = (self.place(from)?, self.place(to)?);
        let mut links = Vec::new();
        (ga == gb).then(|| {
            route(&tori[ga].frame, pa, pb, true, |link| links.push(link));
            links
        })
    }
    /// Returns sets of neighbouring nodes by level, the smallest first: (level, name, nodes).
    pub fn domains(&self) -> Vec<(u32, &str, NodeSet)> {
        let all = |nodes: &[NodeId]| nodes.iter().copied().collect::<NodeSet>();
        match &self.kind {
            TopologyKind::Flat => Vec::new(),
            TopologyKind::Tree { switches, .. } => {
                let mut domains: Vec<_> =
                    switches.iter().map(|s| (s.level, s.name.as_str(), s.nodes.clone())).collect();
                domains.sort_by_key(|(level, ..)| *level);
                domains
            }
            TopologyKind::Block { blocks: groups, .. } | TopologyKind::Ring(groups) => {
                groups.iter().map(|group| (0, group.name.as_str(), all(&group.nodes))).collect()
            }
            TopologyKind::Torus(tori) => tori
                .iter()
                .map(|torus| (0, torus.name.as_str(), torus.cells.iter().flatten().copied().collect()))
                .collect(),
        }
    }
    /// Returns all nodes that the traffic between these nodes may pass: on a torus the nodes of the prism around them,
    /// otherwise just these.
    pub fn around(&self, nodes: &NodeSet) -> NodeSet {
        let TopologyKind::Torus(tori) = &self.kind else { return nodes.clone() };
        let mut found = nodes.clone();
        for (at, torus) in tori.iter().enumerate() {
            let cells = nodes.iter().filter_map(|node| self.place(node)).filter(|(of, _)| *of == at);
            if let Some(hull) = crate::torus::hull(&torus.frame, cells.map(|(_, cell)| cell)) {
                hull.cells(&torus.frame).flat_map(|cell| &torus.cells[cell]).for_each(|node| {
                    found.insert(*node);
                });
            }
        }
        found
    }
    /// Returns all nodes of the blocks, or of the rings, in which some of these nodes are; on other networks just these.
    pub fn blocks_of(&self, nodes: &NodeSet) -> NodeSet {
        let (TopologyKind::Block { blocks: groups, .. } | TopologyKind::Ring(groups)) = &self.kind else {
            return nodes.clone();
        };
        let mut found = nodes.clone();
        let used: BTreeSet<usize> = nodes.iter().filter_map(|node| Some(self.place(node)?.0)).collect();
        used.iter().flat_map(|at| &groups[*at].nodes).for_each(|node| {
            found.insert(*node);
        });
        found
    }
    /// Returns whether traffic between these nodes never shares a link with that of other nodes.
    pub fn closed(&self, nodes: &NodeSet) -> bool {
        match &self.kind {
            TopologyKind::Torus(tori) => {
                let Some((torus, _)) = nodes.first().and_then(|node| self.place(node)) else { return true };
                let cells = nodes.iter().filter_map(|node| self.place(node)).filter(|(at, _)| *at == torus);
                let hull = crate::torus::hull(&tori[torus].frame, cells.map(|(_, cell)| cell));
                hull.is_some_and(|hull| {
                    hull.cells(&tori[torus].frame)
                        .all(|cell| tori[torus].cells[cell].iter().all(|n| nodes.contains(*n)))
                })
            }
            TopologyKind::Tree { switches, .. } => switches.iter().any(|s| s.level == 0 && nodes.is_subset(&s.nodes)),
            TopologyKind::Flat => nodes.len() < 2,
            TopologyKind::Block { .. } | TopologyKind::Ring(_) => {
                self.domains().iter().any(|(_, _, domain)| nodes.is_subset(domain))
            }
        }
    }
}

/// A topology file, with the configuration values that affect how it is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// Name of the topology file.
    pub name: &'a str,
    /// Content of the topology file.
    pub text: &'a str,
    /// Value of `TopologyPlugin`; empty: the file decides.
    pub plugin: &'a str,
    /// Value of `TopologyParam`.
    pub param: &'a str,
}

#[cfg(test)]
mod tests;
