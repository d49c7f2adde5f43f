//! The journal itself: appends batches, each durable as a whole before `append` returns.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use squall_engine::control::state::State;
use squall_model::event::Record;
use squall_model::job::Blob;
use squall_model::journal::{CLOSE_BYTES, FORMAT, FrameWriter, Link, Problem, SEGMENT_HEADER_BYTES, SegmentHeader};

use super::blobs::{BlobPlace, Blobs};
use super::error::{JournalError, is_no_space};
use super::files::{self, Kind, Listing, PACK_DRAFT, SNAPSHOT_DRAFT, SPARE};
use super::follower::Follower;
use super::replay::{self, Replay, ReplayReport};
use super::spare::{SEGMENT_BYTES_MAX, Spare, SpareKeeper, segment_size};
use super::walk::{Cursor, End};
use crate::accounts::Seen;

/// How to open a journal.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What accounting has seen: a journal that ends before it has lost something.
    pub seen: Option<Seen>,
    /// Go on without what is damaged or missing (it is set aside).
    pub accept_loss: bool,
    /// Size of segments on a disk with room enough, bytes.
    pub segment_bytes: u64,
    /// Batches are flushed before `append` returns. Without it nothing that was acknowledged need survive: for
    /// measuring what durability costs, and only in a journal that is new.
    pub durable: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { seen: None, accept_loss: false, segment_bytes: SEGMENT_BYTES_MAX, durable: true }
    }
}

/// A journal that was just opened.
#[derive(Debug)]
pub struct Opened {
    /// For appending.
    pub journal: Journal,
    /// What it says.
    pub state: State,
    /// How the replay went.
    pub report: ReplayReport,
    /// What is worth saying: a torn tail that was cut, damage that was accepted.
    pub notices: Vec<String>,
}

/// Appends batches of records and blobs to segment files.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    cursor: Cursor,
    number: u64,
    file: File,
    size: u64,
    at: u64,
    blobs: Blobs,
    spare: SpareKeeper,
    follower: Follower,
    durable: bool,
}

/// What an append did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// Bytes written.
    pub bytes: u64,
    /// Time of write and flush.
    pub flush: Duration,
}

impl Journal {
    /// Reads the folder, cuts a torn tail, and makes ready for appending. The caller holds the directory's lock.
    pub fn open(dir: &Path, options: Options) -> Result<Opened, JournalError> {
        files::remove(&dir.join(SPARE))?;
        files::remove(&dir.join(SNAPSHOT_DRAFT))?;
        files::remove(&dir.join(PACK_DRAFT))?;
        let mut notices = Vec::new();
        // While that is being made, the journal is read.
        let spare =
            SpareKeeper::start(dir, options.segment_bytes).map_err(JournalError::io("start a thread for", dir))?;
        let mut replay = replay::read(dir)?;
        if let Some(error) = replay.error.take() {
            if !options.accept_loss || error.is_unknown() {
                return Err(error);
            }
            notices.push(format!("accepted the loss of what follows: {error}"));
            set_aside(dir, &mut replay, &mut notices)?;
        } else if let Some(error) = shortness(&replay, options.seen) {
            if !options.accept_loss {
                return Err(error);
            }
            notices.push(format!("accepted: {error}"));
        }
        if let Some(passed_over) = replay.passed_over.take() {
            notices.push(pass_over(dir, passed_over)?);
        }
        let cursor = match replay.cursor {
            Some(_) if !options.durable => return Err(JournalError::NotNew { path: dir.to_owned() }),
            Some(cursor) => cursor,
            None => fresh(dir)?,
        };
        let end = match replay.end {
            Some(end) if !end.closed => end,
            other => begin(dir, other.map_or(replay.covered, |e| e.number) + 1, cursor, options, &spare)?,
        };
        let file = reopen(dir, &end, &mut notices)?;
        let blobs = replay.blobs;
        let follower = Follower::start(dir, blobs.clone(), replay.covered)?;
        let End { number, size, at, .. } = end;
        let durable = options.durable;
        let journal = Self { dir: dir.to_owned(), cursor, number, file, size, at, blobs, spare, follower, durable };
        Ok(Opened { journal, state: replay.state, report: replay.report, notices })
    }

