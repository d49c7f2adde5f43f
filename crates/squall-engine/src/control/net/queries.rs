//! Queries under way: heartbeats, and questions of clients to nodes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use squall_model::id::NodeId;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Answer;
use squall_model::wire::fabric::{Tally, Test, Variable};

use crate::control::net::broadcasts::Stage;
use crate::control::port::{CallerId, LinkId};

/// Queries under way, and the counters of heartbeats.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    pub(crate) asked: BTreeMap<u64, Asked>,
    /// Queries that write and wait until the one before is complete.
    pub(crate) waiting: VecDeque<Question>,
    pub(crate) writing: bool,
    pub(crate) next_beat: Option<Time>,
    pub(crate) beats: u64,
    pub(crate) missed: BTreeMap<NodeId, u32>,
    /// For each node: when its session began, and when the latest heartbeat was sent that it answered in that session.
    pub(crate) beaten: BTreeMap<NodeId, (Time, Option<Time>)>,
}

#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) to: NodeSet,
    pub(crate) children: BTreeSet<LinkId>,
    pub(crate) tally: Tally,
    pub(crate) variable: Variable,
    pub(crate) until: Time,
    pub(crate) purpose: Purpose,
}

/// The purpose of a query, which decides what is done with the answer.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A heartbeat.
    Beat,
    /// A client's question.
    Client(Question),
    /// A broadcast: its client's connection, its attempt, and the stage that the query is about.
    Broadcast(CallerId, u64, Stage),
    /// Measurement of the clock skew between nodes, for gang scheduling.
    Skew,
    /// Measurement of what a step uses, for a client.
    Measure(CallerId),
    /// An answer that the client gets when the nodes have acknowledged an order.
    Answer(CallerId, Box<Answer>),
}

/// A client's question to nodes.
#[derive(Debug)]
pub(crate) struct Question {
    /// The client's connection.
    pub(crate) caller: CallerId,
    /// The nodes that are asked.
    pub(crate) to: NodeSet,
    /// The test that each node makes.
    pub(crate) test: Test,
    /// Whether nodes answer only when the test holds or time is up.
    pub(crate) wait: bool,
    /// The value that is written to all nodes if the test holds on all of them.
    pub(crate) write: Option<Write>,
    /// Timeout of the question.
    pub(crate) time: Span,
}

/// A value that a question writes.
#[derive(Debug)]
pub(crate) struct Write {
    /// The variable that is written.
    pub(crate) variable: Variable,
    /// The value that is written.
    pub(crate) value: i64,
    /// Whether the write was sent, so that nodes are now asked whether they have it.
    pub(crate) done: bool,
}
