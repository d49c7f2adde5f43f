//! The node fence: jobs that end here by themselves when the controller can't be heard (`--node-fence`).
//!
//! A *term* begins when this node sends an answer to a heartbeat, or a registration, that a later message of the controller
//! acknowledges. The controller counts a share of a job as ended only when its term is surely over, and then may run the job
//! again elsewhere. So a message that is late, or that comes through in one direction only, prolongs no term.
//!
//! At the end of a term this machine ends the job, if it runs. What can be relied upon is the guard, a process of its own
//! that the host starts for each such job. It does the same without this daemon.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::id::Epoch;
use squall_model::job::JobAttempt;
use squall_model::job::options::Chosen;
use squall_model::set::NodeSet;
use squall_model::step::JobFacts;
use squall_model::time::{Span, Time};
use squall_model::wire::node::EndReason;

use crate::node::{NodeAct, NodeMachine, NodeOut, attempt_of};

/// Most answers of which the time is remembered. The controller acknowledges those to its last few heartbeats.
const SENT_MAX: usize = 8;

/// Action for the guards of jobs with a node fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceAct {
    /// The controller has heard what this node sent at `sent`, by the time that the machine is given: the terms of all jobs
    /// run from then. Comes before the first `Guard`.
    Proven {
        /// When this node sent what is acknowledged.
        sent: Time,
    },
    /// Has a guard watch over a job that is here now: when nothing that was sent in the last `term` is proven, it kills all
    /// that is left of the job, and does so until `Drop`. A repetition starts another guard only if there is none.
    Guard {
        /// The attempt to be guarded.
        job: JobAttempt,
        /// Length of a term.
        term: Span,
    },
    /// Nothing is left of the job: its guard ends.
    Drop {
        /// The attempt that is gone.
        job: JobAttempt,
    },
}

/// What is known of terms.
#[derive(Debug, Default)]
pub(super) struct Fence {
    /// When this node answered the latest heartbeats, by epoch and number.
    sent: BTreeMap<(Epoch, u64), Time>,
    /// When the registration was sent that the controller has not accepted yet.
    registering: Time,
    /// When the newest message was sent that the controller has acknowledged to this run of the daemon. None: none.
    proven: Option<Time>,
    /// Jobs with a fence: the length of a term, and whether one is over. It then stays over.
    jobs: BTreeMap<JobAttempt, (Span, bool)>,
    /// Jobs of earlier runs of the daemon of which a term was over.
    pub(super) fenced: BTreeSet<JobAttempt>,
}

impl Fence {
    /// Returns what a new run of the daemon knows: the jobs that guards have ended.
    pub(super) fn of(fenced: BTreeSet<JobAttempt>) -> Self {
        Self { fenced, ..Self::default() }
    }

    /// Notes that a registration is sent.
    pub(super) fn registers(&mut self, now: Time) {
        self.registering = now;
    }

    /// Returns whether a term of the job is over.
    pub(super) fn is_over(&self, job: JobAttempt, now: Time) -> bool {
        let ends = |term| self.proven.is_some_and(|proven| proven + term <= now);
        self.fenced.contains(&job) || self.jobs.get(&job).is_some_and(|(term, over)| *over || ends(*term))
    }

    /// Returns when the first term is over. None: there is none.
    pub(super) fn deadline(&self) -> Option<Time> {
        if self.jobs.iter().any(|(job, (_, over))| !over && self.fenced.contains(job)) {
            return Some(Time(0));
        }
        let first = self.jobs.values().filter(|(_, over)| !over).map(|(term, _)| *term).min();
        self.proven.zip(first).map(|(proven, term)| proven + term)
    }

    fn prove(&mut self, sent: Time, out: &mut NodeOut) {
        if self.proven.is_none_or(|proven| proven < sent) {
            self.proven = Some(sent);
            out.acts.push(NodeAct::Fence(FenceAct::Proven { sent }));
        }
    }
}

impl NodeMachine {
    /// Handles a heartbeat, which this node answers in the same step, and what it acknowledges.
    pub(super) fn beaten(&mut self, now: Time, key: (Epoch, u64), heard: &[(u64, NodeSet)], out: &mut NodeOut) {
        self.end_fenced(now, out);
        if key.0 < self.link.epoch() {
            return;
        }
        let here = self.id;
        let own = heard.iter().filter(|(_, nodes)| here.is_some_and(|here| nodes.contains(here)));
        if let Some(sent) = own.filter_map(|(number, _)| self.fence.sent.get(&(key.0, *number))).max().copied() {
            self.fence.prove(sent, out);
        }
        self.fence.sent.insert(key, now);
        while self.fence.sent.len() > SENT_MAX {
            self.fence.sent.pop_first();
        }
    }

    /// Handles the controller's acceptance of the registration, which acknowledges it.
    pub(super) fn registration_proven(&mut self, now: Time, out: &mut NodeOut) {
        self.end_fenced(now, out);
        self.fence.prove(self.fence.registering, out);
    }

    /// Has a job guarded that has a fence.
    pub(super) fn guard(&mut self, facts: &JobFacts, out: &mut NodeOut) {
        let job = attempt_of(facts.key);
        if let Some(term) = facts.spec.options.get().and_then(Chosen::node_fence)
            && self.fence.jobs.insert(job, (term, false)).is_none()
        {
            out.acts.push(NodeAct::Fence(FenceAct::Guard { job, term }));
        }
    }

    /// Records that nothing is left of a job.
    pub(super) fn unguard(&mut self, job: JobAttempt, out: &mut NodeOut) {
        self.fence.fenced.remove(&job);
        if self.fence.jobs.remove(&job).is_some() {
            out.acts.push(NodeAct::Fence(FenceAct::Drop { job }));
        }
    }

    /// Ends the jobs with a term that is over.
    pub(super) fn end_fenced(&mut self, now: Time, out: &mut NodeOut) {
        if self.fence.deadline().is_none_or(|due| now < due) {
            return;
        }
        let ending: Vec<JobAttempt> = self
            .fence
            .jobs
            .iter()
            .filter(|(job, (_, over))| !over && self.fence.is_over(**job, now))
            .map(|(job, _)| *job)
            .collect();
        for job in ending {
            if let Some((_, over)) = self.fence.jobs.get_mut(&job) {
                *over = true;
            }
            out.acts.push(NodeAct::Say(format!(
                "job {}: its node fence ends it here, as the controller can't be heard",
                job.job
            )));
            self.end_job(now, job, 0, true, EndReason::None, out);
        }
    }
}

/// What a guard knows: the length of a term, and whether one is over. It has a clock of the machine and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    term: Span,
    over: bool,
}

impl Guard {
    /// Makes the guard of a job with terms of this length.
    pub fn new(term: Span) -> Self {
        Self { term, over: false }
    }

    /// Returns whether a term is over: the guard kills what is left of the job.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Returns until when the guard has nothing to do, as of now. `proven`: when the newest message was sent that the
    /// controller has acknowledged. None: a term is over, and what is left of the job has to be killed, now and again.
    pub fn look(&mut self, now: Time, proven: Time) -> Option<Time> {
        let end = proven + self.term;
        self.over |= end <= now;
        (!self.over).then_some(end)
    }
}
