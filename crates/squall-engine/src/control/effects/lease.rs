//! Leases: short jobs that a node has prefetched, so that the end of one starts the next without a request to the
//! controller.
//!
//! Only the first pending job of a partition is leased. It is put into the line of a running job with an equal
//! request: it starts on the same cores when the jobs before it have ended. So no placement and no scheduling pass is
//! needed, and the cost is that of its queue position. A job with a different request waits until its resources are
//! free, and no job behind it is leased meanwhile.

use crate::control::index::leases::is_plain;
use crate::control::index::leases::is_unwanted;
use crate::control::index::leases::line_of;
use crate::control::index::leases::may_lend;
use crate::control::index::pending;
use std::sync::Arc;

use squall_model::event::Event;
use squall_model::id::{Attempt, JobId, NodeId, StepKey, StepNo};
use squall_model::job::{JobAttempt, JobSpec};
use squall_model::time::Time;
use squall_model::wire::node::Down;

use crate::control::controller::Controller;
use crate::control::effects::billing;
use crate::control::effects::work;
use crate::control::index::facts;
use crate::control::index::pending::Pending;
use crate::control::port::Out;
use crate::control::state::job::{Ending, Job, Phase};
use crate::control::state::node::Partition;
use crate::control::state::{LineId, State};
use crate::invariant::invariant;

/// Maximum number of running jobs with room in their line that are compared with the pending job to be leased.
const COMPARED: usize = 64;

/// Stores, for `after`, the job at the head of the line that an event makes shorter.
pub(crate) fn before(c: &mut Controller, _now: Time, event: &Event, _out: &mut Out) {
    c.leases.leader = match event {
        Event::LeaseReturned { id, .. } | Event::NodesReleased { id, .. } => {
            line_of(&c.state, *id).and_then(|line| c.state.lines.get(&line)?.first().copied())
        }
        _ => None,
    };
}

/// Updates which running jobs' lines can take more leased jobs, after an event.
pub(crate) fn after(c: &mut Controller, _now: Time, event: &Event) {
    if let Some(leader) = c.leases.leader.take() {
        c.leases.look(&c.state, leader);
    }
    match event {
        Event::JobStarted { id, .. }
        | Event::JobAwake { id, .. }
        | Event::NodeReplaced { id, .. }
        | Event::JobEnding { id, .. }
        | Event::NodesReleased { id, .. } => c.leases.look(&c.state, *id),
        Event::JobLeased { behind, .. } => c.leases.look(&c.state, *behind),
        Event::Configured { .. } | Event::PartitionChanged { .. } | Event::NodesRemoved { .. } => {
            c.leases.rebuild(&c.state);
            review(c);
        }
        Event::NodesSet { .. } | Event::PartitionSet { .. } | Event::ReservationSet { .. } | Event::JobHeld { .. } => {
            review(c);
        }
        _ => {}
    }
}

/// Returns whether a pending job is of the kind that may be leased to a node; the state of the partition is not
/// considered.
fn may_be_leased(state: &State, pending: &Pending<'_>, partition: &str) -> bool {
    let requeues = pending.spec.requeue.unwrap_or(state.config.job_requeue);
    let limit = pending.standing.time_limit_s.or(pending.spec.limit_s());
    let limit = limit.unwrap_or_else(|| facts::default_limit_s(state, partition));
    let bound = pending.group(state).is_some() || pending.is_limited(state);
    is_plain(pending.spec) && requeues && limit.is_some() && pending.het.is_none() && !bound
}

/// Returns whether jobs of a partition may be leased to nodes now. They may not if jobs of another partition wait for
/// its nodes.
fn lends(c: &Controller, at: usize) -> bool {
    let state = &c.state;
    let partition = &state.partitions[at];
    let shared = |other: &Partition| !other.nodes.is_disjoint(&partition.nodes);
    let others = state.partitions.iter().enumerate().filter(|(other, _)| *other != at);
    let mut waiting = others.filter(|(other, _)| c.queue.head(*other).is_some());
    may_lend(state, partition) && !waiting.any(|(_, other)| shared(other))
}

/// Leases pending jobs to nodes, as long as the first pending job of some partition can be leased.
pub(crate) fn grant(c: &mut Controller, now: Time, out: &mut Out) {
    if c.leases.room.is_empty() || c.disk_full || c.leaving.is_some() || c.queue.keeps_apart {
        return;
    }
    // A leased job would start before the controller's prolog.
    if !c.state.config.hooks.prolog_slurmctld.is_empty() {
        return;
    }
    for at in 0..c.state.partitions.len() {
        while lends(c, at) && grant_one(c, now, at, out) {}
    }
}