    /// The number of the next record.
    pub(crate) fn next_seq(&self) -> u64 {
        self.cursor.seq
    }

    /// Identifies this journal among all.
    pub fn cluster(&self) -> u128 {
        self.cursor.cluster
    }

    /// For reading scripts and environments.
    pub fn blobs(&self) -> Blobs {
        self.blobs.clone()
    }

    /// For telling up to where accounting has come: older records need not be kept for it.
    pub(crate) fn follower(&self) -> &Follower {
        &self.follower
    }

    /// Bytes that can be appended without asking the disk for room.
    pub fn room(&self) -> u64 {
        self.room_here() + self.spare.bytes().saturating_sub((SEGMENT_HEADER_BYTES + CLOSE_BYTES) as u64)
    }

    /// Bytes of room below which only what must be written should be.
    pub fn reserve(&self) -> u64 {
        (self.size / 2).min(1 << 20)
    }

    /// Why no room can be reserved, if none can.
    pub fn trouble(&self) -> Option<String> {
        self.spare.trouble()
    }

    /// Waits until room is reserved, or it is known that none can be.
    pub fn settle(&self) {
        self.spare.settle();
    }

    /// Appends records and the blobs that they need, and flushes. The records bear the numbers from
    /// [`Journal::next_seq`] on. After an error other than "no space" the journal must not be used again.
    pub fn append(&mut self, records: &[Record], blobs: &[Blob]) -> Result<Appended, JournalError> {
        let start = Instant::now();
        let dir = self.dir.clone();
        let unfit = |p: Problem| JournalError::io("write a record to", &dir)(std::io::Error::other(p));
        let mut writer = FrameWriter::default();
        let mut placed: Vec<(&Blob, usize)> = Vec::new();
        for blob in blobs {
            let known = placed.iter().any(|(b, _)| b.digest == blob.digest);
            if !known && !self.blobs.touch(&blob.digest, self.number + 1) {
                placed.push((blob, writer.blob(&blob.digest, &blob.bytes)));
            }
        }
        for record in records {
            writer.record(record).map_err(unfit)?;
        }
        let size = writer.size() as u64;
        if size > self.room_here() {
            self.roll(size)?;
        }
        let (frame, link) = writer.finish(self.cursor.link).map_err(unfit)?;
        self.write(&frame)?;
        for (blob, offset) in placed {
            let place = BlobPlace {
                packed: false,
                number: self.number,
                offset: self.at + offset as u64,
                length: blob.bytes.len() as u64,
            };
            self.blobs.put(blob.digest, place, self.number);
        }
        self.at += frame.len() as u64;
        self.cursor = Cursor { link, seq: self.cursor.seq + records.len() as u64, ..self.cursor };
        Ok(Appended { bytes: frame.len() as u64, flush: start.elapsed() })
    }

    /// Closes the current segment and begins the next, so that a snapshot can cover all that was appended.
    pub(crate) fn close_segment(&mut self) -> Result<(), JournalError> {
        self.roll(0)
    }

    fn room_here(&self) -> u64 {
        (self.size - self.at).saturating_sub(CLOSE_BYTES as u64)
    }

    fn write(&self, frame: &[u8]) -> Result<(), JournalError> {
        let path = || Kind::Segment.path(&self.dir, self.number);
        self.file.write_all_at(frame, self.at).map_err(|e| JournalError::io("write to", &path())(e))?;
        if !self.durable {
            return Ok(());
        }
        match self.file.sync_data() {
            // What a failed flush has lost is unknown: even "no space" is not to be tried again.
            Err(e) if is_no_space(&e) => Err(JournalError::io("flush", &path())(std::io::Error::other(e))),
            Err(e) => Err(JournalError::io("flush", &path())(e)),
            Ok(()) => Ok(()),
        }
    }

