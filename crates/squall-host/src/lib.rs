//! The real world: sockets, disk, processes. Runs the machines of `squall-engine`.

pub mod cgroup;
pub mod hardware;
pub mod journal;
pub mod logging;
pub mod noded;
pub mod place;
pub mod processes;
pub mod spool;
pub mod sys;
