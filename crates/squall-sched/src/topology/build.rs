//! Builds the network from a parsed topology file. Every error is found here and reported with its line.

use std::collections::BTreeMap;

use squall_model::hostlist;
use squall_model::id::NodeId;
use squall_model::set::NodeSet;

use super::draft::{Draft, Group as DraftGroup, Torus as DraftTorus};
use super::{Fault, Group, Plugin, Source, Switch, Topology, TopologyKind, Torus};
use crate::torus::{AXES_MAX, Axis, Coords, Frame};

/// Lookup of node names; each node may be used only once.
struct Nodes<'a> {
    node: &'a dyn Fn(&str) -> Option<NodeId>,
    /// Errors that do not prevent use of the file: unknown nodes, and nodes that are named twice.
    oddities: Vec<Fault>,
    /// For each node name: number of the line in which the node was first named.
    seen: BTreeMap<String, usize>,
    place: Vec<Option<(u32, u32)>>,
}

impl Nodes<'_> {
    /// Returns the nodes of a host list that stands in line number `line`. An entry is None for an unknown node, and
    /// for one that has a position already.
    fn take(&mut self, line: usize, list: &str) -> Result<Vec<Option<NodeId>>, Fault> {
        let names = hostlist::expand(list).map_err(|e| Fault::new(line, format!("`{list}`: {e}")))?;
        let mut nodes = Vec::with_capacity(names.len());
        for name in names {
            let id = (self.node)(&name);
            let before = self.seen.get(&name).copied();
            let odd = match before {
                _ if id.is_none() => Some(format!("there is no node `{name}`")),
                Some(before) => Some(format!("node `{name}` stands in line {before} already")),
                None => None,
            };
            self.oddities.extend(odd.map(|text| Fault::new(line, text)));
            self.seen.entry(name).or_insert(line);
            nodes.push(id.filter(|_| before.is_none()));
        }
        Ok(nodes)
    }
    fn put(&mut self, node: NodeId, group: usize, at: usize) {
        if self.place.len() <= node.index() {
            self.place.resize(node.index() + 1, None);
        }
        self.place[node.index()] = Some((group as u32, at as u32));
    }
}

/// Builds the network from a parsed file.
pub(super) fn build(
    draft: Draft,
    source: &Source<'_>,
    node: &dyn Fn(&str) -> Option<NodeId>,
    expected: &[String],
) -> Result<Topology, Fault> {
    let asked = match source.plugin {
        "" => None,
        name => {
            Some(Plugin::named(name).ok_or_else(|| Fault::new(1, format!("TopologyPlugin=`{name}` is not known")))?)
        }
    };
    let present = [
        (!draft.switches.is_empty(), Plugin::Tree),
        (!draft.blocks.is_empty(), Plugin::Block),
        (!draft.rings.is_empty(), Plugin::Ring),
        (!draft.tori.is_empty(), Plugin::Torus3d),
    ];
    let found = present.into_iter().find(|(there, _)| *there).map(|(_, plugin)| plugin);
    let plugin = draft.plugin.or(asked).or(found).unwrap_or_default();
    if plugin != Plugin::Flat && !present.iter().any(|(there, kind)| *there && *kind == plugin) {
        return Err(Fault::new(
            draft.end.max(1),
            "the file says nothing about the kind of topology that is configured",
        ));
    }
    let mut nodes = Nodes { node, oddities: Vec::new(), seen: BTreeMap::new(), place: Vec::new() };
    let kind = match plugin {
        Plugin::Flat => return Ok(Topology::default()),
        Plugin::Tree => {
            let dragonfly = source.param.split(',').any(|word| word.trim().eq_ignore_ascii_case("dragonfly"));
            TopologyKind::Tree { switches: tree(&draft.switches, &mut nodes)?, dragonfly }
        }
        Plugin::Block => {
            let blocks = groups(&draft.blocks, &mut nodes)?;
            TopologyKind::Block { sizes: sizes(&draft, &blocks)?, blocks }
        }
        Plugin::Ring => TopologyKind::Ring(groups(&draft.rings, &mut nodes)?),
        Plugin::Torus3d => TopologyKind::Torus(tori(draft.tori, &mut nodes)?),
    };
    let missing: Vec<&String> = expected.iter().filter(|name| !nodes.seen.contains_key(*name)).collect();
    if !missing.is_empty() {
        let (one, names) = (missing.len() == 1, hostlist::compress(&missing));
        let (what, stand) = if one { ("node", "stands") } else { ("nodes", "stand") };
        let text = format!("{what} `{names}` of the configuration {stand} nowhere");
        nodes.oddities.push(Fault::new(draft.end.max(1), text));
    }
    Ok(Topology { kind, place: nodes.place, oddities: nodes.oddities })
}

