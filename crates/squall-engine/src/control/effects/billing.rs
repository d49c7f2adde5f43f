//! Bills of jobs, which are recorded whenever a job gets or gives up resources in a partition with weights.

use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::time::Time;

use crate::control::controller::Controller;
use crate::control::port::Out;
use crate::control::state::billing;
use crate::invariant::invariant;

/// Records what a job is billed from now on, if its partition has weights.
pub(crate) fn record(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    let found = c.state.jobs.get(&id).and_then(|job| Some((job, job.run()?)));
    let Some((job, run)) = found else { return invariant!("a job that gets resources has them") };
    // because most partitions have no weights
    let Some(billing) = billing::of_run(&c.state, &job.spec, run) else { return };
    if run.billing != Some(billing) {
        let attempt = job.attempt;
        c.commit(now, Event::JobBilled { id, attempt, billing }, out);
    }
}
