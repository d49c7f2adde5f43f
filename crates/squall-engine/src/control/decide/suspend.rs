//! `scontrol suspend` and `resume`.

use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::job::JobAttempt;
use squall_model::wire::client::{JobSelection, Refusal};
use squall_model::wire::node::{Down, SignalTarget};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::each::to_each;
use crate::control::decide::select::select_to_change;
use crate::control::port::Out;
use crate::control::state::job::Phase;
use crate::invariant::invariant;

const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// Stops the processes of running jobs, or continues them. As in Slurm, only an operator may.
pub(crate) fn suspend(c: &mut Controller, ask: &Ask<'_>, jobs: &JobSelection, suspend: bool, out: &mut Out) -> Reply {
    let selected = select_to_change(&c.state, ask.who, jobs)?;
    let affected = to_each(
        c,
        &selected,
        out,
        |_, _, _| Err(Refusal::NotRunning),
        |c, id, out| {
            decide(c, id, suspend)?;
            c.commit(ask.now, Event::JobSuspended { id, suspended: suspend }, out);
            // A job in the gang scheduling matrix is stopped and continued by its time slices instead.
            if !c.state.gang.contains_key(&id) {
                signal(c, id, if suspend { SIGSTOP } else { SIGCONT });
            }
            Ok(())
        },
    );
    Ok(Some(affected.answer()))
}

fn decide(c: &Controller, id: JobId, suspend: bool) -> Result<(), Refusal> {
    match &c.state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?.phase {
        Phase::Running(run) if run.suspended.is_some() == suspend => {
            Err(Refusal::WrongState(if suspend { "suspended" } else { "running" }.into()))
        }
        Phase::Running(_) => Ok(()),
        Phase::Pending | Phase::Leased(_) => Err(Refusal::NotRunning),
        Phase::Completing(..) | Phase::Ended(_) => Err(Refusal::AlreadyDone),
    }
}

fn signal(c: &mut Controller, id: JobId, signal: i32) {
    let Some(job) = c.state.jobs.get(&id) else { return invariant!("a job that was just suspended is known") };
    let Some(run) = job.run() else { return invariant!("a job that was just suspended has resources") };
    let (job, nodes) = (JobAttempt { job: id, attempt: job.attempt }, run.left.clone());
    c.links.put(&nodes, Down::Signal { job, target: SignalTarget::Full, signal });
}
