//! Squall's machines: controller, node, step and the fabric's tree, without clock, socket, thread or randomness.
#![forbid(unsafe_code)]

pub mod binding;
pub mod commit;
pub mod control;
mod dependency;
pub mod environment;
pub mod fabric;
pub mod filter;
pub mod front;
pub mod hook;
pub mod invariant;
pub mod machine;
pub mod node;
pub mod replica;
pub mod step;
pub mod wireup;
