//! Reservations over time: their begin, end and repetition.

use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::reservation::Reservation;
use squall_model::time::Time;

use crate::control::controller::Controller;
use crate::control::effects::notice::arm_limit;
use crate::control::index::timers::Timer;
use crate::control::port::Out;

/// Sets the timer for the next time at which any reservation begins or ends.
pub(crate) fn arm(c: &mut Controller, now: Time) {
    let next = c.state.reservations.values().map(|one| if one.start > now { one.start } else { one.end }).min();
    match next {
        Some(time) => c.timers.set(Timer::Reservations, time),
        None => c.timers.clear(Timer::Reservations),
    }
}

/// Handles begins and ends of reservations that are due. A reservation that is over is repeated or removed.
pub(crate) fn turn(c: &mut Controller, now: Time, out: &mut Out) {
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

/// Updates the queue after a reservation was made, changed or removed: other jobs may start now, and the reservation's
/// own jobs may end at another time.
pub(crate) fn changed(c: &mut Controller, now: Time, name: &str) {
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
