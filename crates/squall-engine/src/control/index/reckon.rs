//! Priorities from age, fair share, size, partition and QOS.
//!
//! All pending jobs age at the same rate, so a queue position follows from a key that does not change with time. The
//! rest (fair shares, and which jobs have reached the maximum age) is recalculated every `PriorityCalcPeriod`.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::config::Config;
use squall_model::id::JobId;
use squall_model::job::{JobSpec, Owner};
use squall_model::policy::{PreemptType, PriorityType, Real};
use squall_model::time::Time;
use squall_model::wire::priority_info::Factors;

use crate::control::index::fair;
use crate::control::index::pending::{Pending, priority};
use crate::control::index::size::{Size, size};
use crate::control::state::State;
use crate::control::state::billing;
use crate::control::state::billing::Amount;
use crate::control::state::gates;
use crate::control::state::job::Queue as Standing;

/// Number of steps of a queue key to which a priority of 1 corresponds. A key has the priority (plus `GROUND` if
/// it is calculated from factors) in these steps.
const PARTS: f64 = (1_u64 << 20) as f64;
/// Added to a priority from factors to make it positive; no such priority is below -GROUND.
const GROUND: f64 = (1_u64 << 34) as f64;
/// Lowest bit of a queue key's preemption rank (of the QOS), which comes before the priority.
const RANK_BITS: u32 = 56;

/// Highest preemption rank of a QOS; a longer chain of preemption gets this rank, too.
const RANK_MAX: u64 = 15;

/// Rank of jobs that were requeued after a failure of a node with `--requeue=expedite`: above those of all QOS.
const EXPEDITED: u64 = RANK_MAX + 1;

/// Values from which priorities are calculated until the next recalculation.
#[derive(Debug, Default)]
pub(crate) struct Reckoning {
    /// When the values were calculated.
    at: Time,
    /// Fair-share ranks of users, between 0 and 1, by number of the association.
    places: BTreeMap<u32, f64>,
    /// The highest priority among all QOS; the QOS factor is relative to it.
    qos_most: f64,
    /// The highest `PriorityJobFactor` among all partitions; the partition factor is relative to it.
    partition_most: f64,
    /// The highest priority among all associations; the association factor is relative to it.
    assoc_most: f64,
    /// Total number of CPUs of all nodes.
    cpus: f64,
    /// Total number of nodes.
    nodes: f64,
    /// Preemption rank of each QOS, by name. Empty unless QOS preempt each other.
    ranks: BTreeMap<String, u64>,
    /// What each partition has, for points by resources. Empty: there are no such points.
    wholes: Vec<Amount>,
}

/// A job, pending or not, with what its priority depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standee<'a> {
    /// Id of the job or array.
    pub(crate) id: JobId,
    /// The user who submitted the job or array.
    pub(crate) owner: &'a Owner,
    /// The specification of the job or array.
    pub(crate) spec: &'a JobSpec,
    /// Hold, priority and other settings that can change after the submission.
    pub(crate) standing: &'a Standing,
    /// When the job or array was submitted.
    pub(crate) submit: Time,
}

impl<'a> Standee<'a> {
    /// Collects what the priority of a pending job or array depends on.
    pub(crate) fn of(pending: &Pending<'a>) -> Self {
        let Pending { item, owner, spec, standing, submit, .. } = *pending;
        Self { id: item.id, owner, spec, standing, submit }
    }
    /// Returns the priority that a user or operator set; None: none was set.
    pub(crate) fn fixed(&self) -> Option<u32> {
        self.standing.priority.or(self.spec.priority).filter(|set| *set > 0)
    }
    /// Returns since when the job could run: its submission, begin time, end of a requeue delay, release from a hold, or
    /// the time when its dependency was met, whichever is latest.
    fn eligible(&self) -> Time {
        eligible(self.submit, self.spec, self.standing)
    }
}

/// Returns since when a job submitted at `submit` could run, if its dependency is met.
pub(crate) fn eligible(submit: Time, spec: &JobSpec, standing: &Standing) -> Time {
    let latest = spec.begin.max(standing.not_before).max(standing.released).max(standing.independent);
    latest.map_or(submit, |later| later.max(submit))
}

