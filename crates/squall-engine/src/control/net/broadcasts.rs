//! State of file broadcasts to nodes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use squall_model::id::Epoch;
use squall_model::job::{Digest, JobAttempt, Owner};
use squall_model::limits::CHUNK_BYTES;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::broadcast::PlaceAt;
use squall_model::wire::fabric::{Cascade, ContentId, Tally};

use crate::control::net::air::{Air, CastTransfer};
use crate::control::port::CallerId;

/// Number of queries in a row without progress after which slow receivers are no longer waited for.
pub(crate) const IDLE_MAX: u32 = 2;

/// Broadcasts of files under way, and digests of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Broadcasts {
    /// The broadcasts, by the connection of the client that sends the file.
    pub(crate) all: BTreeMap<CallerId, Broadcast>,
    /// State of multicast.
    pub(crate) air: Air,
    /// Number of attempts of all broadcasts so far; the next attempt gets the next number.
    pub(crate) turns: u64,
    /// Digests of files broadcast earlier, by user (uid) and the client's own key of the file.
    pub(crate) recalled: BTreeMap<(u32, Digest), Digest>,
    /// The keys of `recalled`, oldest first.
    pub(crate) order: VecDeque<(u32, Digest)>,
}

/// A broadcast of one file.
#[derive(Debug)]
pub(crate) struct Broadcast {
    pub(crate) content: ContentId,
    pub(crate) size: u64,
    pub(crate) shared: bool,
    pub(crate) to: NodeSet,
    /// Where the file is placed on the nodes and as which user; None: it is only stored by its digest.
    pub(crate) place: Option<(PlaceAt, Arc<Owner>)>,
    /// The file is placed on the nodes of this job; None: the request names the nodes.
    pub(crate) job: Option<JobAttempt>,
    pub(crate) until: Option<Time>,
    /// The client's own key of the file, by which a later broadcast finds its digest.
    pub(crate) known_as: Option<Digest>,
    pub(crate) stage: Stage,
    /// Number of this attempt. Answers to queries of an earlier attempt are ignored.
    pub(crate) turn: u64,
    /// Nodes to which the pieces of the file are sent.
    pub(crate) receivers: NodeSet,
    /// The first node and the distribution tree, if nodes pass pieces on to each other; None: pieces go down the
    /// controller's tree or by multicast.
    pub(crate) cascade: Option<(NodeSet, Cascade)>,
    /// State of the multicast transfer; None: the pieces do not go by multicast.
    pub(crate) way: Option<CastTransfer>,
    pub(crate) chunk_bytes: u32,
    /// Receivers that were too slow; they get the file after the others.
    pub(crate) late: NodeSet,
    /// All nodes that were receivers in any attempt.
    pub(crate) sent: NodeSet,
    /// Offset in the file up to which the client has sent it, bytes.
    pub(crate) come: u64,
    /// Offset in the file up to which receivers were last asked whether they have it, bytes.
    pub(crate) asked: u64,
    /// Offset in the file up to which the client was asked to send it, bytes.
    pub(crate) wanted: u64,
    /// Offset in the file up to which all receivers have it, bytes.
    pub(crate) taken: u64,
    pub(crate) rounds: u32,
    /// Nodes that have reported that they have the whole file.
    pub(crate) whole: NodeSet,
    /// Progress of slow receivers at the last query: number of receivers that had all that was asked about, and bytes
    /// of one that had not.
    pub(crate) pace: (usize, i64),
    /// Number of queries in a row that showed no progress.
    pub(crate) idle: u32,
    /// When the broadcast is retried after a pause; None: it is not pausing.
    pub(crate) resume: Option<Time>,
    pub(crate) placement: (Epoch, u64),
}

/// Stage of a broadcast, named by the query that its nodes are asked in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nodes are asked which of them have the file already.
    Known,
    /// Nodes are asked whether they are prepared for the file.
    Expected,
    /// Nodes are asked which of them receive the file. Of nodes that share a disk, one does.
    Opened,
    /// Receivers are asked whether they have this many bytes.
    Window(u64),
    /// Receivers are asked which blocks they lack of the window sent by multicast from this offset in the file, bytes.
    Missing(u64),
    /// Receivers are asked whether they have the whole file.
    Whole,
    /// Receivers are asked whether they have committed the file.
    Committed,
    /// All nodes, including those that share a disk with a receiver, are asked whether they have the file.
    Shared,
    /// Nodes are asked whether they have placed the file at its path, or failed to.
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
            job: None,
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

    /// Returns whether the broadcast should wait longer for its receivers, rather than leave slow ones for later. True
    /// if most receivers lack something, so that the network is slow and not a single node, and they still make
    /// progress.
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
