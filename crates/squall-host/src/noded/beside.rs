//! Files on trees of their own: a connection to each node that is below this one for some file. To who accepts it, this
//! node is a child that has nothing to report. What is lost here is sent again down the tree.

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

/// Pieces that may wait for one node: more than a window has.
const PIECES_MAX: usize = 256;
/// A connection that carries nothing for so long ends.
const IDLE: Duration = Duration::from_secs(10);

/// The connections, by the names of the nodes.
#[derive(Debug, Default)]
pub(super) struct Besides {
    all: HashMap<String, Sender<Chunk>>,
}

impl Besides {
    /// Passes a piece on, if it can be.
    pub(super) fn send(&mut self, reach: &Reach, name: String, chunk: Chunk) {
        self.all.retain(|_, queue| !queue.is_closed());
        let queue = self.all.entry(name).or_insert_with_key(|name| {
            let (queue, pieces) = channel(PIECES_MAX);
            let (reach, name) = (reach.clone(), name.clone());
            tokio::task::spawn_local(async move {
                // The node gets again what it did not get.
                drop(carry(&reach, name, pieces).await);
            });
            queue
        });
        // For who is that slow it is lost.
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
        // What children are told is not for this.
        end = tokio::io::copy(&mut reader, &mut nowhere) => end.map(drop),
    }
}
