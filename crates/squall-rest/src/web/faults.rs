//! What is wrong with the cluster, by node where it is a node, with its reason.

use squall_model::wire::info::{Diag, NodeInfo};

use crate::cluster::Controller;
use crate::web::html::{Html, encoded};
use crate::web::places;

/// Index of nodes that are down in [`places::LOOKS`].
const DOWN: usize = 6;
/// Most nodes that are named.
const NAMED: usize = 5;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Name of the node; empty: it is not of one.
    pub(crate) node: String,
    /// What is wrong, in words that follow the node's name.
    pub(crate) text: String,
}

impl Fault {
    fn of_cluster(text: String) -> Self {
        Self { node: String::new(), text }
    }
}

/// Returns what is wrong.
pub(crate) fn found(controller: &Controller, diag: &Diag, all: &[NodeInfo]) -> Vec<Fault> {
    let mut faults = Vec::new();
    faults.extend(
        controller.trouble.iter().map(|trouble| Fault::of_cluster(format!("Submissions are refused: {trouble}."))),
    );
    if diag.broken > 0 {
        let broken = match diag.broken {
            1 => "A broken invariant was".to_owned(),
            count => format!("{count} broken invariants were"),
        };
        faults.push(Fault::of_cluster(format!("{broken} found: a bug of the program.")));
    }
    let is_down = |node: &&NodeInfo| !node.future && places::look(node) == DOWN;
    let is_silent = |node: &&NodeInfo| node.known && !node.responds && !is_down(node);
    of_nodes(&mut faults, all.iter().filter(is_down), "is down");
    of_nodes(&mut faults, all.iter().filter(is_silent), "does not answer");
    faults
}

/// Adds that nodes are in a state: the first ones by name, with their reason.
fn of_nodes<'a>(faults: &mut Vec<Fault>, nodes: impl Iterator<Item = &'a NodeInfo>, state: &str) {
    let mut more = 0_u32;
    for (at, node) in nodes.enumerate() {
        if at >= NAMED {
            more += 1;
            continue;
        }
        let reason = node.reason.as_ref().map(|(reason, ..)| reason.trim()).filter(|reason| !reason.is_empty());
        let text = reason.map_or_else(|| format!("{state}."), |reason| format!("{state}: {reason}"));
        faults.push(Fault { node: node.name.clone(), text });
    }
    match more {
        0 => {}
        1 => faults.push(Fault::of_cluster(format!("One more node {state}."))),
        more => {
            let state = state.replace("is ", "are ").replace("does ", "do ");
            faults.push(Fault::of_cluster(format!("{more} more nodes {state}.")));
        }
    }
}

/// Appends what is wrong, if anything is.
pub(crate) fn list(body: &mut Html, faults: &[Fault]) {
    if faults.is_empty() {
        return;
    }
    body.raw("<div class=\"faults\" role=\"status\" id=\"faults\"><ul>");
    for fault in faults {
        body.raw("<li>✕ ");
        if fault.node.is_empty() {
            body.put("{}</li>", &[&fault.text]);
        } else {
            let (path, name) = (encoded(&fault.node), &fault.node);
            body.put("Node <a href=\"/node/{}\">{}</a> <bdi>{}</bdi></li>", &[&path, name, &fault.text]);
        }
    }
    body.raw("</ul></div>");
}
