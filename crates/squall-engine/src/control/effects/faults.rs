//! Faults of nodes: they are recorded, so that jobs that suffered from one get other nodes, as do wide jobs. With
//! `after_fault` the node is drained until that program has succeeded there.

use squall_model::event::{Event, NodeAdmin};
use squall_model::fault::{FaultKind, NodeFault};
use squall_model::id::{JobId, NodeId};
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::version::ClusterVersion;
use squall_model::wire::node::Down;

use crate::control::controller::Controller;
use crate::control::port::Out;

/// Beginning of the reason for which a node is drained between a fault and its next job.
const CHECKED: &str = "after_fault";

/// Records a fault of a node, and the job that suffered from it, if one did.
pub(crate) fn found(
    c: &mut Controller,
    now: Time,
    node: NodeId,
    (kind, job): (FaultKind, Option<JobId>),
    out: &mut Out,
) {
    if c.state.cluster_version < ClusterVersion::NODE_FAULTS {
        return;
    }
    c.commit(now, Event::NodeFault(NodeFault { node, kind, job }), out);
    if c.state.config.health.after_fault.is_empty() {
        return;
    }
    if c.state.node(node).is_some_and(|node| node.admin == NodeAdmin::Resume) {
        let reason = format!("{CHECKED} has yet to run, after a fault: {}", kind.name());
        set(c, now, node, (NodeAdmin::Drain, Some(reason)), out);
    }
    order(c, node);
}

/// Returns after which fault a node is to be checked: the newest one. None: its next job need not wait for a check.
fn owed(c: &Controller, id: NodeId) -> Option<Time> {
    let node = c.state.node(id).filter(|node| node.admin == NodeAdmin::Drain)?;
    node.reason.as_ref().filter(|reason| reason.by == Some(0) && reason.text.starts_with(CHECKED))?;
    Some(node.faults.last()?.time)
}

/// Has a node checked that owes that. A node that is not connected is asked when it registers.
pub(crate) fn order(c: &mut Controller, id: NodeId) {
    if let Some(fault) = owed(c, id).filter(|_| c.links.get(id).is_some()) {
        c.links.push(id, Down::Check { fault });
    }
}

/// Handles the end of such a check. A node that passes it gets jobs again; otherwise the first line of the program's
/// output is the reason for which it is drained.
pub(crate) fn checked(
    c: &mut Controller,
    now: Time,
    id: NodeId,
    (fault, error): (Time, Option<String>),
    out: &mut Out,
) {
    if owed(c, id) != Some(fault) {
        return;
    }
    let Some(error) = error else { return set(c, now, id, (NodeAdmin::Resume, None), out) };
    // The same failure comes again with each run of the program.
    let reason = format!("{CHECKED}: {error}");
    let known = c.state.node(id).and_then(|node| node.reason.as_ref()).is_some_and(|known| known.text == reason);
    if !known {
        set(c, now, id, (NodeAdmin::Drain, Some(reason)), out);
    }
}

fn set(c: &mut Controller, now: Time, id: NodeId, (admin, reason): (NodeAdmin, Option<String>), out: &mut Out) {
    c.commit(now, Event::NodesSet { nodes: NodeSet::one(id), admin, reason, by: 0 }, out);
}
