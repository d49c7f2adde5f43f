//! Queries under way: heartbeats, and what clients ask of the nodes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use squall_model::id::NodeId;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Answer;
use squall_model::wire::fabric::{Tally, Test, Variable};

use crate::control::net::broadcasts::Stage;
use crate::control::port::{CallerId, LinkId};

/// Queries under way.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    pub(crate) asked: BTreeMap<u64, Asked>,
    /// Queries that write, and wait for the one before them.
    pub(crate) waiting: VecDeque<Question>,
    pub(crate) writing: bool,
    pub(crate) next_beat: Option<Time>,
    pub(crate) beats: u64,
    pub(crate) missed: BTreeMap<NodeId, u32>,
    /// When each node's session began, and when the last heartbeat was sent that it answered since.
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

/// Who wants to know.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// It is a heartbeat.
    Beat,
    /// A client.
    Client(Question),
    /// A broadcast: whose, which turn of it, and what it is at.
    Broadcast(CallerId, u64, Stage),
    /// How far nodes are out of step.
    Skew,
    /// A client wants to know what a step uses.
    Measure(CallerId),
    /// A client gets this answer when the nodes have heard what it is about.
    Answer(CallerId, Box<Answer>),
}

/// What a client asks.
#[derive(Debug)]
pub(crate) struct Question {
    /// Who.
    pub(crate) caller: CallerId,
    /// Of which nodes.
    pub(crate) to: NodeSet,
    /// What.
    pub(crate) test: Test,
    /// Answer only when it holds, or time is up.
    pub(crate) wait: bool,
    /// What to write on all of them if it holds on all of them.
    pub(crate) write: Option<Write>,
    /// How long it may take.
    pub(crate) time: Span,
}

/// What a question writes.
#[derive(Debug)]
pub(crate) struct Write {
    /// Where to.
    pub(crate) variable: Variable,
    /// What.
    pub(crate) value: i64,
    /// It was written; now all are asked whether they have it.
    pub(crate) done: bool,
}
