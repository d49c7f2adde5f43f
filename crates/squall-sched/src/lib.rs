//! Policies: `plan` looks at a borrowed view of cluster and queue and says what starts where. It touches nothing.
#![forbid(unsafe_code)]

mod constraint;
mod fifo;
mod gate;
pub mod layout;
mod place;
mod request;
pub mod topology;
pub mod torus;
mod view;

pub use constraint::Constraint;
pub use fifo::{feasible, fits_now, plan};
pub use gate::Gate;
pub use request::Request;
pub use view::{Candidate, Group, Head, Item, NodeView, PartitionView, Plan, Scratch, Skip, Start, View};

#[cfg(test)]
mod tests;
