//! Steps that one command starts in several components of a heterogeneous job.

use minicbor::{Decode, Encode};

/// Position of one component's step among the steps that one command starts in several components of a heterogeneous
/// job. Tasks and nodes are numbered through all components.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Among {
    /// Number of tasks in all earlier components.
    #[n(0)]
    pub tasks_before: u32,
    /// Number of tasks in this component.
    #[n(1)]
    pub own: u32,
    /// Number of tasks in all components.
    #[n(2)]
    pub tasks: u32,
    /// Number of nodes in all earlier components.
    #[n(3)]
    pub nodes_before: u32,
    /// Number of nodes in all components.
    #[n(4)]
    pub nodes: u32,
}
