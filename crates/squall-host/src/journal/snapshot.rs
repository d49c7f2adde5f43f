//! Snapshots: the state after a segment, in one file of checksummed blocks.
//!
//! ```text
//! header as of a segment (number: the segment covered; size: bytes of content; seq and chain: what follows)
//! block: length u32 | crc32c u32 | bytes …   (up to 1 MiB each)
//! BLAKE3 of the content
//! ```

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use squall_engine::control::state::State;
use squall_engine::control::state::snapshot::Snapshot;
use squall_model::job::Digest;
use squall_model::journal::{Problem, SEGMENT_HEADER_BYTES, SegmentHeader};

use super::blobs::BlobPlace;
use super::error::JournalError;
use super::files::{self, Kind, SNAPSHOT_DRAFT};
use super::walk::Cursor;

const BLOCK_BYTES: usize = 1 << 20;

#[derive(Serialize, Deserialize)]
struct Content<T> {
    blobs: Vec<(Digest, BlobPlace)>,
    state: T,
}

/// A snapshot as read.
pub(crate) struct Loaded {
    pub(crate) state: State,
    pub(crate) blobs: Vec<(Digest, BlobPlace)>,
    pub(crate) cursor: Cursor,
    pub(crate) bytes: u64,
}

/// Writes the snapshot that covers segments up to `covered`; returns its size.
pub(crate) fn write(
    dir: &Path,
    covered: u64,
    cursor: Cursor,
    state: &State,
    blobs: Vec<(Digest, BlobPlace)>,
) -> Result<u64, JournalError> {
    let draft = dir.join(SNAPSHOT_DRAFT);
    let result = write_draft(&draft, covered, cursor, state, blobs);
    if result.is_err() {
        drop(files::remove(&draft));
        return result;
    }
    let path = Kind::Snapshot.path(dir, covered);
    std::fs::rename(&draft, &path).map_err(JournalError::io("rename to", &path))?;
    files::sync_dir(dir)?;
    result
}

fn write_draft(
    draft: &Path,
    covered: u64,
    cursor: Cursor,
    state: &State,
    blobs: Vec<(Digest, BlobPlace)>,
) -> Result<u64, JournalError> {
    let failed = || JournalError::io("write", draft);
    let content = Content { blobs, state: state.snapshot() };
    let content = postcard::to_allocvec(&content).map_err(|e| failed()(io::Error::other(e)))?;
    let mut out = io::BufWriter::with_capacity(BLOCK_BYTES, files::create(draft).map_err(failed())?);
    let Cursor { cluster, seq, link } = cursor;
    let head = SegmentHeader { cluster, number: covered, size: content.len() as u64, seq, link };
    out.write_all(&head.encode()).map_err(failed())?;
    for (i, block) in content.chunks(BLOCK_BYTES).enumerate() {
        let crc = block_crc(i, block);
        let head = [(block.len() as u32).to_le_bytes(), crc.to_le_bytes()].concat();
        out.write_all(&head).and_then(|()| out.write_all(block)).map_err(failed())?;
    }
    out.write_all(&Digest::of(&content).0).map_err(failed())?;
    let file = out.into_inner().map_err(|e| failed()(e.into_error()))?;
    file.sync_all().map_err(failed())?;
    Ok(content.len() as u64)
}

/// Reads and checks a snapshot.
pub(crate) fn load(dir: &Path, covered: u64) -> Result<Loaded, JournalError> {
    let path = Kind::Snapshot.path(dir, covered);
    let bad = |offset: u64, what: &str, problem: Problem| JournalError::Damaged {
        path: path.clone(),
        offset,
        what: what.into(),
        problem,
    };
    let failed = || JournalError::io("read", &path);
    let mut file = File::open(&path).map_err(failed())?;
    let length = file.metadata().map_err(failed())?.len();
    let mut head = [0; SEGMENT_HEADER_BYTES];
    let short = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof => bad(0, "header of the snapshot", Problem::Header),
        _ => failed()(e),
    };
    file.read_exact(&mut head).map_err(short)?;
    let head = SegmentHeader::decode(&head).map_err(|p| bad(0, "header of the snapshot", p))?;
    if head.number != covered || head.size > length {
        return Err(bad(0, "header of the snapshot", Problem::Chain));
    }
    let content = blocks(&mut file, head.size).map_err(|(offset, number, error)| match error {
        Some(e) if e.kind() != io::ErrorKind::UnexpectedEof => failed()(e),
        _ => bad(offset, &format!("block {number} of the snapshot"), Problem::Checksum),
    })?;
    let mut end = Vec::new();
    file.read_to_end(&mut end).map_err(failed())?;
    if end != Digest::of(&content).0 {
        let end = length.saturating_sub(end.len() as u64);
        return Err(bad(end, "end of the snapshot", Problem::Checksum));
    }
    let start = SEGMENT_HEADER_BYTES as u64;
    let unreadable = |e: String| bad(start, "content of the snapshot", Problem::Content(e));
    let (decoded, rest): (Content<Snapshot>, _) =
        postcard::take_from_bytes(&content).map_err(|e| unreadable(e.to_string()))?;
    if !rest.is_empty() {
        return Err(unreadable("bytes left over".into()));
    }
    drop(content);
    let state = decoded.state.restore().ok_or_else(|| unreadable("it contradicts itself".into()))?;
    let cursor = Cursor { cluster: head.cluster, seq: head.seq, link: head.link };
    Ok(Loaded { state, blobs: decoded.blobs, cursor, bytes: head.size })
}

/// The content of all blocks, each read to where it stays: a large snapshot passes through memory once.
/// Err: offset and number of the block, and what the system said, if it was the system.
fn blocks(file: &mut File, size: u64) -> Result<Vec<u8>, (u64, usize, Option<io::Error>)> {
    let mut content = Vec::with_capacity(size as usize);
    let mut offset = SEGMENT_HEADER_BYTES as u64;
    let mut number = 0;
    while (content.len() as u64) < size {
        let failed = |error| (offset, number, error);
        let mut head = [0; 8];
        file.read_exact(&mut head).map_err(|e| failed(Some(e)))?;
        let length = u64::from(u32::from_le_bytes([head[0], head[1], head[2], head[3]]));
        let crc = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if length == 0 || length > (BLOCK_BYTES as u64).min(size - content.len() as u64) {
            return Err(failed(None));
        }
        let start = content.len();
        let read = file.take(length).read_to_end(&mut content).map_err(|e| failed(Some(e)))?;
        if read as u64 != length || block_crc(number, &content[start..]) != crc {
            return Err(failed(None));
        }
        offset += 8 + length;
        number += 1;
    }
    Ok(content)
}

/// A block's checksum holds its number, so that blocks can't change places.
fn block_crc(number: usize, block: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&(number as u64).to_le_bytes()), block)
}

/// The scripts and environments that a state refers to.
pub(crate) fn digests(state: &State) -> HashSet<Digest> {
    let specs = state.jobs.values().map(|j| &j.spec).chain(state.arrays.values().map(|a| &a.spec));
    specs.flat_map(|spec| spec.script.into_iter().chain([spec.env])).collect()
}
