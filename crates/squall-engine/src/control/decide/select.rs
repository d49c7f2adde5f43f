//! Resolves a request's selection of jobs by state and the caller's rights.

use std::collections::BTreeSet;

use squall_model::hostlist::expand_within;
use squall_model::id::JobId;
use squall_model::job::{ArrayTask, EndState, Het, JobSpec, JobState, Owner};
use squall_model::set::{IndexSet, NodeSet};
use squall_model::wire::client::{JobName, JobRef, JobSelection, Refusal, StateFilter};

use crate::control::decide::rights::{Deed, Reach, can};
use crate::control::index::privacy::Sight;
use crate::control::port::Who;
use crate::control::state::array::{Array, Skipped};
use crate::control::state::job::{Hold, Job};
use crate::control::state::{Found, State, gates};
use crate::invariant::invariant;

/// Maximum number of array tasks of one request that an answer names one by one.
const NAMED_MAX: usize = 4096;

/// The result of a selection: jobs that have a record, and array tasks that are still part of their array's record
/// ("untouched" tasks).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selected {
    /// Jobs and array tasks with a record of their own, by rising id.
    pub(crate) jobs: BTreeSet<JobId>,
    /// Untouched array tasks, an entry for each array.
    pub(crate) tasks: Vec<Tasks>,
    /// Array tasks that ended without starting, by array. Requests can show them and not change them.
    pub(crate) skipped: Vec<(JobId, Skipped)>,
    /// Ids of the arrays that the request named as a whole.
    pub(crate) whole: Vec<JobId>,
    /// Names of the request that can't be selected, each with the refusal.
    pub(crate) refused: Vec<(JobName, Refusal)>,
}

/// Array tasks of one array that are still part of the array's record ("untouched" tasks).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tasks {
    /// Id of the array.
    pub(crate) array: JobId,
    /// Indices of the tasks; never empty.
    pub(crate) indices: IndexSet,
    /// Whether these are all untouched tasks of the array.
    pub(crate) all: bool,
}

impl Tasks {
    /// Returns the names of the tasks. All untouched tasks of the array, or very many of them, get one name: that of
    /// the array.
    pub(crate) fn names(&self, state: &State) -> Vec<JobName> {
        let array_itself = JobName { id: self.array, task: None };
        let Some(array) = state.arrays.get(&self.array) else { return vec![array_itself] };
        if self.all || self.indices.len() > NAMED_MAX {
            return vec![array_itself];
        }
        let name = |index| {
            let id = array.task_id(self.array, index)?;
            Some(JobName { id, task: Some(ArrayTask { array: self.array, index }) })
        };
        self.indices.iter().filter_map(name).collect()
    }
}

/// Resolves a selection for a change. Jobs that the caller may not change are refused if named, and left out if found
/// by a filter. Ended jobs are selected only by name.
pub(crate) fn select_to_change(state: &State, who: &Who, wanted: &JobSelection) -> Result<Selected, Refusal> {
    let filter = Filter::new(state, wanted)?;
    let mut selected = Selected::default();
    let reach = Reach::of(state, who);
    if wanted.ids.is_empty() {
        let may = |id, owner: &Owner| can(who, Deed::Job(owner)) && reach.check(state, id).is_ok();
        everything(state, &filter, may, &mut selected);
        return Ok(selected);
    }
    for named in &wanted.ids {
        let found = resolve(state, named, &mut selected.refused);
        let id = named.id();
        if let Some(owner) = found.owner(state)
            && let Err(refusal) =
                if can(who, Deed::Job(owner)) { reach.check(state, id) } else { Err(Refusal::AccessDenied) }
        {
            let name = if state.arrays.contains_key(&id) { JobName { id, task: None } } else { state.name_of(id) };
            selected.refused.push((name, refusal));
            continue;
        }
        if let Meant::Tasks(array, indices) = &found {
            selected.refused.extend(over(state, *array, indices));
        }
        found.into_selected(state, &filter, &mut selected);
    }
    Ok(selected)
}

