//! `srun` in an allocation: a step gets cores now or waits for them.

use squall_model::id::{ClientKey, JobId};
use squall_model::step::{StepSpec, TaskProgram};
use squall_model::wire::client::Refusal;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::effects::steps;
use crate::control::index::desk::Waiting;
use crate::control::port::Out;

/// Creates a step. Answers `StepCreated` when it has cores and `StepDone` when it has ended. A repeated key means the
/// same step: its `srun` lost the connection to the controller and is back.
pub(crate) fn create_step(
    c: &mut Controller,
    ask: &Ask<'_>,
    job: JobId,
    spec: StepSpec,
    program: TaskProgram,
    key: ClientKey,
    out: &mut Out,
) -> Reply {
    if !c.state.jobs.contains_key(&job) {
        return Err(absent(c, job));
    }
    let request = Waiting::new(&c.state.config, ask.caller, key, spec, program)?;
    steps::ask(c, ask.now, job, request, out).map(|()| None)
}

/// Returns the refusal of a step for a job id without a record. An array task that is still part of its array's record
/// is not running; any other such id does not exist.
fn absent(c: &Controller, job: JobId) -> Refusal {
    if c.state.find(job).is_some() { Refusal::NotRunning } else { Refusal::InvalidJobId }
}
