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

/// Which of a partition's nodes reservations keep from a job that would start at that time with that limit, in a
/// reservation of its own or not.
pub(crate) fn bars(state: &State, time: Time, own: Option<&str>, limit_s: Option<u64>, nodes: &NodeSet) -> Bars {
    let mut barred = NodeSet::new();
    let mut end = limit_s.map(|seconds| time + Span::from_secs(seconds));
    let own = match own {
        None => None,
        Some(name) => match state.reservations.get(name) {
            None => return Bars::Waits(PendingReason::ReservationDeleted),
            Some(own) if own.is(Flag::Flex) => Some(own),
            Some(own) if !own.active(time) => return Bars::Waits(PendingReason::Reservation),
            Some(own) => {
                barred.clone_from(nodes);
                barred.subtract(&own.nodes);
                end = Some(end.map_or(own.end, |end| end.min(own.end)));
                Some(own)
            }
        },
    };
    for other in state.reservations.values().filter(|other| own.is_none_or(|own| own.name != other.name)) {
        // One for users within one for maintenance is what its makers wanted, and the other way round.
        let shared = own.is_some_and(|own| own.is(Flag::Overlap) || own.is(Flag::Maint));
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
    let own = |job: &crate::control::state::job::Job| job.is_running() && job.spec.reservation.as_deref() == Some(name);
    let running: Vec<JobId> = c.state.jobs.iter().filter(|(_, job)| own(job)).map(|(id, _)| *id).collect();
    for id in running {
        c.queue.note_end(&c.state, id);
        arm_limit(c, now, id);
    }
}
