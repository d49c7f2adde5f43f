//! `scontrol create`, `update` and `delete partition`.

use squall_model::config::{Config, PartitionConfig};
use squall_model::event::Event;
use squall_model::hostlist;
use squall_model::wire::client::{Answer, Refusal};

use super::rights::{Deed, can};
use super::select::nodes_of;
use super::{Ask, Reply};
use crate::control::apply::is_all;
use crate::control::state::State;
use crate::control::state::job::Job;
use crate::control::{Controller, Out, limits};

/// Makes a partition what it is to be, if it is still what the caller saw. One that jobs need can't be deleted.
pub(crate) fn change_partition(
    c: &mut Controller,
    ask: &Ask<'_>,
    name: String,
    was: Option<&PartitionConfig>,
    now: Option<Box<PartitionConfig>>,
    out: &mut Out,
) -> Reply {
    if !can(ask.who, Deed::Operate) {
        return Err(Refusal::AccessDenied);
    }
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

/// Whether it can be like that: a name, nodes and a QOS that there are, and what a configuration as a whole must fulfil.
fn check(c: &Controller, name: &str, config: &PartitionConfig) -> Result<(), Refusal> {
    if config.name != name || !hostlist::is_name(name) {
        return Err(Refusal::InvalidPartition(name.to_owned()));
    }
    if !is_all(config) {
        nodes_of(&c.state, "Nodes", &config.nodes)?;
    }
    if !config.qos.is_empty() && !limits::knows_qos(&c.state, &config.qos) {
        return Err(Refusal::InvalidQos(config.qos.clone()));
    }
    let mut all = (*c.state.config).clone();
    all.partitions = c.state.partitions.iter().map(|p| p.config.clone()).filter(|p| p.name != name).collect();
    all.partitions.push(config.clone());
    all.check().map_err(|problem| Refusal::Contradiction(format!("PartitionName={name}"), problem))
}

/// Adds to a configuration that was read anew the partitions that it lacks and jobs are in or may come into: where Slurm
/// would end them, they stay until a configuration is read without such jobs.
pub(crate) fn keep_used(state: &State, config: &mut Config) {
    let known = |config: &Config, name: &str| config.partitions.iter().any(|p| p.name == name);
    for partition in &state.partitions {
        if !known(config, &partition.config.name) && is_used(state, &partition.config.name) {
            let mut kept = partition.config.clone();
            kept.default = false;
            config.partitions.push(kept);
            if config.check().is_err() {
                config.partitions.pop();
            }
        }
    }
}

/// Whether jobs that have not ended are in a partition or may come into it.
fn is_used(state: &State, name: &str) -> bool {
    let named = |spec| state.partitions_of(spec).any(|partition| partition.config.name == name);
    let runs = |job: &Job| job.run().is_some_and(|run| run.partition == name);
    let waits = state.arrays.values().any(|array| !array.is_ended() && named(&array.spec));
    waits || state.jobs.values().any(|job| !job.is_ended() && (named(&job.spec) || runs(job)))
}
