//! The client's side of a broadcast: a file is identified by its digest, and sent only if a node lacks it.
//!
//! A file that was sent before is not even read. The controller remembers its digest together with the file system's
//! data about the file. Like make and git, this trusts that a file with an unchanged inode has unchanged bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, SystemTime};

use squall_model::job::{Checksum, Digest};
use squall_model::limits::CHUNK_WINDOW_BYTES;
use squall_model::plain::plain;
use squall_model::wire::broadcast::{Broadcast, BroadcastTo, PlaceAt};
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::fabric::Bytes;

use crate::connection::{Client, ClientError, unexpected};

/// Bytes of one read for the digest.
const READ_BYTES: usize = 256 << 10;
/// Number of reads that may wait to be hashed.
const READS_AHEAD: usize = 4;
/// How long the controller may be silent while it waits for nodes.
const PATIENCE: Duration = Duration::from_mins(2);

/// A file that was changed within this time may change again without a new time in its inode, since file systems'
/// clocks tick coarsely.
pub const SETTLED: Duration = Duration::from_secs(2);

/// Result of a broadcast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroadcastResult {
    /// Digest of the file.
    pub digest: Digest,
    /// Length of the file, bytes.
    pub size: u64,
    /// Number of nodes that have the file now.
    pub nodes: u32,
    /// Number of nodes that lacked the file before.
    pub lacking: u32,
    /// Nodes on which the broadcast failed, and the error number of one of them (0: no answer). None: it failed on
    /// none.
    pub failed: Option<(Vec<String>, i32)>,
}

/// Makes the request for a broadcast. `broadcast` fills in digest and length. `place`: where the file is to be
/// installed.
pub fn wanted(to: BroadcastTo, shared: bool, place: Option<PlaceAt>, time_ms: Option<u64>) -> Broadcast {
    Broadcast { to, digest: Digest::default(), size: 0, shared, place, time_ms, known_as: None }
}

/// Returns digest and length of a file. One thread reads, one hashes.
fn digest(file: &File) -> io::Result<(Digest, u64)> {
    let (full, pieces) = sync_channel::<Vec<u8>>(READS_AHEAD);
    let (done, spare) = sync_channel::<Vec<u8>>(READS_AHEAD);
    std::thread::scope(|scope| {
        let hash = move || {
            let mut checksum = Checksum::default();
            for piece in pieces {
                checksum.update(&piece);
                // After the last read the receiver is gone.
                drop(done.try_send(piece));
            }
            checksum.digest()
        };
        let hash = std::thread::Builder::new().spawn_scoped(scope, hash)?;
        let mut size = 0;
        loop {
            let mut piece = spare.try_recv().unwrap_or_default();
            piece.resize(READ_BYTES, 0);
            let length = file.read_at(&mut piece, size)?;
            if length == 0 {
                break;
            }
            piece.truncate(length);
            size += length as u64;
            drop(full.send(piece));
        }
        drop(full);
        let digest = hash.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((digest, size))
    })
}

/// Returns a digest of all data in a file's inode, which stays the same as long as the file's bytes do. None: the
/// last change is too recent to be sure.
fn known_as(file: &File) -> io::Result<Option<Digest>> {
    let meta = file.metadata()?;
    let changed = Duration::new(meta.ctime().max(0) as u64, meta.ctime_nsec() as u32);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    if now < changed + SETTLED {
        return Ok(None);
    }
    let machine = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let (modified, size) = ((meta.mtime(), meta.mtime_nsec()), meta.size());
    let all = format!("{machine}{} {} {size} {changed:?} {modified:?}", meta.dev(), meta.ino());
    Ok(Some(Digest::of(all.as_bytes())))
}

