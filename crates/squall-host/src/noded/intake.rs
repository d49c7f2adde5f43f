//! Files taken in on a thread of their own: a disk may keep whoever uses it waiting, but not the node's heartbeats.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use squall_engine::node::{ContentAct, NodeInput};
use squall_model::wire::fabric::{ContentId, Holding};
use tokio::sync::mpsc::Sender;

use super::Event;
use crate::content::Keeping;

/// It writes and hashes, a piece at a time.
const STACK_BYTES: usize = 256 << 10;

/// Acts that may wait: more than the windows of some hundred files at once.
const ACTS_MAX: usize = 8192;

/// Where acts go.
pub(super) struct Intake {
    keeping: PathBuf,
    acts: SyncSender<ContentAct>,
}

impl Intake {
    /// Starts it. What is there already is said first.
    pub(super) fn start(mut keeping: Keeping, events: Sender<Event>) -> io::Result<(Self, Vec<NodeInput>)> {
        let (acts, orders) = sync_channel(ACTS_MAX);
        let (intake, found) = (Self { keeping: keeping.folder().to_owned(), acts }, keeping.found());
        let work = move || {
            for act in orders {
                for input in keeping.act(act) {
                    // The daemon may be ending.
                    drop(events.blocking_send(Event::Kept(input)));
                }
            }
        };
        std::thread::Builder::new().name("intake".to_owned()).stack_size(STACK_BYTES).spawn(work)?;
        Ok((intake, found))
    }

    /// Has an act done, after those before it; what comes of it are events. Some: too many wait, and the file has failed.
    /// The daemon must not wait here, because the thread may be waiting for it with an event. What still comes of that
    /// file does no harm: without this act its digest is wrong.
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

    /// The path of a file that is there.
    pub(super) fn path(&self, content: ContentId) -> PathBuf {
        crate::content::path(&self.keeping, content)
    }
}
