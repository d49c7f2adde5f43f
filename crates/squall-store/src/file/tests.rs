//! Tests of the journal on real files: whatever happens to them, no durable record is lost unnoticed.

mod copying;
mod golden;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use squall_engine::commit::Append;
use squall_engine::control::state::State;
use squall_model::event::{Event, Record};
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{Blob, JobSpec, Owner};
use squall_model::journal::SegmentHeader;
use squall_model::rotation::ControllerKeys;
use squall_model::time::Time;

use super::files::{FileKind, Listing};
use super::replay::apply;
use crate::accounts::FollowedJournal;
use crate::log::{BlobReader, Log};

use super::{FileLog, JournalError, OpenedLog, Options, records_from, replay};

/// Options with small segments, so that tests read little.
const SMALL: Options = Options { seen: None, accept_loss: false, segment_bytes: 64 << 10, durable: true };

/// A temporary folder that is removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("squall-journal-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A journal under test with the expected state.
struct Bed {
    dir: Folder,
    expected: State,
    seq: u64,
}

impl Bed {
    fn new() -> Self {
        Self { dir: Folder::new(), expected: State::default(), seq: 0 }
    }
    fn path(&self) -> &Path {
        self.dir.path()
    }
    fn open(&self) -> OpenedLog {
        FileLog::open(self.path(), SMALL).unwrap()
    }
    /// Submits a job with a script that no other job has.
    fn submit(&mut self, journal: &mut FileLog) {
        self.seq += 1;
        let script = Blob::new(format!("#!/bin/sh\necho {}\n", self.seq).into_bytes());
        let env = Blob::new(b"HOME=/\0".to_vec());
        let spec = JobSpec { script: Some(script.digest), env: env.digest, ..JobSpec::default() };
        let event = Event::JobSubmitted {
            id: JobId(self.seq as u32),
            key: ClientKey(u128::from(self.seq)),
            owner: Arc::new(Owner::default()),
            spec: Arc::new(spec),
        };
        let record = Record { seq: self.seq, time: Time(self.seq), events: vec![event] };
        apply(&mut self.expected, &record);
        append(journal, vec![record], vec![script, env]);
    }
    fn fill(&mut self, jobs: u64) {
        let mut journal = self.open().log;
        for _ in 0..jobs {
            self.submit(&mut journal);
        }
    }
    fn check(&self) {
        let found = replay(self.path()).unwrap();
        assert_eq!(found.seq, self.seq);
        assert_eq!(found.state, self.expected);
        for spec in found.state.jobs.values().map(|j| &j.spec) {
            found.blobs.read(&spec.env).unwrap();
            found.blobs.read(&spec.script.unwrap()).unwrap();
        }
    }
    fn segment(&self, number: u64) -> PathBuf {
        FileKind::Segment.path(self.path(), number)
    }
    /// Closes the current segment and waits for the snapshot that covers it.
    fn snapshot(&self, journal: &mut FileLog) -> u64 {
        let last = *Listing::read(self.path()).unwrap().segments.last().unwrap();
        journal.close_segment().unwrap();
        journal.follower().snapshot();
        assert!(journal.follower().wait_covered(last, Duration::from_secs(30)));
        last
    }
}

/// Appends a batch and flushes it.
pub(crate) fn append(log: &mut FileLog, records: Vec<Record>, blobs: Vec<Blob>) {
    log.append(&Append { records: records.into(), blobs }).unwrap();
    log.flush().unwrap();
}

/// Returns the end of a segment's last frame, bytes.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|b| *b != 0).unwrap() + 1
}

#[test]
fn what_was_appended_is_there_after_each_start() {
    let mut bed = Bed::new();
    for _ in 0..3 {
        bed.fill(4);
        bed.check();
    }
    let opened = bed.open();
    assert_eq!(opened.state, bed.expected);
    assert!(opened.notices.is_empty(), "{:?}", opened.notices);
    assert_eq!(opened.log.next_seq(), 13);
}

