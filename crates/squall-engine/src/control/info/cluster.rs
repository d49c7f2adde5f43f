//! Nodes and partitions as `sinfo` and `scontrol` show them.

use std::collections::BTreeMap;

use squall_model::event::{NodeAdmin, NodeChange};
use squall_model::gres::NodeGres;
use squall_model::hostlist::{self, compress};
use squall_model::id::{JobId, NodeId};
use squall_model::license;
use squall_model::reservation::{Flag, Reservation};
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::info::{LicenseInfo, NodeInfo, PartitionInfo, ReservationInfo, SpecResources};

use crate::control::controller::Controller;
use crate::control::state::State;
use crate::control::state::billing;
use crate::control::state::job::Phase;
use crate::control::state::node::{Node, Partition};

/// User id 0, shown as the author of reasons that the controller set.
const BY_CONTROLLER: u32 = 0;

/// Returns every node by id, but those that have yet to join.
pub(crate) fn nodes(c: &Controller, now: Time) -> Vec<NodeInfo> {
    let futures = c.state.futures();
    // Room for all at once: a list of ten thousand nodes is long enough for copies of it to show.
    let mut infos = Vec::with_capacity(c.state.nodes.len());
    infos.extend(c.state.present().filter(|id| !futures.contains(*id)).filter_map(|id| node(c, id, now)));
    infos
}

/// Returns the nodes that may join some day and have not done so, by id.
pub(crate) fn future_nodes(c: &Controller, now: Time) -> Vec<NodeInfo> {
    let futures = c.state.futures();
    let present = c.state.present().filter(|id| futures.contains(*id));
    let mine = |name: &str| {
        let takes = |one: &&Partition| one.config.has_all_nodes() || hostlist::contains(one.config.named_nodes(), name);
        c.state.partitions.iter().filter(takes).map(|one| one.config.name.clone()).collect()
    };
    let info = |id| node(c, id, now).map(|info| NodeInfo { future: true, partitions: mine(&info.name), ..info });
    present.filter_map(info).collect()
}

fn node(c: &Controller, id: NodeId, now: Time) -> Option<NodeInfo> {
    let state = &c.state;
    let node = state.node(id)?;
    let link = c.links.get(id);
    let completing = |job| state.jobs.get(job).is_some_and(|job| matches!(job.phase, Phase::Completing(..)));
    let jobs_completing = node.jobs.iter().filter(|job| completing(job)).count() as u32;
    let leased = |job: &&JobId| state.jobs.get(job).is_some_and(|job| job.is_leased());
    let leased = node.jobs.iter().filter(leased).count() as u32;
    let here = state.reservations.values().filter(|one| one.active(now) && one.nodes.contains(id));
    let on = here.max_by_key(|one| one.is(Flag::Maint));
    let partitions = state.partitions.iter().filter(|partition| partition.nodes.contains(id));
    let change = state.node_changes.get(&id);
    let text = |of: fn(&NodeChange) -> Option<&String>| change.and_then(of).cloned().unwrap_or_default();
    Some(NodeInfo {
        name: node.name.clone(),
        up: node.up,
        responds: link.is_some(),
        known: node.incarnation.is_some(),
        admin: if node.removed.is_some() { node.admin.max(NodeAdmin::Drain) } else { node.admin },
        reason: reason(node),
        hardware: node.hardware.clone(),
        features: state.features_of(id).to_vec(),
        weight: state.weight_of(id),
        comment: text(|change| change.comment.as_ref()),
        future: false,
        reboot: node.reboot.as_ref().map(|reboot| reboot.issued.is_some()),
        power: node.power,
        cloud: state.is_cloud(id),
        kept: kept(state, id, node),
        faults: node.faults.clone(),
        resumes: node.resumes,
        next: node.reboot.as_ref().and_then(|reboot| reboot.next),
        extra: text(|change| change.extra.as_ref()),
        instance: (text(|change| change.instance_id.as_ref()), text(|change| change.instance_type.as_ref())),
        cpus_used: node.cores.len() as u32,
        memory_used_mb: node.memory_mb,
        jobs_running: node.jobs.len() as u32 - jobs_completing - leased,
        jobs_completing,
        load_centi: link.map_or(0, |link| link.load_centi),
        free_mb: link.map_or(0, |link| link.free_mb),
        registered: node.registered,
        heard: c.links.heard(id).unwrap_or(node.registered),
        partitions: partitions.map(|partition| partition.config.name.clone()).collect(),
        version: link.map(|link| link.version.clone()).unwrap_or_default(),
        gres: state.index.gres.get(&id).map(NodeGres::text).unwrap_or_default(),
        reservation: on.map(|one| one.name.clone()).unwrap_or_default(),
        maint: on.is_some_and(|one| one.is(Flag::Maint)),
        gres_used: state.index.gres.get(&id).map(NodeGres::used_text).unwrap_or_default(),
    })
}

