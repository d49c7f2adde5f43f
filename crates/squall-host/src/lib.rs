//! The real world: sockets, disk, processes. Runs the machines of `squall-engine`.

pub mod cgroup;
pub mod place;
pub mod spool;
pub mod sys;
