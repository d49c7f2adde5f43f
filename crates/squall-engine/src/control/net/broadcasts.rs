//! Files on their way to nodes.

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

/// Broadcasts under way, by the connection of who sends.
#[derive(Debug, Default)]
pub(crate) struct Broadcasts {
    pub(crate) all: BTreeMap<CallerId, Broadcast>,
    /// Multicast.
    pub(crate) air: Air,
    pub(crate) turns: u64,
    /// Digests of files by what their users know them as, and these in the order in which they came.
    pub(crate) recalled: BTreeMap<(u32, Digest), Digest>,
    pub(crate) order: VecDeque<(u32, Digest)>,
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
    /// What its user knows it as.
    pub(crate) known_as: Option<Digest>,
    pub(crate) stage: Stage,
    /// Tells answers to what was asked before a new beginning.
    pub(crate) turn: u64,
    /// Whom the chunks go to.
    pub(crate) receivers: NodeSet,
    /// Their way, if it is not the tree's.
    pub(crate) cascade: Option<(NodeSet, Cascade)>,
    /// Their way, if it is multicast.
    pub(crate) way: Option<Way>,
    pub(crate) chunk_bytes: u32,
    /// Receivers that were too slow.
    pub(crate) late: NodeSet,
    /// All that ever were receivers.
    pub(crate) sent: NodeSet,
    /// How much has come from the client, how much of it the nodes were asked about, how much it may send.
    pub(crate) come: u64,
    pub(crate) asked: u64,
    pub(crate) wanted: u64,
    /// How much all receivers have.
    pub(crate) taken: u64,
    pub(crate) rounds: u32,
    /// Nodes that have had all of it.
    pub(crate) whole: NodeSet,
    /// How far those were who were slow together when they were asked last: how many were as far as they should be, and
    /// bytes of the others. How often nothing had come to that.
    pub(crate) pace: (usize, i64),
    pub(crate) idle: u32,
    pub(crate) resume: Option<Time>,
    pub(crate) placement: (Epoch, u64),
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
    /// What does anybody lack of what was sent by multicast from there on?
    Missing(u64),
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

    /// Whether those who lack something are so many that all are slow, and not stuck: then all wait for all.
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
