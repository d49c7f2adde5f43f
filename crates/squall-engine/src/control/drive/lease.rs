//! Leases: short jobs that a node has in hand, so that the end of one starts the next without asking.
//!
//! The first that waits in a partition, and nobody else, is put in line behind a running job that asked for the same, whose
//! place it will take as it is: nothing has to be placed, and no pass is needed. It costs what its place in the queue
//! costs. Who asks for something else waits until that comes free, and nobody behind it is leased meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use squall_model::event::Event;
use squall_model::gres;
use squall_model::id::{Attempt, JobId, NodeId, StepKey, StepNo};
use squall_model::job::{JobAttempt, JobKind, JobSpec};
use squall_model::policy::PreemptType;
use squall_model::time::Time;
use squall_model::wire::node::Down;

use super::queue::{self, Pending};
use super::work;
use crate::control::state::job::{Ending, Hold, Job, Phase};
use crate::control::state::node::Partition;
use crate::control::state::{LineId, State};
use crate::control::{Controller, Out, facts};

/// Of running jobs behind which there is room so many are compared with the one that waits.
const COMPARED: usize = 64;

/// Where there is room in line. Follows from state.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// Some partition has leases.
    any: bool,
    /// By partition, who has fewest behind it first.
    room: BTreeSet<(usize, u32, JobId)>,
    /// The same by job.
    of: BTreeMap<JobId, (usize, u32)>,
}

impl Leases {
    /// Looks anew how much room there is behind a job.
    pub(crate) fn look(&mut self, state: &State, id: JobId) {
        if !self.any {
            return;
        }
        if let Some((at, behind)) = self.of.remove(&id) {
            self.room.remove(&(at, behind, id));
        }
        if let Some((at, behind)) = room_behind(state, id) {
            self.of.insert(id, (at, behind));
            self.room.insert((at, behind, id));
        }
    }

    /// Looks at all anew.
    pub(crate) fn rebuild(&mut self, state: &State) {
        let any = state.partitions.iter().any(|partition| partition.config.lease_jobs > 0);
        *self = Self { any, ..Self::default() };
        if any {
            state.jobs.keys().for_each(|id| self.look(state, *id));
        }
    }
}

/// Behind whom an event makes room: who is first in the line that somebody is about to leave.
pub(crate) fn leader(c: &Controller, event: &Event) -> Option<JobId> {
    let (Event::LeaseReturned { id, .. } | Event::NodesReleased { id, .. }) = event else { return None };
    c.state.lines.get(&line_of(&c.state, *id)?)?.first().copied()
}

/// What of leases follows from an event.
pub(crate) fn after(c: &mut Controller, event: &Event, leader: Option<JobId>) {
    if let Some(leader) = leader {
        c.leases.look(&c.state, leader);
    }
    match event {
        Event::JobStarted { id, .. } | Event::JobEnding { id, .. } | Event::NodesReleased { id, .. } => {
            c.leases.look(&c.state, *id);
        }
        Event::JobLeased { behind, .. } => c.leases.look(&c.state, *behind),
        Event::Configured { .. } | Event::PartitionChanged { .. } => {
            c.leases.rebuild(&c.state);
            review(c);
        }
        Event::NodesSet { .. } | Event::PartitionSet { .. } | Event::ReservationSet { .. } | Event::JobHeld { .. } => {
            review(c);
        }
        _ => {}
    }
}

/// The partition of a job behind which others may stand in line, and how many do already.
fn room_behind(state: &State, id: JobId) -> Option<(usize, u32)> {
    let job = state.jobs.get(&id).filter(|job| job.is_running() && is_plain(&job.spec))?;
    let run = job.run()?;
    let at = state.partitions.iter().position(|partition| partition.config.name == run.partition)?;
    let most = state.partitions[at].config.lease_jobs;
    if most == 0 || state.gang.contains_key(&id) || facts::time_limit_s(state, job, &run.partition).is_none() {
        return None;
    }
    let line = state.lines.get(&LineId::of(&run.alloc)?);
    let behind = line.map_or(0, |members| members.len() as u32 - 1);
    (behind < most).then_some((at, behind))
}

/// Whether a job asks for cores and memory of one node only.
fn is_plain(spec: &JobSpec) -> bool {
    let need = &spec.need;
    let shares = need.exclusive || need.oversubscribe || need.licenses.is_some();
    let apart = spec.reservation.is_some() || spec.deadline.is_some() || spec.dependency.is_some();
    let gres = gres::Ask::of_job(spec) != Some(gres::Ask::default());
    spec.kind == JobKind::Batch && !shares && !apart && !gres
}

/// Whether a pending job may be leased, as far as it is about the job.
fn may_be_leased(state: &State, pending: &Pending<'_>, partition: &str) -> bool {
    let requeues = pending.spec.requeue.unwrap_or(state.config.job_requeue);
    let limit = pending.standing.time_limit_s.or(pending.spec.limit_s());
    let limit = limit.unwrap_or_else(|| facts::default_limit_s(state, partition));
    let bound = pending.group(state).is_some() || pending.is_limited(state);
    is_plain(pending.spec) && requeues && limit.is_some() && pending.het.is_none() && !bound
}

