//! Parsed topology files before validation: `topology.conf` and `topology.yaml` in Slurm's syntax, and our extensions
//! `wrap`, `weight`, `nodes_per_router`, `strict` and `order`.

use super::yaml::{self, Content, Value};
use super::{Fault, Plugin};
use crate::torus::Order;

/// A switch, block or ring as a topology file describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) line: usize,
    pub(super) name: String,
    /// Host list of the nodes in this group. None: the file names no nodes.
    pub(super) nodes: Option<String>,
    /// Host list of the switches directly below this switch. None: there are none.
    pub(super) children: Option<String>,
    pub(super) speed: u32,
}

/// A box of cells of a torus, with the nodes in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) line: usize,
    pub(super) at: Vec<u32>,
    pub(super) extents: Vec<u32>,
    pub(super) nodes: String,
}

/// A torus as described in a topology file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Torus {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) extents: Vec<u32>,
    pub(super) regions: Vec<Region>,
    pub(super) wrap: Vec<bool>,
    pub(super) weight: Vec<u32>,
    pub(super) per_router: u32,
    pub(super) strict: bool,
    /// Prism shapes that are tried first; each is a list of extents, one for each axis.
    pub(super) placements: Vec<Vec<u32>>,
    /// Linear order in which free nodes are taken for jobs that need no prism, when no prism is free.
    pub(super) order: Order,
}

/// Content of a topology file, before it is validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Draft {
    pub(super) plugin: Option<Plugin>,
    /// Number of the file's last line.
    pub(super) end: usize,
    pub(super) switches: Vec<Group>,
    pub(super) blocks: Vec<Group>,
    pub(super) sizes: Vec<(usize, u32)>,
    pub(super) rings: Vec<Group>,
    pub(super) tori: Vec<Torus>,
}

/// Parses the text of `topology.conf`.
pub(super) fn from_conf(text: &str) -> Result<Draft, Fault> {
    let mut draft = Draft { end: text.lines().count(), ..Draft::default() };
    let mut carried = String::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(more) = line.strip_suffix('\\') {
            carried.push_str(more);
            carried.push(' ');
            continue;
        }
        let whole = std::mem::take(&mut carried) + line;
        if !whole.trim().is_empty() {
            conf_line(&mut draft, at + 1, &whole)?;
        }
    }
    Ok(draft)
}

fn conf_line(draft: &mut Draft, line: usize, text: &str) -> Result<(), Fault> {
    let words = text.split_whitespace().map(|word| {
        let (key, value) =
            word.split_once('=').ok_or_else(|| Fault::new(line, format!("`{word}` is not Key=Value")))?;
        Ok((key.to_ascii_lowercase(), value.to_owned()))
    });
    let words = words.collect::<Result<Vec<(String, String)>, Fault>>()?;
    let mut group = Group { line, speed: 1, ..Group::default() };
    let mut torus = Torus { line, per_router: 1, ..Torus::default() };
    let first = words.first().map(|(key, _)| key.clone()).unwrap_or_default();
    for (key, value) in words {
        match key.as_str() {
            "switchname" | "blockname" | "ringname" if key == first => group.name = value,
            "torusname" if key == first => torus.name = value,
            "nodes" => group.nodes = Some(value),
            "switches" if first == "switchname" => group.children = Some(value),
            "linkspeed" if first == "switchname" => group.speed = number(line, &value)?,
            "blocksizes" if first == "blocksizes" || first == "blockname" => {
                for size in value.split(',') {
                    draft.sizes.push((line, number(line, size)?));
                }
            }
            "dims" if first == "torusname" => torus.extents = extents(line, &value)?,
            "wrap" if first == "torusname" => {
                torus.wrap = value.split(',').map(|word| truth(line, word)).collect::<Result<_, _>>()?;
            }
            "weight" if first == "torusname" => {
                torus.weight = value.split(',').map(|word| number(line, word)).collect::<Result<_, _>>()?;
            }
            "nodesperrouter" if first == "torusname" => torus.per_router = number(line, &value)?,
            "strict" if first == "torusname" => torus.strict = truth(line, &value)?,
            "placements" if first == "torusname" => {
                torus.placements = value.split(',').map(|shape| extents(line, shape)).collect::<Result<_, _>>()?;
            }
            "order" if first == "torusname" => torus.order = order(line, &value)?,
            _ => return Err(Fault::new(line, format!("unknown key `{key}`"))),
        }
    }
    match first.as_str() {
        "switchname" => draft.switches.push(group),
        "blockname" => draft.blocks.push(group),
        "ringname" => draft.rings.push(group),
        "blocksizes" => {}
        "torusname" => {
            if let Some(nodes) = group.nodes {
                torus.regions.push(Region { line, at: Vec::new(), extents: torus.extents.clone(), nodes });
            }
            draft.tori.push(torus);
        }
        other => {
            return Err(Fault::new(
                line,
                format!("a line begins with SwitchName, BlockName, RingName or TorusName, not `{other}`"),
            ));
        }
    }
    Ok(())
}

