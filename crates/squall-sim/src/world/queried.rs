//! Answers to queries of all nodes.

use squall_model::wire::client::Answer;
use squall_model::wire::fabric::{Comparison, Test};

use crate::query::Question;
use crate::world::World;

impl World {
    /// Handles the answer to a query.
    pub(crate) fn queried(&mut self, call: usize, question: &Question, answer: &Answer) {
        if let Answer::Queried { no, unreachable } = answer {
            let others: Vec<String> = no.iter().chain(unreachable).cloned().collect();
            let times = (self.clients.asked_at(call), self.now);
            self.judge.told_so(times, &others, &question.test);
            if let Some((variable, value)) = question.write.clone().filter(|_| others.is_empty()) {
                self.judge.told_so(times, &others, &Test { variable, comparison: Comparison::Equal, value });
            }
            self.clients.told.insert(question.name.clone(), (no.clone(), unreachable.clone()));
        }
        self.content(call);
    }
}