/// Sends a file to nodes: sends the chunks that the controller asks for until all nodes have the file, or it has
/// failed.
pub fn broadcast(client: &mut Client, file: &File, mut wanted: Broadcast) -> Result<BroadcastResult, ClientError> {
    client.wait_up_to(Some(PATIENCE))?;
    client.make_room(CHUNK_WINDOW_BYTES as usize / 2);
    let mut recalled = recall(client, file, &mut wanted)?;
    if !recalled {
        read(file, &mut wanted)?;
    }
    client.send(&Request::Broadcast(Box::new(wanted.clone())))?;
    loop {
        match client.receive()? {
            Answer::Want { .. } if std::mem::take(&mut recalled) && read(file, &mut wanted)? => {
                // The remembered digest was not the file's.
                client.send(&Request::Broadcast(Box::new(wanted.clone())))?;
            }
            Answer::Want { from, through, chunk_bytes } => send(client, file, from, through, chunk_bytes)?,
            Answer::Broadcast { nodes, sent, failed } => {
                return Ok(BroadcastResult { digest: wanted.digest, size: wanted.size, nodes, lacking: sent, failed });
            }
            _ => return Err(unexpected()),
        }
    }
}

/// Asks the controller for the remembered digest of a file. Returns false if the file must be read.
fn recall(client: &mut Client, file: &File, wanted: &mut Broadcast) -> Result<bool, ClientError> {
    wanted.known_as = known_as(file).map_err(ClientError::Unreadable)?;
    let Some(known_as) = wanted.known_as else { return Ok(false) };
    match client.ask(&Request::Recall { known_as })? {
        Answer::Recalled(None) => Ok(false),
        Answer::Recalled(Some(digest)) => {
            (wanted.digest, wanted.size) = (digest, file.metadata().map_err(ClientError::Unreadable)?.len());
            Ok(true)
        }
        _ => Err(unexpected()),
    }
}

/// Reads a file and sets its digest and length. Returns whether the digest is another than before.
fn read(file: &File, wanted: &mut Broadcast) -> Result<bool, ClientError> {
    let before = wanted.digest;
    (wanted.digest, wanted.size) = digest(file).map_err(ClientError::Unreadable)?;
    // A file that changed while it was read must not be remembered.
    wanted.known_as = wanted.known_as.filter(|known| known_as(file).is_ok_and(|now| now == Some(*known)));
    Ok(wanted.digest != before)
}

fn send(client: &mut Client, file: &File, from: u64, through: u64, chunk_bytes: u32) -> Result<(), ClientError> {
    let longest = u64::from(chunk_bytes).clamp(1, CHUNK_WINDOW_BYTES);
    let mut at = from;
    let mut room: Arc<[u8]> = Arc::default();
    while at < through {
        let piece = (through - at).min(longest);
        if room.len() as u64 != piece {
            room = vec![0; piece as usize].into();
        }
        // After the send this is the only reference, so the buffer is used again.
        file.read_exact_at(Arc::make_mut(&mut room), at)?;
        client.send(&Request::Chunk { at, bytes: Bytes(Arc::clone(&room)) })?;
        at += piece;
    }
    Ok(())
}

/// Returns the text for the user about a failure: the node, and why.
pub fn problem(failed: &(Vec<String>, i32)) -> String {
    let (nodes, error) = failed;
    let node = nodes.first().map_or("", String::as_str);
    let why = match *error {
        0 => "Communication connection failure".to_owned(),
        error => plain(&io::Error::from_raw_os_error(error).to_string()),
    };
    let others = if nodes.len() > 1 { format!(" (and {} more nodes)", nodes.len() - 1) } else { String::new() };
    format!("REQUEST_FILE_BCAST({node}): {why}{others}")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::known_as;

    #[test]
    fn only_a_file_that_has_settled_is_known() {
        let path = std::env::temp_dir().join(format!("squall-known-{}", std::process::id()));
        std::fs::write(&path, "new").unwrap();
        let file = File::open(&path).unwrap();
        // Not even if its modification time is old: that time was set just now.
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(known_as(&file).unwrap(), None);
        std::fs::remove_file(&path).unwrap();
        let me = || known_as(&File::open(std::env::current_exe().unwrap()).unwrap()).unwrap();
        assert_eq!(me(), me());
    }
}
