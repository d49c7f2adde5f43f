//! Effects that the controller still has to run in this turn, and a shutdown under way.

use std::collections::BTreeSet;

use squall_model::id::{JobId, NodeId};
use squall_model::set::NodeSet;
use squall_model::wire::client::Answer;

use crate::control::port::CallerId;

/// Effects to run in this turn after all its events are decided.
#[derive(Debug, Default)]
pub(crate) struct Todo {
    /// Jobs that started; their nodes are to be sent the start.
    pub(crate) starting: Vec<JobId>,
    /// Jobs whose end was decided while they ran; their nodes are to be sent the end.
    pub(crate) ending: BTreeSet<JobId>,
    /// Jobs that gave back nodes; those nodes are to be told to end them.
    pub(crate) leaving: BTreeSet<JobId>,
    /// Jobs and arrays that changed; clients that wait for them may get an answer.
    pub(crate) touched: BTreeSet<JobId>,
    /// Answers to requests that ended jobs. Each is sent when the given nodes have acknowledged the end.
    pub(crate) heeded: Vec<(CallerId, Answer, NodeSet)>,
    /// Suspended or resumed jobs with a node where their processes may be in the wrong state.
    pub(crate) stopping: BTreeSet<(JobId, NodeId)>,
    /// Jobs whose time slices changed; their nodes are to be told.
    pub(crate) turns: BTreeSet<JobId>,
    /// Heterogeneous jobs of which a component changed, by the first component.
    pub(crate) hets: BTreeSet<JobId>,
    /// Nodes that an operator set down: their jobs are lost.
    pub(crate) condemned: BTreeSet<NodeId>,
}

/// A shutdown under way.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// Connections of the clients that asked for it.
    pub(crate) callers: Vec<CallerId>,
    /// Whether running jobs are left alone.
    pub(crate) keep_jobs: bool,
    /// Whether to end now without waiting for jobs.
    pub(crate) hurry: bool,
}
