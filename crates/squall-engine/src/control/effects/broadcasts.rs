//! File broadcasts to nodes: STORM's XFER-AND-SIGNAL for content that comes in chunks.
//!
//! A file is identified by its digest, and nodes that have it are not sent it. First the nodes are asked which of them
//! have it. The others are told to expect it, and asked which of them receive it (of nodes that share a disk one is
//! enough). The client sends the pieces, which go down the tree as they come. Queries find out how far all receivers
//! are, so that no more than a window is under way. When all receivers have the whole file, it is committed on all. A
//! node that is slow or lost on the way is left out of the window, so that others do not wait for it. It gets the whole
//! file afterwards.

use crate::control::net::broadcasts::Broadcast;
use crate::control::net::broadcasts::Broadcasts;
use crate::control::net::broadcasts::Stage;

use squall_model::hostlist::HostList;
use squall_model::job::Digest;
use squall_model::limits::{CASCADE_BYTES_MAX, CHUNK_BYTES, CHUNK_WINDOW_BYTES, RECALLED_MAX};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Answer;
use squall_model::wire::fabric::{Bytes, Cascade, Chunk, Comparison, Holding, Tally, Test, Variable};
use squall_model::wire::node::{Down, Placement};

use crate::control::controller::Controller;
use crate::control::effects::cast;
use crate::control::effects::queries;
use crate::control::net::queries::Purpose;
use crate::control::port::{CallerId, Out};
use crate::control::state::State;
use crate::fabric::cost::{self, Shape};
use crate::invariant::invariant;

/// Timeout of a stage of a broadcast. After it the broadcast is continued without the nodes that did not answer, or
/// retried.
const STAGE_WAIT: Span = Span::from_secs(10);
/// Time in which all nodes must receive half a window before slow ones are left for later. The nodes left for later get
/// `STAGE_WAIT`, as no other node waits for them. If most nodes are slow, they are asked again as long as they make
/// progress, and `IDLE_MAX` times without.
const WINDOW_WAIT: Span = Span::from_secs(2);
/// Maximum number of emulated nodes in one process (a rack). More receivers than this are in several processes.
const RACK_NODES_MAX: u64 = 1000;
/// Number of retries without progress after which a broadcast is given up.
const ROUNDS: u32 = 6;
/// Pause before the first retry. Nodes that have lost their route can come back by another route meanwhile.
const PAUSE: Span = Span::from_millis(20);
/// Factor by which each pause is longer than the one before.
const PAUSE_GROWTH: u64 = 5;

/// Begins the broadcast of a file for a client. An earlier broadcast on the same connection is dropped.
pub(crate) fn begin(c: &mut Controller, now: Time, caller: CallerId, mut broadcast: Broadcast) {
    give_up(c, caller);
    c.broadcasts.turns += 1;
    broadcast.turn = c.broadcasts.turns;
    c.broadcasts.all.insert(caller, broadcast);
    question(c, now, caller, Stage::Known);
}

/// Drops the broadcast of a client after its connection has ended.
pub(crate) fn give_up(c: &mut Controller, caller: CallerId) {
    if let Some(broadcast) = c.broadcasts.all.remove(&caller) {
        c.links.put(&broadcast.to, Down::Abort { content: broadcast.content });
    }
}

/// Returns the digest of a file that a user has broadcast before under the client's own key `known_as`. None: there is
/// none.
pub(crate) fn recall(c: &Controller, owner: u32, known_as: Digest) -> Option<Digest> {
    c.broadcasts.recalled.get(&(owner, known_as)).copied()
}

fn remember(all: &mut Broadcasts, key: (u32, Digest), digest: Digest) {
    if all.recalled.insert(key, digest).is_none() {
        all.order.push_back(key);
    }
    while all.order.len() > RECALLED_MAX {
        all.order.pop_front().and_then(|oldest| all.recalled.remove(&oldest));
    }
}

