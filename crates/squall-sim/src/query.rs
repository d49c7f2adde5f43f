//! Simulated queries of all nodes (COMPARE-AND-WRITE), and what their answers promise.

use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::fabric::{Comparison, Test, Variable};

use crate::world::World;

/// A query of all nodes by an operator.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Name of the query in a scenario.
    pub(crate) name: String,
    pub(crate) test: Test,
    pub(crate) wait: bool,
    pub(crate) write: Option<(Variable, i64)>,
    pub(crate) time: Span,
}

impl Question {
    /// Returns a query with a condition that holds on every node that can be reached.
    pub(crate) fn probe() -> Self {
        let test = Test { variable: Variable::Heard, comparison: Comparison::AtLeast, value: 0 };
        Self { name: String::new(), test, wait: false, write: None, time: Span::from_secs(5) }
    }
}

impl World {
    /// Returns the request for a query.
    pub(crate) fn query_request(&self, question: &Question) -> Request {
        let Question { test, wait, write, time, .. } = question.clone();
        let nodes = squall_model::hostlist::compress(&self.setup.names);
        Request::QueryNodes { nodes, test, wait, write, time_ms: time.0 / 1000 }
    }

    /// Handles the answer to a query that was sent at the time `asked`.
    pub(crate) fn queried(&mut self, asked: Time, question: &Question, answer: &Answer) {
        let Answer::Queried { no, unreachable } = answer else { return };
        let others: Vec<String> = no.iter().chain(unreachable).cloned().collect();
        let times = (asked, self.now);
        self.judge.told_so(times, &others, &question.test);
        if let Some((variable, value)) = question.write.clone().filter(|_| others.is_empty()) {
            self.judge.told_so(times, &others, &Test { variable, comparison: Comparison::Equal, value });
        }
        self.clients.told.insert(question.name.clone(), (no.clone(), unreachable.clone()));
    }
}
