//! The journal's writer: appends batches to segment files, each completely or not at all.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use squall_engine::commit::{Append, Capacity};
use squall_engine::control::state::State;
use squall_model::event::Record;
use squall_model::job::Blob;
use squall_model::journal::{CLOSE_BYTES, FORMAT, FrameWriter, Link, Problem, SEGMENT_HEADER_BYTES, SegmentHeader};

use super::blobs::{BlobPlace, Blobs};
use super::copy::{Copier, Durable, Hold};
use super::error::{JournalError, is_no_space};
use super::files::{self, FileKind, Listing, PACK_DRAFT, SNAPSHOT_DRAFT, SPARE};
use super::follower::{AccountingMark, Follower};
use super::replay::{self, Replay, ReplayReport};
use super::snapshot;
use super::spare::{SEGMENT_BYTES_MAX, Spare, SpareKeeper, segment_size};
use super::walk::{Cursor, End};
use crate::accounts::FollowedJournal;
use crate::log::{BlobReader, Log, LogError, Snapshot};

/// Interval of asking how many bytes the disk has free.
const FREE_POLL: Duration = Duration::from_millis(100);

/// Options for opening a journal.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What accounting has stored: a journal that ends before that has lost records. None: unknown, so that is not
    /// checked.
    pub seen: Option<FollowedJournal>,
    /// Whether to continue without damaged or missing parts (they are set aside).
    pub accept_loss: bool,
    /// Size of segments on a disk with enough room, bytes.
    pub segment_bytes: u64,
    /// Whether a flush makes records durable. Without it acknowledged records may be lost: only for measuring the cost
    /// of durability, and only in a new journal.
    pub durable: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { seen: None, accept_loss: false, segment_bytes: SEGMENT_BYTES_MAX, durable: true }
    }
}

/// A log that was just opened.
#[derive(Debug)]
pub struct OpenedLog {
    /// The log, for appending.
    pub log: FileLog,
    /// The state after all its records.
    pub state: State,
    /// Sizes and times of the replay.
    pub report: ReplayReport,
    /// Messages for the log: a torn tail that was cut off, damage that was accepted.
    pub notices: Vec<String>,
}

/// The log in segment files.
#[derive(Debug)]
pub struct FileLog {
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
    /// Number of the first record that is not durable.
    unflushed: u64,
    copier: Copier,
    /// Free bytes of the disk, and when to ask for them again.
    free: (u64, Instant),
    fenced: bool,
}

impl FileLog {
    /// Reads the folder, cuts off a torn tail, and prepares for appending. The caller holds the lock of the state
    /// directory.
    pub fn open(dir: &Path, options: Options) -> Result<OpenedLog, JournalError> {
        files::remove(&dir.join(SPARE))?;
        files::remove(&dir.join(SNAPSHOT_DRAFT))?;
        files::remove(&dir.join(PACK_DRAFT))?;
        let mut notices = Vec::new();
        // The spare segment is made while the journal is read.
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
        let hold = Hold::default();
        let follower = Follower::start(dir, blobs.clone(), replay.covered, hold.clone())?;
        let End { number, size, at, .. } = end;
        let copier = Copier::new(dir, Durable { number, at, seq: cursor.seq - 1 }, hold);
        let log = Self {
            dir: dir.to_owned(),
            cursor,
            number,
            file,
            size,
            at,
            blobs,
            spare,
            follower,
            durable: options.durable,
            unflushed: cursor.seq,
            copier,
            free: (0, Instant::now()),
            fenced: false,
        };
        Ok(OpenedLog { log, state: replay.state, report: replay.report, notices })
    }

    /// Returns the random number that identifies this journal.
    pub fn cluster(&self) -> u128 {
        self.cursor.cluster
    }

    /// Returns a handle by which accounting reports up to which record it has stored everything. Records up to that one
    /// need not be kept for accounting.
    pub fn accounted(&self) -> AccountingMark {
        self.follower.accounted_handle()
    }

    /// Returns a handle by which the journal is copied while it is written.
    pub fn copier(&self) -> Copier {
        self.copier.clone()
    }

    /// Returns the handle of the thread that makes snapshots.
    pub(crate) fn follower(&self) -> &Follower {
        &self.follower
    }

    /// Waits until a spare segment is prepared, or can't be.
    pub fn await_spare(&self) {
        self.spare.await_ready();
    }

    /// Writes records and the blobs that they need as one frame; returns its length in bytes.
    fn put(&mut self, records: &[Record], blobs: &[Blob]) -> Result<u64, JournalError> {
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
        Ok(frame.len() as u64)
    }

    /// Counts what was appended as durable: it is, in another log of which this one is a copy.
    pub(crate) fn count_durable(&mut self) {
        self.unflushed = self.cursor.seq;
        self.note_durable();
    }

