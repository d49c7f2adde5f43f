//! Files on an emulated node: counted and checked, never written. Nodes that share a disk share a [`Neighbours`].
//!
//! Every node copies all that it receives into its own slot of memory, which is used again and again, as STORM's
//! nodes did before they drained it to disk. Nodes in one process receive the very same bytes of a chunk, so its
//! digest is computed only once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use squall_model::job::Checksum;
use squall_model::limits::CHUNK_WINDOW_BYTES;
use squall_model::wire::fabric::{Bytes, ContentId, Holding};

use super::{ContentAct, NodeInput};

/// Error number of a file with a wrong digest (EBADMSG).
const WRONG: i32 = 74;
/// Error number of a missing file (ENOENT).
const ABSENT: i32 = 2;

/// Size of the slot of memory on each node that a file passes through, bytes. Small, since there are many nodes.
const SLOT_BYTES: usize = 16 << 10;

/// State that nodes sharing a disk have in common.
#[derive(Debug, Default)]
pub struct Neighbours {
    taking: BTreeMap<ContentId, u32>,
    has: BTreeSet<ContentId>,
    hashed: BTreeMap<ContentId, VecDeque<Hashed>>,
}

/// Checksum of a file's bytes up to the end of a chunk. Another node with the same checksum before and the same bytes
/// reuses the result.
#[derive(Debug)]
struct Hashed {
    before: Option<Arc<Checksum>>,
    bytes: Bytes,
    after: Arc<Checksum>,
}

impl Neighbours {
    /// Returns the checksum after a further chunk. `before` is the checksum of what came earlier; None: this is the
    /// first chunk.
    fn hash(&mut self, content: ContentId, before: Option<Arc<Checksum>>, bytes: &Bytes) -> Arc<Checksum> {
        let same = |a: &Option<Arc<Checksum>>, b: &Option<Arc<Checksum>>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let hashed = self.hashed.entry(content).or_default();
        let known = hashed.iter().find(|known| Arc::ptr_eq(&known.bytes.0, &bytes.0) && same(&known.before, &before));
        if let Some(known) = known {
            return Arc::clone(&known.after);
        }
        let mut after = before.as_deref().cloned().unwrap_or_default();
        after.update(&bytes.0);
        let after = Arc::new(after);
        hashed.push_back(Hashed { before, bytes: bytes.clone(), after: Arc::clone(&after) });
        // No node is more than a window behind.
        let mut held: u64 = hashed.iter().map(|known| known.bytes.0.len() as u64).sum();
        while held > 2 * CHUNK_WINDOW_BYTES {
            held -= hashed.pop_front().map_or(held, |known| known.bytes.0.len() as u64);
        }
        after
    }
}

/// Files of one emulated node, which are counted and checked but never written.
#[derive(Debug, Default)]
pub struct Counted {
    shadow: BTreeMap<ContentId, Shadow>,
    has: BTreeSet<ContentId>,
    bytes: u64,
    /// Number of shadow copies that became files: at most one for each file.
    commits: u64,
}

#[derive(Debug)]
struct Shadow {
    size: u64,
    count: u64,
    /// Checksum of the bytes so far; None: no bytes yet.
    checksum: Option<Arc<Checksum>>,
    slot: Vec<u8>,
    shared: bool,
}

impl Counted {
    /// Returns the number of bytes of files that the node has received.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether the file is there.
    pub fn has(&self, content: &ContentId) -> bool {
        self.has.contains(content)
    }

    /// Returns the number of files that were committed.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Drops all shadow copies, as a crash of the node's daemon does. Returns the inputs of the next run, one for
    /// each committed file.
    pub fn restart(&mut self, me: u32, neighbours: &mut Neighbours) -> Vec<NodeInput> {
        for content in std::mem::take(&mut self.shadow).into_keys() {
            release(me, content, neighbours);
        }
        self.has.iter().map(|&content| NodeInput::Content { content, holding: Holding::Has }).collect()
    }

