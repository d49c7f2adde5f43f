//! Invariant: no limit of a QOS is ever exceeded. Usage is counted from durable starts and releases, not by the
//! controller's own sums. Jobs are billed for what they hold.

use std::collections::BTreeMap;

use squall_model::billing::{Billing, BillingWeights, Combine, Held, billing};
use squall_model::config::{Config, PartitionConfig};
use squall_model::id::JobId;
use squall_model::job::JobSpec;
use squall_model::policy::{Limit, PolicyChange, Scope, Tres};
use squall_model::resource::Alloc;

use super::Judge;

/// Returns the whole units that an allocation in a partition is billed.
fn bill(weights: &BTreeMap<String, BillingWeights>, partition: &str, alloc: &Alloc) -> u64 {
    let cpus = u64::from(alloc.cpus());
    let Some(weights) = weights.get(partition).filter(|weights| !weights.is_empty()) else { return cpus };
    let nodes = alloc.nodes().len() as u64;
    let held = Held { cpus, memory_mb: alloc.memory_mb(), nodes, ..Held::default() };
    billing(&held, weights, Combine::Sum).whole()
}

/// Resources of a running job that count towards limits.
#[derive(Clone, Debug)]
pub(crate) struct CountedJob {
    uid: u32,
    qos: String,
    partition: String,
    cpus: u64,
    nodes: u64,
    billing: u64,
}

impl Judge {
    pub(super) fn note_asked(&mut self, id: JobId, uid: u32, spec: &JobSpec) {
        if let Some(qos) = &spec.qos {
            self.asked.insert(id, (uid, qos.clone()));
        }
    }

    pub(super) fn note_policy(&mut self, changes: &[PolicyChange]) {
        for change in changes {
            self.policy.change(change);
        }
        self.policy.version += 1;
    }

    /// Records that a running job has returned nodes, which no longer count towards limits. `alloc`: what it has left.
    pub(super) fn note_kept(&mut self, id: JobId, alloc: &Alloc) {
        self.keep_blocks(id, &alloc.nodes());
        if let Some(held) = self.holding.get_mut(&id) {
            (held.cpus, held.nodes) = (u64::from(alloc.cpus()), alloc.nodes().len() as u64);
            held.billing = bill(&self.weights, &held.partition, alloc);
        }
        if let Some(file) = self.files.get_mut(&id) {
            file.granted = alloc.nodes();
        }
    }

    pub(super) fn note_weights(&mut self, config: &Config) {
        let of = |one: &PartitionConfig| (one.name.clone(), one.tres_billing_weights.clone());
        self.weights = config.partitions.iter().map(of).collect();
    }

    /// Checks that a job is billed for what it holds.
    pub(super) fn check_billed(&mut self, id: JobId, billed: Billing) {
        // because a leased job does not hold anything yet
        let Some(held) = self.holding.get(&id) else { return };
        if held.billing != billed.whole() {
            let text = format!("job {id}: {} for {} units", billed.whole(), held.billing);
            self.violate("a job is billed for what it holds", text);
        }
    }

    /// Records the start of a job with the allocation `alloc`, and checks that all usage is within its QOS limits.
    pub(super) fn check_limits(&mut self, id: JobId, partition: &str, alloc: &Alloc) {
        let first = self.submission_of(id).map_or(id, |(first, _)| first);
        let Some((uid, qos)) = self.asked.get(&first).cloned() else { return };
        let (cpus, nodes) = (u64::from(alloc.cpus()), alloc.nodes().len() as u64);
        let billing = bill(&self.weights, partition, alloc);
        let held = CountedJob { uid, qos, partition: partition.to_owned(), cpus, nodes, billing };
        self.holding.insert(id, held.clone());
        let Some(limits) = self.policy.qos.get(&held.qos).map(|qos| qos.limits.clone()) else { return };
        for (limit, most) in limits {
            let alike = self.holding.values().filter(|other| other.qos == held.qos);
            let used: u64 = match limit {
                Limit::UserJobs => alike.filter(|other| other.uid == held.uid).count() as u64,
                Limit::GrpJobs => alike.count() as u64,
                Limit::GrpCpu => alike.map(|other| other.cpus).sum(),
                Limit::GrpNode => alike.map(|other| other.nodes).sum(),
                Limit::Tres(Scope::Grp, Tres::Billing) => alike.map(|other| other.billing).sum(),
                _ => continue,
            };
            if used > most {
                let text = format!("{limit:?} of {} is {most}, and {used} with job {id}", held.qos);
                self.violate("a limit is never exceeded", text);
            }
        }
    }
}
