//! Events about the controller, its configuration, nodes and partitions.

use std::sync::Arc;

use squall_model::config::{Config, NodeConfig, PartitionConfig, PartitionState, Unit};
use squall_model::event::{NodeAdmin, NodeChange};
use squall_model::hostlist;
use squall_model::id::{Epoch, Incarnation, JobId, NodeId};
use squall_model::power::Reboot;
use squall_model::resource::Hardware;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};

use crate::control::state::State;
use crate::control::state::job::{Hold, Job, Phase};
use crate::control::state::node::{Node, NodeReason, Partition};

impl State {
    pub(super) fn controller_started(&mut self, epoch: Epoch, version: &str) {
        self.epoch = epoch;
        version.clone_into(&mut self.version);
    }

    /// Records that ids up to `last` may have been assigned to jobs that this state does not contain.
    pub(super) fn ids_lost(&mut self, last: JobId) {
        if last > self.last_id {
            self.lost_ids.insert(JobId(self.last_id.0 + 1), last);
            self.last_id = last;
        }
    }

    /// Records that the state begins without its end, as it was restored from a backup. Jobs that may have begun since are
    /// held, also those that were about to be requeued; each job's user may release it. No node counts as registered.
    pub(super) fn restored(&mut self, time: Time, last: JobId) {
        self.ids_lost(last);
        self.restored = Some((time, self.epoch));
        self.nodes.iter_mut().for_each(|node| node.registered = Time(0));
        let goes_back = |job: &Job| matches!(&job.phase, Phase::Completing(_, ending) if ending.requeue.is_some());
        let waits = |job: &Job| job.is_pending() || job.is_leased() || goes_back(job);
        let jobs = self.jobs.range_mut(JobId(0)..JobId(u32::MAX)).map(|(_, job)| job);
        let jobs = jobs.filter(|job| waits(job)).map(|job| &mut job.queue);
        let arrays = self.arrays.values_mut().filter(|array| !array.is_ended()).map(|array| &mut array.queue);
        for queue in jobs.chain(arrays).filter(|queue| queue.hold == Hold::No) {
            queue.hold = Hold::User;
        }
    }

    /// Assigns an id at once to every node that the configuration names, in the configuration's order. A node that the
    /// configuration no longer names is removed.
    pub(super) fn configured(&mut self, time: Time, config: &Arc<Config>) {
        self.settle_ledger(time);
        let before = std::mem::replace(&mut self.config, Arc::clone(config));
        for entry in &config.nodes {
            self.name_nodes(&entry.name);
        }
        for partition in &config.partitions {
            self.name_nodes(partition.named_nodes());
        }
        self.find_entries();
        self.members_configured(time, &before);
        let outside = self.outside();
        self.partitions = config.partitions.iter().map(|p| self.partition_from(p, &outside)).collect();
        self.node_changes.values_mut().for_each(NodeChange::reset);
        self.node_changes.retain(|_, change| *change != NodeChange::default());
        for (node, at) in self.nodes.iter_mut().zip(&self.index.entries) {
            let entry = entry_of(node, *at, config);
            node.hardware = Arc::new(effective(&node.reported, entry, config.select_type_parameters.unit));
        }
        self.put_clouds_to_sleep(time);
        self.read_topology();
        self.recount(time);
        self.count_gres();
        self.order_nodes();
    }

    pub(super) fn node_registered(
        &mut self,
        time: Time,
        id: NodeId,
        name: &str,
        incarnation: Incarnation,
        hardware: &Hardware,
    ) {
        if id.index() == self.nodes.len() && !self.index.names.contains_key(name) {
            self.add_node(name);
            self.count_gres_of(id);
            for partition in self.partitions.iter_mut().filter(|p| p.config.has_all_nodes()) {
                partition.nodes.insert(id);
            }
            self.order_nodes();
        }
        let future = self.is_future(id);
        // because a journal of another version may have given this node another id
        let Some(node) = self.nodes.get_mut(id.index()).filter(|n| n.name == name) else { return };
        node.incarnation = Some(incarnation);
        let others = node.reported.devices != hardware.devices;
        node.reported = hardware.clone();
        node.registered = time;
        self.describe(id);
        if others {
            self.count_gres_of(id);
        }
        self.node_up(id);
        if future {
            self.regroup(time);
        }
    }

    pub(super) fn node_up(&mut self, id: NodeId) {
        // because a journal of another version may name a node that is not counted here
        let Some(node) = self.nodes.get_mut(id.index()) else { return };
        node.up = true;
        if node.admin == NodeAdmin::Resume {
            node.reason = None;
        }
    }