#[test]
fn equal_content_is_written_once() {
    let mut bed = Bed::new();
    bed.fill(20);
    let bytes = std::fs::read(bed.segment(1)).unwrap();
    assert_eq!(bytes.windows(7).filter(|w| *w == b"HOME=/\0").count(), 1);
}

#[test]
fn a_torn_tail_is_cut_said_and_written_over() {
    let mut bed = Bed::new();
    bed.fill(3);
    let before = used(&std::fs::read(bed.segment(1)).unwrap());
    let (expected, seq) = (bed.expected.clone(), bed.seq);
    bed.fill(1);
    let whole = std::fs::read(bed.segment(1)).unwrap();
    for cut in (before + 8..used(&whole)).step_by(7) {
        let mut torn = whole.clone();
        torn[cut..].fill(0);
        std::fs::write(bed.segment(1), &torn).unwrap();
        let opened = bed.open();
        assert_eq!(opened.state, expected);
        assert!(opened.notices[0].contains("unfinished write"), "{:?}", opened.notices);
        drop(opened);
        assert_eq!(used(&std::fs::read(bed.segment(1)).unwrap()), before);
    }
    bed.expected = expected;
    bed.seq = seq;
    bed.fill(2);
    bed.check();
}

#[test]
fn a_flipped_bit_anywhere_is_found_and_named() {
    let mut bed = Bed::new();
    bed.fill(4);
    let path = bed.segment(1);
    let good = std::fs::read(&path).unwrap();
    for byte in 0..used(&good) {
        let mut bad = good.clone();
        bad[byte] ^= 1 << (byte % 8);
        std::fs::write(&path, &bad).unwrap();
        let error = replay(bed.path()).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("00000001.seg is damaged at offset "), "byte {byte}: {error:?}");
    }
    std::fs::write(&path, &good).unwrap();
    bed.check();
}

#[test]
fn a_snapshot_and_the_rest_are_the_whole() {
    let mut bed = Bed::new();
    let mut journal = bed.open().log;
    for round in 1..=3 {
        for _ in 0..5 {
            bed.submit(&mut journal);
        }
        assert_eq!(bed.snapshot(&mut journal), round);
        bed.submit(&mut journal);
        bed.check();
    }
    drop(journal);
    bed.check();
    assert_eq!(bed.open().state, bed.expected);
}

#[test]
fn old_segments_go_when_accounting_has_passed() {
    let mut bed = Bed::new();
    let mut journal = bed.open().log;
    bed.submit(&mut journal);
    bed.snapshot(&mut journal);
    let listed = Listing::read(bed.path()).unwrap();
    assert_eq!((listed.segments, listed.packs, listed.snapshots), (vec![1, 2], vec![1], vec![1]));
    let found = records_from(bed.path(), 1, &mut |r| assert_eq!(r.seq, 1)).unwrap();
    assert_eq!(found, Some(1));
    bed.submit(&mut journal);
    journal.accounted().up_to(2);
    bed.snapshot(&mut journal);
    bed.submit(&mut journal);
    journal.accounted().up_to(3);
    bed.snapshot(&mut journal);
    drop(journal);
    let listed = Listing::read(bed.path()).unwrap();
    // The snapshot before the last one is kept with all that it needs.
    assert_eq!((listed.segments, listed.packs, listed.snapshots), (vec![3, 4], vec![2, 3], vec![2, 3]));
    bed.check();
}

/// Returns a journal with three snapshots of three jobs each and one job after them; accounting has stored all of
/// these.
fn snapshots() -> Bed {
    let mut bed = Bed::new();
    let mut journal = bed.open().log;
    for round in 1..=3 {
        for _ in 0..3 {
            bed.submit(&mut journal);
        }
        journal.accounted().up_to(round * 3);
        bed.snapshot(&mut journal);
    }
    bed.submit(&mut journal);
    drop(journal);
    bed
}

