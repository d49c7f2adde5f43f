//! The node: what a node daemon decides.