/// Forwards the client's next piece of the file.
pub(crate) fn chunk(c: &mut Controller, now: Time, caller: CallerId, (at, bytes): (u64, Bytes), out: &mut Out) {
    let Controller { broadcasts: Broadcasts { all, air, .. }, links, diag, .. } = c;
    // because pieces may be under way of a file whose broadcast has failed
    let Some(broadcast) = all.get_mut(&caller) else { return };
    let end = at.saturating_add(bytes.0.len() as u64);
    if at != broadcast.come || end > broadcast.wanted {
        return;
    }
    broadcast.come = end;
    if broadcast.way.is_some() {
        diag.fabric.multicast_bytes += end - at;
        return cast::piece(broadcast, air, links, (at, bytes), out);
    }
    let (to, cascade) = match &broadcast.cascade {
        Some((head, cascade)) => (head.clone(), Some(cascade.clone())),
        None => (broadcast.receivers.clone(), None),
    };
    let chunk = Chunk { to, cascade, content: broadcast.content, at, bytes };
    links.chunk(&chunk);
    if end == broadcast.size {
        question(c, now, caller, Stage::Whole);
    } else if end >= broadcast.asked + CHUNK_WINDOW_BYTES / 2 {
        question(c, now, caller, Stage::Window(end));
    }
}

/// Continues broadcasts for which the pause before a retry is over.
pub(crate) fn settle(c: &mut Controller, now: Time) {
    let due = c.broadcasts.all.iter_mut().filter(|(_, one)| one.resume.is_some_and(|at| at <= now));
    let due: Vec<CallerId> = due.map(|(&caller, _)| caller).collect();
    for caller in due {
        expect(c, now, caller);
    }
}

/// Returns when [`settle`] must be called again; None: no broadcast is pausing.
pub(crate) fn deadline(c: &Controller) -> Option<Time> {
    c.broadcasts.all.values().filter_map(|one| one.resume).min()
}

pub(crate) fn question(c: &mut Controller, now: Time, caller: CallerId, stage: Stage) {
    let Broadcasts { all, air, .. } = &mut c.broadcasts;
    let Some(one) = all.get_mut(&caller) else {
        return invariant!("a question is about a broadcast that is under way");
    };
    let is = |holding: Holding| (Comparison::Equal, holding.value());
    let (to, variable, (comparison, value), wait) = match stage {
        Stage::Known => (&one.to, Variable::Content(one.content), is(Holding::Has), false),
        Stage::Expected => (&one.to, Variable::Content(one.content), (Comparison::AtLeast, 1), true),
        Stage::Opened => (&one.to, Variable::Content(one.content), is(Holding::Open), false),
        Stage::Window(bytes) => {
            one.asked = bytes;
            (&one.receivers, Variable::Taken(one.content), (Comparison::AtLeast, bytes as i64), true)
        }
        Stage::Missing(from) => (&one.receivers, Variable::Missing(one.content, from), (Comparison::Equal, 0), true),
        Stage::Whole => {
            let all = one.size.saturating_add(1) as i64;
            (&one.receivers, Variable::Taken(one.content), (Comparison::AtLeast, all), true)
        }
        Stage::Committed => (&one.receivers, Variable::Content(one.content), is(Holding::Has), true),
        Stage::Shared => (&one.to, Variable::Content(one.content), is(Holding::Has), true),
        Stage::Placed => (&one.to, Variable::Placed(one.placement.0, one.placement.1), (Comparison::Equal, 1), true),
    };
    let beside = stage == Stage::Whole && one.cascade.is_some();
    let limit = match stage {
        Stage::Missing(_) => cast::patience(one, air).unwrap_or(WINDOW_WAIT),
        Stage::Window(_) if one.whole.is_empty() => WINDOW_WAIT,
        _ if beside => WINDOW_WAIT,
        _ => STAGE_WAIT,
    };
    let left = one.until.map_or(limit, |until| until.since(now).max(Span::from_millis(1)));
    let (to, test, turn) = (to.clone(), Test { variable, comparison, value }, one.turn);
    if !matches!(stage, Stage::Window(_) | Stage::Missing(_)) {
        one.stage = stage;
    }
    queries::send(c, now, to, (test, wait), left.min(limit), Purpose::Broadcast(caller, turn, stage));
}

