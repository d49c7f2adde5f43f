//! What clients are shown: jobs, nodes, partitions.

pub(crate) mod cluster;
pub(crate) mod job;
pub(crate) mod page;
pub(crate) mod waiting;
