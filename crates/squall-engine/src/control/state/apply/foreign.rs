//! Answers of other cells about their jobs, kept as long as jobs of this cell depend on those.

use squall_model::foreign::{Named, Question, Reply};
use squall_model::id::JobId;
use squall_model::time::Time;

use crate::control::state::State;

impl State {
    /// Records answers of other cells. The first answer to a question counts; a different one comes only from a cell
    /// that was restored from an old journal.
    pub(super) fn foreign_resolved(&mut self, replies: &[(Question, Reply)]) {
        for (question, reply) in replies {
            self.foreign.entry(question.clone()).or_insert(*reply);
        }
    }

    /// Drops the answers about a job of another cell when no job here depends on it any more.
    pub(super) fn forget_foreign(&mut self, id: JobId) {
        let named = |index| Named { id, index };
        let ends = [None, Some(u32::MAX)].map(named);
        self.forget_between(Question::Started(ends[0]), Question::Started(ends[1]));
        self.forget_between(Question::Ended(ends[0]), Question::Ended(ends[1]));
    }

    /// Drops other cells' answers about the `singleton` dependency of a job of this cell, which no longer waits for
    /// them.
    pub(super) fn forget_alone(&mut self, job: JobId) {
        let question = |job, submit| Question::Alone { job, uid: 0, name: String::new(), submit };
        let next = JobId(job.0.saturating_add(1));
        self.forget_between(question(job, Time(0)), question(next, Time(0)));
    }

    fn forget_between(&mut self, first: Question, last: Question) {
        let known: Vec<Question> = self.foreign.range(first..=last).map(|(question, _)| question.clone()).collect();
        for question in known {
            self.foreign.remove(&question);
        }
    }
}
