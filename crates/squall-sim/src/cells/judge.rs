//! Invariants of cells and front under all faults: what clients were told is compared with what the disks hold.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::event::{Event, Record};
use squall_model::foreign::{Question, Reply};
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{Dependency, DependencyKind, EndState, PendingReason};
use squall_model::time::Time;

use crate::judge::Violation;

/// Facts that the judge has collected about cells, and the first violation.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// Number of job submissions that clients have requested so far.
    pub(super) wishes: u32,
    /// Number of the submission that each key was made for.
    pub(super) keys: BTreeMap<ClientKey, u32>,
    /// Jobs with an acknowledged submission.
    pub(super) promised: BTreeSet<JobId>,
    /// Client key of the acknowledged submission of each job.
    under: BTreeMap<JobId, ClientKey>,
    /// Number of records on each cell's disk that were examined already.
    read: BTreeMap<u32, usize>,
    /// Cell that accepted each submission, and the job id that it assigned, by number of the submission.
    accepted: BTreeMap<u32, (u32, JobId)>,
    /// Number of the submission that each job id was assigned to.
    ids: BTreeMap<JobId, u32>,
    /// Facts about each job, as recorded on the disks.
    jobs: BTreeMap<JobId, File>,
    /// For each cell a time: the cell has forgotten the jobs that ended before it.
    forgotten: BTreeMap<u32, Time>,
    /// Answers about jobs of other cells, as recorded by each cell: keys are (asking cell, question).
    told: BTreeMap<(u32, Question), Reply>,
    pub(super) violation: Option<Box<Violation>>,
}

/// Facts about one job, as recorded on the disks.
#[derive(Debug)]
struct File {
    cell: u32,
    name: String,
    submit: Time,
    after: Option<Dependency>,
    /// Jobs of the same cell that it names, with records that may have been removed before it was submitted. What it asks
    /// of them is lifted then, as in Slurm.
    lifted: Vec<JobId>,
    started: bool,
    /// Whether the job will have succeeded, once its end is decided. None: no end is decided.
    ending: Option<bool>,
    ended: Option<(Time, bool)>,
}

/// State of a dependency, by the facts on all disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stands {
    Never,
    Waits,
    Holds,
}

impl Judge {
    pub(super) fn violate(&mut self, invariant: &'static str, details: String) {
        self.violation.get_or_insert_with(|| Box::new(Violation { invariant, details }));
    }

    /// Returns the number of accepted submissions.
    pub(super) fn count(&self) -> usize {
        self.accepted.len()
    }

    /// Examines records that are new on the disks. Durable records are never taken back: a crash loses only records
    /// that were not flushed.
    pub(super) fn survey(&mut self, disks: &[(u32, &[Record])]) {
        for (cell, disk) in disks {
            let from = self.read.insert(*cell, disk.len()).unwrap_or(0);
            for record in &disk[from..] {
                record.events.iter().for_each(|event| self.happened(*cell, record.time, event));
            }
        }
    }

    fn happened(&mut self, cell: u32, time: Time, event: &Event) {
        match event {
            Event::JobSubmitted { id, key, spec, .. } => {
                self.accepted(cell, *id, *key);
                let (name, after) = (spec.name.clone(), spec.dependency.clone());
                let terms = after.iter().flat_map(|after: &Dependency| &after.terms);
                let named = terms.filter_map(|term| term.job).map(|job| job.id);
                let is_gone =
                    |id: &JobId| self.jobs.get(id).is_some_and(|file| file.cell == cell) && self.is_forgotten(*id);
                let lifted = named.filter(is_gone).collect();
                let file = File { cell, name, submit: time, after, lifted, started: false, ending: None, ended: None };
                self.jobs.insert(*id, file);
            }
            Event::JobStarted { id, .. } => {
                if self.stands(*id) != Stands::Holds {
                    let text = format!("job {id} of cell {cell}: {:?}", self.jobs.get(id));
                    self.violate("nobody starts before those it waits for have ended as asked, in whatever cell", text);
                }
                self.change(*id, |file| file.started = true);
            }
            Event::JobEnding { id, outcome, .. } => self.change(*id, |file| {
                let well = outcome.state == EndState::Completed;
                if file.started {
                    file.ending = Some(well);
                } else {
                    file.ended = Some((time, well));
                }
            }),
            Event::NodesReleased { id, .. } => {
                self.change(*id, |file| file.ended = file.ending.map(|well| (time, well)));
            }
            Event::Forgotten { ended_before } => {
                let before = self.forgotten.entry(cell).or_default();
                *before = (*before).max(*ended_before);
            }
            Event::ForeignResolved { replies } => {
                for (question, reply) in replies {
                    let first = *self.told.entry((cell, question.clone())).or_insert(*reply);
                    if first != *reply {
                        let text = format!("{question:?} of cell {cell}: {first:?}, and {reply:?}");
                        self.violate("a question has one answer", text);
                    }
                }
            }
            _ => {}
        }
    }

    fn change(&mut self, id: JobId, change: impl FnOnce(&mut File)) {
        if let Some(file) = self.jobs.get_mut(&id) {
            change(file);
        }
    }

