//! Readers of data from earlier releases, which translate it to this release's encoding.

pub(crate) mod pairs;
pub mod v1;
