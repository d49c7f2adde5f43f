//! Assignment of job ids. Ids wrap around, and an id is assigned again when nothing refers to it any more.

use std::sync::Arc;

use squall_model::id::JobId;
use squall_model::job::JobSpec;
use squall_model::time::{Span, Time};

use crate::control::state::State;
use crate::control::state::array::Array;

/// Fewest job ids that are passed over after a restoration.
const IDS_MIN: u64 = 1000;

/// Job ids by which two restorations are apart for each second between them: more than are assigned meanwhile.
const IDS_PER_S: u64 = 1023;

impl State {
    /// Returns the id that the next job would get now.
    pub(crate) fn next_id(&self) -> JobId {
        self.free_ids(1, &[]).unwrap_or_else(|| self.after_last())
    }

    /// Returns the first of `count` consecutive ids that may be assigned to jobs with these specs. The search begins
    /// after the last assigned id, and then at the start of the range. None: there are not so many consecutive free
    /// ids.
    pub(crate) fn free_ids(&self, count: u32, specs: &[Arc<JobSpec>]) -> Option<JobId> {
        let (next, ids) = (self.after_last().0, self.config.job_ids());
        let found = self.free_within(next, *ids.end(), count, specs);
        found.or_else(|| self.free_within(*ids.start(), *ids.end(), count, specs)).map(JobId)
    }

    /// Returns whether any of `count` ids from `first` on belongs to a job or an array.
    pub(crate) fn has_any(&self, first: JobId, count: u32) -> bool {
        let end = JobId(first.0.saturating_add(count.max(1)));
        self.jobs.range(first..end).next().is_some()
            || self.array_of(first).is_some()
            || self.arrays.range(first..end).next().is_some()
    }

    /// Returns whether an id was ever assigned: it is at most the last one, or ids have wrapped around.
    pub(crate) fn was_given(&self, id: JobId) -> bool {
        let began_again = || {
            let array = self.arrays.last_key_value().map(|(id, _)| id);
            self.jobs.keys().next_back().max(array).is_some_and(|highest| *highest > self.last_id)
        };
        self.config.job_ids().contains(&id.0) && (id <= self.last_id || began_again())
    }

    /// Returns whether a job got its id before ids last wrapped around.
    pub(crate) fn is_of_earlier_round(&self, id: JobId, submit: Time) -> bool {
        self.ids_began.is_some_and(|began| submit < began || (submit == began && id > self.last_id))
    }

    /// Returns whether an id comes after `last`, the last id that was assigned. Ids wrap around: an id more than an
    /// eighth of the range ahead counts as assigned long ago.
    pub(crate) fn is_ahead(&self, id: JobId, last: JobId) -> bool {
        let ids = self.config.job_ids();
        let count = ids.end() - ids.start() + 1;
        let ahead = (i64::from(id.0) - i64::from(last.0)).rem_euclid(i64::from(count));
        ids.contains(&id.0) && ahead > 0 && ahead < i64::from(count / 8)
    }

    /// Returns the last id to be passed over by a state that lacks what was decided in a time of length `lost`. Those are
    /// ids for what came right after the backup: [`IDS_MIN`], and one for each second. To these come [`IDS_PER_S`] for
    /// each second of the clock, starting again after an hour. So the ids of a state that was restored from the same
    /// backup (or another one) before are passed over too, although nothing is known of it. Fewer where the range ends,
    /// and never so many that they would count as assigned long ago.
    pub(crate) fn passed_over(&self, now: Time, lost: Span) -> JobId {
        let ids = self.config.job_ids();
        let most = (ids.end() - ids.start()) / 8;
        let (since, window) = (lost.secs().min(u64::from(most / 4)), u64::from(most / 2).max(1));
        let apart = (now.0 / 1000).saturating_mul(IDS_PER_S) / 1000 % window;
        let count = u32::try_from(IDS_MIN + since + apart).unwrap_or(most);
        JobId(self.last_id.0.saturating_add(count.min(most)).min(*ids.end()))
    }

    fn after_last(&self) -> JobId {
        let ids = self.config.job_ids();
        let next = self.last_id.0.saturating_add(1).max(*ids.start());
        JobId(if ids.contains(&next) { next } else { *ids.start() })
    }

    fn free_within(&self, first: u32, last: u32, count: u32, specs: &[Arc<JobSpec>]) -> Option<u32> {
        let mut at = first;
        loop {
            let end = at.checked_add(count.max(1) - 1).filter(|end| *end <= last)?;
            match self.in_the_way(JobId(at), JobId(end), specs) {
                None => return Some(at),
                Some(taken) => at = taken.0.checked_add(1)?,
            }
        }
    }

    /// Finds something that prevents the ids from `at` to `end` from being assigned, and returns its last id; the
    /// search for free ids continues after that. None: nothing does. Ids that a dependency names count, too: a job that
    /// depends on a removed job must not come to wait for a new job.
    fn in_the_way(&self, at: JobId, end: JobId, specs: &[Arc<JobSpec>]) -> Option<JobId> {
        let last = |first: JobId, size: u32| JobId(first.0.saturating_add(size.max(1) - 1));
        let job = || self.jobs.range(at..JobId(end.0.saturating_add(1))).next().map(|(id, _)| *id);
        let array = || {
            let inside = || self.arrays.range(at..=end).next().map(|(id, array)| (*id, array));
            self.array_of(at).or_else(inside).map(|(id, array): (JobId, &Array)| last(id, array.size()))
        };
        let het = || {
            let inside = || self.hets.range(at..=end).next().map(|(id, size)| last(*id, *size));
            self.het_of(at).map(|het| last(het.leader, het.size)).or_else(inside)
        };
        let wanted = || self.index.wanted.range(at..=end).next().map(|(id, _)| *id);
        let named = || {
            let terms = specs.iter().filter_map(|spec| spec.dependency.as_ref()).flat_map(|all| &all.terms);
            terms.filter_map(|term| term.job).map(|job| job.id).find(|id| (at..=end).contains(id))
        };
        job().or_else(array).or_else(het).or_else(wanted).or_else(named)
    }
}
