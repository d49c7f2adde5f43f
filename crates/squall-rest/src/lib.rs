//! Squall over HTTP: Slurm's REST interface, events, metrics and the dashboard, in a process without privileges or
//! state.
//!
//! The process has no rights of its own at the controller. A request is made as the user whose token or connection
//! came with it, and the controller checks that. What every user may see is read at most as often as costs the
//! controller a small share of its time, and shared by all who ask.

mod answer;
mod caller;
mod cluster;
mod connections;
mod events;
mod listen;
mod metrics;
mod own;
mod part;
mod room;
mod routes;
mod rows;
mod seats;
mod secure;
mod slurm;
mod users;
mod web;

pub use listen::{Listeners, bind, exposed_sockets};
pub use routes::run;
