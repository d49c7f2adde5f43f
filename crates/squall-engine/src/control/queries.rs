//! Queries of the controller: heartbeats, and what clients ask of the nodes.
//!
//! A query that writes where it holds is answered before the next such query is asked: of two that differ in the value
//! only, all nodes end with the same one. It is answered when all nodes have what was written: who is told so may rely
//! on it, and a node that was lost on the way is named.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use squall_model::id::{Epoch, NodeId};
use squall_model::limits::HEARTBEAT_S;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Answer;
use squall_model::wire::fabric::{Comparison, Health, Query, Tally, Test, Variable};
use squall_model::wire::node::Down;

use super::broadcasts::{self, Stage};
use super::drive::{gang, nodes, notice};
use super::{CallerId, Controller, LinkId, Out};

/// How long nodes have to answer a heartbeat.
const BEAT_WAIT: Span = Span::from_secs(HEARTBEAT_S / 2);

/// Heartbeats that a node may miss before its session is over.
const MISSED_MAX: u32 = 2;

/// At every third heartbeat nodes say how they feel.
const HEALTH_BEATS: u64 = 3;

/// Queries under way.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    asked: BTreeMap<u64, Asked>,
    /// Queries that write, and wait for the one before them.
    waiting: VecDeque<Question>,
    writing: bool,
    next_beat: Option<Time>,
    beats: u64,
    missed: BTreeMap<NodeId, u32>,
    /// When each node's session began, and when the last heartbeat was sent that it answered since.
    beaten: BTreeMap<NodeId, (Time, Option<Time>)>,
}

