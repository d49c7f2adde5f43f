//! Pending jobs and arrays that lack licenses. When licenses are returned, as many of the jobs as could start with them
//! are examined, in queue order.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::job::JobSpec;
use squall_model::license;
use squall_sched::Item;

use crate::control::index::lanes::Place;

/// Queue positions of pending jobs and arrays, by the name of each license that they lack.
#[derive(Debug, Default)]
pub(crate) struct Starved(BTreeMap<String, BTreeSet<Place>>);

impl Starved {
    /// Adds a pending job or array that waits for the licenses of its spec.
    pub(crate) fn add(&mut self, spec: &JobSpec, place: Place) {
        for name in names(spec) {
            self.0.entry(name).or_default().insert(place);
        }
    }
    /// Removes a pending job or array, as it no longer waits for licenses.
    pub(crate) fn remove(&mut self, place: Place) {
        self.0.retain(|_, waiting| {
            waiting.remove(&place);
            !waiting.is_empty()
        });
    }
    /// Returns the jobs and arrays to examine when the licenses of a spec were returned: for each license as many of
    /// those in front as licenses were returned.
    pub(crate) fn woken(&self, spec: &JobSpec) -> Vec<Item> {
        let back = spec.need.licenses.as_deref().and_then(license::parse).unwrap_or_default();
        let first = back.iter().filter_map(|(name, count)| Some(self.0.get(name)?.iter().take(*count as usize)));
        first.flatten().map(|place| place.item).collect()
    }
}

fn names(spec: &JobSpec) -> impl Iterator<Item = String> {
    let counts = spec.need.licenses.as_deref().and_then(license::parse).unwrap_or_default();
    counts.into_iter().filter(|(_, count)| *count > 0).map(|(name, _)| name)
}
