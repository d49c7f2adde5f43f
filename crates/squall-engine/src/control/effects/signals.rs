//! Signals for jobs. A node that does not answer gets them when it answers again, unless the job has ended by then.

use squall_model::id::NodeId;
use squall_model::set::NodeSet;
use squall_model::wire::node::Down;

use crate::control::controller::Controller;
use crate::control::index::signals::JobSignal;

/// Sends a signal to processes of a job on nodes.
///
/// Until a node is heard again, it may not have got the signal: then it gets the signal in its next session. So a signal
/// comes twice if a session ends just after it, but is never lost.
pub(crate) fn send(c: &mut Controller, nodes: &NodeSet, what: JobSignal) {
    let JobSignal { job, target, signal } = what;
    c.links.put(nodes, Down::Signal { job, target, signal });
    for node in nodes.iter() {
        let session = c.links.session(node);
        c.signals.note(node, session, what);
    }
}

/// Records that a node was heard.
pub(crate) fn heard(c: &mut Controller, node: NodeId) {
    if !c.signals.is_empty()
        && let Some(session) = c.links.session(node)
    {
        c.signals.heard(node, session);
    }
}

/// Sends a node that has begun a session the signals that it may have missed, for jobs that still run there.
pub(crate) fn registered(c: &mut Controller, node: NodeId) {
    for what in c.signals.take(node) {
        let job = c.state.jobs.get(&what.job.job).filter(|job| job.attempt == what.job.attempt && job.is_running());
        let here = job.and_then(|job| job.run()).is_some_and(|run| run.left.contains(node));
        if here && !c.state.leaves(what.job.job, node) {
            send(c, &NodeSet::one(node), what);
        }
    }
}
