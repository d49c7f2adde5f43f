//! `scontrol update nodename=` and `partitionname=`, and `reconfigure`.

use std::sync::Arc;

use squall_model::config::{Config, PartitionState};
use squall_model::event::{Event, NodeAdmin, NodeChange};
use squall_model::gres;
use squall_model::id::{JobId, NodeId};
use squall_model::limits::{NODE_FEATURES_MAX, STRING_BYTES_MAX};
use squall_model::set::NodeSet;
use squall_model::wire::client::{Answer, Refusal};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::select::nodes_of;
use crate::control::effects::checkpoint;
use crate::control::index::elsewhere;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::reading::keep_used;

/// Changes the state, reason or description of nodes. Jobs on nodes set `Down` are lost.
pub(crate) fn update_nodes(
    c: &mut Controller,
    ask: &Ask<'_>,
    nodes: &str,
    (admin, reason): (Option<NodeAdmin>, Option<String>),
    change: Option<Box<NodeChange>>,
    out: &mut Out,
) -> Reply {
    let nodes = if nodes.eq_ignore_ascii_case("ALL") {
        c.state.present().collect()
    } else {
        nodes_of(&c.state, "nodename", nodes)?
    };
    if nodes.is_empty() {
        return Err(Refusal::InvalidNode(String::new()));
    }
    if let Some(change) = change {
        check(&c.state, &nodes, &change)?;
        c.commit(ask.now, Event::NodesChanged { nodes: nodes.clone(), change }, out);
    }
    if let Some(admin) = admin {
        // They can go on elsewhere at once.
        let leave = admin == NodeAdmin::Drain && c.state.config.checkpoint_shared;
        let jobs = nodes.iter().filter_map(|id| c.state.node(id)).flat_map(|node| node.jobs.iter().copied());
        let free = |id: &JobId| c.state.jobs.get(id).is_some_and(|job| elsewhere::is_free(job));
        let jobs: Vec<JobId> = jobs.filter(|id| leave && free(id)).collect();
        c.commit(ask.now, Event::NodesSet { nodes, admin, reason, by: ask.who.owner.uid }, out);
        for id in jobs {
            checkpoint::leave(c, ask.now, id);
        }
        return Ok(Some(Answer::Done));
    }
    // Only a reason was given: the state stays.
    for id in nodes.iter().filter(|_| reason.is_some()) {
        let admin = c.state.node(id).map(|node| node.admin).unwrap_or_default();
        let (nodes, reason, by) = (NodeSet::one(id), reason.clone(), ask.who.owner.uid);
        c.commit(ask.now, Event::NodesSet { nodes, admin, reason, by }, out);
    }
    Ok(Some(Answer::Done))
}

/// Checks an operator's change of features, weight or generic resources of nodes.
fn check(state: &State, nodes: &NodeSet, change: &NodeChange) -> Result<(), Refusal> {
    let texts = [&change.comment, &change.extra, &change.instance_id, &change.instance_type, &change.gres];
    let features = || [&change.features, &change.active_features].into_iter().flatten().flatten();
    let longest = texts.into_iter().flatten().chain(features()).map(String::len).max();
    if longest.is_some_and(|length| length > STRING_BYTES_MAX) || features().count() > NODE_FEATURES_MAX {
        return Err(Refusal::TooLarge("what is said of a node".into(), STRING_BYTES_MAX as u64));
    }
    if let Some(text) = change.gres.as_ref().filter(|text| !text.is_empty() && gres::parse(text).is_none()) {
        let problem = "no list of generic resources like gpu:a100:2".into();
        return Err(Refusal::InvalidValue { option: "gres".into(), value: text.clone(), problem });
    }
    // Devices that jobs hold can't be changed.
    let held = |id: NodeId| state.index.gres.get(&id).is_some_and(|gres| !gres.held.is_empty());
    if let (Some(text), Some(id)) = (&change.gres, nodes.iter().find(|id| held(*id))) {
        let name = state.node(id).map_or_else(String::new, |node| node.name.clone());
        let problem = format!("jobs hold some of {name}: drain it first");
        return Err(Refusal::InvalidValue { option: "gres".into(), value: text.clone(), problem });
    }
    let is_subset = |id: NodeId| {
        let available = change.features.as_deref().unwrap_or_else(|| state.features_of(id));
        let active = change.active_features.as_deref().or_else(|| Some(&*state.node(id)?.hardware.features));
        active.unwrap_or_default().iter().all(|feature| available.contains(feature))
    };
    if nodes.iter().all(is_subset) {
        return Ok(());
    }
    let active = change.active_features.clone().unwrap_or_default().join(",");
    let problem = "those that a node has are among those that it may have".into();
    Err(Refusal::InvalidValue { option: "active-features".into(), value: active, problem })
}

/// Changes whether a partition accepts and starts jobs.
pub(crate) fn update_partition(
    c: &mut Controller,
    ask: &Ask<'_>,
    name: String,
    state: PartitionState,
    out: &mut Out,
) -> Reply {
    if c.state.partition(&name).is_none() {
        return Err(Refusal::InvalidPartition(name));
    }
    c.commit(ask.now, Event::PartitionSet { name, state }, out);
    Ok(Some(Answer::Done))
}

/// Applies a new configuration, which the host has read and put into the request.
pub(crate) fn reconfigure(c: &mut Controller, ask: &Ask<'_>, config: Option<Box<Config>>, out: &mut Out) -> Reply {
    let Some(mut config) = config else {
        return Err(Refusal::NotSupported("reconfigure without a configuration".into()));
    };
    config.have_a_partition();
    if !c.state.keeps_cell(&config) {
        let value = config.cell.map_or_else(|| "none".to_owned(), |cell| cell.to_string());
        let problem = "the cluster has given job ids as another cell, and goes on as that one".to_owned();
        return Err(Refusal::InvalidValue { option: "cell".into(), value, problem });
    }
    // Changes of partitions since the last configuration are dropped, as in Slurm, unless jobs need them.
    keep_used(&c.state, &mut config);
    let as_read = c.state.partitions.iter().map(|partition| &partition.config).eq(&config.partitions);
    if !as_read || *c.state.config != *config {
        c.commit(ask.now, Event::Configured { config: Arc::new(*config) }, out);
    }
    Ok(Some(Answer::Done))
}
