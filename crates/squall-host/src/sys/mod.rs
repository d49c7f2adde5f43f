//! The only place with `unsafe`: system calls that no safe crate offers.

pub mod clock;
pub mod command;
pub mod descriptors;
pub mod heap;
pub mod host;
pub mod identity;
pub mod limits;
pub mod offspring;
pub mod pidfd;
pub mod signals;
pub mod spawn;
pub mod users;
pub mod wait;
pub mod watch;
