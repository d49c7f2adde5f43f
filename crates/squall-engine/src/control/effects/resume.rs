//! Nodes that are down or drained and resumed by themselves (`scontrol update nodename= state=drain resumeafter=`).

use squall_model::event::{Event, NodeAdmin};
use squall_model::id::NodeId;
use squall_model::set::NodeSet;
use squall_model::time::Time;

use crate::control::controller::Controller;
use crate::control::index::timers::Timer;
use crate::control::port::Out;

/// Sets the timers of nodes that are resumed by themselves (`ResumeAfter`).
pub(crate) fn arm(c: &mut Controller, nodes: impl Iterator<Item = NodeId>) {
    for id in nodes {
        match c.state.node(id).and_then(|node| node.resumes) {
            Some(time) => c.timers.set(Timer::Resume(id), time),
            None => c.timers.clear(Timer::Resume(id)),
        }
    }
}

/// Resumes a node when its time is over.
pub(crate) fn due(c: &mut Controller, now: Time, id: NodeId, out: &mut Out) {
    let nodes = NodeSet::one(id);
    c.commit(now, Event::NodesSet { nodes, admin: NodeAdmin::Resume, reason: None, by: 0 }, out);
}
