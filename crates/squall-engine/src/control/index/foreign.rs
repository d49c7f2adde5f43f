//! What is open between this cell and others.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::foreign::{Question, Reply};
use squall_model::id::JobId;
use squall_model::time::Time;

use crate::control::port::CallerId;

/// What is open between this cell and others.
#[derive(Debug, Default)]
pub(crate) struct Foreign {
    /// Fronts that carry questions and answers.
    pub(crate) fronts: BTreeSet<CallerId>,
    /// Questions of this cell that were not answered. Some may be nobody's any more.
    pub(crate) open: BTreeSet<Question>,
    /// Questions of others by what decides them, and who waits for the answers.
    pub(crate) asked: BTreeMap<About, BTreeMap<Question, BTreeSet<CallerId>>>,
    /// Who has asked any of them.
    pub(crate) askers: BTreeSet<CallerId>,
    /// Answers that leave at the end of this turn.
    pub(crate) ready: BTreeMap<CallerId, Vec<(Question, Reply)>>,
    /// Then questions about names are looked at again, whatever happens.
    pub(crate) again: Option<Time>,
}

/// What decides a question.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum About {
    /// A job, or an array and all of its tasks.
    Job(JobId),
    /// All jobs of a user and name.
    Name(u32, String),
}

impl Foreign {
    /// A connection has ended.
    pub(crate) fn hangup(&mut self, caller: CallerId) {
        self.fronts.remove(&caller);
        if !self.askers.remove(&caller) {
            return;
        }
        for questions in self.asked.values_mut() {
            for callers in questions.values_mut() {
                callers.remove(&caller);
            }
            questions.retain(|_, callers| !callers.is_empty());
        }
        self.asked.retain(|_, questions| !questions.is_empty());
    }

    /// A job may have another name now.
    pub(crate) fn renamed(&mut self) {
        if !self.asked.is_empty() {
            self.again = Some(Time(0));
        }
    }
}
