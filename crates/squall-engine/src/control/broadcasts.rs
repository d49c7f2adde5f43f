//! Files to nodes: XFER-AND-SIGNAL of what comes in chunks.
//!
//! A file is known by its digest, and what nodes have is never sent. First they are asked who has it; those who lack it
//! are told to expect it and asked who takes it in (of nodes that share a disk one is enough); the client sends its
//! pieces, which go down the tree as they come; a query says how far all of them are, so that never more than a
//! window is under way; when a query says that all have all of it, it is committed on all. Who is slow or lost on the
//! way is left out of the window and gets everything again afterwards: no others wait for it until the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::id::Epoch;
use squall_model::job::Owner;
use squall_model::limits::{CHUNK_BYTES, CHUNK_WINDOW_BYTES};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, PlaceAt};
use squall_model::wire::fabric::{Bytes, Chunk, Comparison, ContentId, Holding, Tally, Test, Variable};
use squall_model::wire::node::{Down, Placement};

use super::queries::{self, Purpose};
use super::{CallerId, Controller, Out};

/// How long nodes may take for a piece of the work before it is tried again without or with them.
const STAGE_WAIT: Span = Span::from_secs(10);
/// How long all nodes may take for half a window before the slow ones are left for later.
const WINDOW_WAIT: Span = Span::from_secs(2);
/// How often what failed is tried again, and how long after the first failure; twice as long after each further one.
const ROUNDS: u32 = 6;
const PAUSE: Span = Span::from_millis(20);

/// Broadcasts under way, by the connection of who sends.
#[derive(Debug, Default)]
pub(crate) struct Broadcasts {
    all: BTreeMap<CallerId, Broadcast>,
    turns: u64,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Broadcast {
    pub(crate) content: ContentId,
    pub(crate) size: u64,
    pub(crate) shared: bool,
    pub(crate) to: NodeSet,
    /// Where to, and as whom.
    pub(crate) place: Option<(PlaceAt, Arc<Owner>)>,
    pub(crate) until: Option<Time>,
    stage: Stage,
    /// Tells answers to what was asked before a new beginning.
    turn: u64,
    /// Whom the chunks go to.
    receivers: NodeSet,
    /// Receivers that were too slow.
    late: NodeSet,
    /// All that ever were receivers.
    sent: NodeSet,
    /// How much has come from the client, how much of it the nodes were asked about, how much it may send.
    come: u64,
    asked: u64,
    wanted: u64,
    rounds: u32,
    resume: Option<Time>,
    placement: (Epoch, u64),
}

/// What the nodes are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Who has it?
    Known,
    /// Is everybody ready for it?
    Expected,
    /// Who takes it in?
    Opened,
    /// Has everybody got so much?
    Window(u64),
    /// Has everybody got all?
    Whole,
    /// Is it there on all that took it in?
    Committed,
    /// Is it there on all?
    Shared,
    /// Is it done, for better or worse?
    Placed,
}

impl Broadcast {
    pub(crate) fn new(content: ContentId, size: u64, shared: bool, to: NodeSet) -> Self {
        Self {
            content,
            size,
            shared,
            to,
            place: None,
            until: None,
            stage: Stage::Known,
            turn: 0,
            receivers: NodeSet::new(),
            late: NodeSet::new(),
            sent: NodeSet::new(),
            come: 0,
            asked: 0,
            wanted: 0,
            rounds: 0,
            resume: None,
            placement: (Epoch(0), 0),
        }
    }
}

/// A client brings a file. An earlier one on the same connection is given up.
pub(crate) fn begin(c: &mut Controller, now: Time, caller: CallerId, mut broadcast: Broadcast) {
    give_up(c, caller);
    c.broadcasts.turns += 1;
    broadcast.turn = c.broadcasts.turns;
    c.broadcasts.all.insert(caller, broadcast);
    question(c, now, caller, Stage::Known);
}

/// The client's connection has ended.
pub(crate) fn give_up(c: &mut Controller, caller: CallerId) {
    if let Some(broadcast) = c.broadcasts.all.remove(&caller) {
        c.links.put(&broadcast.to, Down::Abort { content: broadcast.content });
    }
}

