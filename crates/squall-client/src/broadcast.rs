//! The client's side of a broadcast: a file is named by its digest, and sent only as far as some node lacks it.
//!
//! A file that was brought before is not even read: the controller remembers the digest by what the file system says of
//! the file. As make and git do, this trusts that a file whose inode says nothing new has no new bytes.

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

/// Bytes read at once for the digest.
const READ_BYTES: usize = 256 << 10;
/// Reads that wait to be hashed.
const READS_AHEAD: usize = 4;
/// How long nodes may keep the controller from saying anything.
const PATIENCE: Duration = Duration::from_mins(2);

/// A file that was changed within this time may change again without its inode telling: clocks of file systems tick.
pub const SETTLED: Duration = Duration::from_secs(2);

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The file's digest and length.
    pub digest: Digest,
    /// See there.
    pub size: u64,
    /// Nodes that have it.
    pub nodes: u32,
    /// Nodes that lacked it.
    pub lacking: u32,
    /// Where it failed, and one of the error numbers (0: no answer).
    pub failed: Option<(Vec<String>, i32)>,
}

/// All but the file itself: digest and length are found out.
pub fn wanted(to: BroadcastTo, shared: bool, place: Option<PlaceAt>, time_ms: Option<u64>) -> Broadcast {
    Broadcast { to, digest: Digest::default(), size: 0, shared, place, time_ms, known_as: None }
}

/// Digest and length of a file: one thread reads, one hashes.
fn digest(file: &File) -> io::Result<(Digest, u64)> {
    let (full, pieces) = sync_channel::<Vec<u8>>(READS_AHEAD);
    let (done, spare) = sync_channel::<Vec<u8>>(READS_AHEAD);
    std::thread::scope(|scope| {
        let hash = move || {
            let mut checksum = Checksum::default();
            for piece in pieces {
                checksum.update(&piece);
                // At the end nobody reads on.
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

/// What a file is known as as long as its bytes stay: made of all that its inode says. None: that is too new to tell.
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

/// Brings a file to nodes: sends what is wanted of it until all have it, or it has failed.
pub fn broadcast(client: &mut Client, file: &File, mut wanted: Broadcast) -> Result<Sent, ClientError> {
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
                // It was not what it was taken for.
                client.send(&Request::Broadcast(Box::new(wanted.clone())))?;
            }
            Answer::Want { from, through, chunk_bytes } => send(client, file, from, through, chunk_bytes)?,
            Answer::Broadcast { nodes, sent, failed } => {
                return Ok(Sent { digest: wanted.digest, size: wanted.size, nodes, lacking: sent, failed });
            }
            _ => return Err(unexpected()),
        }
    }
}

/// Asks for the digest of a file that was brought before. False: it must be read.
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

/// Reads a file for its digest. True: it is another one than what is wanted so far.
fn read(file: &File, wanted: &mut Broadcast) -> Result<bool, ClientError> {
    let before = wanted.digest;
    (wanted.digest, wanted.size) = digest(file).map_err(ClientError::Unreadable)?;
    // What changed while it was read is known as nothing.
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
        // Nobody else holds it when it has been sent.
        file.read_exact_at(Arc::make_mut(&mut room), at)?;
        client.send(&Request::Chunk { at, bytes: Bytes(Arc::clone(&room)) })?;
        at += piece;
    }
    Ok(())
}

/// What the user is told of a failure: the node, and why.
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
        // Not even if it says that it is old: that it says so is new.
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(known_as(&file).unwrap(), None);
        std::fs::remove_file(&path).unwrap();
        let me = || known_as(&File::open(std::env::current_exe().unwrap()).unwrap()).unwrap();
        assert_eq!(me(), me());
    }
}
