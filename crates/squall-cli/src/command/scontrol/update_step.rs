//! `scontrol update StepId=JOB[.STEP] TimeLimit=…`: changes the limit of a running step, or of all steps of a job.

use squall_model::wire::client::{JobSelection, Request};
use squall_text::verbs::job::LimitChange;

use crate::command::listing::call::{Call, Fail};
use crate::command::listing::select::{Target, id_of, target};
use crate::command::scontrol::arguments::{Change, unsupported};
use crate::command::scontrol::ask_done;
use crate::command::scontrol::update_job::{changed_limit, time_limit};
use squall_text::verbs::key::means;

const WHAT: &str = "slurm_update error";

/// Runs `update StepId=`.
pub(super) fn update(call: &mut Call<'_>, changes: &[Change<'_>]) -> Result<(), Fail> {
    let (mut step, mut limit) = (None, None);
    for change in changes {
        if means(change.key, "StepId", 4) {
            let Some(named) = target(change.value) else {
                call.say(&format!("Invalid StepID parameter: {}={}\nRequest aborted", change.key, change.value));
                return Err(Fail(1));
            };
            step = Some(named);
        } else if means(change.key, "TimeLimit", 2) {
            limit = Some(time_limit(call, change)?);
        } else {
            return unsupported(call, change);
        }
    }
    let Some((step, limit)) = step.zip(limit) else {
        call.say("No changes specified");
        return Err(Fail(1));
    };
    let time_limit_s = match limit {
        LimitChange::To(limit) => limit,
        by => {
            let current = current(call, &step)?;
            changed_limit(call, by, current)?
        }
    };
    let request = Request::UpdateStep { job: id_of(&step.job), step: step.step, time_limit_s };
    ask_done(call, &request, WHAT)
}

/// Returns the present limit, in seconds, of the named step or of the job's first running step; None: unlimited.
fn current(call: &mut Call<'_>, step: &Target) -> Result<Option<u64>, Fail> {
    let selection = JobSelection { ids: vec![step.job.clone()], ..JobSelection::default() };
    let page = match call.controller.jobs(selection, false, true) {
        Ok(page) => page,
        Err(e) => return call.failed(WHAT, &e),
    };
    let mut running = page.jobs.iter().flat_map(|job| &job.run().steps).filter(|info| info.end.is_none());
    match running.find(|info| step.step.is_none_or(|wanted| wanted == info.step)) {
        Some(info) => Ok(info.time_limit_s),
        None => {
            call.fail(&format!("Could not load state information for StepId={}: Invalid job id specified", step.text))
        }
    }
}
