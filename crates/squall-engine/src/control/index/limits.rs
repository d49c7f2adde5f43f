//! Limits of associations and QOS: how much each leaves for further jobs, and which of them a job exceeds.

use crate::control::state::billing;
use crate::control::state::gates::Tally;
use crate::control::state::gates::account_of;
use crate::control::state::gates::first_partition;
use crate::control::state::gates::gates;
use crate::control::state::gates::gpus;
use crate::control::state::gates::qos_by_id;
use crate::control::state::gates::qos_decay;
use crate::control::state::gates::qos_of;
use crate::control::state::gates::tally_of;
use std::collections::BTreeMap;

use squall_model::billing::Billing;
use squall_model::id::JobId;
use squall_model::job::{JobSpec, Owner};
use squall_model::policy::{AssocKey, Association, Counts, Limit, NORMAL, Scope, Tres, Whose};
use squall_model::time::Time;
use squall_sched::{Gate, UNLIMITED};

use crate::control::index::facts;
use crate::control::index::size::{Size, size};
use crate::control::state::State;
use crate::control::state::job::{Job, Queue};
use crate::control::state::ledger::Decay;

/// Returns the limits of an association or QOS with shared limits (a gate), each with its value: a number of jobs,
/// CPUs, MiB, nodes, devices or seconds, or one of those times seconds.
fn limits_of(state: &State, gate: Gate) -> Vec<(Limit, u64)> {
    let of_all = |limit: Limit| matches!(limit.scope(), Scope::Grp | Scope::GrpUsed | Scope::GrpDue);
    let within = |limits: &BTreeMap<Limit, u64>, fits: &dyn Fn(Limit) -> bool| -> Vec<(Limit, u64)> {
        limits.iter().filter(|(limit, _)| fits(**limit)).map(|(limit, most)| (*limit, *most)).collect()
    };
    let of_qos = |id: u32, fits: &dyn Fn(Limit) -> bool| {
        qos_by_id(state, id).map(|qos| within(&qos.limits, fits)).unwrap_or_default()
    };
    match gate {
        Gate::Association(id) => {
            let Some(key) = state.index.tallies.associations.get(&id) else { return Vec::new() };
            let Some(own) = state.policy.associations.get(key) else { return Vec::new() };
            let mut limits = within(&own.limits, &of_all);
            if !key.user.is_empty() {
                let each = [Limit::MaxJobs, Limit::MaxSubmit];
                limits.extend(each.iter().filter_map(|l| Some((*l, state.policy.limit(&key.account, own, *l)?))));
            }
            limits
        }
        Gate::Qos(id) => of_qos(id, &of_all),
        Gate::QosUser(id, _) => of_qos(id, &|limit| matches!(limit.scope(), Scope::User | Scope::UserDue)),
        Gate::QosAccount(id, _) => of_qos(id, &|limit| matches!(limit.scope(), Scope::Account | Scope::AccountDue)),
    }
}

/// Returns whether an association or QOS with shared limits (a gate) has any limit.
pub(crate) fn is_limited(state: &State, gate: Gate) -> bool {
    !limits_of(state, gate).is_empty()
}

/// Returns how much each limit of an association or QOS leaves for jobs that start, in the limit's unit. Limits on
/// submitted jobs are left out.
pub(crate) fn room(state: &State, gate: Gate, now: Time) -> Vec<(Limit, u64)> {
    let limits = limits_of(state, gate);
    if limits.is_empty() {
        return limits;
    }
    let tally = state.index.tallies.by_gate.get(&gate).copied().unwrap_or_default();
    let safe = state.config.accounting_storage_enforce.safe;
    let due = |limit: Limit| if safe || limit.scope().is_due() { due_s(state, gate, limit, now) } else { 0 };
    let left = |(limit, most): (Limit, u64)| {
        let used = match (limit.scope(), limit.counts()) {
            (_, Counts::Running) => tally.jobs,
            (_, Counts::Submitted) => return None,
            (Scope::GrpUsed, _) => used_s(state, gate, limit, now).saturating_add(due(limit)),
            (scope, _) if scope.is_due() => due(limit),
            (_, Counts::Of(tres)) => tally.of(tres),
            (_, Counts::Time) => return None,
        };
        Some((limit, most.saturating_sub(used)))
    };
    limits.into_iter().filter_map(left).collect()
}

