//! A cluster's files on this machine: where they are, how small ones are written durably, and whose they are.
//!
//! Daemons and clients alike ask [`place::Place`] for every path below the state folder.

pub mod durable;
pub mod lock;
pub mod place;
pub mod users;
