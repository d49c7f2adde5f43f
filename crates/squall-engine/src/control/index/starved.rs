//! Pending jobs and arrays that lack licenses. When licenses are returned, as many of the jobs as could start with those
//! that are free are examined, in queue order; one that needs more than are free does not hold up the others.

use std::collections::BTreeMap;

use squall_model::job::JobSpec;
use squall_model::license;
use squall_sched::Item;

use crate::control::index::lanes::Place;

/// Queue positions of pending jobs and arrays, with the number that each needs, by the name of each license.
#[derive(Debug, Default)]
pub(crate) struct Starved(BTreeMap<String, BTreeMap<Place, u32>>);

impl Starved {
    /// Adds a pending job or array that waits for the licenses of its spec.
    pub(crate) fn add(&mut self, spec: &JobSpec, place: Place) {
        for (name, count) in counts(spec).filter(|(_, count)| *count > 0) {
            let needed = self.0.entry(name).or_default().entry(place).or_default();
            *needed = needed.saturating_add(count);
        }
    }
    /// Removes a pending job or array, as it no longer waits for licenses.
    pub(crate) fn remove(&mut self, place: Place) {
        self.0.retain(|_, waiting| {
            waiting.remove(&place);
            !waiting.is_empty()
        });
    }
    /// Returns the jobs and arrays to examine when the licenses of a spec were returned. `free`: how many of each are free.
    pub(crate) fn woken(&self, spec: &JobSpec, free: impl Fn(&str) -> u32) -> Vec<Item> {
        let mut woken = Vec::new();
        for (name, _) in counts(spec) {
            let mut left = free(&name);
            for (place, needed) in self.0.get(&name).into_iter().flatten() {
                if left == 0 {
                    break;
                }
                if *needed <= left {
                    left -= needed;
                    woken.push(place.item);
                }
            }
        }
        woken
    }
}

fn counts(spec: &JobSpec) -> impl Iterator<Item = (String, u32)> {
    spec.need.licenses.as_deref().and_then(license::parse).unwrap_or_default().into_iter()
}
