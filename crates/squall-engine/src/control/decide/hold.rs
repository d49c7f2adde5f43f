//! `scontrol hold`, `uhold` and `release`.

use std::collections::BTreeSet;

use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::wire::client::{JobSelection, Refusal};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::each::to_each;
use crate::control::decide::select::{Tasks, select_to_change};
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::job::{Hold, Phase};

/// Holds jobs. A running job continues, and is held if it is requeued. Only an operator releases the hold of an
/// operator. With `user`, an operator sets a hold that the job's user may release.
pub(crate) fn hold(c: &mut Controller, ask: &Ask<'_>, jobs: &JobSelection, user: bool, out: &mut Out) -> Reply {
    let admin = ask.who.operator && !user;
    let eases = ask.who.operator && user;
    let events = |hold, id, whole| {
        let first = Some(Event::JobReleased { id, whole }).filter(|_| eases && hold == Hold::Admin);
        (first, Event::JobHeld { id, admin, whole })
    };
    over_queued(c, ask, jobs, |_| Ok(()), events, out)
}

/// Releases held jobs.
pub(crate) fn release(c: &mut Controller, ask: &Ask<'_>, jobs: &JobSelection, out: &mut Out) -> Reply {
    let operator = ask.who.operator;
    let check = |hold| if hold == Hold::Admin && !operator { Err(Refusal::HeldByAdmin) } else { Ok(()) };
    over_queued(c, ask, jobs, check, |_, id, whole| (None, Event::JobReleased { id, whole }), out)
}

/// Applies `events` to every selected job that is pending, running or about to be requeued and passes `check`. The
/// arguments of `events` are the present hold, the id, and whether the id stands for the whole array.
fn over_queued(
    c: &mut Controller,
    ask: &Ask<'_>,
    jobs: &JobSelection,
    check: impl Fn(Hold) -> Result<(), Refusal>,
    events: impl Fn(Hold, JobId, bool) -> (Option<Event>, Event),
    out: &mut Out,
) -> Reply {
    let happen = |c: &mut Controller, hold, id, whole, out: &mut Out| {
        let (first, event) = events(hold, id, whole);
        for event in first.into_iter().chain([event]) {
            c.commit(ask.now, event, out);
        }
    };
    let selected = select_to_change(&c.state, ask.who, jobs)?;
    // The event of a whole array also covers its pending tasks with a record of their own.
    let passes = |tasks: &&Tasks| c.state.arrays.get(&tasks.array).is_some_and(|a| check(a.queue.hold).is_ok());
    let whole: BTreeSet<JobId> =
        selected.tasks.iter().filter(|tasks| tasks.all).filter(passes).map(|tasks| tasks.array).collect();
    let affected = to_each(
        c,
        &selected,
        out,
        |c, tasks, out| {
            let array = c.state.arrays.get(&tasks.array).ok_or(Refusal::InvalidJobId)?;
            let hold = array.queue.hold;
            check(hold)?;
            if !tasks.all {
                let ids: Vec<JobId> = tasks.indices.iter().filter_map(|i| array.task_id(tasks.array, i)).collect();
                for id in ids {
                    happen(c, hold, id, false, out);
                }
                return Ok(());
            }
            let kept = held_apart(&c.state, tasks.array, &check);
            happen(c, hold, tasks.array, true, out);
            for id in kept {
                c.commit(ask.now, Event::JobHeld { id, admin: true, whole: false }, out);
            }
            Ok(())
        },
        |c, id, out| {
            let job = c.state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?;
            match &job.phase {
                Phase::Pending | Phase::Running(_) | Phase::Leased(_) => {}
                Phase::Completing(_, ending) if ending.requeue.is_some() => {}
                Phase::Completing(..) | Phase::Ended(_) => return Err(Refusal::AlreadyDone),
            }
            let hold = job.queue.hold;
            check(hold)?;
            let with_array = job.is_pending() && job.task.is_some_and(|task| whole.contains(&task.array));
            if !with_array {
                happen(c, hold, id, false, out);
            }
            Ok(())
        },
    );
    Ok(Some(affected.answer()))
}

/// Returns the pending tasks of an array that have a record of their own and do not pass the check. An event of the
/// whole array must not change them.
fn held_apart(state: &State, array: JobId, check: &impl Fn(Hold) -> Result<(), Refusal>) -> Vec<JobId> {
    let pending = state.touched(array).filter(|(_, job)| job.is_pending());
    pending.filter(|(_, job)| check(job.queue.hold).is_err()).map(|(id, _)| id).collect()
}
