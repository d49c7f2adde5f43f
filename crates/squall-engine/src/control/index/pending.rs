//! Pending jobs and arrays of the queue. An array stands for its tasks that have no record of their own ("untouched"
//! tasks).

use crate::control::index::depend;
use crate::control::index::depend::{Dependent, Verdict};
use crate::control::index::limits;
use crate::control::index::names::Names;
use crate::control::index::reckon::Standee;
use crate::control::state::State;
use crate::control::state::array::Array;
use crate::control::state::gates;
use crate::control::state::job::{Job, Queue as Standing};
use squall_model::checkpoint::Checkpoint;
use squall_model::foreign::Question;
use squall_model::id::JobId;
use squall_model::job::{ArrayTask, Het, JobSpec, Outcome, Owner};
use squall_model::limits::UNLIMITED_S;
use squall_model::policy::{Limit, Whose};
use squall_model::set::IndexSet;
use squall_model::time::{Span, Time};
use squall_sched::{Gate, Group, Item};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Priority of the first job ever submitted; each later job has one less, as with Slurm's basic priorities. Those begin
/// at 0xffff0000, which is no 32-bit number with a sign: generated REST clients read no job that has such a priority.
const PRIORITY_FIRST: i64 = 0x7fff_0000;

/// A pending job, or the untouched tasks of an array (those without a record of their own), as one type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending<'a> {
    /// Id of the job or array, and whether it is an array.
    pub(crate) item: Item,
    /// The user who submitted the job or array.
    pub(crate) owner: &'a Arc<Owner>,
    /// The specification of the job or array.
    pub(crate) spec: &'a Arc<JobSpec>,
    /// Hold, priority and other settings that can change after the submission.
    pub(crate) standing: &'a Standing,
    /// When the job or array was submitted.
    pub(crate) submit: Time,
    /// Array and index, if the job is an array task.
    pub(crate) task: Option<ArrayTask>,
    /// The array, if its tasks without a record of their own are meant; None: a job is meant.
    pub(crate) array: Option<&'a Array>,
    /// Outcome of the attempt before, if the job was requeued.
    pub(crate) last: Option<&'a Outcome>,
    /// The heterogeneous job of which the job is a component; None: it is not a component.
    pub(crate) het: Option<Het>,
    /// The checkpoint from which the job goes on, if only the nodes that have it can restore it. None: it may start elsewhere.
    pub(crate) home: Option<&'a Checkpoint>,
}

/// Returns the queue entry for an id: the job or task itself if it has a record of its own, otherwise the array that
/// contains the task.
pub(crate) fn item_of(state: &State, id: JobId) -> Option<Item> {
    if state.jobs.contains_key(&id) {
        return Some(Item { id, array: false });
    }
    state.array_of(id).map(|(array, _)| Item { id: array, array: true })
}

/// Returns the data of a job or array, if it is pending; otherwise None.
pub(crate) fn pending(state: &State, item: Item) -> Option<Pending<'_>> {
    if item.array {
        let array = state.arrays.get(&item.id).filter(|array| !array.tally.untouched.is_empty())?;
        let Array { owner, spec, queue, submit, .. } = array;
        return Some(Pending {
            item,
            owner,
            spec,
            standing: queue,
            submit: *submit,
            task: None,
            array: Some(array),
            last: None,
            het: None,
            home: None,
        });
    }
    Some(pending_job(state, item.id, state.jobs.get(&item.id).filter(|job| job.is_pending())?))
}

pub(crate) fn pending_job<'a>(state: &State, id: JobId, job: &'a Job) -> Pending<'a> {
    Pending {
        item: Item { id, array: false },
        owner: &job.owner,
        spec: &job.spec,
        standing: &job.queue,
        submit: job.submit,
        task: job.task,
        array: None,
        last: job.last.as_ref(),
        het: state.het_of(id),
        home: job.home(),
    }
}

