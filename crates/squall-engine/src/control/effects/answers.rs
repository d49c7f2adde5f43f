//! Nodes' answers to queries: heartbeats, results, and the answers to clients that follow from them.

use crate::control::controller::Controller;
use crate::control::effects::broadcasts;
use crate::control::effects::fence;
use crate::control::effects::gang;
use crate::control::effects::nodes;
use crate::control::effects::notice;
use crate::control::effects::queries::felt;
use crate::control::effects::queries::send;
use crate::control::effects::queries::{ask, beat_wait, pose};
use crate::control::net::queries::OpenQuery;
use crate::control::net::queries::Purpose;
use crate::control::net::queries::Question;
use crate::control::port::{LinkId, Out};
use crate::invariant::invariant;
use squall_model::id::{Epoch, NodeId};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Answer;
use squall_model::wire::fabric::{Comparison, Tally, Test, Variable};
use squall_model::wire::node::Down;

/// Handles the answer that a child in the tree sends to a query, merged from the nodes below it. A late answer still
/// shows that the node responds, so a slow node is not given up.
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
    if c.queries.recent.contains(&number) {
        c.queries.answers.entry(number).or_default().union_with(&tally.answered());
    }
    let late = c.queries.asked.get_mut(&number).is_none_or(|asked| {
        // To a heartbeat also those nodes count that are late for their relay's answer.
        if asked.children.remove(&link) || matches!(asked.purpose, Purpose::Beat) {
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

/// Records that a node has answered a query, whether its session still lasts or has ended.
fn seen(c: &mut Controller, now: Time, node: NodeId, out: &mut Out) {
    if c.links.connected().contains(node) {
        nodes::heard(c, now, node, out);
    } else {
        nodes::glimpsed(c, now, node);
    }
}

/// Sends heartbeats that are due, and completes queries that are answered or have timed out.
pub(crate) fn settle(c: &mut Controller, now: Time, out: &mut Out) {
    let beat = c.state.config.beat();
    let due = *c.queries.next_beat.get_or_insert(now + beat);
    if due <= now {
        c.queries.next_beat = Some(now + beat);
        let to = c.links.connected().clone();
        c.queries.beats += 1;
        if !to.is_empty() {
            let test = Test { variable: Variable::Heard, comparison: Comparison::AtLeast, value: 0 };
            send(c, now, to, (test, false), beat_wait(c), Purpose::Beat);
        }
    }
    let complete = |asked: &OpenQuery| asked.children.is_empty() || asked.until <= now;
    while let Some(number) = c.queries.asked.iter().find(|(_, asked)| complete(asked)).map(|(&number, _)| number) {
        let Some(asked) = c.queries.asked.remove(&number) else {
            invariant!("a query that was found is open");
            continue;
        };
        match asked.purpose {
            Purpose::Beat => beaten(c, now, (&asked.to, &asked.tally, asked.until), out),
            Purpose::Broadcast(caller, turn, stage) => {
                broadcasts::answered(c, now, (caller, turn, stage), (&asked.to, &asked.tally), out);
            }
            Purpose::Measure(caller) => {
                let silent = asked.to.len().saturating_sub(asked.tally.yes.len()) as u32;
                let used = asked.tally.used.map(|used| *used).unwrap_or_default();
                out.answers.push((caller, Answer::Measured(used, silent, asked.tally.series)));
            }
            Purpose::Answer(caller, answer) => out.answers.push((caller, *answer)),
            Purpose::Skew => gang::answered(c, (&asked.to, &asked.tally)),
            Purpose::Client(question) => answer(c, now, question, (&asked.tally, asked.until.since(now)), out),
        }
    }
}

/// Returns when [`settle`] must be called again; None: no heartbeat or query is pending.
pub(crate) fn deadline(c: &Controller) -> Option<Time> {
    c.queries.asked.values().map(|asked| asked.until).chain(c.queries.next_beat).min()
}

/// Completes a heartbeat. A node that did not answer has missed the heartbeat, unless the node has reported by another
/// route since the heartbeat was sent.
fn beaten(c: &mut Controller, now: Time, (to, tally, until): (&NodeSet, &Tally, Time), out: &mut Out) {
    let (answered, sent) = (tally.answered(), until - beat_wait(c));
    for (node, health) in &tally.health {
        felt(c, *node, health);
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
            // A node that is alive and slow begins a new session at once: without a session it would not be asked any more,
            // and notice that much later.
            if let Some(link) = c.links.link_of(node) {
                c.links.rouse(link, node);
            }
            c.links.forget(node);
            fence::watch(c, node);
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

/// Number of missed heartbeats in a row after which a node's session ends.
const MISSED_MAX: u32 = 2;
