//! Replays a journal: reads the newest snapshot, then applies every record after it.

use std::path::Path;
use std::time::{Duration, Instant};

use squall_engine::control::state::State;
use squall_model::event::{Event, Record};
use squall_model::journal::Problem;
use squall_model::time::Time;

use super::blobs::Blobs;
use super::error::JournalError;
use super::files::{FileKind, Listing};
use super::snapshot;
use super::walk::{Cursor, End, FrameItem, walk};

/// Sizes and times of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Bytes of the snapshot's content; 0: there was none.
    pub snapshot_bytes: u64,
    /// Time for reading the snapshot.
    pub snapshot_time: Duration,
    /// Number of records after the snapshot.
    pub records: u64,
    /// Number of events in the records after the snapshot.
    pub events: u64,
    /// Size of the frames after the snapshot, bytes.
    pub bytes: u64,
    /// Time for reading and applying the records after the snapshot.
    pub tail_time: Duration,
    /// Time of the last record.
    pub last: Time,
}

/// Result of reading the files of a journal.
#[derive(Debug)]
pub struct Replay {
    /// The state after the last readable record.
    pub state: State,
    /// Number of the last record; 0: there is none.
    pub seq: u64,
    /// Sizes and times of the replay.
    pub report: ReplayReport,
    pub(crate) blobs: Blobs,
    /// Number of the last segment covered by the snapshot; 0: there is none.
    pub(crate) covered: u64,
    pub(crate) cursor: Option<Cursor>,
    pub(crate) end: Option<End>,
    /// Error that ended the replay early; None: everything was read.
    pub(crate) error: Option<JournalError>,
    /// Number and damage of the newest snapshot, if the one before it and the segments since were read in its place.
    pub(crate) passed_over: Option<(u64, JournalError)>,
}

/// Reads a journal folder without changing anything, for measurements and inspection. The controller uses
/// `FileLog::open`.
pub fn replay(dir: &Path) -> Result<Replay, JournalError> {
    let mut replay = read(dir)?;
    match replay.error.take() {
        Some(error) => Err(error),
        None => Ok(replay),
    }
}

/// Like [`replay`], but returns damage in segments together with the state before it.
pub(crate) fn read(dir: &Path) -> Result<Replay, JournalError> {
    let listing = Listing::read(dir)?;
    let mut replay = Replay {
        state: State::default(),
        seq: 0,
        report: ReplayReport::default(),
        blobs: Blobs::new(dir),
        covered: 0,
        cursor: None,
        end: None,
        error: None,
        passed_over: None,
    };
    let mut snapshots = listing.snapshots.iter().rev();
    if let Some(&newest) = snapshots.next()
        && let Err(error) = replay.snapshot(dir, newest)
    {
        // The snapshot before the newest is kept for this case, with the segments since.
        match snapshots.next().filter(|_| error.is_damage()) {
            Some(&before) if replay.snapshot(dir, before).is_ok() => replay.passed_over = Some((newest, error)),
            _ => return Err(error),
        }
    }
    let tail: Vec<u64> = listing.segments.iter().copied().filter(|n| *n > replay.covered).collect();
    let first = replay.covered + 1;
    if tail.first().is_some_and(|n| *n != first) || (tail.is_empty() && replay.covered > 0) {
        let path = FileKind::Segment.path(dir, first);
        let why = if replay.covered > 0 { "a snapshot says that it follows" } else { "a later segment exists" };
        replay.error = Some(JournalError::Missing { path, why: why.into() });
    } else {
        replay.tail(dir, &tail);
    }
    match replay.passed_over.take_if(|_| replay.error.is_some()) {
        Some((_, error)) => Err(error),
        None => Ok(replay),
    }
}

impl Replay {
    /// Returns the random number that identifies the journal; 0: it has no segment.
    pub fn cluster(&self) -> u128 {
        self.cursor.map_or(0, |cursor| cursor.cluster)
    }

    /// Reads all scripts and environments that jobs may need. Err: one is missing or damaged.
    pub fn check_contents(&self) -> Result<(), JournalError> {
        self.blobs.check()
    }

    fn snapshot(&mut self, dir: &Path, number: u64) -> Result<(), JournalError> {
        let start = Instant::now();
        let loaded = snapshot::load(dir, number, snapshot::threads())?;
        for (digest, place) in loaded.blobs {
            self.blobs.put(digest, place, number);
        }
        for (packed, number) in self.blobs.files() {
            let path = if packed { FileKind::Pack.path(dir, number) } else { FileKind::Segment.path(dir, number) };
            if !path.exists() {
                return Err(JournalError::Missing { path, why: "scripts or environments of jobs stand in it".into() });
            }
        }
        self.report.snapshot_bytes = loaded.bytes;
        self.report.snapshot_time = start.elapsed();
        self.state = loaded.state;
        self.cursor = Some(loaded.cursor);
        self.covered = number;
        Ok(())
    }

    fn tail(&mut self, dir: &Path, numbers: &[u64]) {
        let start = Instant::now();
        let (state, blobs, report) = (&mut self.state, &self.blobs, &mut self.report);
        let walk = walk(dir, numbers, self.cursor, &mut |segment, found| {
            match found {
                FrameItem::Blob(digest, place) => blobs.put(digest, place, segment),
                FrameItem::Record(record) => {
                    report.records += 1;
                    report.last = report.last.max(record.time);
                    report.events += record.events.len() as u64;
                    touch(blobs, segment, &record)?;
                    apply(state, &record);
                }
            }
            Ok(())
        });
        self.report.bytes = walk.bytes;
        self.report.tail_time = start.elapsed();
        self.cursor = walk.cursor.or(self.cursor);
        self.seq = self.cursor.map_or(0, |c| c.seq - 1);
        self.end = walk.end;
        self.error = walk.error;
        if let (None, Some(end)) = (&self.error, self.end.filter(|e| e.closed)) {
            let path = FileKind::Segment.path(dir, end.number + 1);
            self.error =
                Some(JournalError::Missing { path, why: format!("segment {} says that it follows", end.number) });
        }
    }
}

/// Applies all events of a record to the state.
pub(crate) fn apply(state: &mut State, record: &Record) {
    for event in &record.events {
        state.apply(record.time, event);
    }
}

/// Records which blobs a record needs; a missing blob counts as damage.
fn touch(blobs: &Blobs, segment: u64, record: &Record) -> Result<(), Problem> {
    for event in &record.events {
        let Event::JobSubmitted { id, spec, .. } = event else { continue };
        for digest in spec.script.iter().chain([&spec.env]) {
            if !blobs.touch(digest, segment) && !is_nothing(digest) {
                return Err(Problem::Content(format!("script or environment {digest} of job {id} is nowhere")));
            }
        }
    }
    Ok(())
}

/// Whether a digest is all zeros, which in specifications means "no content".
fn is_nothing(digest: &squall_model::job::Digest) -> bool {
    digest.0.iter().all(|b| *b == 0)
}
