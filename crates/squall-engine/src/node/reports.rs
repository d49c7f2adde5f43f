//! The outbox: reports, kept until the controller has journaled them.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::id::{NodeId, StepKey, StepNo};
use squall_model::job::JobAttempt;
use squall_model::report::Report;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::counts::NodeCounts;
use squall_model::wire::fabric::{Composite, LaunchFailure};
use squall_model::wire::hook::{Hook, NodeNote};

use crate::node::attempt_of;

/// Reports that the controller has not acknowledged. Each is about something that happens once, so the step or job
/// identifies it, and a duplicate changes nothing.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Reports of steps: how each ended, or why it did not start.
    steps: BTreeMap<StepKey, Report>,
    /// Jobs of which nothing is left on this node. The controller has not acknowledged their `JobGone` report.
    jobs: BTreeSet<JobAttempt>,
    /// Steps, of those in `steps`, with a report that was not sent in this session.
    unsaid_steps: Vec<StepKey>,
    unsaid_jobs: Vec<JobAttempt>,
    /// Reports about programs and about the node. Those about jobs stay until the job's `JobGone` is acknowledged.
    notes: BTreeMap<NoteKey, NodeNote>,
    /// Reports, of those in `notes`, that were not sent in this session.
    unsaid_notes: BTreeSet<NoteKey>,
    /// Whether an unsent report must not be delayed, because a user or process may be waiting for it.
    urgent: bool,
    /// Counters of what this run of the daemon reported; those of launches and sessions are 0.
    pub(super) counts: NodeCounts,
}

/// A later report about the same job and kind of program replaces an earlier one.
type NoteKey = (Option<JobAttempt>, Hook);

impl Outbox {
    /// Adds a report about a program or about the node.
    pub(super) fn note(&mut self, note: NodeNote) {
        let key = (note.job(), note.hook());
        self.notes.insert(key, note);
        self.unsaid_notes.insert(key);
        self.urgent = true;
    }

    /// Adds such a report, if there is one.
    pub(super) fn notes(&mut self, note: Option<NodeNote>) {
        if let Some(note) = note {
            self.note(note);
        }
    }

    /// Returns whether the outbox holds a report that this checkpoint of a job is complete.
    pub(super) fn has_checkpoint(&self, job: JobAttempt, number: u64, given: Option<Time>) -> bool {
        let Some(NodeNote::Checkpoint(note)) = self.notes.get(&(Some(job), Hook::Checkpoint)) else { return false };
        note.number == number && given.is_none_or(|given| note.given == given) && note.made.is_some()
    }

