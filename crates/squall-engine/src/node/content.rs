//! Files on a node: received in chunks into a shadow copy, committed when every node has all of it, written out for
//! users.
//!
//! Chunks are accepted in order and once each, so a sender that does not know which were lost may send any of them
//! again. A chunk that arrives too early, as it may by multicast, waits for those before it.

use std::collections::{BTreeMap, VecDeque};

use squall_model::id::Epoch;
use squall_model::limits::{CAST_BLOCK_BYTES, CAST_BLOCKS, CHUNK_WINDOW_BYTES};
use squall_model::wire::fabric::{Bytes, Chunk, ContentId, Holding, StreamKey};
use squall_model::wire::node::Placement;

use super::NodeAct;

/// Greatest number of placements (files written to a user's path) for which the results are remembered.
const PLACED_MAX: usize = 1024;
/// Greatest number of chunks of one file that may wait for earlier ones.
const EARLY_MAX: usize = 1024;

/// Action on a file, for the host. Results come as `NodeInput::Content`, `Kept` and `Placed`, in the order of the
/// acts but later, since a disk may be slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentAct {
    /// Creates the shadow copy, unless the file is there, or a neighbour that shares the disk receives it and sharing
    /// is allowed.
    Expect {
        /// Identifies the file.
        content: ContentId,
        /// Length of the file, bytes.
        size: u64,
        /// Whether a copy that a neighbour on the same disk receives is enough.
        shared: bool,
    },
    /// Appends the next bytes to the shadow copy.
    Append {
        /// Identifies the file.
        content: ContentId,
        /// Bytes to append.
        bytes: Bytes,
    },
    /// Checks the digest of a complete shadow copy.
    Finish {
        /// Identifies the file.
        content: ContentId,
    },
    /// Turns the shadow copy into the file.
    Commit {
        /// Identifies the file.
        content: ContentId,
    },
    /// Removes the shadow copy.
    Abort {
        /// Identifies the file.
        content: ContentId,
    },
    /// Writes the file to the path that its user named, as that user.
    Place(Box<Placement>),
    /// Listens for chunks of a file by multicast. The host gives them as `NetInput::Beside`.
    Hear {
        /// Identifies the file.
        content: ContentId,
        /// Stream number that the datagrams of this file bear.
        stream: u64,
        /// Key that decrypts the datagrams.
        key: StreamKey,
    },
}

/// State of all files on a node, and results of placements.
#[derive(Debug, Default)]
pub(super) struct Contents {
    held: BTreeMap<ContentId, Held>,
    placed: BTreeMap<(Epoch, u64), i64>,
    order: VecDeque<(Epoch, u64)>,
}

#[derive(Debug, Default)]
struct Held {
    holding: Holding,
    size: u64,
    /// Number of bytes received in order; `kept` of them are on disk.
    taken: u64,
    kept: u64,
    /// Chunks that came too early, by their offset in the file.
    early: BTreeMap<u64, Bytes>,
}

impl Contents {
    /// Returns the state of a file as [`Holding::value`] encodes it.
    pub(super) fn holding(&self, content: &ContentId) -> i64 {
        self.held.get(content).map_or(0, |held| held.holding.value())
    }

    /// Returns the value of [`Variable::Taken`](squall_model::wire::fabric::Variable::Taken) for a file. The sender
    /// paces itself by the bytes on disk, so that the amount waiting for the disk is bounded.
    pub(super) fn taken(&self, content: &ContentId) -> i64 {
        self.held.get(content).map_or(0, |held| match held.holding {
            Holding::Has | Holding::Shadow => i64::MAX,
            Holding::Failed(_) => held.holding.value(),
            _ => held.kept as i64,
        })
    }

    /// Returns the value of [`Variable::Missing`](squall_model::wire::fabric::Variable::Missing): a bit for each
    /// block from offset `from` on that has not fully arrived.
    pub(super) fn missing(&self, content: &ContentId, from: u64) -> i64 {
        let all = i64::MAX;
        let Some(held) = self.held.get(content) else { return all };
        match held.holding {
            Holding::Has | Holding::Shadow => 0,
            Holding::Open => {
                let starts = (0..CAST_BLOCKS).map(|block| (block, from.saturating_add(block * CAST_BLOCK_BYTES)));
                let lacked = starts.filter(|(_, start)| *start < held.size && !held.covers(*start));
                lacked.fold(0, |bits, (block, _)| bits | 1 << block)
            }
            _ => all,
        }
    }

    /// Returns the result of a placement (a file written to a user's path): 1 for success, a negative error number for
    /// failure, 0 for none yet.
    pub(super) fn placed(&self, epoch: Epoch, number: u64) -> i64 {
        self.placed.get(&(epoch, number)).copied().unwrap_or_default()
    }

    /// Prepares to receive a file of `size` bytes, unless that is under way or done.
    pub(super) fn expect(&mut self, content: ContentId, size: u64, shared: bool, acts: &mut Vec<NodeAct>) {
        let held = self.held.entry(content).or_default();
        if matches!(held.holding, Holding::Shadow | Holding::Open) && held.size == size {
            return;
        }
        *held = Held { holding: Holding::Lacks, size, ..Held::default() };
        acts.push(NodeAct::Content(ContentAct::Expect { content, size, shared }));
    }

