//! Makes snapshots while the controller runs: from the last snapshot and the closed segments, never from the
//! controller's memory. So every snapshot also proves that the journal can be replayed.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use squall_engine::control::state::State;
use squall_model::job::Digest;
use squall_model::journal::{FORMAT, FrameWriter, Link, SEGMENT_HEADER_BYTES, SegmentHeader};

use super::blobs::{BlobPlace, Blobs};
use super::copy::Hold;
use super::error::JournalError;
use super::files::{self, FileKind, Listing, PACK_DRAFT};
use super::replay::apply;
use super::snapshot;
use super::walk::{Cursor, FrameItem, walk};

/// Bytes of closed segments after which a snapshot is worth its cost, unless the last snapshot was more than twice as
/// large.
const TAIL_BYTES: u64 = 48 << 20;
/// Time without a newly closed segment for which a snapshot is delayed: under a load of ten thousand jobs per second
/// the CPUs are needed, and most of the snapshot would soon be outdated.
const QUIET: Duration = Duration::from_secs(10);
/// Bytes of closed segments at which a snapshot is no longer delayed, so that a start has to read only what takes
/// seconds.
const TAIL_BYTES_MAX: u64 = 256 << 20;
/// Free bytes below which only the newest snapshot is kept.
const ROOM_FOR_TWO: u64 = 2 * TAIL_BYTES;
/// Interval of attempts to remove files that accounting still needed.
const CLEAN_EVERY: Duration = Duration::from_secs(1);
/// Nice value of the thread that makes snapshots: where CPUs are short, it gets a third of the time that others get.
const NICE: i32 = 5;
/// Bytes of blobs in one frame of a pack.
const PACK_FRAME_BYTES: usize = 1 << 20;

/// Most orders that may be queued: segments that are closed while one snapshot is made.
const ORDERS_MAX: usize = 1024;

enum Order {
    Closed(u64),
    Snapshot,
}

/// Handle of the thread that makes snapshots; the thread ends when this is dropped.
#[derive(Debug)]
pub struct Follower {
    orders: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Records up to this one are in the accounting database; 0: accounting has reported nothing yet.
    accounted: AtomicU64,
    /// Number of the last segment covered by a snapshot.
    covered: (Mutex<u64>, Condvar),
}

/// State of the thread that makes snapshots.
struct Work {
    dir: PathBuf,
    blobs: Blobs,
    shared: Arc<Shared>,
    /// Number of the last closed segment.
    closed: u64,
    covered: u64,
    /// The snapshot before the newest one; None: there is none. It is kept, with the segments since, in case the newest
    /// gets damaged.
    before: Option<Before>,
    /// Size of the newest snapshot, bytes.
    snapshot_bytes: u64,
    /// Whether files could not be removed yet, as accounting needs them.
    unclean: bool,
    /// Whether a snapshot is due and delayed until the load is low.
    due: bool,
    /// Keeps files from being removed while a copy is prepared.
    hold: Hold,
}

/// A snapshot that is not the newest.
struct Before {
    covered: u64,
    /// The files that contain the snapshot's blobs: (whether it is a pack, number).
    files: HashSet<(bool, u64)>,
}

impl Before {
    fn of(covered: u64, places: &[(Digest, BlobPlace)]) -> Self {
        Self { covered, files: places.iter().map(|(_, place)| (place.packed, place.number)).collect() }
    }

    /// Finds the snapshot before the one numbered `covered` when the thread starts. None: there is none, or it is
    /// damaged.
    fn find(dir: &Path, listing: &Listing, covered: u64) -> Option<Self> {
        let before = *listing.snapshots.iter().rfind(|number| **number < covered)?;
        Some(Self::of(before, &snapshot::places(dir, before).ok()?))
    }
}

impl Follower {
    pub(super) fn start(dir: &Path, blobs: Blobs, covered: u64, hold: Hold) -> Result<Self, JournalError> {
        let shared = Arc::new(Shared { accounted: AtomicU64::new(0), covered: (Mutex::new(covered), Condvar::new()) });
        let (orders, inbox) = sync_channel(ORDERS_MAX);
        let listing = Listing::read(dir)?;
        let last_closed = listing.segments.last().map_or(covered, |last| last - 1).max(covered);
        let snapshot_bytes = std::fs::metadata(FileKind::Snapshot.path(dir, covered)).map_or(0, |m| m.len());
        let mut work = Work {
            dir: dir.to_owned(),
            blobs,
            shared: Arc::clone(&shared),
            closed: last_closed,
            covered,
            before: Before::find(dir, &listing, covered),
            snapshot_bytes,
            unclean: true,
            due: false,
            hold,
        };
        let thread = std::thread::Builder::new()
            .name("journal-snapshot".into())
            .spawn(move || work.run(&inbox))
            .map_err(JournalError::io("start a thread for", dir))?;
        Ok(Self { orders: Some(orders), thread: Some(thread), shared })
    }

    pub(crate) fn closed(&self, number: u64) {
        self.order(Order::Closed(number));
    }

