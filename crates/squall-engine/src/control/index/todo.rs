//! What the controller still has to do in this turn, and a shutdown under way.

use std::collections::BTreeSet;

use squall_model::id::{JobId, NodeId};
use squall_model::set::NodeSet;
use squall_model::wire::client::Answer;

use crate::control::port::CallerId;

/// What this turn has to do when all its events are decided.
#[derive(Debug, Default)]
pub(crate) struct Todo {
    /// Jobs that started: their nodes are to be told.
    pub(crate) starting: Vec<JobId>,
    /// Jobs whose end was decided while they ran: their nodes are to be told.
    pub(crate) ending: BTreeSet<JobId>,
    /// Jobs that gave back nodes. The controller tells these nodes.
    pub(crate) leaving: BTreeSet<JobId>,
    /// Jobs and arrays that changed. The controller tells the clients that wait for them.
    pub(crate) touched: BTreeSet<JobId>,
    /// Answers to requests that ended jobs. Each is sent when the given nodes have acknowledged the end.
    pub(crate) heeded: Vec<(CallerId, Answer, NodeSet)>,
    /// Suspended jobs whose processes on a node may run.
    pub(crate) stopping: BTreeSet<(JobId, NodeId)>,
    /// Jobs whose nodes are to be told when they run.
    pub(crate) turns: BTreeSet<JobId>,
    /// Heterogeneous jobs to a component of which something happened.
    pub(crate) hets: BTreeSet<JobId>,
    /// Nodes that the operator set down: their jobs are lost.
    pub(crate) condemned: BTreeSet<NodeId>,
}

/// A shutdown under way.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// Who asked.
    pub(crate) callers: Vec<CallerId>,
    /// Running jobs are left alone.
    pub(crate) keep_jobs: bool,
    /// No more waiting.
    pub(crate) hurry: bool,
}
