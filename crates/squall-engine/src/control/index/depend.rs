//! Evaluation of job dependencies: satisfied, possible, or impossible.

use squall_model::foreign::{Named, Question, Reply};
use squall_model::id::JobId;
use squall_model::job::{ArrayTask, Dependency, DependencyJob, DependencyKind, DependencyTerm, EndState, JobSpec};
use squall_model::set::IndexSet;
use squall_model::time::{Span, Time};
use squall_sched::Item;

use crate::control::index::names::Names;
use crate::control::state::State;
use crate::control::state::array::Array;
use crate::control::state::job::Job;

/// The result of evaluating a dependency or one of its terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The dependency is satisfied.
    Holds,
    /// The dependency is satisfied from this time on.
    At(Time),
    /// The dependency is not satisfied, but may be later.
    Waits,
    /// The dependency can't be satisfied any more.
    Never,
}

/// The pending job or array of the dependency that is evaluated, with what the evaluation needs of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dependent<'a> {
    /// The job or array in the queue.
    pub(crate) item: Item,
    /// Array and index, if an array task with a record of its own is evaluated; otherwise None.
    pub(crate) task: Option<ArrayTask>,
    /// Indices of the tasks without a record of their own, if an array is evaluated; None: a job is evaluated.
    pub(crate) untouched: Option<&'a IndexSet>,
    /// Uid of the user who submitted the job or array.
    pub(crate) uid: u32,
    /// Name of the job or array, for `singleton`.
    pub(crate) name: &'a str,
    /// When the job or array was submitted.
    pub(crate) submit: Time,
}

/// Evaluates the whole dependency of a pending job or array.
pub(crate) fn verdict(state: &State, names: &Names, who: &Dependent<'_>, dependency: &Dependency) -> Verdict {
    let mut terms = dependency.terms.iter().map(|term| term_verdict(state, names, who, term));
    if dependency.any {
        terms.fold(Verdict::Never, easier)
    } else {
        terms.try_fold(Verdict::Holds, harder).unwrap_or(Verdict::Never)
    }
}

fn easier(a: Verdict, b: Verdict) -> Verdict {
    match (a, b) {
        (Verdict::Holds, _) | (_, Verdict::Holds) => Verdict::Holds,
        (Verdict::At(x), Verdict::At(y)) => Verdict::At(x.min(y)),
        (Verdict::At(x), _) | (_, Verdict::At(x)) => Verdict::At(x),
        (Verdict::Waits, _) | (_, Verdict::Waits) => Verdict::Waits,
        (Verdict::Never, Verdict::Never) => Verdict::Never,
    }
}

/// Combines the results of two terms of a dependency that must both hold: the later result counts. None: one of the
/// terms can never be satisfied.
fn harder(a: Verdict, b: Verdict) -> Option<Verdict> {
    match (a, b) {
        (Verdict::Never, _) | (_, Verdict::Never) => None,
        (Verdict::Waits, _) | (_, Verdict::Waits) => Some(Verdict::Waits),
        (Verdict::At(x), Verdict::At(y)) => Some(Verdict::At(x.max(y))),
        (Verdict::At(x), Verdict::Holds) | (Verdict::Holds, Verdict::At(x)) => Some(Verdict::At(x)),
        (Verdict::Holds, Verdict::Holds) => Some(Verdict::Holds),
    }
}

/// Evaluates one term of the dependency of a pending job or array.
pub(crate) fn term_verdict(state: &State, names: &Names, who: &Dependent<'_>, term: &DependencyTerm) -> Verdict {
    if let Some(question) = question(state, who, term)
        && state.foreign.get(&question) != Some(&Reply::Alone)
    {
        return elsewhere(term, state.foreign.get(&question));
    }
    let Some(job) = term.job else {
        return if names.first_of_name(state, who) { Verdict::Holds } else { Verdict::Waits };
    };
    if term.when == DependencyKind::AfterCorr
        && job.index.is_none()
        && let Some(target) = state.arrays.get(&job.id)
    {
        return corresponding(who, target);
    }
    // As in Slurm, a job that is not known has no dependents: it never was, or it ended long ago.
    target(state, job).map_or(Verdict::Holds, |target| judge(term.when, &target, job.delay_min))
}

/// Returns the question that other cells must answer to evaluate a term; None: this cell can evaluate it alone.
pub(crate) fn question(state: &State, who: &Dependent<'_>, term: &DependencyTerm) -> Option<Question> {
    match term.job {
        Some(job) if !state.is_foreign(job.id) => None,
        Some(DependencyJob { id, index, .. }) if term.when == DependencyKind::After => {
            Some(Question::Started(Named { id, index }))
        }
        Some(DependencyJob { id, index, .. }) => Some(Question::Ended(Named { id, index })),
        None => state.config.cell.map(|_| Question::Alone {
            job: who.task.map_or(who.item.id, |task| task.array),
            uid: who.uid,
            name: who.name.to_owned(),
            submit: who.submit,
        }),
    }
}

/// Evaluates a term by the answer of another cell; without an answer the term is not satisfied yet.
fn elsewhere(term: &DependencyTerm, reply: Option<&Reply>) -> Verdict {
    let target = match reply {
        None => return Verdict::Waits,
        Some(Reply::Started(time)) => Target { started: Some(*time), ended: None },
        Some(Reply::Ended { well }) => Target { started: None, ended: Some(*well) },
        Some(Reply::Alone | Reply::Unknown | Reply::Forgotten) => return Verdict::Never,
    };
    judge(term.when, &target, term.job.map_or(0, |job| job.delay_min))
}

