//! Changes of accounts and limits, and the counting of jobs against limits.

use std::sync::Arc;

use squall_model::billing::Billing;
use squall_model::config::Share;
use squall_model::id::{Attempt, JobId};
use squall_model::job::{JobSpec, Owner};
use squall_model::policy::{AssocKey, PolicyChange, Tres, Whose};
use squall_model::time::Time;
use squall_sched::Gate;

use crate::control::state::State;
use crate::control::state::gates;
use crate::control::state::gates::{Tallies, Tally};
use crate::control::state::job::{Phase, Run};
use crate::control::state::ledger::{Decay, Ledger};
use crate::invariant::invariant;

/// Whether an amount is added to a count (Plus) or subtracted from it (Minus).
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
            match change {
                PolicyChange::Forget(key) => self.forget_usage(time, key),
                PolicyChange::ForgetQos(name) => {
                    if let Some(id) = self.policy.qos.get(name).map(|qos| qos.id) {
                        self.forget_spent(Whose::Qos, id, time);
                    }
                }
                _ => {}
            }
        }
        self.policy.version += 1;
        self.recount(time);
    }

    /// Sets what a job is billed that has just got resources, or has given up some.
    pub(super) fn job_billed(&mut self, time: Time, id: JobId, attempt: Attempt, billing: Billing) {
        let job = self.jobs.get(&id).filter(|job| job.attempt == attempt);
        // because a journal of another version may bill a job that holds nothing here
        let Some(_) = job.filter(|job| job.is_running() || job.is_leased()) else { return };
        self.counts_anew(time, id, |state| {
            let run = state.jobs.get_mut(&id).and_then(|job| job.run_mut());
            let Some(run) = run else { return invariant!("a job that is billed has resources") };
            run.billing = Some(billing);
        });
    }

    pub(super) fn job_preempted(&mut self, id: JobId, attempt: Attempt, until: Time) {
        let job = self.jobs.get_mut(&id).filter(|job| job.attempt == attempt);
        if let Some(Phase::Running(run)) = job.map(|job| &mut job.phase) {
            run.grace = Some(until);
        }
    }

    fn forget_usage(&mut self, time: Time, key: &AssocKey) {
        let below = |other: &AssocKey| {
            other == key
                || (key.user.is_empty() && self.policy.above(&other.account).any(|(name, _)| name == key.account))
        };
        let forgotten = self.policy.associations.iter().filter(|(other, _)| below(other));
        for id in forgotten.map(|(_, own)| own.id).collect::<Vec<_>>() {
            self.forget_spent(Whose::Association, id, time);
        }
    }

    fn forget_spent(&mut self, whose: Whose, id: u32, time: Time) {
        let spent = self.usage.iter_mut().filter(|((other, _), _)| *other == whose);
        spent.for_each(|(_, ledger)| ledger.forget(id, time));
    }

    /// Calculates all usage up to `time` under the present configuration, before the configuration changes.
    pub(super) fn settle_ledger(&mut self, time: Time) {
        if self.counts() {
            self.recount(time);
        }
    }

    /// Counts all jobs against limits again and restarts the charging of running jobs, because accounts or limits have
    /// changed.
    pub(in crate::control) fn recount(&mut self, time: Time) {
        self.retally();
        self.close_ledgers(time);
        if self.policy.is_empty() {
            return;
        }
        let jobs = std::mem::take(&mut self.jobs);
        for (id, job) in jobs.iter() {
            if let Phase::Running(run) = &job.phase
                && run.suspended.is_none()
                && self.gang.get(id).is_none_or(|place| place.turn.mask != 0)
            {
                self.charge(time, &job.owner, &job.spec, run, true);
            }
        }
        self.jobs = jobs;
    }

    /// Calculates the usage in all ledgers up to `time`, and stops charging for every entry.
    fn close_ledgers(&mut self, time: Time) {
        let mut usage = std::mem::take(&mut self.usage);
        let (decay, tallies) = (Decay::of(&self.config), &self.index.tallies);
        for ((whose, _), ledger) in &mut usage {
            ledger.close(time, |id| match whose {
                Whose::Association => tallies.has(id).then_some(decay),
                Whose::Qos => gates::qos_by_id(self, id).map(|qos| gates::qos_decay(self, qos)),
            });
        }
        self.usage = usage;
    }

    /// Recalculates how much all jobs count against shared limits.
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

    /// Changes the count of jobs and resources against a shared limit; an entry with nothing counted is removed.
    fn count(&mut self, gate: Gate, change: impl FnOnce(&mut Tally)) {
        let tally = self.index.tallies.by_gate.entry(gate).or_default();
        change(tally);
        if *tally == Tally::default() {
            self.index.tallies.by_gate.remove(&gate);
        }
    }

    /// Counts jobs as submitted when they come into the queue, or subtracts them when they have ended.
    pub(super) fn count_submitted(&mut self, owner: &Owner, spec: &JobSpec, count: u64, sign: Sign) {
        let partition = gates::first_partition(self, spec).to_owned();
        for gate in gates::gates(self, owner, spec, &partition) {
            self.count(gate, |tally| sign.to(&mut tally.submitted, count));
        }
    }

    /// Counts what a job holds when it gets its resources, or subtracts it when all are free again.
    pub(super) fn count_run(&mut self, owner: &Owner, spec: &JobSpec, run: &Run, sign: Sign) {
        let own = gates::tally_of(spec, run);
        for gate in gates::gates(self, owner, spec, &run.partition) {
            self.count(gate, |tally| {
                sign.to(&mut tally.jobs, own.jobs);
                sign.to(&mut tally.cpus, own.cpus);
                sign.to(&mut tally.memory_mb, own.memory_mb);
                sign.to(&mut tally.nodes, own.nodes);
                sign.to(&mut tally.gpus, own.gpus);
                sign.to(&mut tally.billing, own.billing);
            });
        }
    }

    /// Starts or stops charging a job's association and QOS for the resources that the job holds.
    pub(super) fn charge(&mut self, time: Time, owner: &Owner, spec: &JobSpec, run: &Run, starts: bool) {
        let qos = gates::qos_of(self, spec);
        let factor = qos.map_or(1.0, |qos| qos.usage_factor as f64 / 1e6);
        let of_qos = qos.map(|qos| (Whose::Qos, qos.id, gates::qos_decay(self, qos)));
        let own = gates::association_of(self, owner, spec, &run.partition);
        let of_own = own.map(|own| (Whose::Association, own.id, Decay::of(&self.config)));
        let held = gates::tally_of(spec, run);
        let spares = self.spares_of(spec, run);
        let amount = |tres: Tres| {
            // Parts of a billing unit are charged, too.
            let exact = run.billing.filter(|_| tres == Tres::Billing).map(Billing::exact);
            let all = exact.unwrap_or(held.of(tres) as f64);
            spares.as_ref().map_or(all, |(working, share)| {
                let working = match exact {
                    Some(all) => all * working.nodes as f64 / held.nodes.max(1) as f64,
                    None => working.of(tres) as f64,
                };
                working + (all - working) * share
            })
        };
        for (whose, id, decay) in of_own.into_iter().chain(of_qos) {
            if run.billing.is_some() && starts {
                self.bill_apart(whose);
            }
            for tres in Tres::ALL {
                // Most kinds of resource have no usage to charge. CPUs are always charged, as their ledger also counts
                // the run time. What is billed has no ledger as long as it is CPUs.
                let charged = match tres {
                    Tres::Cpu => true,
                    Tres::Billing => self.usage.contains_key(&(whose, tres)),
                    _ => held.of(tres) > 0,
                };
                if charged {
                    let rate = amount(tres) * factor;
                    self.ledger_mut(whose, tres).run(id, rate, starts, time, decay);
                }
            }
        }
    }

    /// Returns what a job with spare nodes holds without them, and the share of these that it is charged for. None: it has
    /// none, or all of them count.
    fn spares_of(&self, spec: &JobSpec, run: &Run) -> Option<(Tally, f64)> {
        let spares = run.spares()?;
        let share = self.partition(&run.partition)?.config.spare_billing;
        let mut working = run.alloc.nodes();
        working.subtract(spares);
        (share != Share::default()).then(|| (gates::tally(spec, &run.alloc.split(&working).0, None), share.into()))
    }

    /// Makes the ledger of what is billed, if there is none. Until then CPUs were billed, so it begins as their ledger.
    fn bill_apart(&mut self, whose: Whose) {
        if !self.usage.contains_key(&(whose, Tres::Billing)) {
            let until_now = self.ledger_mut(whose, Tres::Cpu).clone();
            self.usage.insert((whose, Tres::Billing), until_now);
        }
    }

    /// Returns the usage ledger of associations or of QOS for a kind of resource; a missing one is made.
    fn ledger_mut(&mut self, whose: Whose, tres: Tres) -> &mut Ledger {
        self.usage.entry((whose, tres)).or_default()
    }

    /// Returns whether anything has to be counted. Without accounts, which is usual, nothing has to be.
    pub(super) fn counts(&self) -> bool {
        !self.policy.is_empty()
    }

    /// Starts or stops charging for a job: called when it starts, ends, is suspended or resumes.
    pub(super) fn charge_job(&mut self, time: Time, id: JobId, starts: bool) {
        if !self.counts() {
            return;
        }
        let Some(job) = self.jobs.remove(&id) else { return invariant!("a job that is counted is known") };
        if let Some(run) = job.run() {
            self.charge(time, &job.owner, &job.spec, run, starts);
        }
        self.jobs.insert(id, job);
    }

    /// Counts a job's resources when the job has got them, or subtracts them just before it loses the last.
    pub(super) fn count_job(&mut self, id: JobId, sign: Sign) {
        if !self.counts() {
            return;
        }
        let Some(job) = self.jobs.remove(&id) else { return invariant!("a job that is counted is known") };
        if let Some(run) = job.run() {
            self.count_run(&job.owner, &job.spec, run, sign);
        }
        self.jobs.insert(id, job);
    }

    /// Counts a job as submitted when it is requeued after its end, or subtracts it when it has ended.
    pub(super) fn count_one(&mut self, id: JobId, sign: Sign) {
        if let Some(job) = self.jobs.get(&id) {
            self.index.users.change(job.owner.uid, |user| sign.to(&mut user.jobs, 1));
        }
        if !self.counts() {
            return;
        }
        let Some((owner, spec)) = self.jobs.get(&id).map(|job| (Arc::clone(&job.owner), Arc::clone(&job.spec))) else {
            return invariant!("a job that is counted is known");
        };
        self.count_submitted(&owner, &spec, 1, sign);
    }
}
