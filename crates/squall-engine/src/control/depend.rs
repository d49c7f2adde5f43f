//! Whether what a job waits for has come true.

use squall_model::id::JobId;
use squall_model::job::{ArrayTask, Dependency, DependencyJob, DependencyKind, DependencyTerm, EndState, JobSpec};
use squall_model::time::{Span, Time};

use super::state::array::Array;
use super::state::job::{Job, Phase};
use super::state::{Found, State};

/// How a condition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has come true.
    Holds,
    /// It may come true; by itself at that time, if one is given.
    Waits(Option<Time>),
    /// It can't come true any more.
    Never,
}

/// A job that waits, as far as conditions look at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter<'a> {
    /// Its id, or its array's.
    pub(crate) id: JobId,
    /// Its user.
    pub(crate) uid: u32,
    /// What it asks for.
    pub(crate) spec: &'a JobSpec,
    /// Which task of an array it is; None for an array as a whole.
    pub(crate) task: Option<ArrayTask>,
}

/// How the whole dependency of a job stands.
pub(crate) fn standing(state: &State, waiter: Waiter<'_>, now: Time) -> Standing {
    let Some(dependency) = &waiter.spec.dependency else { return Standing::Holds };
    let terms = dependency.terms.iter().map(|term| term_standing(state, waiter, term, now));
    if dependency.any { any_of(terms) } else { all_of(terms) }
}

fn all_of(terms: impl Iterator<Item = Standing>) -> Standing {
    let mut all = Standing::Holds;
    for term in terms {
        all = match (all, term) {
            (_, Standing::Never) => return Standing::Never,
            (all, Standing::Holds) => all,
            (Standing::Waits(Some(a)), Standing::Waits(Some(b))) => Standing::Waits(Some(a.max(b))),
            (Standing::Holds, waits) => waits,
            _ => Standing::Waits(None),
        };
    }
    all
}

fn any_of(terms: impl Iterator<Item = Standing>) -> Standing {
    let mut any = Standing::Never;
    for term in terms {
        any = match (any, term) {
            (_, Standing::Holds) => return Standing::Holds,
            (any, Standing::Never) => any,
            (Standing::Waits(Some(a)), Standing::Waits(Some(b))) => Standing::Waits(Some(a.min(b))),
            (Standing::Waits(known @ Some(_)), Standing::Waits(None)) => Standing::Waits(known),
            (_, waits) => waits,
        };
    }
    any
}

/// The terms that have not come true, and whether they can't any more.
pub(crate) fn open_terms<'a>(
    state: &State,
    waiter: Waiter<'_>,
    dependency: &'a Dependency,
    now: Time,
) -> Vec<(&'a DependencyTerm, bool)> {
    let standing = |term| match term_standing(state, waiter, term, now) {
        Standing::Holds => None,
        Standing::Waits(_) => Some((term, false)),
        Standing::Never => Some((term, true)),
    };
    dependency.terms.iter().filter_map(standing).collect()
}

/// How one condition stands.
pub(crate) fn term_standing(state: &State, waiter: Waiter<'_>, term: &DependencyTerm, now: Time) -> Standing {
    let Some(job) = term.job else { return singleton(state, waiter) };
    let corresponding = waiter.task.filter(|_| term.when == DependencyKind::AfterCorr).map(|task| task.index);
    match (state.arrays.get(&job.id), job.index.or(corresponding)) {
        (Some(array), Some(index)) => of_task(state, array, job, index, term.when, now),
        (Some(array), None) => of_array(array, job, term.when, now),
        (None, _) => of_id(state, job.id, job, term.when, now),
    }
}

fn of_task(state: &State, array: &Array, job: DependencyJob, index: u32, when: DependencyKind, now: Time) -> Standing {
    let Some(id) = array.task_id(job.id, index) else { return Standing::Never };
    // An ended task may be forgotten before its array is.
    match (array.tally.ok.contains(index), array.tally.bad.contains(index)) {
        (true, _) => ended(when, true),
        (_, true) => ended(when, false),
        _ => of_id(state, id, job, when, now),
    }
}

fn of_id(state: &State, id: JobId, named: DependencyJob, when: DependencyKind, now: Time) -> Standing {
    match state.find(id) {
        Some(Found::Job(job)) => of_job(job, named, when, now),
        Some(Found::Untouched(..)) => Standing::Waits(None),
        // Ended so long ago that nobody remembers how.
        None => Standing::Holds,
    }
}

fn of_job(job: &Job, named: DependencyJob, when: DependencyKind, now: Time) -> Standing {
    match &job.phase {
        Phase::Ended(end) if when != DependencyKind::After => ended(when, end.outcome.state == EndState::Completed),
        Phase::Ended(end) => end.run.as_ref().map_or(Standing::Holds, |run| started(run.start, named, now)),
        Phase::Running(run) | Phase::Completing(run, _) if when == DependencyKind::After => {
            started(run.start, named, now)
        }
        Phase::Pending | Phase::Running(_) | Phase::Completing(..) => Standing::Waits(None),
    }
}

fn of_array(array: &Array, named: DependencyJob, when: DependencyKind, now: Time) -> Standing {
    let tally = &array.tally;
    let is_ended = array.is_ended();
    match when {
        DependencyKind::After if tally.untouched.is_empty() && tally.waiting == 0 => {
            tally.last_start.map_or(Standing::Holds, |start| started(start, named, now))
        }
        DependencyKind::AfterOk | DependencyKind::AfterCorr if !tally.bad.is_empty() => Standing::Never,
        _ if is_ended && when != DependencyKind::After => ended(when, tally.bad.is_empty()),
        _ => Standing::Waits(None),
    }
}

fn ended(when: DependencyKind, ok: bool) -> Standing {
    let holds = match when {
        DependencyKind::AfterOk | DependencyKind::AfterCorr => ok,
        DependencyKind::AfterNotOk => !ok,
        DependencyKind::After
        | DependencyKind::AfterAny
        | DependencyKind::AfterBurstBuffer
        | DependencyKind::Singleton => true,
    };
    if holds { Standing::Holds } else { Standing::Never }
}

fn started(start: Time, named: DependencyJob, now: Time) -> Standing {
    let time = start + Span::from_secs(u64::from(named.delay_min) * 60);
    if time <= now { Standing::Holds } else { Standing::Waits(Some(time)) }
}

/// No other job of that name and user may hold resources or wait ahead.
fn singleton(state: &State, waiter: Waiter<'_>) -> Standing {
    let same = |uid: u32, spec: &JobSpec| uid == waiter.uid && spec.name == waiter.spec.name;
    let own_array = waiter.task.map_or(waiter.id, |task| task.array);
    let is_other = |id: &JobId, job: &Job| job.task.map_or(*id, |task| task.array) != own_array;
    let holds = state.jobs.iter().any(|(id, job)| {
        same(job.owner.uid, &job.spec)
            && is_other(id, job)
            && (job.run().is_some() || (job.is_pending() && *id < waiter.id))
    });
    let mut ahead = state.arrays.range(..own_array);
    let waits = ahead.any(|(_, array)| same(array.owner.uid, &array.spec) && !array.tally.untouched.is_empty());
    if holds || waits { Standing::Waits(None) } else { Standing::Holds }
}

#[cfg(test)]
mod tests;
