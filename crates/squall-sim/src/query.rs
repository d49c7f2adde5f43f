//! Queries of all nodes (COMPARE-AND-WRITE) by simulated operators.

use squall_model::time::Span;
use squall_model::wire::client::Request;
use squall_model::wire::fabric::{Comparison, Test, Variable};

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

    /// Returns the request for the query of these nodes.
    pub(crate) fn request(&self, names: &[String]) -> Request {
        let Self { test, wait, write, time, .. } = self.clone();
        let nodes = squall_model::hostlist::compress(names);
        Request::QueryNodes { nodes, test, wait, write, time_ms: time.0 / 1000 }
    }
}
