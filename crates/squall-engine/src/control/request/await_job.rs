//! `sbatch --wait`: an answer when a job, or every task of an array, has ended.

use squall_model::id::JobId;
use squall_model::job::{Outcome, Owner};
use squall_model::wire::client::{Answer, Refusal};

use super::rights::{Deed, can};
use super::{Ask, Reply};
use crate::control::Controller;
use crate::control::state::{Found, State};

/// Answers `JobDone` now, or when it has come to that.
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

/// How a job or a task has ended, or an array with all of its tasks; None: it has not.
pub(crate) fn outcome_of(state: &State, id: JobId) -> Option<Outcome> {
    if let Some(array) = state.arrays.get(&id) {
        return array.outcome();
    }
    if let Some(job) = state.jobs.get(&id) {
        return job.outcome().filter(|_| job.is_ended()).cloned();
    }
    // A task that ended without ever being touched.
    let (array_id, array) = state.array_of(id)?;
    array.tally.skipped(array.index_of(array_id, id)?).map(|skipped| skipped.outcome.clone())
}
