//! The fabric on a node: its place in the tree, between one parent and some children.
//!
//! - `parent`: which node (or the controller) it is attached to, and where it turns when that one dies.
//! - `relay`: what passes through, down and up.
//! - `gather`: reports on their way up, reduced and in composites.
//! - `asked`: queries that pass through, and their answers.
//! - `scope`: what a child of another machine may speak of.
//! - `shape`: which node is whose parent in a healthy tree.
//! - `cost`: what it costs to reach a set of nodes.
//!
//! The controller's end of it is `control/net/links.rs`. Everything here is soft state: what is lost with a relay, the
//! nodes that reported it still have, and report again.

mod asked;
pub mod child;
pub mod cost;
mod gather;
mod parent;
mod relay;
pub mod scope;
pub mod shape;
#[cfg(test)]
mod tests;

pub use parent::Dial;
pub use relay::{Delivery, NetInput, NetOut, Relay};
