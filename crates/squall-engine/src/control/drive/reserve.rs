//! Reservations over time: what they leave to a job, when they begin, end and come again.

use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::job::PendingReason;
use squall_model::reservation::{Flag, Reservation};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_sched::Bars;

use super::notice::arm_limit;
use super::timers::Timer;
use crate::control::state::State;
use crate::control::{Controller, Out};

/// Which of a partition's nodes reservations keep from a job that would start at that time with that limit, in one of
/// its own or not.
pub(crate) fn bars(state: &State, time: Time, own: Option<&str>, limit_s: Option<u64>, nodes: &NodeSet) -> Bars {
    let named = |one: &Reservation| own.is_some_and(|own| own.split(',').any(|name| name == one.name));
    let known: Vec<&Reservation> = state.reservations.values().filter(|one| named(one)).collect();
    let on: Vec<&Reservation> = known.iter().filter(|own| own.is(Flag::Flex) || own.active(time)).copied().collect();
    let mut barred = NodeSet::new();
    let mut end = limit_s.map(|seconds| time + Span::from_secs(seconds));
    if own.is_some() && on.is_empty() {
        let why = if known.is_empty() { PendingReason::ReservationDeleted } else { PendingReason::Reservation };
        return Bars::Waits(why);
    }
    if own.is_some() && !on.iter().any(|own| own.is(Flag::Flex)) {
        barred.clone_from(nodes);
        for own in &on {
            barred.subtract(&own.nodes);
        }
        let last = on.iter().map(|own| own.end).max();
        end = end.into_iter().chain(last).min();
    }
    for other in state.reservations.values().filter(|other| !named(other)) {
        // One for users within one for maintenance is what its makers wanted, and the other way round.
        let shared = on.iter().any(|own| own.is(Flag::Overlap) || own.is(Flag::Maint));
        if !shared && other.meets(time, end) {
            barred.union_with(&other.nodes);
        }
    }
    if barred.is_empty() { Bars::Open } else { Bars::Barred(barred) }
}

/// When the next reservation begins or ends.
pub(crate) fn arm(c: &mut Controller, now: Time) {
    let next = c.state.reservations.values().map(|one| if one.start > now { one.start } else { one.end }).min();
    match next {
        Some(time) => c.timers.set(Timer::Reservations, time),
        None => c.timers.clear(Timer::Reservations),
    }
}

/// Some reservation begins or ends.
pub(super) fn turn(c: &mut Controller, now: Time, out: &mut Out) {
    let over: Vec<Reservation> = c.state.reservations.values().filter(|one| one.end <= now).cloned().collect();
    for one in over {
        let name = one.name.clone();
        let mut next = one.next();
        while let Some(later) = next.as_ref().filter(|next| next.end <= now) {
            next = later.next();
        }
        let event = match next {
            Some(reservation) => Event::ReservationSet { reservation: Box::new(reservation) },
            None => Event::ReservationGone { name },
        };
        c.commit(now, event, out);
    }
    arm(c, now);
    c.queue.wake_parked(&c.state);
}

/// A reservation was made, changed or is gone: other jobs may start, its own may end at another time.
pub(super) fn changed(c: &mut Controller, now: Time, name: &str) {
    arm(c, now);
    c.queue.wake_parked(&c.state);
    let own =
        |job: &crate::control::state::job::Job| job.is_running() && job.spec.reservations().any(|own| own == name);
    let running: Vec<JobId> = c.state.jobs.iter().filter(|(_, job)| own(job)).map(|(id, _)| *id).collect();
    for id in running {
        c.queue.note_end(&c.state, id);
        arm_limit(c, now, id);
    }
}