fn number(line: usize, text: &str) -> Result<u32, Fault> {
    text.trim().parse().map_err(|_| Fault::new(line, format!("`{text}` is not a number")))
}

fn truth(line: usize, text: &str) -> Result<bool, Fault> {
    Value { line, kind: Content::Scalar(text.trim().to_owned()) }.truth()
}

fn extents(line: usize, text: &str) -> Result<Vec<u32>, Fault> {
    text.split(['x', 'X']).map(|part| number(line, part)).collect()
}

/// Parses `topology.yaml`: the cluster's default topology, or the first one.
pub(super) fn from_yaml(text: &str) -> Result<Draft, Fault> {
    let root = yaml::parse(text)?;
    let topologies = root.list()?;
    let mut chosen = topologies.first();
    for topology in topologies {
        topology.known(&["topology", "cluster_default", "tree", "block", "flat", "ring", "torus3d", "torus"])?;
        let default = topology.get("cluster_default").map(Value::truth).transpose()?;
        if default == Some(true) {
            chosen = Some(topology);
            break;
        }
    }
    let mut draft = Draft { end: text.lines().count(), ..Draft::default() };
    let Some(topology) = chosen else { return Ok(draft) };
    let kinds = ["tree", "block", "flat", "ring", "torus3d", "torus"];
    let given: Vec<&str> = kinds.into_iter().filter(|kind| topology.get(kind).is_some()).collect();
    let [kind] = given[..] else {
        return Err(Fault::new(topology.line, "exactly one of tree, block, flat, ring and torus3d is needed"));
    };
    let Some(body) = topology.get(kind) else { return Ok(draft) };
    match kind {
        "tree" => {
            body.known(&["switches"])?;
            draft.plugin = Some(Plugin::Tree);
            draft.switches = groups(body, "switches", "switch", &["children"])?;
        }
        "block" => {
            body.known(&["block_sizes", "blocks"])?;
            draft.plugin = Some(Plugin::Block);
            for size in body.get("block_sizes").map_or(Ok(&[][..]), Value::list)? {
                draft.sizes.push((size.line, size.number()?));
            }
            draft.blocks = groups(body, "blocks", "block", &[])?;
        }
        "ring" => {
            body.known(&["rings"])?;
            draft.plugin = Some(Plugin::Ring);
            draft.rings = groups(body, "rings", "ring", &[])?;
        }
        "torus3d" | "torus" => {
            draft.plugin = Some(Plugin::Torus3d);
            draft.tori = tori(body)?;
        }
        _ => draft.plugin = Some(Plugin::Flat),
    }
    Ok(draft)
}

fn groups(body: &Value, list: &str, name: &str, more: &[&str]) -> Result<Vec<Group>, Fault> {
    let list = body.get(list).ok_or_else(|| Fault::new(body.line, format!("`{list}` is missing")))?;
    let group = |item: &Value| {
        let keys: Vec<&str> = [name, "nodes"].into_iter().chain(more.iter().copied()).collect();
        item.known(&keys)?;
        let text = |key: &str| item.get(key).map(|value| value.text().map(str::to_owned)).transpose();
        let called = text(name)?.filter(|name| !name.is_empty());
        Ok(Group {
            line: item.line,
            name: called.ok_or_else(|| Fault::new(item.line, format!("`{name}` is missing")))?,
            nodes: text("nodes")?,
            children: text("children")?,
            speed: 1,
        })
    };
    list.list()?.iter().map(group).collect()
}

/// Parses a list under `toruses:`, or one torus directly.
fn tori(body: &Value) -> Result<Vec<Torus>, Fault> {
    let many = body.get("toruses").or_else(|| body.get("tori"));
    let items = match many {
        Some(many) => many.list()?,
        None if matches!(body.kind, Content::List(_)) => body.list()?,
        None => std::slice::from_ref(body),
    };
    items.iter().map(torus).collect()
}

