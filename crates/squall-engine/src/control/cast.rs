//! Files by multicast: each byte leaves the controller once, whoever hears it.
//!
//! Datagrams get lost. So after each window all receivers are asked which blocks they lack; the tree makes one answer
//! of theirs (the NAKs of all nodes are as short as that of one), and what anybody lacks is sent again: by multicast
//! while that helps, else down the tree to those who lack it. Who hears nothing at all, as where the network filters
//! multicast, gets everything down the tree from then on; if nobody hears, the file takes the way that it would take
//! without. The rate falls when much is lost and rises when nothing is.

use std::collections::BTreeMap;

use squall_model::id::NodeId;
use squall_model::job::Digest;
use squall_model::limits::{CAST_BLOCK_BYTES, CAST_BLOCKS};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Bytes, Chunk, ContentId, StreamKey, Tally};
use squall_model::wire::node::Down;

use super::broadcasts::{self, Broadcast, Stage};
use super::links::Links;
use super::{CallerId, Controller, Out};

/// Bytes that are sent before it is asked what was lost.
const WINDOW_BYTES: u64 = CAST_BLOCKS * CAST_BLOCK_BYTES;
/// How often what was lost is sent again by multicast before it goes down the tree.
const RECASTS: u32 = 2;
/// Bytes per second: least, at first, most.
const RATE: (u64, u64, u64) = (4 << 20, 256 << 20, 4 << 30);
/// What nodes may take to answer after the last datagram has left: least, at first, most.
const PATIENCE: (Span, Span, Span) = (Span::from_millis(30), Span::from_millis(250), Span::from_secs(2));
/// How long nobody tries again whether a node hears.
const DEAF: Span = Span::from_secs(600);

/// A piece of a file to be sent by multicast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cast {
    /// Of which stream; nodes were told so by `Down::Hear`.
    pub stream: u64,
    /// What seals the datagrams.
    pub key: StreamKey,
    /// Where in the file it begins.
    pub at: u64,
    /// The piece.
    pub bytes: Bytes,
    /// How quickly, bytes per second.
    pub rate: u64,
    /// The last one before nodes are asked: when it has left, the controller is told (`Input::CastOut`).
    pub last: bool,
}

/// What the controller knows of multicast.
#[derive(Debug)]
pub(crate) struct Air {
    /// What keys are made of; None: there is no multicast here.
    secret: Option<[u8; 32]>,
    rate: u64,
    /// What nodes may take to answer: a multiple of what they took of late.
    patience: Span,
    /// Nodes that heard nothing, until when that is believed.
    deaf: BTreeMap<NodeId, Time>,
}

impl Default for Air {
    fn default() -> Self {
        Self { secret: None, rate: RATE.1, patience: PATIENCE.1, deaf: BTreeMap::new() }
    }
}

impl Air {
    /// There is multicast; keys of streams are made of this secret.
    pub(crate) fn open(&mut self, secret: [u8; 32]) {
        self.secret = Some(secret);
    }

    fn key(&self, stream: u64) -> Option<StreamKey> {
        let mut all = self.secret?.to_vec();
        all.extend(stream.to_le_bytes());
        Some(StreamKey(Digest::of(&all).0))
    }

    /// All answered so long after they were asked.
    fn answered_after(&mut self, span: Span) {
        let (least, _, most) = PATIENCE;
        let falling = self.patience.0 - self.patience.0 / 8;
        self.patience = Span((4 * span.0).max(falling)).clamp(least, most);
    }

    /// Of these, those that may hear.
    fn hearers(&mut self, now: Time, nodes: &NodeSet) -> NodeSet {
        self.deaf.retain(|_, until| *until > now);
        nodes.iter().filter(|node| !self.deaf.contains_key(node)).collect()
    }
}

/// The way of one file.
#[derive(Debug)]
pub(crate) struct Way {
    stream: u64,
    key: StreamKey,
    hearers: NodeSet,
    /// The window: where it begins, its pieces, and how often something of it was sent again.
    from: u64,
    pieces: Vec<(u64, Bytes)>,
    tries: u32,
    /// When they were asked what they lack.
    asked: Time,
}

/// Tells the nodes of a file that will come what it will be sealed with, if there is multicast.
pub(super) fn announce(air: &Air, links: &mut Links, to: &NodeSet, content: ContentId, stream: u64) {
    if let Some(key) = air.key(stream) {
        links.put(to, Down::Hear { content, stream, key });
    }
}

