//! `scontrol update StepId=`: changes the time limit of running steps.

use squall_model::event::Event;
use squall_model::id::{JobId, StepKey, StepNo};
use squall_model::wire::client::{Answer, Refusal};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::effects::steps;
use crate::control::port::Out;
use crate::control::state::job::Phase;

/// Sets the time limit of a running step, or of all steps of a job: seconds since the step's start; None: no limit but
/// the job's.
pub(crate) fn update(
    c: &mut Controller,
    ask: &Ask<'_>,
    (id, step): (JobId, Option<StepNo>),
    time_limit_s: Option<u64>,
    out: &mut Out,
) -> Reply {
    let absent = if c.state.find(id).is_some() { Refusal::NotRunning } else { Refusal::InvalidJobId };
    let job = c.state.jobs.get(&id).ok_or(absent)?;
    let Phase::Running(run) = &job.phase else { return Err(Refusal::NotRunning) };
    let attempt = job.attempt;
    // The batch script ends with its job.
    let wanted = |no: StepNo| no != StepNo::BATCH && step.is_none_or(|step| step == no);
    let running = run.steps.iter().filter(|(no, step)| wanted(**no) && step.ended.is_none());
    let running: Vec<StepNo> = running.map(|(no, _)| *no).collect();
    if running.is_empty() {
        return Err(Refusal::InvalidStepId);
    }
    for step in running {
        c.commit(ask.now, Event::StepLimited { job: id, step, time_limit_s }, out);
        steps::watch_limit(c, ask.now, StepKey { job: id, attempt, step });
    }
    Ok(Some(Answer::Done))
}
