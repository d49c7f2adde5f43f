//! Pending items that wait for licenses: woken in the queue's order when some come back, as many as could start.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::job::JobSpec;
use squall_model::license;
use squall_sched::Item;

use crate::control::index::lanes::Place;

/// Who waits for which license.
#[derive(Debug, Default)]
pub(crate) struct Starved(BTreeMap<String, BTreeSet<Place>>);

impl Starved {
    /// An item waits for the licenses of its spec.
    pub(crate) fn add(&mut self, spec: &JobSpec, place: Place) {
        for name in names(spec) {
            self.0.entry(name).or_default().insert(place);
        }
    }
    /// It does not any more.
    pub(crate) fn remove(&mut self, place: Place) {
        self.0.retain(|_, waiting| {
            waiting.remove(&place);
            !waiting.is_empty()
        });
    }
    /// The licenses of a spec came back: the first for each of them, each of whom needs at least one.
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