    /// Returns the reports about a job's programs.
    fn notes_of(&self, job: JobAttempt) -> impl Iterator<Item = NoteKey> + '_ {
        let keys = self.notes.range((Some(job), Hook::Prolog)..).map(|(key, _)| *key);
        keys.take_while(move |(of, _)| *of == Some(job))
    }

    /// Adds a report.
    pub(super) fn push(&mut self, report: Report) {
        self.urgent |= match &report {
            Report::StepEnded { key, .. } => key.step != StepNo::BATCH,
            Report::LaunchFailed { .. } => true,
            // Not urgent if the end of the job's script is sent with this report. Otherwise the job was ended on
            // request.
            Report::JobGone { job } => !self.unsaid_steps.iter().rev().any(|key| attempt_of(*key) == *job),
        };
        self.counts.reports += 1;
        match &report {
            Report::StepEnded { end, .. } => {
                self.counts.ended += 1;
                self.counts.out_of_memory += u64::from(end.oom);
                self.counts.lost += u64::from(end.lost);
            }
            Report::LaunchFailed { .. } => self.counts.failed += 1,
            Report::JobGone { .. } => {}
        }
        match report {
            Report::StepEnded { key, .. } | Report::LaunchFailed { key, .. } => {
                self.steps.insert(key, report);
                self.unsaid_steps.push(key);
            }
            Report::JobGone { job } => {
                self.jobs.insert(job);
                self.unsaid_jobs.push(job);
            }
        }
    }

    /// Returns whether the outbox holds a report about this step, which the controller has not acknowledged.
    pub(super) fn tells_of(&self, key: StepKey) -> bool {
        self.steps.contains_key(&key)
    }

    /// Returns whether the outbox holds a report that the launch of this step has failed.
    pub(super) fn has_failed(&self, key: StepKey) -> bool {
        matches!(self.steps.get(&key), Some(Report::LaunchFailed { .. }))
    }

    /// Removes the report of a step's end, which the controller has acknowledged. Returns whether there was one.
    pub(super) fn step_known(&mut self, key: StepKey) -> bool {
        self.steps.remove(&key).is_some()
    }

    /// Removes the report of a job that is gone, which the controller has acknowledged. Returns whether there was
    /// one.
    pub(super) fn job_known(&mut self, job: JobAttempt) -> bool {
        let known = self.jobs.remove(&job);
        if known && !self.notes.is_empty() {
            for key in self.notes_of(job).collect::<Vec<_>>() {
                self.notes.remove(&key);
                self.unsaid_notes.remove(&key);
            }
        }
        known
    }

    /// Marks all reports as unsent, for a new session.
    pub(super) fn rewind(&mut self) {
        let unsaid = self.unsaid_steps.len() + self.unsaid_jobs.len();
        self.counts.repeats += (self.steps.len() + self.jobs.len()).saturating_sub(unsaid) as u64;
        self.unsaid_steps = self.steps.keys().copied().collect();
        self.unsaid_jobs = self.jobs.iter().copied().collect();
        self.unsaid_notes = self.notes.keys().copied().collect();
        self.urgent = !self.is_said();
    }

    /// Returns whether all unsent reports are about batch jobs that ended by themselves, so that they may be delayed.
    pub(super) fn is_patient(&self) -> bool {
        !self.urgent
    }

    /// Returns whether every report was sent in this session.
    pub(super) fn is_said(&self) -> bool {
        self.unsaid_steps.is_empty() && self.unsaid_jobs.is_empty() && self.unsaid_notes.is_empty()
    }

    /// Returns the unsent reports as a composite (message of merged reports) of `node`, and marks them as sent.
    pub(super) fn take(&mut self, node: NodeId) -> Composite {
        self.urgent = false;
        let mut composite = Composite::default();
        let here = NodeSet::one(node);
        // A report that a job is gone may overtake earlier reports, when the controller restarts or a node above
        // dies. So the unacknowledged ends of the job's steps are sent with it.
        for &JobAttempt { job, attempt } in &self.unsaid_jobs {
            let (first, last) =
                (StepKey { job, attempt, step: StepNo(0) }, StepKey { job, attempt, step: StepNo(u32::MAX) });
            self.unsaid_steps.extend(self.steps.range(first..=last).map(|(key, _)| *key));
        }
        self.unsaid_steps.sort_unstable();
        self.unsaid_steps.dedup();
        for key in std::mem::take(&mut self.unsaid_steps) {
            match self.steps.get(&key) {
                Some(Report::StepEnded { end, .. }) => composite.add_ended(key, &here, end),
                Some(Report::LaunchFailed { error, node_fault, .. }) => {
                    let failure = LaunchFailure { key, error: error.clone(), node_fault: *node_fault };
                    composite.failed.push((node, failure));
                }
                // because the controller may know of the report before it was said
                _ => continue,
            }
            composite.reports += 1;
        }
        if !self.notes.is_empty() {
            let gone = self.unsaid_jobs.iter().flat_map(|job| self.notes_of(*job)).collect::<Vec<_>>();
            self.unsaid_notes.extend(gone);
        }
        for key in std::mem::take(&mut self.unsaid_notes) {
            let note = self.notes.get(&key).cloned();
            composite.reports += note.iter().len() as u64;
            composite.notes.get_or_insert_default().extend(note.map(|note| (node, note)));
        }
        for job in std::mem::take(&mut self.unsaid_jobs) {
            if self.jobs.contains(&job) {
                composite.add_gone(job, &here);
                composite.reports += 1;
            }
        }
        composite
    }
}

#[cfg(test)]
mod tests {
    use super::Outbox;
    use squall_model::id::{Attempt, JobId, NodeId, StepKey, StepNo};
    use squall_model::job::JobAttempt;
    use squall_model::report::Report;

    #[test]
    fn what_is_not_known_is_said_once_in_every_session() {
        let job = |n| JobAttempt { job: JobId(n), attempt: Attempt(1) };
        let mut outbox = Outbox::default();
        outbox.push(Report::JobGone { job: job(1) });
        outbox.push(Report::JobGone { job: job(2) });
        let said = outbox.take(NodeId(7));
        assert_eq!((said.gone.len(), said.reports), (2, 2));
        assert!(outbox.take(NodeId(7)).is_empty());
        assert!(outbox.job_known(job(1)) && !outbox.job_known(job(1)));
        outbox.push(Report::JobGone { job: job(3) });
        outbox.rewind();
        let again: Vec<_> = outbox.take(NodeId(7)).gone.into_keys().collect();
        assert_eq!(again, [job(2), job(3)]);
    }

    #[test]
    fn that_a_job_is_gone_is_said_with_the_ends_of_its_steps() {
        let job = |n| JobAttempt { job: JobId(n), attempt: Attempt(1) };
        let ended = |n| Report::LaunchFailed {
            key: StepKey { job: JobId(n), attempt: Attempt(1), step: StepNo::BATCH },
            error: "no such file".into(),
            node_fault: false,
        };
        let mut outbox = Outbox::default();
        (1..3).for_each(|n| outbox.push(ended(n)));
        assert_eq!(outbox.take(NodeId(7)).failed.len(), 2);
        // The controller may have lost an earlier report, and the node only learns so later.
        outbox.push(Report::JobGone { job: job(1) });
        let said = outbox.take(NodeId(7));
        assert_eq!((said.failed.len(), said.gone.len(), said.reports), (1, 1, 2));
        outbox.push(Report::JobGone { job: job(2) });
        outbox.step_known(StepKey { job: JobId(2), attempt: Attempt(1), step: StepNo::BATCH });
        assert_eq!(outbox.take(NodeId(7)).reports, 1);
    }
}
