//! Snapshots: the state after a segment, in one file of blocks with a checksum each.
//!
//! ```text
//! header as of a segment (number: the segment covered; size: bytes of blocks; seq and chain: what follows)
//! block: length u32 | BLAKE3 of snapshot, number and bytes | bytes …
//! ```
//!
//! Each block is a part of the state that is checked, decoded and restored independently, on as many threads as there
//! are CPUs, up to eight.

use minicbor::{Decode, Encode};
use squall_model::encoding;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use squall_engine::control::state::State;
use squall_engine::control::state::snapshot::{Part, Restored};
use squall_model::job::Digest;
use squall_model::journal::{FORMAT, Problem, SEGMENT_HEADER_BYTES, SegmentHeader};

use super::blobs::BlobPlace;
use super::error::JournalError;
use super::files::{self, FileKind, SNAPSHOT_DRAFT};
use super::walk::Cursor;

/// Bytes of a block's length and checksum.
const BLOCK_HEAD_BYTES: usize = 4 + 32;
/// Locations of blobs in one block.
const PLACES_PER_BLOCK: usize = 4096;
/// Most threads that read a snapshot: more would wait for memory and disk.
const THREADS_MAX: usize = 8;

/// Content of a block. Variants may only be appended, as for events.
#[derive(Encode, Decode)]
enum Block {
    #[n(0)]
    Blobs(#[n(0)] Vec<(Digest, BlobPlace)>),
    #[n(1)]
    Part(#[n(0)] Part),
}

/// Content of a snapshot that was read from its file.
#[derive(Debug)]
pub(crate) struct LoadedSnapshot {
    pub(crate) state: State,
    pub(crate) blobs: Vec<(Digest, BlobPlace)>,
    pub(crate) cursor: Cursor,
    pub(crate) bytes: u64,
}

/// Writes the snapshot that covers segments up to `covered`; returns its size in bytes.
pub(crate) fn write(
    dir: &Path,
    covered: u64,
    cursor: Cursor,
    state: &State,
    blobs: &[(Digest, BlobPlace)],
) -> Result<u64, JournalError> {
    let draft = dir.join(SNAPSHOT_DRAFT);
    let result = write_draft(&draft, covered, cursor, state, blobs).map_err(JournalError::io("write", &draft));
    if result.is_err() {
        drop(files::remove(&draft));
        return result;
    }
    let path = FileKind::Snapshot.path(dir, covered);
    std::fs::rename(&draft, &path).map_err(JournalError::io("rename to", &path))?;
    files::sync_dir(dir)?;
    result
}

fn write_draft(
    draft: &Path,
    covered: u64,
    cursor: Cursor,
    state: &State,
    blobs: &[(Digest, BlobPlace)],
) -> io::Result<u64> {
    let Cursor { cluster, seq, link } = cursor;
    let mut head = SegmentHeader { format: FORMAT, cluster, number: covered, size: 0, seq, link };
    let seal = Seal::of(head);
    let mut out = io::BufWriter::with_capacity(1 << 20, files::create(draft)?);
    // The header is written last, when the size is known.
    out.write_all(&[0; SEGMENT_HEADER_BYTES])?;
    let places = blobs.chunks(PLACES_PER_BLOCK).map(|places| Block::Blobs(places.to_vec()));
    for (number, block) in (0..).zip(places.chain(state.parts().map(Block::Part))) {
        let bytes = encoding::to_vec(&block);
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        out.write_all(&length.to_le_bytes())?;
        out.write_all(&seal.digest(number, &bytes))?;
        out.write_all(&bytes)?;
        head.size += (BLOCK_HEAD_BYTES + bytes.len()) as u64;
    }
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.write_all_at(&head.encode(), 0)?;
    file.sync_all()?;
    Ok(head.size)
}

/// Key for the checksums of blocks, which binds them to their snapshot and to their place in it.
struct Seal([u8; 32]);

impl Seal {
    fn of(head: SegmentHeader) -> Self {
        Self(Digest::of(&SegmentHeader { size: 0, ..head }.encode()).0)
    }
    fn digest(&self, number: u64, bytes: &[u8]) -> [u8; 32] {
        *blake3::Hasher::new_keyed(&self.0).update(&number.to_le_bytes()).update(bytes).finalize().as_bytes()
    }
}

/// Returns how many threads a start may use for reading a snapshot.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(THREADS_MAX))
}

/// Reads and checks a snapshot on `threads` threads.
pub(crate) fn load(dir: &Path, covered: u64, threads: usize) -> Result<LoadedSnapshot, JournalError> {
    let (path, file, head) = open(dir, covered)?;
    let blocks = Blocks::of(path, file, head)?;
    let mut read = blocks.read_all(threads)?;
    read.sort_unstable_by_key(|(number, _)| *number);
    let (mut blobs, mut parts) = (Vec::new(), Vec::with_capacity(read.len()));
    for (_, content) in read {
        match content {
            Content::Blobs(mut places) => blobs.append(&mut places),
            Content::Part(part) => parts.push(*part),
        }
    }
    let state = State::assemble(parts).ok_or_else(|| contradiction(&blocks.path))?;
    Ok(LoadedSnapshot { state, blobs, cursor: cursor(&head), bytes: head.size })
}

/// Reads only the locations of blobs from a snapshot.
pub(crate) fn places(dir: &Path, covered: u64) -> Result<Vec<(Digest, BlobPlace)>, JournalError> {
    let (path, file, head) = open(dir, covered)?;
    let blocks = Blocks::of(path, file, head)?;
    let (mut all, mut bytes) = (Vec::new(), Vec::new());
    while let Some((_, Content::Blobs(mut places))) = blocks.read_next(&mut bytes).map_err(|(_, error)| error)? {
        all.append(&mut places);
    }
    Ok(all)
}

fn open(dir: &Path, covered: u64) -> Result<(PathBuf, File, SegmentHeader), JournalError> {
    let path = FileKind::Snapshot.path(dir, covered);
    let file = File::open(&path).map_err(JournalError::io("open", &path))?;
    let mut head = [0; SEGMENT_HEADER_BYTES];
    let bad = |problem| damaged(&path, 0, "header of the snapshot", problem);
    file.read_exact_at(&mut head, 0).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => bad(Problem::Header),
        _ => JournalError::io("read", &path)(e),
    })?;
    let head = SegmentHeader::decode(&head).map_err(bad)?;
    if head.number != covered {
        return Err(bad(Problem::Chain));
    }
    Ok((path, file, head))
}

