//! Queries of the controller to nodes: heartbeats, and clients' questions.
//!
//! A query that writes is complete before the next such query is sent. So after two that write different values all
//! nodes have the same one. It is answered when all nodes have the written value, so that the client can rely on it; a
//! node that was lost on the way is named.

use std::collections::BTreeMap;

use crate::control::net::queries::Purpose;
use crate::control::net::queries::Question;
use crate::control::net::queries::{Counted, OpenQuery};

use squall_model::id::{Epoch, NodeId};
use squall_model::limits::SPACE_MB_MAX;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::counts::NodeCounts;
use squall_model::wire::fabric::{Comparison, Health, Query, Tally, Test, Variable};
use squall_model::wire::node::Registration;

use crate::control::controller::Controller;
use crate::control::port::{CallerId, LinkId};

/// Returns the timeout of the nodes' answer to a heartbeat.
pub(crate) fn beat_wait(c: &Controller) -> Span {
    Span(c.state.config.beat().0 / 2)
}

/// Time between two reports of load, memory and counters, which nodes make in answers to heartbeats: at every third one if
/// these come every 10 s.
const HEALTH_EVERY: Span = Span::from_secs(30);

/// Number of heartbeats of which an answer counts for the node's fence, however late it is.
const RECENT_BEATS: usize = 4;

/// Sends a client's question, or queues it behind the writing query that is under way.
pub(crate) fn ask(c: &mut Controller, now: Time, question: Question) {
    if question.write.is_some() && c.queries.writing {
        return c.queries.waiting.push_back(question);
    }
    c.queries.writing |= question.write.is_some();
    let time = question.time;
    pose(c, now, question, time);
}

pub(crate) fn pose(c: &mut Controller, now: Time, question: Question, time: Span) {
    let (test, wait) = (question.test.clone(), question.wait);
    send(c, now, question.to.clone(), (test, wait), time, Purpose::Client(question));
}

/// Sends a query to nodes.
pub(crate) fn send(
    c: &mut Controller,
    now: Time,
    to: NodeSet,
    (test, wait): (Test, bool),
    time: Span,
    purpose: Purpose,
) {
    let every = HEALTH_EVERY.0 / c.state.config.beat().0.max(1);
    let health = matches!(purpose, Purpose::Beat) && c.queries.beats.is_multiple_of(every);
    // The nodes' timeout ends before the controller's, so that partial answers arrive in time.
    let variable = test.variable.clone();
    let is_beat = matches!(purpose, Purpose::Beat);
    let answers = if is_beat { std::mem::take(&mut c.queries.answers) } else { BTreeMap::new() };
    // Nodes to which this does not go learn of no acknowledgement.
    let heard: Vec<(u64, NodeSet)> = answers.into_iter().map(|(beat, nodes)| (beat, nodes.intersection(&to))).collect();
    for node in heard.iter().flat_map(|(_, nodes)| nodes.iter()) {
        c.queries.proven.insert(node, now);
    }
    let time_us = time.0 / 8 * 7;
    let query = Query { epoch: Epoch(0), number: 0, to: to.clone(), test, wait, time_us, health, heard };
    let (number, children) = c.links.ask(query);
    if is_beat {
        c.queries.recent.push_back(number);
        while c.queries.recent.len() > RECENT_BEATS {
            c.queries.recent.pop_front();
        }
    }
    let children = children.into_iter().collect();
    let asked = OpenQuery { to, children, tally: Tally::default(), variable, until: now + time, purpose };
    c.queries.asked.insert(number, asked);
}

/// Records the begin of a node's session. Returns the time when the latest heartbeat was sent that the node answered in
/// its session before; None: it answered none. As messages arrive in order, the node received everything that was sent
/// before that time.
pub(crate) fn registered(c: &mut Controller, now: Time, node: NodeId) -> Option<Time> {
    c.queries.proven.insert(node, now);
    c.queries.beaten.insert(node, (now, None)).and_then(|(_, until)| until)
}

/// Records the run of the node daemon that has registered, so that its counters are added up. Of a daemon that this run
/// of the controller did not know only what it counts from now on is added: a sum that begins with the counters of all
/// nodes would rise by those whenever the controller starts. The registration of an earlier run may come late, and
/// changes nothing.
pub(crate) fn met(c: &mut Controller, node: NodeId, said: &Registration) {
    let run = (said.incarnation, said.health.run);
    let known = c.queries.counted.get(&node);
    if known.is_none_or(|known| known.run.0 != run.0 || known.run.1 < run.1) {
        let counts = if known.is_none() { said.health.counts } else { NodeCounts::default() };
        c.queries.counted.insert(node, Counted { run, counts });
    }
}

/// Records a node's load and free memory as the node reported them, and adds what its daemon has counted since its last
/// report. Reports may be repeated or overtake each other.
pub(crate) fn felt(c: &mut Controller, node: NodeId, health: &Health) {
    if let Some(member) = c.links.get_mut(node) {
        (member.load_centi, member.free_mb) = (health.load_centi, health.free_mb.min(SPACE_MB_MAX));
    }
    if let Some(known) = c.queries.counted.get_mut(&node).filter(|known| known.run.1 == health.run) {
        c.diag.node_daemons = c.diag.node_daemons.plus(&health.counts, &known.counts);
        known.counts.raise(&health.counts);
    }
}

/// Stops waiting for the query answers of a child in the tree after its connection has ended.
pub(crate) fn child_closed(c: &mut Controller, link: LinkId) {
    for asked in c.queries.asked.values_mut() {
        asked.children.remove(&link);
    }
}

/// Drops the questions of a client after its connection has ended.
pub(crate) fn hangup(c: &mut Controller, caller: CallerId) {
    c.queries.waiting.retain(|question| question.caller != caller);
}

/// Timeout for the nodes' acknowledgement that they have received the end of a job or step. Connected nodes acknowledge
/// sooner.
const HEEDED_WAIT: Span = Span::from_secs(2);

/// Sends the answers to requests that ended jobs or steps during their launch. Each answer waits until the nodes have
/// acknowledged the end, so that no task begins after it. A timeout ends the wait.
pub(crate) fn answer_when_heeded(c: &mut Controller, now: Time) {
    for (caller, answer, nodes) in std::mem::take(&mut c.todo.heeded) {
        let test = Test { variable: Variable::Unheeded, comparison: Comparison::Equal, value: 0 };
        send(c, now, nodes, (test, true), HEEDED_WAIT, Purpose::Answer(caller, Box::new(answer)));
    }
}
