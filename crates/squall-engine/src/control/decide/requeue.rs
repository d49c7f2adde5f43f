//! `scontrol requeue` and `requeuehold`.

use crate::control::state::reading::ITSELF;
use squall_model::event::{Event, Requeue};
use squall_model::id::JobId;
use squall_model::job::{EndState, ExitCode, JobSpec, Outcome};
use squall_model::wire::client::{JobSelection, Refusal};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::each::to_each;
use crate::control::decide::select::select_to_change;
use crate::control::port::Out;
use crate::control::state::job::{Job, Phase};

/// Requeues batch jobs that run or have ended. The answer leaves in the same turn as the order to end a running job's
/// processes, so a client within the job still gets it.
pub(crate) fn requeue(
    c: &mut Controller,
    ask: &Ask<'_>,
    jobs: &JobSelection,
    (hold, from, special): (bool, Option<JobId>, Option<bool>),
    out: &mut Out,
) -> Reply {
    let selected = select_to_change(&c.state, ask.who, jobs)?;
    let affected = to_each(
        c,
        &selected,
        out,
        |_, _, _| Err(Refusal::WrongState("pending".into())),
        |c, id, out| {
            let event = decide(c, id, Requeue { hold, not_before: None, special, expedite: None }, from == Some(id))?;
            c.commit(ask.now, event, out);
            Ok(())
        },
    );
    Ok(Some(affected.answer()))
}

fn decide(c: &Controller, id: JobId, requeue: Requeue, itself: bool) -> Result<Event, Refusal> {
    let job = c.state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?;
    if !may_requeue(&job.spec, c.state.config.job_requeue) {
        return Err(Refusal::NotRequeueable);
    }
    match &job.phase {
        Phase::Running(_) | Phase::Leased(_) => {
            let outcome =
                Outcome { state: EndState::Requeued, exit: ExitCode::OK, reason: itself.then(|| ITSELF.into()) };
            Ok(Event::JobEnding { id, outcome, requeue: Some(requeue) })
        }
        Phase::Ended(_) if !dependencies_known(c, job) => Err(Refusal::DependencyProblem),
        // A heterogeneous job can't start again if the record of one component was removed.
        Phase::Ended(_) if !c.state.het_of(id).is_none_or(|het| het.ids().all(|id| c.state.jobs.contains_key(&id))) => {
            Err(Refusal::InvalidJobId)
        }
        Phase::Ended(_) => Ok(Event::JobRequeued { id, requeue }),
        Phase::Pending => Err(Refusal::WrongState("pending".into())),
        Phase::Completing(..) => Err(Refusal::WrongState("completing".into())),
    }
}

/// Returns whether a job's dependencies can still be evaluated. If the job has run, they were satisfied. If it ended
/// while pending, it must not start because the record of a job that it depends on was removed meanwhile.
fn dependencies_known(c: &Controller, job: &Job) -> bool {
    let mut terms = job.spec.dependency.iter().flat_map(|d| &d.terms).filter_map(|term| term.job);
    let known = |id| c.state.jobs.contains_key(&id) || c.state.array_of(id).is_some() || c.state.is_foreign(id);
    job.attempt.0 > 0 || terms.all(|term| known(term.id))
}

/// Returns whether a job may be requeued. Batch jobs and components of heterogeneous jobs may, unless their
/// `--no-requeue` or the cluster's `JobRequeue` forbids it.
pub(crate) fn may_requeue(spec: &JobSpec, default: bool) -> bool {
    spec.kind.goes_back() && spec.requeue.unwrap_or(default)
}