/// Returns the past usage of the jobs that count against an association or QOS, in the resource of a limit:
/// resource-seconds; for a limit on run time, seconds.
fn used_s(state: &State, gate: Gate, limit: Limit, now: Time) -> u64 {
    let (tallies, decay) = (&state.index.tallies, Decay::of(&state.config));
    let used = |whose: Whose, id: u32, decay: Decay| {
        let (amount, wall) = state.used(whose, limit.tres().unwrap_or(Tres::Cpu), id, now, decay);
        if limit.tres().is_some() { amount } else { wall }
    };
    match gate {
        Gate::Association(id) => {
            let Some(key) = tallies.associations.get(&id) else { return 0 };
            let below =
                state.policy.associations.iter().filter(|(other, own)| is_below(state, (key, id), (other, own)));
            below.map(|(_, own)| used(Whose::Association, own.id, decay)).sum::<f64>() as u64
        }
        Gate::Qos(id) => {
            let decay = qos_by_id(state, id).map_or(decay, |qos| qos_decay(state, qos));
            used(Whose::Qos, id, decay) as u64
        }
        Gate::QosUser(..) | Gate::QosAccount(..) => 0,
    }
}

/// Returns whether a user's association is the given one, or below the given account.
fn is_below(state: &State, (key, id): (&AssocKey, u32), (other, own): (&AssocKey, &Association)) -> bool {
    let account = || state.policy.above(&other.account).any(|(name, _)| name == key.account);
    !other.user.is_empty() && (own.id == id || (key.user.is_empty() && account()))
}

/// Returns how much the running jobs that count against an association or QOS may still use until their time limits,
/// resource-seconds; for a limit on run time, seconds.
fn due_s(state: &State, gate: Gate, limit: Limit, now: Time) -> u64 {
    let due = |job: &Job| {
        let run = job.run()?;
        let left_s = facts::time_limit_s(state, job, &run.partition)
            .map_or(UNLIMITED.secs(), |most| most.saturating_sub(run.elapsed(now).secs()));
        let held = match limit.tres() {
            None => 1,
            Some(tres) => tally_of(&job.spec, run).of(tres),
        };
        let counts = gates(state, &job.owner, &job.spec, &run.partition).contains(&gate);
        counts.then(|| held.saturating_mul(left_s))
    };
    state.jobs.values().filter(|job| job.is_running()).filter_map(|job| due(job)).fold(0, u64::saturating_add)
}

/// Returns the running jobs that have used up a limit on past usage. Empty if limits are not enforced, or with `safe`,
/// as a job then starts only if its whole time limit fits.
pub(crate) fn spent(state: &State, now: Time) -> Vec<JobId> {
    let enforce = state.config.accounting_storage_enforce;
    if enforce.none || enforce.safe {
        return Vec::new();
    }
    let mut empty: BTreeMap<Gate, Vec<Limit>> = BTreeMap::new();
    let mut is_spent = |job: &Job| {
        let run = job.run()?;
        let held = tally_of(&job.spec, run);
        let all = gates(state, &job.owner, &job.spec, &run.partition);
        let without = |gate| {
            let used_up = |(limit, most): (Limit, u64)| {
                (limit.scope() == Scope::GrpUsed && used_s(state, gate, limit, now) >= most).then_some(limit)
            };
            limits_of(state, gate).into_iter().filter_map(used_up).collect::<Vec<_>>()
        };
        let uses = |limit: &Limit| limit.tres().is_none_or(|tres| held.of(tres) > 0);
        let any = all.into_iter().any(|gate| empty.entry(gate).or_insert_with(|| without(gate)).iter().any(uses));
        Some(any)
    };
    let running = state.jobs.iter().filter(|(_, job)| job.is_running());
    running.filter(|(_, job)| is_spent(job) == Some(true)).map(|(id, _)| *id).collect()
}

