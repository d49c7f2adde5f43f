//! What jobs are billed by the weights of their partitions. A job without weights is billed for its CPUs.

use squall_model::billing::points::Amounts;
use squall_model::billing::{Billing, BillingWeights, Combine, Held, billing};
use squall_model::gres;
use squall_model::job::JobSpec;
use squall_model::license;
use squall_model::version::ClusterVersion;

use crate::control::state::State;
use crate::control::state::job::Run;
use crate::control::state::node::Partition;

/// Returns the weights of a partition, and how they are combined. None: it has none.
pub(crate) fn weights<'a>(state: &State, partition: &'a Partition) -> Option<(&'a BillingWeights, Combine)> {
    let weights = &partition.config.tres_billing_weights;
    if weights.is_empty() || state.cluster_version < ClusterVersion::BILLING {
        return None;
    }
    Some((weights, state.config.priority_flags.combine))
}

/// Returns what a job is billed for the resources of a run. None: for its CPUs.
pub(crate) fn of_run(state: &State, spec: &JobSpec, run: &Run) -> Option<Billing> {
    let (weights, combine) = weights(state, state.partition(&run.partition)?)?;
    let nodes = run.alloc.nodes();
    let devices = if weights.weigh_gres() {
        gres::held_counts(&run.gres, &nodes, |node| state.index.gres.get(&node))
    } else {
        Vec::new()
    };
    let licenses = if weights.weigh_licenses() { spec.need.licenses.as_deref().and_then(license::parse) } else { None };
    let held = Held {
        cpus: u64::from(run.alloc.cpus()),
        memory_mb: run.alloc.memory_mb(),
        nodes: nodes.len() as u64,
        gres: &devices,
        licenses: licenses.as_ref(),
    };
    Some(billing(&held, weights, combine))
}

/// Returns what a job would be billed in a partition for what it requests: nodes, tasks, CPUs and memory (MiB), and what
/// else its options say. None: for its CPUs.
pub(crate) fn of_request(
    state: &State,
    spec: &JobSpec,
    partition: &str,
    (nodes, tasks, cpus, memory_mb): (u32, u32, u32, u64),
) -> Option<Billing> {
    let (weights, combine) = weights(state, state.partition(partition)?)?;
    let asked = if weights.weigh_gres() { gres::Ask::of_job(spec) } else { None };
    let devices = asked.map(|asked| asked.kinds(nodes, tasks)).unwrap_or_default();
    let licenses = if weights.weigh_licenses() { spec.need.licenses.as_deref().and_then(license::parse) } else { None };
    let (cpus, nodes) = (u64::from(cpus), u64::from(nodes));
    let held = Held { cpus, memory_mb, nodes, gres: &devices, licenses: licenses.as_ref() };
    Some(billing(&held, weights, combine))
}

/// Returns what a job would be billed that had all of a partition. None: for its CPUs.
pub(crate) fn of_whole(state: &State, partition: &Partition) -> Option<Billing> {
    let (weights, combine) = weights(state, partition)?;
    let hardware = || partition.nodes.iter().filter_map(|id| state.node(id)).map(|node| &node.hardware);
    let gres = partition.nodes.iter().filter_map(|id| state.index.gres.get(&id));
    let devices: Vec<gres::Count> = gres.flat_map(gres::NodeGres::whole).collect();
    let held = Held {
        cpus: hardware().map(|has| u64::from(has.cpus)).sum(),
        memory_mb: hardware().map(|has| has.memory_mb).sum(),
        nodes: partition.nodes.len() as u64,
        gres: &devices,
        licenses: None,
    };
    Some(billing(&held, weights, combine))
}

/// What a job requests or a partition has, with what is billed for it.
#[derive(Debug, Default)]
pub(crate) struct Amount {
    cpus: u64,
    memory_mb: u64,
    nodes: u64,
    devices: Vec<gres::Count>,
    billing: Billing,
}

impl Amount {
    /// Returns the amounts, to be compared with others.
    pub(crate) fn amounts(&self) -> Amounts<'_> {
        let Self { cpus, memory_mb, nodes, devices, billing } = self;
        let held = Held { cpus: *cpus, memory_mb: *memory_mb, nodes: *nodes, gres: devices, licenses: None };
        Amounts { held, billing: *billing }
    }
}

/// Returns what a partition has.
pub(crate) fn whole(state: &State, partition: &Partition) -> Amount {
    let hardware = || partition.nodes.iter().filter_map(|id| state.node(id)).map(|node| &node.hardware);
    let gres = partition.nodes.iter().filter_map(|id| state.index.gres.get(&id));
    let cpus = hardware().map(|has| u64::from(has.cpus)).sum();
    Amount {
        cpus,
        memory_mb: hardware().map(|has| has.memory_mb).sum(),
        nodes: partition.nodes.len() as u64,
        devices: gres.flat_map(gres::NodeGres::whole).collect(),
        billing: of_whole(state, partition).unwrap_or(Billing::of_cpus(cpus)),
    }
}

/// Returns what a job requests of a partition: nodes, tasks, CPUs and memory (MiB), and what else its options say.
pub(crate) fn requested(
    state: &State,
    spec: &JobSpec,
    partition: &str,
    (nodes, tasks, cpus, memory_mb): (u32, u32, u32, u64),
) -> Amount {
    let billed = of_request(state, spec, partition, (nodes, tasks, cpus, memory_mb));
    Amount {
        cpus: u64::from(cpus),
        memory_mb,
        nodes: u64::from(nodes),
        devices: gres::Ask::of_job(spec).map(|asked| asked.kinds(nodes, tasks)).unwrap_or_default(),
        billing: billed.unwrap_or(Billing::of_cpus(u64::from(cpus))),
    }
}
