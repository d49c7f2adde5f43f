//! Nodes of running jobs that do not answer, as users see them.

use squall_model::config::NodeLostAction;
use squall_model::id::NodeId;
use squall_model::job::options::Chosen;
use squall_model::limits::NODE_FENCE_MARGIN_S;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::info::WhySilent;

use crate::control::controller::Controller;
use crate::control::info::cluster::names;
use crate::control::state::job::{Job, Run};
use crate::control::state::reading::may_requeue;

/// Returns the nodes on which a job runs and that do not answer.
///
/// A node that this run of the controller has not heard is among them only once it is down: it may be about to register.
/// Nodes that are powered up or rebooted for the job are none of them.
pub(crate) fn nodes(c: &Controller, run: &Run) -> NodeSet {
    if run.configures() || run.left.is_subset(c.links.connected()) {
        return NodeSet::new();
    }
    let mut silent = run.left.clone();
    silent.subtract(c.links.connected());
    let counts = |node: &_| {
        let is = c.state.node(*node).filter(|is| !is.sleeps() && !is.is_rebooting());
        is.is_some_and(|is| !is.up || c.links.heard(*node).is_some())
    };
    silent.iter().filter(counts).collect()
}

/// Returns when the fence of a job on a silent node has surely passed: its length and a margin after the latest message left
/// that acknowledges something of the node. This run of the controller knows of none before its start. None: it has no fence.
pub(crate) fn fence_passes(c: &Controller, job: &Job, node: NodeId) -> Option<Time> {
    let term = job.spec.options.get().and_then(Chosen::node_fence)?;
    let left = c.queries.proven.get(&node).copied().unwrap_or(c.started);
    Some(left + term + Span::from_secs(NODE_FENCE_MARGIN_S))
}

/// Returns what is known about the silent nodes of a job. None: all of its nodes answer.
pub(crate) fn of_job(c: &Controller, job: &Job) -> Option<WhySilent> {
    let run = job.run().filter(|_| !job.is_leased())?;
    let silent = nodes(c, run);
    let since = silent.iter().map(|node| c.links.heard(node).unwrap_or(c.started)).min()?;
    let requeues = c.state.config.node_lost_action == NodeLostAction::Requeue;
    let lost = requeues.then(|| since + Span::from_secs(c.state.config.node_lost_s));
    let fence = silent.iter().filter_map(|node| fence_passes(c, job, node)).min();
    Some(WhySilent {
        nodes: names(&c.state, &silent),
        since,
        given_up: lost.into_iter().chain(fence).min(),
        again: may_requeue(&c.state, job),
        fenced: fence.map(|_| true),
    })
}