/// Resolves a selection for a change into names of the jobs and arrays in it, each with the id of its record.
pub(crate) fn named_to_change(
    state: &State,
    who: &Who,
    wanted: &JobSelection,
) -> Result<Vec<(JobRef, JobId)>, Refusal> {
    let Selected { jobs, tasks, whole, .. } = select_to_change(state, who, wanted)?;
    let array_of = |id: &JobId| state.name_of(*id).task.map(|task| task.array);
    let mut all = Vec::new();
    for &array in &whole {
        let untouched = tasks.iter().any(|tasks| tasks.array == array).then_some(array);
        let record = untouched.or_else(|| jobs.iter().find(|id| array_of(id) == Some(array)).copied());
        all.extend(record.map(|id| (JobRef::Job(array), id)));
    }
    let apart = tasks.into_iter().filter(|tasks| !whole.contains(&tasks.array));
    all.extend(apart.map(|tasks| (JobRef::Tasks(tasks.array, tasks.indices), tasks.array)));
    let named = |id: JobId| match state.name_of(id).task {
        Some(task) => JobRef::Tasks(task.array, IndexSet::from_iter([task.index])),
        None => JobRef::Job(id),
    };
    all.extend(jobs.iter().filter(|id| !array_of(id).is_some_and(|a| whole.contains(&a))).map(|&id| (named(id), id)));
    Ok(all)
}

/// Resolves a selection for a list. Unknown names, and those of jobs outside of `sight` (None:
/// all are within), are returned in `refused`.
pub(crate) fn select_to_show(
    state: &State,
    sight: Option<&Sight>,
    wanted: &JobSelection,
    ended: bool,
) -> Result<Selected, Refusal> {
    let filter = Filter::to_show(state, sight, wanted, ended)?;
    let mut selected = select_named(state, &filter);
    if wanted.ids.is_empty() {
        selected.jobs =
            state.jobs.iter().filter(|(id, job)| filter.shows(state, **id, job)).map(|(&id, _)| id).collect();
    }
    Ok(selected)
}

/// Resolves a selection for a list. If the selection names no ids, jobs with a record of their own are left out: the
/// caller then finds those one by one with [`Filter::shows`].
pub(crate) fn select_named(state: &State, filter: &Filter<'_>) -> Selected {
    let mut selected = Selected::default();
    if filter.wanted.ids.is_empty() {
        every_task(state, filter, |_, _| true, &mut selected);
    }
    for named in &filter.wanted.ids {
        let found = resolve(state, named, &mut selected.refused);
        if filter.sight.is_some_and(|sight| found.id().is_some_and(|id| !sight.shows(state, id))) {
            selected.refused.push((JobName { id: named.id(), task: None }, Refusal::InvalidJobId));
            continue;
        }
        found.into_selected(state, filter, &mut selected);
    }
    selected.jobs.retain(|id| filter.ended || state.jobs.get(id).is_some_and(|job| !job.is_ended()));
    selected
}

/// Returns a refusal for each of the given tasks that ended without starting, as such tasks can't be changed.
fn over(state: &State, array: JobId, indices: &IndexSet) -> Vec<(JobName, Refusal)> {
    let skipped = state.arrays.get(&array).into_iter().flat_map(|array| &array.tally.skipped);
    let tasks = skipped.map(|skipped| Tasks { array, indices: skipped.tasks.intersection(indices), all: false });
    tasks.flat_map(|tasks| tasks.names(state)).map(|name| (name, Refusal::AlreadyDone)).collect()
}

fn everything(state: &State, filter: &Filter<'_>, may: impl Fn(JobId, &Owner) -> bool, selected: &mut Selected) {
    // The ids come in order, so the set is built at once and not by inserting each.
    let mut jobs = state
        .jobs
        .iter()
        .filter(|(id, job)| may(**id, &job.owner) && filter.shows(state, **id, job))
        .map(|(&id, _)| id)
        .collect();
    selected.jobs.append(&mut jobs);
    every_task(state, filter, may, selected);
}

/// Adds the pending tasks of all arrays that have no record of their own, and array tasks that ended without starting.
fn every_task(state: &State, filter: &Filter<'_>, may: impl Fn(JobId, &Owner) -> bool, selected: &mut Selected) {
    for (&id, array) in &state.arrays {
        let indices = &array.tally.untouched;
        if !indices.is_empty() && may(id, &array.owner) && filter.takes_tasks(state, array, JobState::Pending) {
            selected.tasks.push(Tasks { array: id, indices: indices.clone(), all: true });
        }
        if may(id, &array.owner) {
            selected.add_skipped(state, filter, id, &array.tasks.indices);
        }
    }
}

