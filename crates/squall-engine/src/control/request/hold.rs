//! `scontrol hold`, `uhold` and `release`.

use std::collections::BTreeSet;

use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::wire::client::{JobSelection, Refusal};

use super::each::to_each;
use super::select::{Tasks, select_to_change};
use super::{Ask, Reply};
use crate::control::state::State;
use crate::control::state::job::{Hold, Phase};
use crate::control::{Controller, Out};

/// Holds pending jobs. What an operator holds only an operator releases, but for their own jobs and with `user`.
pub(crate) fn hold(c: &mut Controller, ask: &Ask<'_>, jobs: &JobSelection, user: bool, out: &mut Out) -> Reply {
    let (uid, operator) = (ask.who.owner.uid, ask.who.operator);
    let event = |id, whole, owner| Event::JobHeld { id, admin: operator && !user && owner != uid, whole };
    over_pending(c, ask, jobs, |_| Ok(()), event, out)
}

/// Releases held jobs.
pub(crate) fn release(c: &mut Controller, ask: &Ask<'_>, jobs: &JobSelection, out: &mut Out) -> Reply {
    let operator = ask.who.operator;
    let check = |hold| if hold == Hold::Admin && !operator { Err(Refusal::HeldByAdmin) } else { Ok(()) };
    over_pending(c, ask, jobs, check, |id, whole, _| Event::JobReleased { id, whole }, out)
}

/// Makes `event` (of an id, whether it means the whole array, and the owner) happen to every pending job that
/// passes `check`.
fn over_pending(
    c: &mut Controller,
    ask: &Ask<'_>,
    jobs: &JobSelection,
    check: impl Fn(Hold) -> Result<(), Refusal>,
    event: impl Fn(JobId, bool, u32) -> Event,
    out: &mut Out,
) -> Reply {
    let selected = select_to_change(&c.state, ask.who, jobs)?;
    // The event of a whole array covers those of its pending tasks that are jobs of their own.
    let passes = |tasks: &&Tasks| c.state.arrays.get(&tasks.array).is_some_and(|a| check(a.queue.hold).is_ok());
    let whole: BTreeSet<JobId> =
        selected.tasks.iter().filter(|tasks| tasks.all).filter(passes).map(|tasks| tasks.array).collect();
    let affected = to_each(
        c,
        &selected,
        out,
        |c, tasks, out| {
            let array = c.state.arrays.get(&tasks.array).ok_or(Refusal::InvalidJobId)?;
            check(array.queue.hold)?;
            let owner = array.owner.uid;
            if !tasks.all {
                let ids: Vec<JobId> = tasks.indices.iter().filter_map(|i| array.task_id(tasks.array, i)).collect();
                for id in ids {
                    c.commit(ask.now, event(id, false, owner), out);
                }
                return Ok(());
            }
            let kept = held_apart(&c.state, tasks.array, &check);
            c.commit(ask.now, event(tasks.array, true, owner), out);
            for id in kept {
                c.commit(ask.now, Event::JobHeld { id, admin: true, whole: false }, out);
            }
            Ok(())
        },
        |c, id, out| {
            let job = c.state.jobs.get(&id).ok_or(Refusal::InvalidJobId)?;
            match &job.phase {
                Phase::Pending => {}
                Phase::Running(_) | Phase::Completing(..) | Phase::Leased(_) => return Err(Refusal::NotPending),
                Phase::Ended(_) => return Err(Refusal::AlreadyDone),
            }
            check(job.queue.hold)?;
            if !job.task.is_some_and(|task| whole.contains(&task.array)) {
                let owner = job.owner.uid;
                c.commit(ask.now, event(id, false, owner), out);
            }
            Ok(())
        },
    );
    Ok(Some(affected.answer()))
}

/// Pending tasks of an array that are jobs of their own and do not pass the check: an event of the whole array
/// must not change them.
fn held_apart(state: &State, array: JobId, check: &impl Fn(Hold) -> Result<(), Refusal>) -> Vec<JobId> {
    let pending = state.touched(array).filter(|(_, job)| job.is_pending());
    pending.filter(|(_, job)| check(job.queue.hold).is_err()).map(|(id, _)| id).collect()
}
