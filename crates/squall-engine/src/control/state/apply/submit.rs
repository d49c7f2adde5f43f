//! Submission of jobs, records of array tasks of their own, and the number of jobs that depend on each job.

use std::sync::Arc;

use squall_model::id::{Attempt, ClientKey, JobId};
use squall_model::job::{ArrayTask, JobKind, JobSpec, Owner};
use squall_model::time::Time;

use crate::control::state::State;
use crate::control::state::apply::policy::Sign;
use crate::control::state::array::{Array, ArrayTally};
use crate::control::state::job::{Hold, Job, Phase, Queue};
use crate::control::state::users::content_of;
use crate::invariant::invariant;

impl State {
    pub(super) fn job_submitted(
        &mut self,
        time: Time,
        id: JobId,
        key: ClientKey,
        owner: &Arc<Owner>,
        spec: &Arc<JobSpec>,
    ) {
        let size = spec.array.as_ref().map_or(1, |array| array.indices.len() as u32);
        if self.has_any(id, size) {
            debug_assert!(false, "id {id} given twice");
            return;
        }
        let owner = self.index.recent.owner(owner);
        let spec = self.index.recent.spec(spec);
        let queue = Queue { hold: if spec.is_held() { Hold::User } else { Hold::No }, ..Queue::default() };
        // A heterogeneous job is found by the key of its first component.
        let key = (spec.kind != JobKind::Component).then_some(key);
        self.index.keys.extend(key.map(|key| ((owner.uid, key), id)));
        self.want(&spec);
        if id < self.last_id {
            self.ids_began = Some(time);
        }
        self.last_id = JobId(id.0 + size.max(1) - 1);
        self.index.pending += u64::from(size);
        self.index.users.change(owner.uid, |user| {
            user.jobs += u64::from(size);
            user.content += content_of(&spec);
        });
        if self.counts() {
            self.count_submitted(&owner, &spec, u64::from(size), Sign::Plus);
        }
        if let Some((tasks, key)) = spec.array.clone().zip(key) {
            let tally = ArrayTally { untouched: tasks.indices.clone(), ..ArrayTally::default() };
            let (limit, tasks) = (tasks.limit, Arc::new(tasks));
            self.arrays.insert(id, Array { owner, spec, tasks, key, submit: time, queue, limit, tally });
        } else {
            self.jobs.insert(id, Box::new(new_job(owner, spec, time, queue, key, None)));
        }
    }

    pub(super) fn het_formed(&mut self, leader: JobId, size: u32) {
        self.hets.insert(leader, size);
    }

    /// Gives an array task a record of its own. Returns whether the task has one now.
    pub(super) fn touch(&mut self, id: JobId) -> bool {
        if self.jobs.contains_key(&id) {
            return true;
        }
        let Some((&array_id, array)) = self.arrays.range_mut(..=id).next_back() else { return false };
        let Some(index) = array.index_of(array_id, id) else { return false };
        if !array.tally.untouched.remove(index) {
            return false;
        }
        array.tally.waiting += 1;
        let task = ArrayTask { array: array_id, index };
        let (owner, spec) = (Arc::clone(&array.owner), Arc::clone(&array.spec));
        let job = new_job(owner, spec, array.submit, array.queue, None, Some(task));
        self.jobs.insert(id, Box::new(job));
        true
    }

    /// Protects the records of the jobs that a spec depends on from removal, until the dependent job has ended.
    pub(in crate::control) fn want(&mut self, spec: &JobSpec) {
        for id in self.wanted_by(spec) {
            *self.index.wanted.entry(id).or_default() += 1;
        }
    }

    /// Ends the protection of the jobs that a job depends on. Old ones are removed with the next
    /// [`squall_model::event::Event::Forgotten`], when clients that wait for their end have been answered.
    pub(super) fn unwant(&mut self, id: JobId, spec: &JobSpec) {
        if !self.foreign.is_empty() {
            self.forget_alone(id);
        }
        for id in self.wanted_by(spec) {
            let Some(count) = self.index.wanted.get_mut(&id) else {
                invariant!("a job that another one depends on is protected");
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.index.wanted.remove(&id);
                if self.is_foreign(id) {
                    self.forget_foreign(id);
                }
            }
        }
    }

    fn wanted_by(&self, spec: &JobSpec) -> Vec<JobId> {
        let terms = spec.dependency.iter().flat_map(|d| &d.terms);
        let ids = terms.filter_map(|term| term.job).map(|job| job.id);
        ids.map(|id| self.array_of(id).map_or(id, |(array, _)| array)).collect()
    }
}

fn new_job(
    owner: Arc<Owner>,
    spec: Arc<JobSpec>,
    submit: Time,
    queue: Queue,
    key: Option<ClientKey>,
    task: Option<ArrayTask>,
) -> Job {
    Job {
        owner,
        spec,
        key,
        task,
        own_spec: false,
        submit,
        queue,
        attempt: Attempt(0),
        restarts: 0,
        launch_failures: 0,
        phase: Phase::Pending,
        last: None,
        checkpoints: None,
    }
}
