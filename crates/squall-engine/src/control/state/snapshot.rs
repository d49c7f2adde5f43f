//! A whole state in compact form: shared specs and owners once, derived indexes not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use squall_model::config::Config;
use squall_model::id::{Attempt, ClientKey, Epoch, JobId, NodeId};
use squall_model::job::{ArraySpec, ArrayTask, JobSpec, Outcome, Owner};
use squall_model::time::Time;

use super::array::{Array, ArrayTally};
use super::job::{Job, Phase, Queue};
use super::node::{Node, Partition};
use super::{Index, State};

/// What a snapshot file holds. Made by [`State::snapshot`], undone by [`Snapshot::restore`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    epoch: Epoch,
    version: String,
    config: Arc<Config>,
    partitions: Vec<Partition>,
    nodes: Vec<Node>,
    last_id: JobId,
    forgotten_before: Time,
    owners: Vec<Arc<Owner>>,
    specs: Vec<Arc<JobSpec>>,
    jobs: Vec<JobRow>,
    arrays: Vec<ArrayRow>,
}

/// A job; `owner` and `spec` are places in the snapshot's lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct JobRow {
    id: JobId,
    owner: u32,
    spec: u32,
    key: Option<ClientKey>,
    task: Option<ArrayTask>,
    own_spec: bool,
    submit: Time,
    queue: Queue,
    attempt: Attempt,
    restarts: u32,
    launch_failures: u32,
    phase: Phase,
    last: Option<Outcome>,
}

/// An array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ArrayRow {
    id: JobId,
    owner: u32,
    spec: u32,
    tasks: Arc<ArraySpec>,
    key: ClientKey,
    submit: Time,
    queue: Queue,
    limit: Option<u32>,
    tally: ArrayTally,
}

/// Values that are kept once, by address.
struct Table<T> {
    places: BTreeMap<usize, u32>,
    values: Vec<Arc<T>>,
}

impl<T> Table<T> {
    fn new() -> Self {
        Self { places: BTreeMap::new(), values: Vec::new() }
    }
    fn place(&mut self, value: &Arc<T>) -> u32 {
        let fresh = self.values.len() as u32;
        let place = *self.places.entry(Arc::as_ptr(value).addr()).or_insert(fresh);
        if place == fresh {
            self.values.push(Arc::clone(value));
        }
        place
    }
}

impl State {
    /// The compact form of this state. Shares content with it, so it is cheap to make and can be written elsewhere.
    pub fn snapshot(&self) -> Snapshot {
        let (mut owners, mut specs) = (Table::new(), Table::new());
        let jobs = self.jobs.iter().map(|(&id, job)| JobRow {
            id,
            owner: owners.place(&job.owner),
            spec: specs.place(&job.spec),
            key: job.key,
            task: job.task,
            own_spec: job.own_spec,
            submit: job.submit,
            queue: job.queue,
            attempt: job.attempt,
            restarts: job.restarts,
            launch_failures: job.launch_failures,
            phase: job.phase.clone(),
            last: job.last.clone(),
        });
        let jobs = jobs.collect();
        let arrays = self.arrays.iter().map(|(&id, array)| ArrayRow {
            id,
            owner: owners.place(&array.owner),
            spec: specs.place(&array.spec),
            tasks: Arc::clone(&array.tasks),
            key: array.key,
            submit: array.submit,
            queue: array.queue,
            limit: array.limit,
            tally: array.tally.clone(),
        });
        let arrays = arrays.collect();
        Snapshot {
            epoch: self.epoch,
            version: self.version.clone(),
            config: Arc::clone(&self.config),
            partitions: self.partitions.clone(),
            nodes: self.nodes.clone(),
            last_id: self.last_id,
            forgotten_before: self.forgotten_before,
            owners: owners.values,
            specs: specs.values,
            jobs,
            arrays,
        }
    }
}

impl Snapshot {
    /// The state that this was made of. None: the snapshot contradicts itself.
    pub fn restore(self) -> Option<State> {
        let (owners, specs) = (self.owners, self.specs);
        let shared =
            |owner: u32, spec: u32| Some((owners.get(owner as usize)?.clone(), specs.get(spec as usize)?.clone()));
        let mut jobs = Vec::with_capacity(self.jobs.len());
        for row in self.jobs {
            let (owner, spec) = shared(row.owner, row.spec)?;
            let job = Job {
                owner,
                spec,
                key: row.key,
                task: row.task,
                own_spec: row.own_spec,
                submit: row.submit,
                queue: row.queue,
                attempt: row.attempt,
                restarts: row.restarts,
                launch_failures: row.launch_failures,
                phase: row.phase,
                last: row.last,
            };
            jobs.push((row.id, job));
        }
        let mut arrays = BTreeMap::new();
        for row in self.arrays {
            let (owner, spec) = shared(row.owner, row.spec)?;
            let ArrayRow { id, tasks, key, submit, queue, limit, tally, .. } = row;
            arrays.insert(id, Array { owner, spec, tasks, key, submit, queue, limit, tally });
        }
        let mut state = State {
            epoch: self.epoch,
            version: self.version,
            config: self.config,
            partitions: self.partitions,
            nodes: self.nodes,
            last_id: self.last_id,
            jobs: jobs.into_iter().collect(),
            arrays,
            forgotten_before: self.forgotten_before,
            index: Index::default(),
        };
        state.rebuild_index();
        Some(state)
    }
}

impl State {
    /// Makes the index anew from all that is not index.
    fn rebuild_index(&mut self) {
        let named = self.nodes.iter().enumerate();
        let mut index =
            Index { names: named.map(|(i, n)| (n.name.clone(), NodeId(i as u32))).collect(), ..Index::default() };
        let mut keys = Vec::with_capacity(self.jobs.len() + self.arrays.len());
        let mut ended = Vec::new();
        for (&id, job) in &self.jobs {
            keys.extend(job.key.map(|key| ((job.owner.uid, key), id)));
            match &job.phase {
                Phase::Pending => index.pending += 1,
                Phase::Running(_) | Phase::Completing(..) => index.active += 1,
                Phase::Ended(end) => ended.push((end.time, id)),
            }
        }
        for (&id, array) in &self.arrays {
            keys.push(((array.owner.uid, array.key), id));
            index.pending += array.tally.untouched.len() as u64;
            if array.is_ended() {
                index.ended_arrays.extend(array.tally.last_end.map(|time| (time, id)));
            }
        }
        index.keys = keys.into_iter().collect();
        index.ended = ended.into_iter().collect();
        self.index = index;
        let jobs = self.jobs.values().filter(|job| job.has_own_wants() && !job.is_ended()).map(|job| &job.spec);
        let arrays = self.arrays.values().filter(|array| !array.is_ended()).map(|array| &array.spec);
        let wanting: Vec<_> = jobs.chain(arrays).filter(|spec| spec.dependency.is_some()).cloned().collect();
        for spec in wanting {
            self.want(&spec);
        }
    }
}
