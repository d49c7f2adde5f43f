//! The wall clock was set. Nothing that runs goes by it; what people asked for in its terms comes earlier or later by that.

use std::sync::Arc;

use squall_model::event::{Event, JobChange};
use squall_model::id::JobId;
use squall_model::job::JobSpec;
use squall_model::reservation::Reservation;
use squall_model::time::Time;

use crate::control::{Controller, Out};

/// The wall clock is ahead by so many microseconds more than before.
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
    // Tasks that share their array's specification have it with the array.
    let all: Vec<(JobId, bool, JobSpec)> = jobs.chain(arrays).collect();
    for (id, whole, spec) in all {
        let change = JobChange { spec: Some(Arc::new(spec)), ..JobChange::default() };
        c.commit(now, Event::JobUpdated { id, change, whole }, out);
    }
}

/// A specification with what it says of the wall clock on the controller's. None: nothing.
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