/// Returns the limit on submitted jobs that `size` more jobs would exceed, and whether an association or QOS has it.
/// None: they are allowed.
pub(crate) fn refused(state: &State, owner: &Owner, spec: &JobSpec, size: u64) -> Option<(Whose, Limit)> {
    let partition = first_partition(state, spec);
    for gate in gates(state, owner, spec, partition) {
        let submitted = state.index.tallies.by_gate.get(&gate).map_or(0, |tally| tally.submitted);
        for (limit, most) in limits_of(state, gate) {
            if limit.counts() == Counts::Submitted && submitted + size > most {
                return Some((gate.whose(), limit));
            }
        }
    }
    None
}

/// Returns a limit that a job would exceed even if it ran alone, and whether an association or QOS has it. Limits on
/// each job and limits on all jobs together count. None: there is none.
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
    let Size { nodes, tasks, cpus, memory_mb } = size(&spec.need, state.config.def_mem_per_cpu_mb);
    let billing = billing::of_request(state, spec, partition, (nodes, tasks, cpus, memory_mb));
    let (nodes, cpus) = (u64::from(nodes), u64::from(cpus));
    let set = standing.time_limit_s.or(spec.limit_s());
    let wall = set.unwrap_or_else(|| facts::default_limit_s(state, partition)).unwrap_or(u64::MAX);
    let billing = billing.map_or(cpus, Billing::whole);
    let all = Tally { submitted: 0, jobs: 1, cpus, memory_mb, nodes, gpus: gpus(spec, nodes as u32), billing };
    let safe = state.config.accounting_storage_enforce.safe;
    let asked = |limit: Limit| match (limit.scope(), limit.counts()) {
        (Scope::GrpUsed, _) if !safe => 0,
        (_, Counts::Time) => wall,
        (Scope::GrpUsed | Scope::JobDue, Counts::Of(tres)) => all.of(tres).saturating_mul(wall),
        (scope, Counts::Of(tres)) if scope.is_due() => all.of(tres).saturating_mul(wall),
        (Scope::Node, Counts::Of(tres)) => all.of(tres) / nodes.max(1),
        (_, Counts::Of(tres)) => all.of(tres),
        (_, Counts::Running) => 1,
        (_, Counts::Submitted) => 0,
    };
    let of_job = |limit: Limit| matches!(limit.scope(), Scope::Job | Scope::JobDue | Scope::Node);
    let account = account_of(state, spec);
    let own = policy.association(account, &owner.user, partition);
    let mut of_own = own.into_iter().flat_map(|own| policy.limits(account, own));
    if let Some((limit, _)) = of_own.find(|(limit, most)| of_job(*limit) && asked(*limit) > *most) {
        return Some((Whose::Association, limit));
    }
    let of_partition = state.partition(partition).and_then(|p| policy.qos.get(&p.config.qos));
    for qos in qos_of(state, spec).into_iter().chain(of_partition) {
        let breaks = |limit: Limit, bound: u64| match limit.scope() {
            Scope::Least => asked(limit) < bound,
            _ => of_job(limit) && asked(limit) > bound,
        };
        if let Some((limit, _)) = qos.limits.iter().find(|(limit, bound)| breaks(**limit, **bound)) {
            return Some((Whose::Qos, *limit));
        }
    }
    gates(state, owner, spec, partition).into_iter().find_map(|gate| {
        let over = |(limit, most): &(Limit, u64)| asked(*limit) > *most;
        limits_of(state, gate).into_iter().find(over).map(|(limit, _)| (gate.whose(), limit))
    })
}

/// Returns whether a QOS name is valid: it is defined, or is `normal`, or no QOS is defined at all.
pub(crate) fn knows_qos(state: &State, name: &str) -> bool {
    state.policy.qos.is_empty() || name == NORMAL || state.policy.qos.contains_key(name)
}