/// What one name of a selection stands for: a job, a heterogeneous job, an array or some of its tasks, or nothing.
enum Meant {
    Nothing,
    Job(JobId),
    Het(Het),
    Array(JobId),
    Tasks(JobId, IndexSet),
}

fn resolve(state: &State, named: &JobRef, refused: &mut Vec<(JobName, Refusal)>) -> Meant {
    match named {
        JobRef::Job(id) if state.arrays.contains_key(id) => Meant::Array(*id),
        JobRef::Job(id) if state.hets.contains_key(id) => Meant::Het(Het { leader: *id, size: state.hets[id] }),
        JobRef::Component(leader, offset) => {
            let size = state.hets.get(leader).copied().unwrap_or_default();
            let id = JobId(leader.0.saturating_add(*offset));
            if *offset < size && state.jobs.contains_key(&id) {
                return Meant::Job(id);
            }
            refused.push((JobName { id, task: None }, Refusal::InvalidJobId));
            Meant::Nothing
        }
        JobRef::Job(id) => {
            let task = match state.find(*id) {
                Some(Found::Job(_)) => return Meant::Job(*id),
                Some(Found::Untouched(_, task)) => Some(task),
                None => skipped_task(state, *id),
            };
            let Some(task) = task else {
                refused.push((JobName { id: *id, task: None }, Refusal::InvalidJobId));
                return Meant::Nothing;
            };
            Meant::Tasks(task.array, IndexSet::range(task.index, task.index))
        }
        JobRef::Tasks(id, indices) => {
            let known = state.arrays.get(id).map(|array| array.tasks.indices.intersection(indices)).unwrap_or_default();
            for index in indices.difference(&known).iter().take(NAMED_MAX) {
                let name = JobName { id: *id, task: Some(ArrayTask { array: *id, index }) };
                refused.push((name, Refusal::InvalidJobId));
            }
            if known.is_empty() { Meant::Nothing } else { Meant::Tasks(*id, known) }
        }
    }
}

/// Returns array and index of the task with this id if the task ended without starting; otherwise None.
fn skipped_task(state: &State, id: JobId) -> Option<ArrayTask> {
    let (array, of) = state.array_of(id)?;
    let index = of.index_of(array, id).filter(|index| of.tally.skipped(*index).is_some())?;
    Some(ArrayTask { array, index })
}

impl Meant {
    /// Returns the id of the job or array; None: there is none.
    fn id(&self) -> Option<JobId> {
        match self {
            Self::Nothing => None,
            Self::Het(het) => Some(het.leader),
            Self::Job(id) | Self::Array(id) | Self::Tasks(id, _) => Some(*id),
        }
    }

    fn owner<'a>(&self, state: &'a State) -> Option<&'a Owner> {
        match self {
            Self::Nothing => None,
            Self::Job(id) => state.jobs.get(id).map(|job| &*job.owner),
            Self::Het(het) => het.ids().find_map(|id| state.jobs.get(&id)).map(|job| &*job.owner),
            Self::Array(id) | Self::Tasks(id, _) => state.arrays.get(id).map(|array| &*array.owner),
        }
    }

    fn into_selected(self, state: &State, filter: &Filter<'_>, selected: &mut Selected) {
        let fits = |id: &JobId| state.jobs.get(id).is_some_and(|job| filter.takes_job(state, *id, job));
        match self {
            Self::Nothing => {}
            Self::Job(id) => selected.jobs.extend([id].iter().filter(|id| fits(id))),
            Self::Het(het) => selected.jobs.extend(het.ids().filter(fits)),
            Self::Array(id) => {
                let Some(array) = state.arrays.get(&id) else { return invariant!("an array that was meant is known") };
                if filter.is_open() {
                    selected.whole.push(id);
                }
                selected.jobs.extend(state.touched(id).map(|(id, _)| id).filter(fits));
                selected.add_untouched(state, filter, id, &array.tally.untouched);
                selected.add_skipped(state, filter, id, &array.tasks.indices);
            }
            Self::Tasks(id, indices) => {
                let touched = state.touched(id).filter(|(_, job)| job.task.is_some_and(|t| indices.contains(t.index)));
                selected.jobs.extend(touched.map(|(id, _)| id).filter(fits));
                selected.add_untouched(state, filter, id, &indices);
                selected.add_skipped(state, filter, id, &indices);
            }
        }
    }
}