    /// Returns a handle by which the accounting thread reports up to which record it has stored everything.
    pub(crate) fn accounted_handle(&self) -> AccountingMark {
        AccountingMark(Arc::clone(&self.shared))
    }

    /// Has a snapshot made of all closed segments, however few.
    pub fn snapshot(&self) {
        self.order(Order::Snapshot);
    }

    /// Waits until a snapshot covers the segment `number`. False: that took longer than `timeout`.
    pub(crate) fn wait_covered(&self, number: u64, timeout: Duration) -> bool {
        let (covered, changed) = &self.shared.covered;
        let covered = covered.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(covered, timeout, |c| *c < number);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // The journal never waits for a snapshot. An order that does not fit is dropped: the next closed segment
            // makes up for it. If the thread has ended, it has logged why, and the journal continues without snapshots.
            drop(orders.try_send(order));
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Reports to the thread that makes snapshots, up to which record accounting has stored everything.
#[derive(Clone, Debug)]
pub struct AccountingMark(Arc<Shared>);

impl AccountingMark {
    /// Reports that records up to `seq` are stored.
    pub fn up_to(&self, seq: u64) {
        self.0.accounted.store(seq, Ordering::Release);
    }
}

impl Work {
    fn run(&mut self, inbox: &Receiver<Order>) {
        // Lower priority than jobs, as the journal only grows meanwhile. If this is not permitted, the thread has
        // normal priority.
        rustix::process::nice(NICE).ok();
        loop {
            let order = match (self.due, self.unclean) {
                (true, _) => inbox.recv_timeout(QUIET),
                (false, true) => inbox.recv_timeout(CLEAN_EVERY),
                (false, false) => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let result = match order {
                Ok(Order::Closed(number)) => {
                    self.closed = number;
                    let (tail, small_disk) = (self.tail_bytes(), self.small_disk_bytes());
                    self.due = tail >= TAIL_BYTES.min(small_disk).max(self.snapshot_bytes / 2);
                    if self.due && tail >= TAIL_BYTES_MAX.min(small_disk).max(self.snapshot_bytes) {
                        self.snapshot()
                    } else if self.unclean || (self.before.is_some() && self.is_tight()) {
                        self.clean()
                    } else {
                        Ok(())
                    }
                }
                Ok(Order::Snapshot) => self.snapshot(),
                Err(RecvTimeoutError::Timeout) if self.due => self.snapshot(),
                Err(RecvTimeoutError::Timeout) => self.clean(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            match result {
                Ok(()) => {}
                Err(e) if e.is_no_space() => {
                    tracing::warn!(error = %e, "no room for a snapshot yet");
                    self.before = None;
                    self.unclean = true;
                }
                Err(e) => tracing::error!(error = %e, "snapshot failed, the journal is kept as it is"),
            }
        }
    }

    fn is_tight(&self) -> bool {
        files::free_bytes(&self.dir) < ROOM_FOR_TWO
    }

    /// Returns a quarter of the free bytes: on a small disk a snapshot is made when the journal has grown by so much.
    fn small_disk_bytes(&self) -> u64 {
        files::free_bytes(&self.dir) / 4
    }

    fn tail_bytes(&self) -> u64 {
        let size = |n| std::fs::metadata(FileKind::Segment.path(&self.dir, n)).map_or(0, |m| m.len());
        (self.covered + 1..=self.closed).map(size).sum()
    }

    /// Replays the closed segments and writes a snapshot; then removes files that are no longer needed.
    fn snapshot(&mut self) -> Result<(), JournalError> {
        self.due = false;
        if self.closed == self.covered {
            return Ok(());
        }
        let (state, cursor, before) = self.replay()?;
        let target = self.closed;
        let kept = self.blobs.retain(&snapshot::digests(&state), target);
        let moved = self.pack(target, &kept)?;
        let placed: HashMap<Digest, BlobPlace> = moved.iter().copied().collect();
        let index: Vec<_> = kept.into_iter().map(|(d, place)| (d, placed.get(&d).copied().unwrap_or(place))).collect();
        self.snapshot_bytes = snapshot::write(&self.dir, target, cursor, &state, &index)?;
        self.blobs.moved(&moved);
        self.covered = target;
        self.before = before;
        *self.shared.covered.0.lock().unwrap_or_else(PoisonError::into_inner) = target;
        self.shared.covered.1.notify_all();
        self.clean()
    }

    /// Returns the state after the last closed segment, made from the newest snapshot (None: there was none) and the
    /// segments closed since.
    fn replay(&self) -> Result<(State, Cursor, Option<Before>), JournalError> {
        let (mut state, start, before) = if self.covered > 0 {
            let loaded = snapshot::load(&self.dir, self.covered, 1)?;
            (loaded.state, Some(loaded.cursor), Some(Before::of(self.covered, &loaded.blobs)))
        } else {
            (State::default(), None, None)
        };
        let numbers: Vec<u64> = (self.covered + 1..=self.closed).collect();
        let walk = walk(&self.dir, &numbers, start, &mut |_, found| {
            if let FrameItem::Record(record) = found {
                apply(&mut state, &record);
            }
            Ok(())
        });
        if let Some(error) = walk.error {
            return Err(error);
        }
        let missing = || JournalError::Missing {
            path: FileKind::Segment.path(&self.dir, self.closed),
            why: "it was closed".into(),
        };
        if !walk.end.is_some_and(|e| e.closed && e.number == self.closed) {
            return Err(missing());
        }
        Ok((state, walk.cursor.ok_or_else(missing)?, before))
    }

    /// Copies blobs out of files that mostly hold data no longer needed; returns their new locations.
    fn pack(&self, number: u64, kept: &[(Digest, BlobPlace)]) -> Result<Vec<(Digest, BlobPlace)>, JournalError> {
        let mut live: HashMap<(bool, u64), u64> = HashMap::new();
        for (_, place) in kept {
            *live.entry((place.packed, place.number)).or_default() += place.length;
        }
        let mostly_dead = |place: &BlobPlace| {
            let size = std::fs::metadata(place.path(&self.dir)).map_or(u64::MAX, |m| m.len());
            live.get(&(place.packed, place.number)).is_some_and(|bytes| bytes * 2 < size)
        };
        let carried: Vec<_> = kept.iter().filter(|(_, place)| mostly_dead(place)).copied().collect();
        if carried.is_empty() {
            return Ok(Vec::new());
        }
        let draft = self.dir.join(PACK_DRAFT);
        let result = self.write_pack(&draft, number, &carried);
        if result.is_err() {
            drop(files::remove(&draft));
            return result;
        }
        let path = FileKind::Pack.path(&self.dir, number);
        std::fs::rename(&draft, &path).map_err(JournalError::io("rename to", &path))?;
        result
    }

    fn write_pack(
        &self,
        draft: &Path,
        number: u64,
        carried: &[(Digest, BlobPlace)],
    ) -> Result<Vec<(Digest, BlobPlace)>, JournalError> {
        let failed = || JournalError::io("write", draft);
        let file = files::create(draft).map_err(failed())?;
        let mut link = Link::first(0);
        let head = SegmentHeader { format: FORMAT, cluster: 0, number, size: 0, seq: 0, link };
        file.write_all_at(&head.encode(), 0).map_err(failed())?;
        let mut at = SEGMENT_HEADER_BYTES as u64;
        let mut places = Vec::new();
        let mut rest = carried;
        while !rest.is_empty() {
            let mut writer = FrameWriter::default();
            while let Some(((digest, place), after)) = rest.split_first().filter(|_| writer.size() < PACK_FRAME_BYTES) {
                let content = self.blobs.read_at(digest, *place)?;
                let offset = at + writer.blob(digest, &content) as u64;
                places.push((*digest, BlobPlace { packed: true, number, offset, length: content.len() as u64 }));
                rest = after;
            }
            let (frame, next) = writer.finish(link).map_err(|p| failed()(std::io::Error::other(p)))?;
            file.write_all_at(&frame, at).map_err(failed())?;
            at += frame.len() as u64;
            link = next;
        }
        file.sync_all().map_err(failed())?;
        Ok(places)
    }

    /// Removes files that neither the next start, nor a blob, nor accounting needs. While a copy is prepared, that is
    /// left for later.
    fn clean(&mut self) -> Result<(), JournalError> {
        let hold = self.hold.clone();
        self.unclean |= !hold.unless_held(|| self.remove_old())?;
        Ok(())
    }

    fn remove_old(&mut self) -> Result<(), JournalError> {
        if self.is_tight() {
            self.before = None;
        }
        let listing = Listing::read(&self.dir)?;
        let accounted = self.shared.accounted.load(Ordering::Acquire);
        let mut needed: HashSet<(bool, u64)> = self.blobs.files();
        let mut oldest = self.covered;
        if let Some(before) = &self.before {
            oldest = before.covered;
            needed.extend(&before.files);
        }
        self.unclean = false;
        for number in listing.snapshots.into_iter().filter(|n| *n < oldest) {
            files::remove(&FileKind::Snapshot.path(&self.dir, number))?;
        }
        for number in listing.packs.into_iter().filter(|n| !needed.contains(&(true, *n))) {
            files::remove(&FileKind::Pack.path(&self.dir, number))?;
        }
        for number in listing.segments.into_iter().filter(|n| *n <= oldest && !needed.contains(&(false, *n))) {
            if first_seq(&self.dir, number + 1).is_some_and(|next| next <= accounted + 1) {
                files::remove(&FileKind::Segment.path(&self.dir, number))?;
            } else {
                self.unclean = true;
            }
        }
        Ok(())
    }
}

/// Returns the number of a segment's first record, from its header. None: the header can't be read.
pub(crate) fn first_seq(dir: &Path, number: u64) -> Option<u64> {
    let file = std::fs::File::open(FileKind::Segment.path(dir, number)).ok()?;
    let mut head = [0; SEGMENT_HEADER_BYTES];
    file.read_exact_at(&mut head, 0).ok()?;
    SegmentHeader::decode(&head).ok().map(|h| h.seq)
}
