//! STORM's COMPARE-AND-WRITE for clients: tests a condition on a set of nodes, and writes if it holds on all.

use squall_model::hostlist;
use squall_model::set::NodeSet;
use squall_model::time::Span;
use squall_model::wire::client::Refusal;
use squall_model::wire::fabric::{Test, Variable};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::effects::queries;
use crate::control::net::queries::{Question, Write};

/// Longest timeout that a client may set for a query, milliseconds.
const TIME_MS_MAX: u64 = 3_600_000;

/// Sends a query to nodes. The answer comes when all nodes have answered or the timeout is over.
pub(crate) fn query_nodes(
    c: &mut Controller,
    ask: &Ask<'_>,
    nodes: &str,
    (test, wait): (Test, bool),
    write: Option<(Variable, i64)>,
    time_ms: u64,
) -> Reply {
    let to = if nodes.is_empty() { c.links.connected().clone() } else { named(c, nodes)? };
    let write = write.map(|(variable, value)| Write { variable, value, done: false });
    let time = Span::from_millis(time_ms.min(TIME_MS_MAX));
    queries::ask(c, ask.now, Question { caller: ask.caller, to, test, wait, write, time });
    Ok(None)
}

/// Returns the nodes of a host list. A name that no node has is refused.
pub(crate) fn named(c: &Controller, nodes: &str) -> Result<NodeSet, Refusal> {
    let invalid = |problem: String| Refusal::InvalidValue { option: "nodes".into(), value: nodes.to_owned(), problem };
    let names = hostlist::expand_within(nodes, c.state.nodes.len()).map_err(|e| invalid(e.to_string()))?;
    let ids = names.iter().map(|name| c.state.node_id(name).ok_or_else(|| invalid(format!("there is no node {name}"))));
    ids.collect()
}