    /// Closes the current segment and begins the next, so that a snapshot can cover all records so far.
    pub(crate) fn close_segment(&mut self) -> Result<(), JournalError> {
        self.roll(0)
    }

    fn room_here(&self) -> u64 {
        (self.size - self.at).saturating_sub(CLOSE_BYTES as u64)
    }

    fn write(&self, frame: &[u8]) -> Result<(), JournalError> {
        let path = || FileKind::Segment.path(&self.dir, self.number);
        self.file.write_all_at(frame, self.at).map_err(|e| JournalError::io("write to", &path())(e))
    }

    /// Lets copies include all records so far: they were flushed.
    fn note_durable(&self) {
        self.copier.set_durable(Durable { number: self.number, at: self.at, seq: self.cursor.seq - 1 });
    }

    fn sync(&self) -> Result<(), JournalError> {
        if !self.durable {
            return Ok(());
        }
        let path = || FileKind::Segment.path(&self.dir, self.number);
        match self.file.sync_data() {
            // It is unknown what a failed flush has lost, so that even "no space" must not be retried.
            Err(e) if is_no_space(&e) => Err(JournalError::io("flush", &path())(std::io::Error::other(e))),
            Err(e) => Err(JournalError::io("flush", &path())(e)),
            Ok(()) => Ok(()),
        }
    }

    /// Continues in a new segment with room for a frame of `frame` bytes.
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
        self.sync()?;
        self.cursor = cursor;
        self.number += 1;
        self.file = file;
        self.size = size;
        self.at = SEGMENT_HEADER_BYTES as u64;
        // First, as a snapshot of the closed segment lets older files be removed.
        self.note_durable();
        self.follower.closed(self.number - 1);
        self.spare.wake();
        Ok(())
    }
}

#[cfg(test)]
impl FileLog {
    /// Returns the path of the segment that is being written, and its end.
    pub(crate) fn end(&self) -> (PathBuf, u64) {
        (FileKind::Segment.path(&self.dir, self.number), self.at)
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn file_mut(&mut self) -> &mut File {
        &mut self.file
    }
}

impl Log for FileLog {
    fn next_seq(&self) -> u64 {
        self.cursor.seq
    }

    fn append(&mut self, batch: &Append) -> Result<u64, LogError> {
        if self.fenced {
            return Err(LogError::Fenced);
        }
        debug_assert!(
            batch.records.first().is_none_or(|first| first.seq == self.next_seq()),
            "numbers follow each other"
        );
        let put = self.put(&batch.records, &batch.blobs);
        self.fenced |= put.as_ref().is_err_and(|error| !error.is_no_space());
        Ok(put?)
    }

    fn flush(&mut self) -> Result<(), LogError> {
        if self.fenced {
            return Err(LogError::Fenced);
        }
        let synced = self.sync();
        self.fenced |= synced.is_err();
        synced?;
        self.count_durable();
        Ok(())
    }

