//! Nodes and their resources: each node, a partition's nodes, all nodes.

use std::collections::BTreeMap;

use squall_model::power::PowerPhase;
use squall_model::wire::info::NodeInfo;

use super::exposition::{Metric, gauge};
use super::jobs::bytes;
use crate::format::node::{NodeState, devices};

/// Nodes, counted by state, and their resources.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    nodes: u64,
    /// Nodes by state as `sinfo` shows it, without the star of those that don't respond. Each node counts once.
    states: BTreeMap<&'static str, u64>,
    silent: u64,
    /// Nodes by the phase of their power.
    power: BTreeMap<PowerPhase, u64>,
    cloud: u64,
    cpus: u64,
    cpus_alloc: u64,
    cpus_idle: u64,
    memory_mb: u64,
    memory_alloc_mb: u64,
    memory_free_mb: u64,
    gpus: u64,
    gpus_alloc: u64,
}

impl Totals {
    pub(super) fn add(&mut self, node: &NodeInfo) {
        let (state, [alloc, idle, _, total]) = (NodeState::of(node), cpus(node));
        self.nodes += 1;
        *self.states.entry(state.word()).or_default() += 1;
        self.silent += u64::from(state.silent);
        *self.power.entry(state.power).or_default() += 1;
        self.cloud += u64::from(state.cloud);
        self.cpus += u64::from(total);
        self.cpus_alloc += u64::from(alloc);
        self.cpus_idle += u64::from(idle);
        self.memory_mb += node.hardware.memory_mb;
        self.memory_alloc_mb += node.memory_used_mb;
        self.memory_free_mb += node.free_mb;
        self.gpus += gpus(&node.gres);
        self.gpus_alloc += gpus(&node.gres_used);
    }

    fn power(&self, phase: PowerPhase) -> f64 {
        self.power.get(&phase).copied().unwrap_or_default() as f64
    }

    fn state(&self, words: &[&str]) -> f64 {
        words.iter().filter_map(|word| self.states.get(word)).sum::<u64>() as f64
    }
}

/// Returns the CPUs of a node as `sinfo` counts them: allocated, idle, other, total.
fn cpus(node: &NodeInfo) -> [u32; 4] {
    let (total, alloc) = (node.hardware.cpus, node.cpus_used);
    let rest = total.saturating_sub(alloc);
    if NodeState::of(node).usable() { [alloc, rest, 0, total] } else { [alloc, 0, rest, total] }
}

fn gpus(list: &str) -> u64 {
    if list.is_empty() { 0 } else { devices(list).get("gpu").copied().unwrap_or_default().into() }
}

/// A node, with the names of the exporter by Victor Penso.
pub(super) const NODE: &[Metric<NodeInfo>] = &[
    gauge("slurm_node_cpu_alloc", "CPUs of the node that jobs hold", |n| cpus(n)[0].into()),
    gauge("slurm_node_cpu_idle", "CPUs of the node that are free", |n| cpus(n)[1].into()),
    gauge("slurm_node_cpu_other", "CPUs of the node on which no job can start", |n| cpus(n)[2].into()),
    gauge("slurm_node_cpu_total", "CPUs of the node", |n| cpus(n)[3].into()),
    gauge("slurm_node_mem_alloc", "Memory of the node that jobs hold, MiB", |n| n.memory_used_mb as f64),
    gauge("slurm_node_mem_total", "Memory of the node, MiB", |n| n.hardware.memory_mb as f64),
];

