//! `sstat`: what the tasks of a running step have used so far. The nodes are asked on each request.

use squall_model::id::{JobId, StepKey, StepNo};
use squall_model::time::Span;
use squall_model::wire::client::Refusal;
use squall_model::wire::fabric::{Comparison, Test, Variable};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::effects::queries;
use crate::control::net::queries::Purpose;
use crate::control::state::job::Phase;

/// Timeout of the nodes' answer about the usage of a step.
const TIME: Span = Span::from_secs(4);

/// Queries the nodes of a running step for what its tasks have used. The answer comes when all nodes have answered or
/// the timeout is over.
pub(crate) fn measure(c: &mut Controller, ask: &Ask<'_>, (id, step): (JobId, StepNo), lately: bool) -> Reply {
    let job = c.state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?;
    let (Phase::Running(run) | Phase::Completing(run, _)) = &job.phase else { return Err(Refusal::NotRunning) };
    let found = run.steps.get(&step).filter(|found| found.ended.is_none()).ok_or(Refusal::InvalidStepId)?;
    let key = StepKey { job: id, attempt: job.attempt, step };
    let to = found.left.clone();
    let test = Test { variable: Variable::Used(key, lately), comparison: Comparison::Equal, value: 1 };
    queries::send(c, ask.now, to, (test, true), TIME, Purpose::Measure(ask.caller));
    Ok(None)
}
