//! `sbatch --wait`: an answer when a job, or every task of an array, has ended.

use crate::control::state::reading::outcome_of;
use squall_model::id::JobId;
use squall_model::job::Owner;
use squall_model::wire::client::{Answer, Refusal};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::rights::{Deed, can};
use crate::control::state::{Found, State};

/// Answers with `JobDone` when a job has ended; at once if it has ended already.
pub(crate) fn await_job(c: &mut Controller, ask: &Ask<'_>, job: JobId) -> Reply {
    let owner = owner_of(&c.state, job).ok_or(Refusal::InvalidJobId)?;
    if !can(ask.who, Deed::Job(owner)) {
        return Err(Refusal::AccessDenied);
    }
    if let Some(outcome) = outcome_of(&c.state, job) {
        return Ok(Some(Answer::JobDone { job, outcome }));
    }
    c.waits.await_end(job, ask.caller);
    Ok(None)
}

fn owner_of(state: &State, id: JobId) -> Option<&Owner> {
    if let Some(array) = state.arrays.get(&id) {
        return Some(&array.owner);
    }
    match state.find(id)? {
        Found::Untouched(array, _) => Some(&array.owner),
        Found::Job(job) => Some(&job.owner),
    }
}
