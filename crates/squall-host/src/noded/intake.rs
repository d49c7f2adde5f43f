//! Writes received files on a thread of its own, so that a slow disk can't delay the node's heartbeats.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use squall_engine::node::{ContentAct, NodeInput};
use squall_model::wire::fabric::{ContentId, Holding};
use tokio::sync::mpsc::Sender;

use super::Event;
use crate::content::Keeping;

/// Stack size of the writing thread, bytes; it writes and hashes one piece at a time.
const STACK_BYTES: usize = 256 << 10;

/// Most acts that may be queued: more than the windows of some hundred files at once.
const ACTS_MAX: usize = 8192;

/// Handle of the thread that writes received files.
pub(super) struct Intake {
    keeping: PathBuf,
    acts: SyncSender<ContentAct>,
}

impl Intake {
    /// Starts the thread. The second value reports the files that are cached already.
    pub(super) fn start(mut keeping: Keeping, events: Sender<Event>) -> io::Result<(Self, Vec<NodeInput>)> {
        let (acts, orders) = sync_channel(ACTS_MAX);
        let (intake, found) = (Self { keeping: keeping.folder().to_owned(), acts }, keeping.found());
        let work = move || {
            for act in orders {
                for input in keeping.act(act) {
                    // Fails only if the daemon is ending.
                    drop(events.blocking_send(Event::Kept(input)));
                }
            }
        };
        std::thread::Builder::new().name("intake".to_owned()).stack_size(STACK_BYTES).spawn(work)?;
        Ok((intake, found))
    }

    /// Queues an act after the earlier ones; results arrive as events. Some: the queue is full, so the file has failed.
    /// The daemon must not wait here, as the thread may be waiting to pass it an event. Later acts on that file do no
    /// harm: without this one its digest is wrong.
    pub(super) fn act(&self, act: ContentAct) -> Option<NodeInput> {
        let act = self.acts.try_send(act).err()?;
        let (TrySendError::Full(act) | TrySendError::Disconnected(act)) = act;
        let content = match act {
            ContentAct::Expect { content, .. }
            | ContentAct::Append { content, .. }
            | ContentAct::Finish { content }
            | ContentAct::Commit { content }
            | ContentAct::Abort { content } => content,
            ContentAct::Place(_) | ContentAct::Hear { .. } => return None,
        };
        Some(NodeInput::Content { content, holding: Holding::Failed(libc::ENOBUFS) })
    }

    /// Returns the path of a complete file.
    pub(super) fn path(&self, content: ContentId) -> PathBuf {
        crate::content::path(&self.keeping, content)
    }
}
