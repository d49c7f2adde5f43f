//! Scheduling policies. `plan` takes the pending jobs and the free resources, and returns which jobs start where. It
//! changes no state.
#![forbid(unsafe_code)]

mod constraint;
mod explain;
mod gang;
mod gate;
mod grain;
pub mod layout;
mod nodes;
mod place;
mod policy;
mod pool;
mod preempt;
mod request;
mod scratch;
mod timeline;
pub mod topology;
pub mod torus;
mod view;

pub use constraint::Constraint;
pub use explain::{Explained, Misfit, explain, has_such, too_large};
pub use gang::{Piece, turns};
pub use gate::Gate;
pub use grain::{Grain, PerTask};
pub use nodes::together::have_such;
pub use nodes::{Nodes, UNLIMITED};
pub use place::{deal_evenly, deal_in_turn};
pub use policy::{Blocked, Cleared, Discipline, Room, Rules, plan};
pub use pool::Pool;
pub use request::{Exemptions, Request, preferred};
pub use scratch::Scratch;
pub use timeline::Timeline;
pub use view::{
    Bars, Candidate, Cap, Claim, Closed, Component, End, Eviction, Given, Group, Head, Item, KeptLicenses, Lanes,
    Names, NodeView, PartitionView, Plan, Queues, Reserved, Row, Single, Skip, Start, Victim, View,
};

#[cfg(test)]
mod tests;