/// The blocks of a snapshot's file, taken one by one by the threads that read them.
struct Blocks {
    path: PathBuf,
    file: File,
    seal: Seal,
    end: u64,
    /// Offset and number of the next block that a thread takes.
    next: Mutex<(u64, u64)>,
}

/// A block's content, checked and decoded.
enum Content {
    Blobs(Vec<(Digest, BlobPlace)>),
    Part(Box<Restored>),
}

impl Blocks {
    fn of(path: PathBuf, file: File, head: SegmentHeader) -> Result<Self, JournalError> {
        let length = file.metadata().map_err(JournalError::io("look at", &path))?.len();
        let start = SEGMENT_HEADER_BYTES as u64;
        let end = head.size.saturating_add(start);
        if end != length {
            return Err(damaged(&path, end.min(length), "end of the snapshot", Problem::Checksum));
        }
        Ok(Self { path, file, seal: Seal::of(head), end, next: Mutex::new((start, 0)) })
    }

    /// Reads all blocks; returns them with their numbers, in any order. Err: the first of the bad blocks.
    fn read_all(&self, threads: usize) -> Result<Vec<(u64, Content)>, JournalError> {
        let results = std::thread::scope(|scope| {
            // If a thread can't be started, the others read more.
            let helpers: Vec<_> = (1..threads)
                .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, || self.read_some()).ok())
                .collect();
            let mut results = vec![self.read_some()];
            results.extend(helpers.into_iter().map(|h| h.join().unwrap_or_else(|e| std::panic::resume_unwind(e))));
            results
        });
        let mut all = Vec::new();
        let mut worst = None;
        for result in results {
            match result {
                Ok(mut read) => all.append(&mut read),
                Err((number, error)) if worst.as_ref().is_none_or(|(first, _)| number < *first) => {
                    worst = Some((number, error));
                }
                Err(_) => {}
            }
        }
        worst.map_or(Ok(all), |(_, error)| Err(error))
    }

    /// Reads blocks until none is left. Err: number of the bad block, and the error.
    fn read_some(&self) -> Result<Vec<(u64, Content)>, (u64, JournalError)> {
        let (mut read, mut bytes) = (Vec::new(), Vec::new());
        while let Some(block) = self.read_next(&mut bytes)? {
            read.push(block);
        }
        Ok(read)
    }

    /// Reads the next block that no other thread has taken. None: there is none.
    fn read_next(&self, bytes: &mut Vec<u8>) -> Result<Option<(u64, Content)>, (u64, JournalError)> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let (offset, number) = *next;
        if offset == self.end {
            return Ok(None);
        }
        let taken = self.head(offset, number);
        // After a bad block no further ones are read.
        let after = taken.as_ref().map_or(self.end, |(_, length)| offset + BLOCK_HEAD_BYTES as u64 + length);
        *next = (after, number + 1);
        drop(next);
        let content = taken.and_then(|(digest, length)| {
            bytes.resize(length as usize, 0);
            self.content(offset, number, &digest, bytes)
        });
        content.map(|content| Some((number, content))).map_err(|error| (number, error))
    }

    /// Reads checksum and length of a block.
    fn head(&self, offset: u64, number: u64) -> Result<([u8; 32], u64), JournalError> {
        let left = (self.end - offset).checked_sub(BLOCK_HEAD_BYTES as u64);
        let left = left.ok_or_else(|| self.damaged(offset, number, Problem::Checksum))?;
        let (mut length, mut digest) = ([0; 4], [0; 32]);
        self.file.read_exact_at(&mut length, offset).map_err(JournalError::io("read", &self.path))?;
        self.file.read_exact_at(&mut digest, offset + 4).map_err(JournalError::io("read", &self.path))?;
        let length = u64::from(u32::from_le_bytes(length));
        if length > left {
            return Err(self.damaged(offset, number, Problem::Checksum));
        }
        Ok((digest, length))
    }

    fn content(&self, offset: u64, number: u64, digest: &[u8], bytes: &mut [u8]) -> Result<Content, JournalError> {
        let start = offset + BLOCK_HEAD_BYTES as u64;
        self.file.read_exact_at(bytes, start).map_err(JournalError::io("read", &self.path))?;
        if self.seal.digest(number, bytes) != digest {
            return Err(self.damaged(offset, number, Problem::Checksum));
        }
        let unreadable = |why: String| self.damaged(offset, number, Problem::Content(why));
        let unknown = |why: String| self.damaged(offset, number, Problem::Unknown(why));
        match encoding::from_slice(bytes).map_err(unknown)? {
            Block::Blobs(places) => Ok(Content::Blobs(places)),
            Block::Part(part) => {
                let part = part.restore().ok_or_else(|| unreadable("it contradicts itself".into()))?;
                Ok(Content::Part(Box::new(part)))
            }
        }
    }

    fn damaged(&self, offset: u64, number: u64, problem: Problem) -> JournalError {
        damaged(&self.path, offset, &format!("block {number} of the snapshot"), problem)
    }
}

fn damaged(path: &Path, offset: u64, what: &str, problem: Problem) -> JournalError {
    JournalError::Damaged { path: path.to_owned(), offset, what: what.to_owned(), problem }
}

fn contradiction(path: &Path) -> JournalError {
    let problem = Problem::Content("it contradicts itself".into());
    damaged(path, SEGMENT_HEADER_BYTES as u64, "content of the snapshot", problem)
}

fn cursor(head: &SegmentHeader) -> Cursor {
    Cursor { cluster: head.cluster, seq: head.seq, link: head.link }
}

/// Returns the scripts and environments to which a state refers.
pub(crate) fn digests(state: &State) -> HashSet<Digest> {
    let specs = state.jobs.values().map(|j| &j.spec).chain(state.arrays.values().map(|a| &a.spec));
    specs.flat_map(|spec| spec.script.into_iter().chain([spec.env])).collect()
}
