//! Jobs by user and name, for `--dependency=singleton`.

use std::collections::BTreeSet;

use squall_model::id::JobId;
use squall_model::time::Time;
use squall_sched::Item;

use crate::control::index::depend::Dependent;
use crate::control::index::pending::Pending;
use crate::control::state::State;

/// Jobs and arrays by user and hash of the name. Empty until the first job with `singleton`.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Whether names are recorded: some job has used `singleton`.
    kept: bool,
    /// Jobs and arrays that have not ended, by uid and hash of the name.
    live: BTreeSet<(u32, u64, Item)>,
    /// Jobs and arrays that hold resources, by uid and hash of the name.
    active: BTreeSet<(u32, u64, Item)>,
    /// Pending jobs and arrays with `singleton`, by uid and hash of the name.
    single: BTreeSet<(u32, u64, Item)>,
}

impl Names {
    /// Returns whether all jobs of a user and name that were submitted before a time have ended.
    pub(crate) fn is_alone(&self, state: &State, uid: u32, name: &str, before: (Time, JobId)) -> bool {
        let submit = |item: Item| match state.arrays.get(&item.id).filter(|_| item.array) {
            Some(array) => Some(array.submit),
            None => state.jobs.get(&item.id).map(|job| job.submit),
        };
        let earlier = |item: &Item| submit(*item).is_some_and(|time| (time, item.id) < before);
        !same(&self.live, uid, name).filter(earlier).any(|item| name_of(state, item) == Some(name))
    }
    /// Starts to record the names of all jobs, because a job uses `singleton`.
    pub(crate) fn keep(&mut self, state: &State) {
        if self.kept {
            return;
        }
        let jobs = state.jobs.iter().filter(|(_, job)| job.task.is_none() && !job.is_ended());
        let jobs = jobs.map(|(&id, job)| (key(Item { id, array: false }, job.owner.uid, &job.spec.name), job));
        let (mut live, mut active) = (Vec::new(), Vec::new());
        for (key, job) in jobs {
            live.push(key);
            active.extend(job.run().map(|_| key));
        }
        for (&id, array) in state.arrays.iter().filter(|(_, array)| !array.is_ended()) {
            let key = key(Item { id, array: true }, array.owner.uid, &array.spec.name);
            live.push(key);
            active.extend((array.tally.active > 0).then_some(key));
        }
        let (live, active) = (live.into_iter().collect(), active.into_iter().collect());
        *self = Self { kept: true, live, active, single: BTreeSet::new() };
    }
    /// Updates the entries of a job or whole array after a change of its state: pending, holding resources, or ended.
    pub(crate) fn note(&mut self, state: &State, id: JobId) {
        if !self.kept {
            return;
        }
        let (key, live, active) = if let Some(array) = state.arrays.get(&id) {
            let key = key(Item { id, array: true }, array.owner.uid, &array.spec.name);
            (key, !array.is_ended(), array.tally.active > 0)
        } else if let Some(job) = state.jobs.get(&id).filter(|job| job.task.is_none()) {
            let key = key(Item { id, array: false }, job.owner.uid, &job.spec.name);
            (key, !job.is_ended(), job.run().is_some())
        } else {
            // because a task has no name of its own: its array has it
            return;
        };
        set(&mut self.live, key, live);
        set(&mut self.active, key, active);
    }
    /// Removes the entries of a job or array, because its name is about to change.
    pub(crate) fn remove(&mut self, state: &State, id: JobId) {
        let key = if let Some(array) = state.arrays.get(&id) {
            key(Item { id, array: true }, array.owner.uid, &array.spec.name)
        } else if let Some(job) = state.jobs.get(&id) {
            key(Item { id, array: false }, job.owner.uid, &job.spec.name)
        } else {
            // because an update may be of a task without a record, whose name its array has
            return;
        };
        self.live.remove(&key);
        self.active.remove(&key);
    }
    /// Records whether a pending job or array waits because of `singleton`.
    pub(crate) fn want_single(&mut self, pending: &Pending<'_>, waits: bool) {
        set(&mut self.single, key(pending.item, pending.owner.uid, &pending.spec.name), waits);
    }
    /// Returns whether a `singleton` job may start: no other job of the same user and name holds resources or was
    /// submitted earlier.
    pub(crate) fn first_of_name(&self, state: &State, who: &Dependent<'_>) -> bool {
        let own = match who.task {
            Some(task) => Item { id: task.array, array: true },
            None => who.item,
        };
        let other = |item: Item| item != own && name_of(state, item) == Some(who.name);
        let ahead = same(&self.live, who.uid, who.name).take_while(|item| item.id < own.id).any(other);
        !ahead && !same(&self.active, who.uid, who.name).any(other)
    }
    /// Returns the first pending job or array with `singleton` that has the user and name of the job or array `id`.
    pub(crate) fn single_like(&self, state: &State, id: JobId) -> Option<Item> {
        if self.single.is_empty() {
            return None;
        }
        let id = state.array_of(id).map_or(id, |(array, _)| array);
        let (uid, name) = match (state.arrays.get(&id), state.jobs.get(&id)) {
            (Some(array), _) => (array.owner.uid, &array.spec.name),
            (None, Some(job)) => (job.owner.uid, &job.spec.name),
            (None, None) => return None,
        };
        same(&self.single, uid, name).next()
    }
}

/// Returns the entries of a user and name by rising id. Names with the same hash may be among them.
fn same<'a>(set: &'a BTreeSet<(u32, u64, Item)>, uid: u32, name: &str) -> impl Iterator<Item = Item> + 'a {
    let hash = hash(name);
    let from = (uid, hash, Item { id: JobId(0), array: false });
    set.range(from..).take_while(move |(u, h, _)| (*u, *h) == (uid, hash)).map(|(_, _, item)| *item)
}

fn set(set: &mut BTreeSet<(u32, u64, Item)>, key: (u32, u64, Item), there: bool) {
    if there {
        set.insert(key);
    } else {
        set.remove(&key);
    }
}

fn name_of(state: &State, item: Item) -> Option<&str> {
    if item.array {
        state.arrays.get(&item.id).map(|array| array.spec.name.as_str())
    } else {
        state.jobs.get(&item.id).map(|job| job.spec.name.as_str())
    }
}

fn key(item: Item, uid: u32, name: &str) -> (u32, u64, Item) {
    (uid, hash(name), item)
}

/// FNV-1a hash of a name.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
