//! Effects that the controller still has to run in this turn (one iteration of the controller), and a shutdown under
//! way.

use std::collections::BTreeSet;

use squall_model::id::{JobId, NodeId};
use squall_model::set::NodeSet;
use squall_model::wire::client::Answer;

use crate::control::port::CallerId;

/// Effects to run in this turn, after all of its events are decided.
#[derive(Debug, Default)]
pub(crate) struct Todo {
    /// Jobs that started in this turn; their nodes are to be sent the start.
    pub(crate) starting: Vec<JobId>,
    /// Jobs for which the end was decided while they ran; their nodes are to be sent the end.
    pub(crate) ending: BTreeSet<JobId>,
    /// Jobs that gave back nodes; those nodes are to be sent the order to end these jobs.
    pub(crate) leaving: BTreeSet<JobId>,
    /// Jobs and arrays that changed; clients that wait for them may have to get an answer.
    pub(crate) touched: BTreeSet<JobId>,
    /// Answers to requests that ended jobs: the client's connection, the answer, and the nodes. Each answer is sent
    /// when these nodes have acknowledged the end.
    pub(crate) heeded: Vec<(CallerId, Answer, NodeSet)>,
    /// Pairs of a suspended or resumed job and a node on which its processes may still run or stand still by mistake.
    pub(crate) stopping: BTreeSet<(JobId, NodeId)>,
    /// Jobs with changed time slices; their nodes are to be sent the new ones.
    pub(crate) turns: BTreeSet<JobId>,
    /// Heterogeneous jobs of which a component changed, by the first component; the others may have to follow.
    pub(crate) hets: BTreeSet<JobId>,
    /// Jobs that started, end or were released; a program of this host may be owed to them.
    pub(crate) programs: BTreeSet<JobId>,
    /// Nodes with a reboot that was requested, or that may be due.
    pub(crate) reboots: BTreeSet<NodeId>,
    /// Nodes that may have to be powered up or down.
    pub(crate) power: BTreeSet<NodeId>,
    /// Jobs of which a node has come or was given up, while they wait for nodes to be powered up; and others.
    pub(crate) waking: BTreeSet<JobId>,
    /// Nodes that were removed and may be gone.
    pub(crate) gone: BTreeSet<NodeId>,
    /// Jobs that are over for which nodes are kept: they are to start again.
    pub(crate) again: BTreeSet<JobId>,
    /// Nodes that an operator set down; their jobs are to be failed.
    pub(crate) condemned: BTreeSet<NodeId>,
}

/// A shutdown under way.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// Connections of the clients that requested the shutdown, which get the answer.
    pub(crate) callers: Vec<CallerId>,
    /// Whether running jobs are left alone.
    pub(crate) keep_jobs: bool,
    /// Whether to end now without waiting for running jobs.
    pub(crate) hurry: bool,
}
