//! Checks of programs around jobs: each runs once, prologs before the job's processes and epilogs after them.

use std::collections::BTreeSet;

use squall_model::config::Hooks;
use squall_model::job::JobAttempt;
use squall_model::wire::hook::Hook;

use super::Judge;

/// A node in one of its incarnations.
type Place = (usize, u128);

/// What the judge knows of programs around jobs.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// Whether there are prologs.
    prolog: bool,
    /// Whether there are epilogs.
    epilog: bool,
    /// Jobs that nodes have noted in their spools.
    opened: BTreeSet<(Place, JobAttempt)>,
    /// Programs that have ended: prologs with success, epilogs in any way.
    ended: BTreeSet<(Place, JobAttempt, Hook)>,
    /// Programs that have ended, but of which the node has lost the note. It may run them again.
    lost: BTreeSet<(usize, JobAttempt, Hook)>,
}

impl Programs {
    /// Returns what is to be checked with this configuration.
    pub(super) fn of(hooks: &Hooks) -> Self {
        Self { prolog: !hooks.prolog.is_empty(), epilog: !hooks.epilog.is_empty(), ..Self::default() }
    }
}

impl Judge {
    /// Records that a node has noted a job.
    pub(crate) fn job_noted(&mut self, place: Place, job: JobAttempt) {
        if self.programs.epilog {
            self.programs.opened.insert((place, job));
        }
    }

    /// Records that a node which had a job before gets another share of it: its programs run again.
    pub(super) fn programs_owed_again(&mut self, node: usize, job: JobAttempt) {
        self.programs.opened.retain(|(place, of)| (place.0, *of) != (node, job));
        self.programs.ended.retain(|(place, of, _)| (place.0, *of) != (node, job));
    }

    /// Checks the start of a program.
    pub(crate) fn program_runs(&mut self, place: Place, job: JobAttempt, hook: Hook) {
        let lost = self.programs.lost.contains(&(place.0, job, hook));
        if !lost && self.programs.ended.contains(&(place, job, hook)) {
            let text = format!("{} of job {} on {}", hook.name(), job.job, self.names[place.0]);
            self.violate("a program that ended is not run again", text);
        }
    }

    /// Records the end of a program.
    pub(crate) fn program_ended(&mut self, place: Place, job: JobAttempt, hook: Hook) {
        self.programs.ended.insert((place, job, hook));
        self.programs.lost.remove(&(place.0, job, hook));
    }

    /// Records that a node's spool was replaced by a copy, which has these notes of programs that have ended. `knows`: the
    /// jobs that it has noted; no epilog is run for others.
    pub(crate) fn program_notes_are(
        &mut self,
        node: usize,
        noted: &BTreeSet<(JobAttempt, Hook)>,
        knows: impl Fn(JobAttempt) -> bool,
    ) {
        self.programs.opened.retain(|(place, job)| place.0 != node || knows(*job));
        let ended = self.programs.ended.iter().filter(|((of, _), ..)| *of == node);
        let lost =
            ended.filter(|(_, job, hook)| !noted.contains(&(*job, *hook))).map(|&(_, job, hook)| (node, job, hook));
        self.programs.lost.extend(lost);
    }

    /// Checks that the prolog has ended before a process of its job starts.
    pub(crate) fn prolog_is_over(&mut self, place: Place, job: JobAttempt) {
        if self.programs.prolog && !self.programs.ended.contains(&(place, job, Hook::Prolog)) {
            let text = format!("job {} on {}", job.job, self.names[place.0]);
            self.violate("processes start after the prolog", text);
        }
    }

    /// Checks that the epilog has ended before its job is forgotten.
    pub(crate) fn epilog_is_over(&mut self, place: Place, job: JobAttempt) {
        let noted = self.programs.opened.contains(&(place, job));
        if noted && !self.programs.ended.contains(&(place, job, Hook::Epilog)) {
            let text = format!("job {} on {}", job.job, self.names[place.0]);
            self.violate("a job is forgotten after its epilog", text);
        }
    }
}