impl Selected {
    fn add_untouched(&mut self, state: &State, filter: &Filter<'_>, id: JobId, indices: &IndexSet) {
        let Some(array) = state.arrays.get(&id) else { return invariant!("an array with selected tasks is known") };
        let indices = array.tally.untouched.intersection(indices);
        if indices.is_empty() || !filter.takes_tasks(state, array, JobState::Pending) {
            return;
        }
        let untouched = &array.tally.untouched;
        match self.tasks.iter_mut().find(|tasks| tasks.array == id) {
            Some(tasks) => {
                tasks.indices.union_with(&indices);
                tasks.all = tasks.indices == *untouched;
            }
            None => self.tasks.push(Tasks { array: id, all: indices == *untouched, indices }),
        }
    }

    /// Adds array tasks that ended without starting. They are shown as long as jobs that ended at the same time have a
    /// record; tasks of an array that has ended are shown as long as the array has one.
    fn add_skipped(&mut self, state: &State, filter: &Filter<'_>, id: JobId, indices: &IndexSet) {
        // because most lists are of jobs that have not ended
        let Some(array) = state.arrays.get(&id).filter(|_| filter.ended) else { return };
        let kept = |skipped: &&Skipped| array.is_ended() || skipped.time >= state.forgotten_before;
        for skipped in array.tally.skipped.iter().filter(kept) {
            let tasks = skipped.tasks.intersection(indices);
            if tasks.is_empty() || !filter.takes_tasks(state, array, JobState::Ended(skipped.outcome.state)) {
                continue;
            }
            match self.skipped.iter_mut().find(|(array, known)| *array == id && known.outcome == skipped.outcome) {
                Some((_, known)) => known.tasks.union_with(&tasks),
                None => self.skipped.push((id, Skipped { tasks, ..skipped.clone() })),
            }
        }
    }
}

/// The conditions of a selection other than job ids: users, states, nodes, partitions, names, accounts and QOS.
pub(crate) struct Filter<'a> {
    wanted: &'a JobSelection,
    nodes: Option<NodeSet>,
    ended: bool,
    /// Whether jobs are left out that are in hidden partitions only, of which there are some.
    leaves_hidden: bool,
    /// What the user sees. None: everything; other checks decide.
    sight: Option<&'a Sight>,
}

impl<'a> Filter<'a> {
    fn new(state: &State, wanted: &'a JobSelection) -> Result<Self, Refusal> {
        let nodes = wanted.nodes.as_deref().map(|list| nodes_of(state, "nodelist", list)).transpose()?;
        let leaves_hidden = wanted.no_hidden && state.partitions.iter().any(|partition| partition.config.hidden);
        Ok(Self { wanted, nodes, ended: false, leaves_hidden, sight: None })
    }

    /// Makes a filter for a list: with jobs that have ended if `ended`, or if the selection names states.
    pub(crate) fn to_show(
        state: &State,
        sight: Option<&'a Sight>,
        wanted: &'a JobSelection,
        ended: bool,
    ) -> Result<Self, Refusal> {
        let ended = ended || !wanted.states.is_empty();
        Ok(Self { ended, sight, ..Self::new(state, wanted)? })
    }

    /// Returns whether a list shows this job.
    pub(crate) fn shows(&self, state: &State, id: JobId, job: &Job) -> bool {
        (self.ended || !job.is_ended()) && self.takes_job(state, id, job)
    }

    /// Returns whether the filter has no conditions.
    fn is_open(&self) -> bool {
        let w = self.wanted;
        let texts = [&w.partitions, &w.names, &w.accounts, &w.qos];
        let any = w.users.is_empty() && w.states.is_empty() && self.nodes.is_none() && !self.leaves_hidden;
        any && texts.iter().all(|list| list.is_empty())
    }

    fn takes_job(&self, state: &State, id: JobId, job: &Job) -> bool {
        let partition = job.last_run().map(|run| run.partition.as_str());
        let requeued = job.is_pending() && job.last.is_some();
        let special = job.is_pending() && job.queue.hold == Hold::Special;
        let covered = state.is_covered(id);
        self.takes_spec(state, &job.owner, &job.spec, partition)
            && self.takes_state(if covered { JobState::Suspended } else { job.shown_state() }, requeued, special)
            && self
                .nodes
                .as_ref()
                .is_none_or(|nodes| job.last_run().is_some_and(|run| !run.alloc.nodes().0.is_disjoint(&nodes.0)))
    }

