//! Open questions between this cell and others.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::foreign::{Question, Reply};
use squall_model::id::JobId;
use squall_model::time::Time;

use crate::control::port::CallerId;

/// Open questions between this cell and others, and the connections of fronts (gateways) that carry them.
#[derive(Debug, Default)]
pub(crate) struct Foreign {
    /// Connections of fronts, which carry questions and answers between cells.
    pub(crate) fronts: BTreeSet<CallerId>,
    /// Questions of this cell that are not answered. For some of them the job that needed the answer may be gone.
    pub(crate) open: BTreeSet<Question>,
    /// Questions of other cells: by the jobs that decide the answer, then by question, with the connections that get
    /// the answer.
    pub(crate) asked: BTreeMap<About, BTreeMap<Question, BTreeSet<CallerId>>>,
    /// Connections that have sent a question of another cell.
    pub(crate) askers: BTreeSet<CallerId>,
    /// Answers to send at the end of this turn, by the connection that gets them.
    pub(crate) ready: BTreeMap<CallerId, Vec<(Question, Reply)>>,
    /// When other cells' questions about job names are next evaluated, even if no job changes before. None: not set.
    pub(crate) again: Option<Time>,
}

/// The jobs of this cell that decide the answer to a question.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum About {
    /// A job, or an array and all of its tasks.
    Job(JobId),
    /// All jobs of one user (uid) with one name.
    Name(u32, String),
}

impl Foreign {
    /// Drops a connection that has ended, and other cells' questions that came on it.
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

    /// Makes questions about job names be evaluated again, as a job was renamed.
    pub(crate) fn renamed(&mut self) {
        if !self.asked.is_empty() {
            self.again = Some(Time(0));
        }
    }
}