/// Handles the nodes' answer to a broadcast's question and goes on to its next stage.
pub(crate) fn answered(
    c: &mut Controller,
    now: Time,
    (caller, turn, stage): (CallerId, u64, Stage),
    (to, tally): (&NodeSet, &Tally),
    out: &mut Out,
) {
    let Controller { broadcasts, diag, .. } = c;
    let Broadcasts { turns, all, .. } = broadcasts;
    // because the client may have gone, or begun another broadcast, before the answer
    let Some(one) = all.get_mut(&caller).filter(|one| one.turn == turn) else { return };
    let mut missing = to.clone();
    missing.subtract(&tally.yes);
    if let Stage::Missing(from) = stage {
        return cast::answered(c, now, (caller, from), (missing, tally), out);
    }
    if matches!(stage, Stage::Window(_) | Stage::Whole) && !missing.is_empty() && one.cascade.is_some() {
        *turns += 1;
        one.turn = *turns;
        diag.fabric.retransmits += (one.come - one.taken).div_ceil(u64::from(one.chunk_bytes.max(1)));
        return down_the_tree(one, caller, out);
    }
    if matches!(stage, Stage::Window(_) | Stage::Whole)
        && one.cascade.is_none()
        && one.goes_on(now, to, &missing, tally)
    {
        return question(c, now, caller, stage);
    }
    if let Stage::Window(bytes) = stage {
        one.taken = one.taken.max(bytes);
        (one.pace, one.idle) = ((0, 0), 0);
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
        // A node that does not answer is not taken for one that shares a disk with a receiver.
        Stage::Opened if !missing.is_subset(&tally.no) => again(c, now, caller, (missing, tally), out),
        Stage::Opened if tally.yes.is_empty() => {
            one.receivers = one.to.clone();
            commit(c, now, caller);
        }
        Stage::Opened => opened(c, now, caller, &tally.yes, out),
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
        Stage::Window(_) | Stage::Missing(_) => {}
    }
}

/// Begins the transfer to the nodes that receive the file, and asks the client for the first pieces.
fn opened(c: &mut Controller, now: Time, caller: CallerId, receivers: &NodeSet, out: &mut Out) {
    let Controller { broadcasts: Broadcasts { all, air, .. }, state, .. } = c;
    let Some(one) = all.get_mut(&caller) else {
        return invariant!("a transfer that opens is of a broadcast that is under way");
    };
    one.receivers = receivers.clone();
    one.sent.union_with(receivers);
    one.late = NodeSet::new();
    (one.come, one.asked, one.wanted, one.taken) = (0, 0, 0, 0);
    (one.pace, one.idle) = ((0, 0), 0);
    shape(one, state);
    if one.size == 0 {
        return question(c, now, caller, Stage::Whole);
    }
    let is_long = one.rounds == 0 && one.size > u64::from(CHUNK_BYTES);
    one.way = is_long.then(|| cast::way(air, now, &one.receivers, one.turn)).flatten();
    if one.way.is_some() {
        one.cascade = None;
    }
    let first = if one.way.is_some() { cast::window(0) } else { CHUNK_WINDOW_BYTES };
    want(one, caller, first, out);
}

/// Sends the rest of a file down the controller's tree, from the offset that all receivers have reached, because a
/// piece was lost or slow between nodes. A piece that a node has already does no harm.
fn down_the_tree(one: &mut Broadcast, caller: CallerId, out: &mut Out) {
    one.cascade = None;
    resume(one, caller, out);
}

/// Asks the client for pieces from the offset that all receivers have reached.
pub(crate) fn resume(one: &mut Broadcast, caller: CallerId, out: &mut Out) {
    (one.come, one.asked, one.wanted) = (one.taken, one.taken, one.taken);
    want(one, caller, one.taken + CHUNK_WINDOW_BYTES, out);
}

/// Chooses the route of a broadcast and the length of its pieces. After a loss or delay the route is the controller's
/// tree.
pub(crate) fn shape(one: &mut Broadcast, state: &State) {
    let nodes = one.receivers.len() as u64;
    // So many emulated nodes are in several processes (racks), which pass pieces to each other in the tree only.
    let emulated =
        one.receivers.first().and_then(|node| state.node(node)).is_some_and(|node| node.hardware.os == "emulated");
    let shape = match () {
        () if one.rounds > 0 || (emulated && nodes > RACK_NODES_MAX) => Shape::Wide,
        () => cost::choose(one.size, nodes),
    };
    one.chunk_bytes = cost::chunk_for(shape, one.size, nodes);
    one.cascade = shape.width().and_then(|width| {
        let head = NodeSet::one(one.receivers.first()?);
        let names = one.receivers.iter().map(|node| state.node(node).map(|node| node.name.as_str()));
        let nodes: HostList = names.collect::<Option<Vec<_>>>()?.into_iter().collect();
        (nodes.as_str().len() <= CASCADE_BYTES_MAX).then_some((head, Cascade { nodes, place: 0, width }))
    });
}

