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
    c.waits.ends.entry(job).or_default().push(ask.caller);
    Ok(None)
}

fn owner_of(state: &State, id: JobId) -> Option<&Owner> {
    match (state.arrays.get(&id), state.find(id)?) {
        (Some(array), _) | (None, Found::Untouched(array, _)) => Some(&array.owner),
        (None, Found::Job(job)) => Some(&job.owner),
    }
}

/// How a job has ended, or an array with all of its tasks; None: it has not.
pub(crate) fn outcome_of(state: &State, id: JobId) -> Option<Outcome> {
    if let Some(array) = state.arrays.get(&id) {
        return array.outcome();
    }
    state.jobs.get(&id).filter(|job| job.is_ended())?.outcome().cloned()
}
