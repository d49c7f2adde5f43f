//! The controller's simulated disk: what was not flushed may be lost, and the last record may be torn.

use std::sync::Arc;

use minicbor::{Decode, Encode};
use squall_model::codec;
use squall_model::event::Record;
use squall_model::job::Blob;

use crate::seed::Seed;

/// What one turn of the controller appends: a record and the content that it refers to.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Entry {
    /// The events.
    #[n(0)]
    pub(crate) record: Record,
    /// Scripts and environments.
    #[n(1)]
    pub(crate) blobs: Vec<Blob>,
}

/// A snapshot: the state's bytes after a record.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The last record that is in it.
    pub(crate) seq: u64,
    /// The state.
    pub(crate) bytes: Arc<Vec<u8>>,
}

/// How a disk lies. Planted bugs only; a disk that keeps its promises does none of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Lie {
    /// It does not.
    #[default]
    None,
    /// Flushes do nothing.
    FlushSkipped,
    /// Recovery does not cut a torn tail: what is written later stands behind it.
    TornTailKept,
}

/// The disk. Survives its controller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    bytes: Vec<u8>,
    /// How much of `bytes` is safe.
    flushed: usize,
    snapshot: Option<Snapshot>,
    unflushed_snapshot: Option<Snapshot>,
    /// No room: appends fail.
    pub(crate) full: bool,
    /// How it lies.
    pub(crate) lie: Lie,
}

/// What recovery finds.
#[derive(Debug)]
pub(crate) struct Found {
    /// The newest snapshot.
    pub(crate) snapshot: Option<Snapshot>,
    /// All entries that are whole, oldest first, from the first ever.
    pub(crate) entries: Vec<Entry>,
    /// Bytes of a torn tail that were cut.
    pub(crate) torn_bytes: usize,
}

impl Disk {
    /// An empty disk.
    pub(crate) fn new(lie: Lie) -> Self {
        Self { lie, ..Self::default() }
    }
    /// Appends an entry; not safe before [`Self::flush`]. False: no room, nothing was written.
    pub(crate) fn append(&mut self, entry: &Entry) -> bool {
        if self.full {
            return false;
        }
        codec::encode(entry, &mut self.bytes).is_ok()
    }
    /// Puts a snapshot beside the journal; safe after the next flush.
    pub(crate) fn put_snapshot(&mut self, snapshot: Snapshot) {
        if !self.full {
            self.unflushed_snapshot = Some(snapshot);
        }
    }
    /// A copy of what is safe.
    pub(crate) fn backup(&self) -> Self {
        let bytes = self.bytes[..self.flushed].to_vec();
        Self { flushed: bytes.len(), bytes, unflushed_snapshot: None, full: false, ..self.clone() }
    }
    /// Makes safe what was appended.
    pub(crate) fn flush(&mut self) {
        if self.lie == Lie::FlushSkipped {
            return;
        }
        self.flushed = self.bytes.len();
        if let Some(snapshot) = self.unflushed_snapshot.take() {
            self.snapshot = Some(snapshot);
        }
    }
    /// The controller dies. Of what was not flushed nothing, a part or all may survive, cut at any byte.
    pub(crate) fn crash(&mut self, seed: &mut Seed) {
        let loose = self.bytes.len() - self.flushed;
        let kept = match seed.below(4) {
            0 => 0,
            1 => loose,
            _ => seed.between(0, loose as u64) as usize,
        };
        self.bytes.truncate(self.flushed + kept);
        self.flushed = self.bytes.len();
        if let Some(snapshot) = self.unflushed_snapshot.take()
            && kept == loose
        {
            self.snapshot = Some(snapshot);
        }
    }
    /// Reads everything back, cutting a torn tail.
    pub(crate) fn recover(&mut self) -> Found {
        let (mut entries, mut at): (Vec<Entry>, usize) = (Vec::new(), 0);
        while let Ok(Some((entry, length))) = codec::take::<Entry>(&self.bytes[at..]) {
            entries.push(entry);
            at += length;
        }
        let torn_bytes = self.bytes.len() - at;
        if self.lie != Lie::TornTailKept {
            self.bytes.truncate(at);
            self.flushed = at;
        }
        let last = entries.last().map_or(0, |e| e.record.seq);
        let snapshot = self.snapshot.clone().filter(|s| s.seq <= last);
        Found { snapshot, entries, torn_bytes }
    }
}

#[cfg(test)]
mod tests {
    use squall_model::time::Time;

    use super::{Disk, Entry, Lie, Record, Seed};

    fn entry(seq: u64) -> Entry {
        Entry { record: Record { seq, time: Time(seq), events: Vec::new() }, blobs: Vec::new() }
    }

    fn crash_and_recover(disk: &mut Disk, seed: &mut Seed) -> (usize, usize) {
        disk.crash(seed);
        let found = disk.recover();
        (found.entries.len(), found.torn_bytes)
    }

    #[test]
    fn what_was_flushed_survives_and_the_rest_may_be_lost_or_torn() {
        let (mut torn, mut lost, mut kept) = (0, 0, 0);
        for n in 0..200 {
            let (mut disk, mut seed) = (Disk::default(), Seed::new(n));
            assert!(disk.append(&entry(1)));
            disk.flush();
            assert!(disk.append(&entry(2)));
            let (entries, torn_bytes) = crash_and_recover(&mut disk, &mut seed);
            assert!(entries >= 1);
            torn += usize::from(torn_bytes > 0);
            lost += usize::from(entries == 1);
            kept += usize::from(entries == 2);
            assert!(disk.append(&entry(entries as u64 + 1)));
            disk.flush();
            assert_eq!(crash_and_recover(&mut disk, &mut seed), (entries + 1, 0));
        }
        assert!(torn > 0 && lost > 0 && kept > 0);
    }

    #[test]
    fn lies_lose_what_was_promised() {
        let mut worst = usize::MAX;
        for n in 0..50 {
            let mut disk = Disk { lie: Lie::FlushSkipped, ..Disk::default() };
            assert!(disk.append(&entry(1)));
            disk.flush();
            worst = worst.min(crash_and_recover(&mut disk, &mut Seed::new(n)).0);
        }
        assert_eq!(worst, 0);
    }

    #[test]
    fn a_full_disk_takes_nothing() {
        let mut disk = Disk { full: true, ..Disk::default() };
        assert!(!disk.append(&entry(1)));
        assert!(disk.recover().entries.is_empty());
    }
}