/// Returns whether priorities are calculated from factors (`PriorityType=priority/multifactor`).
pub(crate) fn is_multifactor(config: &Config) -> bool {
    config.priority_type == PriorityType::Multifactor
}

/// Returns the configured weights of the priority factors.
pub(crate) fn weights(config: &Config) -> Factors {
    let real = |weight: u32| Real(f64::from(weight));
    Factors {
        age: real(config.priority_weight_age),
        assoc: real(config.priority_weight_assoc),
        fairshare: real(config.priority_weight_fairshare),
        size: real(config.priority_weight_job_size),
        partition: real(config.priority_weight_partition),
        qos: real(config.priority_weight_qos),
        // The factor has the points.
        tres: real(u32::from(!config.priority_weight_tres.is_empty())),
    }
}

/// Returns the sum of the priority factors times their weights, without age.
fn worth(factors: &Factors, weights: &Factors) -> f64 {
    factors.assoc.0 * weights.assoc.0
        + factors.fairshare.0 * weights.fairshare.0
        + factors.size.0 * weights.size.0
        + factors.partition.0 * weights.partition.0
        + factors.qos.0 * weights.qos.0
        + factors.tres.0 * weights.tres.0
}

/// Returns the age of a job as a fraction of `PriorityMaxAge`; negative if the job is not eligible yet.
fn age(config: &Config, job: &Standee<'_>, now: Time) -> f64 {
    let most = config.priority_max_age_s.0.max(1) as f64 * 1e6;
    (now.0 as f64 - job.eligible().0 as f64) / most
}

impl Reckoning {
    /// Calculates the values from which priorities follow, for the present state.
    pub(crate) fn new(state: &State, now: Time) -> Self {
        if !is_multifactor(&state.config) {
            return Self { at: now, ranks: ranks(state), ..Self::default() };
        }
        let most = |all: &mut dyn Iterator<Item = u32>| f64::from(all.max().unwrap_or_default());
        let asked = state.config.priority_weight_fairshare > 0
            || state.policy.qos.values().any(|qos| qos.usage_threshold.is_some());
        let shared = asked && !state.policy.associations.is_empty();
        Self {
            at: now,
            places: if shared { fair::places(state, now) } else { BTreeMap::new() },
            qos_most: most(&mut state.policy.qos.values().map(|qos| qos.priority)),
            partition_most: most(&mut state.partitions.iter().map(|p| p.config.priority_job_factor)),
            assoc_most: most(&mut state.policy.associations.values().filter_map(|own| own.priority)),
            cpus: state.nodes.iter().map(|node| f64::from(node.hardware.cpus)).sum(),
            nodes: state.nodes.len() as f64,
            ranks: ranks(state),
            wholes: wholes(state),
        }
    }

    /// Returns the fair-share factor of the association with a number. None: it is not known.
    pub(crate) fn fair_share(&self, association: u32) -> Option<f64> {
        self.places.get(&association).copied()
    }

    /// Returns a job's points for each resource that it requests in a partition (`PriorityWeightTRES`).
    pub(crate) fn points(&self, state: &State, job: &Standee<'_>, partition: usize) -> Vec<(String, f64)> {
        // because most sites give no such points
        let (Some(whole), Some(at)) = (self.wholes.get(partition), state.partitions.get(partition)) else {
            return Vec::new();
        };
        let Size { nodes, tasks, cpus, memory_mb } = size(&job.spec.need, state.config.def_mem_per_cpu_mb);
        let asked = billing::requested(state, job.spec, &at.config.name, (nodes, tasks, cpus, memory_mb));
        state.config.priority_weight_tres.of(&asked.amounts(), &whole.amounts()).collect()
    }