    /// Goes on in a new segment with room for a frame of that size.
    fn roll(&mut self, frame: u64) -> Result<(), JournalError> {
        let need = (SEGMENT_HEADER_BYTES + CLOSE_BYTES) as u64 + frame;
        let spare = match self.spare.take(need) {
            Some(spare) => spare,
            None => {
                self.spare.make(need.next_multiple_of(4096)).map_err(JournalError::io("reserve room in", &self.dir))?
            }
        };
        let mut closing = FrameWriter::default();
        closing.close();
        let unfit = |p: Problem| JournalError::io("close a segment in", &self.dir)(std::io::Error::other(p));
        let (frame, link) = closing.finish(self.cursor.link).map_err(unfit)?;
        let cursor = Cursor { link, ..self.cursor };
        let size = spare.size;
        let file = name_segment(&self.dir, self.number + 1, cursor, spare)?;
        self.write(&frame)?;
        self.follower.closed(self.number);
        self.cursor = cursor;
        self.number += 1;
        self.file = file;
        self.size = size;
        self.at = SEGMENT_HEADER_BYTES as u64;
        self.spare.wake();
        Ok(())
    }
}

/// Whether records are missing that accounting has seen of the same journal.
fn shortness(replay: &Replay, seen: Option<Seen>) -> Option<JournalError> {
    let seen = seen.filter(|seen| replay.cursor.is_none_or(|c| c.cluster == seen.cluster))?;
    (replay.seq < seen.seq).then_some(JournalError::Short { have: replay.seq, seen: seen.seq })
}

/// Keeps a damaged snapshot under another name; returns what is worth saying.
fn pass_over(dir: &Path, (number, error): (u64, JournalError)) -> Result<String, JournalError> {
    let path = Kind::Snapshot.path(dir, number);
    let aside = path.with_extension("snap.damaged");
    std::fs::rename(&path, &aside).map_err(JournalError::io("rename to", &aside))?;
    files::sync_dir(dir)?;
    let what = match error {
        JournalError::Damaged { offset, what, problem, .. } => {
            format!("{} is damaged at offset {offset} ({what}): {problem}", path.display())
        }
        other => other.to_string(),
    };
    Ok(format!(
        "{what}. Nothing is lost: the snapshot before it and the segments since then were read in its stead. It is \
         kept as {}; look after this disk",
        aside.display()
    ))
}

/// Gives a spare its header and its name, durably.
fn name_segment(dir: &Path, number: u64, cursor: Cursor, spare: Spare) -> Result<File, JournalError> {
    let Cursor { cluster, seq, link } = cursor;
    let head = SegmentHeader { format: FORMAT, cluster, number, size: spare.size, seq, link };
    let path = Kind::Segment.path(dir, number);
    spare.file.write_all_at(&head.encode(), 0).map_err(JournalError::io("write to", &spare.path))?;
    spare.file.sync_all().map_err(JournalError::io("flush", &spare.path))?;
    std::fs::rename(&spare.path, &path).map_err(JournalError::io("rename to", &path))?;
    files::sync_dir(dir)?;
    Ok(spare.file)
}

/// The beginning of a journal that does not exist yet.
fn fresh(dir: &Path) -> Result<Cursor, JournalError> {
    let mut id = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut id))
        .map_err(JournalError::io("make an id for", dir))?;
    let cluster = u128::from_le_bytes(id);
    Ok(Cursor { cluster, seq: 1, link: Link::first(cluster) })
}

/// Makes an empty segment.
fn begin(dir: &Path, number: u64, cursor: Cursor, options: Options, keeper: &SpareKeeper) -> Result<End, JournalError> {
    keeper.settle();
    let made = keeper
        .take(SEGMENT_HEADER_BYTES as u64)
        .map_or_else(|| keeper.make(segment_size(dir, options.segment_bytes)), Ok);
    let spare = made.map_err(JournalError::io("reserve room in", dir))?;
    let size = spare.size;
    name_segment(dir, number, cursor, spare)?;
    keeper.wake();
    Ok(End { number, size, at: SEGMENT_HEADER_BYTES as u64, closed: false, torn: 0, stray: None })
}

