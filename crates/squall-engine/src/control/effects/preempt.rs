//! Preemption: how running jobs are ended so that other jobs can start.

use squall_model::event::{Event, Requeue};
use squall_model::id::JobId;
use squall_model::job::{EndState, ExitCode, Outcome};
use squall_model::limits::CHECKPOINT_PREEMPT_S;
use squall_model::policy::PreemptMode;
use squall_model::time::{Span, Time};
use squall_model::wire::node::SignalTarget;

use crate::control::controller::Controller;
use crate::control::effects::{checkpoint, notice};
use crate::control::index::terms::terms;
use crate::control::index::timers::Timer;
use crate::control::port::Out;
use crate::control::state::reading::may_requeue;
use crate::invariant::invariant;

/// Number of the signal SIGTERM on Linux.
const TERM: i32 = 15;

/// Preempts a running job: by a checkpoint, at once, or after its grace time.
pub(crate) fn evict(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    let Some(job) = c.state.jobs.get(&id).filter(|job| job.is_running()) else {
        return invariant!("a victim of a pass runs");
    };
    let Some(run) = job.run() else { return invariant!("a running job has resources") };
    let (attempt, warned) = (job.attempt, run.grace.is_some());
    if warned {
        return end(c, now, id, out);
    }
    let aside = terms(&c.state, job, run).mode == PreemptMode::Checkpoint && checkpoint::vacate(c, now, id).is_ok();
    if !aside {
        return warn(c, now, id, out);
    }
    let until = now + Span::from_secs(CHECKPOINT_PREEMPT_S);
    c.commit(now, Event::JobPreempted { id, attempt, until }, out);
}

/// Ends a preempted job: at once, or after its grace time.
fn warn(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    let Some(job) = c.state.jobs.get(&id) else { return invariant!("a preempted job is known") };
    let Some(run) = job.run() else { return invariant!("a preempted job has resources") };
    let grace_s = terms(&c.state, job, run).grace_s;
    if grace_s == 0 {
        return end(c, now, id, out);
    }
    let (attempt, until) = (job.attempt, now + Span::from_secs(grace_s));
    c.commit(now, Event::JobPreempted { id, attempt, until }, out);
    // As in Slurm the tasks get SIGTERM and not the script, so a script without steps has its whole grace time.
    for signal in [notice::CONT, TERM] {
        notice::signal_all(c, id, SignalTarget::Steps, signal);
    }
}

/// Goes on with a preempted job after the answer of its node: a job that could not leave it by a checkpoint is ended.
pub(crate) fn answered(c: &mut Controller, now: Time, id: JobId, refused: bool, out: &mut Out) {
    // because the job is leaving its node, or has ended
    let Some(_) = c.state.jobs.get(&id).filter(|job| job.is_running()) else { return };
    if refused || checkpoint::vacate(c, now, id).is_err() {
        warn(c, now, id, out);
    }
}

/// Handles the end of a preempted job's time: of its grace time, or of that for its checkpoint.
pub(crate) fn overdue(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    if checkpoint::give_up(c, id) {
        return answered(c, now, id, true, out);
    }
    end(c, now, id, out);
}

fn end(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    let requeue = goes_back(c, id);
    if c.state.jobs.get(&id).is_some_and(|job| job.is_running()) {
        let outcome = Outcome { state: EndState::Preempted, exit: ExitCode::OK, reason: None };
        c.commit(now, Event::JobEnding { id, outcome, requeue }, out);
    }
}

/// Returns the outcome of a job after the end of its script, and whether it is requeued. A failure in the grace time of
/// a preempted job counts as preemption. A job that is being checkpointed was not warned, so its failure is its own.
pub(crate) fn judge(c: &Controller, id: JobId, outcome: Outcome) -> (Outcome, Option<Requeue>) {
    let warned = c.state.jobs.get(&id).and_then(|job| job.run()?.grace).is_some() && !c.waits.preempts(id);
    if outcome.state != EndState::Failed || !warned {
        return (outcome, None);
    }
    (Outcome { state: EndState::Preempted, ..outcome }, goes_back(c, id))
}

/// Returns how a preempted job is requeued. None: it is not requeued.
fn goes_back(c: &Controller, id: JobId) -> Option<Requeue> {
    let job = c.state.jobs.get(&id)?;
    let mode = terms(&c.state, job, job.run()?).mode;
    let again = matches!(mode, PreemptMode::Requeue | PreemptMode::Checkpoint) && may_requeue(&c.state, job);
    again.then_some(Requeue { hold: false, not_before: None, special: None, expedite: None })
}

/// Sets the timers of preempted jobs' grace times that began before a restart of the controller, and orders their
/// checkpoints again.
pub(crate) fn again(c: &mut Controller, now: Time) {
    let graces = c.state.jobs.iter().filter_map(|(id, job)| {
        let run = job.run()?;
        Some((*id, run.grace?, terms(&c.state, job, run).mode))
    });
    let graces: Vec<_> = graces.collect();
    for (id, until, mode) in graces {
        c.timers.set(Timer::Grace(id), until);
        if mode == PreemptMode::Checkpoint {
            // A job that can't be checkpointed is ended by the timer.
            _ = checkpoint::vacate(c, now, id);
        }
    }
}
