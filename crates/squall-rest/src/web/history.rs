//! What the server has seen of the cluster since it started, for charts: it is read while somebody looks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use squall_model::id::{JobId, StepNo};
use squall_model::job::Usage;
use squall_model::time::{Span, Time};

/// Least time between two samples.
const EVERY: Span = Span::from_secs(10);
/// Most samples of the cluster: 24 hours.
const SAMPLES_MAX: usize = 8640;
/// Most samples of a step: at 10 s two hours; then every second one is forgotten.
const SAMPLES_OF_STEP_MAX: usize = 720;
/// Most steps of which usage is remembered; the one not looked at for longest is forgotten first.
const STEPS_MAX: usize = 256;

/// The cluster at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) at: Time,
    pub(crate) cpus_used: u64,
    pub(crate) cpus: u64,
    pub(crate) running: u64,
    pub(crate) pending: u64,
}

/// The cluster over time.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<VecDeque<Sample>>);

impl History {
    /// Adds a sample unless the last one is too recent, and returns all.
    pub(crate) fn add(&self, sample: Sample) -> Vec<Sample> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.back().is_none_or(|last| sample.at.since(last.at) >= EVERY) {
            if all.len() >= SAMPLES_MAX {
                all.pop_front();
            }
            all.push_back(sample);
        }
        let mut seen: Vec<Sample> = all.iter().copied().collect();
        if seen.last().is_some_and(|last| last.at < sample.at) {
            seen.push(sample);
        }
        seen
    }
}

/// What a step has used until a moment.
pub(crate) type UsageSample = (Time, Usage);

/// Usage of running steps over time.
#[derive(Debug, Default)]
pub(crate) struct Usages(Mutex<BTreeMap<(JobId, u32, StepNo), Vec<UsageSample>>>);

impl Usages {
    /// Adds what a step of an attempt of a job has used until now, and returns all that is known of it.
    pub(crate) fn add(&self, step: (JobId, u32, StepNo), now: Time, usage: Usage) -> Vec<UsageSample> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(&step) && all.len() >= STEPS_MAX {
            let oldest = all.iter().min_by_key(|(_, seen)| seen.last().map(|(at, _)| *at));
            if let Some(oldest) = oldest.map(|(step, _)| *step) {
                all.remove(&oldest);
            }
        }
        let seen = all.entry(step).or_default();
        if seen.last().is_none_or(|(at, _)| now.since(*at) >= EVERY) {
            seen.push((now, usage));
        }
        if seen.len() > SAMPLES_OF_STEP_MAX {
            let mut keep = false;
            seen.retain(|_| {
                keep = !keep;
                keep
            });
        }
        seen.clone()
    }
}

#[cfg(test)]
mod tests {
    use squall_model::time::Time;

    use super::{History, Sample};

    #[test]
    fn samples_are_apart_and_the_present_is_shown() {
        let history = History::default();
        let at = |secs| Sample { at: Time::from_secs(secs), ..Sample::default() };
        assert_eq!(history.add(at(100)).len(), 1);
        assert_eq!(history.add(at(103)).len(), 2, "the first and the present");
        assert_eq!(history.add(at(111)).len(), 2, "the present one of before is not kept");
    }
}