fn tree(drafts: &[DraftGroup], nodes: &mut Nodes<'_>) -> Result<Vec<Switch>, Fault> {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for (at, draft) in drafts.iter().enumerate() {
        if let Some(before) = names.insert(draft.name.clone(), at) {
            let line = drafts[before].line;
            return Err(Fault::new(draft.line, format!("switch `{}` stands in line {line} already", draft.name)));
        }
    }
    let mut switches: Vec<Switch> = Vec::new();
    for (at, draft) in drafts.iter().enumerate() {
        let mut switch = Switch { name: draft.name.clone(), speed: draft.speed, ..Switch::default() };
        match (&draft.nodes, &draft.children) {
            (Some(list), None) => {
                for (place, node) in nodes.take(draft.line, list)?.into_iter().flatten().enumerate() {
                    switch.nodes.insert(node);
                    nodes.put(node, at, place);
                }
            }
            (None, Some(list)) => {
                let children = hostlist::expand(list).map_err(|e| Fault::new(draft.line, format!("`{list}`: {e}")))?;
                for child in children {
                    let child = names.get(&child).ok_or_else(|| {
                        Fault::new(draft.line, format!("switch `{}` names an unknown switch `{child}`", draft.name))
                    })?;
                    switch.children.push(*child);
                }
            }
            (Some(_), Some(_)) => {
                return Err(Fault::new(draft.line, format!("switch `{}` has both Nodes and Switches", draft.name)));
            }
            (None, None) => {
                return Err(Fault::new(draft.line, format!("switch `{}` has neither Nodes nor Switches", draft.name)));
            }
        }
        switches.push(switch);
    }
    for at in 0..switches.len() {
        for child in switches[at].children.clone() {
            if let Some(before) = switches[child].parent.replace(at) {
                let text = format!("switch `{}` is below `{}` already", switches[child].name, switches[before].name);
                return Err(Fault::new(drafts[at].line, text));
            }
        }
    }
    levels(&mut switches)
        .map_err(|at| Fault::new(drafts[at].line, format!("switch `{}` is below itself", drafts[at].name)))?;
    Ok(switches)
}

/// Calculates level and nodes of all switches above the leaves. Error: index of a switch that is below itself.
fn levels(switches: &mut [Switch]) -> Result<(), usize> {
    for at in 0..switches.len() {
        let leaf = switches[at].children.is_empty();
        let (mut here, mut level) = (at, 0);
        let below: NodeSet = if leaf { switches[at].nodes.clone() } else { NodeSet::new() };
        while let Some(parent) = switches[here].parent {
            level += 1;
            if level as usize > switches.len() {
                return Err(at);
            }
            if leaf {
                switches[parent].level = switches[parent].level.max(level);
                switches[parent].nodes.union_with(&below);
            }
            here = parent;
        }
    }
    Ok(())
}

fn groups(drafts: &[DraftGroup], nodes: &mut Nodes<'_>) -> Result<Vec<Group>, Fault> {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let mut groups = Vec::new();
    for (at, draft) in drafts.iter().enumerate() {
        if let Some(before) = names.insert(&draft.name, draft.line) {
            return Err(Fault::new(draft.line, format!("`{}` stands in line {before} already", draft.name)));
        }
        let list = draft.nodes.as_deref();
        let list = list.ok_or_else(|| Fault::new(draft.line, format!("`{}` has no nodes", draft.name)))?;
        let members = nodes.take(draft.line, list)?.into_iter().flatten().collect();
        let group = Group { name: draft.name.clone(), nodes: members };
        for (place, &node) in group.nodes.iter().enumerate() {
            nodes.put(node, at, place);
        }
        groups.push(group);
    }
    Ok(groups)
}

