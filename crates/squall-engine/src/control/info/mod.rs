//! What clients are shown: jobs, nodes and partitions.

pub(crate) mod cluster;
pub(crate) mod forecast;
pub(crate) mod hindrance;
pub(crate) mod job;
pub(crate) mod silent;
pub(crate) mod waiting;
