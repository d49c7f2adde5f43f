//! Which limits a job is behind, and what it counts for there.

use std::collections::BTreeMap;

use squall_model::gres;
use squall_model::job::{JobSpec, Owner};
use squall_model::policy::{AssocKey, Association, Qos, Tres};
use squall_sched::Gate;

use super::State;
use super::job::Run;
use super::ledger::Decay;

/// What counts against limits, of all jobs that share them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Jobs in the queue or running.
    pub submitted: u64,
    /// Jobs that hold resources.
    pub jobs: u64,
    /// Their CPUs.
    pub cpus: u64,
    /// Their memory, MiB.
    pub memory_mb: u64,
    /// Their nodes.
    pub nodes: u64,
    /// Their GPUs.
    pub gpus: u64,
}

impl Tally {
    /// What they hold of a resource.
    pub(crate) fn of(&self, tres: Tres) -> u64 {
        match tres {
            Tres::Cpu => self.cpus,
            Tres::Mem => self.memory_mb,
            Tres::Node => self.nodes,
            Tres::Gpu => self.gpus,
        }
    }
}

/// All tallies, and what is found by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    /// By what limits them together.
    pub by_gate: BTreeMap<Gate, Tally>,
    /// Accounts and users of associations, by number.
    pub(crate) associations: BTreeMap<u32, AssocKey>,
    /// Names of levels of service, by number.
    qos: BTreeMap<u32, String>,
    /// Whether there is a limit whose room changes with time.
    pub budgets: bool,
}

impl Tallies {
    /// Nothing is counted yet.
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
    /// Whether there is an association of that number.
    pub(crate) fn has(&self, association: u32) -> bool {
        self.associations.contains_key(&association)
    }
}

/// The account of a job.
pub(crate) fn account_of<'a>(state: &'a State, spec: &'a JobSpec) -> &'a str {
    spec.account.as_deref().unwrap_or(&state.config.default_account)
}

/// The name of a job's QOS.
pub(crate) fn qos_name<'a>(state: &'a State, spec: &'a JobSpec) -> &'a str {
    spec.qos.as_deref().unwrap_or(&state.config.default_qos)
}

/// A job's QOS, if it is one that was set up.
pub(crate) fn qos_of<'a>(state: &'a State, spec: &JobSpec) -> Option<&'a Qos> {
    state.policy.qos.get(spec.qos.as_deref().unwrap_or(&state.config.default_qos))
}

/// The association of a job in a partition.
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

/// The first partition that a job names, or the default one.
pub(crate) fn first_partition<'a>(state: &'a State, spec: &'a JobSpec) -> &'a str {
    let named = spec.partition.as_deref().and_then(|names| names.split(',').next());
    named.or_else(|| state.default_partition().map(|p| p.config.name.as_str())).unwrap_or_default()
}

/// What a job in a partition counts against: the association, the accounts above it, its QOS and the partition's.
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

/// GPUs of a job on so many nodes.
pub(crate) fn gpus(spec: &JobSpec, nodes: u32) -> u64 {
    gres::Ask::of_job(spec).map_or(0, |ask| u64::from(ask.gpus(nodes, spec.need.tasks_on(nodes))))
}

/// A QOS by its number.
pub(crate) fn qos_by_id(state: &State, id: u32) -> Option<&Qos> {
    state.index.tallies.qos.get(&id).and_then(|name| state.policy.qos.get(name))
}

/// How what a QOS used is forgotten.
pub(crate) fn qos_decay(state: &State, qos: &Qos) -> Decay {
    let kept = qos.flags.iter().any(|flag| flag.eq_ignore_ascii_case("NoDecay"));
    if kept { Decay::NEVER } else { Decay::of(&state.config) }
}

/// What a job that holds resources counts for.
pub(crate) fn tally_of(spec: &JobSpec, run: &Run) -> Tally {
    let nodes = run.alloc.nodes().len() as u32;
    Tally {
        submitted: 0,
        jobs: 1,
        cpus: u64::from(run.alloc.cpus()),
        memory_mb: run.alloc.memory_mb(),
        nodes: u64::from(nodes),
        gpus: gpus(spec, nodes),
    }
}