    /// Accepts a chunk: appends it, keeps it if it is early, or drops it.
    pub(super) fn chunk(&mut self, chunk: Chunk, acts: &mut Vec<NodeAct>) {
        let Chunk { content, at, bytes, .. } = chunk;
        // because pieces may come of a file that is whole, was given up, or was never expected here
        let Some(held) = self.held.get_mut(&content).filter(|held| held.holding == Holding::Open) else { return };
        let end = at.saturating_add(bytes.0.len() as u64);
        if end <= held.taken || end > held.size {
            return;
        }
        if at > held.taken {
            if end <= held.taken.saturating_add(CHUNK_WINDOW_BYTES) && held.early.len() < EARLY_MAX {
                held.early.insert(at, bytes);
            }
            return;
        }
        held.take(content, at, bytes, acts);
        while let Some((at, bytes)) = held.early.pop_first() {
            if at > held.taken {
                held.early.insert(at, bytes);
                break;
            }
            held.take(content, at, bytes, acts);
        }
        if held.taken == held.size {
            acts.push(NodeAct::Content(ContentAct::Finish { content }));
        }
    }

    /// Commits a file that every node now has in its shadow copy.
    pub(super) fn commit(&mut self, content: ContentId, acts: &mut Vec<NodeAct>) {
        if self.held.get(&content).is_some_and(|held| held.holding == Holding::Shadow) {
            acts.push(NodeAct::Content(ContentAct::Commit { content }));
        }
    }

    /// Drops a file that not every node can receive, unless it is already committed.
    pub(super) fn abort(&mut self, content: ContentId, acts: &mut Vec<NodeAct>) {
        if self.held.get(&content).is_some_and(|held| held.holding != Holding::Has) {
            self.held.remove(&content);
            acts.push(NodeAct::Content(ContentAct::Abort { content }));
        }
    }

    /// Records the state of a file that the host reports.
    pub(super) fn became(&mut self, content: ContentId, holding: Holding, acts: &mut Vec<NodeAct>) {
        if holding == Holding::Lacks {
            self.held.remove(&content);
            return;
        }
        let held = match holding {
            Holding::Has => self.held.entry(content).or_default(),
            _ => match self.held.get_mut(&content) {
                Some(held) => held,
                // because a file that was given up meanwhile is not held again by a late report about its beginning
                None => return,
            },
        };
        let opened = holding == Holding::Open && held.holding != Holding::Open;
        held.holding = holding;
        if opened && held.size == 0 {
            acts.push(NodeAct::Content(ContentAct::Finish { content }));
        }
    }

    /// Records how many bytes of a file the host has written to disk.
    pub(super) fn kept(&mut self, content: &ContentId, bytes: u64) {
        if let Some(held) = self.held.get_mut(content) {
            held.kept = bytes.min(held.taken);
        }
    }

    /// Records the result of a placement (a file written to a user's path) that the host reports; `error` is an error
    /// number, 0 for success.
    pub(super) fn became_placed(&mut self, key: (Epoch, u64), error: i32) {
        let value = if error == 0 { 1 } else { -i64::from(error) };
        if self.placed.insert(key, value).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > PLACED_MAX {
            self.order.pop_front().and_then(|oldest| self.placed.remove(&oldest));
        }
    }
}

impl Held {
    /// Appends the new part of a chunk that begins at or before the end of the bytes received so far.
    fn take(&mut self, content: ContentId, at: u64, bytes: Bytes, acts: &mut Vec<NodeAct>) {
        let known = (self.taken - at) as usize;
        let new = match bytes.0.get(known..) {
            // because the bytes may all be here already
            None | Some([]) => return,
            Some(_) if known == 0 => bytes,
            Some(new) => Bytes(new.into()),
        };
        self.taken += new.0.len() as u64;
        acts.push(NodeAct::Content(ContentAct::Append { content, bytes: new }));
    }

    /// Returns whether all of the block at offset `start` has arrived.
    fn covers(&self, start: u64) -> bool {
        let end = start.saturating_add(CAST_BLOCK_BYTES).min(self.size);
        let mut until = self.taken.max(start);
        for (at, bytes) in &self.early {
            if until >= end || *at > until {
                break;
            }
            until = until.max(at.saturating_add(bytes.0.len() as u64));
        }
        self.taken >= end || until >= end
    }
}

#[cfg(test)]
mod tests {
    use squall_model::id::NodeId;
    use squall_model::job::Digest;
    use squall_model::wire::fabric::{Bytes, Chunk, ContentId, Holding};

    use super::{ContentAct, Contents, NodeAct};

    const ID: ContentId = ContentId { owner: 7, digest: Digest([1; 32]) };

    fn chunk(at: u64, bytes: &[u8]) -> Chunk {
        let to = [NodeId(0)].into_iter().collect();
        Chunk { to, cascade: None, content: ID, at, bytes: Bytes(bytes.into()) }
    }

    #[test]
    fn the_sender_goes_by_what_is_on_the_disk() {
        let (mut contents, mut acts) = (Contents::default(), Vec::new());
        contents.expect(ID, 6, false, &mut acts);
        contents.became(ID, Holding::Open, &mut acts);
        contents.chunk(chunk(0, b"abc"), &mut acts);
        assert_eq!(contents.taken(&ID), 0);
        contents.kept(&ID, 3);
        assert_eq!(contents.taken(&ID), 3);
        contents.chunk(chunk(3, b"def"), &mut acts);
        assert_eq!(acts.last(), Some(&NodeAct::Content(ContentAct::Finish { content: ID })));
    }

    #[test]
    fn what_the_disk_says_too_late_is_not_heard() {
        let (mut contents, mut acts) = (Contents::default(), Vec::new());
        contents.expect(ID, 0, false, &mut acts);
        contents.abort(ID, &mut acts);
        acts.clear();
        contents.became(ID, Holding::Open, &mut acts);
        contents.kept(&ID, 3);
        assert_eq!((acts, contents.holding(&ID), contents.taken(&ID)), (vec![], 0, 0));
        // A complete file counts, no matter which request led to it.
        contents.became(ID, Holding::Has, &mut Vec::new());
        assert_eq!(contents.holding(&ID), Holding::Has.value());
    }
}