/// A node, with Slurm's names.
pub(super) const NODE_OF_SLURM: &[Metric<NodeInfo>] = &[
    gauge("slurm_node_cpus", "CPUs of the node", |n| n.hardware.cpus.into()),
    gauge("slurm_node_cpus_alloc", "CPUs of the node that jobs hold", |n| n.cpus_used.into()),
    gauge("slurm_node_cpus_effective", "CPUs of the node that jobs can hold", |n| n.hardware.cpus.into()),
    gauge("slurm_node_cpus_idle", "CPUs of the node that are free", |n| cpus(n)[1].into()),
    gauge("slurm_node_gpus", "GPUs of the node", |n| gpus(&n.gres) as f64),
    gauge("slurm_node_gpus_alloc", "GPUs of the node that jobs hold", |n| gpus(&n.gres_used) as f64),
    gauge("slurm_node_memory_alloc_bytes", "Memory of the node that jobs hold", |n| bytes(n.memory_used_mb)),
    gauge("slurm_node_memory_bytes", "Memory of the node", |n| bytes(n.hardware.memory_mb)),
    gauge("slurm_node_memory_effective_bytes", "Memory of the node that jobs can hold", |n| {
        bytes(n.hardware.memory_mb)
    }),
    gauge("slurm_node_memory_free_bytes", "Free memory of the node", |n| bytes(n.free_mb)),
];

/// All nodes' CPUs and GPUs, with the names of the exporter by Victor Penso.
pub(super) const RESOURCES: &[Metric<Totals>] = &[
    gauge("slurm_cpus_alloc", "CPUs that jobs hold", |t| t.cpus_alloc as f64),
    gauge("slurm_cpus_idle", "CPUs that are free", |t| t.cpus_idle as f64),
    gauge("slurm_cpus_other", "CPUs on which no job can start", Totals::cpus_other),
    gauge("slurm_cpus_total", "CPUs", |t| t.cpus as f64),
    gauge("slurm_gpus_alloc", "GPUs that jobs hold", |t| t.gpus_alloc as f64),
    gauge("slurm_gpus_idle", "GPUs that no job holds", |t| t.gpus.saturating_sub(t.gpus_alloc) as f64),
    gauge("slurm_gpus_total", "GPUs", |t| t.gpus as f64),
    gauge("slurm_gpus_utilization", "Part of the GPUs that jobs hold, from 0 to 1", |t| {
        if t.gpus == 0 { 0.0 } else { t.gpus_alloc as f64 / t.gpus as f64 }
    }),
];

impl Totals {
    fn cpus_other(&self) -> f64 {
        self.cpus.saturating_sub(self.cpus_alloc + self.cpus_idle) as f64
    }
}

/// Nodes by state. The exporter by Victor Penso and Slurm share most names; both have their own for two states.
pub(super) const STATES: &[Metric<Totals>] = &[
    gauge("slurm_nodes", "Nodes", |t| t.nodes as f64),
    gauge("slurm_nodes_alloc", "Nodes of which jobs hold all CPUs", |t| t.state(&["allocated"])),
    gauge("slurm_nodes_cloud", "Nodes of a cloud", |t| t.cloud as f64),
    gauge("slurm_nodes_comp", "Completing nodes", |t| t.state(&["completing"])),
    gauge("slurm_nodes_completing", "Completing nodes", |t| t.state(&["completing"])),
    gauge("slurm_nodes_down", "Nodes that are down and not drained", |t| t.state(&["down"])),
    gauge("slurm_nodes_drain", "Drained and draining nodes", |t| t.state(&["drained", "draining"])),
    gauge("slurm_nodes_drained", "Drained nodes without jobs", |t| t.state(&["drained"])),
    gauge("slurm_nodes_draining", "Drained nodes with jobs", |t| t.state(&["draining"])),
    gauge("slurm_nodes_err", "Nodes in state ERROR: none, there is no such state", |_| 0.0),
    gauge("slurm_nodes_fail", "Nodes that an operator expects to fail", |t| t.state(&["fail", "failing"])),
    gauge("slurm_nodes_idle", "Nodes without jobs that accept some", |t| t.state(&["idle"])),
    gauge("slurm_nodes_maint", "Idle nodes in a reservation for maintenance", |t| t.state(&["maint"])),
    gauge("slurm_nodes_mix", "Nodes of which jobs hold some CPUs", |t| t.state(&["mixed"])),
    gauge("slurm_nodes_mixed", "Nodes of which jobs hold some CPUs", |t| t.state(&["mixed"])),
    gauge("slurm_nodes_noresp", "Nodes that do not respond, in whatever state", |t| t.silent as f64),
    gauge("slurm_nodes_powered_down", "Nodes that are switched off", |t| t.power(PowerPhase::Off)),
    gauge("slurm_nodes_powering_down", "Nodes that go down", |t| t.power(PowerPhase::GoingDown)),
    gauge("slurm_nodes_powering_up", "Nodes that are being started", |t| t.power(PowerPhase::GoingUp)),
    gauge("slurm_nodes_resv", "Idle nodes in another reservation", |t| t.state(&["reserved"])),
    gauge("slurm_nodes_unknown", "Nodes that never registered", |t| t.state(&["unknown"])),
];