    pub(super) fn node_down(&mut self, time: Time, id: NodeId, reason: &str) {
        // because a journal of another version may name a node that is not counted here
        let Some(node) = self.nodes.get_mut(id.index()) else { return };
        node.up = false;
        if node.admin == NodeAdmin::Resume {
            node.reason = Some(NodeReason { text: reason.to_owned(), by: None, time });
        }
    }

    pub(super) fn nodes_set(&mut self, time: Time, nodes: &NodeSet, admin: NodeAdmin, reason: Option<&str>, by: u32) {
        for id in nodes.iter() {
            // because a journal of another version may name a node that is not counted here
            let Some(node) = self.nodes.get_mut(id.index()) else { continue };
            node.admin = admin;
            node.resumes = node.resumes.filter(|_| admin != NodeAdmin::Resume);
            node.reason = match (admin, reason) {
                (NodeAdmin::Resume, None) => None,
                (_, Some(text)) => Some(NodeReason { text: text.to_owned(), by: Some(by), time }),
                (_, None) => node.reason.take(),
            };
        }
    }

    pub(super) fn nodes_reboot(&mut self, nodes: &NodeSet, reboot: Option<&Reboot>) {
        for id in nodes.iter() {
            if let Some(node) = self.nodes.get_mut(id.index()) {
                node.reboot = reboot.cloned().map(Box::new);
            }
        }
    }

    pub(super) fn nodes_changed(&mut self, time: Time, nodes: &NodeSet, change: &NodeChange) {
        for id in nodes.iter() {
            if let (Some(seconds), Some(node)) = (change.resume_after_s, self.nodes.get_mut(id.index())) {
                node.resumes = (seconds > 0).then(|| time + Span::from_secs(seconds));
            }
            self.node_changes.entry(id).or_default().follow(change);
            self.describe(id);
        }
        if change.gres.is_some() {
            self.count_gres();
        }
        if change.weight.is_some() {
            self.order_nodes();
        }
    }

    /// Sets a node's hardware from the node's own report, the configuration and operators' changes.
    pub(super) fn describe(&mut self, id: NodeId) {
        // because a journal of another version may change a node that is not counted here
        let Some(node) = self.nodes.get_mut(id.index()) else { return };
        let at = self.index.entries.get(id.index()).copied().flatten();
        let entry = entry_of(node, at, &self.config);
        let mut hardware = effective(&node.reported, entry, self.config.select_type_parameters.unit);
        if let Some(features) = self.node_changes.get(&id).and_then(|change| change.active_features.as_ref()) {
            hardware.features.clone_from(features);
        }
        node.hardware = Arc::new(hardware);
    }

    /// Returns the generic resources that an operator set for a node, or with which one created it; None: the
    /// configuration counts.
    pub(in crate::control) fn gres_change(&self, id: NodeId) -> Option<&str> {
        let changed = self.node_changes.get(&id).and_then(|change| change.gres.as_deref());
        let made = || self.node(id)?.made.as_ref().map(|made| made.gres.as_str()).filter(|gres| !gres.is_empty());
        changed.or_else(made)
    }

    /// Returns the features that a node may have, active or not: those that an operator set, otherwise those of its
    /// hardware.
    pub(in crate::control) fn features_of(&self, id: NodeId) -> &[String] {
        let changed = self.node_changes.get(&id).and_then(|change| change.features.as_deref());
        changed.or_else(|| Some(&*self.node(id)?.hardware.features)).unwrap_or_default()
    }

    /// Returns the entry with which a node was made, otherwise the one that the configuration has for it. None: there
    /// is none.
    pub(crate) fn entry(&self, id: NodeId) -> Option<&NodeConfig> {
        entry_of(self.node(id)?, self.index.entries.get(id.index()).copied().flatten(), &self.config)
    }

    /// Finds the configuration's entry for each node: the first one that names it.
    pub(in crate::control::state) fn find_entries(&mut self) {
        self.index.entries = vec![None; self.nodes.len()];
        for (at, entry) in self.config.nodes.iter().enumerate() {
            for name in hostlist::expand(&entry.name).unwrap_or_default() {
                // because a damaged snapshot may lack a node that its configuration names
                let Some(id) = self.index.names.get(&name) else { continue };
                self.index.entries[id.index()].get_or_insert(at);
            }
        }
    }

    /// Returns a node's weight; nodes of less weight are used first. Default 1.
    pub(in crate::control) fn weight_of(&self, id: NodeId) -> u32 {
        let changed = self.node_changes.get(&id).and_then(|change| change.weight);
        changed.or_else(|| self.entry(id)?.weight).unwrap_or(1)
    }

