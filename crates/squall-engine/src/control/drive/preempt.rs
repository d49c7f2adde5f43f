//! Jobs that make room for others: who may be asked, and how they go.

use squall_model::event::{Event, Requeue};
use squall_model::id::JobId;
use squall_model::job::{EndState, ExitCode, Outcome};
use squall_model::policy::{PreemptMode, PreemptType};
use squall_model::time::{Span, Time};
use squall_model::wire::node::SignalTarget;
use squall_sched::{Item, Victim};

use super::queue::{Pending, pending};
use super::timers::Timer;
use super::{may_requeue, notice};
use crate::control::limits;
use crate::control::state::State;
use crate::control::state::job::{Job, Phase, Run};
use crate::control::{Controller, Out};

/// SIGTERM on Linux.
const TERM: i32 = 15;

/// How a running job makes room. Who is only stopped loses nothing: it has neither notice nor a time to itself.
struct Terms {
    mode: PreemptMode,
    grace_s: u64,
    exempt_s: u64,
}

fn terms(state: &State, job: &Job, run: &Run) -> Terms {
    let config = &state.config;
    let exempt_s = config.preempt_exempt_time_s.0;
    match (config.preempt_type, limits::qos_of(state, &job.spec), state.partition(&run.partition)) {
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
fn yields(state: &State, asks: &Pending<'_>, tier: u32, job: &Job, run: &Run) -> Option<u64> {
    match state.config.preempt_type {
        PreemptType::None => None,
        PreemptType::Qos => {
            let name = limits::qos_name(state, &job.spec);
            // Who stands before the asking one in any case would start again in the room that it made.
            if state.partition(&run.partition).is_some_and(|own| own.config.priority_tier > tier) {
                return None;
            }
            let asking = limits::qos_of(state, asks.spec)?;
            let worth = limits::qos_of(state, &job.spec).map_or(0, |qos| qos.priority);
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
        let goes = state.graces.contains_key(&id) || matches!(job.phase, Phase::Completing(..));
        let gres = state.grants.get(&id).map_or(&[][..], |granted| &granted.job);
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
pub(super) fn exempt_until(state: &State, id: JobId) -> Option<Time> {
    if state.config.preempt_type == PreemptType::None {
        return None;
    }
    let job = state.jobs.get(&id)?;
    let run = job.run()?;
    let Terms { exempt_s, mode, .. } = terms(state, job, run);
    (exempt_s > 0 && mode != PreemptMode::Suspend).then(|| run.start + Span::from_secs(exempt_s))
}

/// A running job has to make room: at once, or after notice.
pub(super) fn evict(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    let Some(job) = c.state.jobs.get(&id).filter(|job| job.is_running()) else { return };
    let Some(run) = job.run() else { return };
    let grace_s = terms(&c.state, job, run).grace_s;
    if grace_s == 0 || c.state.graces.contains_key(&id) {
        return end(c, now, id, out);
    }
    let (attempt, until) = (job.attempt, now + Span::from_secs(grace_s));
    c.commit(now, Event::JobPreempted { id, attempt, until }, out);
    // The tasks, not the script, as in Slurm: a script without steps has its whole notice.
    for signal in [notice::CONT, TERM] {
        notice::signal_all(c, id, SignalTarget::Steps, signal);
    }
}

/// Its time is up.
pub(super) fn end(c: &mut Controller, now: Time, id: JobId, out: &mut Out) {
    let requeue = goes_back(c, id);
    if c.state.jobs.get(&id).is_some_and(|job| job.is_running()) {
        let outcome = Outcome { state: EndState::Preempted, exit: ExitCode::OK, reason: None };
        c.commit(now, Event::JobEnding { id, outcome, requeue }, out);
    }
}

/// What it means that a job's script has ended: who fails after notice has made room.
pub(crate) fn judge(c: &Controller, id: JobId, outcome: Outcome) -> (Outcome, Option<Requeue>) {
    if outcome.state != EndState::Failed || !c.state.graces.contains_key(&id) {
        return (outcome, None);
    }
    (Outcome { state: EndState::Preempted, ..outcome }, goes_back(c, id))
}

/// Whether a job that makes room waits again.
fn goes_back(c: &Controller, id: JobId) -> Option<Requeue> {
    let job = c.state.jobs.get(&id)?;
    let again = terms(&c.state, job, job.run()?).mode == PreemptMode::Requeue && may_requeue(c, job);
    again.then_some(Requeue { hold: false, not_before: None })
}

/// Notices that were given before a restart.
pub(super) fn again(c: &mut Controller) {
    for (&id, &until) in &c.state.graces {
        c.timers.set(Timer::Grace(id), until);
    }
}
