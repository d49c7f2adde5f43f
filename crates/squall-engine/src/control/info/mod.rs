//! What clients are shown: jobs, nodes, partitions.

pub(crate) mod cluster;
pub(crate) mod forecast;
pub(crate) mod hindrance;
pub(crate) mod job;
pub(crate) mod waiting;
