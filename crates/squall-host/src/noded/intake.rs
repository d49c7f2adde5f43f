//! Files taken in on a thread of their own: a disk may keep whoever uses it waiting, but not the node's heartbeats.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};

use squall_engine::node::{ContentAct, NodeInput};
use squall_model::wire::fabric::ContentId;
use tokio::sync::mpsc::UnboundedSender;

use super::Event;
use crate::content::Keeping;

/// It writes and hashes, a piece at a time.
const STACK_BYTES: usize = 256 << 10;

/// Where acts go. What waits there is bounded by the sender of a file, who goes by what is kept.
pub(super) struct Intake {
    keeping: PathBuf,
    acts: Sender<ContentAct>,
}

impl Intake {
    /// Starts it. What is there already is said first.
    pub(super) fn start(mut keeping: Keeping, events: UnboundedSender<Event>) -> io::Result<(Self, Vec<NodeInput>)> {
        let (acts, orders) = channel();
        let (intake, found) = (Self { keeping: keeping.folder().to_owned(), acts }, keeping.found());
        let work = move || {
            for act in orders {
                for input in keeping.act(act) {
                    // The daemon may be ending.
                    drop(events.send(Event::Kept(input)));
                }
            }
        };
        std::thread::Builder::new().name("intake".to_owned()).stack_size(STACK_BYTES).spawn(work)?;
        Ok((intake, found))
    }

    /// Has an act done, after those before it; what comes of it are events.
    pub(super) fn act(&self, act: ContentAct) {
        // It ends with the daemon.
        drop(self.acts.send(act));
    }

    /// The path of a file that is there.
    pub(super) fn path(&self, content: ContentId) -> PathBuf {
        crate::content::path(&self.keeping, content)
    }
}