/// Returns this cell's answer to another cell about the existing job or task `job`: how it ended, or with `start` also
/// that it started. None: neither has happened yet.
pub(crate) fn reply(state: &State, job: Named, start: bool) -> Option<Reply> {
    let Some(Target { started, ended }) = target(state, job.into()) else { return Some(Reply::Unknown) };
    let ended = ended.map(|well| Reply::Ended { well });
    if start { started.map(Reply::Started).or(ended) } else { ended }
}

/// Start and end of the job, array or task that a dependency term names.
struct Target {
    /// When the job started; None: it has not started.
    started: Option<Time>,
    /// Whether the job completed successfully; None: it has not ended.
    ended: Option<bool>,
}

fn judge(when: DependencyKind, target: &Target, delay_min: u32) -> Verdict {
    match (when, target.ended) {
        (DependencyKind::After, ended) => match target.started {
            Some(start) if delay_min > 0 => Verdict::At(start + Span::from_secs(u64::from(delay_min) * 60)),
            Some(_) => Verdict::Holds,
            None if ended.is_some() => Verdict::Holds,
            None => Verdict::Waits,
        },
        (_, None) => Verdict::Waits,
        (DependencyKind::AfterOk | DependencyKind::AfterCorr, Some(true))
        | (DependencyKind::AfterNotOk, Some(false))
        | (DependencyKind::AfterAny | DependencyKind::AfterBurstBuffer | DependencyKind::Singleton, Some(_)) => {
            Verdict::Holds
        }
        (_, Some(_)) => Verdict::Never,
    }
}

/// Returns what became of the job that a dependency term names. None: there is no such job or task.
fn target(state: &State, job: DependencyJob) -> Option<Target> {
    if let Some(array) = state.arrays.get(&job.id) {
        return match job.index {
            None => Some(of_array(array)),
            Some(index) => of_task(state, job.id, array, index),
        };
    }
    match (state.jobs.get(&job.id), state.array_of(job.id)) {
        (_, Some((id, array))) => of_task(state, id, array, array.index_of(id, job.id)?),
        (Some(job), None) => Some(of_job(job)),
        (None, None) => None,
    }
}

fn of_job(job: &Job) -> Target {
    let started = job.last_run().map(|run| run.start);
    let ended = job.outcome().filter(|_| job.is_ended()).map(|outcome| outcome.state == EndState::Completed);
    Target { started: started.or((job.restarts > 0).then_some(job.submit)), ended }
}

fn of_array(array: &Array) -> Target {
    let all_started = array.tally.untouched.is_empty() && array.tally.waiting == 0;
    let started = all_started.then_some(array.tally.last_start).flatten();
    Target { started, ended: array.is_ended().then(|| array.tally.bad.is_empty()) }
}

fn of_task(state: &State, id: JobId, array: &Array, index: u32) -> Option<Target> {
    if !array.tasks.indices.contains(index) {
        return None;
    }
    let job = array.task_id(id, index).and_then(|task| state.jobs.get(&task));
    let started = job.and_then(|job| of_job(job).started);
    let ended = match () {
        () if array.tally.ok.contains(index) => Some(true),
        () if array.tally.bad.contains(index) => Some(false),
        () => None,
    };
    Some(Target { started, ended })
}

/// Evaluates `aftercorr` on an array: a task waits for the task with the same index. An array with tasks that have no
/// record of their own may start if one of these tasks may.
fn corresponding(who: &Dependent<'_>, target: &Array) -> Verdict {
    let tally = &target.tally;
    let one = |index: u32| match () {
        () if tally.ok.contains(index) => Verdict::Holds,
        () if tally.bad.contains(index) || !target.tasks.indices.contains(index) => Verdict::Never,
        () => Verdict::Waits,
    };
    match (who.task, who.untouched) {
        (Some(task), _) => one(task.index),
        (None, Some(untouched)) if !untouched.intersection(&tally.ok).is_empty() => Verdict::Holds,
        (None, Some(untouched)) => {
            let possible = target.tasks.indices.difference(&tally.bad);
            if untouched.intersection(&possible).is_empty() { Verdict::Never } else { Verdict::Waits }
        }
        (None, None) => judge(DependencyKind::AfterOk, &of_array(target), 0),
    }
}

/// Returns the indices of an array's tasks without a record of their own: those that may start, and those that never
/// can, as far as `aftercorr` decides. None: the array has no such term.
pub(crate) fn corresponding_tasks(state: &State, array: &Array) -> Option<(IndexSet, IndexSet)> {
    let dependency = array.spec.dependency.as_ref()?;
    let targets = dependency.terms.iter().filter(|term| term.when == DependencyKind::AfterCorr);
    let targets = targets.filter_map(|term| term.job).filter(|job| job.index.is_none());
    let mut targets = targets.filter_map(|job| state.arrays.get(&job.id)).peekable();
    targets.peek()?;
    let untouched = &array.tally.untouched;
    let (mut ready, mut never) = (untouched.clone(), IndexSet::new());
    for target in targets {
        ready = ready.intersection(&target.tally.ok);
        never.union_with(&untouched.difference(&target.tasks.indices.difference(&target.tally.bad)));
    }
    Some((ready, never))
}

/// Returns the ids of the jobs and arrays that a spec depends on; an array task counts as its array.
pub(crate) fn targets(state: &State, spec: &JobSpec) -> Vec<JobId> {
    let jobs = spec.dependency.iter().flat_map(|d| &d.terms).filter_map(|term| term.job);
    jobs.map(|job| state.array_of(job.id).map_or(job.id, |(array, _)| array)).collect()
}