#[derive(Debug)]
struct Asked {
    to: NodeSet,
    children: BTreeSet<LinkId>,
    tally: Tally,
    variable: Variable,
    until: Time,
    purpose: Purpose,
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

/// Asks for a client, now or when the writing query before has been answered.
pub(crate) fn ask(c: &mut Controller, now: Time, question: Question) {
    if question.write.is_some() && c.queries.writing {
        return c.queries.waiting.push_back(question);
    }
    c.queries.writing |= question.write.is_some();
    let time = question.time;
    pose(c, now, question, time);
}

fn pose(c: &mut Controller, now: Time, question: Question, time: Span) {
    let (test, wait) = (question.test.clone(), question.wait);
    send(c, now, question.to.clone(), (test, wait), time, Purpose::Client(question));
}

/// Asks nodes.
pub(crate) fn send(
    c: &mut Controller,
    now: Time,
    to: NodeSet,
    (test, wait): (Test, bool),
    time: Span,
    purpose: Purpose,
) {
    let health = matches!(purpose, Purpose::Beat) && c.queries.beats.is_multiple_of(HEALTH_BEATS);
    // The nodes' time is up before ours, so that what they know by then arrives.
    let variable = test.variable.clone();
    let query = Query { epoch: Epoch(0), number: 0, to: to.clone(), test, wait, time_us: time.0 / 8 * 7, health };
    let (number, children) = c.links.ask(query);
    let children = children.into_iter().collect();
    let asked = Asked { to, children, tally: Tally::default(), variable, until: now + time, purpose };
    c.queries.asked.insert(number, asked);
}

/// A child's answer. One that comes too late says at least who lives: slow is not dead.
pub(crate) fn tally(
    c: &mut Controller,
    now: Time,
    link: LinkId,
    (epoch, number): (Epoch, u64),
    tally: &Tally,
    out: &mut Out,
) {
    if epoch != c.state.epoch {
        return;
    }
    let late = c.queries.asked.get_mut(&number).is_none_or(|asked| {
        if asked.children.remove(&link) {
            asked.tally.merge(&asked.variable, tally);
        }
        false
    });
    for node in tally.answered().iter() {
        if late {
            c.queries.missed.remove(&node);
        }
        let is_over = !c.links.connected().contains(node);
        if late || is_over {
            seen(c, now, node, out);
        }
        if is_over {
            c.links.rouse(link, node);
        }
    }
}

/// A node has answered, in its session or after its end.
fn seen(c: &mut Controller, now: Time, node: NodeId, out: &mut Out) {
    if c.links.connected().contains(node) {
        nodes::heard(c, now, node, out);
    } else {
        nodes::glimpsed(c, now, node);
    }
}

/// A node's session begins. Gives until when the session before was in order: the node took all that was sent to it earlier,
/// for what is sent comes in order, and a heartbeat after it was answered.
pub(crate) fn registered(c: &mut Controller, now: Time, node: NodeId) -> Option<Time> {
    c.queries.beaten.insert(node, (now, None)).and_then(|(_, until)| until)
}

/// A node says how it feels.
pub(crate) fn felt(c: &mut Controller, node: NodeId, health: Health) {
    if let Some(member) = c.links.get_mut(node) {
        (member.load_centi, member.free_mb) = (health.load_centi, health.free_mb);
    }
}

/// A child's connection has ended: it will not answer.
pub(crate) fn child_closed(c: &mut Controller, link: LinkId) {
    for asked in c.queries.asked.values_mut() {
        asked.children.remove(&link);
    }
}

/// A client's connection has ended: nobody waits for its answers.
pub(crate) fn hangup(c: &mut Controller, caller: CallerId) {
    c.queries.waiting.retain(|question| question.caller != caller);
}

/// Sends heartbeats, gives answers.
pub(crate) fn settle(c: &mut Controller, now: Time, out: &mut Out) {
    let due = *c.queries.next_beat.get_or_insert(now + Span::from_secs(HEARTBEAT_S));
    if due <= now {
        c.queries.next_beat = Some(now + Span::from_secs(HEARTBEAT_S));
        let to = c.links.connected().clone();
        c.queries.beats += 1;
        if !to.is_empty() {
            let test = Test { variable: Variable::Heard, comparison: Comparison::AtLeast, value: 0 };
            send(c, now, to, (test, false), BEAT_WAIT, Purpose::Beat);
        }
    }
    let complete = |asked: &Asked| asked.children.is_empty() || asked.until <= now;
    while let Some(number) = c.queries.asked.iter().find(|(_, asked)| complete(asked)).map(|(&number, _)| number) {
        let Some(asked) = c.queries.asked.remove(&number) else { continue };
        match asked.purpose {
            Purpose::Beat => beaten(c, now, (&asked.to, &asked.tally, asked.until), out),
            Purpose::Broadcast(caller, turn, stage) => {
                broadcasts::answered(c, now, (caller, turn, stage), (&asked.to, &asked.tally), out);
            }
            Purpose::Measure(caller) => {
                let silent = asked.to.len().saturating_sub(asked.tally.yes.len()) as u32;
                let used = asked.tally.used.map(|used| *used).unwrap_or_default();
                out.answers.push((caller, Answer::Measured(used, silent)));
            }
            Purpose::Answer(caller, answer) => out.answers.push((caller, *answer)),
            Purpose::Skew => gang::answered(c, (&asked.to, &asked.tally)),
            Purpose::Client(question) => answer(c, now, question, (&asked.tally, asked.until.since(now)), out),
        }
    }
}

/// When [`settle`] must be called again.
pub(crate) fn deadline(c: &Controller) -> Option<Time> {
    c.queries.asked.values().map(|asked| asked.until).chain(c.queries.next_beat).min()
}

/// A heartbeat has been answered, or its time is up: who is silent has missed it, but for those who have come back on
/// another way since it was sent.
fn beaten(c: &mut Controller, now: Time, (to, tally, until): (&NodeSet, &Tally, Time), out: &mut Out) {
    let (answered, sent) = (tally.answered(), until - BEAT_WAIT);
    for (node, health) in &tally.health {
        felt(c, *node, *health);
    }
    for node in to.iter() {
        if answered.contains(node) {
            c.queries.missed.remove(&node);
            if let Some((_, until)) = c.queries.beaten.get_mut(&node).filter(|(since, _)| *since < sent) {
                *until = Some(sent);
            }
            seen(c, now, node, out);
            continue;
        }
        if c.links.get(node).is_none() || c.links.heard(node).is_some_and(|heard| heard >= sent) {
            c.queries.missed.remove(&node);
            continue;
        }
        let missed = c.queries.missed.entry(node).or_default();
        *missed += 1;
        if *missed >= MISSED_MAX {
            c.queries.missed.remove(&node);
            c.links.forget(node);
            notice::refresh(c, node);
        }
    }
}

fn answer(c: &mut Controller, now: Time, mut question: Question, (tally, left): (&Tally, Span), out: &mut Out) {
    let mut unreachable = question.to.clone();
    unreachable.subtract(&tally.answered());
    let all = unreachable.is_empty() && tally.no.is_empty();
    if let Some(write) = &mut question.write {
        if all && !std::mem::replace(&mut write.done, true) {
            let (variable, value) = (write.variable.clone(), write.value);
            c.links.put(&question.to, Down::Write { variable: variable.clone(), value });
            question.test = Test { variable, comparison: Comparison::Equal, value };
            question.wait = true;
            return pose(c, now, question, left);
        }
        c.queries.writing = false;
        if let Some(next) = c.queries.waiting.pop_front() {
            ask(c, now, next);
        }
    }
    let names = |set: &NodeSet| set.iter().filter_map(|node| Some(c.state.node(node)?.name.clone())).collect();
    out.answers.push((question.caller, Answer::Queried { no: names(&tally.no), unreachable: names(&unreachable) }));
}
