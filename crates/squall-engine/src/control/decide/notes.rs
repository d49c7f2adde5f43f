//! Reports of nodes about programs around jobs and about themselves: failed prologs, epilogs and checks.

use std::collections::BTreeMap;

use squall_model::event::{Event, NodeAdmin};
use squall_model::fault::FaultKind;
use squall_model::id::{NodeId, StepKey, StepNo};
use squall_model::job::JobAttempt;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::hook::NodeNote;

use crate::control::controller::Controller;
use crate::control::decide::reports::held;
use crate::control::effects::checkpoint;
use crate::control::effects::faults;
use crate::control::effects::lease;
use crate::control::effects::programs;
use crate::control::effects::reboot;
use crate::control::port::Out;

/// Beginning of the reason for which a node is drained by a check.
const UNHEALTHY: &str = "Health check failed";
/// Characters of a node's text in a reason, at most.
const REASON_CHARS_MAX: usize = 200;

/// Handles reports about programs and about nodes. Of what several say of one node's health only the last counts.
pub(crate) fn all_noted(c: &mut Controller, now: Time, notes: Vec<(NodeId, NodeNote)>, out: &mut Out) {
    let mut health = BTreeMap::new();
    for (node, note) in notes {
        match note {
            NodeNote::Health { .. } => drop(health.insert(node, note)),
            note => noted(c, now, node, note, out),
        }
    }
    for (node, note) in health {
        noted(c, now, node, note, out);
    }
}

/// Handles a report about a program or about the node.
fn noted(c: &mut Controller, now: Time, node: NodeId, note: NodeNote, out: &mut Out) {
    match note {
        NodeNote::Prolog { job, error: Some(error) } => prolog_failed(c, now, node, (job, &error), out),
        NodeNote::Prolog { job, error: None } => programs::prolog_succeeded(c, node, job),
        NodeNote::Epilog { job, .. } => drain_for(c, now, node, job, "Epilog error", out),
        NodeNote::Unkillable { job } => drain_for(c, now, node, job, "Kill task failed", out),
        NodeNote::Health { error: Some(error) } => {
            let fresh = c.state.node(node).is_some_and(|node| node.admin == NodeAdmin::Resume);
            drain(c, now, node, format!("{UNHEALTHY}: {}", line(&error)), out);
            if fresh {
                faults::found(c, now, node, (FaultKind::Health, None), out);
            }
        }
        NodeNote::Health { error: None } => recovered(c, now, node, out),
        NodeNote::Checkpoint(note) => checkpoint::noted(c, now, node, &note, out),
        NodeNote::AfterFault { fault, error } => {
            faults::checked(c, now, node, (fault, error.map(|error| line(&error))), out);
        }
        NodeNote::Reboot { error } => reboot::failed(c, now, node, &format!("reboot failed: {}", line(&error)), out),
    }
}

/// Returns a text of a node as part of a reason: without control characters, and not too long.
fn line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(REASON_CHARS_MAX).collect()
}

/// Drains a node that accepts jobs. A node that is drained or down already keeps its reason.
pub(crate) fn drain(c: &mut Controller, now: Time, id: NodeId, reason: String, out: &mut Out) {
    if c.state.node(id).is_some_and(|node| node.admin == NodeAdmin::Resume) {
        let (nodes, admin, reason) = (NodeSet::one(id), NodeAdmin::Drain, Some(reason));
        c.commit(now, Event::NodesSet { nodes, admin, reason, by: 0 }, out);
    }
}

/// Drains a node because of a job that it still holds. A repeated report about a job that it has released has no
/// effect.
fn drain_for(c: &mut Controller, now: Time, node: NodeId, job: JobAttempt, reason: &str, out: &mut Out) {
    if held(c, &NodeSet::one(node), job).is_some() {
        drain(c, now, node, reason.to_owned(), out);
        faults::found(c, now, node, (FaultKind::Cleanup, Some(job.job)), out);
    }
}

/// Returns a node to service after a check that succeeded, if a check drained it and the configuration wants that.
fn recovered(c: &mut Controller, now: Time, id: NodeId, out: &mut Out) {
    // because the configuration may leave it to operators to return a node
    let Some(node) = c.state.node(id).filter(|_| c.state.config.health.resume) else { return };
    let by_check = node.reason.as_ref().is_some_and(|reason| reason.text.starts_with(UNHEALTHY));
    if node.admin == NodeAdmin::Drain && by_check {
        let (nodes, admin) = (NodeSet::one(id), NodeAdmin::Resume);
        c.commit(now, Event::NodesSet { nodes, admin, reason: None, by: 0 }, out);
    }
}

/// Drains the node of a failed prolog. A batch job is requeued and avoids the node; another job ends.
fn prolog_failed(c: &mut Controller, now: Time, node: NodeId, (job, error): (JobAttempt, &str), out: &mut Out) {
    let JobAttempt { job: id, attempt } = job;
    if held(c, &NodeSet::one(node), job).is_none() {
        return;
    }
    lease::begun(c, now, StepKey { job: id, attempt, step: StepNo::BATCH }, out);
    drain(c, now, node, "Prolog error".to_owned(), out);
    faults::found(c, now, node, (FaultKind::Launch, Some(id)), out);
    let name = c.state.node(node).map_or("", |node| node.name.as_str());
    let reason = format!("Prolog error on {name}: {}", line(error));
    programs::fail_start(c, now, id, Some(node), reason, out);
}
