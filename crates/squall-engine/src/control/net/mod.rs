//! The controller's connections: routes to nodes, and queries and broadcasts that are not complete.

pub(crate) mod air;
pub(crate) mod broadcasts;
pub(crate) mod links;
pub(crate) mod queries;
pub(crate) mod scope;
