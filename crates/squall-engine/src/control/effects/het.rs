//! Heterogeneous jobs: several components start at the same time or not at all, and end with the first.
//!
//! Each component is a job of its own. The first one, the leader, is in the queue for all. What happens to one
//! component is applied to the others in the same journal record.

use squall_model::event::{Event, Requeue};
use squall_model::id::JobId;
use squall_model::job::{EndState, Het, JobKind, Outcome};
use squall_model::time::Time;
use squall_sched::{Component, Item};

use crate::control::controller::Controller;
use crate::control::index::depend::Verdict;
use crate::control::index::lanes::request_of;
use crate::control::index::pending::{Pending, partitions_of, pending};
use crate::control::index::queue::Queue;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::job::{Hold, Phase};
use crate::invariant::invariant;

fn item(id: JobId) -> Item {
    Item { id, array: false }
}

impl Queue {
    /// Returns the components of a heterogeneous job except the first one, `leader`.
    pub(crate) fn others(&self, leader: JobId) -> &[Component] {
        self.hets.get(&leader).map_or(&[], Vec::as_slice)
    }

    /// Records the resource requests of the components after the first. Returns false if one of them can't be satisfied
    /// here.
    pub(crate) fn gather(&mut self, state: &State, leader: &Pending<'_>) -> bool {
        let Some(het) = leader.het else { return true };
        let others = het.ids().skip(1).map(|id| self.component(state, &pending(state, item(id))?)).collect();
        let Some(others) = others else { return false };
        self.hets.insert(het.leader, others);
        true
    }

    /// Records the resource requests of the components after the first again, for all heterogeneous jobs, as the
    /// cluster has changed.
    pub(crate) fn gather_again(&mut self, state: &State) {
        let leaders: Vec<JobId> = self.hets.keys().copied().collect();
        for leader in leaders {
            if let Some(leader) = pending(state, item(leader)) {
                self.gather(state, &leader);
            }
        }
    }

    fn component(&self, state: &State, other: &Pending<'_>) -> Option<Component> {
        Some(Component {
            item: other.item,
            partitions: partitions_of(state, other.spec).collect(),
            need: request_of(state, other.spec)?,
            time_limit_s: other.standing.time_limit_s.or(other.spec.limit_s()),
            wish: self.wish(state, other),
            avoid: state.index.avoid.get(&other.item.id).cloned(),
            user: self.user(other.owner),
        })
    }

    /// Returns whether all components of a heterogeneous job may start now; true for other jobs. For a component after
    /// the first it returns false, and the first one is examined instead.
    pub(crate) fn is_whole(&mut self, state: &State, now: Time, own: &Pending<'_>) -> bool {
        let Some(het) = own.het else { return true };
        if own.item.id != het.leader {
            self.dirty.insert(item(het.leader));
            return false;
        }
        let may = |other: Pending<'_>| {
            let holds = match other.verdict(state, &self.names) {
                Verdict::Holds => true,
                Verdict::At(time) => time <= now,
                Verdict::Waits | Verdict::Never => false,
            };
            let later = other.not_before().is_some_and(|time| time > now);
            let broken = !state.policy.is_empty() && other.broken(state).is_some();
            holds && !later && !broken && other.standing.hold == Hold::No
        };
        het.ids().skip(1).all(|id| pending(state, item(id)).is_some_and(may))
    }
}

/// The state of a component of a heterogeneous job, as far as the other components must follow it.
enum Fate {
    /// The component is pending. If it ran before: the outcome of that run, and how it was requeued.
    Waits(Option<Outcome>, Requeue),
    /// The component holds its resources.
    Runs,
    /// The component is being requeued: the outcome of its run, and how it is requeued.
    Back(Outcome, Requeue),
    /// The component's end is decided: the outcome.
    Over(Outcome),
}

fn fate(state: &State, id: JobId) -> Option<Fate> {
    let job = state.jobs.get(&id)?;
    Some(match &job.phase {
        Phase::Pending => {
            let special = (job.queue.hold == Hold::Special).then_some(true);
            let hold = special.is_some() || job.queue.hold == Hold::Requeue;
            let requeue = Requeue { hold, not_before: job.queue.not_before, special, expedite: job.queue.expedite };
            Fate::Waits(job.last.clone(), requeue)
        }
        Phase::Running(_) | Phase::Leased(_) => Fate::Runs,
        Phase::Completing(_, ending) => match ending.requeue {
            Some(requeue) => Fate::Back(ending.outcome.clone(), requeue),
            None => Fate::Over(ending.outcome.clone()),
        },
        Phase::Ended(ended) => Fate::Over(ended.outcome.clone()),
    })
}

/// Marks the components of a heterogeneous job for examination after an event of one of them.
pub(crate) fn after(c: &mut Controller, _now: Time, event: &Event) {
    let (Event::JobEnding { id, .. } | Event::NodesReleased { id, .. } | Event::JobRequeued { id, .. }) = event else {
        // because other events leave the components as they are
        return;
    };
    if let Some(het) = c.state.het_of(*id) {
        c.todo.hets.insert(het.leader);
        c.queue.dirty.insert(item(het.leader));
    }
}

/// Ends or requeues components that must follow another one.
pub(crate) fn settle(c: &mut Controller, now: Time, out: &mut Out) {
    while let Some(leader) = c.todo.hets.pop_first() {
        let Some(het) = c.state.het_of(leader) else {
            invariant!("a component has a leader");
            continue;
        };
        // because the components may all go on as they are
        let Some((outcome, requeue)) = common(&c.state, het) else { continue };
        for id in het.ids() {
            let follows = match fate(&c.state, id) {
                Some(Fate::Runs) => true,
                Some(Fate::Waits(..) | Fate::Back(..)) => requeue.is_none(),
                Some(Fate::Over(_)) | None => false,
            };
            if follows {
                c.commit(now, Event::JobEnding { id, outcome: outcome.clone(), requeue }, out);
            }
        }
    }
}

/// Returns the end that all components must come to: the outcome, and the requeue if there is one. None: they need not
/// end.
fn common(state: &State, het: Het) -> Option<(Outcome, Option<Requeue>)> {
    let leader = fate(state, het.leader)?;
    if let Fate::Over(outcome) = leader {
        return Some((outcome, None));
    }
    // If the record of a component was removed, the job can't start again.
    if let Fate::Back(outcome, _) | Fate::Waits(Some(outcome), _) = &leader
        && !het.ids().all(|id| state.jobs.contains_key(&id))
    {
        return Some((outcome.clone(), None));
    }
    let runs = matches!(leader, Fate::Runs);
    let mut fates: Vec<Fate> = het.ids().skip(1).filter_map(|id| fate(state, id)).collect();
    fates.push(leader);
    // While the first component runs, others may end by themselves. But a node failure, preemption or requeue of one
    // ends all.
    let lost = |outcome: &Outcome| {
        matches!(outcome.state, EndState::NodeFail | EndState::BootFail | EndState::Preempted | EndState::Requeued)
    };
    for one in &fates {
        if let Fate::Over(outcome) = one
            && (!runs || lost(outcome))
        {
            return Some((outcome.clone(), None));
        }
    }
    // If one component is requeued, those that still run follow it.
    if !fates.iter().any(|one| matches!(one, Fate::Runs)) {
        return None;
    }
    let batch = state.jobs.get(&het.leader).is_some_and(|job| job.spec.kind == JobKind::Batch);
    fates.into_iter().find_map(|one| match one {
        Fate::Back(outcome, requeue) | Fate::Waits(Some(outcome), requeue) => Some((outcome, batch.then_some(requeue))),
        _ => None,
    })
}
