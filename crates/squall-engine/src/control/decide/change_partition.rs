//! `scontrol create`, `update` and `delete partition`.

use crate::control::state::reading::is_used;
use squall_model::config::PartitionConfig;
use squall_model::event::Event;
use squall_model::hostlist;
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, Refusal};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::select::nodes_of;
use crate::control::index::limits;
use crate::control::port::Out;

/// Creates, changes or deletes a partition, if it is still as the caller saw it. A partition that jobs need can't be
/// deleted.
pub(crate) fn change_partition(
    c: &mut Controller,
    ask: &Ask<'_>,
    name: String,
    was: Option<&PartitionConfig>,
    now: Option<Box<PartitionConfig>>,
    out: &mut Out,
) -> Reply {
    let known = c.state.partition(&name).map(|partition| &partition.config);
    if known.is_some() != was.is_some() {
        return Err(Refusal::InvalidPartition(name));
    }
    if known != was {
        return Err(Refusal::Stale);
    }
    match &now {
        Some(config) => check(c, &name, config)?,
        None if is_used(&c.state, &name) => return Err(Refusal::PartitionBusy(name)),
        None => {}
    }
    c.commit(ask.now, Event::PartitionChanged { name, config: now }, out);
    Ok(Some(Answer::Done))
}

/// Checks a partition's configuration: its name, that its nodes and QOS exist, and that the whole configuration is
/// consistent.
fn check(c: &Controller, name: &str, config: &PartitionConfig) -> Result<(), Refusal> {
    if config.name != name || !hostlist::is_name(name) {
        return Err(Refusal::InvalidPartition(name.to_owned()));
    }
    if !config.tres_billing_weights.is_empty() && c.state.cluster_version < ClusterVersion::BILLING {
        return Err(Refusal::NotSupported("TRESBillingWeights before `scontrol upgrade`".into()));
    }
    nodes_of(&c.state, "Nodes", config.named_nodes())?;
    if !config.qos.is_empty() && !limits::knows_qos(&c.state, &config.qos) {
        return Err(Refusal::InvalidQos(config.qos.clone()));
    }
    let mut all = (*c.state.config).clone();
    all.partitions = c.state.partitions.iter().map(|p| p.config.clone()).filter(|p| p.name != name).collect();
    all.partitions.push(config.clone());
    all.check().map_err(|problem| Refusal::Contradiction(format!("PartitionName={name}"), problem))
}
