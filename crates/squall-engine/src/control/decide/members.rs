//! `scontrol create nodename=` and `scontrol delete nodename=`.

use squall_model::config::{Config, NodeConfig, NodeStart};
use squall_model::event::Event;
use squall_model::hostlist;
use squall_model::limits::{NODE_FEATURES_MAX, NODES_MAX};
use squall_model::set::NodeSet;
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, Refusal};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::select::nodes_of;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::apply::names_it;

/// Name of the option in refusals.
const NAME: &str = "nodename";

/// Creates nodes that the configuration does not name. They may join at any time.
pub(crate) fn create(c: &mut Controller, ask: &Ask<'_>, mut node: Box<NodeConfig>, out: &mut Out) -> Reply {
    may(&c.state)?;
    if node.state == NodeStart::Cloud {
        // As in Slurm, a node has one CPU unless its number is given.
        node.cpus.get_or_insert(1);
        if c.state.config.power.resume_program.is_empty() {
            // No program can power it up: it joins when somebody starts it.
            node.state = NodeStart::Future;
        }
    }
    check(&c.state, &node)?;
    c.commit(ask.now, Event::NodesCreated { node, by: ask.who.owner.uid }, out);
    Ok(Some(Answer::Done))
}

/// Removes nodes that the configuration does not name. Their jobs run to their end.
pub(crate) fn delete(c: &mut Controller, ask: &Ask<'_>, list: &str, out: &mut Out) -> Reply {
    may(&c.state)?;
    let nodes = nodes_of(&c.state, NAME, list)?;
    if nodes.is_empty() {
        return Err(Refusal::InvalidNode(String::new()));
    }
    let named = |name: &&str| names_it(&c.state.config, name);
    if let Some(name) = nodes.iter().filter_map(|id| c.state.node(id)).map(|node| node.name.as_str()).find(named) {
        let problem = "squall.toml names it: take it out there and run `scontrol reconfigure`";
        return Err(invalid(name, problem));
    }
    let nodes: NodeSet = nodes.iter().filter(|id| c.state.node(*id).is_some_and(|n| n.removed.is_none())).collect();
    if !nodes.is_empty() {
        c.commit(ask.now, Event::NodesRemoved { nodes, by: ask.who.owner.uid }, out);
    }
    Ok(Some(Answer::Done))
}

fn may(state: &State) -> Result<(), Refusal> {
    if state.cluster_version < ClusterVersion::NODES_COME_AND_GO {
        return Err(Refusal::NotSupported("creation and removal of nodes before `scontrol upgrade`".into()));
    }
    Ok(())
}

fn check(state: &State, made: &NodeConfig) -> Result<(), Refusal> {
    let names = hostlist::expand_within(&made.name, NODES_MAX.saturating_sub(state.nodes.len()));
    let names = names.map_err(|e| invalid(&made.name, &e.to_string()))?;
    if names.is_empty() {
        return Err(Refusal::InvalidNode(String::new()));
    }
    if let Some(name) = names.iter().find(|name| !hostlist::is_name(name)) {
        return Err(invalid(name, "this can't be the name of a node"));
    }
    let known =
        |name: &&String| state.node_id(name).is_some_and(|id| state.node(id).is_some_and(|n| n.removed.is_none()));
    if let Some(name) = names.iter().find(known) {
        return Err(invalid(name, "the node exists already: `scontrol update nodename=` changes it"));
    }
    if made.features.len() > NODE_FEATURES_MAX {
        return Err(Refusal::TooLarge("what is said of a node".into(), NODE_FEATURES_MAX as u64));
    }
    let alone = Config { nodes: vec![made.clone()], power: state.config.power.clone(), ..Config::default() };
    alone.check().map_err(|problem| Refusal::Contradiction(format!("NodeName={}", made.name), problem))
}

fn invalid(name: &str, problem: &str) -> Refusal {
    Refusal::Contradiction(format!("{NAME}={name}"), problem.to_owned())
}
