//! Bytes of other releases, as this release writes them: readers of the layouts before.

pub(crate) mod pairs;
pub mod v1;
