//! Queries sent to nodes and not answered yet: heartbeats, and questions of clients.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use squall_model::id::{Incarnation, NodeId};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Answer;
use squall_model::wire::counts::NodeCounts;
use squall_model::wire::fabric::{Tally, Test, Variable};

use crate::control::net::broadcasts::Stage;
use crate::control::port::{CallerId, LinkId};

/// Queries sent to nodes and not answered yet, and the counters of heartbeats.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    pub(crate) asked: BTreeMap<u64, OpenQuery>,
    /// Clients' questions that write a value and wait until the writing query before is complete.
    pub(crate) waiting: VecDeque<Question>,
    pub(crate) writing: bool,
    pub(crate) next_beat: Option<Time>,
    /// When the next heartbeat or the end of a wait for answers is due, as of the last turn. A controller that comes later
    /// did not run meanwhile. None: nothing is due.
    pub(crate) due: Option<Time>,
    pub(crate) beats: u64,
    /// Numbers of the latest heartbeats, the newest last. An answer to one of these counts for the node's fence.
    pub(crate) recent: VecDeque<u64>,
    /// The nodes that have answered these since the last heartbeat was sent, by number. The next one says so.
    pub(crate) answers: BTreeMap<u64, NodeSet>,
    /// By node: when the latest message left that acknowledges something that the node has sent. The terms of its fences end
    /// no later than their length after that.
    pub(crate) proven: BTreeMap<NodeId, Time>,
    pub(crate) missed: BTreeMap<NodeId, u32>,
    /// By node: when its session began, and when the latest heartbeat was sent that the node answered in that session;
    /// None: it answered none yet.
    pub(crate) beaten: BTreeMap<NodeId, (Time, Option<Time>)>,
    /// By node: what of its daemon's counters is in the sum, [`Diag::node_daemons`].
    ///
    /// [`Diag::node_daemons`]: squall_model::wire::info::Diag::node_daemons
    pub(crate) counted: BTreeMap<NodeId, Counted>,
}

/// The highest counters that a run of a node daemon has reported.
#[derive(Debug)]
pub(crate) struct Counted {
    /// The run: incarnation of the node, and the daemon's number in it.
    pub(crate) run: (Incarnation, u64),
    pub(crate) counts: NodeCounts,
}

#[derive(Debug)]
pub(crate) struct OpenQuery {
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
    /// A heartbeat: shows which nodes respond.
    Beat,
    /// A client's question; the client gets the answer.
    Client(Question),
    /// A broadcast: the connection of its client, the number of its attempt, and the stage that the query belongs to.
    Broadcast(CallerId, u64, Stage),
    /// Measurement of the clock skew between nodes, for gang scheduling.
    Skew,
    /// Measurement of the resources that a step uses; the client on this connection gets the answer.
    Measure(CallerId),
    /// A query whether nodes have acknowledged an order. The client on this connection gets the given answer when they
    /// have.
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
    /// Whether a node waits with its answer until the test holds or the timeout is over.
    pub(crate) wait: bool,
    /// The value that is written to all nodes if the test holds on all of them; None: nothing is written.
    pub(crate) write: Option<Write>,
    /// Time after which the question is answered without the nodes that have not answered.
    pub(crate) time: Span,
}

/// A value that a client's question writes to nodes.
#[derive(Debug)]
pub(crate) struct Write {
    /// The variable that is written.
    pub(crate) variable: Variable,
    /// The value that is written.
    pub(crate) value: i64,
    /// Whether the write was sent. Nodes are then asked whether they have the value.
    pub(crate) done: bool,
}
