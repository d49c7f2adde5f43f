//! Multicast: measured rate and latency, and the transfer of a file by it.

use std::collections::BTreeMap;

use squall_model::id::NodeId;
use squall_model::job::Digest;
use squall_model::limits::CAST_BLOCK_BYTES;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Bytes, StreamKey};

use crate::control::port::{Cast, Out};

/// Transfer rate, bytes per second: least, initial, most.
pub(crate) const RATE: (u64, u64, u64) = (4 << 20, 256 << 20, 4 << 30);

/// How long nodes may take to answer after the last datagram was sent: least, initial, most.
pub(crate) const PATIENCE: (Span, Span, Span) = (Span::from_millis(30), Span::from_millis(250), Span::from_secs(2));

/// What is known of multicast on this network.
#[derive(Debug)]
pub(crate) struct Air {
    /// The secret from which stream keys are derived; None: multicast is not available.
    pub(crate) secret: Option<[u8; 32]>,
    pub(crate) rate: u64,
    /// How long nodes may take to answer: a multiple of their recent times.
    pub(crate) patience: Span,
    /// Nodes that received nothing by multicast, with the time until which multicast is not tried again.
    pub(crate) deaf: BTreeMap<NodeId, Time>,
}

impl Default for Air {
    fn default() -> Self {
        Self { secret: None, rate: RATE.1, patience: PATIENCE.1, deaf: BTreeMap::new() }
    }
}

impl Air {
    /// Makes multicast available; stream keys are derived from this secret.
    pub(crate) fn open(&mut self, secret: [u8; 32]) {
        self.secret = Some(secret);
    }

    pub(crate) fn key(&self, stream: u64) -> Option<StreamKey> {
        let mut all = self.secret?.to_vec();
        all.extend(stream.to_le_bytes());
        Some(StreamKey(Digest::of(&all).0))
    }

    /// Adapts the time allowed for answers: all nodes answered `span` after they were asked.
    pub(crate) fn answered_after(&mut self, span: Span) {
        let (least, _, most) = PATIENCE;
        let falling = self.patience.0 - self.patience.0 / 8;
        self.patience = Span((4 * span.0).max(falling)).clamp(least, most);
    }

    /// Returns those of the nodes that may receive multicast.
    pub(crate) fn hearers(&mut self, now: Time, nodes: &NodeSet) -> NodeSet {
        self.deaf.retain(|_, until| *until > now);
        nodes.iter().filter(|node| !self.deaf.contains_key(node)).collect()
    }
}

/// The transfer of one file by multicast.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) stream: u64,
    pub(crate) key: StreamKey,
    pub(crate) hearers: NodeSet,
    /// The current window: its offset in the file, its pieces (offset and content), and how often parts of it were sent
    /// again.
    pub(crate) from: u64,
    pub(crate) pieces: Vec<(u64, Bytes)>,
    pub(crate) tries: u32,
    /// When the receivers were last asked what they lack.
    pub(crate) asked: Time,
}

impl Way {
    pub(crate) fn send(&self, rate: u64, (at, bytes): &(u64, Bytes), last: bool, out: &mut Out) {
        out.casts.push(Cast { stream: self.stream, key: self.key, at: *at, bytes: bytes.clone(), rate, last });
    }

    /// Returns whether a piece overlaps a block that some receiver lacks (`bits`: the lacking blocks of the window).
    pub(crate) fn is_lacked(&self, bits: u64, (at, bytes): &(u64, Bytes)) -> bool {
        let block = |at: u64| (at - self.from) / CAST_BLOCK_BYTES;
        let last = block(at + (bytes.0.len() as u64).max(1) - 1);
        (block(*at)..=last).any(|block| bits & (1 << block.min(63)) != 0)
    }

    /// Returns the number of bytes in the window.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, bytes)| bytes.0.len() as u64).sum()
    }
}
