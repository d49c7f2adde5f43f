//! What the server has seen of the cluster since it started, for charts: it is read while somebody looks.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use squall_model::time::{Span, Time};

/// Least time between two samples.
const EVERY: Span = Span::from_secs(10);
/// Most samples of the cluster: 24 hours.
const SAMPLES_MAX: usize = 8640;

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
