//! The real world: sockets, disk, processes. Runs the machines of `squall-engine`.

pub mod cgroup;
pub mod journal;
pub mod logging;
pub mod place;
pub mod spool;
pub mod sys;
