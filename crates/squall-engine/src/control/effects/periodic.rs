//! Checkpoints that the controller makes by itself (`sbatch --checkpoint`): first a trial, then one each so many minutes,
//! and the last one before the time limit, after which the job waits on disk until it is released with a longer limit.

use squall_model::checkpoint::{CheckpointChange, CheckpointVerb};
use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::job::{EndState, ExitCode, JobAttempt, Outcome};
use squall_model::limits::{CHECKPOINT_BEFORE_LIMIT_S, CHECKPOINT_TRIAL_S};
use squall_model::time::{Span, Time};
use squall_model::wire::client::Refusal;

use crate::control::controller::Controller;
use crate::control::effects::checkpoint::give;
use crate::control::index::facts;
use crate::control::index::timers::Timer;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::job::{Job, Phase, Run};
use crate::control::state::reading::UNSAVED;

/// Sets the timer of the next checkpoint of a running job. `after`: when its node answered last, and whether it refused;
/// None: not known.
pub(crate) fn arm(c: &mut Controller, id: JobId, after: Option<(Time, bool)>) {
    let job = c.state.jobs.get(&id).filter(|job| job.spec.options.get().is_some_and(|o| o.checkpoint.is_some()));
    // because most jobs have no such timer
    let Some(job) = job else { return };
    match next(&c.state, id, job, after) {
        Some(time) => c.timers.set(Timer::Checkpoint(id), time),
        None => c.timers.clear(Timer::Checkpoint(id)),
    }
}

/// Returns when a job is checkpointed next. None: it is not, or its processes stand still.
fn next(state: &State, id: JobId, job: &Job, after: Option<(Time, bool)>) -> Option<Time> {
    let plan = job.spec.options.get()?.checkpoint?;
    let Phase::Running(run) = &job.phase else { return None };
    if !state.works(id) || run.booting.is_some() {
        return None;
    }
    let last = job.checkpoints.as_ref().and_then(|all| Some(all.kept.last()?.time));
    let since = after.map(|(time, _)| time).or(last).unwrap_or(run.start).max(run.start);
    let trial = (after.is_none() && last.is_none()).then(|| run.start + Span::from_secs(CHECKPOINT_TRIAL_S));
    let each = (plan.every_s > 0).then(|| since + Span::from_secs(plan.every_s));
    // A node that has just refused it refuses it again.
    let refused = |leave: &Time| after.is_some_and(|(time, refused)| refused && *leave <= time);
    let leave = leaves(state, id, job, run).filter(|leave| !refused(leave));
    [trial, each, leave].into_iter().flatten().min()
}

/// Returns when a job leaves its node before its time limit. None: it has no limit, or a short one.
fn leaves(state: &State, id: JobId, job: &Job, run: &Run) -> Option<Time> {
    let (before, short) = (CHECKPOINT_BEFORE_LIMIT_S, 2 * CHECKPOINT_BEFORE_LIMIT_S);
    let end = facts::end_time(state, id, job, run).filter(|end| end.since(run.start) > Span::from_secs(short));
    end.map(|end| end - Span::from_secs(before))
}

/// Orders the checkpoint of a job that is due.
pub(crate) fn due(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    let found = c.state.jobs.get(&id).and_then(|job| Some((job, job.run()?, job.spec.options.get()?.checkpoint?)));
    // because the job may have ended in the same turn
    let Some((job, run, plan)) = found else { return };
    // One that is being made is answered, which sets the timer again.
    if c.waits.checkpoints.contains_key(&id) {
        return;
    }
    let begun = plan.every_s > 0 && now >= run.start + Span::from_secs(plan.every_s);
    let verb = match () {
        () if leaves(&c.state, id, job, run).is_some_and(|time| time <= now) => CheckpointVerb::Hold,
        () if begun || job.checkpoints.is_some() => CheckpointVerb::Create,
        () => CheckpointVerb::Able,
    };
    match give(c, id, verb, (None, false)) {
        Ok(()) => {}
        Err(Refusal::WrongState(problem)) => answered(c, now, id, (true, Some(&problem)), out),
        // because a job whose nodes are being prepared has done nothing yet
        Err(_) => arm(c, id, Some((now, true))),
    }
}

/// Orders that a job with `--checkpoint` leaves its node, which is to reboot. One that can't be checkpointed runs on.
pub(crate) fn leave(c: &mut Controller, id: JobId) {
    let planned =
        c.state.jobs.get(&id).is_some_and(|job| job.spec.options.get().is_some_and(|o| o.checkpoint.is_some()));
    if planned && !c.waits.checkpoints.contains_key(&id) {
        drop(give(c, id, CheckpointVerb::Vacate, (None, false)));
    }
}

/// Handles the answer to an order, after which the next one follows. `own`: nobody else gave it; `problem`: why the
/// job can't be checkpointed.
pub(crate) fn answered(c: &mut Controller, now: Time, id: JobId, (own, problem): (bool, Option<&str>), out: &mut Out) {
    let job = c.state.jobs.get(&id).filter(|job| job.is_running());
    let found = job.and_then(|job| Some((job, job.run()?, job.spec.options.get()?.checkpoint?)));
    // because most jobs have no such plan, and others have left their node
    let Some((job, run, plan)) = found else { return };
    let known = job.checkpoints.as_ref().and_then(|all| all.refused.as_deref());
    let (last, node) = (job.checkpoints.as_ref().map_or(0, |all| all.last), run.alloc.nodes().first());
    let job = JobAttempt { job: id, attempt: job.attempt };
    match problem.filter(|_| own) {
        Some(problem) if plan.must => {
            let exit = ExitCode { code: 1, signal: 0 };
            let outcome = Outcome { state: EndState::Failed, exit, reason: Some(format!("{UNSAVED}{problem}")) };
            return c.commit(now, Event::JobEnding { id, outcome, requeue: None }, out);
        }
        Some(problem) if known != Some(problem) => {
            if let Some(node) = node {
                let error = Some(problem.to_owned());
                let change = CheckpointChange { job, number: last + 1, node, made: None, error };
                c.commit(now, Event::Checkpoint(Box::new(change)), out);
            }
        }
        Some(_) | None => {}
    }
    arm(c, id, Some((now, problem.is_some())));
}