/// A piece of the file.
pub(crate) fn chunk(c: &mut Controller, now: Time, caller: CallerId, at: u64, bytes: Bytes) {
    let Some(broadcast) = c.broadcasts.all.get_mut(&caller) else { return };
    let end = at.saturating_add(bytes.0.len() as u64);
    if at != broadcast.come || end > broadcast.wanted {
        return;
    }
    broadcast.come = end;
    let chunk = Chunk { to: broadcast.receivers.clone(), content: broadcast.content, at, bytes };
    c.links.chunk(&chunk);
    let broadcast = &c.broadcasts.all[&caller];
    if broadcast.come == broadcast.size {
        question(c, now, caller, Stage::Whole);
    } else if broadcast.come >= broadcast.asked + CHUNK_WINDOW_BYTES / 2 {
        question(c, now, caller, Stage::Window(broadcast.come));
    }
}

/// Tries again what is due to be tried again.
pub(crate) fn settle(c: &mut Controller, now: Time) {
    let due = c.broadcasts.all.iter_mut().filter(|(_, one)| one.resume.is_some_and(|at| at <= now));
    let due: Vec<CallerId> = due.map(|(&caller, _)| caller).collect();
    for caller in due {
        expect(c, now, caller);
    }
}

/// When [`settle`] must be called again.
pub(crate) fn deadline(c: &Controller) -> Option<Time> {
    c.broadcasts.all.values().filter_map(|one| one.resume).min()
}

fn question(c: &mut Controller, now: Time, caller: CallerId, stage: Stage) {
    let Some(one) = c.broadcasts.all.get_mut(&caller) else { return };
    let is = |holding: Holding| (Comparison::Equal, holding.value());
    let (to, variable, (comparison, value), wait) = match stage {
        Stage::Known => (&one.to, Variable::Content(one.content), is(Holding::Has), false),
        Stage::Expected => (&one.to, Variable::Content(one.content), (Comparison::AtLeast, 1), true),
        Stage::Opened => (&one.to, Variable::Content(one.content), is(Holding::Open), false),
        Stage::Window(bytes) => {
            one.asked = bytes;
            (&one.receivers, Variable::Taken(one.content), (Comparison::AtLeast, bytes as i64), true)
        }
        Stage::Whole => (&one.receivers, Variable::Content(one.content), is(Holding::Shadow), true),
        Stage::Committed => (&one.receivers, Variable::Content(one.content), is(Holding::Has), true),
        Stage::Shared => (&one.to, Variable::Content(one.content), is(Holding::Has), true),
        Stage::Placed => (&one.to, Variable::Placed(one.placement.0, one.placement.1), (Comparison::Equal, 1), true),
    };
    let limit = if matches!(stage, Stage::Window(_)) { WINDOW_WAIT } else { STAGE_WAIT };
    let left = one.until.map_or(limit, |until| until.since(now).max(Span::from_millis(1)));
    let (to, test, turn) = (to.clone(), Test { variable, comparison, value }, one.turn);
    if !matches!(stage, Stage::Window(_)) {
        one.stage = stage;
    }
    queries::send(c, now, to, (test, wait), left.min(limit), Purpose::Broadcast(caller, turn, stage));
}