    /// Returns the state of a job's dependency, by the records on all disks.
    fn stands(&self, id: JobId) -> Stands {
        let Some(file) = self.jobs.get(&id) else { return Stands::Never };
        let Some(Dependency { terms, any }) = &file.after else { return Stands::Holds };
        let terms = terms.iter().map(|term| match term.job {
            Some(job) if file.lifted.contains(&job.id) => Stands::Holds,
            Some(job) => self.term(term.when, job.id),
            None => self.alone(id, file),
        });
        let found = if *any { terms.max() } else { terms.min() };
        found.unwrap_or(Stands::Holds)
    }

    fn term(&self, when: DependencyKind, id: JobId) -> Stands {
        let Some(file) = self.jobs.get(&id) else { return Stands::Never };
        match (when, file.ended) {
            (DependencyKind::After, None) if file.started => Stands::Holds,
            (_, None) => Stands::Waits,
            (DependencyKind::AfterOk, Some((_, well))) if !well => Stands::Never,
            (DependencyKind::AfterNotOk, Some((_, well))) if well => Stands::Never,
            _ => Stands::Holds,
        }
    }

    /// Returns the state of a singleton dependency: whether all earlier jobs of the same name have ended.
    fn alone(&self, id: JobId, file: &File) -> Stands {
        let before = |(other, it): (&JobId, &File)| (it.submit, *other) < (file.submit, id);
        let mut waits = self.jobs.iter().filter(|(_, other)| other.name == file.name && other.ended.is_none());
        if waits.any(before) { Stands::Waits } else { Stands::Holds }
    }

    /// Returns the number of jobs that have ended.
    pub(super) fn ended(&self) -> usize {
        self.jobs.values().filter(|file| file.ended.is_some()).count()
    }

    pub(super) fn is_forgotten(&self, id: JobId) -> bool {
        let Some(file) = self.jobs.get(&id) else { return false };
        let before = self.forgotten.get(&file.cell).copied().unwrap_or_default();
        file.ended.is_some_and(|(time, _)| time < before)
    }

    pub(super) fn names_forgotten(&self, after: &Dependency) -> bool {
        after.terms.iter().filter_map(|term| term.job).any(|job| self.is_forgotten(job.id))
    }

    /// Checks the end state after a long time without faults: only jobs with unfulfilled dependencies are pending, and
    /// those with a dependency that can never be fulfilled have that reason.
    pub(super) fn close(&mut self, reasons: &BTreeMap<JobId, PendingReason>) {
        // The record of a job may have been kept longer, because another one waited for it.
        let open = self.jobs.iter().filter(|(_, file)| file.ended.is_none() && file.lifted.is_empty());
        let open: Vec<JobId> = open.map(|(id, _)| *id).collect();
        for id in open {
            let (stands, reason) = (self.stands(id), reasons.get(&id));
            let right = match stands {
                Stands::Holds => false,
                Stands::Waits => reason == Some(&PendingReason::Dependency),
                Stands::Never => reason == Some(&PendingReason::DependencyNeverSatisfied),
            };
            if !right {
                let text = format!("job {id}: {stands:?}, told {reason:?}: {:?}", self.jobs.get(&id));
                self.violate("who may start does, and who never can is told so", text);
            }
        }
    }

    fn accepted(&mut self, cell: u32, id: JobId, key: ClientKey) {
        let Some(&wish) = self.keys.get(&key) else {
            return self.violate("what is accepted was asked for", format!("job {id} in cell {cell}"));
        };
        if let Some((other, job)) = self.accepted.insert(wish, (cell, id)) {
            let text = format!("submission {wish} as job {job} in cell {other} and as job {id} in cell {cell}");
            self.violate("nothing is accepted twice", text);
        }
        if let Some(other) = self.ids.insert(id, wish) {
            self.violate("ids are unique", format!("job {id} for submissions {other} and {wish}"));
        }
    }

    /// Checks and records that a client received an acknowledgement of its submission.
    pub(super) fn acknowledged(&mut self, wish: u32, key: ClientKey, job: JobId) {
        if self.accepted.get(&wish).map(|(_, id)| *id) != Some(job) {
            let text = format!("submission {wish} was acknowledged as job {job}, which no disk holds");
            self.violate("what is acknowledged is durable", text);
        }
        self.promised.insert(job);
        self.under.insert(job, key);
    }

    /// Checks a complete list of jobs that a client received.
    pub(super) fn listed(&mut self, promised: &BTreeSet<JobId>, seen: &BTreeSet<JobId>, absent: &BTreeSet<u32>) {
        let excused = |job: &JobId| absent.contains(&self.cell_of(*job)) || self.is_forgotten(*job);
        let missing = promised.difference(seen).find(|job| !excused(job));
        if let Some(job) = missing {
            let cell = self.cell_of(*job);
            self.violate("a list shows all jobs or says what it is without", format!("job {job} of cell {cell}"));
        }
    }

    /// Returns the cell that has a job on its disk; `u32::MAX` if no cell has it.
    fn cell_of(&self, job: JobId) -> u32 {
        let wish = self.ids.get(&job);
        wish.and_then(|wish| self.accepted.get(wish)).map_or(u32::MAX, |(cell, _)| *cell)
    }
}
