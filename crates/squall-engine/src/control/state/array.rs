//! A job array: one record for all of its tasks that have no record of their own ("untouched" tasks).

use std::sync::Arc;

use minicbor::{Decode, Encode};
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{ArraySpec, EndState, ExitCode, JobSpec, Outcome, Owner};
use squall_model::set::IndexSet;
use squall_model::time::Time;

use crate::control::state::job::Queue;

/// A job array. A task gets a record of its own, as a job, when something first happens to it alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// The user who submitted the array.
    pub owner: Arc<Owner>,
    /// The specification of the array's tasks, with all updates.
    pub spec: Arc<JobSpec>,
    /// The task indices and limit of the array as submitted. They never change, and with them the ids that the array
    /// reserved.
    pub tasks: Arc<ArraySpec>,
    /// Key that the client chose for the submission, so that a repeated submission is recognized.
    pub key: ClientKey,
    /// When the array was submitted.
    pub submit: Time,
    /// Hold, priority and other settings of the tasks that have no record of their own.
    pub queue: Queue,
    /// Maximum number of tasks that may run at once (`%N`); None: no limit.
    pub limit: Option<u32>,
    /// How many tasks are in which state.
    pub tally: ArrayTally,
}

/// Number or indices of the tasks of an array in each state. Each task is untouched (pending, without a record of its
/// own), waiting, active or ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ArrayTally {
    /// Indices of the pending tasks without a record of their own.
    #[n(0)]
    pub untouched: IndexSet,
    /// Number of pending tasks with a record of their own.
    #[n(1)]
    pub waiting: u32,
    /// Number of tasks that hold resources: running, completing or leased to a node.
    #[n(2)]
    pub active: u32,
    /// Indices of tasks that completed with exit code 0.
    #[n(3)]
    pub ok: IndexSet,
    /// Indices of tasks that ended in any other way than with exit code 0.
    #[n(4)]
    pub bad: IndexSet,
    /// Number of tasks that have ended.
    #[n(5)]
    pub ended: u32,
    /// The worst outcome of the ended tasks: of those that did not complete, the one with the highest exit code. None:
    /// all ended tasks completed.
    #[n(6)]
    pub worst: Option<Outcome>,
    /// When a task last started; None: no task has started.
    #[n(7)]
    pub last_start: Option<Time>,
    /// When a task last ended; None: no task has ended.
    #[n(8)]
    pub last_end: Option<Time>,
    /// Tasks that ended without starting and never had a record of their own; one entry for each outcome.
    #[n(9)]
    pub skipped: Vec<Skipped>,
}

/// Tasks of an array that ended with the same outcome, without starting.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Skipped {
    /// Indices of the tasks.
    #[n(0)]
    pub tasks: IndexSet,
    /// The outcome that all these tasks have.
    #[n(1)]
    pub outcome: Outcome,
    /// When the last of these tasks ended.
    #[n(2)]
    pub time: Time,
}

impl Array {
    /// Returns the id of the task with this index; None: the array has no such task.
    pub fn task_id(&self, array: JobId, index: u32) -> Option<JobId> {
        let indices = &self.tasks.indices;
        indices.contains(index).then(|| self.tasks.task_id(array, indices.rank(index)))
    }
    /// Returns the index of the task with this id; None: the id is not one of the array's tasks.
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
    /// Counts a task with this index as ended.
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
    /// Counts untouched tasks as ended, all with the same outcome. Returns the number of them.
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
    /// Returns the entry of tasks that ended without starting which contains this index; None: the task is not among
    /// them.
    pub fn skipped(&self, index: u32) -> Option<&Skipped> {
        self.skipped.iter().find(|skipped| skipped.tasks.contains(index))
    }
    /// Counts a task as not ended, as it is requeued.
    pub(crate) fn uncount_end(&mut self, index: u32) {
        let was = self.ok.remove(index) | self.bad.remove(index);
        self.ended -= u32::from(was);
    }
}
