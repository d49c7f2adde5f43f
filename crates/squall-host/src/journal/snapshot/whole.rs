//! Snapshots of format 1: the content in one piece, cut into checksummed blocks of equal size. Only read.
//!
//! ```text
//! header (size: bytes of content)
//! block: length u32 | crc32c u32 | bytes …   (up to 1 MiB each)
//! BLAKE3 of the content
//! ```

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use squall_engine::control::state::State;
use squall_engine::control::state::snapshot::{Cluster, Part, Rows};
use squall_model::job::Digest;
use squall_model::journal::{Problem, SEGMENT_HEADER_BYTES, SegmentHeader};

use super::{BlobPlace, JournalError, Loaded, contradiction, cursor, damaged};

const BLOCK_BYTES: u64 = 1 << 20;
const START: u64 = SEGMENT_HEADER_BYTES as u64;

/// Blobs, and the state as one of each part.
type Content = (Vec<(Digest, BlobPlace)>, Box<Cluster>, Rows);

pub(super) fn load(path: &Path, mut file: File, head: SegmentHeader) -> Result<Loaded, JournalError> {
    let failed = || JournalError::io("read", path);
    let length = file.metadata().map_err(failed())?.len();
    if head.size > length {
        return Err(damaged(path, 0, "header of the snapshot", Problem::Chain));
    }
    file.seek(SeekFrom::Start(START)).map_err(failed())?;
    let content = blocks(&mut file, head.size).map_err(|(offset, number, error)| match error {
        Some(e) if e.kind() != io::ErrorKind::UnexpectedEof => failed()(e),
        _ => damaged(path, offset, &format!("block {number} of the snapshot"), Problem::Checksum),
    })?;
    let mut end = Vec::new();
    file.read_to_end(&mut end).map_err(failed())?;
    if end != Digest::of(&content).0 {
        let end = length.saturating_sub(end.len() as u64);
        return Err(damaged(path, end, "end of the snapshot", Problem::Checksum));
    }
    let unreadable = |e: String| damaged(path, START, "content of the snapshot", Problem::Content(e));
    let ((blobs, cluster, rows), rest): (Content, _) =
        postcard::take_from_bytes(&content).map_err(|e| unreadable(e.to_string()))?;
    if !rest.is_empty() {
        return Err(unreadable("bytes left over".into()));
    }
    let parts: Option<Vec<_>> = [Part::Cluster(cluster), Part::Rows(rows)].into_iter().map(Part::restore).collect();
    let state = parts.and_then(State::assemble).ok_or_else(|| contradiction(path))?;
    Ok(Loaded { state, blobs, cursor: cursor(&head), bytes: head.size })
}

/// The content of all blocks. Err: offset and number of the block, and what the system said, if it was the system.
fn blocks(file: &mut File, size: u64) -> Result<Vec<u8>, (u64, usize, Option<io::Error>)> {
    let mut content = Vec::with_capacity(size as usize);
    let mut offset = START;
    let mut number = 0;
    while (content.len() as u64) < size {
        let failed = |error| (offset, number, error);
        let mut head = [0; 8];
        file.read_exact(&mut head).map_err(|e| failed(Some(e)))?;
        let length = u64::from(u32::from_le_bytes([head[0], head[1], head[2], head[3]]));
        let crc = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if length == 0 || length > BLOCK_BYTES.min(size - content.len() as u64) {
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