pub(crate) fn want(one: &mut Broadcast, caller: CallerId, through: u64, out: &mut Out) {
    let (from, through) = (one.wanted, through.min(one.size));
    if through > from {
        one.wanted = through;
        out.answers.push((caller, Answer::Want { from, through, chunk_bytes: one.chunk_bytes }));
    }
}

fn expect(c: &mut Controller, now: Time, caller: CallerId) {
    let Some(one) = c.broadcasts.all.get_mut(&caller) else {
        return invariant!("a broadcast that goes on is under way");
    };
    c.broadcasts.turns += 1;
    one.turn = c.broadcasts.turns;
    one.resume = None;
    let order = Down::Expect { content: one.content, size: one.size, shared: one.shared };
    cast::announce(&c.broadcasts.air, &mut c.links, &one.to, one.content, one.turn);
    c.links.put(&one.to, order);
    question(c, now, caller, Stage::Expected);
}

fn commit(c: &mut Controller, now: Time, caller: CallerId) {
    let one = &c.broadcasts.all[&caller];
    c.links.put(&one.to, Down::Commit { content: one.content });
    question(c, now, caller, Stage::Committed);
}

fn place(c: &mut Controller, now: Time, caller: CallerId, out: &mut Out) {
    let Some(one) = c.broadcasts.all.get_mut(&caller) else {
        return invariant!("a file that is placed is of a broadcast that is under way");
    };
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
        per_node: at.per_step,
        job: one.job,
    };
    c.links.put(&one.to, Down::Place(Box::new(placement)));
    question(c, now, caller, Stage::Placed);
}

/// Retries the broadcast after a pause, from the stage `Expected` on, because the nodes `missing` did not do what they
/// were asked. Gives up in the last stage, after `ROUNDS` retries without progress, or if the time for the broadcast is
/// over.
fn again(c: &mut Controller, now: Time, caller: CallerId, (missing, tally): (NodeSet, &Tally), out: &mut Out) {
    let Some(one) = c.broadcasts.all.get_mut(&caller) else {
        return invariant!("a broadcast that is tried again is under way");
    };
    let had = one.whole.len();
    if matches!(one.stage, Stage::Whole | Stage::Committed | Stage::Shared) {
        one.whole.union_with(&tally.yes);
    }
    one.rounds = if one.whole.len() > had { 1 } else { one.rounds + 1 };
    let pause = Span(PAUSE.0 * PAUSE_GROWTH.pow(one.rounds - 1));
    let late = one.until.is_some_and(|until| until <= now + pause);
    if one.stage == Stage::Placed || one.rounds >= ROUNDS || late {
        let error = tally.witness.map_or(0, |(_, value)| i32::try_from(-value).unwrap_or(0).max(0));
        return done(c, caller, Some((missing, error)), out);
    }
    one.resume = Some(now + pause);
}

fn done(c: &mut Controller, caller: CallerId, failed: Option<(NodeSet, i32)>, out: &mut Out) {
    let Some(one) = c.broadcasts.all.remove(&caller) else { return invariant!("a broadcast that ends was under way") };
    if let Some(known_as) = one.known_as.filter(|_| failed.is_none()) {
        remember(&mut c.broadcasts, (one.content.owner, known_as), one.content.digest);
    }
    let failed = failed.map(|(nodes, error)| {
        c.links.put(&one.to, Down::Abort { content: one.content });
        (nodes.iter().filter_map(|node| Some(c.state.node(node)?.name.clone())).collect(), error)
    });
    let (nodes, sent) = (one.to.len() as u32, one.sent.len() as u32);
    out.answers.push((caller, Answer::Broadcast { nodes, sent, failed }));
}
