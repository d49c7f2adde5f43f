//! Jobs that may be asked to make room for others.

use squall_model::id::JobId;
use squall_model::policy::{PreemptMode, PreemptType};
use squall_model::time::{Span, Time};
use squall_sched::{Item, Victim};

use crate::control::index::pending::{Pending, pending};
use crate::control::state::State;
use crate::control::state::gates;
use crate::control::state::job::{Job, Phase, Run};

/// How a running job makes room. Who is only stopped loses nothing: it has neither notice nor a time to itself.
pub(crate) struct Terms {
    pub(crate) mode: PreemptMode,
    pub(crate) grace_s: u64,
    pub(crate) exempt_s: u64,
}

pub(crate) fn terms(state: &State, job: &Job, run: &Run) -> Terms {
    let config = &state.config;
    let exempt_s = config.preempt_exempt_time_s.0;
    match (config.preempt_type, gates::qos_of(state, &job.spec), state.partition(&run.partition)) {
        (PreemptType::Qos, Some(qos), _) => Terms {
            mode: qos.preempt_mode.unwrap_or(config.preempt_mode.way),
            grace_s: qos.grace_s,
            exempt_s: qos.exempt_s.unwrap_or(exempt_s),
        },
        (PreemptType::Partition, _, Some(partition)) => Terms {
            mode: config.preempt_mode_of(&partition.config),
            grace_s: partition.config.grace_time_s.0,
            exempt_s,
        },
        _ => Terms { mode: config.preempt_mode.way, grace_s: 0, exempt_s },
    }
}

/// Whether a job in a partition may ask a running one for room, and what that one is worth.
pub(crate) fn yields(state: &State, asks: &Pending<'_>, tier: u32, job: &Job, run: &Run) -> Option<u64> {
    match state.config.preempt_type {
        PreemptType::None => None,
        PreemptType::Qos => {
            let name = gates::qos_name(state, &job.spec);
            // Who stands before the asking one in any case would start again in the room that it made.
            if state.partition(&run.partition).is_some_and(|own| own.config.priority_tier > tier) {
                return None;
            }
            let asking = gates::qos_of(state, asks.spec)?;
            let worth = gates::qos_of(state, &job.spec).map_or(0, |qos| qos.priority);
            asking.preempt.iter().any(|other| other == name).then_some(u64::from(worth))
        }
        PreemptType::Partition => {
            let own = state.partition(&run.partition)?.config.priority_tier;
            (own < tier).then_some(u64::from(own))
        }
    }
}

/// Who may be asked to make room for an item in a partition, and who goes already.
pub(crate) fn victims(state: &State, now: Time, item: Item, partition: usize) -> Vec<Victim<'_>> {
    if state.config.preempt_type == PreemptType::None {
        return Vec::new();
    }
    let (Some(asks), Some(partition)) = (pending(state, item), state.partitions.get(partition)) else {
        return Vec::new();
    };
    let tier = partition.config.priority_tier;
    let mut ids: Vec<JobId> =
        partition.nodes.iter().filter_map(|id| state.node(id)).flat_map(|node| node.jobs.iter().copied()).collect();
    ids.sort_unstable();
    ids.dedup();
    let victim = |id: JobId| {
        let job = state.jobs.get(&id)?;
        let run = job.run().filter(|_| !job.is_leased())?;
        let goes = run.grace.is_some() || matches!(job.phase, Phase::Completing(..));
        let gres = &run.gres[..];
        // The younger goes first: less is lost.
        let age = u64::MAX - run.start.0;
        let victim =
            Victim { id, alloc: &run.alloc, gres, left: &run.left, cost: (0, age), leaves: goes, stays: false };
        if goes {
            return Some(victim);
        }
        let worth = yields(state, &asks, tier, job, run)?;
        let terms = terms(state, job, run);
        let stays = terms.mode == PreemptMode::Suspend;
        let exempt = now < run.start + Span::from_secs(terms.exempt_s);
        let willing = match terms.mode {
            PreemptMode::Off => false,
            PreemptMode::Cancel | PreemptMode::Requeue => !exempt,
            // Who came before jobs were suspended here is not in the matrix.
            PreemptMode::Suspend => state.gang.contains_key(&id),
        };
        // Who is stopped already may stay so.
        let worth = if stays && !state.works(id) { 0 } else { worth };
        willing.then_some(Victim { cost: (worth, age), stays, ..victim })
    };
    ids.into_iter().filter_map(victim).collect()
}

/// When a job that has started may be asked for room, if it may not from the beginning.
pub(crate) fn exempt_until(state: &State, id: JobId) -> Option<Time> {
    if state.config.preempt_type == PreemptType::None {
        return None;
    }
    let job = state.jobs.get(&id)?;
    let run = job.run()?;
    let Terms { exempt_s, mode, .. } = terms(state, job, run);
    (exempt_s > 0 && mode != PreemptMode::Suspend).then(|| run.start + Span::from_secs(exempt_s))
}
