//! Scripts that start again in place: a node of a job with `--on-node-fail=replace` has failed that ran the script.
//!
//! The attempt ends on all nodes. These are kept for the job, with a spare or free node in place of the failed one, and the
//! next attempt starts there when nothing is left of the last one. If the job can't have them, because one of them fails as
//! well or the controller dies, it goes to the head of the queue.

use squall_model::event::Event;
use squall_model::id::{Attempt, JobId, NodeId};
use squall_model::time::Time;

use crate::control::controller::Controller;
use crate::control::effects::{billing, notice, replace};
use crate::control::index::next::NextStart;
use crate::control::port::Out;
use crate::control::state::job::{Hold, Phase};
use crate::control::state::node::Partition;

/// Keeps the other nodes of a running job for its next attempt, with another node in place of the one that failed. Returns
/// false if there is no such node.
pub(crate) fn keep(c: &mut Controller, now: Time, id: JobId, lost: NodeId) -> bool {
    let Some(kept) = next_start(c, now, id, lost) else { return false };
    let nodes = kept.alloc.nodes();
    c.kept.insert(id, kept);
    nodes.iter().for_each(|node| notice::refresh(c, node));
    true
}

fn next_start(c: &mut Controller, now: Time, id: JobId, lost: NodeId) -> Option<NextStart> {
    let job = c.state.jobs.get(&id)?;
    let Phase::Running(run) = &job.phase else { return None };
    let is_bound = c.state.gang.contains_key(&id) || c.state.het_of(id).is_some();
    let mut rest = run.alloc.nodes();
    rest.remove(lost);
    let waits = run.booting.is_some() || job.reboots() || !run.vacant().is_empty();
    if is_bound || waits || !rest.is_subset(&c.queue.reachable) {
        return None;
    }
    let mut kept =
        NextStart { partition: run.partition.clone(), alloc: run.alloc.split(&rest).0, gres: run.gres.clone() };
    kept.gres.iter_mut().for_each(|grant| grant.nodes.intersect_with(&rest));
    kept.gres.retain(|grant| !grant.nodes.is_empty());
    if replace::spare_for(c, id, lost).is_none() {
        let vacancy = c.state.held_on(now, id, lost)?;
        let (node, given) = replace::free_for(c, now, id, &vacancy)?;
        // A node that has to be switched on would keep the others waiting.
        c.links.get(node)?;
        given.alloc.groups.into_iter().for_each(|group| kept.alloc.add(group));
        kept.gres.extend(given.gres);
    }
    Some(kept)
}

/// Returns whether a node is kept for a job.
pub(crate) fn is_kept(c: &Controller, node: NodeId) -> bool {
    c.kept.values().any(|kept| kept.alloc.on(node).is_some())
}

/// Keeps nothing any more for jobs that would have got a node which can't be used.
pub(crate) fn node_failed(c: &mut Controller, node: NodeId) {
    while let Some(id) = c.kept.iter().find(|(_, kept)| kept.alloc.on(node).is_some()).map(|(id, _)| *id) {
        forget(c, id);
    }
}

/// Keeps nothing any more for a job. Returns what was kept.
pub(crate) fn forget(c: &mut Controller, id: JobId) -> Option<NextStart> {
    let kept = c.kept.remove(&id)?;
    kept.alloc.nodes().iter().for_each(|node| notice::refresh(c, node));
    c.queue.kick = true;
    Some(kept)
}

/// Starts the jobs again of whose last attempt nothing is left, on the nodes that are kept for them.
pub(crate) fn settle(c: &mut Controller, now: Time, out: &mut Out) {
    while let Some(id) = c.todo.again.pop_first() {
        // because a node may have failed in the same turn
        let Some(kept) = forget(c, id) else { continue };
        if !may_start(c, id, &kept) {
            continue;
        }
        let attempt = c.state.jobs.get(&id).map_or(Attempt(0), |job| job.attempt);
        let NextStart { partition, alloc, gres } = kept;
        c.commit(now, Event::JobStarted { id, attempt: Attempt(attempt.0 + 1), partition, alloc }, out);
        if !gres.is_empty() {
            c.commit(now, Event::GresGranted { job: id, step: None, grants: gres }, out);
        }
        billing::record(c, now, id, out);
    }
}

fn may_start(c: &Controller, id: JobId, kept: &NextStart) -> bool {
    let waits = c.state.jobs.get(&id).is_some_and(|job| job.is_pending() && job.queue.hold == Hold::No);
    let serves = !c.disk_full && c.leaving.is_none();
    let starts = c.state.partition(&kept.partition).is_some_and(Partition::starts_jobs);
    let is_free = |node: NodeId| {
        let group = kept.alloc.on(node).zip(c.state.node(node));
        group.is_some_and(|(group, node)| node.cores.is_disjoint(&group.cores)) && c.queue.reachable.contains(node)
    };
    // Where jobs keep others off their nodes or blocks, a pass finds out next to which jobs this one may run.
    waits && serves && starts && !c.queue.keeps_apart && kept.alloc.nodes().iter().all(is_free)
}
