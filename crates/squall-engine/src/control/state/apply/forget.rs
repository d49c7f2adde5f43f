//! Removal of the records of ended jobs, except those that a pending job depends on.

use squall_model::id::JobId;
use squall_model::time::Time;

use crate::control::state::State;
use crate::control::state::users::content_of;

impl State {
    pub(super) fn forget(&mut self, ended_before: Time) {
        self.forgotten_before = self.forgotten_before.max(ended_before);
        let wanted = &self.index.wanted;
        let old = |set: &std::collections::BTreeSet<(Time, JobId)>| -> Vec<(Time, JobId)> {
            let old = set.range(..(ended_before, JobId(0)));
            old.filter(|(_, id)| !wanted.contains_key(id)).copied().collect()
        };
        let (jobs, arrays) = (old(&self.index.ended), old(&self.index.ended_arrays));
        for (time, id) in jobs {
            self.forget_job(time, id);
        }
        for (time, id) in arrays {
            self.forget_array(time, id);
        }
    }

    fn forget_job(&mut self, time: Time, id: JobId) {
        self.index.ended.remove(&(time, id));
        if let Some(job) = self.jobs.remove(&id) {
            if let Some(key) = job.key {
                self.index.keys.remove(&(job.owner.uid, key));
            }
            if job.task.is_none() {
                self.index.users.change(job.owner.uid, |user| user.content -= content_of(&job.spec));
            }
        }
        if let Some(het) = self.het_of(id)
            && het.ids().all(|id| !self.jobs.contains_key(&id))
        {
            self.hets.remove(&het.leader);
        }
    }

    fn forget_array(&mut self, time: Time, id: JobId) {
        self.index.ended_arrays.remove(&(time, id));
        if let Some(array) = self.arrays.remove(&id) {
            self.index.keys.remove(&(array.owner.uid, array.key));
            self.index.users.change(array.owner.uid, |user| user.content -= content_of(&array.spec));
        }
        if let Some(end) = self.jobs.get(&id).and_then(|job| job.end_time()) {
            self.forget_job(end, id);
        }
    }
}