/// A partition's CPUs, with the names of the exporter by Victor Penso.
pub(super) const PARTITION_CPUS: &[Metric<Totals>] = &[
    gauge("slurm_partition_cpus_allocated", "CPUs of the partition that jobs hold", |t| t.cpus_alloc as f64),
    gauge("slurm_partition_cpus_idle", "CPUs of the partition that are free", |t| t.cpus_idle as f64),
    gauge("slurm_partition_cpus_other", "CPUs of the partition on which no job can start", Totals::cpus_other),
    gauge("slurm_partition_cpus_total", "CPUs of the partition", |t| t.cpus as f64),
];

/// A partition's nodes, with Slurm's names.
pub(super) const PARTITION_NODES: &[Metric<Totals>] = &[
    gauge("slurm_partition_cpus", "CPUs of the partition", |t| t.cpus as f64),
    gauge("slurm_partition_gpus", "GPUs of the partition", |t| t.gpus as f64),
    gauge("slurm_partition_nodes", "Nodes of the partition", |t| t.nodes as f64),
    gauge("slurm_partition_nodes_alloc", "Nodes of which jobs hold all CPUs", |t| t.state(&["allocated"])),
    gauge("slurm_partition_nodes_cg", "Completing nodes", |t| t.state(&["completing"])),
    gauge("slurm_partition_nodes_cpus_alloc", "CPUs that jobs hold", |t| t.cpus_alloc as f64),
    gauge("slurm_partition_nodes_cpus_efctv", "CPUs that jobs can hold", |t| t.cpus as f64),
    gauge("slurm_partition_nodes_cpus_idle", "CPUs that are free", |t| t.cpus_idle as f64),
    gauge("slurm_partition_nodes_down", "Nodes that are down and not drained", |t| t.state(&["down"])),
    gauge("slurm_partition_nodes_drain", "Drained and draining nodes", |t| t.state(&["drained", "draining"])),
    gauge("slurm_partition_nodes_drained", "Drained nodes without jobs", |t| t.state(&["drained"])),
    gauge("slurm_partition_nodes_draining", "Drained nodes with jobs", |t| t.state(&["draining"])),
    gauge("slurm_partition_nodes_fail", "Nodes that an operator expects to fail", |t| t.state(&["fail", "failing"])),
    gauge("slurm_partition_nodes_idle", "Nodes without jobs that accept some", |t| t.state(&["idle"])),
    gauge("slurm_partition_nodes_maint", "Idle nodes in a reservation for maintenance", |t| t.state(&["maint"])),
    gauge("slurm_partition_nodes_mem_alloc", "Memory that jobs hold, bytes", |t| bytes(t.memory_alloc_mb)),
    gauge("slurm_partition_nodes_mem_avail", "Memory that jobs can hold, bytes", |t| bytes(t.memory_mb)),
    gauge("slurm_partition_nodes_mem_free", "Free memory, bytes", |t| bytes(t.memory_free_mb)),
    gauge("slurm_partition_nodes_mem_tot", "Memory, bytes", |t| bytes(t.memory_mb)),
    gauge("slurm_partition_nodes_mixed", "Nodes of which jobs hold some CPUs", |t| t.state(&["mixed"])),
    gauge("slurm_partition_nodes_no_resp", "Nodes that do not respond, in whatever state", |t| t.silent as f64),
    gauge("slurm_partition_nodes_resv", "Idle nodes in another reservation", |t| t.state(&["reserved"])),
    gauge("slurm_partition_nodes_unknown", "Nodes that never registered", |t| t.state(&["unknown"])),
];