    fn read_from(&self, seq: u64, take: &mut dyn FnMut(Record)) -> Result<Option<u64>, LogError> {
        let first = super::records_from(&self.dir, seq, &mut |record| {
            if record.seq < self.unflushed {
                take(record);
            }
        })?;
        Ok(first.filter(|first| *first < self.unflushed))
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, LogError> {
        let Some(newest) = Listing::read(&self.dir)?.snapshots.pop() else { return Ok(None) };
        let loaded = snapshot::load(&self.dir, newest, snapshot::threads())?;
        Ok(Some(Snapshot { seq: loaded.cursor.seq - 1, state: loaded.state }))
    }

    fn take_snapshot(&mut self) {
        self.follower.snapshot();
    }

    fn blobs(&self) -> Arc<dyn BlobReader> {
        Arc::new(self.blobs.clone())
    }

    fn capacity(&mut self) -> Capacity {
        if Instant::now() >= self.free.1 {
            self.free = (files::free_bytes(&self.dir), Instant::now() + FREE_POLL);
        }
        let spare = self.spare.bytes().saturating_sub((SEGMENT_HEADER_BYTES + CLOSE_BYTES) as u64);
        Capacity {
            room: self.room_here() + spare,
            // Below this reserve only records that must be written are accepted.
            reserve: (self.size / 2).min(1 << 20),
            free: self.free.0,
            full: self.trouble().is_some(),
        }
    }

    fn trouble(&self) -> Option<String> {
        self.spare.trouble()
    }

    fn fence(&mut self) {
        self.fenced = true;
    }
}

/// Returns an error if records are missing that accounting has stored from the same journal.
fn shortness(replay: &Replay, seen: Option<FollowedJournal>) -> Option<JournalError> {
    let seen = seen.filter(|seen| replay.cursor.is_none_or(|c| c.cluster == seen.cluster))?;
    (replay.seq < seen.seq).then_some(JournalError::Short { have: replay.seq, seen: seen.seq })
}

/// Renames a damaged snapshot, so that it is not read again; returns a message about it.
fn pass_over(dir: &Path, (number, error): (u64, JournalError)) -> Result<String, JournalError> {
    let path = FileKind::Snapshot.path(dir, number);
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

/// Writes the header of a spare segment and renames it, durably.
fn name_segment(dir: &Path, number: u64, cursor: Cursor, spare: Spare) -> Result<File, JournalError> {
    let Cursor { cluster, seq, link } = cursor;
    let head = SegmentHeader { format: FORMAT, cluster, number, size: spare.size, seq, link };
    let path = FileKind::Segment.path(dir, number);
    spare.file.write_all_at(&head.encode(), 0).map_err(JournalError::io("write to", &spare.path))?;
    spare.file.sync_all().map_err(JournalError::io("flush", &spare.path))?;
    std::fs::rename(&spare.path, &path).map_err(JournalError::io("rename to", &path))?;
    files::sync_dir(dir)?;
    Ok(spare.file)
}

/// Returns the start of a new journal.
fn fresh(dir: &Path) -> Result<Cursor, JournalError> {
    let mut id = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut id))
        .map_err(JournalError::io("make an id for", dir))?;
    let cluster = u128::from_le_bytes(id);
    Ok(Cursor { cluster, seq: 1, link: Link::first(cluster) })
}

/// Makes the empty segment `number`, durably; returns where its first frame begins.
fn begin(dir: &Path, number: u64, cursor: Cursor, options: Options, keeper: &SpareKeeper) -> Result<End, JournalError> {
    keeper.await_ready();
    let made = keeper
        .take(SEGMENT_HEADER_BYTES as u64)
        .map_or_else(|| keeper.make(segment_size(dir, options.segment_bytes)), Ok);
    let spare = made.map_err(JournalError::io("reserve room in", dir))?;
    let size = spare.size;
    name_segment(dir, number, cursor, spare)?;
    keeper.wake();
    Ok(End { number, size, at: SEGMENT_HEADER_BYTES as u64, closed: false, torn: 0, stray: None })
}

/// Opens the last segment for appending, after removing an unfinished write.
fn reopen(dir: &Path, end: &End, notices: &mut Vec<String>) -> Result<File, JournalError> {
    if let Some(stray) = end.stray {
        files::remove(&FileKind::Segment.path(dir, stray))?;
        files::sync_dir(dir)?;
    }
    let path = FileKind::Segment.path(dir, end.number);
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

/// Copies the files from the first damage on to another folder, and cuts the journal before it.
fn set_aside(dir: &Path, replay: &mut Replay, notices: &mut Vec<String>) -> Result<(), JournalError> {
    let listing = Listing::read(dir)?;
    let last_good = replay.end.map_or(replay.covered, |e| e.number);
    let lost = dir.join(format!("lost-after-record-{}", replay.seq));
    std::fs::create_dir_all(&lost).map_err(JournalError::io("create", &lost))?;
    for number in listing.segments.into_iter().filter(|n| *n >= last_good && *n > replay.covered) {
        let from = FileKind::Segment.path(dir, number);
        let to = FileKind::Segment.path(&lost, number);
        std::fs::copy(&from, &to).map_err(JournalError::io("copy to", &to))?;
        if number > last_good {
            files::remove(&from)?;
        }
    }
    if let Some(end) = &mut replay.end {
        end.stray = None;
        if !end.closed {
            let path = FileKind::Segment.path(dir, end.number);
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
    use super::{Append, File, FileLog, Log, LogError, Options};
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
        let mut journal = FileLog::open(dir.path(), options).unwrap().log;
        let batch = |seq| Append { records: vec![record(seq)].into(), blobs: Vec::new() };
        journal.append(&batch(1)).unwrap();
        journal.flush().unwrap();
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let good = std::mem::replace(&mut journal.file, full);
        assert!(matches!(journal.append(&batch(2)), Err(LogError::NoRoom(_))));
        assert_eq!(journal.next_seq(), 2, "nothing has happened");
        journal.file = good;
        journal.append(&batch(2)).unwrap();
        journal.flush().unwrap();
        // The file can't be written to, like that of a failing disk.
        journal.file = File::open(super::FileKind::Segment.path(dir.path(), 1)).unwrap();
        let error = journal.append(&batch(3)).unwrap_err();
        assert!(matches!(error, LogError::Failed(_)) && error.to_string().contains("00000001.seg"), "{error}");
        assert!(matches!(journal.append(&batch(3)), Err(LogError::Fenced)));
        drop(journal);
        assert_eq!(super::super::replay(dir.path()).unwrap().seq, 2);
    }
}