#[test]
fn a_damaged_snapshot_is_passed_over() {
    for life in 0..2 {
        let mut bed = snapshots();
        for _ in 0..life {
            // The snapshot kept by an earlier start is kept on.
            drop(bed.open());
        }
        let path = FileKind::Snapshot.path(bed.path(), 3);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        bed.check();
        let opened = bed.open();
        assert!(opened.notices[0].contains("00000003.snap is damaged at offset"), "{:?}", opened.notices);
        assert_eq!(std::fs::read(path.with_extension("snap.damaged")).unwrap(), bytes);
        let mut journal = opened.log;
        bed.submit(&mut journal);
        bed.snapshot(&mut journal);
        drop(journal);
        assert!(bed.open().notices.is_empty());
        bed.check();
    }
}

#[test]
fn a_damaged_snapshot_without_all_that_came_before_it_is_an_error() {
    let bed = snapshots();
    let newest = FileKind::Snapshot.path(bed.path(), 3);
    std::fs::write(&newest, b"damaged").unwrap();
    for needed in [bed.segment(3), FileKind::Snapshot.path(bed.path(), 2), FileKind::Pack.path(bed.path(), 2)] {
        let good = std::fs::read(&needed).unwrap();
        std::fs::remove_file(&needed).unwrap();
        let error = FileLog::open(bed.path(), SMALL).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("00000003.snap is damaged"), "without {}: {error:?}", needed.display());
        std::fs::write(&needed, good).unwrap();
    }
    bed.check();
}

#[test]
fn a_flipped_bit_in_a_snapshot_is_found_and_named() {
    let mut bed = Bed::new();
    let mut journal = bed.open().log;
    bed.submit(&mut journal);
    bed.snapshot(&mut journal);
    drop(journal);
    let path = FileKind::Snapshot.path(bed.path(), 1);
    let good = std::fs::read(&path).unwrap();
    for byte in 0..good.len() {
        let mut bad = good.clone();
        bad[byte] ^= 1 << (byte % 8);
        std::fs::write(&path, &bad).unwrap();
        let error = replay(bed.path()).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("00000001.snap is damaged at offset "), "byte {byte}: {error:?}");
    }
}

#[test]
fn missing_truncated_and_zeroed_files_are_noticed() {
    let mut bed = Bed::new();
    let mut journal = bed.open().log;
    for _ in 0..3 {
        bed.submit(&mut journal);
        journal.close_segment().unwrap();
    }
    drop(journal);
    let refused = |what: &str| {
        let error = FileLog::open(bed.path(), SMALL).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains(what), "expected `{what}`: {error}");
    };
    for (number, says) in
        [(1, "00000001.seg is missing"), (2, "00000002.seg is missing"), (4, "00000004.seg is missing")]
    {
        let path = bed.segment(number);
        let good = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        refused(says);
        std::fs::write(&path, good).unwrap();
    }
    let path = bed.segment(2);
    let good = std::fs::read(&path).unwrap();
    std::fs::write(&path, &good[..used(&good) - 1]).unwrap();
    refused("00000002.seg is damaged");
    std::fs::write(&path, vec![0; good.len()]).unwrap();
    refused("00000002.seg is damaged at offset 0");
    std::fs::write(&path, good).unwrap();
    bed.check();
}

