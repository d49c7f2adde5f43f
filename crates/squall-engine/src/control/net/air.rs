//! Multicast: what is known of it, and the way of a file that takes it.

use std::collections::BTreeMap;

use squall_model::id::NodeId;
use squall_model::job::Digest;
use squall_model::limits::CAST_BLOCK_BYTES;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Bytes, StreamKey};

use crate::control::port::{Cast, Out};

/// Bytes per second: least, at first, most.
pub(crate) const RATE: (u64, u64, u64) = (4 << 20, 256 << 20, 4 << 30);

/// What nodes may take to answer after the last datagram has left: least, at first, most.
pub(crate) const PATIENCE: (Span, Span, Span) = (Span::from_millis(30), Span::from_millis(250), Span::from_secs(2));

/// What the controller knows of multicast.
#[derive(Debug)]
pub(crate) struct Air {
    /// What keys are made of; None: there is no multicast here.
    pub(crate) secret: Option<[u8; 32]>,
    pub(crate) rate: u64,
    /// What nodes may take to answer: a multiple of what they took of late.
    pub(crate) patience: Span,
    /// Nodes that heard nothing, until when that is believed.
    pub(crate) deaf: BTreeMap<NodeId, Time>,
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

    pub(crate) fn key(&self, stream: u64) -> Option<StreamKey> {
        let mut all = self.secret?.to_vec();
        all.extend(stream.to_le_bytes());
        Some(StreamKey(Digest::of(&all).0))
    }

    /// All answered so long after they were asked.
    pub(crate) fn answered_after(&mut self, span: Span) {
        let (least, _, most) = PATIENCE;
        let falling = self.patience.0 - self.patience.0 / 8;
        self.patience = Span((4 * span.0).max(falling)).clamp(least, most);
    }

    /// Of these, those that may hear.
    pub(crate) fn hearers(&mut self, now: Time, nodes: &NodeSet) -> NodeSet {
        self.deaf.retain(|_, until| *until > now);
        nodes.iter().filter(|node| !self.deaf.contains_key(node)).collect()
    }
}

/// The way of one file.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) stream: u64,
    pub(crate) key: StreamKey,
    pub(crate) hearers: NodeSet,
    /// The window: where it begins, its pieces, and how often something of it was sent again.
    pub(crate) from: u64,
    pub(crate) pieces: Vec<(u64, Bytes)>,
    pub(crate) tries: u32,
    /// When they were asked what they lack.
    pub(crate) asked: Time,
}

impl Way {
    pub(crate) fn send(&self, rate: u64, (at, bytes): &(u64, Bytes), last: bool, out: &mut Out) {
        out.casts.push(Cast { stream: self.stream, key: self.key, at: *at, bytes: bytes.clone(), rate, last });
    }

    /// A piece that overlaps one of the blocks that somebody lacks.
    pub(crate) fn is_lacked(&self, bits: u64, (at, bytes): &(u64, Bytes)) -> bool {
        let block = |at: u64| (at - self.from) / CAST_BLOCK_BYTES;
        let last = block(at + (bytes.0.len() as u64).max(1) - 1);
        (block(*at)..=last).any(|block| bits & (1 << block.min(63)) != 0)
    }

    /// Of the window.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, bytes)| bytes.0.len() as u64).sum()
    }
}
