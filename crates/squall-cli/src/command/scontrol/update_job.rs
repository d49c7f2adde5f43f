//! `scontrol update job`: selects the jobs and sends the changes.

use squall_model::set::IndexSet;
use squall_model::wire::client::{JobRef, JobSelection, JobUpdate, Request};
use squall_text::format::clock::local;
use squall_text::verbs::job::{self as verbs, LimitChange};
use squall_text::verbs::key::{Bad, Key, means};

use crate::command::listing::call::{Call, Fail};
use crate::command::scontrol::arguments::{Change, unsupported};
use crate::command::scontrol::control::{act, select};
use crate::command::scontrol::{Manner, job, resize};

/// Returns the time limit after a change of the present one, in seconds. Fails if the present one is unlimited or too
/// small for a relative change.
pub(super) fn changed_limit(call: &mut Call<'_>, change: LimitChange, limit: Option<u64>) -> Result<Option<u64>, Fail> {
    match (change, limit) {
        (LimitChange::To(limit), _) => Ok(limit),
        (_, None) => call.fail("Cannot increment/decrement TimeLimit when set to UNLIMITED."),
        (LimitChange::Longer(more), Some(limit)) => Ok(Some(limit.saturating_add(more))),
        (LimitChange::Shorter(less), Some(limit)) if less > limit => {
            call.fail(&format!("TimeLimit decrement larger than current time limit ({less} > {limit} s)"))
        }
        (LimitChange::Shorter(less), Some(limit)) => Ok(Some(limit - less)),
    }
}

/// Runs `scontrol update job`: applies the changes to the jobs that are named by id or by name.
pub(super) fn update(call: &mut Call<'_>, changes: &[Change<'_>]) -> Result<(), Fail> {
    let (mut ids, mut name) = (None, None);
    let mut update = JobUpdate::default();
    let (mut step, mut user) = (None, None);
    let now = local(call.now, &call.zone);
    for change in changes {
        let is = |name, least| means(change.key, name, least);
        let key = Key::find(verbs::KEYS, change.key);
        if is("JobId", 3) {
            ids = Some(change.value.to_owned());
        } else if is("TimeLimit", 5) {
            match time_limit(call, change)? {
                LimitChange::To(limit) => update.time_limit_s = Some(limit),
                by => step = Some(by),
            }
        } else if (is("JobName", 4) || is("Name", 2)) && name.is_none() {
            name = Some(change.value.to_owned());
        } else if is("UserID", 4) {
            user = Some(call.user_ids(change.value)?);
        } else if change.sign.is_some() {
            return call.fail(&format!("Option {} does not accept [+|-]= syntax", change.key));
        } else if let Some(key) = key {
            if let Err(bad) = key.read(&mut update, None, change.value, &now) {
                return call.fail(&invalid(change, key, &bad));
            }
        } else {
            return match verbs::ABSENT.iter().find(|(key, _)| is(key, 4)) {
                Some((key, why)) => call.fail(&format!("{key} can't be updated: {why}")),
                None => unsupported(call, change),
            };
        }
    }
    // With an id, JobName is the new name; without one it selects the jobs.
    // UserID restricts jobs that are selected by name; ids need no user.
    let selection = match (&ids, name) {
        (Some(ids), name) => {
            update.name = name;
            select(call, std::slice::from_ref(ids), None)?
        }
        (None, Some(name)) => job::named(call, &name, user.unwrap_or_default())?,
        (None, None) => return call.fail("No job ID specified"),
    };
    if let Some(step) = step {
        return stepwise(call, &selection, &update, step);
    }
    if update == JobUpdate::default() {
        call.say("No changes specified");
        return Err(Fail(1));
    }
    let resizes = update.nodes.is_some() || update.nodelist.is_some();
    let jobs = selection.clone();
    act(call, Manner::default(), &Request::UpdateJob { jobs: selection, change: Box::new(update) }, None)?;
    if resizes { resize::scripts(call, jobs) } else { Ok(()) }
}

/// Returns Slurm's message about the value of a job's key.
fn invalid(change: &Change<'_>, key: &Key<JobUpdate>, bad: &Bad) -> String {
    match bad {
        Bad::Value => format!("Invalid {} value: {}", change.key, change.value),
        Bad::Because(why) | Bad::NotDone(why) => format!("Invalid {} value: {}: {why}", change.key, change.value),
        Bad::Limit => format!("Invalid {} value", key.name()),
        Bad::Time => format!("Invalid time specification (pos=0): {}", change.value),
    }
}

/// Parses `TimeLimit=…`, `TimeLimit+=…` or `TimeLimit=+…`.
pub(super) fn time_limit(call: &mut Call<'_>, change: &Change<'_>) -> Result<LimitChange, Fail> {
    let limit = verbs::time_limit(change.sign, change.value);
    limit.map_or_else(|| call.fail("Invalid TimeLimit value"), Ok)
}

/// Changes the time limits of jobs by an amount. Each job's present limit is requested first.
fn stepwise(call: &mut Call<'_>, selection: &JobSelection, update: &JobUpdate, step: LimitChange) -> Result<(), Fail> {
    let page = match call.controller.jobs(selection.clone(), false, false) {
        Ok(page) => page,
        Err(e) => return call.failed("slurm_load_jobs error", &e),
    };
    if page.jobs.is_empty() {
        call.say("slurm_load_jobs error: Invalid job id specified");
        return Err(Fail(1));
    }
    let mut result = Ok(());
    for job in &page.jobs {
        let limit = changed_limit(call, step, job.time_limit_s)?;
        let change = JobUpdate { time_limit_s: Some(limit), ..update.clone() };
        let ids = match (&job.pending_tasks, job.task) {
            (Some(tasks), _) => vec![JobRef::Tasks(job.id, tasks.clone())],
            // The last task of an array has the array's own id.
            (None, Some(task)) => vec![JobRef::Tasks(task.array, IndexSet::range(task.index, task.index))],
            (None, None) => vec![JobRef::Job(job.id)],
        };
        let jobs = JobSelection { ids, ..JobSelection::default() };
        result = result.and(act(call, Manner::default(), &Request::UpdateJob { jobs, change: Box::new(change) }, None));
    }
    result
}
