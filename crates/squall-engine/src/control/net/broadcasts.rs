//! State of file broadcasts to nodes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use squall_model::id::Epoch;
use squall_model::job::{Digest, Owner};
use squall_model::limits::CHUNK_BYTES;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::broadcast::PlaceAt;
use squall_model::wire::fabric::{Cascade, ContentId, Tally};

use crate::control::net::air::{Air, Way};
use crate::control::port::CallerId;

pub(crate) const IDLE_MAX: u32 = 2;

/// Broadcasts under way, by the connection of the client that sends the file.
#[derive(Debug, Default)]
pub(crate) struct Broadcasts {
    pub(crate) all: BTreeMap<CallerId, Broadcast>,
    /// State of multicast.
    pub(crate) air: Air,
    pub(crate) turns: u64,
    /// Digests of earlier files by user and the client's own key of the file; and the keys, oldest first.
    pub(crate) recalled: BTreeMap<(u32, Digest), Digest>,
    pub(crate) order: VecDeque<(u32, Digest)>,
}

/// A broadcast of one file.
#[derive(Debug)]
pub(crate) struct Broadcast {
    pub(crate) content: ContentId,
    pub(crate) size: u64,
    pub(crate) shared: bool,
    pub(crate) to: NodeSet,
    /// Where the file is placed on the nodes and as which user; None: it is only stored.
    pub(crate) place: Option<(PlaceAt, Arc<Owner>)>,
    pub(crate) until: Option<Time>,
    /// The client's own key of the file, by which a later broadcast finds its digest.
    pub(crate) known_as: Option<Digest>,
    pub(crate) stage: Stage,
    /// Number of this attempt. Answers to questions of an earlier attempt are ignored.
    pub(crate) turn: u64,
    /// Nodes to which chunks are sent.
    pub(crate) receivers: NodeSet,
    /// The first node and the distribution tree, if chunks are passed on between nodes; None: they go down the
    /// controller's tree.
    pub(crate) cascade: Option<(NodeSet, Cascade)>,
    /// The multicast transfer, if chunks go by multicast.
    pub(crate) way: Option<Way>,
    pub(crate) chunk_bytes: u32,
    /// Receivers that were too slow, which get the file again later.
    pub(crate) late: NodeSet,
    /// All nodes that have been receivers.
    pub(crate) sent: NodeSet,
    /// Bytes that have come from the client, that nodes were asked about, and that the client may send so far.
    pub(crate) come: u64,
    pub(crate) asked: u64,
    pub(crate) wanted: u64,
    /// Bytes that all receivers have.
    pub(crate) taken: u64,
    pub(crate) rounds: u32,
    /// Nodes that have had the whole file.
    pub(crate) whole: NodeSet,
    /// Progress of slow receivers at the last question: how many had all that was asked for, and bytes of a slow one.
    /// `idle` is how often there was no progress.
    pub(crate) pace: (usize, i64),
    pub(crate) idle: u32,
    pub(crate) resume: Option<Time>,
    pub(crate) placement: (Epoch, u64),
}

/// The question that the nodes are asked; it shows how far a broadcast is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Which nodes have the file already?
    Known,
    /// Are all nodes prepared for the file?
    Expected,
    /// Which nodes receive the file? Of those that share a disk, one does.
    Opened,
    /// Do all receivers have this many bytes?
    Window(u64),
    /// Which blocks does any receiver lack of those sent by multicast from this offset?
    Missing(u64),
    /// Do all receivers have the whole file?
    Whole,
    /// Have all receivers committed the file?
    Committed,
    /// Do all nodes have the file, those that share a disk with a receiver included?
    Shared,
    /// Have all nodes placed the file, or failed to?
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
            known_as: None,
            stage: Stage::Known,
            turn: 0,
            receivers: NodeSet::new(),
            cascade: None,
            way: None,
            chunk_bytes: CHUNK_BYTES,
            late: NodeSet::new(),
            sent: NodeSet::new(),
            come: 0,
            asked: 0,
            wanted: 0,
            taken: 0,
            rounds: 0,
            whole: NodeSet::new(),
            pace: (0, 0),
            idle: 0,
            resume: None,
            placement: (Epoch(0), 0),
        }
    }

    /// Returns whether all should wait longer. True if most receivers lack something, so that the network is slow and
    /// not a single node, and they still make progress.
    pub(crate) fn goes_on(&mut self, now: Time, to: &NodeSet, missing: &NodeSet, tally: &Tally) -> bool {
        let bytes = tally.witness.map_or(0, |(_, bytes)| bytes);
        if missing.len() * 2 <= to.len() || bytes < 0 || self.until.is_some_and(|until| until <= now) {
            return false;
        }
        let pace = (tally.yes.len(), bytes);
        if pace > self.pace {
            (self.pace, self.idle) = (pace, 0);
        } else {
            self.idle += 1;
        }
        self.idle < IDLE_MAX
    }
}
