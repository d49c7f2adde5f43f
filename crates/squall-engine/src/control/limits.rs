//! Limits of accounts and levels of service: which a job counts against, and what room they leave.

use std::collections::BTreeMap;

use squall_model::job::{JobSpec, Owner};
use squall_model::policy::{Association, Limit, NORMAL, Qos, Whose};
use squall_model::time::Time;
use squall_sched::Gate;

use super::facts;
use super::info::job::{Size, size};
use super::state::State;
use super::state::job::Queue;
use super::state::ledger::Decay;

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
}

/// All tallies, and what is found by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    /// By what limits them together.
    pub by_gate: BTreeMap<Gate, Tally>,
    /// Accounts and users of associations, by number.
    associations: BTreeMap<u32, squall_model::policy::AssocKey>,
    /// Names of levels of service, by number.
    qos: BTreeMap<u32, String>,
}

impl Tallies {
    /// Nothing is counted yet.
    pub(super) fn new(policy: &squall_model::policy::Policy) -> Self {
        Self {
            by_gate: BTreeMap::new(),
            associations: policy.associations.iter().map(|(key, own)| (own.id, key.clone())).collect(),
            qos: policy.qos.iter().map(|(name, qos)| (qos.id, name.clone())).collect(),
        }
    }
    /// Whether there is an association of that number.
    pub(super) fn has(&self, association: u32) -> bool {
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

/// The limits behind a gate, of which each is a number of jobs, CPUs, MiB, nodes or seconds.
fn limits_of(state: &State, gate: Gate) -> Vec<(Limit, u64)> {
    let tallies = &state.index.tallies;
    let qos = |id: u32| tallies.qos.get(&id).and_then(|name| state.policy.qos.get(name));
    let within = |limits: &BTreeMap<Limit, u64>, from: Limit, through: Limit| -> Vec<(Limit, u64)> {
        limits.range(from..=through).map(|(limit, most)| (*limit, *most)).collect()
    };
    match gate {
        Gate::Association(id) => {
            let Some(key) = tallies.associations.get(&id) else { return Vec::new() };
            let Some(own) = state.policy.associations.get(key) else { return Vec::new() };
            let mut limits = within(&own.limits, Limit::GrpJobs, Limit::GrpNode);
            if !key.user.is_empty() {
                let each = [Limit::MaxJobs, Limit::MaxSubmit];
                limits.extend(each.iter().filter_map(|l| Some((*l, state.policy.limit(&key.account, own, *l)?))));
            }
            limits
        }
        Gate::Qos(id) => qos(id).map(|q| within(&q.limits, Limit::GrpJobs, Limit::GrpNode)).unwrap_or_default(),
        Gate::QosUser(id, _) => {
            qos(id).map(|q| within(&q.limits, Limit::UserJobs, Limit::UserNode)).unwrap_or_default()
        }
        Gate::QosAccount(id, _) => {
            qos(id).map(|q| within(&q.limits, Limit::AccountJobs, Limit::AccountNode)).unwrap_or_default()
        }
    }
}

/// Whether anything is limited behind a gate.
pub(crate) fn is_limited(state: &State, gate: Gate) -> bool {
    !limits_of(state, gate).is_empty()
}

/// What is left behind a gate for jobs that start.
pub(crate) fn room(state: &State, gate: Gate, now: Time) -> Vec<(Limit, u64)> {
    let limits = limits_of(state, gate);
    if limits.is_empty() {
        return limits;
    }
    let tally = state.index.tallies.by_gate.get(&gate).copied().unwrap_or_default();
    let left = |(limit, most): (Limit, u64)| {
        let used = match limit {
            Limit::GrpJobs | Limit::MaxJobs | Limit::UserJobs | Limit::AccountJobs => tally.jobs,
            Limit::GrpCpu | Limit::UserCpu | Limit::AccountCpu => tally.cpus,
            Limit::GrpMem | Limit::UserMem | Limit::AccountMem => tally.memory_mb,
            Limit::GrpNode | Limit::UserNode | Limit::AccountNode => tally.nodes,
            Limit::GrpWall => wall_s(state, gate, now),
            _ => return None,
        };
        Some((limit, most.saturating_sub(used)))
    };
    limits.into_iter().filter_map(left).collect()
}

/// Seconds that the jobs of an association and of all below it ran.
fn wall_s(state: &State, gate: Gate, now: Time) -> u64 {
    let Gate::Association(id) = gate else { return 0 };
    let Some(key) = state.index.tallies.associations.get(&id) else { return 0 };
    let decay = Decay::of(&state.config);
    let below = state.policy.associations.iter().filter(|(other, own)| {
        !other.user.is_empty()
            && (own.id == id
                || (key.user.is_empty() && state.policy.above(&other.account).any(|(name, _)| name == key.account)))
    });
    below.map(|(_, own)| state.ledger.used(own.id, now, decay).1).sum::<f64>() as u64
}

/// The limit on submissions that so many more would break.
pub(crate) fn refused(state: &State, owner: &Owner, spec: &JobSpec, size: u64) -> Option<(Whose, Limit)> {
    let partition = first_partition(state, spec);
    for gate in gates(state, owner, spec, partition) {
        let submitted = state.index.tallies.by_gate.get(&gate).map_or(0, |tally| tally.submitted);
        for (limit, most) in limits_of(state, gate) {
            let counts =
                matches!(limit, Limit::GrpSubmit | Limit::MaxSubmit | Limit::UserSubmit | Limit::AccountSubmit);
            if counts && submitted + size > most {
                return Some((gate.whose(), limit));
            }
        }
    }
    None
}

/// The limit on each single job, or on all together, that a job could not keep even alone.
pub(crate) fn broken(
    state: &State,
    owner: &Owner,
    spec: &JobSpec,
    standing: &Queue,
    partition: &str,
) -> Option<(Whose, Limit)> {
    let policy = &state.policy;
    if policy.is_empty() || state.config.accounting_storage_enforce.none {
        return None;
    }
    let Size { nodes, cpus, memory_mb, .. } = size(&spec.need, state.config.def_mem_per_cpu_mb);
    let (nodes, cpus) = (u64::from(nodes), u64::from(cpus));
    let set = standing.time_limit_s.or(spec.limit_s());
    let wall = set.unwrap_or_else(|| facts::default_limit_s(state, partition)).unwrap_or(u64::MAX);
    let asked = |limit: Limit| match limit {
        Limit::MaxWall => wall,
        Limit::MaxCpu | Limit::GrpCpu | Limit::UserCpu | Limit::AccountCpu => cpus,
        Limit::MaxMem | Limit::GrpMem | Limit::UserMem | Limit::AccountMem => memory_mb,
        Limit::MaxNode | Limit::GrpNode | Limit::UserNode | Limit::AccountNode => nodes,
        Limit::GrpJobs | Limit::MaxJobs | Limit::UserJobs | Limit::AccountJobs => 1,
        _ => 0,
    };
    let account = account_of(state, spec);
    if let Some(own) = policy.association(account, &owner.user, partition) {
        for limit in [Limit::MaxWall, Limit::MaxCpu, Limit::MaxMem, Limit::MaxNode] {
            if policy.limit(account, own, limit).is_some_and(|most| asked(limit) > most) {
                return Some((Whose::Association, limit));
            }
        }
    }
    let of_partition = state.partition(partition).and_then(|p| policy.qos.get(&p.config.qos));
    for qos in qos_of(state, spec).into_iter().chain(of_partition) {
        for (&limit, &bound) in qos.limits.range(Limit::MaxWall..=Limit::MaxNode) {
            if asked(limit) > bound {
                return Some((Whose::Qos, limit));
            }
        }
        for (&limit, &least) in qos.limits.range(Limit::MinCpu..=Limit::MinNode) {
            let asked = match limit {
                Limit::MinCpu => cpus,
                Limit::MinMem => memory_mb,
                _ => nodes,
            };
            if asked < least {
                return Some((Whose::Qos, limit));
            }
        }
    }
    gates(state, owner, spec, partition).into_iter().find_map(|gate| {
        let over = |(limit, most): &(Limit, u64)| asked(*limit) > *most;
        limits_of(state, gate).into_iter().find(over).map(|(limit, _)| (gate.whose(), limit))
    })
}

/// Whether a QOS is known: one that was set up, the one that always is there, or any before one was set up.
pub(crate) fn knows_qos(state: &State, name: &str) -> bool {
    state.policy.qos.is_empty() || name == NORMAL || state.policy.qos.contains_key(name)
}
