//! Broadcasts by multicast: each byte leaves the controller once for any number of receivers.
//!
//! Datagrams get lost. So after each window all receivers are asked which blocks they lack. The tree merges their
//! answers, so the NAKs of all nodes are as short as that of one. Blocks that any node lacks are sent again: by
//! multicast while that helps, then down the tree to the nodes that lack them. A node that receives no multicast at
//! all, for instance because the network filters it, gets everything down the tree from then on. If no node receives
//! any, the file goes as it would without multicast. The rate falls when much is lost and rises when nothing is.

use crate::control::net::air::Air;
use crate::control::net::air::CastTransfer;
use crate::control::net::air::PATIENCE;
use crate::control::net::air::RATE;

use squall_model::limits::{CAST_BLOCK_BYTES, CAST_BLOCKS};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Bytes, Chunk, ContentId, Tally};
use squall_model::wire::node::Down;

use crate::control::controller::Controller;
use crate::control::effects::broadcasts;
use crate::control::net::broadcasts::{Broadcast, Stage};
use crate::control::net::links::Links;
use crate::control::port::{CallerId, Out};
use crate::invariant::invariant;

/// Bytes of a file in one window. After each window the receivers are asked which blocks they lack.
const WINDOW_BYTES: u64 = CAST_BLOCKS * CAST_BLOCK_BYTES;
/// How often lost blocks are sent again by multicast before they go down the tree.
const RECASTS: u32 = 2;
/// How long multicast is not tried with a node that did not receive any.
const DEAF: Span = Span::from_secs(600);

/// Sends nodes the number and key of the multicast stream that will carry a file. Does nothing if multicast is not
/// available.
pub(crate) fn announce(air: &Air, links: &mut Links, to: &NodeSet, content: ContentId, stream: u64) {
    if let Some(key) = air.key(stream) {
        links.put(to, Down::Hear { content, stream, key });
    }
}

/// Makes the state of a file's transfer by multicast. None: multicast is not available, or fewer than two nodes may
/// receive it.
pub(crate) fn way(air: &mut Air, now: Time, receivers: &NodeSet, stream: u64) -> Option<CastTransfer> {
    let key = air.key(stream)?;
    let hearers = air.hearers(now, receivers);
    let way = CastTransfer { stream, key, hearers, from: 0, pieces: Vec::new(), tries: 0, asked: now };
    (way.hearers.len() > 1).then_some(way)
}

/// Returns the offset in the file up to which the client is asked to send for the next window. `taken`: bytes that all
/// receivers have.
pub(crate) fn window(taken: u64) -> u64 {
    taken + WINDOW_BYTES
}

fn down(links: &mut Links, content: ContentId, to: &NodeSet, (at, bytes): &(u64, Bytes)) {
    if !to.is_empty() {
        links.chunk(&Chunk { to: to.clone(), cascade: None, content, at: *at, bytes: bytes.clone() });
    }
}

/// Sends nodes the client's next piece: by multicast, and down the tree to nodes that do not receive multicast.
pub(crate) fn piece(one: &mut Broadcast, air: &Air, links: &mut Links, piece: (u64, Bytes), out: &mut Out) {
    let Some(way) = &mut one.way else { return invariant!("a piece is cast of a file that goes by multicast") };
    let mut others = one.receivers.clone();
    others.subtract(&way.hearers);
    down(links, one.content, &others, &piece);
    way.send(air.rate, &piece, one.come == one.wanted, out);
    way.pieces.push(piece);
}

/// Asks the receivers which blocks they lack, after the last datagram of the window was sent.
pub(crate) fn left(c: &mut Controller, now: Time, stream: u64) {
    let asked = c.broadcasts.all.iter_mut().find_map(|(&caller, one)| {
        let way = one.way.as_mut().filter(|way| way.stream == stream)?;
        way.asked = now;
        Some((caller, way.from))
    });
    if let Some((caller, from)) = asked {
        broadcasts::question(c, now, caller, Stage::Missing(from));
    }
}