    /// Sorts the nodes by weight in the state's index, unless all weights are equal.
    pub(in crate::control) fn order_nodes(&mut self) {
        self.index.by_weight.clear();
        let made = |node: &Node| node.made.as_ref().is_some_and(|made| made.weight.is_some());
        let changed = self.node_changes.values().any(|change| change.weight.is_some()) || self.nodes.iter().any(made);
        if !changed && self.config.nodes.iter().all(|entry| entry.weight.is_none()) {
            return;
        }
        let ids = (0..self.nodes.len() as u32).map(NodeId);
        let mut all: Vec<(u32, NodeId)> = ids.map(|id| (self.weight_of(id), id)).collect();
        all.sort_unstable();
        self.index.by_weight = all.into_iter().map(|(_, id)| id).collect();
    }

    pub(super) fn partition_set(&mut self, name: &str, state: PartitionState) {
        if let Some(partition) = self.partitions.iter_mut().find(|p| p.config.name == name) {
            partition.config.state = state;
        }
    }

    pub(super) fn partition_changed(&mut self, time: Time, name: &str, config: Option<&PartitionConfig>) {
        self.settle_ledger(time);
        let at = self.partitions.iter().position(|p| p.config.name == name);
        let outside = self.outside();
        match (at, config) {
            (Some(at), Some(config)) => self.partitions[at] = self.partition_from(config, &outside),
            (None, Some(config)) => self.partitions.push(self.partition_from(config, &outside)),
            (Some(at), None) => drop(self.partitions.remove(at)),
            (None, None) => {}
        }
        if config.is_some_and(|config| config.default) {
            self.partitions.iter_mut().for_each(|p| p.config.default = p.config.name == name);
        }
        self.recount(time);
    }

    fn name_nodes(&mut self, list: &str) {
        for name in hostlist::expand(list).unwrap_or_default() {
            if !self.index.names.contains_key(&name) {
                self.add_node(&name);
            }
        }
    }

    pub(super) fn add_node(&mut self, name: &str) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node { name: name.to_owned(), ..Node::default() });
        self.index.names.insert(name.to_owned(), id);
        // Nodes of the configuration have been named by now, or their entries are about to be found.
        self.index.entries.push(None);
        id
    }

    fn all_nodes(&self) -> NodeSet {
        (0..self.nodes.len() as u32).map(NodeId).collect()
    }

    /// Makes a partition from its configuration. The nodes `outside` belong to none.
    pub(super) fn partition_from(&self, config: &PartitionConfig, outside: &NodeSet) -> Partition {
        let mut nodes = if config.has_all_nodes() {
            self.all_nodes()
        } else {
            let names = hostlist::expand(config.named_nodes()).unwrap_or_default();
            names.iter().filter_map(|name| self.ever_id(name)).collect()
        };
        nodes.subtract(outside);
        Partition { config: config.clone(), nodes }
    }
}

/// Returns the entry with which a node was made, otherwise the one at this position of the configuration.
fn entry_of<'a>(node: &'a Node, at: Option<usize>, config: &'a Config) -> Option<&'a NodeConfig> {
    node.made.as_deref().or_else(|| config.nodes.get(at?))
}

/// Returns a node's hardware after the configuration is applied: configured values may lower the reported ones, or with
/// `force` replace them, without what is kept for the system. Where jobs hold whole cores and a node has as many CPUs as cores, each CPU is a core.
fn effective(reported: &Hardware, entry: Option<&NodeConfig>, unit: Unit) -> Hardware {
    let mut hardware = reported.clone();
    let Some(entry) = entry else { return hardware };
    let unknown = reported.cpus == 0;
    let bound = |set: Option<u64>, has: u64| match set {
        Some(value) if entry.force || unknown => value,
        Some(value) => value.min(has),
        None => has,
    };
    let bound32 = |set: Option<u32>, has: u32| bound(set.map(u64::from), u64::from(has)) as u32;
    hardware.cpus = bound32(entry.cpus, reported.cpus);
    hardware.sockets = bound32(entry.sockets, reported.sockets);
    hardware.cores_per_socket = bound32(entry.cores_per_socket, reported.cores_per_socket);
    hardware.threads_per_core = bound32(entry.threads_per_core, reported.threads_per_core);
    if unit != Unit::Cpu && hardware.cpus == hardware.sockets.saturating_mul(hardware.cores_per_socket) {
        hardware.threads_per_core = 1;
    }
    hardware.memory_mb = bound(entry.memory_mb, reported.memory_mb);
    hardware.tmp_disk_mb = bound(entry.tmp_disk_mb.filter(|mb| *mb > 0), reported.tmp_disk_mb);
    entry.keep_for_system(&mut hardware);
    // What the node reports is the configuration as it was when its daemon started.
    hardware.features.clone_from(&entry.features);
    hardware
}
