//! `scontrol show topology [NAME]`.

use std::fmt::Write;

use squall_model::hostlist;
use squall_model::id::NodeId;
use squall_model::set::NodeSet;
use squall_model::wire::client::{Answer, Request};
use squall_sched::topology::{Group, Source, Topology, TopologyKind};

use crate::command::listing::call::{Call, Fail};
use squall_client::unexpected;

const WHAT: &str = "slurm_load_topo error";

/// Prints the network's topology in Slurm's format. With a name: the switches and blocks that have this name or contain
/// this node.
pub(super) fn show(call: &mut Call<'_>, ids: &[String]) -> Result<(), Fail> {
    let config = match call.controller.ask(&Request::Config) {
        Ok(Answer::Config(config)) => *config,
        Ok(_) => return call.failed(WHAT, &unexpected()),
        Err(e) => return call.failed(WHAT, &e),
    };
    let mut names: Vec<String> = Vec::new();
    for node in &config.nodes {
        names.extend(hostlist::expand(&node.name).unwrap_or_default());
    }
    let file = &config.topology;
    let (plugin, param) = (&config.topology_plugin, &config.topology_param);
    let source = Source { name: &file.name, text: &file.text, plugin, param };
    let node = |name: &str| names.iter().position(|known| known == name).map(|at| NodeId(at as u32));
    let topology = if file.name.is_empty() {
        Topology::default()
    } else {
        match Topology::read(&source, &node, &[]) {
            Ok(topology) => topology,
            Err(fault) => return call.fail(&format!("{}: {fault}", file.name)),
        }
    };
    if topology.is_flat() {
        call.print("No topology information available\n");
        return Ok(());
    }
    let rows = rows(&topology, &names);
    let wanted = |row: &&Row| ids.first().is_none_or(|id| row.name == *id || row.nodes.iter().any(|name| name == id));
    let shown: Vec<&Row> = rows.iter().filter(wanted).collect();
    if shown.is_empty() {
        call.print(&format!("Topology information contains no switch or block named {}\n", ids[0]));
        return Ok(());
    }
    let text = shown.into_iter().fold(String::new(), |mut text, row| {
        let _ = writeln!(text, "{}", row.text);
        text
    });
    call.print(&text);
    Ok(())
}

/// One line of the output: a switch or block, with its nodes.
struct Row {
    name: String,
    nodes: Vec<String>,
    text: String,
}

fn rows(topology: &Topology, names: &[String]) -> Vec<Row> {
    let named =
        |nodes: &NodeSet| -> Vec<String> { nodes.iter().filter_map(|node| names.get(node.index())).cloned().collect() };
    let row = |name: &str, nodes: Vec<String>, text: &dyn Fn(&str) -> String| {
        let list = hostlist::compress(&nodes);
        Row { name: name.to_owned(), text: text(&list), nodes }
    };
    let of = |group: &Group| named(&group.nodes.iter().copied().collect());
    match &topology.kind {
        TopologyKind::Flat => Vec::new(),
        TopologyKind::Tree { switches, .. } => {
            let mut order: Vec<usize> = (0..switches.len()).collect();
            order.sort_by_key(|at| switches[*at].level);
            let line = |at: usize| {
                let switch = &switches[at];
                let below = switch.children.iter().map(|child| switches[*child].name.as_str());
                let below = hostlist::compress(below);
                row(&switch.name, named(&switch.nodes), &|nodes| {
                    let head = format!("SwitchName={} Level={} LinkSpeed={}", switch.name, switch.level, switch.speed);
                    if below.is_empty() {
                        format!("{head} Nodes={nodes}")
                    } else {
                        format!("{head} Nodes={nodes} Switches={below}")
                    }
                })
            };
            order.into_iter().map(line).collect()
        }
        TopologyKind::Block { blocks, sizes } => {
            let size = sizes.first().copied().unwrap_or_default();
            let line = |(at, block): (usize, &Group)| {
                row(&block.name, of(block), &|nodes| {
                    format!("BlockName={} BlockIndex={at} Nodes={nodes} BlockSize={size}", block.name)
                })
            };
            blocks.iter().enumerate().map(line).collect()
        }
        TopologyKind::Ring(rings) => {
            let line = |(at, ring): (usize, &Group)| {
                row(&ring.name, of(ring), &|nodes| {
                    format!("RingName={} RingIndex={at} Nodes={nodes} RingSize={}", ring.name, ring.nodes.len())
                })
            };
            rings.iter().enumerate().map(line).collect()
        }
        TopologyKind::Torus(tori) => {
            let line = |(at, torus): (usize, &squall_sched::topology::Torus)| {
                let nodes = named(&torus.cells.iter().flatten().copied().collect());
                row(&torus.name, nodes, &|nodes| {
                    let dims = torus.frame.text(&torus.frame.size());
                    format!(
                        "TorusName={} TorusIndex={at} Dims={dims} NodesPerRouter={} Nodes={nodes}",
                        torus.name,
                        torus.frame.per_router()
                    )
                })
            };
            tori.iter().enumerate().map(line).collect()
        }
    }
}
