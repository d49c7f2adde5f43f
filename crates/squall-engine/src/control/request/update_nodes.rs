//! `scontrol update nodename=` and `partitionname=`, `reconfigure`.

use std::sync::Arc;

use squall_model::config::{Config, PartitionState};
use squall_model::event::{Event, NodeAdmin};
use squall_model::wire::client::{Answer, Refusal};

use super::change_partition::keep_used;
use super::rights::{Deed, can};
use super::select::nodes_of;
use super::{Ask, Reply};
use crate::control::{Controller, Out};

/// Changes what may run on nodes. Whose state is `Down` lose their jobs.
pub(crate) fn update_nodes(
    c: &mut Controller,
    ask: &Ask<'_>,
    nodes: &str,
    admin: NodeAdmin,
    reason: Option<String>,
    out: &mut Out,
) -> Reply {
    only_operators(ask)?;
    let nodes = if nodes.eq_ignore_ascii_case("ALL") {
        (0..c.state.nodes.len() as u32).map(squall_model::id::NodeId).collect()
    } else {
        nodes_of(&c.state, "nodename", nodes)?
    };
    if nodes.is_empty() {
        return Err(Refusal::InvalidNode(String::new()));
    }
    c.commit(ask.now, Event::NodesSet { nodes, admin, reason, by: ask.who.owner.uid }, out);
    Ok(Some(Answer::Done))
}

/// Changes whether a partition takes and starts jobs.
pub(crate) fn update_partition(
    c: &mut Controller,
    ask: &Ask<'_>,
    name: String,
    state: PartitionState,
    out: &mut Out,
) -> Reply {
    only_operators(ask)?;
    if c.state.partition(&name).is_none() {
        return Err(Refusal::InvalidPartition(name));
    }
    c.commit(ask.now, Event::PartitionSet { name, state }, out);
    Ok(Some(Answer::Done))
}

/// Takes a new configuration, which the host has read and put into the request.
pub(crate) fn reconfigure(c: &mut Controller, ask: &Ask<'_>, config: Option<Box<Config>>, out: &mut Out) -> Reply {
    only_operators(ask)?;
    let Some(mut config) = config else {
        return Err(Refusal::NotSupported("reconfigure without a configuration".into()));
    };
    config.have_a_partition();
    if !c.state.keeps_cell(&config) {
        let value = config.cell.map_or_else(|| "none".to_owned(), |cell| cell.to_string());
        let problem = "the cluster has given job ids as another cell, and goes on as that one".to_owned();
        return Err(Refusal::InvalidValue { option: "cell".into(), value, problem });
    }
    // What was made of partitions meanwhile goes, as in Slurm, unless jobs need it.
    keep_used(&c.state, &mut config);
    let as_read = c.state.partitions.iter().map(|partition| &partition.config).eq(&config.partitions);
    if !as_read || *c.state.config != *config {
        c.commit(ask.now, Event::Configured { config: Arc::new(*config) }, out);
    }
    Ok(Some(Answer::Done))
}

fn only_operators(ask: &Ask<'_>) -> Result<(), Refusal> {
    if can(ask.who, Deed::Operate) { Ok(()) } else { Err(Refusal::AccessDenied) }
}
