//! A cluster's files on this machine: their paths, which nobody else can lead elsewhere, durable writes of small ones,
//! the users who own them, and those behind local connections; seats for these.
//!
//! Daemons and clients alike ask [`place::Place`] for every path below the state folder.

pub mod callers;
pub mod durable;
pub mod lock;
pub mod place;
pub mod safe_path;
pub mod seats;
pub mod sockets;
pub mod users;
