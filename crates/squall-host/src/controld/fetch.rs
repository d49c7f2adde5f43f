//! Fetches journal and accounting from the controller that leads, for one which lacks records that are not in etcd any
//! more.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use squall_files::place::Place;
use squall_model::encoding;
use squall_model::wire::client::{Answer, HostRequest};
use squall_model::wire::join::{VOUCHED, Vouched};
use squall_model::wire::{Hello, Proof, Role};
use squall_store::etcd;
use tracing::{info, warn};

use super::connection::Others;
use crate::backup;
use crate::link;

/// How long to look for a controller that leads.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause before the next attempt.
const RETRY: Duration = Duration::from_secs(5);
/// Pieces that may wait for the disk.
const PIECES_MAX: usize = 4;

/// Replaces journal and accounting by those of the controller that leads; tries until that is done. The caller holds the
/// lock of the state folder, and has neither open.
pub(super) async fn fetch(place: &Place, others: &Others) {
    while let Err(e) = try_fetch(place, others).await {
        warn!(error = %e, "a copy of the leader's journal can't be fetched now; trying again");
        tokio::time::sleep(RETRY).await;
    }
}

async fn try_fetch(place: &Place, others: &Others) -> Result<(), String> {
    let log = etcd::copy_of(&place.journal())?.ok_or("the log's number is not known")?;
    let own = Vouched { node: others.name.clone(), uid: 0, gid: 0, owner: true, over_http: false, job: None };
    let proof = Proof::Scheme(VOUCHED.to_owned(), encoding::to_vec(&own));
    let hello = Hello { proof, ..Hello::new(Role::Client("controller".to_owned())) };
    let text = |e: io::Error| e.to_string();
    let mut met = others.controllers.call(&hello, PATIENCE).await.map_err(text)?;
    link::write(&mut met.writer, &HostRequest::CopyLog).await.map_err(text)?;
    let (pieces, from) = sync_channel(PIECES_MAX);
    let to = place.clone();
    let stored =
        tokio::task::spawn_blocking(move || backup::replace_log(&to, Pieces { from, piece: Vec::new(), at: 0 }));
    let received = receive(&mut met.reader, pieces).await;
    let stored = stored.await.map_err(|e| e.to_string())?;
    received?;
    let copy = stored.map_err(|e| e.to_string())?;
    etcd::set_copy_of(&place.journal(), log)?;
    info!(records = copy.manifest.record, jobs = copy.jobs, "journal and accounting of the leader were fetched");
    Ok(())
}

/// Passes the pieces on, until the last one.
async fn receive(reader: &mut crate::hop::Reader, pieces: SyncSender<Vec<u8>>) -> Result<(), String> {
    loop {
        match link::read::<Answer>(reader).await.map_err(|e| e.to_string())? {
            Some(Answer::Backup(piece)) => {
                let (to, piece) = (pieces.clone(), piece.into_vec());
                // If nobody takes it, the other side says why.
                drop(tokio::task::spawn_blocking(move || to.send(piece)).await);
            }
            Some(Answer::Done) => return Ok(()),
            Some(Answer::Refused(refusal)) => return Err(format!("the leader refuses: {refusal:?}")),
            Some(_) => return Err("the leader answers something else".to_owned()),
            None => return Err("the leader hung up".to_owned()),
        }
    }
}

/// The bytes of pieces, in order.
struct Pieces {
    from: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Pieces {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            match self.from.recv() {
                Ok(piece) => (self.piece, self.at) = (piece, 0),
                Err(_) => return Ok(0),
            }
        }
        let length = to.len().min(self.piece.len() - self.at);
        to[..length].copy_from_slice(&self.piece[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}
