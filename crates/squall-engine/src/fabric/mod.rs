//! The fabric on a node: its place in the tree, between one parent and some children.
//!
//! - `parent`: the node or controller that this one is attached to, and the next to try when it dies.
//! - `relay`: messages that pass through, down and up.
//! - `gather`: reports on their way up, merged into composites.
//! - `asked`: queries that pass through, and their answers.
//! - `scope`: what a child on another machine is allowed to report.
//! - `shape`: the parent of each node in a healthy tree.
//! - `proof`: how the controller signs its messages, and nodes check them.
//! - `cost`: the time it takes to reach a set of nodes.
//!
//! The controller's end of it is `control/net/links.rs`. All state here is soft: what is lost with a relay is still
//! on the nodes that reported it, which report it again.

pub mod child;
pub mod cost;
mod gather;
mod parent;
pub mod proof;
mod queries;
mod relay;
pub mod scope;
pub mod shape;
#[cfg(test)]
mod tests;

pub use parent::Dial;
pub use relay::{Delivery, NetInput, NetOut, Relay};
