//! Runs the state machines of `squall-engine` with real sockets, disks and processes.

mod auth;
pub mod backup;
mod bearer;
mod cgroup;
pub mod checkup;
pub mod config_files;
mod content;
pub mod controld;
pub mod front;
pub mod gang;
mod hardware;
mod hop;
mod leader;
pub mod life;
mod link;
mod local;
pub mod logging;
mod multicast;
pub mod noded;
pub mod noise;
pub mod pidfile;
pub mod pipe;
pub mod poller;
pub mod privileges;
pub mod processes;
mod proxy;
pub mod rack;
pub mod service;
pub mod spool;
pub mod stepd;
pub mod supervise;
pub mod sys;
mod traces;
pub mod trial;
pub mod trust;

pub use squall_store::accounts::past;
