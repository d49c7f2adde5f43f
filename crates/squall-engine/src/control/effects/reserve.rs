//! Reservations over time: their begin, end and repetition, their jobs, and nodes that replace lost ones.

use std::sync::Arc;

use squall_model::event::{Event, JobChange};
use squall_model::id::{JobId, NodeId};
use squall_model::job::JobSpec;
use squall_model::limits::OVER_TIME_UNLIMITED;
use squall_model::reservation::{Flag, Reservation};
use squall_model::time::{Span, Time};

use crate::control::controller::Controller;
use crate::control::effects::notice::arm_limit;
use crate::control::index::facts;
use crate::control::index::reserved::{free_nodes, within};
use crate::control::index::timers::Timer;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::job::Job;
use crate::control::state::node::Node;

/// How often the jobs of reservations with `PURGE_COMP` are looked for.
const WATCHED_EVERY: Span = Span::from_secs(30);

/// Sets the timer for the next time at which any reservation begins or ends, or its jobs are looked for.
pub(crate) fn arm(c: &mut Controller, now: Time) {
    let next = |one: &Reservation| {
        let (start, end) = one.times(now);
        let turn = if start > now && one.floats.is_none() { start } else { end };
        let purged = one.purge_s.filter(|_| one.active(now)).map(|seconds| {
            let idle = one.idle_since.map(|since| since + Span::from_secs(seconds));
            idle.map_or(now + WATCHED_EVERY, |end| end.max(now + Span(1)).min(now + WATCHED_EVERY))
        });
        purged.into_iter().chain([turn]).min().unwrap_or(turn)
    };
    match c.state.reservations.values().map(next).min() {
        Some(time) => c.timers.set(Timer::Reservations, time),
        None => c.timers.clear(Timer::Reservations),
    }
}

/// Handles begins and ends of reservations that are due. A reservation that is over is repeated or removed.
pub(crate) fn turn(c: &mut Controller, now: Time, out: &mut Out) {
    let over: Vec<Reservation> = c.state.reservations.values().filter(|one| one.times(now).1 <= now).cloned().collect();
    for one in over {
        end(c, now, &one, out);
    }
    watch(c, now, out);
    arm(c, now);
    c.queue.wake_parked(&c.state);
}

/// Ends a reservation: it comes again later, or is removed.
pub(crate) fn end(c: &mut Controller, now: Time, one: &Reservation, out: &mut Out) {
    over_run(c, now, one, out);
    let mut next = one.next();
    while let Some(later) = next.as_ref().filter(|next| next.end <= now) {
        next = later.next();
    }
    match next {
        Some(next) => {
            let reservation = Box::new(Reservation { idle_since: None, ..next });
            c.commit(now, Event::ReservationSet { reservation }, out);
        }
        None => remove(c, now, &one.name, out),
    }
}

/// Gives the jobs that run in a reservation which ends a time limit, so that they end `ResvOverRun` later without it.
fn over_run(c: &mut Controller, now: Time, one: &Reservation, out: &mut Out) {
    let minutes = c.state.config.resv_over_run_min;
    if minutes == 0 || minutes >= OVER_TIME_UNLIMITED || one.is(Flag::Flex) {
        return;
    }
    let limit = |job: &Job| {
        let run = job.run().filter(|run| job.is_running() && facts::runs_in(&job.spec, run, one))?;
        let limit_s = run.elapsed(now).secs() + 60 * minutes;
        facts::time_limit_s(&c.state, job, &run.partition).is_none_or(|before| before > limit_s).then_some(limit_s)
    };
    let limits = c.state.jobs.iter().filter_map(|(id, job)| Some((*id, limit(job)?))).collect::<Vec<_>>();
    for (id, limit_s) in limits {
        let change = JobChange { time_limit_s: Some(Some(limit_s)), ..JobChange::default() };
        c.commit(now, Event::JobUpdated { id, change, whole: false }, out);
    }
}

/// Removes a reservation. With `NO_HOLD_JOBS_AFTER_END` its pending jobs may run outside from now on.
pub(crate) fn remove(c: &mut Controller, now: Time, name: &str, out: &mut Out) {
    let frees = c.state.reservations.get(name).is_some_and(|one| one.is(Flag::NoHoldJobsAfterEnd));
    let without = |spec: &JobSpec| {
        let rest: Vec<&str> = spec.reservations().filter(|own| *own != name).collect();
        let reservation = Some(rest.join(",")).filter(|rest| !rest.is_empty());
        JobChange { spec: Some(Arc::new(JobSpec { reservation, ..spec.clone() })), ..JobChange::default() }
    };
    let names = |spec: &JobSpec| frees && spec.reservations().any(|own| own == name);
    let jobs = c.state.jobs.iter().filter(|(_, job)| job.is_pending() && names(&job.spec));
    let jobs = jobs.map(|(id, job)| (*id, false, without(&job.spec)));
    let arrays = c.state.arrays.iter().filter(|(_, array)| !array.tally.untouched.is_empty() && names(&array.spec));
    // Tasks with a record of their own are changed by themselves.
    let arrays = arrays.map(|(id, array)| (*id, true, without(&array.spec)));
    for (id, whole, change) in jobs.chain(arrays).collect::<Vec<_>>() {
        c.commit(now, Event::JobUpdated { id, change, whole }, out);
    }
    c.commit(now, Event::ReservationGone { name: name.to_owned() }, out);
}

