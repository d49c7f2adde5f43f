//! Preemption: how running jobs are ended so that other jobs can start.

use crate::control::index::victims::terms;
use squall_model::event::{Event, Requeue};
use squall_model::id::JobId;
use squall_model::job::{EndState, ExitCode, Outcome};
use squall_model::policy::PreemptMode;
use squall_model::time::{Span, Time};
use squall_model::wire::node::SignalTarget;

use crate::control::controller::Controller;
use crate::control::effects::notice;
use crate::control::index::timers::Timer;
use crate::control::port::Out;
use crate::control::state::reading::may_requeue;
use crate::invariant::invariant;

/// Number of the signal SIGTERM on Linux.
const TERM: i32 = 15;

/// Preempts a running job: at once, or after its grace time.
pub(crate) fn evict(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    let Some(job) = c.state.jobs.get(&id).filter(|job| job.is_running()) else {
        return invariant!("a victim of a pass runs");
    };
    let Some(run) = job.run() else { return invariant!("a running job has resources") };
    let grace_s = terms(&c.state, job, run).grace_s;
    if grace_s == 0 || run.grace.is_some() {
        return end(c, now, id, out);
    }
    let (attempt, until) = (job.attempt, now + Span::from_secs(grace_s));
    c.commit(now, Event::JobPreempted { id, attempt, until }, out);
    // As in Slurm the tasks get SIGTERM and not the script, so a script without steps has its whole grace time.
    for signal in [notice::CONT, TERM] {
        notice::signal_all(c, id, SignalTarget::Steps, signal);
    }
}

/// Ends a preempted job when its grace time is over.
pub(crate) fn end(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    let requeue = goes_back(c, id);
    if c.state.jobs.get(&id).is_some_and(|job| job.is_running()) {
        let outcome = Outcome { state: EndState::Preempted, exit: ExitCode::OK, reason: None };
        c.commit(now, Event::JobEnding { id, outcome, requeue }, out);
    }
}

/// Returns the outcome of a job after the end of its script, and whether it is requeued. A failure in the grace time of
/// a preempted job counts as preemption.
pub(crate) fn judge(c: &Controller, id: JobId, outcome: Outcome) -> (Outcome, Option<Requeue>) {
    if outcome.state != EndState::Failed || c.state.jobs.get(&id).and_then(|job| job.run()?.grace).is_none() {
        return (outcome, None);
    }
    (Outcome { state: EndState::Preempted, ..outcome }, goes_back(c, id))
}

/// Returns how a preempted job is requeued. None: it is not requeued.
fn goes_back(c: &Controller, id: JobId) -> Option<Requeue> {
    let job = c.state.jobs.get(&id)?;
    let again = terms(&c.state, job, job.run()?).mode == PreemptMode::Requeue && may_requeue(&c.state, job);
    again.then_some(Requeue { hold: false, not_before: None, special: None, expedite: None })
}

/// Sets the timers of preempted jobs' grace times that began before a restart of the controller.
pub(crate) fn again(c: &mut Controller) {
    let graces = c.state.jobs.iter().filter_map(|(id, job)| Some((*id, job.run()?.grace?)));
    for (id, until) in graces {
        c.timers.set(Timer::Grace(id), until);
    }
}
