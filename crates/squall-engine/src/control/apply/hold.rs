//! What running jobs hold beside their nodes: licenses.

use squall_model::job::JobSpec;
use squall_model::license;

use crate::control::state::Index;

impl Index {
    /// A job with this spec starts to hold its licenses.
    pub(in crate::control) fn take_licenses(&mut self, spec: &JobSpec) {
        for (name, count) in spec.need.licenses.as_deref().and_then(license::parse).unwrap_or_default() {
            *self.licenses.entry(name).or_default() += count;
        }
    }

    /// A job with this spec holds its licenses no more.
    pub(super) fn return_licenses(&mut self, spec: &JobSpec) {
        for (name, count) in spec.need.licenses.as_deref().and_then(license::parse).unwrap_or_default() {
            let Some(held) = self.licenses.get_mut(&name) else { continue };
            *held = held.saturating_sub(count);
            if *held == 0 {
                self.licenses.remove(&name);
            }
        }
    }
}
