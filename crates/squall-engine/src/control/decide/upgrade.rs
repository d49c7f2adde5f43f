//! `scontrol upgrade`: raises the version of the cluster; and refuses nodes that are older than it.

use squall_model::event::Event;
use squall_model::hostlist;
use squall_model::id::NodeId;
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, Refusal};
use squall_model::wire::node::Registration;

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::port::Out;
use crate::control::state::State;

/// Raises the version of the cluster to `to`, or to the newest that this controller can work with. All daemons must be
/// able to work with it: nodes, and the `others` among the controllers.
pub(crate) fn raise(
    c: &mut Controller,
    ask: &Ask<'_>,
    to: Option<ClusterVersion>,
    others: &[(String, ClusterVersion)],
    out: &mut Out,
) -> Reply {
    let (to, is) = (to.unwrap_or(c.speaks), c.state.cluster_version);
    let wrong =
        |problem: String| Err(Refusal::InvalidValue { option: "version".to_owned(), value: to.to_string(), problem });
    if to < is {
        return wrong(format!("the cluster has version {is}, which is never lowered"));
    }
    if to > c.speaks {
        return wrong(format!("squall {}, which the controller is, can work with {} at most", c.version, c.speaks));
    }
    let obstacles = obstacles(c, to, others);
    if !obstacles.is_empty() {
        let problem = format!("{}. Upgrade and start them first", obstacles.join("; "));
        return wrong(problem);
    }
    if to > is {
        c.commit(ask.now, Event::VersionRaised { to, by: ask.who.owner.uid }, out);
    }
    Ok(Some(Answer::Done))
}

/// Returns the daemons that can't work with the version `to`, or of which that is not known, in words.
fn obstacles(c: &Controller, to: ClusterVersion, others: &[(String, ClusterVersion)]) -> Vec<String> {
    let older = others.iter().filter(|(_, speaks)| *speaks < to).map(|(name, _)| name);
    let (mut old, mut silent) = (Vec::new(), Vec::new());
    for (id, node) in (0..).map(NodeId).zip(&c.state.nodes) {
        match c.links.get(id) {
            Some(member) if member.speaks < to => old.push(&node.name),
            // A node that is away and runs jobs would be refused when it comes back, and its jobs could not end.
            None if node.up || !node.jobs.is_empty() => silent.push(&node.name),
            _ => {}
        }
    }
    let controllers = hostlist::compress(older);
    let (old, silent) = (hostlist::compress(old), hostlist::compress(silent));
    let said = |names: String, text: &str| (!names.is_empty()).then(|| format!("{text} {names}"));
    let each = [
        said(controllers, "older are the controllers"),
        said(old, "older are the node daemons of"),
        said(silent, "no answer, but maybe jobs, have the nodes"),
    ];
    each.into_iter().flatten().collect()
}

/// Refuses a node daemon that can't work with the version of the cluster. Err: the reason, for users.
pub(crate) fn admit(state: &State, said: &Registration) -> Result<(), String> {
    let (is, speaks) = (state.cluster_version, said.speaks);
    if speaks >= is {
        return Ok(());
    }
    Err(format!(
        "the cluster has version {is}, and squall {}, which this node daemon is, can work with {speaks} at most: install the \
         release that the controller has, squall {}",
        said.version, state.version
    ))
}
