//! Files on a node: taken in from chunks into the shadow, committed when every node has all of it, laid down for users.
//!
//! Chunks are taken in order and each once, so that they may be sent again by who does not know what was lost. What
//! comes too early, as by multicast it may, waits for what is before it.

use std::collections::{BTreeMap, VecDeque};

use squall_model::id::Epoch;
use squall_model::limits::{CAST_BLOCK_BYTES, CAST_BLOCKS, CHUNK_WINDOW_BYTES};
use squall_model::wire::fabric::{Bytes, Chunk, ContentId, Holding, StreamKey};
use squall_model::wire::node::Placement;

use super::NodeAct;

/// Placements whose results are remembered.
const PLACED_MAX: usize = 1024;
/// Pieces of a file that may wait for what is before them.
const EARLY_MAX: usize = 1024;

/// What is to be done with a file. Results come as `NodeInput::Content`, `Kept` and `Placed`, in the order of the acts, but
/// not at once: a disk may take its time, and meanwhile there is more to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentAct {
    /// Make room for it in the shadow, unless it is there, or a neighbour takes it in and it may be shared.
    Expect {
        /// Which.
        content: ContentId,
        /// Its length.
        size: u64,
        /// Whether a neighbour's copy will do.
        shared: bool,
    },
    /// The next bytes.
    Append {
        /// Of which.
        content: ContentId,
        /// The bytes.
        bytes: Bytes,
    },
    /// It is whole: see whether its digest is right.
    Finish {
        /// Which.
        content: ContentId,
    },
    /// Out of the shadow.
    Commit {
        /// Which.
        content: ContentId,
    },
    /// Away with the shadow.
    Abort {
        /// Which.
        content: ContentId,
    },
    /// Write it where its user wants it, as that user.
    Place(Box<Placement>),
    /// Listen: pieces of it may come by multicast, and are brought as `NetInput::Beside`.
    Hear {
        /// Of which file.
        content: ContentId,
        /// What the datagrams say to which stream they belong.
        stream: u64,
        /// What opens them.
        key: StreamKey,
    },
}

/// All files that a node knows of.
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
    /// What came in order, of which `kept` is on the disk.
    taken: u64,
    kept: u64,
    /// Pieces that have come too early, by where they begin.
    early: BTreeMap<u64, Bytes>,
}

impl Contents {
    /// See [`Holding::value`].
    pub(super) fn holding(&self, content: &ContentId) -> i64 {
        self.held.get(content).map_or(0, |held| held.holding.value())
    }

    /// See [`Variable::Taken`]. Who sends it goes by what is kept, so that what waits for the disk is bounded.
    ///
    /// [`Variable::Taken`]: squall_model::wire::fabric::Variable::Taken
    pub(super) fn taken(&self, content: &ContentId) -> i64 {
        self.held.get(content).map_or(0, |held| match held.holding {
            Holding::Has | Holding::Shadow => i64::MAX,
            Holding::Failed(_) => held.holding.value(),
            _ => held.kept as i64,
        })
    }

    /// See [`Variable::Missing`].
    ///
    /// [`Variable::Missing`]: squall_model::wire::fabric::Variable::Missing
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

    /// What became of a placement; 0: nothing yet.
    pub(super) fn placed(&self, epoch: Epoch, number: u64) -> i64 {
        self.placed.get(&(epoch, number)).copied().unwrap_or_default()
    }

    /// A file is announced.
    pub(super) fn expect(&mut self, content: ContentId, size: u64, shared: bool, acts: &mut Vec<NodeAct>) {
        let held = self.held.entry(content).or_default();
        if matches!(held.holding, Holding::Shadow | Holding::Open) && held.size == size {
            return;
        }
        *held = Held { holding: Holding::Lacks, size, ..Held::default() };
        acts.push(NodeAct::Content(ContentAct::Expect { content, size, shared }));
    }

    /// A piece has come.
    pub(super) fn chunk(&mut self, chunk: Chunk, acts: &mut Vec<NodeAct>) {
        let Chunk { content, at, bytes, .. } = chunk;
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

    /// Every node has it.
    pub(super) fn commit(&mut self, content: ContentId, acts: &mut Vec<NodeAct>) {
        if self.held.get(&content).is_some_and(|held| held.holding == Holding::Shadow) {
            acts.push(NodeAct::Content(ContentAct::Commit { content }));
        }
    }

    /// Not every node can have it.
    pub(super) fn abort(&mut self, content: ContentId, acts: &mut Vec<NodeAct>) {
        if self.held.get(&content).is_some_and(|held| held.holding != Holding::Has) {
            self.held.remove(&content);
            acts.push(NodeAct::Content(ContentAct::Abort { content }));
        }
    }

    /// What the world says of a file.
    pub(super) fn became(&mut self, content: ContentId, holding: Holding, acts: &mut Vec<NodeAct>) {
        if holding == Holding::Lacks {
            self.held.remove(&content);
            return;
        }
        // What was given up meanwhile is not held again because its beginning has come to the disk.
        let held = match holding {
            Holding::Has => self.held.entry(content).or_default(),
            _ => match self.held.get_mut(&content) {
                Some(held) => held,
                None => return,
            },
        };
        let opened = holding == Holding::Open && held.holding != Holding::Open;
        held.holding = holding;
        if opened && held.size == 0 {
            acts.push(NodeAct::Content(ContentAct::Finish { content }));
        }
    }

    /// What the world says of the bytes that it was given.
    pub(super) fn kept(&mut self, content: &ContentId, bytes: u64) {
        if let Some(held) = self.held.get_mut(content) {
            held.kept = bytes.min(held.taken);
        }
    }

    /// What the world says of a placement.
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
    /// Takes in what is new of a piece that begins with nothing lacking before it.
    fn take(&mut self, content: ContentId, at: u64, bytes: Bytes, acts: &mut Vec<NodeAct>) {
        let known = (self.taken - at) as usize;
        let new = match bytes.0.get(known..) {
            None | Some([]) => return,
            Some(_) if known == 0 => bytes,
            Some(new) => Bytes(new.into()),
        };
        self.taken += new.0.len() as u64;
        acts.push(NodeAct::Content(ContentAct::Append { content, bytes: new }));
    }

    /// Whether all of the block that begins there has come.
    fn covers(&self, start: u64) -> bool {
        let end = (start + CAST_BLOCK_BYTES).min(self.size);
        let mut until = self.taken.max(start);
        for (at, bytes) in &self.early {
            if until >= end || *at > until {
                break;
            }
            until = until.max(at + bytes.0.len() as u64);
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
        // What is whole is there, whoever asked for it.
        contents.became(ID, Holding::Has, &mut Vec::new());
        assert_eq!(contents.holding(&ID), Holding::Has.value());
    }
}