/// Notes which active reservations with `PURGE_COMP` have no job, and ends those that have had none for long enough.
fn watch(c: &mut Controller, now: Time, out: &mut Out) {
    let watched = c.state.reservations.values().filter(|one| one.purge_s.is_some() && one.active(now));
    for one in watched.cloned().collect::<Vec<_>>() {
        let idle = !has_own_jobs(&c.state, &one.name);
        let purge_s = one.purge_s.unwrap_or_default();
        match one.idle_since {
            Some(since) if idle && now.since(since) >= Span::from_secs(purge_s) => end(c, now, &one, out),
            Some(_) if idle => {}
            None if !idle => {}
            _ => {
                let reservation = Box::new(Reservation { idle_since: idle.then_some(now), ..one });
                c.commit(now, Event::ReservationSet { reservation }, out);
            }
        }
    }
}

/// Returns whether a job that has not ended asks for a reservation.
fn has_own_jobs(state: &State, name: &str) -> bool {
    let asks = |spec: &JobSpec| spec.reservations().any(|own| own == name);
    let jobs = state.jobs.values().any(|job| !job.is_ended() && asks(&job.spec));
    jobs || state.arrays.values().any(|array| !array.tally.untouched.is_empty() && asks(&array.spec))
}

/// Replaces nodes of reservations that are down or drained, and with `REPLACE` those that jobs use, by idle nodes.
/// Reservations of named nodes keep theirs.
pub(crate) fn replenish(c: &mut Controller, now: Time, out: &mut Out) {
    if c.state.reservations.is_empty() {
        return;
    }
    let lacking = c.state.reservations.values().filter(|one| one.is_replenished());
    let lacking: Vec<Reservation> = lacking.filter(|one| lost(&c.state, one).next().is_some()).cloned().collect();
    for one in lacking {
        // because the partition of a reservation may have been deleted
        let Some(mut within) = within(&c.state, one.partition.as_deref()) else { continue };
        within.subtract(&one.nodes);
        let is_idle =
            |id: &NodeId| c.queue.reachable.contains(*id) && c.state.node(*id).is_some_and(|node| node.jobs.is_empty());
        let idle: Vec<NodeId> = free_nodes(&c.state, &one, &within).into_iter().filter(is_idle).collect();
        let mut gone: Vec<NodeId> = lost(&c.state, &one).collect();
        // Those that are down go first.
        gone.sort_by_key(|id| (c.state.node(*id).is_some_and(Node::usable), *id));
        if idle.is_empty() {
            continue;
        }
        let mut nodes = one.nodes.clone();
        for (old, new) in gone.into_iter().zip(idle) {
            nodes.remove(old);
            nodes.insert(new);
        }
        c.commit(now, Event::ReservationSet { reservation: Box::new(Reservation { nodes, ..one }) }, out);
    }
}

/// Returns the nodes of a reservation that are to be replaced.
fn lost<'a>(state: &'a State, one: &'a Reservation) -> impl Iterator<Item = NodeId> + 'a {
    let replaces = one.is(Flag::Replace);
    one.nodes
        .iter()
        .filter(move |id| state.node(*id).is_none_or(|node| !node.usable() || (replaces && !node.jobs.is_empty())))
}

/// Updates the queue after a reservation was made, changed or removed: other jobs may start now, and the reservation's
/// own jobs may end at another time.
pub(crate) fn changed(c: &mut Controller, now: Time, name: &str) {
    arm(c, now);
    if c.queue.magnetic != c.state.reservations.values().any(|one| one.is(Flag::Magnetic)) {
        // From now on, or no longer, equal requests of different users are different.
        let dirty = std::mem::take(&mut c.queue.dirty);
        c.queue.rebuild(&c.state, &mut c.timers, now);
        c.queue.dirty.extend(dirty);
    }
    c.queue.wake_parked(&c.state);
    let own = |job: &Job| job.is_running() && job.spec.reservations().any(|own| own == name);
    let running: Vec<JobId> = c.state.jobs.iter().filter(|(_, job)| own(job)).map(|(id, _)| *id).collect();
    for id in running {
        c.queue.note_end(&c.state, id);
        arm_limit(c, now, id);
    }
}
