//! `scancel`: ends or signals jobs and steps.

use std::collections::BTreeSet;

use squall_model::event::Event;
use squall_model::id::{JobId, StepKey, StepNo};
use squall_model::job::{EndState, ExitCode, JobAttempt, JobKind, Outcome};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::{JobRef, JobSelection, Refusal};
use squall_model::wire::node::{EndReason, SignalTarget};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::each::to_each;
use crate::control::decide::select::select_to_change;
use crate::control::effects::signals;
use crate::control::effects::steps;
use crate::control::index::signals::JobSignal;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::job::Phase;

/// What a request does to the jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// Ends the job, pending or running.
    End,
    /// Sends a signal to the job's processes.
    Signal(i32, SignalTarget),
    /// Ends one step of the job.
    EndStep(StepNo),
}

/// Time after the launch of a job or step in which its tasks may not have begun yet. On a connected node they have
/// begun by the end of this time.
const BEGINNING: Span = Span::from_secs(10);
/// Number of the signal SIGKILL. It ends a job for good, as `scancel` without a signal does.
const KILL: i32 = 9;
/// Highest signal number of Linux.
const SIGNAL_MAX: i32 = 64;

impl What {
    /// Returns the effect on each job that the options of `scancel` ask for.
    pub(crate) fn new(signal: Option<(i32, SignalTarget)>, step: Option<StepNo>) -> Result<Self, Refusal> {
        if let Some((signal, _)) = signal.filter(|(signal, _)| !(0..=SIGNAL_MAX).contains(signal)) {
            let problem = format!("signals have numbers from 0 to {SIGNAL_MAX}");
            return Err(Refusal::InvalidValue { option: "signal".into(), value: signal.to_string(), problem });
        }
        Ok(match (step, signal) {
            (None, None | Some((KILL, SignalTarget::Steps | SignalTarget::All))) => Self::End,
            (None, Some((signal, target))) => Self::Signal(signal, target),
            (Some(step), None) => Self::EndStep(step),
            (Some(StepNo::BATCH), Some((signal, _))) => Self::Signal(signal, SignalTarget::Batch),
            (Some(step), Some((signal, _))) => Self::Signal(signal, SignalTarget::Step(step)),
        })
    }
}

/// Ends or signals the selected jobs. Without `verbose`, jobs that have ended or never existed are not reported.
pub(crate) fn cancel(
    c: &mut Controller,
    ask: &Ask<'_>,
    jobs: &JobSelection,
    what: What,
    verbose: bool,
    out: &mut Out,
) -> Reply {
    let mut selected = select_to_change(&c.state, ask.who, jobs)?;
    if jobs.is_filtered() {
        // As in Slurm, only jobs that have not ended can match a filter.
        let over = jobs.ids.iter().flat_map(|named| ended(&c.state, named)).collect::<BTreeSet<_>>();
        selected.jobs.retain(|id| !over.contains(id));
        selected.refused.extend(over.into_iter().map(|id| (c.state.name_of(id), Refusal::AlreadyDone)));
    }
    let by = ask.who.owner.uid;
    let mut beginning = NodeSet::new();
    let affected = to_each(
        c,
        &selected,
        out,
        |c, tasks, out| match what {
            What::End => {
                let (array, tasks) = (tasks.array, tasks.indices.clone());
                c.commit(ask.now, Event::TasksEnded { array, tasks, outcome: cancelled(by) }, out);
                Ok(())
            }
            What::Signal(..) | What::EndStep(_) => Err(Refusal::NotRunning),
        },
        |c, id, out| match what {
            What::End => {
                let nodes = nodes_where_it_begins(c, ask.now, id);
                end(c, ask.now, id, by, out).inspect(|()| beginning.union_with(&nodes))
            }
            What::Signal(number, target) => signal_job(c, id, (number, target), by),
            What::EndStep(step) => {
                let nodes = nodes_where_it_begins(c, ask.now, id);
                end_step(c, id, step, by).inspect(|()| beginning.union_with(&nodes))
            }
        },
    );
    let affected = if verbose { affected } else { affected.quiet() };
    beginning.intersect_with(c.links.connected());
    if beginning.is_empty() {
        return Ok(Some(affected.answer()));
    }
    c.todo.heeded.push((ask.caller, affected.answer(), beginning));
    Ok(None)
}

