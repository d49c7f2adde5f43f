//! `sattach`, by which further clients watch a step; and `scontrol notify`, a message to the user of a job.

use squall_model::id::{JobId, StepKey, StepNo};
use squall_model::job::{JobAttempt, JobKind};
use squall_model::limits::STRING_BYTES_MAX;
use squall_model::step::Watcher;
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::node::Down;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::effects::steps;
use crate::control::port::Out;
use crate::control::state::job::{Job, Phase};

/// Attaches the caller to a step: answers `StepCreated`, makes the step's daemons connect to the caller, and answers
/// `StepDone` when the step has ended.
pub(crate) fn watch(
    c: &mut Controller,
    ask: &Ask<'_>,
    id: JobId,
    step: StepNo,
    watcher: Option<Watcher>,
    out: &mut Out,
) -> Reply {
    let job = found(c, id)?;
    let (Phase::Running(run) | Phase::Completing(run, _)) = &job.phase else { return Err(Refusal::NotRunning) };
    // A batch script has no step daemon that could forward its output.
    let running = run.steps.get(&step).filter(|found| found.ended.is_none() && step != StepNo::BATCH);
    let left = running.ok_or(Refusal::InvalidStepId)?.left.clone();
    let key = StepKey { job: id, attempt: job.attempt, step };
    steps::watched(c, key, watcher.is_some().then_some(ask.caller), ask.caller, out);
    if let Some(watcher) = watcher {
        c.links.put(&left, Down::Watch { key, watcher });
    }
    Ok(None)
}

/// Sends a message to the user of a running job.
pub(crate) fn notify(c: &mut Controller, id: JobId, text: String, out: &mut Out) -> Reply {
    let job = found(c, id)?;
    if text.len() > STRING_BYTES_MAX {
        return Err(Refusal::TooLarge("message".to_owned(), STRING_BYTES_MAX as u64));
    }
    let Phase::Running(run) = &job.phase else {
        return Err(if job.is_pending() { Refusal::NotRunning } else { Refusal::AlreadyDone });
    };
    if job.spec.kind == JobKind::Batch {
        let attempt = JobAttempt { job: id, attempt: job.attempt };
        if let Some(first) = run.alloc.nodes().first() {
            c.links.push(first, Down::Notify { job: attempt, text });
        }
    } else if let Some(owner) = c.waits.owners.get(&id) {
        out.answers.push((owner.caller, Answer::Notice(text)));
    }
    Ok(Some(Answer::Done))
}

fn found(c: &Controller, id: JobId) -> Result<&Job, Refusal> {
    let absent = if c.state.find(id).is_some() { Refusal::NotRunning } else { Refusal::InvalidJobId };
    c.state.jobs.get(&id).map(|job| &**job).ok_or(absent)
}
