//! The network that nodes stand in: flat, a tree of switches, a dragonfly, blocks, rings, tori and meshes; read from
//! Slurm's files, and asked for neighbourhoods, addresses, distances and good sets of nodes.

mod build;
mod draft;
mod pick;
mod shapes;
mod yaml;

use std::fmt;

use squall_model::id::NodeId;
use squall_model::set::NodeSet;

use crate::torus::{Coords, Frame, Link, Order, Shapes, across, route, turned};

pub(crate) use pick::{Memory, Scene, arrange};
pub use pick::{Wish, WishFault};
pub(crate) use shapes::shapes;

/// What is wrong with a topology file, and in which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// What.
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

/// Slurm's name for a kind of topology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plugin {
    /// Nodes are alike.
    #[default]
    Flat,
    /// Switches in a tree.
    Tree,
    /// Blocks of equal size.
    Block,
    /// Rings.
    Ring,
    /// Tori and meshes of any number of axes.
    Torus3d,
}

impl Plugin {
    /// `topology/tree` and so on; `topology/default` and `topology/none` are flat.
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

/// A switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// 0: nodes are at it.
    pub level: u32,
    /// `LinkSpeed`.
    pub speed: u32,
    /// Every node below it.
    pub nodes: NodeSet,
    /// Switches right below it.
    pub children: Vec<usize>,
    /// The switch above it.
    pub parent: Option<usize>,
}

/// A block or ring: nodes with a name, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its nodes, in the order of the file.
    pub nodes: Vec<NodeId>,
}

/// A torus or mesh with its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torus {
    /// Its name.
    pub name: String,
    /// Axes.
    pub frame: Frame,
    /// The nodes at each router; none where there is a hole.
    pub cells: Vec<Vec<NodeId>>,
    /// Shapes that are tried first: what other schedulers call nodesets.
    pub placements: Vec<Coords>,
    /// How nodes are put together for jobs that need no prism where there is none.
    pub order: Order,
}

/// A network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// All nodes are alike.
    #[default]
    Flat,
    /// Switches; `dragonfly`: what does not fit at one leaf is spread over many.
    Tree {
        /// Leaves and those above them.
        switches: Vec<Switch>,
        /// `TopologyParam=dragonfly`.
        dragonfly: bool,
    },
    /// Blocks.
    Block {
        /// The blocks.
        blocks: Vec<Group>,
        /// Nodes of a base block, and of what is put together of these.
        sizes: Vec<u32>,
    },
    /// Rings.
    Ring(Vec<Group>),
    /// Tori.
    Torus(Vec<Torus>),
}

/// The network and where each node stands in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// What it is.
    pub kind: Kind,
    /// By node: the leaf switch, block, ring or torus, and the place in it (the cell).
    place: Vec<Option<(u32, u32)>>,
    /// Nodes that the file names although there are none, names twice, or leaves out.
    oddities: Vec<Fault>,
}