/// Returns the timeout of the query about the blocks that receivers lack. None: the usual timeout, as the blocks last
/// went down the tree.
pub(crate) fn patience(one: &Broadcast, air: &Air) -> Option<Span> {
    one.way.as_ref().filter(|way| way.tries <= RECASTS).map(|_| air.patience)
}

/// Handles the receivers' answer about the blocks of the window that they lack: sends those blocks again, or continues
/// with the next window.
pub(crate) fn answered(
    c: &mut Controller,
    now: Time,
    (caller, from): (CallerId, u64),
    (missing, tally): (NodeSet, &Tally),
    out: &mut Out,
) {
    let Controller { broadcasts, links, diag, .. } = c;
    let (air, Some(one)) = (&mut broadcasts.air, broadcasts.all.get_mut(&caller)) else {
        return invariant!("an answer about a window is of a broadcast that is under way");
    };
    // because an answer about an earlier window may come late, or after multicast was given up
    let Some(way) = one.way.as_mut().filter(|way| way.from == from) else { return };
    if missing.is_empty() || way.tries > RECASTS {
        if way.tries == 0 {
            air.rate = (air.rate * 2).min(RATE.2);
            air.answered_after(now.since(way.asked));
        }
        way.hearers.subtract(&missing);
        one.receivers.subtract(&missing);
        one.late.union_with(&missing);
        return next(c, now, caller, out);
    }
    let blocks = way.bytes().div_ceil(CAST_BLOCK_BYTES).clamp(1, CAST_BLOCKS);
    let all = u64::MAX >> (64 - blocks);
    // A node that does not answer counts as lacking everything.
    let said = tally.witness.filter(|_| missing.is_subset(&tally.no)).map(|(_, bits)| bits as u64 & all);
    let bits = said.filter(|bits| *bits != 0).unwrap_or(all);
    if u64::from(bits.count_ones()) * 8 >= blocks {
        air.rate = (air.rate / 2).max(RATE.0);
    }
    if bits == all && way.tries == 0 {
        // If all blocks are missing, the nodes may only be busy: they are asked once more.
        way.tries = 1;
        air.patience = Span(4 * air.patience.0).min(PATIENCE.2);
        return broadcasts::question(c, now, caller, Stage::Missing(from));
    }
    if bits == all {
        // The merged answer does not show which node lacks a block, so each of these nodes may lack all.
        air.deaf.extend(missing.iter().filter(|node| way.hearers.contains(*node)).map(|node| (node, now + DEAF)));
        way.hearers.subtract(&missing);
        way.tries = RECASTS;
    }
    way.tries += 1;
    let mut lacked = way.pieces.iter().filter(|piece| way.is_lacked(bits, piece)).peekable();
    while let Some(piece) = lacked.next() {
        diag.fabric.retransmits += 1;
        if way.tries > RECASTS {
            down(links, one.content, &missing, piece);
        } else {
            diag.fabric.multicast_bytes += piece.1.0.len() as u64;
            way.send(air.rate, piece, lacked.peek().is_none(), out);
        }
    }
    if way.tries > RECASTS {
        broadcasts::question(c, now, caller, Stage::Missing(from));
    }
}

/// Continues with the next window, as all remaining receivers have this one.
fn next(c: &mut Controller, now: Time, caller: CallerId, out: &mut Out) {
    let Controller { broadcasts, state, .. } = c;
    let Some(one) = broadcasts.all.get_mut(&caller) else {
        return invariant!("a window that ends is of a broadcast that is under way");
    };
    one.taken = one.come;
    if one.come == one.size {
        return broadcasts::question(c, now, caller, Stage::Whole);
    }
    let Some(way) = &mut one.way else { return invariant!("a window that ends is of a file that goes by multicast") };
    way.from = one.come;
    way.pieces.clear();
    way.tries = 0;
    if way.hearers.is_empty() {
        one.way = None;
        broadcasts::shape(one, state);
        return broadcasts::resume(one, caller, out);
    }
    broadcasts::want(one, caller, window(one.taken), out);
}
