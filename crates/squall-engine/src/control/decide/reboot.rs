//! `scontrol reboot` and `cancel_reboot`.

use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{JobId, NodeId};
use squall_model::limits::STRING_BYTES_MAX;
use squall_model::power::Reboot;
use squall_model::set::NodeSet;
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, Refusal};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::select::nodes_of;
use crate::control::effects::checkpoint;
use crate::control::port::Out;

/// Requests a reboot of nodes, which comes when no job is on them.
pub(crate) fn reboot(
    c: &mut Controller,
    ask: &Ask<'_>,
    nodes: &str,
    (asap, next, reason): (bool, Option<NodeAdmin>, Option<String>),
    out: &mut Out,
) -> Reply {
    let nodes = meant(c, nodes)?;
    if c.state.cluster_version < ClusterVersion::PROGRAMS {
        return Err(Refusal::NotSupported("a reboot of nodes before `scontrol upgrade`".into()));
    }
    if c.state.config.health.reboot_program.is_empty() {
        let why = "RebootProgram is not configured: set reboot_program in [health]";
        return Err(Refusal::NotSupported(why.into()));
    }
    if reason.as_ref().is_some_and(|reason| reason.len() > STRING_BYTES_MAX) {
        return Err(Refusal::TooLarge("the reason of a reboot".into(), STRING_BYTES_MAX as u64));
    }
    let issued = |id: &NodeId| c.state.node(*id).and_then(|node| node.reboot.as_ref()?.issued).is_some();
    let nodes: NodeSet = nodes.iter().filter(|id| !issued(id)).collect();
    let reboot = Some(Box::new(Reboot { asap, next, reason, by: ask.who.owner.uid, issued: None, job: None }));
    let jobs = nodes.iter().filter_map(|id| c.state.node(id)).flat_map(|node| node.jobs.iter().copied());
    let jobs: Vec<JobId> = jobs.filter(|_| asap).collect();
    c.commit(ask.now, Event::NodesReboot { nodes, reboot }, out);
    for id in jobs {
        checkpoint::leave(c, ask.now, id);
    }
    Ok(Some(Answer::Done))
}

/// Cancels reboots that were not ordered yet.
pub(crate) fn cancel_reboot(c: &mut Controller, ask: &Ask<'_>, nodes: &str, out: &mut Out) -> Reply {
    let nodes = meant(c, nodes)?;
    let reboot = |id: NodeId| c.state.node(id).and_then(|node| node.reboot.as_ref());
    if let Some(id) = nodes.iter().find(|id| reboot(*id).is_none_or(|reboot| reboot.issued.is_some())) {
        let name = c.state.node(id).map_or_else(String::new, |node| node.name.clone());
        let problem = match reboot(id) {
            Some(_) => "the node was ordered to reboot already",
            None => "no reboot of the node is to come",
        };
        return Err(Refusal::InvalidValue { option: "nodes".into(), value: name, problem: problem.into() });
    }
    c.commit(ask.now, Event::NodesReboot { nodes, reboot: None }, out);
    Ok(Some(Answer::Done))
}

/// Returns the nodes of a list, or all.
pub(crate) fn meant(c: &Controller, nodes: &str) -> Result<NodeSet, Refusal> {
    let nodes = if nodes.eq_ignore_ascii_case("ALL") {
        c.state.present().collect()
    } else {
        nodes_of(&c.state, "nodes", nodes)?
    };
    if nodes.is_empty() { Err(Refusal::InvalidNode(String::new())) } else { Ok(nodes) }
}
