//! The real world: sockets, disk, processes. Runs the machines of `squall-engine`.

pub mod accounts;
pub mod auth;
pub mod cgroup;
pub mod controld;
pub mod hardware;
pub mod journal;
pub mod life;
pub mod link;
pub mod logging;
pub mod noded;
pub mod pidfile;
pub mod place;
pub mod processes;
pub mod rack;
pub mod spool;
pub mod stepd;
pub mod sys;
pub mod traces;
