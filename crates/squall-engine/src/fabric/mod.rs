//! The fabric: what it costs to reach a set of nodes.

pub mod cost;
