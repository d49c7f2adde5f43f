//! Leases: prefetched jobs, each of which begins when the earlier jobs on its cores are gone.
//!
//! Nothing of a lease is on disk before it begins. From then on its script's folder is, as with every job.

use std::sync::Arc;

use squall_model::id::StepNo;
use squall_model::job::{Blob, JobAttempt};
use squall_model::set::CoreSet;
use squall_model::step::StepLaunch;
use squall_model::time::Time;
use squall_model::wire::node::EndReason;
use squall_model::wire::proof::Warrant;

use crate::node::work::key_of;
use crate::node::{NodeMachine, NodeOut, attempt_of};

/// A leased (prefetched) job that has not begun: it waits until earlier jobs on its cores are gone.
#[derive(Debug)]
pub(super) struct Lease {
    launch: Box<StepLaunch>,
    /// Script and environment of the job.
    blobs: Vec<Blob>,
    /// What proves that the controller sent the job.
    warrant: Option<Arc<Warrant>>,
}

impl NodeMachine {
    /// Accepts a leased job, which begins once no earlier job holds its cores. A repeated lease does nothing.
    pub(super) fn lease(&mut self, now: Time, launch: Box<StepLaunch>, out: &mut NodeOut) {
        let attempt = attempt_of(launch.key);
        // A job that lost the report of its failed launch is here without its script.
        let known = self.jobs.get(&attempt).is_some_and(|job| !job.lacks(launch.key.step))
            || self.outbox.tells_of(launch.key)
            || self.leased().any(|job| job == attempt);
        if known || self.leaving.is_some() {
            return;
        }
        let wanted =
            |blob: &&Blob| [launch.facts.spec.script, Some(launch.facts.spec.env)].contains(&Some(blob.digest));
        let blobs = out.blobs.iter().filter(wanted).cloned().collect();
        self.leases.push((attempt, Lease { launch, blobs, warrant: self.warrant.clone() }));
        self.next_in_line(now, out);
    }

    /// Takes back a leased job that has not begun, at the controller's request. A job that was never here is swept and
    /// reported as gone in the same way.
    pub(super) fn recall(&mut self, now: Time, job: JobAttempt, out: &mut NodeOut) {
        if !self.jobs.contains_key(&job) {
            self.end_job(now, job, 0, false, EndReason::None, out);
        }
    }

    /// Returns the leased (prefetched) jobs that have not begun.
    pub(super) fn leased(&self) -> impl Iterator<Item = JobAttempt> + '_ {
        self.leases.iter().map(|(job, _)| *job)
    }

    /// Drops a leased (prefetched) job, which will not begin here.
    pub(super) fn forget_lease(&mut self, job: JobAttempt) {
        self.leases.retain(|(leased, _)| *leased != job);
    }

    /// Begins each leased (prefetched) job if no earlier job holds any of its cores. One whose launch has failed holds them
    /// until the controller knows: a daemon that dies before finds the job unstarted, and it is launched again.
    pub(super) fn next_in_line(&mut self, now: Time, out: &mut NodeOut) {
        if self.leases.is_empty() {
            return;
        }
        let mut held = CoreSet::new();
        let failed = |attempt: &JobAttempt| self.outbox.has_failed(key_of(*attempt, StepNo::BATCH));
        let here = self.jobs.iter().filter(|(attempt, job)| !job.is_gone() || failed(attempt));
        here.for_each(|(_, job)| held.union_with(&job.cores));
        let mut ready = Vec::new();
        for (at, (_, lease)) in self.leases.iter().enumerate() {
            if held.is_disjoint(&lease.launch.cores) {
                ready.push(at);
            }
            held.union_with(&lease.launch.cores);
        }
        for at in ready.into_iter().rev() {
            let (_, Lease { mut launch, blobs, warrant }) = self.leases.remove(at);
            let facts = Arc::make_mut(&mut launch.facts);
            facts.end = facts.end.map(|end| now + end.since(facts.start));
            facts.start = now;
            out.blobs.extend(blobs);
            let of_message = std::mem::replace(&mut self.warrant, warrant);
            self.start_job(now, Arc::clone(&launch.facts), Some(launch), out);
            self.warrant = of_message;
        }
    }
}
