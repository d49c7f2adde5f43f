//! `sbatch --wait`: an answer when a job, or every task of an array, has ended.

use crate::control::state::reading::outcome_of;
use squall_model::id::JobId;
use squall_model::wire::client::{Answer, Refusal};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};

/// Answers with `JobDone` when a job has ended; at once if it has ended already.
pub(crate) fn await_job(c: &mut Controller, ask: &Ask<'_>, job: JobId) -> Reply {
    if c.state.find(job).is_none() && !c.state.arrays.contains_key(&job) {
        return Err(Refusal::InvalidJobId);
    }
    if let Some(outcome) = outcome_of(&c.state, job) {
        return Ok(Some(Answer::JobDone { job, outcome }));
    }
    c.waits.await_end(job, ask.caller);
    Ok(None)
}