/// Returns the block sizes, in nodes. Each must be a power of two times the first, and each block must have at least as
/// many nodes as the first size.
fn sizes(draft: &Draft, blocks: &[Group]) -> Result<Vec<u32>, Fault> {
    let smallest = blocks.iter().map(|block| block.nodes.len() as u32).min().unwrap_or(1);
    let Some(&(_, base)) = draft.sizes.first() else { return Ok(vec![smallest]) };
    for (line, size) in &draft.sizes {
        let times = size.checked_div(base).unwrap_or(0);
        if times == 0 || !size.is_multiple_of(base) || !times.is_power_of_two() {
            return Err(Fault::new(*line, format!("block size {size} is not {base} times a power of two")));
        }
    }
    if let Some((draft, block)) = draft.blocks.iter().zip(blocks).find(|(_, block)| (block.nodes.len() as u32) < base) {
        let text = format!("block `{}` has {} nodes, fewer than a base block ({base})", block.name, block.nodes.len());
        return Err(Fault::new(draft.line, text));
    }
    Ok(draft.sizes.iter().map(|(_, size)| *size).collect())
}

fn tori(drafts: Vec<DraftTorus>, nodes: &mut Nodes<'_>) -> Result<Vec<Torus>, Fault> {
    drafts.into_iter().enumerate().map(|(at, draft)| torus(at, &draft, nodes)).collect()
}

fn torus(group: usize, draft: &DraftTorus, nodes: &mut Nodes<'_>) -> Result<Torus, Fault> {
    let fault = |text: String| Fault::new(draft.line, text);
    let k = draft.extents.len();
    for (what, len) in [("wrap", draft.wrap.len()), ("weight", draft.weight.len())] {
        if len > 1 && len != k {
            return Err(fault(format!("`{what}` has {len} values for {k} axes")));
        }
    }
    let value = |axis: usize, values: &[u32]| values.get(axis).or(values.first()).copied().unwrap_or(1);
    let axis = |(at, &extent): (usize, &u32)| Axis {
        extent,
        wrap: draft.wrap.get(at).or(draft.wrap.first()).copied().unwrap_or(true),
        weight: value(at, &draft.weight),
    };
    let axes = draft.extents.iter().enumerate().map(axis).collect();
    let frame = Frame::new(axes, draft.per_router, draft.strict).map_err(|e| fault(e.to_string()))?;
    let mut cells = vec![Vec::new(); frame.cells()];
    for region in &draft.regions {
        let extents = if region.extents.is_empty() { &draft.extents } else { &region.extents };
        if extents.len() != k || (!region.at.is_empty() && region.at.len() != k) {
            return Err(Fault::new(region.line, format!("a place on this torus has {k} coordinates")));
        }
        let from = |axis: usize| region.at.get(axis).copied().unwrap_or(0);
        if (0..k).any(|axis| u64::from(from(axis)) + u64::from(extents[axis]) > u64::from(draft.extents[axis])) {
            return Err(Fault::new(region.line, "the region reaches over the torus's extents"));
        }
        let found = nodes.take(region.line, &region.nodes)?;
        let volume: u64 = extents.iter().map(|n| u64::from(*n)).product();
        let wanted = volume * u64::from(frame.per_router());
        if found.len() as u64 != wanted {
            let text = extents.iter().map(u32::to_string).collect::<Vec<_>>().join("x");
            let times =
                if frame.per_router() > 1 { format!(" with {} nodes each", frame.per_router()) } else { String::new() };
            let text = format!("{} nodes for {text}{times} = {wanted} places", found.len());
            return Err(Fault::new(region.line, text));
        }
        for (index, node) in found.into_iter().enumerate() {
            let mut left = index / frame.per_router() as usize;
            let mut at: Coords = [0; AXES_MAX];
            // The first axis varies fastest, as in Slurm.
            for axis in 0..k {
                at[axis] = from(axis) + (left % extents[axis] as usize) as u32;
                left /= extents[axis] as usize;
            }
            let cell = frame.cell(&at);
            if cells[cell].len() == frame.per_router() as usize {
                return Err(Fault::new(region.line, "the region overlaps another one"));
            }
            // An unknown node leaves a hole.
            if let Some(node) = node {
                cells[cell].push(node);
                nodes.put(node, group, cell);
            }
        }
    }
    let mut placements = Vec::new();
    for shape in &draft.placements {
        let fits = shape.len() == k && shape.iter().zip(&draft.extents).all(|(n, most)| (1..=*most).contains(n));
        if !fits {
            return Err(fault(format!("placement {shape:?} is no shape on this torus")));
        }
        let mut size = [1; AXES_MAX];
        size[..k].copy_from_slice(shape);
        placements.push(size);
    }
    Ok(Torus { name: draft.name.clone(), frame, cells, placements, order: draft.order })
}
