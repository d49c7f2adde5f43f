//! Nodes that were removed: told to end when no job holds them any more, and their keys revoked.

use squall_model::event::Event;
use squall_model::id::NodeId;
use squall_model::time::Time;
use squall_model::wire::node::Down;

use crate::control::controller::Controller;
use crate::control::port::Out;

/// Reason of the end of a node's connection.
const REMOVED: &str = "removed from the cluster";

/// Returns why a node that is gone may not register.
pub(crate) fn farewell(name: &str) -> String {
    format!(
        "{name} was removed from the cluster: name it in squall.toml and run `scontrol reconfigure`, or run `scontrol \
         create nodename={name}`; `squall token {name}` then lets it join again"
    )
}

/// Notes the nodes that were gone before a restart of the controller: their keys may not be revoked yet.
pub(crate) fn started(c: &mut Controller) {
    let gone = (0..).map(NodeId).zip(&c.state.nodes).filter(|(_, node)| node.is_gone()).map(|(id, _)| id);
    c.todo.gone.extend(gone);
}

/// Ends the connections of nodes that are gone, and has the host revoke their keys.
pub(crate) fn settle(c: &mut Controller, now: Time, out: &mut Out) {
    while let Some(id) = c.todo.gone.pop_first() {
        // because an operator may have created the node again in the same turn
        let Some(node) = c.state.node(id).filter(|node| node.is_gone()) else { continue };
        if !c.dismissed.insert(id) {
            continue;
        }
        let (name, up) = (node.name.clone(), node.up);
        if up {
            c.commit(now, Event::NodeDown { node: id, reason: REMOVED.to_owned() }, out);
        }
        c.links.push(id, Down::Refused { reason: farewell(&name), name: Some(name.clone()) });
        out.gone.push(name);
    }
}