fn reason(node: &Node) -> Option<(String, u32, Time)> {
    let given = node.reason.as_ref().map(|why| (why.text.clone(), why.by.unwrap_or(BY_CONTROLLER), why.time));
    let removed = node.removed.map(|time| ("Removed: its jobs run to their end".to_owned(), BY_CONTROLLER, time));
    removed.or(given)
}

/// Returns what of a node is kept for the system. None: nothing.
fn kept(state: &State, id: NodeId, node: &Node) -> Option<SpecResources> {
    let entry = state.entry(id).filter(|entry| entry.keeps())?;
    let (cores, cpus) = entry.kept_sizes(&node.reported);
    Some(SpecResources { cores, cpus, cpu_list: entry.cpu_spec_list.clone(), memory_mb: entry.mem_spec_limit_mb })
}

/// Returns every partition, in the configuration's order.
pub(crate) fn partitions(state: &State) -> Vec<PartitionInfo> {
    state.partitions.iter().map(|partition| one_partition(state, partition)).collect()
}

fn one_partition(state: &State, partition: &Partition) -> PartitionInfo {
    let nodes = partition.nodes.iter().filter_map(|id| state.node(id));
    PartitionInfo {
        config: partition.config.clone(),
        preempt_mode: state.config.preempt_mode_of(&partition.config),
        nodes: names(state, &partition.nodes),
        num_nodes: partition.nodes.len() as u32,
        num_cpus: nodes.map(|node| node.hardware.cpus).sum(),
        billing: billing::of_whole(state, partition),
    }
}

/// Returns every reservation, by name, with its times as they are `now`.
pub(crate) fn reservations(state: &State, now: Time) -> Vec<ReservationInfo> {
    let info = |one: &Reservation| {
        let hardware = || one.nodes.iter().filter_map(|id| state.node(id)).map(|node| &node.hardware);
        ReservationInfo {
            nodes: names(state, &one.nodes),
            cores: hardware().map(|has| has.cpus / has.threads_per_core.max(1)).sum(),
            cpus: hardware().map(|has| has.cpus).sum(),
            reservation: Reservation { start: one.times(now).0, end: one.times(now).1, ..one.clone() },
        }
    };
    state.reservations.values().map(info).collect()
}

/// Returns every license, by name, with how many reservations keep `now`.
pub(crate) fn licenses(state: &State, now: Time) -> Vec<LicenseInfo> {
    let used = |name: &str| state.index.licenses.get(name).copied().unwrap_or_default();
    let all = state.license_totals().into_iter();
    let on = state.reservations.values().filter(|one| one.is(Flag::Flex) || one.active(now));
    let mut kept: BTreeMap<String, u32> = BTreeMap::new();
    for (name, count) in on.filter_map(|one| license::parse(one.licenses.as_deref()?)).flatten() {
        *kept.entry(name).or_default() += count;
    }
    let reserved = |name: &str| kept.get(name).copied().unwrap_or_default();
    all.map(|(name, total)| LicenseInfo { used: used(&name), reserved: reserved(&name), name, total }).collect()
}

/// Returns the names of nodes as a compressed host list.
pub(crate) fn names(state: &State, nodes: &NodeSet) -> String {
    if let (1, Some(node)) = (nodes.len(), nodes.first()) {
        return state.node(node).map_or_else(String::new, |node| node.name.clone());
    }
    compress(nodes.iter().filter_map(|id| state.node(id)).map(|node| &node.name))
}
