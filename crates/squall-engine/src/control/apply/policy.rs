//! Accounts and limits: what is set up, and what jobs count for.

use std::sync::Arc;

use squall_model::id::{Attempt, JobId};
use squall_model::job::{JobSpec, Owner};
use squall_model::policy::{AssocKey, PolicyChange};
use squall_model::time::Time;
use squall_sched::Gate;

use crate::control::limits::{self, Tallies, Tally};
use crate::control::state::State;
use crate::control::state::job::{Phase, Run};
use crate::control::state::ledger::Decay;

/// Whether something is added or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Plus,
    Minus,
}

impl Sign {
    fn to(self, value: &mut u64, amount: u64) {
        *value = match self {
            Self::Plus => *value + amount,
            Self::Minus => value.saturating_sub(amount),
        };
    }
}

impl State {
    pub(super) fn policy_changed(&mut self, time: Time, changes: &[PolicyChange]) {
        for change in changes {
            self.policy.change(change);
            if let PolicyChange::Forget(key) = change {
                self.forget_usage(time, key);
            }
        }
        self.policy.version += 1;
        self.recount(time);
    }

    pub(super) fn job_preempted(&mut self, id: JobId, attempt: Attempt, until: Time) {
        if self.jobs.get(&id).is_some_and(|job| job.attempt == attempt && job.is_running()) {
            self.graces.insert(id, until);
        }
    }

    fn forget_usage(&mut self, time: Time, key: &AssocKey) {
        let below = |other: &AssocKey| {
            other == key
                || (key.user.is_empty() && self.policy.above(&other.account).any(|(name, _)| name == key.account))
        };
        let forgotten = self.policy.associations.iter().filter(|(other, _)| below(other));
        for id in forgotten.map(|(_, own)| own.id).collect::<Vec<_>>() {
            self.ledger.forget(id, time);
        }
    }

    /// What was used is reckoned as the configuration says until now.
    pub(super) fn settle_ledger(&mut self, time: Time) {
        if self.counts() {
            self.recount(time);
        }
    }

    /// Counts everything anew: who counts against what has changed.
    pub(in crate::control) fn recount(&mut self, time: Time) {
        self.retally();
        let (decay, tallies) = (Decay::of(&self.config), &self.index.tallies);
        self.ledger.close(time, decay, |id| tallies.has(id));
        if self.policy.is_empty() {
            return;
        }
        let jobs = std::mem::take(&mut self.jobs);
        for (id, job) in &jobs {
            if let Phase::Running(run) = &job.phase
                && run.suspended.is_none()
                && self.gang.get(id).is_none_or(|place| place.turn.mask != 0)
            {
                self.charge(time, &job.owner, &job.spec, run, true);
            }
        }
        self.jobs = jobs;
    }

    /// Counts all jobs.
    pub(in crate::control) fn retally(&mut self) {
        self.index.tallies = Tallies::new(&self.policy);
        if self.policy.is_empty() {
            return;
        }
        let (jobs, arrays) = (std::mem::take(&mut self.jobs), std::mem::take(&mut self.arrays));
        for array in arrays.values() {
            self.count_submitted(&array.owner, &array.spec, array.tally.untouched.len() as u64, Sign::Plus);
        }
        for job in jobs.values().filter(|job| !job.is_ended()) {
            self.count_submitted(&job.owner, &job.spec, 1, Sign::Plus);
            if let Some(run) = job.run() {
                self.count_run(&job.owner, &job.spec, run, Sign::Plus);
            }
        }
        (self.jobs, self.arrays) = (jobs, arrays);
    }

    /// Changes a tally; there is none of nothing.
    fn count(&mut self, gate: Gate, change: impl FnOnce(&mut Tally)) {
        let tally = self.index.tallies.by_gate.entry(gate).or_default();
        change(tally);
        if *tally == Tally::default() {
            self.index.tallies.by_gate.remove(&gate);
        }
    }

    /// Jobs come into the queue, or have ended.
    pub(super) fn count_submitted(&mut self, owner: &Owner, spec: &JobSpec, count: u64, sign: Sign) {
        let partition = limits::first_partition(self, spec).to_owned();
        for gate in limits::gates(self, owner, spec, &partition) {
            self.count(gate, |tally| sign.to(&mut tally.submitted, count));
        }
    }

    /// A job gets resources, or all of them are free again.
    pub(super) fn count_run(&mut self, owner: &Owner, spec: &JobSpec, run: &Run, sign: Sign) {
        for gate in limits::gates(self, owner, spec, &run.partition) {
            self.count(gate, |tally| {
                sign.to(&mut tally.jobs, 1);
                sign.to(&mut tally.cpus, u64::from(run.alloc.cpus()));
                sign.to(&mut tally.memory_mb, run.alloc.memory_mb());
                sign.to(&mut tally.nodes, run.alloc.nodes().len() as u64);
            });
        }
    }

    /// A job's association is charged from now on, or no longer.
    pub(super) fn charge(&mut self, time: Time, owner: &Owner, spec: &JobSpec, run: &Run, starts: bool) {
        let Some(own) = limits::association_of(self, owner, spec, &run.partition) else { return };
        let (id, decay) = (own.id, Decay::of(&self.config));
        let factor = limits::qos_of(self, spec).map_or(1.0, |qos| qos.usage_factor as f64 / 1e6);
        self.ledger.run(id, f64::from(run.alloc.cpus()) * factor, starts, time, decay);
    }

    /// Whether anything has to be counted: mostly not.
    pub(super) fn counts(&self) -> bool {
        !self.policy.is_empty()
    }

    /// A job starts to use its resources, or stops: at its start, its end, when it is suspended or goes on.
    pub(super) fn charge_job(&mut self, time: Time, id: JobId, starts: bool) {
        if !self.counts() {
            return;
        }
        let Some(job) = self.jobs.remove(&id) else { return };
        if let Some(run) = job.run() {
            self.charge(time, &job.owner, &job.spec, run, starts);
        }
        self.jobs.insert(id, job);
    }

    /// A job has got its resources, or is about to lose the last of them.
    pub(super) fn count_job(&mut self, id: JobId, sign: Sign) {
        if !self.counts() {
            return;
        }
        let Some(job) = self.jobs.remove(&id) else { return };
        if let Some(run) = job.run() {
            self.count_run(&job.owner, &job.spec, run, sign);
        }
        self.jobs.insert(id, job);
    }

    /// A job has ended, or waits again after it had.
    pub(super) fn count_one(&mut self, id: JobId, sign: Sign) {
        if !self.counts() {
            return;
        }
        let Some((owner, spec)) = self.jobs.get(&id).map(|job| (Arc::clone(&job.owner), Arc::clone(&job.spec))) else {
            return;
        };
        self.count_submitted(&owner, &spec, 1, sign);
    }
}
