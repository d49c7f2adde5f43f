//! A log in memory with the faults of a disk: unflushed bytes may be lost or torn, and room may end.
//!
//! The simulator runs the commit pipeline over it. All random choices are passed in as numbers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use squall_engine::commit::{Append, Capacity};
use squall_engine::control::state::State;
use squall_engine::control::state::snapshot::Part;
use squall_model::event::Record;
use squall_model::job::{Blob, Digest};
use squall_model::{codec, encoding};

use crate::entry::Entry;
use crate::log::{BlobReader, Log, LogError, Snapshot};

/// A snapshot in the form in which it is stored.
#[derive(Clone, Debug)]
struct StoredSnapshot {
    /// Number of the last record that is part of the snapshot.
    seq: u64,
    /// Size of the entries that the snapshot covers, bytes.
    covered: usize,
    /// The encoded parts of the state.
    parts: Arc<Vec<u8>>,
}

impl StoredSnapshot {
    fn state(&self) -> Result<State, LogError> {
        let parts: Vec<Part> = encoding::from_slice(&self.parts).map_err(|e| LogError::Failed(e.into()))?;
        let parts = parts.into_iter().map(Part::restore).collect::<Option<Vec<_>>>();
        parts.and_then(State::assemble).ok_or_else(|| LogError::Failed("the snapshot contradicts itself".into()))
    }
}

/// Ways in which a simulated disk breaks its promises, to plant bugs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Lie {
    /// The disk keeps its promises.
    #[default]
    None,
    /// A flush reports success, but makes nothing durable.
    FlushSkipped,
    /// Recovery does not cut off a torn tail, so that later entries are written behind it.
    TornTailKept,
}

/// A log in memory. It survives its controller: see [`MemoryLog::crash`] and [`MemoryLog::recover`].
#[derive(Debug, Default)]
pub struct MemoryLog {
    /// Encoded entries, one after the other.
    bytes: Vec<u8>,
    /// Bytes at the beginning of `bytes` that survive a crash.
    flushed: usize,
    /// Bytes at the beginning of `bytes` that the disk has reported as durable.
    claimed: usize,
    /// Number of the last record that was appended.
    last: u64,
    snapshot: Option<StoredSnapshot>,
    /// The snapshot that becomes durable with the next flush; None: there is none.
    unflushed_snapshot: Option<StoredSnapshot>,
    blobs: Index,
    /// Bytes that may still be appended while the disk is full; None: any number.
    room: Option<u64>,
    full: bool,
    fenced: bool,
    lie: Lie,
}

impl MemoryLog {
    /// Makes an empty log.
    pub fn new(lie: Lie) -> Self {
        Self { lie, ..Self::default() }
    }

    /// Makes the disk full or not. A full disk still takes `room` bytes of records that must be written; None: any
    /// number.
    pub fn set_full(&mut self, full: bool, room: Option<u64>) {
        self.full = full;
        self.room = room.filter(|_| full);
    }

    /// Returns whether the disk is full.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Returns a copy of the durable content, on a disk with room.
    #[must_use]
    pub fn backup(&self) -> Self {
        let (bytes, snapshot) = (self.bytes[..self.flushed].to_vec(), self.snapshot.clone());
        let mut copy = Self { bytes, snapshot, lie: self.lie, ..Self::default() };
        copy.recover();
        copy
    }

    /// Returns how many bytes are not durable: a crash keeps from none to all of them.
    pub fn unflushed_bytes(&self) -> u64 {
        (self.bytes.len() - self.flushed) as u64
    }

    /// Ends the writer like a crash. Of the unflushed bytes the first `kept` survive, even if that tears an entry.
    pub fn crash(&mut self, kept: u64) {
        let loose = self.bytes.len() - self.flushed;
        let kept = (kept as usize).min(loose);
        self.bytes.truncate(self.flushed + kept);
        (self.flushed, self.claimed) = (self.bytes.len(), self.bytes.len());
        if let Some(snapshot) = self.unflushed_snapshot.take()
            && kept == loose
        {
            self.snapshot = Some(snapshot);
        }
        self.fenced = true;
    }

