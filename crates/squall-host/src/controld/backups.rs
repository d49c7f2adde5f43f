//! Backups for operators, each written by a thread of its own.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use squall_files::place::Place;
use squall_model::encoding::ByteBuf;
use squall_model::wire::client::{Answer, Refusal};
use squall_store::accounts::Copying;
use squall_store::file::Copier;
use tracing::{error, info};

use crate::backup::{self, About, Accounting, Scope};
use crate::link::Outgoing;

/// Bytes of a backup in one answer.
const PIECE_BYTES: usize = 256 << 10;
/// Interval of the check whether a slow reader has received its pieces.
const READER_POLL: Duration = Duration::from_millis(5);

/// Makes backups of one state folder, one at a time.
#[derive(Debug)]
pub(super) struct Backups {
    place: Place,
    copier: Copier,
    release: String,
    turn: Arc<Mutex<()>>,
}

impl Backups {
    /// Makes the handle for the state folder `place`, the journal of which is copied by `copier`. `release`: version of
    /// this program.
    pub(super) fn new(place: Place, copier: Copier, release: String) -> Self {
        Self { place, copier, release, turn: Arc::default() }
    }

    /// Starts a thread that sends a backup of the cluster of this name, or a part of it. `copying`: handle of the accounting thread; None:
    /// that thread ends.
    pub(super) fn start(&self, (cluster, scope): (String, Scope), copying: Option<Copying>, out: &Outgoing) {
        let (place, copier, turn) = (self.place.clone(), self.copier.clone(), Arc::clone(&self.turn));
        let about = About { cluster, release: self.release.clone(), scope };
        let (mut pipe, out) = (Pipe { out: out.clone(), piece: Vec::new() }, out.clone());
        let answer = move || {
            let Some(copying) = copying else { return refused("the controller ends") };
            let _turn = match turn.try_lock() {
                Err(TryLockError::WouldBlock) => return refused("another one is being made"),
                Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
                Ok(turn) => turn,
            };
            match backup::write(&place, &copier, Accounting::Running(copying), about, &mut pipe) {
                Ok(manifest) => {
                    info!(record = manifest.record, "a backup was made");
                    Answer::Done
                }
                Err(error) => {
                    error!(%error, "a backup failed");
                    refused(&error.to_string())
                }
            }
        };
        let to = out.clone();
        let started = std::thread::Builder::new().name("backup".into()).spawn(move || send(&to, &answer()));
        if let Err(error) = started {
            send(&out, &refused(&error.to_string()));
        }
    }
}

fn refused(why: &str) -> Answer {
    Answer::Refused(Refusal::NotSupported(format!("no backup can be made now: {why}")))
}

/// Sends an answer. One that can't be encoded closes the connection.
fn send(out: &Outgoing, answer: &Answer) {
    if out.push(answer).is_err() {
        out.close();
    }
}

/// Sends what is written to it as pieces of a backup.
struct Pipe {
    out: Outgoing,
    piece: Vec<u8>,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.out.has_room() && !self.out.is_closed() {
            std::thread::sleep(READER_POLL);
        }
        if self.out.is_closed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let piece = std::mem::take(&mut self.piece);
        self.out.push(&Answer::Backup(ByteBuf::from(piece))).map_err(io::Error::other)
    }
}
