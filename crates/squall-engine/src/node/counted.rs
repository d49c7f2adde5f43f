//! Files on an emulated node: counted and checked, never written. Nodes that share a disk share a [`Neighbours`].

use std::collections::{BTreeMap, BTreeSet};

use squall_model::job::Checksum;
use squall_model::wire::fabric::{ContentId, Holding};

use super::{ContentAct, NodeInput};

/// The error number of a file whose digest is not what was said (EBADMSG).
const WRONG: i32 = 74;
/// The error number of a file that is not there (ENOENT).
const ABSENT: i32 = 2;

/// What nodes know of each other that share a disk.
#[derive(Debug, Default)]
pub struct Neighbours {
    taking: BTreeMap<ContentId, u32>,
    has: BTreeSet<ContentId>,
}

/// The files of one node.
#[derive(Debug, Default)]
pub struct Counted {
    shadow: BTreeMap<ContentId, Shadow>,
    has: BTreeSet<ContentId>,
    bytes: u64,
    /// Shadows that became files: at most once each.
    commits: u64,
}

#[derive(Debug)]
struct Shadow {
    size: u64,
    count: u64,
    checksum: Checksum,
    shared: bool,
}

impl Counted {
    /// Bytes that came.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Files that were committed.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// The node's daemon died: what was in the shadow is gone. What a new life finds.
    pub fn restart(&mut self, me: u32, neighbours: &mut Neighbours) -> Vec<NodeInput> {
        for content in std::mem::take(&mut self.shadow).into_keys() {
            release(me, content, neighbours);
        }
        self.has.iter().map(|&content| NodeInput::Content { content, holding: Holding::Has }).collect()
    }

    /// Carries out an act of the node `me`; what comes of it.
    pub fn act(&mut self, me: u32, act: ContentAct, neighbours: &mut Neighbours) -> Option<NodeInput> {
        match act {
            ContentAct::Expect { content, size, shared } => {
                let holding = self.expect(me, content, (size, shared), neighbours);
                Some(NodeInput::Content { content, holding })
            }
            ContentAct::Append { content, bytes } => {
                self.bytes += bytes.0.len() as u64;
                if let Some(shadow) = self.shadow.get_mut(&content) {
                    shadow.count += bytes.0.len() as u64;
                    shadow.checksum.update(&bytes.0);
                }
                None
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
                self.has.insert(content);
                self.commits += 1;
                Some(NodeInput::Content { content, holding: Holding::Has })
            }
            ContentAct::Abort { content } => {
                self.shadow.remove(&content);
                release(me, content, neighbours);
                None
            }
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
        self.shadow.insert(content, Shadow { size, count: 0, checksum: Checksum::default(), shared });
        Holding::Open
    }
}

impl Shadow {
    fn is_right(&self, content: ContentId) -> bool {
        self.count == self.size && self.checksum.digest() == content.digest
    }
}

fn release(me: u32, content: ContentId, neighbours: &mut Neighbours) {
    if neighbours.taking.get(&content) == Some(&me) {
        neighbours.taking.remove(&content);
    }
}
