//! What is known of a job array: one record for all tasks that nobody touched yet.

use std::sync::Arc;

use minicbor::{Decode, Encode};
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{ArraySpec, EndState, ExitCode, JobSpec, Outcome, Owner};
use squall_model::set::IndexSet;
use squall_model::time::Time;

use crate::control::state::job::Queue;

/// An array. Its tasks become jobs of their own when something first happens to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Whose it is.
    pub owner: Arc<Owner>,
    /// What was asked, with all updates.
    pub spec: Arc<JobSpec>,
    /// The array as submitted: which ids it reserved never changes.
    pub tasks: Arc<ArraySpec>,
    /// The client's key.
    pub key: ClientKey,
    /// When it was submitted.
    pub submit: Time,
    /// Hold, priority and so on of the untouched tasks.
    pub queue: Queue,
    /// Most tasks that run at once.
    pub limit: Option<u32>,
    /// How its tasks stand.
    pub tally: ArrayTally,
}

/// How the tasks of an array stand. Untouched, waiting, active and ended ones are all of its tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ArrayTally {
    /// Indices of pending tasks that nothing ever happened to.
    #[n(0)]
    pub untouched: IndexSet,
    /// Tasks that are jobs of their own and pending.
    #[n(1)]
    pub waiting: u32,
    /// Tasks that hold resources: running and completing.
    #[n(2)]
    pub active: u32,
    /// Indices of tasks that have ended with exit code 0.
    #[n(3)]
    pub ok: IndexSet,
    /// Indices of tasks that have ended otherwise.
    #[n(4)]
    pub bad: IndexSet,
    /// How many tasks have ended.
    #[n(5)]
    pub ended: u32,
    /// Of the tasks that have ended, the worst: the one with the highest exit code that did not complete.
    #[n(6)]
    pub worst: Option<Outcome>,
    /// When a task started last.
    #[n(7)]
    pub last_start: Option<Time>,
    /// When a task ended last.
    #[n(8)]
    pub last_end: Option<Time>,
    /// Tasks that ended without starting: they never were jobs of their own. One entry for each way to end.
    #[n(9)]
    pub skipped: Vec<Skipped>,
}

/// Tasks of an array that ended alike, without starting.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Skipped {
    /// Their indices.
    #[n(0)]
    pub tasks: IndexSet,
    /// How they ended.
    #[n(1)]
    pub outcome: Outcome,
    /// When the last of them did.
    #[n(2)]
    pub time: Time,
}

impl Array {
    /// The id of the task with this index.
    pub fn task_id(&self, array: JobId, index: u32) -> Option<JobId> {
        let indices = &self.tasks.indices;
        indices.contains(index).then(|| self.tasks.task_id(array, indices.rank(index)))
    }
    /// The index of the task with this id.
    pub(crate) fn index_of(&self, array: JobId, task: JobId) -> Option<u32> {
        self.tasks.indices.at(self.tasks.rank_of(array, task)?)
    }
    /// How many ids it reserved.
    pub fn size(&self) -> u32 {
        self.tasks.indices.len() as u32
    }
    /// Whether every task has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.tally.untouched.is_empty() && self.tally.waiting == 0 && self.tally.active == 0
    }
    /// How the whole array ended: all well, or its worst task. None: it has not ended.
    pub fn outcome(&self) -> Option<Outcome> {
        self.is_ended().then(|| {
            let fine = Outcome { state: EndState::Completed, exit: ExitCode::OK, reason: None };
            self.tally.worst.clone().filter(|_| !self.tally.bad.is_empty()).unwrap_or(fine)
        })
    }
}

impl ArrayTally {
    /// Counts a task that has ended.
    pub(crate) fn count_end(&mut self, index: u32, outcome: &Outcome, time: Time) {
        let ok = outcome.state == EndState::Completed;
        let fresh = if ok { self.ok.insert(index) } else { self.bad.insert(index) };
        self.ended += u32::from(fresh);
        self.last_end = Some(time);
        let worse = self.worst.as_ref().is_none_or(|w| outcome.exit > w.exit);
        if !ok && worse {
            self.worst = Some(outcome.clone());
        }
    }
    /// Counts untouched tasks that ended together; returns how many.
    pub(crate) fn count_ends(&mut self, tasks: &IndexSet, outcome: &Outcome, time: Time) -> u32 {
        let count = tasks.len() as u32;
        self.untouched = self.untouched.difference(tasks);
        let ok = outcome.state == EndState::Completed;
        if ok {
            self.ok.union_with(tasks);
        } else {
            self.bad.union_with(tasks);
        }
        self.ended += count;
        self.last_end = Some(time);
        if !ok && self.worst.as_ref().is_none_or(|w| outcome.exit > w.exit) {
            self.worst = Some(outcome.clone());
        }
        match self.skipped.iter_mut().find(|skipped| skipped.outcome == *outcome) {
            Some(skipped) => {
                skipped.tasks.union_with(tasks);
                skipped.time = time;
            }
            None => self.skipped.push(Skipped { tasks: tasks.clone(), outcome: outcome.clone(), time }),
        }
        count
    }
    /// How a task ended that never started.
    pub fn skipped(&self, index: u32) -> Option<&Skipped> {
        self.skipped.iter().find(|skipped| skipped.tasks.contains(index))
    }
    /// A task that had ended lives again (requeued).
    pub(crate) fn uncount_end(&mut self, index: u32) {
        let was = self.ok.remove(index) | self.bad.remove(index);
        self.ended -= u32::from(was);
    }
}
