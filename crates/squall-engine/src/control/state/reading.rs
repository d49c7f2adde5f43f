//! Functions that read the state: outcomes, known jobs, partitions in use.

use squall_model::config::Config;
use squall_model::id::JobId;
use squall_model::job::{DependencyJob, EndState, Outcome};

use super::State;
use super::job::{Ending, Job};

/// Returns how a job or task ended; for an array, how all of its tasks together ended. None: it has not ended.
pub(crate) fn outcome_of(state: &State, id: JobId) -> Option<Outcome> {
    if let Some(array) = state.arrays.get(&id) {
        return array.outcome();
    }
    if let Some(job) = state.jobs.get(&id) {
        return job.outcome().filter(|_| job.is_ended()).cloned();
    }
    // A task that ended and never had a record of its own.
    let (array_id, array) = state.array_of(id)?;
    array.tally.skipped(array.index_of(array_id, id)?).map(|skipped| skipped.outcome.clone())
}

/// Returns whether the job or task that a dependency names exists.
pub(crate) fn exists(state: &State, job: DependencyJob) -> bool {
    match (job.index, state.arrays.get(&job.id)) {
        (Some(index), Some(array)) => array.tasks.indices.contains(index),
        (Some(_), None) => false,
        (None, Some(_)) => true,
        (None, None) => state.jobs.contains_key(&job.id) || state.array_of(job.id).is_some(),
    }
}

/// Adds to a newly read configuration the partitions that it lacks and that jobs still need. Slurm ends such jobs. Here
/// the partitions stay until a configuration is read at a time when no job needs them.
pub(crate) fn keep_used(state: &State, config: &mut Config) {
    let known = |config: &Config, name: &str| config.partitions.iter().any(|p| p.name == name);
    for partition in &state.partitions {
        if !known(config, &partition.config.name) && is_used(state, &partition.config.name) {
            let mut kept = partition.config.clone();
            kept.default = false;
            config.partitions.push(kept);
            if config.check().is_err() {
                config.partitions.pop();
            }
        }
    }
}

/// Returns whether a job that has not ended runs in a partition or names it.
pub(crate) fn is_used(state: &State, name: &str) -> bool {
    let named = |spec| state.partitions_of(spec).any(|partition| partition.config.name == name);
    let runs = |job: &Job| job.run().is_some_and(|run| run.partition == name);
    let waits = state.arrays.values().any(|array| !array.is_ended() && named(&array.spec));
    waits || state.jobs.values().any(|job| !job.is_ended() && (named(&job.spec) || runs(job)))
}

/// Reason of the outcome of an attempt that left its node after a checkpoint.
pub(crate) const VACATED: &str = "Checkpointed";

/// Returns whether an attempt ends because it was checkpointed to leave its node: its frozen processes are killed.
pub(crate) fn is_vacated(ending: &Ending) -> bool {
    let left = matches!(ending.outcome.state, EndState::Requeued | EndState::Preempted);
    left && ending.outcome.reason.as_deref() == Some(VACATED)
}

/// Beginning of the reason of a job that was ended because it can't be checkpointed (`--checkpoint=…,must`).
pub(crate) const UNSAVED: &str = "can't be checkpointed: ";

/// Returns whether a job was ended because it can't be checkpointed.
pub(crate) fn is_unsaved(ending: &Ending) -> bool {
    let reason = ending.outcome.reason.as_deref();
    ending.outcome.state == EndState::Failed && reason.is_some_and(|reason| reason.starts_with(UNSAVED))
}

/// Returns whether a job may be requeued after a failure that it did not cause.
pub(crate) fn may_requeue(state: &State, job: &Job) -> bool {
    job.spec.kind.goes_back() && job.spec.requeue.unwrap_or(state.config.job_requeue)
}

/// Reason text of a requeue that a job's own script asked for. Such a job runs again whatever the outcome of the
/// script.
pub(crate) const ITSELF: &str = "requeued itself";

/// Returns whether the requeue of a completing job was requested by the job's own script.
pub(crate) fn is_by_itself(ending: &Ending) -> bool {
    ending.outcome.state == EndState::Requeued && ending.outcome.reason.as_deref() == Some(ITSELF)
}
