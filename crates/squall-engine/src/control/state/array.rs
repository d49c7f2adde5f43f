//! A job array: one record for all tasks that are still untouched.

use std::sync::Arc;

use minicbor::{Decode, Encode};
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{ArraySpec, EndState, ExitCode, JobSpec, Outcome, Owner};
use squall_model::set::IndexSet;
use squall_model::time::Time;

use crate::control::state::job::Queue;

/// A job array. A task becomes a job of its own when something first happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// The user who submitted it.
    pub owner: Arc<Owner>,
    /// The specification, with all updates.
    pub spec: Arc<JobSpec>,
    /// The array as submitted. It never changes, and with it the ids that the array reserved.
    pub tasks: Arc<ArraySpec>,
    /// The key that the client gave with the submission.
    pub key: ClientKey,
    /// When it was submitted.
    pub submit: Time,
    /// Hold, priority and so on of the untouched tasks.
    pub queue: Queue,
    /// Most tasks that may run at once; None: no limit.
    pub limit: Option<u32>,
    /// How many tasks are in which state.
    pub tally: ArrayTally,
}

/// How many tasks of an array are in which state. Each task is untouched, waiting, active or ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ArrayTally {
    /// Indices of the pending tasks that have not become jobs of their own.
    #[n(0)]
    pub untouched: IndexSet,
    /// Tasks that are jobs of their own and pending.
    #[n(1)]
    pub waiting: u32,
    /// Tasks that hold resources: running and completing.
    #[n(2)]
    pub active: u32,
    /// Indices of tasks that completed with exit code 0.
    #[n(3)]
    pub ok: IndexSet,
    /// Indices of tasks that ended in any other way.
    #[n(4)]
    pub bad: IndexSet,
    /// Number of tasks that have ended.
    #[n(5)]
    pub ended: u32,
    /// The worst outcome of the ended tasks: of those that did not complete, the one with the highest exit code.
    #[n(6)]
    pub worst: Option<Outcome>,
    /// Time of the latest start of a task.
    #[n(7)]
    pub last_start: Option<Time>,
    /// Time of the latest end of a task.
    #[n(8)]
    pub last_end: Option<Time>,
    /// Tasks that ended without starting and never became jobs of their own; one entry for each outcome.
    #[n(9)]
    pub skipped: Vec<Skipped>,
}

/// Tasks of an array that ended with the same outcome, without starting.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Skipped {
    /// Indices of the tasks.
    #[n(0)]
    pub tasks: IndexSet,
    /// The outcome of them all.
    #[n(1)]
    pub outcome: Outcome,
    /// When the last of them ended.
    #[n(2)]
    pub time: Time,
}

impl Array {
    /// Returns the id of the task with this index.
    pub fn task_id(&self, array: JobId, index: u32) -> Option<JobId> {
        let indices = &self.tasks.indices;
        indices.contains(index).then(|| self.tasks.task_id(array, indices.rank(index)))
    }
    /// Returns the index of the task with this id.
    pub(crate) fn index_of(&self, array: JobId, task: JobId) -> Option<u32> {
        self.tasks.indices.at(self.tasks.rank_of(array, task)?)
    }
    /// Returns how many ids the array reserved, which is its number of tasks.
    pub fn size(&self) -> u32 {
        self.tasks.indices.len() as u32
    }
    /// Returns whether every task has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.tally.untouched.is_empty() && self.tally.waiting == 0 && self.tally.active == 0
    }
    /// Returns the outcome of the whole array: completed, or the outcome of its worst task. None: it has not ended.
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
    /// Counts untouched tasks that ended together. Returns how many they are.
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
    /// Returns the entry of a task that ended without starting.
    pub fn skipped(&self, index: u32) -> Option<&Skipped> {
        self.skipped.iter().find(|skipped| skipped.tasks.contains(index))
    }
    /// Takes back the end of a task that is requeued.
    pub(crate) fn uncount_end(&mut self, index: u32) {
        let was = self.ok.remove(index) | self.bad.remove(index);
        self.ended -= u32::from(was);
    }
}
