//! A simulated gang switcher: it stops and continues processes of jobs by the node's own clock, as the real one does.

use std::collections::{BTreeMap, BTreeSet};

use squall_engine::control::state::job::Phase;
use squall_engine::node::{Alignment, GangAct, attempt_of};
use squall_model::gang::Turn;
use squall_model::id::{JobId, NodeId, StepKey};
use squall_model::job::JobAttempt;
use squall_model::time::{Span, Time};

use crate::world::step::{CONT, STOP};
use crate::world::{Happening, World};

/// Maximum number of checks, 20 s apart and after the end of all faults, that may find the same job stopped.
const ROUNDS: u32 = 6;

/// State of a node's gang switcher. It ends with the node daemon, and then continues all jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switcher {
    alignment: Option<Alignment>,
    turns: BTreeMap<JobAttempt, (Turn, bool)>,
    /// Number of the latest planned switch between time slots; earlier planned switches are ignored.
    number: u64,
}

impl World {
    pub(crate) fn gang_act(&mut self, node: usize, act: GangAct) {
        let switcher = &mut self.nodes[node].switcher;
        match act {
            GangAct::Align(alignment) => switcher.alignment = Some(alignment),
            GangAct::Turn { job, turn } => drop(switcher.turns.insert(job, (turn, false))),
            GangAct::Lift { job } => {
                if let Some((_, lifted)) = switcher.turns.get_mut(&job) {
                    *lifted = true;
                }
            }
            GangAct::Drop { job } => drop(switcher.turns.remove(&job)),
        }
        self.switch(node);
    }

    /// Handles the start of a time slot, unless the plan has changed since it was scheduled.
    pub(crate) fn slot_begins(&mut self, node: usize, number: u64) {
        if self.nodes[node].switcher.number == number {
            self.switch(node);
        }
    }

    /// Ends a node's switcher: all jobs that were stopped for others continue.
    pub(crate) fn wake_all(&mut self, node: usize) {
        let switcher = std::mem::take(&mut self.nodes[node].switcher);
        self.nodes[node].switcher.number = switcher.number + 1;
        for job in switcher.turns.into_keys() {
            self.rouse(node, job, CONT);
        }
    }

    /// Stops the jobs of other time slots, continues those of the present one, and schedules the next switch.
    pub(crate) fn switch(&mut self, node: usize) {
        let switcher = &mut self.nodes[node].switcher;
        switcher.number += 1;
        let (Some(alignment), number) = (switcher.alignment, switcher.number) else { return };
        let Alignment { ahead_us, slice, policy } = alignment;
        let turns = switcher.turns.clone();
        let time = Time(self.node_now(node).0.wrapping_sub(ahead_us.cast_unsigned()));
        let rotates = policy.rotates();
        let runs =
            |turn: Turn, lifted: bool| lifted || if rotates { turn.runs_at(time, slice) } else { turn.mask != 0 };
        for (job, (turn, lifted)) in &turns {
            self.rouse(node, *job, if runs(*turn, *lifted) { CONT } else { STOP });
        }
        let bound = turns.iter().filter(|(_, (_, lifted))| !lifted).map(|(job, _)| *job).collect::<Vec<_>>();
        if rotates {
            self.check_rows(node, &bound);
        }
        if turns.values().any(|(turn, lifted)| turn.of > 1 && !lifted) {
            let rest = Span(slice.0 - time.0 % slice.0);
            self.after(rest, Happening::SlotBegins { node, number });
        }
    }

    fn rouse(&mut self, node: usize, job: JobAttempt, signal: i32) {
        let keys: Vec<StepKey> = self.nodes[node].steps.keys().copied().filter(|key| attempt_of(*key) == job).collect();
        for key in keys {
            self.signal(node, key, signal);
        }
    }

    /// Checks that no job stays stopped when the jobs it was stopped for have ended. `rounds`: number of consecutive
    /// checks in which all processes of a job were stopped, although the controller has not suspended it and no other
    /// job uses any of its cores.
    pub(crate) fn check_stopped(&mut self, rounds: &mut BTreeMap<JobAttempt, u32>) {
        let Some(state) = self.controllers[self.leader()].state() else { return rounds.clear() };
        let steps = || self.nodes.iter().flat_map(|node| &node.steps).filter(|(_, step)| step.has_live_tasks());
        let mut idle: BTreeSet<JobAttempt> = steps().map(|(key, _)| attempt_of(*key)).collect();
        for (key, _) in steps().filter(|(_, step)| step.runs()) {
            idle.remove(&attempt_of(*key));
        }
        let alone = |job: &JobAttempt| {
            let Some(Phase::Running(run)) = state.jobs.get(&job.job).map(|job| &job.phase) else { return false };
            let held = |node: NodeId, id: JobId| state.jobs.get(&id).and_then(|job| job.run()?.alloc.on(node));
            let meets = |node: NodeId, id: JobId| {
                let both = held(node, job.job).zip(held(node, id));
                id != job.job && both.is_some_and(|(own, other)| !own.cores.is_disjoint(&other.cores))
            };
            let on = |node: NodeId| state.node(node).into_iter().flat_map(|node| &node.jobs);
            run.suspended.is_none() && !run.left.iter().any(|node| on(node).any(|id| meets(node, *id)))
        };
        idle.retain(alone);
        rounds.retain(|job, _| idle.contains(job));
        for job in idle {
            let round = rounds.entry(job).or_default();
            *round += 1;
            if *round > ROUNDS {
                let text = format!("job {} is stopped, and nobody else is on its cores", job.job);
                self.judge.violate("nobody stays stopped for nobody", text);
            }
        }
    }

    /// Checks that no core has running processes of two jobs, except jobs that are ending and jobs of which a
    /// restarted daemon has not been told yet.
    fn check_rows(&mut self, node: usize, bound: &[JobAttempt]) {
        let mut holders: BTreeMap<usize, JobAttempt> = BTreeMap::new();
        let mut wrong = None;
        for (key, step) in self.nodes[node].steps.iter().filter(|(_, step)| step.runs()) {
            let job = attempt_of(*key);
            for core in step.launch.cores.iter().filter(|_| bound.contains(&job)) {
                let holder = *holders.entry(core).or_insert(job);
                if holder != job {
                    wrong = Some((core, holder, job));
                }
            }
        }
        if let Some((core, one, other)) = wrong {
            let text = format!("core {core} of {}: jobs {} and {} run", self.nodes[node].name, one.job, other.job);
            self.judge.violate("one row at a time", text);
        }
    }
}