impl Torus {
    /// Whether some prism with these extents, in any order, keeps its traffic to itself here.
    pub fn takes(&self, size: &Coords) -> bool {
        !turned(&self.frame, size).is_empty()
    }
    /// The legal shape that is most like this one and at least as large.
    pub fn nearest(&self, size: &Coords) -> Option<Coords> {
        let wanted: u64 = size.iter().map(|n| u64::from(*n)).product();
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
    /// Reads a topology file. `name` ends in `.yaml` or `.conf`. `node`: the node of a name; `expected`: nodes that
    /// should have a place. Wrong names of nodes are no errors, as in Slurm, but [`Topology::oddities`].
    pub fn read(
        source: &Source<'_>,
        node: &dyn Fn(&str) -> Option<NodeId>,
        expected: &[String],
    ) -> Result<Self, Fault> {
        let yaml = source.name.rsplit('.').next().is_some_and(|end| end.eq_ignore_ascii_case("yaml"));
        let draft = if yaml { draft::from_yaml(source.text)? } else { draft::from_conf(source.text)? };
        build::build(draft, source, node, expected)
    }
    /// Nodes that the file names although there are none, names twice, or leaves out. The network is good without them.
    pub fn oddities(&self) -> &[Fault] {
        &self.oddities
    }
    /// Whether nodes are all alike.
    pub fn is_flat(&self) -> bool {
        self.kind == Kind::Flat
    }
    /// The leaf switch, block, ring or torus at which a node is, and its place there.
    pub fn place(&self, node: NodeId) -> Option<(usize, usize)> {
        let (group, at) = (*self.place.get(node.index())?)?;
        Some((group as usize, at as usize))
    }
    /// Where a node is, from the top: `root.s1.n3`, and what the parts are: `switch.switch.node`.
    pub fn address(&self, node: NodeId, name: &str) -> (String, String) {
        let Some((group, at)) = self.place(node) else { return (name.to_owned(), "node".to_owned()) };
        let (path, kind): (Vec<String>, &str) = match &self.kind {
            Kind::Flat => (Vec::new(), ""),
            Kind::Tree { switches, .. } => {
                let up = std::iter::successors(Some(group), |&at| switches[at].parent);
                let mut path: Vec<String> = up.map(|at| switches[at].name.clone()).collect();
                path.reverse();
                (path, "switch")
            }
            Kind::Block { blocks, .. } => (vec![blocks[group].name.clone()], "block"),
            Kind::Ring(rings) => (vec![rings[group].name.clone()], "ring"),
            Kind::Torus(tori) => {
                let torus = &tori[group];
                let coords = torus.frame.coords(at)[..torus.frame.axes().len()].to_vec();
                let place = coords.iter().map(u32::to_string).collect::<Vec<_>>().join("x");
                return (format!("{}.{place}.{name}", torus.name), "torus.router.node".to_owned());
            }
        };
        let pattern = std::iter::repeat_n(kind, path.len()).chain(["node"]).collect::<Vec<_>>().join(".");
        (path.into_iter().chain([name.to_owned()]).collect::<Vec<_>>().join("."), pattern)
    }
    /// Hops between two nodes; None: there is no way, or nobody knows.
    pub fn distance(&self, a: NodeId, b: NodeId) -> Option<u32> {
        if a == b {
            return Some(0);
        }
        let ((ga, pa), (gb, pb)) = (self.place(a)?, self.place(b)?);
        match &self.kind {
            Kind::Flat => Some(1),
            Kind::Tree { switches, .. } => {
                let path = |leaf: usize| std::iter::successors(Some(leaf), |&at| switches[at].parent);
                let up = path(ga).position(|at| path(gb).any(|other| other == at))?;
                Some(2 * (up as u32 + 1))
            }
            Kind::Block { .. } => Some(if ga == gb { 1 } else { 3 }),
            Kind::Ring(rings) => (ga == gb).then(|| {
                let n = rings[ga].nodes.len() as u32;
                across(pa as u32, pb as u32, n, true, true).0
            }),
            Kind::Torus(tori) => (ga == gb).then(|| {
                let mut hops = 0;
                route(&tori[ga].frame, pa, pb, true, |_| hops += 1);
                hops
            }),
        }
    }
    /// The links of a torus that a message takes; None: the network has none that are known.
    pub fn links(&self, from: NodeId, to: NodeId) -> Option<Vec<Link>> {
        let Kind::Torus(tori) = &self.kind else { return None };
        let ((ga, pa), (gb, pb)) = (self.place(from)?, self.place(to)?);
        let mut links = Vec::new();
        (ga == gb).then(|| {
            route(&tori[ga].frame, pa, pb, true, |link| links.push(link));
            links
        })
    }
    /// Nodes that belong together, by level, the smallest first: (level, name, nodes).
    pub fn domains(&self) -> Vec<(u32, &str, NodeSet)> {
        let all = |nodes: &[NodeId]| nodes.iter().copied().collect::<NodeSet>();
        match &self.kind {
            Kind::Flat => Vec::new(),
            Kind::Tree { switches, .. } => {
                let mut domains: Vec<_> =
                    switches.iter().map(|s| (s.level, s.name.as_str(), s.nodes.clone())).collect();
                domains.sort_by_key(|(level, ..)| *level);
                domains
            }
            Kind::Block { blocks: groups, .. } | Kind::Ring(groups) => {
                groups.iter().map(|group| (0, group.name.as_str(), all(&group.nodes))).collect()
            }
            Kind::Torus(tori) => tori
                .iter()
                .map(|torus| (0, torus.name.as_str(), torus.cells.iter().flatten().copied().collect()))
                .collect(),
        }
    }
    /// Every node that the traffic of these may touch: on a torus those of the prism around them, else just these.
    pub fn around(&self, nodes: &NodeSet) -> NodeSet {
        let Kind::Torus(tori) = &self.kind else { return nodes.clone() };
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
    /// Whether no traffic between these nodes can meet that of others.
    pub fn closed(&self, nodes: &NodeSet) -> bool {
        match &self.kind {
            Kind::Torus(tori) => {
                let Some((torus, _)) = nodes.first().and_then(|node| self.place(node)) else { return true };
                let cells = nodes.iter().filter_map(|node| self.place(node)).filter(|(at, _)| *at == torus);
                let hull = crate::torus::hull(&tori[torus].frame, cells.map(|(_, cell)| cell));
                hull.is_some_and(|hull| {
                    hull.cells(&tori[torus].frame)
                        .all(|cell| tori[torus].cells[cell].iter().all(|n| nodes.contains(*n)))
                })
            }
            Kind::Tree { switches, .. } => switches.iter().any(|s| s.level == 0 && nodes.is_subset(&s.nodes)),
            Kind::Flat => nodes.len() < 2,
            Kind::Block { .. } | Kind::Ring(_) => self.domains().iter().any(|(_, _, domain)| nodes.is_subset(domain)),
        }
    }
}

/// A topology file and what the configuration says of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// The file's name.
    pub name: &'a str,
    /// Its content.
    pub text: &'a str,
    /// `TopologyPlugin`; empty: what the file says.
    pub plugin: &'a str,
    /// `TopologyParam`.
    pub param: &'a str,
}

#[cfg(test)]
mod tests;
