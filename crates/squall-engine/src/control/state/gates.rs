//! The shared limits that apply to a job, and what the job counts for in them. A gate is an association or QOS, or a
//! user or account in a QOS, with limits on all of its jobs together.

use std::collections::BTreeMap;

use squall_model::billing::Billing;
use squall_model::gres;
use squall_model::job::{JobSpec, Owner};
use squall_model::policy::{AssocKey, Association, Qos, Tres};
use squall_model::resource::Alloc;
use squall_sched::Gate;

use super::State;
use super::job::Run;
use super::ledger::Decay;

/// Jobs and resources that count against a shared limit, summed over all jobs to which that limit applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of jobs that are pending or hold resources.
    pub submitted: u64,
    /// Number of jobs that hold resources.
    pub jobs: u64,
    /// CPUs that the jobs hold.
    pub cpus: u64,
    /// Memory that the jobs hold, MiB.
    pub memory_mb: u64,
    /// Nodes that the jobs hold; a node counts once for each job.
    pub nodes: u64,
    /// GPUs that the jobs hold.
    pub gpus: u64,
    /// Whole billing units of the jobs.
    pub billing: u64,
}

impl Tally {
    /// Returns the amount of a kind of resource that the jobs hold.
    pub(crate) fn of(&self, tres: Tres) -> u64 {
        match tres {
            Tres::Cpu => self.cpus,
            Tres::Mem => self.memory_mb,
            Tres::Node => self.nodes,
            Tres::Gpu => self.gpus,
            Tres::Billing => self.billing,
        }
    }
}

/// What counts against each shared limit, and the names of associations and QOS by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    /// Jobs and resources that count against each shared limit.
    pub by_gate: BTreeMap<Gate, Tally>,
    /// Account, user and partition of each association, by the association's number.
    pub(crate) associations: BTreeMap<u32, AssocKey>,
    /// Name of each QOS, by the number of the QOS.
    qos: BTreeMap<u32, String>,
    /// Whether any limit is on usage over time. What such a limit leaves changes without an event.
    pub budgets: bool,
}

impl Tallies {
    /// Makes the table for a policy, with nothing counted yet.
    pub(crate) fn new(policy: &squall_model::policy::Policy) -> Self {
        Self {
            by_gate: BTreeMap::new(),
            associations: policy.associations.iter().map(|(key, own)| (own.id, key.clone())).collect(),
            qos: policy.qos.iter().map(|(name, qos)| (qos.id, name.clone())).collect(),
            budgets: {
                let of_qos = policy.qos.values().map(|qos| &qos.limits);
                let all = policy.associations.values().map(|own| &own.limits).chain(of_qos);
                all.into_iter().any(|limits| limits.keys().any(|limit| limit.moves()))
            },
        }
    }
    /// Returns whether an association has this number.
    pub(crate) fn has(&self, association: u32) -> bool {
        self.associations.contains_key(&association)
    }
}

/// Returns the name of a job's account: the one that its spec names, or the default one.
pub(crate) fn account_of<'a>(state: &'a State, spec: &'a JobSpec) -> &'a str {
    spec.account.as_deref().unwrap_or(&state.config.default_account)
}

/// Returns the name of a job's QOS: the one that its spec names, or the default one.
pub(crate) fn qos_name<'a>(state: &'a State, spec: &'a JobSpec) -> &'a str {
    spec.qos.as_deref().unwrap_or(&state.config.default_qos)
}

/// Returns a job's QOS, if that QOS is defined.
pub(crate) fn qos_of<'a>(state: &'a State, spec: &JobSpec) -> Option<&'a Qos> {
    state.policy.qos.get(spec.qos.as_deref().unwrap_or(&state.config.default_qos))
}

/// Returns the association of a job in a partition. None: the job's user has none there, or no associations are
/// defined.
pub(crate) fn association_of<'a>(
    state: &'a State,
    owner: &Owner,
    spec: &JobSpec,
    partition: &str,
) -> Option<&'a Association> {
    if state.policy.associations.is_empty() {
        return None;
    }
    let account = spec.account.as_deref().unwrap_or(&state.config.default_account);
    state.policy.association(account, &owner.user, partition)
}

/// Returns the first partition that a job names, or the default one.
pub(crate) fn first_partition<'a>(state: &'a State, spec: &'a JobSpec) -> &'a str {
    let named = spec.partition.as_deref().and_then(|names| names.split(',').next());
    named.or_else(|| state.default_partition().map(|p| p.config.name.as_str())).unwrap_or_default()
}

/// Returns the shared limits that apply to a job in a partition: those of its association, of the accounts above that,
/// of the job's QOS and of the partition's QOS. Empty if nothing is enforced.
pub(crate) fn gates(state: &State, owner: &Owner, spec: &JobSpec, partition: &str) -> Vec<Gate> {
    let policy = &state.policy;
    if policy.is_empty() || state.config.accounting_storage_enforce.none {
        return Vec::new();
    }
    let mut gates = Vec::with_capacity(8);
    let account = account_of(state, spec);
    let own = policy.association(account, &owner.user, partition);
    gates.extend(own.map(|own| Gate::Association(own.id)));
    let account_id = policy.above(account).next().map(|(_, own)| own.id);
    if own.is_some() {
        gates.extend(policy.above(account).map(|(_, above)| Gate::Association(above.id)));
    }
    let of_partition = state.partition(partition).map(|p| p.config.qos.as_str()).and_then(|qos| policy.qos.get(qos));
    let own_qos = qos_of(state, spec);
    for qos in own_qos.into_iter().chain(of_partition.filter(|q| own_qos.is_none_or(|own| own.id != q.id))) {
        gates.push(Gate::Qos(qos.id));
        gates.push(Gate::QosUser(qos.id, owner.uid));
        gates.extend(account_id.map(|account| Gate::QosAccount(qos.id, account)));
    }
    gates
}

/// Returns the number of GPUs that a job asks for on a number of nodes.
pub(crate) fn gpus(spec: &JobSpec, nodes: u32) -> u64 {
    gres::Ask::of_job(spec).map_or(0, |ask| u64::from(ask.gpus(nodes, spec.need.tasks_on(nodes))))
}

/// Returns the QOS with a number; None: there is none.
pub(crate) fn qos_by_id(state: &State, id: u32) -> Option<&Qos> {
    state.index.tallies.qos.get(&id).and_then(|name| state.policy.qos.get(name))
}

/// Returns how usage of a QOS decays; with the flag `NoDecay` it does not.
pub(crate) fn qos_decay(state: &State, qos: &Qos) -> Decay {
    let kept = qos.has("NoDecay");
    if kept { Decay::NEVER } else { Decay::of(&state.config) }
}

/// Returns what a job that holds resources counts for in each of its shared limits.
pub(crate) fn tally_of(spec: &JobSpec, run: &Run) -> Tally {
    tally(spec, &run.alloc, run.billing)
}

/// Returns what a job with this allocation counts for in each of its shared limits. `billing`: None, its CPUs.
pub(crate) fn tally(spec: &JobSpec, alloc: &Alloc, billing: Option<Billing>) -> Tally {
    let (nodes, cpus) = (alloc.nodes().len() as u32, u64::from(alloc.cpus()));
    Tally {
        submitted: 0,
        jobs: 1,
        cpus,
        memory_mb: alloc.memory_mb(),
        nodes: u64::from(nodes),
        gpus: gpus(spec, nodes),
        billing: billing.map_or(cpus, Billing::whole),
    }
}
