//! Guards of node fences on simulated nodes: processes that depend on no daemon. And faults that they are for.

use squall_engine::node::{FenceAct, Guard, attempt_of};
use squall_model::id::StepKey;
use squall_model::job::JobAttempt;
use squall_model::time::{Span, Time};

use crate::coverage::Fault;
use crate::mutation::Mutation;
use crate::seed::Seed;
use crate::world::{Happening, World};

/// Interval at which a guard kills what is left of its job.
const PAUSE: Span = Span::from_millis(500);

impl World {
    pub(crate) fn fence_act(&mut self, node: usize, act: FenceAct) {
        match act {
            FenceAct::Proven { sent } => {
                let late = self.is_planted(Mutation::FenceRenewedByArrival);
                let sent = if late { self.node_now(node) } else { sent };
                let proven = &mut self.nodes[node].proven;
                *proven = sent.max(*proven);
            }
            FenceAct::Guard { job, term } => {
                let early = self.is_planted(Mutation::FenceCountedEarly);
                let term = if early { Span(2 * term.0) } else { term };
                if self.nodes[node].guards.insert(job, Guard::new(term)).is_none() {
                    let boot = self.nodes[node].boot;
                    self.after(Span(0), Happening::GuardLooks { node, boot, job });
                }
            }
            FenceAct::Drop { job } => drop(self.nodes[node].guards.remove(&job)),
        }
    }

    /// Lets a guard look at the time: it sleeps again, or kills what is left of its job.
    pub(crate) fn guard_looks(&mut self, node: usize, boot: u64, job: JobAttempt) {
        let (now, proven, same) = (self.node_now(node), self.nodes[node].proven, self.nodes[node].boot == boot);
        let guard = self.nodes[node].guards.get_mut(&job).filter(|_| same);
        let Some(until) = guard.map(|guard| guard.look(now, proven)) else { return };
        let at = if let Some(until) = until {
            self.by_node_clock(node, until)
        } else {
            let keys = self.nodes[node].steps.keys().copied().filter(|key| attempt_of(*key) == job);
            for key in keys.collect::<Vec<StepKey>>() {
                self.kill_step(node, key);
            }
            self.judge.hidden.remove(&(job, node));
            self.now + PAUSE
        };
        self.agenda.at(at, Happening::GuardLooks { node, boot, job });
    }

    /// Adds faults that a fence is for, which are over at `until`: a node daemon whose network is slow, which is stopped and,
    /// hardly back, stopped for longer, and one that dies and stays away. The randomness is its own.
    pub(crate) fn add_fence_faults(&mut self, seed: u64, until: Time) {
        let mut seed = Seed::new(seed ^ 0x6665_6e63);
        let mut at = self.now;
        loop {
            at = at + seed.span(Span::from_secs(30), Span::from_secs(150));
            let long = Span::from_millis(seed.spread(50_000, 200_000));
            if until <= at + long {
                return;
            }
            let node = seed.below(self.nodes.len() as u64) as usize;
            if seed.chance(500_000) {
                let short = Span::from_millis(seed.spread(5_000, 28_000));
                let back = Span::from_millis(seed.spread(100, 3_000));
                // So that acknowledgements are on their way to the node when it is stopped.
                let slow = Span::from_secs(2);
                self.agenda.at(at, Happening::NodeSlows { node, times: 2_000, span: Span(slow.0 + short.0 + back.0) });
                let at = at + slow;
                self.agenda.at(at, Happening::DaemonStops { node, span: short });
                self.agenda.at(at + short + back, Happening::DaemonStops { node, span: long });
            } else {
                self.agenda.at(at, Happening::DaemonDies { node, span: long });
            }
        }
    }

    /// Kills a node's daemon, which is started again after `span`.
    pub(crate) fn daemon_dies(&mut self, node: usize, span: Span) {
        if self.nodes[node].has_daemon() {
            let before = self.nodes[node].restart.replace(span);
            self.strike(Fault::NodeDaemonKilled, node as u64);
            self.disturb_times(span);
            self.kill_node_daemon(node);
            self.nodes[node].restart = before;
        }
    }
}