#[test]
fn records_that_accounting_has_seen_must_be_there() {
    let mut bed = Bed::new();
    bed.fill(2);
    let cluster = bed.open().log.cluster();
    let seen = Some(FollowedJournal { cluster, seq: 5 });
    let error = FileLog::open(bed.path(), Options { seen, ..SMALL }).unwrap_err();
    assert!(error.to_string().contains("3 acknowledged records are missing"), "{error}");
    FileLog::open(bed.path(), Options { seen, accept_loss: true, ..SMALL }).unwrap();
    FileLog::open(bed.path(), Options { seen: Some(FollowedJournal { cluster: 1, seq: 5 }), ..SMALL }).unwrap();
    for file in std::fs::read_dir(bed.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert!(FileLog::open(bed.path(), Options { seen, ..SMALL }).is_err());
}

#[test]
fn loss_is_accepted_on_demand_only() {
    let mut bed = Bed::new();
    bed.fill(2);
    let (expected, at) = (bed.expected.clone(), used(&std::fs::read(bed.segment(1)).unwrap()));
    bed.fill(3);
    let mut bytes = std::fs::read(bed.segment(1)).unwrap();
    bytes[at + 60] ^= 4;
    std::fs::write(bed.segment(1), &bytes).unwrap();
    assert!(matches!(FileLog::open(bed.path(), SMALL), Err(JournalError::Damaged { .. })));
    let opened = FileLog::open(bed.path(), Options { accept_loss: true, ..SMALL }).unwrap();
    assert_eq!(opened.state, expected);
    assert_eq!(std::fs::read(bed.path().join("lost-after-record-2/00000001.seg")).unwrap(), bytes);
    drop(opened);
    (bed.expected, bed.seq) = (expected, 2);
    bed.fill(1);
    bed.check();
}

/// faults.md, "Upgrade": data of a newer version was called damage, with advice that would have discarded jobs.
#[test]
fn what_another_version_wrote_is_neither_damage_nor_set_aside() {
    let mut bed = Bed::new();
    bed.fill(2);
    let at = used(&std::fs::read(bed.segment(1)).unwrap()).next_multiple_of(8);
    bed.fill(1);
    let mut bytes = std::fs::read(bed.segment(1)).unwrap();
    // The first item of the last frame gets a kind that this version does not have; its checksums are right.
    bytes[at + 32] = 99;
    assert!(check_again(&mut bytes[at..]));
    std::fs::write(bed.segment(1), &bytes).unwrap();
    for accept_loss in [false, true] {
        let error = FileLog::open(bed.path(), Options { accept_loss, ..SMALL }).unwrap_err().to_string();
        assert!(error.contains("not damaged but of another version"), "{error}");
        assert!(error.contains("Start the version of squall that wrote it"), "{error}");
        assert_eq!(std::fs::read(bed.segment(1)).unwrap(), bytes);
    }
}

/// Formats before release 0.2.0 are not read: their files are named, and stay as they are.
#[test]
fn a_journal_of_format_1_is_refused_and_left_as_it_is() {
    let mut bed = Bed::new();
    bed.fill(1);
    let mut journal = bed.open().log;
    let covered = bed.snapshot(&mut journal);
    drop(journal);
    for path in [FileKind::Snapshot.path(bed.path(), covered), bed.segment(covered + 1)] {
        let good = std::fs::read(&path).unwrap();
        let head = SegmentHeader { format: 1, ..SegmentHeader::decode(&good).unwrap() }.encode();
        let old = [&head[..], &good[head.len()..]].concat();
        std::fs::write(&path, &old).unwrap();
        for accept_loss in [false, true] {
            let error = FileLog::open(bed.path(), Options { accept_loss, ..SMALL }).unwrap_err().to_string();
            assert!(error.starts_with(&path.display().to_string()) && error.contains("format 1,"), "{error}");
            assert!(error.contains("before release 0.2.0") && error.contains("--state"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), old);
        }
        std::fs::write(&path, good).unwrap();
    }
    bed.check();
}

/// The release before can't read that the controllers' keys were rotated. It may not go on without: it would sign with a
/// key that nodes refuse.
#[test]
fn a_rotation_of_keys_is_kept_and_stops_a_release_that_does_not_know_it() {
    let mut bed = Bed::new();
    bed.fill(1);
    assert_eq!(bed.open().state.keys, None, "a journal without a rotation names no key");
    let keys = Box::new(ControllerKeys { key: [0xa5; 32], signer: [0x5a; 32], until: Time(9) });
    bed.seq += 1;
    let record = Record { seq: bed.seq, time: Time(2), events: vec![Event::KeysRotated { keys: keys.clone(), by: 0 }] };
    apply(&mut bed.expected, &record);
    append(&mut bed.open().log, vec![record], Vec::new());
    bed.check();
    let bytes = std::fs::read(bed.segment(1)).unwrap();
    let mut journal = bed.open().log;
    bed.snapshot(&mut journal);
    drop(journal);
    bed.check();
    assert_eq!(bed.open().state.keys, Some(keys), "a snapshot has them, too");
    // To a release without this event its number is an unknown one, like 254 to this one.
    let older = Bed::new();
    drop(older.open());
    let (number, unknown) = ([0x82, 0x18, 80, 0x82], [0x82, 0x18, 254, 0x82]);
    let at = bytes.windows(4).rposition(|window| window == number).unwrap();
    let start = (0..at).rev().find(|start| start % 8 == 0 && is_frame(&bytes[*start..])).unwrap();
    let mut bytes = bytes;
    bytes[at..at + 4].copy_from_slice(&unknown);
    check_again(&mut bytes[start..]);
    std::fs::write(older.segment(1), &bytes).unwrap();
    for accept_loss in [false, true] {
        let error = FileLog::open(older.path(), Options { accept_loss, ..SMALL }).unwrap_err().to_string();
        assert!(error.contains("not damaged but of another version") && error.contains("record 2"), "{error}");
        assert!(error.contains("Start the version of squall that wrote it"), "{error}");
        assert_eq!(std::fs::read(older.segment(1)).unwrap(), bytes);
    }
}

/// Whether a frame begins here, by its checksums.
fn is_frame(frame: &[u8]) -> bool {
    let mut again = frame.to_vec();
    frame.len() > 32 && frame[4..8] != [0; 4] && check_again(&mut again) && again == frame
}

/// Makes the checksums of a changed frame right. False: it has no such length.
fn check_again(frame: &mut [u8]) -> bool {
    let length = u32::from_le_bytes([frame[4], frame[5], frame[6], frame[7]]) as usize;
    let Some(content) = frame.get(32..32_usize.saturating_add(length)).map(crc32c::crc32c) else { return false };
    frame[24..28].copy_from_slice(&content.to_le_bytes());
    let head = crc32c::crc32c(&frame[..28]);
    frame[28..32].copy_from_slice(&head.to_le_bytes());
    true
}

#[test]
fn a_journal_without_durability_is_new_and_reads_like_any_other() {
    let (mut bed, loose) = (Bed::new(), Options { durable: false, ..SMALL });
    let mut journal = FileLog::open(bed.path(), loose).unwrap().log;
    bed.submit(&mut journal);
    drop(journal);
    bed.check();
    let error = FileLog::open(bed.path(), loose).unwrap_err();
    assert!(matches!(error, JournalError::NotNew { .. }), "{error}");
    bed.fill(1);
    bed.check();
}

#[test]
fn a_crash_while_a_segment_is_made_is_harmless() {
    let mut bed = Bed::new();
    bed.fill(2);
    let open = std::fs::read(bed.segment(1)).unwrap();
    bed.open().log.close_segment().unwrap();
    // As if the closing frame had not been written.
    std::fs::write(bed.segment(1), &open).unwrap();
    bed.check();
    bed.fill(2);
    bed.check();
    assert_eq!(Listing::read(bed.path()).unwrap().segments, [1]);
}

#[test]
fn large_batches_get_a_segment_that_fits() {
    let bed = Bed::new();
    let mut journal = bed.open().log;
    let blob = Blob::new((0..40 << 20).map(|i| (i % 251) as u8).collect());
    append(&mut journal, Vec::new(), vec![blob.clone()]);
    assert_eq!(journal.blobs().read(&blob.digest).unwrap(), blob.bytes.as_slice());
    drop(journal);
    assert_eq!(replay(bed.path()).unwrap().blobs.read(&blob.digest).unwrap(), blob.bytes.as_slice());
}