const TORUS: &[&str] = &[
    "name",
    "torus",
    "dims",
    "nodes",
    "regions",
    "placements",
    "wrap",
    "weight",
    "nodes_per_router",
    "nodes_per_cell",
    "strict",
    "shapes",
    "order",
];

fn torus(item: &Value) -> Result<Torus, Fault> {
    item.known(TORUS)?;
    let name = item.get("name").or_else(|| item.get("torus"));
    let dims = item.get("dims").ok_or_else(|| Fault::new(item.line, "`dims` is missing"))?;
    let extents = axes(dims)?;
    let mut regions = Vec::new();
    match (item.get("nodes"), item.get("regions")) {
        (Some(_), Some(regions)) => {
            return Err(Fault::new(regions.line, "`nodes` and `regions` exclude each other"));
        }
        (Some(nodes), None) => {
            let nodes =
                Region { line: nodes.line, at: Vec::new(), extents: extents.clone(), nodes: nodes.text()?.into() };
            regions.push(nodes);
        }
        (None, Some(list)) => {
            for region in list.list()? {
                region.known(&["nodes", "anchor", "dims"])?;
                let missing = |key: &str| Fault::new(region.line, format!("a region needs `{key}`"));
                regions.push(Region {
                    line: region.line,
                    at: region.get("anchor").map(axes).transpose()?.unwrap_or_default(),
                    extents: axes(region.get("dims").ok_or_else(|| missing("dims"))?)?,
                    nodes: region.get("nodes").ok_or_else(|| missing("nodes"))?.text()?.into(),
                });
            }
        }
        (None, None) => return Err(Fault::new(item.line, "`nodes` or `regions` is missing")),
    }
    let mut placements = Vec::new();
    let any = item.get("shapes").is_some_and(|shapes| shapes.text().is_ok_and(|text| text == "any"));
    for placement in item.get("placements").filter(|_| !any).map_or(Ok(&[][..]), Value::list)? {
        let dims = placement.get("dims").ok_or_else(|| Fault::new(placement.line, "a placement needs `dims`"))?;
        placements.push(axes(dims)?);
    }
    let router = item.get("nodes_per_router").or_else(|| item.get("nodes_per_cell"));
    Ok(Torus {
        line: dims.line,
        name: name.map_or(Ok("torus"), Value::text)?.to_owned(),
        extents,
        regions,
        wrap: item.get("wrap").map_or(Ok(Vec::new()), |wrap| by_axis(wrap).iter().map(|v| v.truth()).collect())?,
        weight: item.get("weight").map_or(Ok(Vec::new()), axes)?,
        per_router: router.map_or(Ok(1), Value::number)?,
        strict: item.get("strict").map_or(Ok(false), Value::truth)?,
        placements,
        order: item.get("order").map_or(Ok(Order::default()), |value| order(value.line, value.text()?))?,
    })
}

/// Parses the name of a linear order of cells: `2Y`, `4Y`, `hilbert` or `default`.
fn order(line: usize, text: &str) -> Result<Order, Fault> {
    Order::named(text)
        .ok_or_else(|| Fault::new(line, format!("there is no order `{text}`; use hilbert, 2Y, 4Y or default")))
}

/// Parses extents such as `{x: 4, y: 4, z: 4}`, `[4, 4, 4]` or `4x4x4`.
fn axes(value: &Value) -> Result<Vec<u32>, Fault> {
    match &value.kind {
        Content::Scalar(text) => extents(value.line, text),
        Content::List(_) | Content::Map(_) => by_axis(value).into_iter().map(Value::number).collect(),
    }
}

/// Returns the values of a list or map with one value for each axis, in the order of the axes: x, y, z, then the other
/// letters.
fn by_axis(value: &Value) -> Vec<&Value> {
    match &value.kind {
        Content::Scalar(_) => vec![value],
        Content::List(items) => items.iter().collect(),
        Content::Map(entries) => {
            let mut named: Vec<(&str, &Value)> = entries.iter().map(|(name, value)| (name.as_str(), value)).collect();
            named.sort_by_key(|(name, _)| *name);
            // x, y, z come first in this order, then a, b, c, as on Tofu.
            named.sort_by_key(|(name, _)| !matches!(*name, "x" | "y" | "z"));
            named.into_iter().map(|(_, value)| value).collect()
        }
    }
}