impl<'a> Pending<'a> {
    /// Returns the time limit that an update or the spec set, seconds. None: the partition's default; `UNLIMITED_S`: no
    /// limit.
    pub(crate) fn limit_s(&self) -> Option<u64> {
        let limit = self.standing.time_limit_s.or(self.spec.limit_s());
        limit.map(|limit| limit.unwrap_or(UNLIMITED_S))
    }
    /// Returns the time from which on the job could not end by its deadline any more. None: the job has no deadline.
    pub(crate) fn too_late(&self) -> Option<Time> {
        let limit_s = self.standing.time_limit_s.or(self.spec.limit_s()).flatten();
        Some(self.spec.latest_start(limit_s)? + Span(1))
    }
    /// Returns the data of the job or array that the evaluation of its dependency needs.
    pub(crate) fn dependent(&self) -> Dependent<'a> {
        Dependent {
            item: self.item,
            task: self.task,
            untouched: self.array.map(|array| &array.tally.untouched),
            uid: self.owner.uid,
            name: &self.spec.name,
            submit: self.submit,
        }
    }
    /// Evaluates the dependency of the job or array.
    pub(crate) fn verdict(&self, state: &State, names: &Names) -> Verdict {
        let dependency = self.spec.dependency.as_ref();
        dependency.map_or(Verdict::Holds, |d| depend::verdict(state, names, &self.dependent(), d))
    }
    /// Returns the questions about the dependency of the job or array that other cells have not answered.
    pub(crate) fn questions(&self, state: &State) -> Vec<Question> {
        let (who, terms) = (self.dependent(), self.spec.dependency.iter().flat_map(|dependency| &dependency.terms));
        let questions = terms.filter_map(|term| depend::question(state, &who, term));
        questions.filter(|question| !state.foreign.contains_key(question)).collect()
    }
    /// Returns whether the job or array has a `singleton` dependency.
    pub(crate) fn is_single(&self) -> bool {
        let terms = self.spec.dependency.iter().flat_map(|dependency| &dependency.terms);
        terms.into_iter().any(|term| term.job.is_none())
    }
    /// Returns the time before which the job or array does not start, because of `--begin` or a requeue. None: it may
    /// start at once.
    pub(crate) fn not_before(&self) -> Option<Time> {
        self.spec.begin.max(self.standing.not_before)
    }
    /// Returns how many more tasks of the array may run now under its limit (`%N`); None: there is no limit, or the job
    /// is not an array task.
    pub(crate) fn group(&self, state: &State) -> Option<Group> {
        let (id, array) = match (self.array, self.task) {
            (Some(array), _) => (self.item.id, array),
            (None, Some(task)) => (task.array, state.arrays.get(&task.array)?),
            (None, None) => return None,
        };
        array.limit.map(|limit| Group { id, room: limit.saturating_sub(array.tally.active) })
    }
    /// Returns a limit that the job or array would exceed even if it ran alone. None: in one of its partitions it
    /// exceeds none.
    pub(crate) fn broken(&self, state: &State) -> Option<(Whose, Limit)> {
        let mut broken = None;
        for at in partitions_of(state, self.spec) {
            let partition = &state.partitions[at].config.name;
            broken = Some(limits::broken(state, self.owner, self.spec, self.standing, partition)?);
        }
        broken
    }
    /// Returns the associations and QOS with shared limits (gates) against which the job or array counts, in any of its
    /// partitions.
    pub(crate) fn limiting_gates(&self, state: &State) -> BTreeSet<Gate> {
        let names = partitions_of(state, self.spec).map(|at| &state.partitions[at].config.name);
        let gates = names.flat_map(|partition| gates::gates(state, self.owner, self.spec, partition));
        gates.filter(|gate| limits::is_limited(state, *gate)).collect()
    }
    /// Returns whether any limit of an association or QOS applies to the job or array.
    pub(crate) fn is_limited(&self, state: &State) -> bool {
        !state.policy.is_empty() && !self.limiting_gates(state).is_empty()
    }
    /// Returns how many tasks of an array may start, apart from the array's limit (`%N`); 1 for a job.
    pub(crate) fn copies(&self, state: &State) -> u32 {
        let Some(array) = self.array else { return 1 };
        match depend::corresponding_tasks(state, array) {
            Some((ready, _)) => ready.len() as u32,
            None => array.tally.untouched.len() as u32,
        }
    }
}

/// Returns the basic priority of a job or array: a user's or operator's value, otherwise higher for earlier
/// submissions.
pub(crate) fn priority(state: &State, job: &Standee<'_>) -> u32 {
    // Ids have wrapped around. Jobs submitted since then come after all earlier ones: the size of the range of ids is
    // subtracted from their priority.
    let ids = state.config.job_ids();
    let again = state.ids_began.is_some() && !state.is_of_earlier_round(job.id, job.submit);
    let before = if again { i64::from(ids.end() - ids.start()) + 1 } else { 0 };
    let aged = PRIORITY_FIRST - before - i64::from(job.id.0) - i64::from(job.spec.nice);
    job.fixed().unwrap_or(aged.clamp(1, i64::from(i32::MAX)) as u32)
}

/// Returns the id of the array's untouched task that starts next. None: no task may start.
pub(crate) fn next_task(state: &State, id: JobId) -> Option<JobId> {
    let array = state.arrays.get(&id)?;
    let index = match depend::corresponding_tasks(state, array) {
        Some((ready, _)) => ready.first(),
        None => array.tally.untouched.first(),
    };
    array.task_id(id, index?)
}

/// Returns the indices of array tasks that can never start because of `aftercorr`.
pub(crate) fn condemned_tasks(state: &State, id: JobId) -> IndexSet {
    let array = state.arrays.get(&id);
    array.and_then(|array| depend::corresponding_tasks(state, array)).map(|(_, never)| never).unwrap_or_default()
}

/// Returns the positions in `State::partitions` of the partitions that a job names, or of the default one.
pub(crate) fn partitions_of<'a>(state: &'a State, spec: &'a JobSpec) -> impl Iterator<Item = usize> + 'a {
    let named = spec.partition.as_deref();
    state.partitions.iter().enumerate().filter_map(move |(at, partition)| {
        let wanted = match named {
            Some(names) => names.split(',').any(|name| name == partition.config.name),
            None => partition.config.default,
        };
        wanted.then_some(at)
    })
}