    /// Carries out an act of the node `me`; returns the input that results, if any.
    pub fn act(&mut self, me: u32, act: ContentAct, neighbours: &mut Neighbours) -> Option<NodeInput> {
        match act {
            ContentAct::Expect { content, size, shared } => {
                let holding = self.expect(me, content, (size, shared), neighbours);
                Some(NodeInput::Content { content, holding })
            }
            ContentAct::Append { content, bytes } => {
                self.bytes += bytes.0.len() as u64;
                self.shadow.get_mut(&content).map(|shadow| {
                    shadow.count += bytes.0.len() as u64;
                    for part in bytes.0.chunks(SLOT_BYTES) {
                        shadow.slot.clear();
                        shadow.slot.extend_from_slice(part);
                    }
                    shadow.checksum = Some(neighbours.hash(content, shadow.checksum.take(), &bytes));
                    NodeInput::Kept { content, bytes: shadow.count }
                })
            }
            ContentAct::Finish { content } => {
                let right = self.shadow.get(&content).is_some_and(|shadow| shadow.is_right(content));
                if !right {
                    self.shadow.remove(&content);
                    release(me, content, neighbours);
                }
                let holding = if right { Holding::Shadow } else { Holding::Failed(WRONG) };
                Some(NodeInput::Content { content, holding })
            }
            ContentAct::Commit { content } => {
                let shadow = self.shadow.remove(&content)?;
                if shadow.shared {
                    neighbours.has.insert(content);
                }
                release(me, content, neighbours);
                neighbours.hashed.remove(&content);
                self.has.insert(content);
                self.commits += 1;
                Some(NodeInput::Content { content, holding: Holding::Has })
            }
            ContentAct::Abort { content } => {
                self.shadow.remove(&content);
                neighbours.hashed.remove(&content);
                release(me, content, neighbours);
                None
            }
            ContentAct::Hear { .. } => None,
            ContentAct::Place(placement) => {
                let error = if self.has.contains(&placement.content) { 0 } else { ABSENT };
                Some(NodeInput::Placed { key: (placement.epoch, placement.number), error })
            }
        }
    }

    fn expect(
        &mut self,
        me: u32,
        content: ContentId,
        (size, shared): (u64, bool),
        neighbours: &mut Neighbours,
    ) -> Holding {
        if shared && neighbours.has.contains(&content) {
            self.has.insert(content);
        }
        if self.has.contains(&content) {
            return Holding::Has;
        }
        if shared && *neighbours.taking.entry(content).or_insert(me) != me {
            return Holding::Neighbour;
        }
        self.shadow.insert(content, Shadow { size, count: 0, checksum: None, slot: Vec::new(), shared });
        Holding::Open
    }
}

impl Shadow {
    fn is_right(&self, content: ContentId) -> bool {
        let none = Checksum::default();
        self.count == self.size && self.checksum.as_deref().unwrap_or(&none).digest() == content.digest
    }
}

fn release(me: u32, content: ContentId, neighbours: &mut Neighbours) {
    if neighbours.taking.get(&content) == Some(&me) {
        neighbours.taking.remove(&content);
    }
}

#[cfg(test)]
mod tests {
    use squall_model::job::Digest;
    use squall_model::wire::fabric::{Bytes, ContentId, Holding};

    use super::{ContentAct, Counted, Neighbours, NodeInput};

    /// Feeds two nodes these chunks, each row at the same time, and returns the state of the file on both.
    fn take(digest: Digest, pieces: [[&Bytes; 2]; 2]) -> [Holding; 2] {
        let content = ContentId { owner: 1, digest };
        let (mut nodes, mut neighbours) = ([Counted::default(), Counted::default()], Neighbours::default());
        for (node, me) in nodes.iter_mut().zip(0..) {
            node.act(me, ContentAct::Expect { content, size: 8, shared: false }, &mut neighbours);
        }
        for pieces in pieces {
            for (me, bytes) in pieces.into_iter().enumerate() {
                let bytes = bytes.clone();
                nodes[me].act(me as u32, ContentAct::Append { content, bytes }, &mut neighbours);
            }
        }
        [0, 1].map(|me| match nodes[me].act(me as u32, ContentAct::Finish { content }, &mut neighbours) {
            Some(NodeInput::Content { holding, .. }) => holding,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn one_digest_serves_the_same_bytes_only() {
        let piece = |bytes: &[u8]| Bytes(bytes.into());
        let (a, b, wrong) = (piece(b"aaaa"), piece(b"bbbb"), piece(b"cccc"));
        let right = Digest::of(b"aaaabbbb");
        assert_eq!(take(right, [[&a, &a], [&b, &b]]), [Holding::Shadow; 2]);
        let failed = Holding::Failed(super::WRONG);
        assert_eq!(take(right, [[&a, &wrong], [&b, &b]]), [Holding::Shadow, failed], "same end, another beginning");
        assert_eq!(take(right, [[&a, &a], [&wrong, &b]]), [failed, Holding::Shadow]);
        assert_eq!(take(right, [[&a, &piece(b"aaaa")], [&b, &b]]), [Holding::Shadow; 2], "a copy is hashed anew");
    }
}