/// Opens the last segment for appending, free of an unfinished write.
fn reopen(dir: &Path, end: &End, notices: &mut Vec<String>) -> Result<File, JournalError> {
    if let Some(stray) = end.stray {
        files::remove(&Kind::Segment.path(dir, stray))?;
        files::sync_dir(dir)?;
    }
    let path = Kind::Segment.path(dir, end.number);
    let file =
        std::fs::OpenOptions::new().read(true).write(true).open(&path).map_err(JournalError::io("open", &path))?;
    let length = file.metadata().map_err(JournalError::io("look at", &path))?.len();
    if end.torn > 0 {
        notices.push(format!(
            "{}: cut {} bytes of an unfinished write at offset {}; nothing in it was acknowledged",
            path.display(),
            end.torn,
            end.at
        ));
        let zeros = vec![0; end.torn];
        file.write_all_at(&zeros, end.at).map_err(JournalError::io("cut", &path))?;
    }
    if length != end.size {
        notices.push(format!("{}: has {length} bytes instead of {}: corrected", path.display(), end.size));
        file.set_len(end.size).map_err(JournalError::io("reserve room in", &path))?;
        let missing = end.size.saturating_sub(length);
        if missing > 0 {
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, flags, length, missing)
                .map_err(|e| JournalError::io("reserve room in", &path)(e.into()))?;
        }
    }
    if end.torn > 0 || length != end.size {
        file.sync_all().map_err(JournalError::io("flush", &path))?;
    }
    Ok(file)
}

/// Keeps copies of the files from the first damage on, and lets the journal end before it.
fn set_aside(dir: &Path, replay: &mut Replay, notices: &mut Vec<String>) -> Result<(), JournalError> {
    let listing = Listing::read(dir)?;
    let last_good = replay.end.map_or(replay.covered, |e| e.number);
    let lost = dir.join(format!("lost-after-record-{}", replay.seq));
    std::fs::create_dir_all(&lost).map_err(JournalError::io("create", &lost))?;
    for number in listing.segments.into_iter().filter(|n| *n >= last_good && *n > replay.covered) {
        let from = Kind::Segment.path(dir, number);
        let to = Kind::Segment.path(&lost, number);
        std::fs::copy(&from, &to).map_err(JournalError::io("copy to", &to))?;
        if number > last_good {
            files::remove(&from)?;
        }
    }
    if let Some(end) = &mut replay.end {
        end.stray = None;
        if !end.closed {
            let path = Kind::Segment.path(dir, end.number);
            let length = std::fs::metadata(&path).map_err(JournalError::io("look at", &path))?.len();
            end.torn = length.saturating_sub(end.at) as usize;
        }
    }
    files::sync_dir(dir)?;
    notices.push(format!("copies of what was there are in {}", lost.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::Folder;
    use super::{File, Journal, Options};
    use squall_model::event::{Event, Record};
    use squall_model::id::NodeId;
    use squall_model::time::Time;

    fn record(seq: u64) -> Record {
        Record { seq, time: Time(seq), events: vec![Event::NodeUp { node: NodeId(0) }] }
    }

    #[test]
    fn no_room_can_be_tried_again_and_any_other_failure_is_the_end() {
        let dir = Folder::new();
        let options = Options { segment_bytes: 64 << 10, ..Options::default() };
        let mut journal = Journal::open(dir.path(), options).unwrap().journal;
        journal.append(&[record(1)], &[]).unwrap();
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let good = std::mem::replace(&mut journal.file, full);
        assert!(journal.append(&[record(2)], &[]).unwrap_err().is_no_space());
        assert_eq!(journal.next_seq(), 2, "nothing has happened");
        journal.file = good;
        journal.append(&[record(2)], &[]).unwrap();
        // Can't be written to: as good as a disk that fails.
        journal.file = File::open(super::Kind::Segment.path(dir.path(), 1)).unwrap();
        let error = journal.append(&[record(3)], &[]).unwrap_err();
        assert!(!error.is_no_space() && error.to_string().contains("00000001.seg"), "{error}");
        drop(journal);
        assert_eq!(super::super::replay(dir.path()).unwrap().seq, 2);
    }
}