    /// Prepares for a new writer: cuts off a torn tail. Returns the length of that tail in bytes.
    pub fn recover(&mut self) -> u64 {
        let mut index = BTreeMap::new();
        let mut last = 0;
        let whole = entries(&self.bytes, |entry| {
            last = entry.records.last().map_or(last, |record| record.seq);
            index.extend(entry.blobs.into_iter().map(|blob| (blob.digest, blob)));
        });
        let torn = self.bytes.len() - whole;
        if self.lie != Lie::TornTailKept {
            self.bytes.truncate(whole);
            (self.flushed, self.claimed) = (whole, whole);
        }
        (self.last, self.blobs, self.fenced) = (last, Index(Arc::new(Mutex::new(index))), false);
        torn as u64
    }

    /// Returns the state after all durable entries, made from the last snapshot and the records since.
    fn make_snapshot(&self) -> Result<StoredSnapshot, LogError> {
        let before = self.snapshot.as_ref();
        let (mut state, mut seq) = match before {
            Some(stored) => (stored.state()?, stored.seq),
            None => (State::default(), 0),
        };
        let from = before.map_or(0, |stored| stored.covered);
        let whole = entries(&self.bytes[from..self.claimed], |entry| {
            for record in &entry.records {
                state.apply_record(record);
                seq = record.seq;
            }
        });
        let parts = encoding::to_vec(&state.parts().collect::<Vec<_>>()).into();
        Ok(StoredSnapshot { seq, covered: from + whole, parts })
    }
}

impl Log for MemoryLog {
    fn next_seq(&self) -> u64 {
        self.last + 1
    }

    fn append(&mut self, batch: &Append) -> Result<u64, LogError> {
        if self.fenced {
            return Err(LogError::Fenced);
        }
        debug_assert!(
            batch.records.first().is_none_or(|first| first.seq == self.next_seq()),
            "numbers follow each other"
        );
        let entry = Entry::of(batch);
        let mut bytes = Vec::new();
        codec::encode(&entry, &mut bytes).map_err(|e| LogError::Failed(e.into()))?;
        let size = bytes.len() as u64;
        if let Some(room) = &mut self.room {
            *room = room.checked_sub(size).ok_or_else(|| LogError::NoRoom("no space left on the disk".into()))?;
        }
        self.bytes.append(&mut bytes);
        self.last = batch.records.last().map_or(self.last, |record| record.seq);
        self.blobs.lock().extend(entry.blobs.into_iter().map(|blob| (blob.digest, blob)));
        Ok(size)
    }

    fn flush(&mut self) -> Result<(), LogError> {
        if self.fenced {
            return Err(LogError::Fenced);
        }
        self.claimed = self.bytes.len();
        if self.lie != Lie::FlushSkipped {
            self.flushed = self.bytes.len();
            self.snapshot = self.unflushed_snapshot.take().or(self.snapshot.take());
        }
        Ok(())
    }

