//! Reads segments in order and checks, frame by frame, that each continues the one before.

use std::path::{Path, PathBuf};

use squall_model::event::Record;
use squall_model::job::Digest;
use squall_model::journal::{self, Damage, Item, Link, Problem, SEGMENT_HEADER_BYTES, Scan, SegmentHeader};

use super::blobs::BlobPlace;
use super::error::JournalError;
use super::files::FileKind;

/// Values with which the next segment must begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) cluster: u128,
    /// Sequence number of the next record.
    pub(crate) seq: u64,
    pub(crate) link: Link,
}

/// An item of a frame in a segment.
#[derive(Debug)]
pub(crate) enum FrameItem {
    Record(Record),
    Blob(Digest, BlobPlace),
}

/// The end of the last segment that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) number: u64,
    /// Size of the segment's file when it was made, bytes.
    pub(crate) size: u64,
    /// Offset for the next frame.
    pub(crate) at: u64,
    /// Whether the last frame marks the segment as closed: another segment follows.
    pub(crate) closed: bool,
    /// Length of an unfinished write at `at`, bytes.
    pub(crate) torn: usize,
    /// Number of an empty segment after this one, left by a crash while it was being made; None: there is none.
    pub(crate) stray: Option<u64>,
}

/// Result of reading segments.
#[derive(Debug)]
pub(crate) struct Walk {
    /// Position after the last good frame; None: none was read, and no position was given.
    pub(crate) cursor: Option<Cursor>,
    /// End of the last segment that was read. None: no segment could be read.
    pub(crate) end: Option<End>,
    /// Size of all good frames that were read, bytes.
    pub(crate) bytes: u64,
    /// Error that ended the reading early; None: everything was read.
    pub(crate) error: Option<JournalError>,
}

/// Callback for each item, with the number of its segment.
pub(crate) type Visit<'a> = dyn FnMut(u64, FrameItem) -> Result<(), Problem> + 'a;

/// Reads the segments with these numbers. None as `cursor`: reading starts as the first segment's header says.
pub(crate) fn walk(dir: &Path, numbers: &[u64], cursor: Option<Cursor>, visit: &mut Visit<'_>) -> Walk {
    let mut walk = Walk { cursor, end: None, bytes: 0, error: None };
    for (i, &number) in numbers.iter().enumerate() {
        if let Err(error) = walk.step(dir, number, &numbers[i + 1..], visit) {
            walk.error = Some(error);
            break;
        }
        if walk.end.is_some_and(|e| !e.closed) {
            break;
        }
    }
    walk
}

/// A segment's bytes with its header.
struct Segment {
    path: PathBuf,
    bytes: Vec<u8>,
    header: SegmentHeader,
}

impl Segment {
    fn load(dir: &Path, number: u64) -> Result<Self, JournalError> {
        let path = FileKind::Segment.path(dir, number);
        let bytes = std::fs::read(&path).map_err(JournalError::io("read", &path))?;
        let header = SegmentHeader::decode(&bytes).map_err(|problem| header_damage(&path, problem))?;
        Ok(Self { path, bytes, header })
    }

    fn is_empty(&self) -> bool {
        journal::used_bytes(&self.bytes[SEGMENT_HEADER_BYTES..]) == 0
    }
}

fn header_damage(path: &Path, problem: Problem) -> JournalError {
    JournalError::Damaged { path: path.to_owned(), offset: 0, what: "header of the segment".into(), problem }
}

impl Walk {
    fn step(&mut self, dir: &Path, number: u64, later: &[u64], visit: &mut Visit<'_>) -> Result<(), JournalError> {
        if let Some(end) = self.end.filter(|e| e.number + 1 != number) {
            let path = FileKind::Segment.path(dir, end.number + 1);
            return Err(JournalError::Missing { path, why: format!("segment {number} exists") });
        }
        let segment = Segment::load(dir, number)?;
        let head = segment.header;
        let found = Cursor { cluster: head.cluster, seq: head.seq, link: head.link };
        if head.number != number || self.cursor.is_some_and(|expected| expected != found) {
            return Err(header_damage(&segment.path, Problem::Chain));
        }
        let mut end =
            End { number, size: head.size, at: SEGMENT_HEADER_BYTES as u64, closed: false, torn: 0, stray: None };
        let result = self.frames(&segment, found, &mut end, visit);
        self.end = Some(end);
        let torn = result?;
        if end.closed {
            return Ok(());
        }
        let end = self.end.get_or_insert(end);
        end.torn = torn;
        match later {
            [] => Ok(()),
            [next] if Segment::load(dir, *next).is_ok_and(|s| s.is_empty()) => {
                end.stray = Some(*next);
                Ok(())
            }
            _ => {
                let cursor = self.cursor.unwrap_or(found);
                let damage = Damage { offset: end.at as usize, frame: cursor.link.frame, problem: Problem::Checksum };
                Err(JournalError::frame(&segment.path, damage, cursor.seq))
            }
        }
    }

    /// Reads frames until the segment ends; returns the length of an unfinished write that follows, bytes.
    fn frames(
        &mut self,
        segment: &Segment,
        mut cursor: Cursor,
        end: &mut End,
        visit: &mut Visit<'_>,
    ) -> Result<usize, JournalError> {
        self.cursor = Some(cursor);
        loop {
            let at = end.at as usize;
            let (items, next, link) = match journal::scan(&segment.bytes, at, cursor.link) {
                Scan::Frame { items, next, link } => (items, next, link),
                Scan::End => return Ok(0),
                Scan::Torn { bytes } => return Ok(bytes),
                Scan::Damaged(damage) => return Err(JournalError::frame(&segment.path, damage, cursor.seq)),
            };
            let frame = cursor.link.frame;
            let bad = |problem, seq| JournalError::frame(&segment.path, Damage { offset: at, frame, problem }, seq);
            for item in journal::items(&segment.bytes, items).map_err(|p| bad(p, cursor.seq))? {
                match item {
                    Item::Record(record) if record.seq != cursor.seq => {
                        return Err(bad(Problem::Content(format!("it bears the number {}", record.seq)), cursor.seq));
                    }
                    Item::Record(record) => {
                        visit(end.number, FrameItem::Record(record)).map_err(|p| bad(p, cursor.seq))?;
                        cursor.seq += 1;
                    }
                    Item::Blob { digest, at: offset, content } => {
                        let (offset, length) = (offset as u64, content.len() as u64);
                        let place = BlobPlace { packed: false, number: end.number, offset, length };
                        visit(end.number, FrameItem::Blob(digest, place)).map_err(|p| bad(p, cursor.seq))?;
                    }
                    Item::Close => end.closed = true,
                }
            }
            self.bytes += (next - at) as u64;
            cursor.link = link;
            end.at = next as u64;
            self.cursor = Some(cursor);
            if end.closed {
                return Ok(0);
            }
        }
    }
}