    /// Returns whether an array's tasks in the state `standing` that never started pass the filter.
    fn takes_tasks(&self, state: &State, array: &Array, standing: JobState) -> bool {
        self.nodes.is_none()
            && self.takes_state(standing, false, false)
            && self.takes_spec(state, &array.owner, &array.spec, None)
    }

    fn takes_spec(&self, state: &State, owner: &Owner, spec: &JobSpec, partition: Option<&str>) -> bool {
        let w = self.wanted;
        let has = |list: &[String], value: &str| list.is_empty() || list.iter().any(|wanted| wanted == value);
        let set_up = |list: &[String], value: &str| {
            list.is_empty() || list.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
        };
        let in_partition = || match partition {
            Some(partition) => has(&w.partitions, partition),
            None => state.partitions_of(spec).any(|partition| has(&w.partitions, &partition.config.name)),
        };
        let hidden = || match partition {
            Some(partition) => state.partition(partition).is_some_and(|partition| partition.config.hidden),
            None => state.partitions_of(spec).all(|partition| partition.config.hidden),
        };
        (w.users.is_empty() || w.users.contains(&owner.uid))
            && !(self.leaves_hidden && hidden())
            && has(&w.names, &spec.name)
            && set_up(&w.accounts, spec.account.as_deref().unwrap_or(&state.config.default_account))
            && set_up(&w.qos, spec.qos.as_deref().unwrap_or(&state.config.default_qos))
            && (w.partitions.is_empty() || in_partition())
            && self.sight.is_none_or(|sight| sight.job(owner, gates::account_of(state, spec)))
    }

    fn takes_state(&self, state: JobState, requeued: bool, special: bool) -> bool {
        let states = &self.wanted.states;
        let takes = |filter| match filter {
            StateFilter::SpecialExit => special,
            // As in Slurm, such a job is pending, and a filter for pending jobs leaves it out.
            StateFilter::Pending if special => false,
            _ => is_in(filter, state, requeued),
        };
        states.is_empty() || states.iter().any(|&filter| takes(filter))
    }
}

/// Returns whether a job in this state passes the filter. A completing job passes for its end state, too.
pub(crate) fn is_in(filter: StateFilter, state: JobState, requeued: bool) -> bool {
    let end = match state {
        JobState::Completing(end) | JobState::Ended(end) => Some(end),
        JobState::Pending | JobState::Running | JobState::Configuring | JobState::Suspended => None,
    };
    match filter {
        StateFilter::Pending => state == JobState::Pending,
        StateFilter::Running => matches!(state, JobState::Running | JobState::Configuring),
        StateFilter::Configuring => state == JobState::Configuring,
        StateFilter::Suspended => state == JobState::Suspended,
        StateFilter::Completing => matches!(state, JobState::Completing(_)),
        StateFilter::Completed => end == Some(EndState::Completed),
        StateFilter::Cancelled => matches!(end, Some(EndState::Cancelled { .. })),
        StateFilter::Failed => end == Some(EndState::Failed),
        StateFilter::Timeout => end == Some(EndState::Timeout),
        StateFilter::NodeFail => end == Some(EndState::NodeFail),
        StateFilter::OutOfMemory => end == Some(EndState::OutOfMemory),
        StateFilter::Preempted => end == Some(EndState::Preempted),
        StateFilter::Deadline => end == Some(EndState::Deadline),
        StateFilter::BootFail => end == Some(EndState::BootFail),
        StateFilter::Requeued => requeued || end == Some(EndState::Requeued),
        StateFilter::Never | StateFilter::SpecialExit => false,
    }
}

/// Returns the nodes of a host list. An unknown name is refused.
pub(crate) fn nodes_of(state: &State, option: &str, list: &str) -> Result<NodeSet, Refusal> {
    let names = expand_within(list, state.nodes.len()).map_err(|e| Refusal::InvalidValue {
        option: option.to_owned(),
        value: list.to_owned(),
        problem: e.to_string(),
    })?;
    nodes_named(state, names)
}

/// Returns the nodes with these names. An unknown name is refused.
pub(crate) fn nodes_named(state: &State, names: Vec<String>) -> Result<NodeSet, Refusal> {
    names.into_iter().map(|name| state.node_id(&name).ok_or(Refusal::InvalidNode(name))).collect()
}
