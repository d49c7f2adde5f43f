//! Multicast: measured rate and latency, and the transfer of a file by it.

use std::collections::BTreeMap;

use squall_model::id::NodeId;
use squall_model::job::Digest;
use squall_model::limits::CAST_BLOCK_BYTES;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::fabric::{Bytes, StreamKey};

use crate::control::port::{Cast, Out};

/// Transfer rate of multicast, bytes per second: lowest, initial, highest.
pub(crate) const RATE: (u64, u64, u64) = (4 << 20, 256 << 20, 4 << 30);

/// Timeout of the nodes' answers after the last datagram was sent: shortest, initial, longest.
pub(crate) const PATIENCE: (Span, Span, Span) = (Span::from_millis(30), Span::from_millis(250), Span::from_secs(2));

/// State of multicast on this network: availability, measured rate and latency.
#[derive(Debug)]
pub(crate) struct Air {
    /// The secret from which stream keys are derived; None: multicast is not available.
    pub(crate) secret: Option<[u8; 32]>,
    /// Present transfer rate, bytes per second: falls when much is lost and rises when nothing is.
    pub(crate) rate: u64,
    /// Present timeout of the nodes' answers: a multiple of the time that recent answers took.
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
    /// Makes multicast available. The keys of streams are derived from this secret.
    pub(crate) fn open(&mut self, secret: [u8; 32]) {
        self.secret = Some(secret);
    }

    pub(crate) fn key(&self, stream: u64) -> Option<StreamKey> {
        let mut all = self.secret?.to_vec();
        all.extend(stream.to_le_bytes());
        Some(StreamKey(Digest::of(&all).0))
    }

    /// Adapts the timeout of answers: all nodes answered within `span` after they were asked.
    pub(crate) fn answered_after(&mut self, span: Span) {
        let (least, _, most) = PATIENCE;
        let falling = self.patience.0 - self.patience.0 / 8;
        self.patience = Span((4 * span.0).max(falling)).clamp(least, most);
    }

    /// Returns those of the given nodes with which multicast is tried: all but those that recently received none.
    pub(crate) fn hearers(&mut self, now: Time, nodes: &NodeSet) -> NodeSet {
        self.deaf.retain(|_, until| *until > now);
        nodes.iter().filter(|node| !self.deaf.contains_key(node)).collect()
    }
}

/// The transfer of one file by multicast.
#[derive(Debug)]
pub(crate) struct CastTransfer {
    /// Number of the multicast stream.
    pub(crate) stream: u64,
    /// Key that seals the stream's datagrams.
    pub(crate) key: StreamKey,
    /// Receivers that get the file by multicast; the other receivers get it down the tree.
    pub(crate) hearers: NodeSet,
    /// Offset in the file of the current window, bytes.
    pub(crate) from: u64,
    /// Pieces of the current window: offset in the file, bytes, and content.
    pub(crate) pieces: Vec<(u64, Bytes)>,
    /// How often parts of the current window were sent again.
    pub(crate) tries: u32,
    /// When the receivers were last asked which blocks they lack.
    pub(crate) asked: Time,
}

impl CastTransfer {
    pub(crate) fn send(&self, rate: u64, (at, bytes): &(u64, Bytes), last: bool, out: &mut Out) {
        out.casts.push(Cast { stream: self.stream, key: self.key, at: *at, bytes: bytes.clone(), rate, last });
    }

    /// Returns whether a piece overlaps a block that some receiver lacks. `bits` has a bit for each block of the
    /// window, 1: lacking.
    pub(crate) fn is_lacked(&self, bits: u64, (at, bytes): &(u64, Bytes)) -> bool {
        let block = |at: u64| (at - self.from) / CAST_BLOCK_BYTES;
        let last = block(at + (bytes.0.len() as u64).max(1) - 1);
        (block(*at)..=last).any(|block| bits & (1 << block.min(63)) != 0)
    }

    /// Returns the number of bytes in the current window.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, bytes)| bytes.0.len() as u64).sum()
    }
}
