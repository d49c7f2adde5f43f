//! Changes of the wall clock. Running jobs do not depend on it; times that users gave as wall-clock times are moved.

use std::sync::Arc;

use squall_model::event::{Event, JobChange};
use squall_model::id::JobId;
use squall_model::job::JobSpec;
use squall_model::reservation::Reservation;
use squall_model::time::Time;

use crate::control::controller::Controller;
use crate::control::port::Out;

/// Moves reservations, begin times and deadlines after the wall clock was set forward by `by_us` microseconds
/// (negative: back).
pub(crate) fn stepped(c: &mut Controller, now: Time, by_us: i64, out: &mut Out) {
    let us = by_us.saturating_neg();
    for one in c.state.reservations.values().cloned().collect::<Vec<_>>() {
        let (start, end) = (one.start.on_clock_ahead(us), one.end.on_clock_ahead(us));
        let reservation = Box::new(Reservation { start, end, ..one });
        c.commit(now, Event::ReservationSet { reservation }, out);
    }
    let unfinished = c.state.jobs.iter().filter(|(_, job)| !job.is_ended());
    let jobs = unfinished.filter_map(|(&id, job)| Some((id, false, moved(&job.spec, us)?)));
    let waiting = c.state.arrays.iter().filter(|(_, array)| !array.is_ended());
    let arrays = waiting.filter_map(|(&id, array)| Some((id, true, moved(&array.spec, us)?)));
    // Tasks that share their array's specification are changed with the array.
    let all: Vec<(JobId, bool, JobSpec)> = jobs.chain(arrays).collect();
    for (id, whole, spec) in all {
        let change = JobChange { spec: Some(Arc::new(spec)), ..JobChange::default() };
        c.commit(now, Event::JobUpdated { id, change, whole }, out);
    }
}

/// Returns a copy of a specification with its begin time and deadline moved by `us` microseconds. None: it has no such
/// times.
fn moved(spec: &JobSpec, us: i64) -> Option<JobSpec> {
    let begin = spec.begin.filter(|_| !spec.options.begins_after_submission);
    if begin.is_none() && spec.deadline.is_none() {
        return None;
    }
    let mut spec = spec.clone();
    spec.begin = begin.map(|begin| begin.on_clock_ahead(us)).or(spec.begin);
    spec.deadline = spec.deadline.map(|deadline| deadline.on_clock_ahead(us));
    Some(spec)
}