    fn read_from(&self, seq: u64, take: &mut dyn FnMut(Record)) -> Result<Option<u64>, LogError> {
        let mut first = None;
        entries(&self.bytes[..self.claimed], |entry| {
            for record in entry.records.into_iter().filter(|record| record.seq >= seq) {
                first.get_or_insert(record.seq);
                take(record);
            }
        });
        Ok(first)
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, LogError> {
        let stored = self.snapshot.as_ref().filter(|stored| stored.seq <= self.last);
        stored.map(|stored| Ok(Snapshot { seq: stored.seq, state: stored.state()? })).transpose()
    }

    fn take_snapshot(&mut self) {
        if !self.full {
            // If it can't be made now, it is made later: its content follows from the records.
            self.unflushed_snapshot = self.make_snapshot().ok();
        }
    }

    fn blobs(&self) -> Arc<dyn BlobReader> {
        Arc::new(self.blobs.clone())
    }

    fn capacity(&mut self) -> Capacity {
        let free = if self.full { 0 } else { u64::MAX };
        Capacity { room: self.room.unwrap_or(u64::MAX), reserve: 0, free, full: self.full }
    }

    fn trouble(&self) -> Option<String> {
        self.full.then(|| "no space left on the disk".to_owned())
    }

    fn fence(&mut self) {
        self.fenced = true;
    }
}

/// Content by its digest. Clones share it.
#[derive(Clone, Debug, Default)]
struct Index(Arc<Mutex<BTreeMap<Digest, Blob>>>);

impl Index {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Digest, Blob>> {
        // Every change is complete, so a panic elsewhere leaves the map as it was.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlobReader for Index {
    fn read(&self, digest: &Digest) -> Result<Vec<u8>, LogError> {
        let found = self.lock().get(digest).map(|blob| blob.bytes.to_vec());
        found.ok_or_else(|| LogError::Failed(format!("the content {digest} is not in the log").into()))
    }
}

/// Passes on all complete entries; returns their length in bytes.
fn entries(bytes: &[u8], mut take: impl FnMut(Entry)) -> usize {
    let mut at = 0;
    while let Ok(Some((entry, length))) = codec::take::<Entry>(&bytes[at..]) {
        take(entry);
        at += length;
    }
    at
}

#[cfg(test)]
mod tests {
    use squall_model::time::Time;

    use super::{Append, Lie, Log, LogError, MemoryLog, Record};

    fn batch(seq: u64) -> Append {
        Append { records: vec![Record { seq, time: Time(seq), events: Vec::new() }].into(), blobs: Vec::new() }
    }

    fn crash_and_recover(log: &mut MemoryLog, kept: u64) -> (u64, u64) {
        log.crash(kept);
        let torn = log.recover();
        (log.next_seq() - 1, torn)
    }

    #[test]
    fn wherever_a_crash_cuts_what_was_flushed_survives() {
        let mut whole = 0;
        for kept in 0.. {
            let mut log = MemoryLog::default();
            log.append(&batch(1)).unwrap();
            log.flush().unwrap();
            let size = log.append(&batch(2)).unwrap();
            assert_eq!(log.unflushed_bytes(), size);
            let (records, torn) = crash_and_recover(&mut log, kept);
            assert_eq!((records, torn), if kept < size { (1, kept) } else { (2, 0) });
            log.append(&batch(records + 1)).unwrap();
            log.flush().unwrap();
            assert_eq!(crash_and_recover(&mut log, 0), (records + 1, 0));
            whole += u64::from(records == 2);
            if whole > 0 {
                return;
            }
        }
    }

    #[test]
    fn lies_lose_what_was_promised() {
        let mut log = MemoryLog::new(Lie::FlushSkipped);
        log.append(&batch(1)).unwrap();
        log.flush().unwrap();
        assert_eq!(crash_and_recover(&mut log, 0), (0, 0));
        let mut log = MemoryLog::new(Lie::TornTailKept);
        log.append(&batch(1)).unwrap();
        assert_eq!(crash_and_recover(&mut log, 5), (0, 5));
        log.append(&batch(1)).unwrap();
        log.flush().unwrap();
        assert_eq!(log.read_from(1, &mut |_| {}).unwrap(), None);
    }

    #[test]
    fn a_full_log_takes_what_there_is_room_for() {
        let mut log = MemoryLog::default();
        let size = MemoryLog::default().append(&batch(1)).unwrap();
        log.set_full(true, Some(size));
        assert!(log.capacity().full && log.trouble().is_some());
        log.append(&batch(1)).unwrap();
        assert!(matches!(log.append(&batch(2)), Err(LogError::NoRoom(_))));
        log.set_full(false, None);
        log.append(&batch(2)).unwrap();
    }
}