/// Whether jobs of a partition may be leased now: nobody of others waits for its nodes.
fn lends(c: &Controller, at: usize) -> bool {
    let state = &c.state;
    let partition = &state.partitions[at];
    let shared = |other: &Partition| !other.nodes.is_disjoint(&partition.nodes);
    let others = state.partitions.iter().enumerate().filter(|(other, _)| *other != at);
    let mut waiting = others.filter(|(other, _)| c.queue.head(*other).is_some());
    may_lend(state, partition) && !waiting.any(|(_, other)| shared(other))
}

/// Whether jobs of a partition may be leased as things are set up: nobody is stopped or ended to make room, and no time
/// is reserved.
fn may_lend(state: &State, partition: &Partition) -> bool {
    let shares = partition.config.oversubscribe.rows(true) > 1 || state.config.preempt_type != PreemptType::None;
    partition.config.lease_jobs > 0 && partition.starts_jobs() && !shares && state.reservations.is_empty()
}

/// Puts those in line for whom there is no room.
pub(super) fn grant(c: &mut Controller, now: Time, out: &mut Out) {
    if c.leases.room.is_empty() || c.disk_full || c.leaving.is_some() || c.queue.keeps_apart {
        return;
    }
    for at in 0..c.state.partitions.len() {
        while lends(c, at) && grant_one(c, now, at, out) {}
    }
}

/// The first that waits in a partition. False: it is not leased.
fn grant_one(c: &mut Controller, now: Time, at: usize, out: &mut Out) -> bool {
    let Some(item) = c.queue.head(at) else { return false };
    let Some(pending) = queue::pending(&c.state, item) else { return false };
    if !may_be_leased(&c.state, &pending, &c.state.partitions[at].config.name) {
        return false;
    }
    let avoid = c.queue.avoid.get(&item.id);
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
    let id = if item.array { queue::next_task(&c.state, item.id) } else { Some(item.id) };
    let Some(id) = id else { return false };
    let attempt = c.state.jobs.get(&id).map_or(Attempt(0), |job| job.attempt);
    let kick = c.queue.kick;
    c.commit(now, Event::JobLeased { id, attempt: Attempt(attempt.0 + 1), behind }, out);
    work::enter_all(c, now, out);
    // Nothing has come free: who asks for the same has no room either. Who asks for something else is looked at.
    c.queue.kick = kick || !c.queue.next_is_alike(&c.state, at, id);
    !c.queue.kick
}

/// Whether a running job has what this one asks for: it may have given back nodes since it asked for the same.
fn has_room(job: &Job, spec: &JobSpec) -> bool {
    let need = &spec.need;
    let cpus = job.run().map_or(0, |run| run.alloc.cpus());
    need.nodes_min.unwrap_or(1) <= 1 && need.tasks_on(1).saturating_mul(need.task_cpus()) <= cpus
}

/// Whether two jobs can take each other's place.
fn asks_the_same(one: &Arc<JobSpec>, other: &Arc<JobSpec>) -> bool {
    Arc::ptr_eq(one, other) || (one.need == other.need && one.options.network == other.options.network)
}

/// The line that a job is in, or could be.
pub(crate) fn line_of(state: &State, id: JobId) -> Option<LineId> {
    if state.lines.is_empty() { None } else { LineId::of(&state.jobs.get(&id)?.run()?.alloc) }
}

/// A node speaks of a job's script: if it was leased, it has begun.
pub(crate) fn begun(c: &mut Controller, now: Time, key: StepKey, out: &mut Out) {
    if key.step != StepNo::BATCH || c.state.lines.is_empty() {
        return;
    }
    let job = c.state.jobs.get(&key.job).filter(|job| job.attempt == key.attempt && job.has_not_begun());
    let Some(job) = job else { return };
    // What was decided of it before that was known stands after it, too.
    let decided = if let Phase::Completing(_, ending) = &job.phase { Some((**ending).clone()) } else { None };
    begin(c, now, key.job, out);
    if let Some(Ending { outcome, requeue, .. }) = decided {
        c.commit(now, Event::JobEnding { id: key.job, outcome, requeue }, out);
    }
}

/// Nothing is left of a job: who comes next in its place has begun there.
pub(crate) fn advance(c: &mut Controller, now: Time, line: Option<LineId>, out: &mut Out) {
    if let Some(next) = line.and_then(|line| c.state.next_in_line(line)) {
        begin(c, now, next, out);
    }
}

fn begin(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    let Some(job) = c.state.jobs.get(&id) else { return };
    let Some(run) = job.run() else { return };
    let (attempt, partition, alloc) = (job.attempt, run.partition.clone(), run.alloc.clone());
    c.commit(now, Event::JobStarted { id, attempt, partition, alloc }, out);
    // Its node has it already.
    c.todo.starting.retain(|starting| *starting != id);
}

/// Whether a leased job should not begin where it is, as things are now.
pub(crate) fn is_unwanted(state: &State, id: JobId) -> bool {
    let Some(job) = state.jobs.get(&id) else { return false };
    let Some((run, node)) = job.run().and_then(|run| Some((run, state.node(run.batch_node()?)?))) else { return false };
    let held = job.queue.hold != Hold::No;
    held || !node.usable() || state.partition(&run.partition).is_none_or(|partition| !may_lend(state, partition))
}

/// Calls back what should not begin where it is.
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
