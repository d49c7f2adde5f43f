//! The real world: sockets, disk, processes. Runs the machines of `squall-engine`.

mod accounts;
mod auth;
mod cgroup;
mod content;
pub mod controld;
pub mod gang;
mod hardware;
mod hop;
pub mod journal;
pub mod life;
mod link;
mod local;
mod logging;
mod multicast;
pub mod noded;
pub mod noise;
pub mod pidfile;
pub mod pipe;
pub mod place;
pub mod processes;
pub mod rack;
pub mod spool;
pub mod stepd;
pub mod sys;
mod traces;
pub mod trial;
pub mod trust;
