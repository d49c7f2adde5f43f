//! The controller's connections: who is reached through which, and what is under way there.

pub(crate) mod air;
pub(crate) mod broadcasts;
pub(crate) mod links;
pub(crate) mod queries;
pub(crate) mod scope;