/// The way by multicast for a file of that stream, if at least two nodes may hear it.
pub(super) fn way(air: &mut Air, now: Time, receivers: &NodeSet, stream: u64) -> Option<Way> {
    let key = air.key(stream)?;
    let hearers = air.hearers(now, receivers);
    let way = Way { stream, key, hearers, from: 0, pieces: Vec::new(), tries: 0, asked: now };
    (way.hearers.len() > 1).then_some(way)
}

/// Bytes wanted of the client for the next window.
pub(super) fn window(taken: u64) -> u64 {
    taken + WINDOW_BYTES
}

impl Way {
    fn send(&self, rate: u64, (at, bytes): &(u64, Bytes), last: bool, out: &mut Out) {
        out.casts.push(Cast { stream: self.stream, key: self.key, at: *at, bytes: bytes.clone(), rate, last });
    }

    /// A piece that overlaps one of the blocks that somebody lacks.
    fn is_lacked(&self, bits: u64, (at, bytes): &(u64, Bytes)) -> bool {
        let block = |at: u64| (at - self.from) / CAST_BLOCK_BYTES;
        let last = block(at + (bytes.0.len() as u64).max(1) - 1);
        (block(*at)..=last).any(|block| bits & (1 << block.min(63)) != 0)
    }

    /// Of the window.
    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, bytes)| bytes.0.len() as u64).sum()
    }
}

fn down(links: &mut Links, content: ContentId, to: &NodeSet, (at, bytes): &(u64, Bytes)) {
    if !to.is_empty() {
        links.chunk(&Chunk { to: to.clone(), cascade: None, content, at: *at, bytes: bytes.clone() });
    }
}

/// The client's next piece.
pub(super) fn piece(one: &mut Broadcast, air: &Air, links: &mut Links, piece: (u64, Bytes), out: &mut Out) {
    let Some(way) = &mut one.way else { return };
    let mut others = one.receivers.clone();
    others.subtract(&way.hearers);
    down(links, one.content, &others, &piece);
    way.send(air.rate, &piece, one.come == one.wanted, out);
    way.pieces.push(piece);
}

/// The last datagram of what nodes are to be asked about has left.
pub(super) fn left(c: &mut Controller, now: Time, stream: u64) {
    let asked = c.broadcasts.all.iter_mut().find_map(|(&caller, one)| {
        let way = one.way.as_mut().filter(|way| way.stream == stream)?;
        way.asked = now;
        Some((caller, way.from))
    });
    if let Some((caller, from)) = asked {
        broadcasts::question(c, now, caller, Stage::Missing(from));
    }
}

/// How long the answer to "what do you lack?" may take; None: as always, for it comes down the tree.
pub(super) fn patience(one: &Broadcast, air: &Air) -> Option<Span> {
    one.way.as_ref().filter(|way| way.tries <= RECASTS).map(|_| air.patience)
}

/// What they lack of the window.
pub(super) fn answered(
    c: &mut Controller,
    now: Time,
    (caller, from): (CallerId, u64),
    (missing, tally): (NodeSet, &Tally),
    out: &mut Out,
) {
    let Controller { broadcasts, links, diag, .. } = c;
    let (air, Some(one)) = (&mut broadcasts.air, broadcasts.all.get_mut(&caller)) else { return };
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
    // Who does not answer lacks everything.
    let said = tally.witness.filter(|_| missing.is_subset(&tally.no)).map(|(_, bits)| bits as u64 & all);
    let bits = said.filter(|bits| *bits != 0).unwrap_or(all);
    if u64::from(bits.count_ones()) * 8 >= blocks {
        air.rate = (air.rate / 2).max(RATE.0);
    }
    if bits == all && way.tries == 0 {
        // Perhaps they are only busy.
        way.tries = 1;
        air.patience = Span(4 * air.patience.0).min(PATIENCE.2);
        return broadcasts::question(c, now, caller, Stage::Missing(from));
    }
    if bits == all {
        // What all of them lack together they may as well all lack.
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

/// The window is with all who are still waited for.
fn next(c: &mut Controller, now: Time, caller: CallerId, out: &mut Out) {
    let Controller { broadcasts, state, .. } = c;
    let Some(one) = broadcasts.all.get_mut(&caller) else { return };
    one.taken = one.come;
    if one.come == one.size {
        return broadcasts::question(c, now, caller, Stage::Whole);
    }
    let Some(way) = &mut one.way else { return };
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