    /// Returns all priority factors of a job in a partition, each between 0 and 1; age is as of `now`.
    pub(crate) fn factors(&self, state: &State, job: &Standee<'_>, partition: usize, now: Time) -> Factors {
        let part = |of: f64, most: f64| Real(if most > 0.0 { (of / most).min(1.0) } else { 0.0 });
        let config = state.partitions.get(partition).map(|p| &p.config);
        let name = config.map_or("", |config| config.name.as_str());
        let own = gates::association_of(state, job.owner, job.spec, name);
        let asked = size(&job.spec.need, 0);
        let size = f64::midpoint(part(f64::from(asked.nodes), self.nodes).0, part(f64::from(asked.cpus), self.cpus).0);
        let size = if state.config.priority_favor_small { 1.0 - size } else { size };
        Factors {
            age: Real(age(&state.config, job, now).clamp(0.0, 1.0)),
            assoc: part(f64::from(own.and_then(|own| own.priority).unwrap_or_default()), self.assoc_most),
            fairshare: Real(own.and_then(|own| self.places.get(&own.id)).copied().unwrap_or_default()),
            size: Real(size),
            partition: part(config.map_or(0.0, |c| f64::from(c.priority_job_factor)), self.partition_most),
            qos: part(gates::qos_of(state, job.spec).map_or(0.0, |qos| f64::from(qos.priority)), self.qos_most),
            tres: Real(self.points(state, job, partition).iter().map(|(_, points)| points).sum()),
        }
    }

    /// Returns a job's priority in a partition at `now`, as users see it.
    pub(crate) fn priority(&self, state: &State, job: &Standee<'_>, partition: usize, now: Time) -> u32 {
        if !is_multifactor(&state.config) {
            return priority(state, job);
        }
        if let Some(fixed) = job.fixed() {
            return fixed;
        }
        let (factors, weights) = (self.factors(state, job, partition, now), weights(&state.config));
        let value = worth(&factors, &weights) + factors.age.0 * weights.age.0 - f64::from(job.spec.nice);
        value.clamp(1.0, f64::from(u32::MAX)) as u32
    }

    /// Returns the sort key of a job in a partition's queue; higher goes first. It does not change until the next
    /// recalculation.
    pub(crate) fn key(&self, state: &State, job: &Standee<'_>, partition: usize) -> u64 {
        let rank = if job.standing.expedite == Some(true) {
            EXPEDITED << RANK_BITS
        } else {
            self.ranks.get(gates::qos_name(state, job.spec)).map_or(0, |rank| rank << RANK_BITS)
        };
        let value = self.value(state, job, partition);
        // Jobs of equal priority are ordered by id. Those from before ids wrapped around come first.
        let earlier = u64::from(state.is_of_earlier_round(job.id, job.submit));
        let parts = if is_multifactor(&state.config) { (value + GROUND).max(0.0) } else { value } * PARTS;
        rank | (parts as u64 + earlier)
    }

    /// Returns the priority value in a job's sort key, without the QOS rank. 1 more of `nice` makes the value 1 less.
    pub(crate) fn value(&self, state: &State, job: &Standee<'_>, partition: usize) -> f64 {
        if !is_multifactor(&state.config) {
            return f64::from(priority(state, job));
        }
        job.fixed().map_or_else(
            || {
                let (factors, weights) = (self.factors(state, job, partition, self.at), weights(&state.config));
                let age = age(&state.config, job, self.at).min(1.0);
                worth(&factors, &weights) + age * weights.age.0 - f64::from(job.spec.nice)
            },
            f64::from,
        )
    }
}

/// Returns what each partition has, for points by resources. Empty: there are no such points.
fn wholes(state: &State) -> Vec<Amount> {
    if state.config.priority_weight_tres.is_empty() {
        return Vec::new();
    }
    state.partitions.iter().map(|partition| billing::whole(state, partition)).collect()
}

/// Returns the preemption rank of each QOS: the length of the longest chain of QOS below it that it may preempt. A QOS
/// must be ahead of those that it preempts, or a preempted job would take the freed resources again.
fn ranks(state: &State) -> BTreeMap<String, u64> {
    if state.config.preempt_type != PreemptType::Qos {
        return BTreeMap::new();
    }
    let all = &state.policy.qos;
    let rank = |name: &str| {
        let mut level = BTreeSet::from([name]);
        for rank in 0..RANK_MAX {
            let below = level.iter().filter_map(|name| all.get(*name)).flat_map(|qos| &qos.preempt);
            level = below.map(String::as_str).collect();
            if level.is_empty() {
                return rank;
            }
        }
        RANK_MAX
    };
    all.keys().map(|name| (name.clone(), rank(name))).collect()
}