/// Returns those jobs with a record of their own that have ended, of the jobs that a word of the command line names.
fn ended(state: &State, named: &JobRef) -> Vec<JobId> {
    let is_over = |id: &JobId| state.jobs.get(id).is_some_and(|job| job.is_ended());
    match named {
        // Tasks of an array that still has others are no error.
        JobRef::Job(id) if state.arrays.get(id).is_some_and(|array| !array.is_ended()) => Vec::new(),
        JobRef::Job(id) => vec![*id].into_iter().filter(is_over).collect(),
        JobRef::Component(leader, offset) => {
            vec![JobId(leader.0.saturating_add(*offset))].into_iter().filter(is_over).collect()
        }
        JobRef::Tasks(id, indices) => {
            let tasks = state.touched(*id).filter(|(_, job)| job.task.is_some_and(|t| indices.contains(t.index)));
            tasks.map(|(id, _)| id).filter(is_over).collect()
        }
    }
}

/// Returns the nodes on which tasks of a job may be about to begin. Examples: the job or a step of it was just
/// launched, or the job is leased to a node, which starts it by itself.
fn nodes_where_it_begins(c: &Controller, now: Time, id: JobId) -> NodeSet {
    match c.state.jobs.get(&id).map(|job| &job.phase) {
        Some(Phase::Leased(run)) => run.left.clone(),
        Some(Phase::Running(run)) => {
            let last = run.steps.values().map(|step| step.start).chain([run.start]).max();
            if last.is_some_and(|last| now < last + BEGINNING) { run.left.clone() } else { NodeSet::new() }
        }
        _ => NodeSet::new(),
    }
}

fn cancelled(by: u32) -> Outcome {
    Outcome { state: EndState::Cancelled { by }, exit: ExitCode::OK, reason: None }
}

fn end(c: &mut Controller, now: Time, id: JobId, by: u32, out: &mut Out) -> Result<(), Refusal> {
    match c.state.jobs.get(&id).map(|job| &job.phase) {
        None => Err(Refusal::InvalidJobId),
        Some(Phase::Ended(_)) => Err(Refusal::AlreadyDone),
        Some(Phase::Completing(_, ending)) if ending.requeue.is_none() => Err(Refusal::AlreadyDone),
        Some(Phase::Pending | Phase::Running(_) | Phase::Leased(_) | Phase::Completing(..)) => {
            c.commit(now, Event::JobEnding { id, outcome: cancelled(by), requeue: None }, out);
            Ok(())
        }
    }
}

fn signal_job(c: &mut Controller, id: JobId, (signal, target): (i32, SignalTarget), by: u32) -> Result<(), Refusal> {
    let job = c.state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?;
    let run = match &job.phase {
        Phase::Running(run) => run,
        Phase::Pending | Phase::Leased(_) => return Err(Refusal::NotRunning),
        Phase::Completing(..) | Phase::Ended(_) => return Err(Refusal::AlreadyDone),
    };
    let of_step = match target {
        SignalTarget::Step(no) => Some(run.steps.get(&no).ok_or(Refusal::InvalidStepId)?),
        // The batch script belongs to the first component.
        SignalTarget::Batch if job.spec.kind == JobKind::Component => return Ok(()),
        SignalTarget::Batch => Some(run.steps.get(&StepNo::BATCH).ok_or(Refusal::InvalidStepId)?),
        SignalTarget::Steps | SignalTarget::All | SignalTarget::Full => None,
    };
    if of_step.is_some_and(|step| step.ended.is_some()) {
        return Err(Refusal::AlreadyDone);
    }
    let nodes = of_step.map_or_else(|| run.left.clone(), |step| step.left.clone());
    let job = JobAttempt { job: id, attempt: job.attempt };
    signals::send(c, &nodes, JobSignal { job, target, signal });
    if let (SignalTarget::Step(step), KILL) = (target, signal) {
        let key = StepKey { job: id, attempt: job.attempt, step };
        c.steps.live.entry(key).or_default().cut.get_or_insert(EndState::Cancelled { by });
    }
    Ok(())
}

fn end_step(c: &mut Controller, id: JobId, no: StepNo, by: u32) -> Result<(), Refusal> {
    let job = c.state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?;
    let key = StepKey { job: id, attempt: job.attempt, step: no };
    let run = match &job.phase {
        Phase::Running(run) => run,
        Phase::Pending | Phase::Leased(_) => return Err(Refusal::NotRunning),
        Phase::Completing(..) | Phase::Ended(_) => return Err(Refusal::AlreadyDone),
    };
    let step = run.steps.get(&no).ok_or(Refusal::InvalidStepId)?;
    if step.ended.is_some() {
        return Err(Refusal::AlreadyDone);
    }
    steps::end(c, key, EndReason::Cancelled, EndState::Cancelled { by });
    Ok(())
}
