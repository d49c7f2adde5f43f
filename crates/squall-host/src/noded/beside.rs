//! Bulk connections: one to each node below this one in the tree of a file, if files have trees of their own. The
//! accepting node treats this one as a child that reports nothing. Pieces lost here are sent again down the main tree.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use squall_engine::fabric::Dial;
use squall_model::wire::fabric::{Chunk, UpFrame, Upward};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

use super::net::Conversation;
use super::reach::Reach;
use crate::link::write;

/// Most pieces that may be queued for one node: more than a window has.
const PIECES_MAX: usize = 256;
/// A connection without pieces for this long is closed.
const IDLE: Duration = Duration::from_secs(10);

/// Queues of the bulk connections, by node name.
#[derive(Debug, Default)]
pub(super) struct Besides {
    all: HashMap<String, Sender<Chunk>>,
}

impl Besides {
    /// Forwards a piece to a node, connecting first if needed. The piece is dropped if the node's queue is full.
    pub(super) fn send(&mut self, reach: &Reach, name: String, chunk: Chunk) {
        self.all.retain(|_, queue| !queue.is_closed());
        let queue = self.all.entry(name).or_insert_with_key(|name| {
            let (queue, pieces) = channel(PIECES_MAX);
            let (reach, name) = (reach.clone(), name.clone());
            tokio::task::spawn_local(async move {
                // Pieces lost with the connection are sent again down the tree.
                drop(carry(&reach, name, pieces).await);
            });
            queue
        });
        // If the node is so slow, the piece is lost.
        drop(queue.try_send(chunk));
    }
}

async fn carry(reach: &Reach, name: String, mut pieces: Receiver<Chunk>) -> io::Result<()> {
    let Conversation { mut reader, mut writer, .. } = reach.dial(&Dial::Node(name)).await?;
    let speak = async {
        let mut hop = 0;
        while let Ok(Some(chunk)) = timeout(IDLE, pieces.recv()).await {
            hop += 1;
            write(&mut writer, &UpFrame { hop, says: vec![Upward::Chunk(chunk)] }).await?;
        }
        Ok(())
    };
    let mut nowhere = tokio::io::sink();
    tokio::select! {
        end = speak => end,
        // The peer's frames for children are discarded.
        end = tokio::io::copy(&mut reader, &mut nowhere) => end.map(drop),
    }
}
