//! Running jobs that may be preempted for other jobs.

use squall_model::id::JobId;
use squall_model::policy::{PreemptMode, PreemptType};
use squall_model::time::{Span, Time};
use squall_sched::{Item, Victim};

use crate::control::index::pending::{Pending, pending};
use crate::control::index::terms::{Terms, terms};
use crate::control::state::State;
use crate::control::state::gates;
use crate::control::state::job::{Job, Phase, Run};

/// Returns the rank of a running job among the jobs that the pending job `asks`, in a partition of tier `tier`, may
/// preempt (higher: preempted later). None: it may not preempt this job.
pub(crate) fn yields(state: &State, asks: &Pending<'_>, tier: u32, job: &Job, run: &Run) -> Option<u64> {
    match state.config.preempt_type {
        PreemptType::None => None,
        PreemptType::Qos => {
            let name = gates::qos_name(state, &job.spec);
            // A job in a higher tier is scheduled first, so it would start again in the resources that it freed.
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

/// Returns whether a job that is requeued is scheduled before jobs of this tier, as one of its partitions has a higher
/// one. It would start again in the resources that it freed, or reserve others that the preempting job needs, too.
fn returns_first(state: &State, job: &Job, tier: u32) -> bool {
    state.partitions_of(&job.spec).any(|partition| partition.config.priority_tier > tier)
}

/// Returns the running jobs that a pending job or array may preempt in a partition, and those that are ending already.
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
        // The job that started last is preempted first: less work is lost.
        let age = u64::MAX - run.start.0;
        let victim =
            Victim { id, alloc: &run.alloc, gres, left: &run.left, cost: (0, age), leaves: goes, stays: false };
        if goes {
            return Some(victim);
        }
        let worth = yields(state, &asks, tier, job, run)?;
        let terms = terms(state, job, run);
        let stays = terms.mode == PreemptMode::Suspend;
        // A suspended job would keep its node from being rebooted.
        if stays && asks.spec.options.reboots() {
            return None;
        }
        let exempt = now < run.start + Span::from_secs(terms.exempt_s);
        let willing = match terms.mode {
            PreemptMode::Off => false,
            PreemptMode::Cancel => !exempt,
            PreemptMode::Requeue | PreemptMode::Checkpoint => !exempt && !returns_first(state, job, tier),
            // A job that started before its partition allowed suspension is not in the gang scheduling matrix.
            PreemptMode::Suspend => state.gang.contains_key(&id),
        };
        // Suspending a job that stands still already costs nothing.
        let worth = if stays && !state.works(id) { 0 } else { worth };
        willing.then_some(Victim { cost: (worth, age), stays, ..victim })
    };
    ids.into_iter().filter_map(victim).collect()
}

/// Returns when a running job may first be preempted. None: it has no such time of exemption.
pub(crate) fn exempt_until(state: &State, id: JobId) -> Option<Time> {
    if state.config.preempt_type == PreemptType::None {
        return None;
    }
    let job = state.jobs.get(&id)?;
    let run = job.run()?;
    let Terms { exempt_s, mode, .. } = terms(state, job, run);
    (exempt_s > 0 && mode != PreemptMode::Suspend).then(|| run.start + Span::from_secs(exempt_s))
}
