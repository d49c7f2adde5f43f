//! Reboots of nodes: each is ordered when no job is on the node, and is over when the node comes back. A job may want
//! its nodes rebooted: it holds them meanwhile, and no node hears of it before all are back.

use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{Incarnation, JobId, NodeId};
use squall_model::job::JobAttempt;
use squall_model::power::Reboot;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::node::Down;

use crate::control::controller::Controller;
use crate::control::index::power::Times;
use crate::control::index::timers::Timer;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::job::Job;
use crate::control::state::node::Node;
use crate::invariant::invariant;

/// Requests the reboot of the nodes of a job that has just started, if the job wants that (`--reboot`). Those that are
/// being powered up boot anyway.
pub(crate) fn before_job(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    // because few jobs want a reboot, and there may be no program for it
    let Some(job) = c.state.jobs.get(&id).filter(|job| job.reboots()) else { return };
    let Some(run) = job.run().filter(|_| !c.state.config.health.reboot_program.is_empty()) else { return };
    let is_up = |id: &NodeId| c.state.node(*id).is_some_and(|node| !node.sleeps() && node.reboot.is_none());
    let nodes: NodeSet = run.left.iter().filter(is_up).collect();
    if !nodes.is_empty() {
        let (by, job) = (job.owner.uid, Some(JobAttempt { job: id, attempt: job.attempt }));
        let reboot = Some(Box::new(Reboot { asap: true, by, job, ..Reboot::default() }));
        c.commit(now, Event::NodesReboot { nodes, reboot }, out);
    }
}

/// Returns whether an attempt that waits for its nodes waits for the reboot of this one.
pub(crate) fn is_awaited(state: &State, job: &Job, node: NodeId) -> bool {
    let reboot = state.node(node).and_then(|node| node.reboot.as_ref());
    reboot.is_some_and(|reboot| job.reboots() || reboot.issued.is_some() || reboot.job.is_some())
}

/// Orders the reboots that are due: the node is connected, and no job is on it but those that wait for their nodes.
pub(crate) fn settle(c: &mut Controller, now: Time, out: &mut Out) {
    while let Some(id) = c.todo.reboots.pop_first() {
        let Some(node) = c.state.node(id) else {
            invariant!("a node with a reboot to come is counted");
            continue;
        };
        // because the reboot may have been called off, or the node may never have registered
        let Some((reboot, incarnation)) = node.reboot.clone().zip(node.incarnation) else { continue };
        if reboot.issued.is_some() {
            continue;
        }
        if reboot.job.is_some_and(|job| !waits(&c.state, node, job.job)) {
            over(c, now, id, out);
            continue;
        }
        let known = node.jobs.iter().any(|job| !waits(&c.state, node, *job));
        if known || c.links.get(id).is_none() || c.strays.contains_key(&id) {
            continue;
        }
        let reboot = Some(Box::new(Reboot { issued: Some(now), ..*reboot }));
        c.commit(now, Event::NodesReboot { nodes: NodeSet::one(id), reboot }, out);
        c.links.push(id, Down::Reboot { incarnation });
        c.timers.set(Timer::Reboot(id), now + Times::of(&c.state, id).up);
    }
}

/// Returns whether a job holds a node and waits for its nodes, so that the node does not know it.
fn waits(state: &State, node: &Node, id: JobId) -> bool {
    let job = state.jobs.get(&id).filter(|job| node.jobs.contains(&id) && job.is_running());
    job.and_then(|job| job.run()).is_some_and(|run| run.booting.is_some())
}

/// Sets the timers of reboots that were ordered before a restart of the controller, and looks for others that are due.
pub(crate) fn started(c: &mut Controller, now: Time) {
    for at in 0..c.state.nodes.len() {
        let id = NodeId(at as u32);
        // because most nodes have no reboot to come
        let Some(reboot) = c.state.nodes[at].reboot.as_ref() else { continue };
        if reboot.issued.is_some() {
            c.timers.set(Timer::Reboot(id), now + Times::of(&c.state, id).up);
        } else {
            c.todo.reboots.insert(id);
        }
    }
}

/// Handles the registration of a node with a reboot to come. A node that has rebooted gets the state that the operator
/// wanted; one that has not is ordered again.
pub(crate) fn registered(c: &mut Controller, now: Time, id: NodeId, before: Option<Incarnation>, out: &mut Out) {
    let Some(node) = c.state.node(id) else { return invariant!("a registered node is counted") };
    // because most nodes have no reboot to come
    let Some(reboot) = node.reboot.clone() else { return };
    if reboot.issued.is_none() {
        c.todo.reboots.insert(id);
        return;
    }
    if node.incarnation == before {
        if let Some(incarnation) = before {
            c.links.push(id, Down::Reboot { incarnation });
        }
        return;
    }
    let admin = reboot.next.unwrap_or(node.admin);
    let reason = reboot.reason.clone().filter(|_| admin != NodeAdmin::Resume);
    over(c, now, id, out);
    if reboot.job.is_some() {
        return;
    }
    c.commit(now, Event::NodesSet { nodes: NodeSet::one(id), admin, reason, by: reboot.by }, out);
}

/// Ends a reboot of which nothing more is to come.
fn over(c: &mut Controller, now: Time, id: NodeId, out: &mut Out) {
    c.timers.clear(Timer::Reboot(id));
    c.commit(now, Event::NodesReboot { nodes: NodeSet::one(id), reboot: None }, out);
}

/// Sets a node down that did not come back from its reboot.
pub(crate) fn failed(c: &mut Controller, now: Time, id: NodeId, why: &str, out: &mut Out) {
    let issued = c.state.node(id).and_then(|node| node.reboot.as_ref()).is_some_and(|reboot| reboot.issued.is_some());
    if issued {
        over(c, now, id, out);
        let (nodes, admin, reason) = (NodeSet::one(id), NodeAdmin::Down, Some(why.to_owned()));
        c.commit(now, Event::NodesSet { nodes, admin, reason, by: 0 }, out);
    }
}