/// The nodes' answer.
pub(crate) fn answered(
    c: &mut Controller,
    now: Time,
    (caller, turn, stage): (CallerId, u64, Stage),
    (to, tally): (&NodeSet, &Tally),
    out: &mut Out,
) {
    let Some(one) = c.broadcasts.all.get_mut(&caller).filter(|one| one.turn == turn) else { return };
    let mut missing = to.clone();
    missing.subtract(&tally.yes);
    if let Stage::Window(bytes) = stage {
        one.late.union_with(&missing);
        one.receivers.subtract(&missing);
        return want(one, caller, bytes + CHUNK_WINDOW_BYTES, out);
    }
    if stage != one.stage {
        return;
    }
    match stage {
        Stage::Known if missing.is_empty() => place(c, now, caller, out),
        Stage::Known => expect(c, now, caller),
        Stage::Opened if tally.yes.is_empty() => {
            one.receivers = one.to.clone();
            commit(c, now, caller);
        }
        Stage::Opened => {
            one.receivers = tally.yes.clone();
            one.sent.union_with(&tally.yes);
            one.late = NodeSet::new();
            (one.come, one.asked, one.wanted) = (0, 0, 0);
            if one.size == 0 {
                return question(c, now, caller, Stage::Whole);
            }
            want(one, caller, CHUNK_WINDOW_BYTES, out);
        }
        _ if !missing.is_empty() => again(c, now, caller, (missing, tally), out),
        Stage::Expected => question(c, now, caller, Stage::Opened),
        Stage::Whole if !one.late.is_empty() => {
            let late = std::mem::take(&mut one.late);
            again(c, now, caller, (late, tally), out);
        }
        Stage::Whole => commit(c, now, caller),
        Stage::Committed if one.receivers != one.to => {
            let order = Down::Expect { content: one.content, size: one.size, shared: one.shared };
            let to = one.to.clone();
            c.links.put(&to, order);
            question(c, now, caller, Stage::Shared);
        }
        Stage::Committed | Stage::Shared => place(c, now, caller, out),
        Stage::Placed => done(c, caller, None, out),
        Stage::Window(_) => {}
    }
}

fn want(one: &mut Broadcast, caller: CallerId, through: u64, out: &mut Out) {
    let (from, through) = (one.wanted, through.min(one.size));
    if through > from {
        one.wanted = through;
        out.answers.push((caller, Answer::Want { from, through, chunk_bytes: CHUNK_BYTES }));
    }
}

fn expect(c: &mut Controller, now: Time, caller: CallerId) {
    let Some(one) = c.broadcasts.all.get_mut(&caller) else { return };
    c.broadcasts.turns += 1;
    one.turn = c.broadcasts.turns;
    one.resume = None;
    let order = Down::Expect { content: one.content, size: one.size, shared: one.shared };
    c.links.put(&one.to, order);
    question(c, now, caller, Stage::Expected);
}

fn commit(c: &mut Controller, now: Time, caller: CallerId) {
    let one = &c.broadcasts.all[&caller];
    c.links.put(&one.to, Down::Commit { content: one.content });
    question(c, now, caller, Stage::Committed);
}

fn place(c: &mut Controller, now: Time, caller: CallerId, out: &mut Out) {
    let Some(one) = c.broadcasts.all.get_mut(&caller) else { return };
    let Some((at, owner)) = one.place.clone() else { return done(c, caller, None, out) };
    one.placement = c.links.next_number();
    let (epoch, number) = one.placement;
    let placement = Placement {
        epoch,
        number,
        content: one.content,
        owner: (*owner).clone(),
        path: at.path,
        mode: at.mode,
        modified: at.modified,
        replace: at.replace,
    };
    c.links.put(&one.to, Down::Place(Box::new(placement)));
    question(c, now, caller, Stage::Placed);
}

/// Some nodes are not as they should be: from the beginning with those, or an end of it.
fn again(c: &mut Controller, now: Time, caller: CallerId, (missing, tally): (NodeSet, &Tally), out: &mut Out) {
    let Some(one) = c.broadcasts.all.get_mut(&caller) else { return };
    let pause = Span(PAUSE.0 << one.rounds);
    one.rounds += 1;
    let late = one.until.is_some_and(|until| until <= now + pause);
    if one.stage == Stage::Placed || one.rounds >= ROUNDS || late {
        let error = tally.witness.map_or(0, |(_, value)| i32::try_from(-value).unwrap_or(0).max(0));
        return done(c, caller, Some((missing, error)), out);
    }
    one.resume = Some(now + pause);
}

fn done(c: &mut Controller, caller: CallerId, failed: Option<(NodeSet, i32)>, out: &mut Out) {
    let Some(one) = c.broadcasts.all.remove(&caller) else { return };
    let failed = failed.map(|(nodes, error)| {
        c.links.put(&one.to, Down::Abort { content: one.content });
        (nodes.iter().filter_map(|node| Some(c.state.node(node)?.name.clone())).collect(), error)
    });
    let (nodes, sent) = (one.to.len() as u32, one.sent.len() as u32);
    out.answers.push((caller, Answer::Broadcast { nodes, sent, failed }));
}