/// Leases the first pending job of a partition to a node. Returns whether the next pending job may be leased, too.
fn grant_one(c: &mut Controller, now: Time, at: usize, out: &mut Out) -> bool {
    let Some(item) = c.queue.head(at) else { return false };
    let Some(pending) = pending::pending(&c.state, item) else { return false };
    if !may_be_leased(&c.state, &pending, &c.state.partitions[at].config.name) {
        return false;
    }
    let avoid = c.state.index.avoid.get(&item.id);
    let here = c.leases.room.range((at, 0, JobId(0))..(at + 1, 0, JobId(0))).take(COMPARED);
    let fits = |id: &JobId| {
        let found = c.state.jobs.get(id).and_then(|job| Some((job, job.run()?.batch_node()?)));
        found.is_some_and(|(job, node)| {
            let avoided = avoid.is_some_and(|avoid| avoid.contains(node));
            asks_the_same(&job.spec, pending.spec)
                && has_room(job, pending.spec)
                && c.queue.reachable.contains(node)
                && !avoided
        })
    };
    let Some(behind) = here.map(|(_, _, id)| *id).find(fits) else { return false };
    let id = if item.array { pending::next_task(&c.state, item.id) } else { Some(item.id) };
    let Some(id) = id else { return false };
    let attempt = c.state.jobs.get(&id).map_or(Attempt(0), |job| job.attempt);
    let kick = c.queue.kick;
    c.commit(now, Event::JobLeased { id, attempt: Attempt(attempt.0 + 1), behind }, out);
    billing::record(c, now, id, out);
    work::enter_all(c, now, out);
    // No resources have become free, so a next job with the same request would not fit either. A different request
    // needs a scheduling pass.
    c.queue.kick = kick || !c.queue.next_is_alike(&c.state, at, id);
    !c.queue.kick
}

/// Returns whether a running job holds enough CPUs for the request `spec`. The job may have given back nodes, so an
/// equal request is not enough.
fn has_room(job: &Job, spec: &JobSpec) -> bool {
    let need = &spec.need;
    let cpus = job.run().map_or(0, |run| run.alloc.cpus());
    need.nodes_min.unwrap_or(1) <= 1 && need.tasks_on(1).saturating_mul(need.task_cpus()) <= cpus
}

/// Returns whether two jobs have equal requests, so that one can run on the resources of the other.
fn asks_the_same(one: &Arc<JobSpec>, other: &Arc<JobSpec>) -> bool {
    Arc::ptr_eq(one, other) || (one.need == other.need && one.options.network == other.options.network)
}

/// Records that a leased job has begun, as its node has reported about its script.
pub(crate) fn begun(c: &mut Controller, now: Time, key: StepKey, out: &mut Out) {
    if key.step != StepNo::BATCH || c.state.lines.is_empty() {
        return;
    }
    let job = c.state.jobs.get(&key.job).filter(|job| job.attempt == key.attempt && job.has_not_begun());
    // because most reports are of scripts that were not leased, or whose begin is known
    let Some(job) = job else { return };
    // An end that was decided before this report is applied after it.
    let decided = if let Phase::Completing(_, ending) = &job.phase { Some((**ending).clone()) } else { None };
    begin(c, now, key.job, out);
    if let Some(Ending { outcome, requeue, .. }) = decided {
        c.commit(now, Event::JobEnding { id: key.job, outcome, requeue }, out);
    }
}

/// Records that the next leased job of a line has begun, as the job before it has ended.
pub(crate) fn advance(c: &mut Controller, now: Time, line: Option<LineId>, out: &mut Out) {
    if let Some(next) = line.and_then(|line| c.state.next_in_line(line)) {
        begin(c, now, next, out);
    }
}

fn begin(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    let Some(job) = c.state.jobs.get(&id) else { return invariant!("a leased job is known") };
    let Some(run) = job.run() else { return invariant!("a leased job has resources") };
    let (attempt, partition, alloc) = (job.attempt, run.partition.clone(), run.alloc.clone());
    c.commit(now, Event::JobStarted { id, attempt, partition, alloc }, out);
    // The node has the job already.
    c.todo.starting.retain(|starting| *starting != id);
}

/// Recalls from their nodes the leased jobs that should no longer start there.
fn review(c: &mut Controller) {
    let leased = |id: &&JobId| c.state.jobs.get(id).is_some_and(|job| job.is_leased());
    let unwanted = c.state.lines.values().flatten().filter(leased).filter(|id| is_unwanted(&c.state, **id));
    let recalls: Vec<(NodeId, JobAttempt)> = unwanted.filter_map(|id| whose(&c.state, *id)).collect();
    for (node, job) in recalls {
        c.links.push(node, Down::Recall { job });
    }
}

fn whose(state: &State, id: JobId) -> Option<(NodeId, JobAttempt)> {
    let job = state.jobs.get(&id)?;
    Some((job.run()?.batch_node()?, JobAttempt { job: id, attempt: job.attempt }))
}
