//! Hold, release and update of jobs and whole arrays.

use std::sync::Arc;

use squall_model::event::JobChange;
use squall_model::id::JobId;
use squall_model::job::JobSpec;
use squall_model::time::Time;

use crate::control::state::State;
use crate::control::state::job::{Hold, Phase, Queue};

impl State {
    pub(super) fn job_held(&mut self, id: JobId, admin: bool, whole: bool) {
        let hold = if admin { Hold::Admin } else { Hold::User };
        self.each_queued(id, whole, |queue, _| {
            if queue.hold != Hold::Admin {
                queue.hold = hold;
            }
        });
    }

    pub(super) fn job_released(&mut self, time: Time, id: JobId, whole: bool) {
        self.each_queued(id, whole, |queue, launch_failures| {
            queue.hold = Hold::No;
            queue.not_before = None;
            queue.released = queue.released.or(Some(time));
            *launch_failures = 0;
            if queue.priority == Some(0) {
                queue.priority = None;
            }
        });
    }

    pub(super) fn job_updated(&mut self, time: Time, id: JobId, change: &JobChange, whole: bool) {
        if let Some(spec) = &change.spec {
            let old = self.arrays.get(&id).filter(|_| whole).map(|array| Arc::clone(&array.spec));
            let old = old.or_else(|| self.jobs.get(&id).map(|job| Arc::clone(&job.spec)));
            self.change_spec(id, spec, whole);
            let counted = |spec: &JobSpec| (spec.account.clone(), spec.qos.clone(), spec.partition.clone());
            if old.is_none_or(|old| counted(&old) != counted(spec)) {
                self.settle_ledger(time);
            }
        }
        let alter = |queue: &mut Queue| {
            if let Some(limit) = change.time_limit_s {
                queue.time_limit_s = Some(limit);
            }
            if let Some(priority) = change.priority {
                queue.priority = Some(priority);
            }
            if change.independent == Some(true) {
                queue.independent.get_or_insert(time);
            }
        };
        self.each_queued(id, whole, |queue, _| alter(queue));
        if let Some(text) = &change.progress
            && let Some(Phase::Running(run)) = self.jobs.get_mut(&id).map(|job| &mut job.phase)
        {
            run.progress = Some((time, text.clone()));
        }
        if !whole {
            return;
        }
        if let (Some(limit), Some(array)) = (change.array_limit, self.arrays.get_mut(&id)) {
            array.limit = limit;
        }
    }

    fn change_spec(&mut self, id: JobId, spec: &Arc<JobSpec>, whole: bool) {
        if !whole {
            if !self.touch(id) {
                return;
            }
            // because a journal of another version may change a job that has ended here
            let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.is_ended()) else { return };
            let had_own = job.has_own_wants();
            let old = std::mem::replace(&mut job.spec, Arc::clone(spec));
            job.own_spec = job.task.is_some();
            self.want(spec);
            if had_own {
                self.unwant(id, &old);
            }
            return;
        }
        // because a journal of another version may change an array that has ended here
        let Some(array) = self.arrays.get_mut(&id).filter(|array| !array.is_ended()) else { return };
        let old = std::mem::replace(&mut array.spec, Arc::clone(spec));
        let size = array.size();
        for (_, job) in self.jobs.range_mut(id..JobId(id.0.saturating_add(size))) {
            if job.is_pending() && !job.own_spec {
                job.spec = Arc::clone(spec);
            }
        }
        self.want(spec);
        self.unwant(id, &old);
    }

    /// Changes a job that has not ended, or an array (`whole`) with all of its pending tasks.
    fn each_queued(&mut self, id: JobId, whole: bool, mut change: impl FnMut(&mut Queue, &mut u32)) {
        if !whole {
            if self.touch(id)
                && let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.is_ended())
            {
                change(&mut job.queue, &mut job.launch_failures);
            }
            return;
        }
        // because a journal of another version may change an array that is forgotten here
        let Some(array) = self.arrays.get_mut(&id) else { return };
        change(&mut array.queue, &mut 0);
        let size = array.size();
        for (_, job) in self.jobs.range_mut(id..JobId(id.0.saturating_add(size))) {
            if job.is_pending() {
                change(&mut job.queue, &mut job.launch_failures);
            }
        }
    }
}
