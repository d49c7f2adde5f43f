//! Bytes of other releases, as this release writes them: readers of the layouts before.

pub mod v1;
