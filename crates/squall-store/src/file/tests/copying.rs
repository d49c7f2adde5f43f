//! Copies of a journal that is being written: each is a whole journal up to a durable record.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};
use squall_engine::commit::Append;

use super::{Bed, Folder, replay};
use crate::file::{Copier, Cut, FileLog};
use crate::log::Log;

/// Writes the files of a copy to an empty folder.
fn put(cut: Cut, to: &Path) {
    for piece in cut.files {
        assert!(super::super::is_file_name(&piece.name), "{}", piece.name);
        let mut file = File::create(to.join(&piece.name)).unwrap();
        assert_eq!(io::copy(&mut piece.file.take(piece.length), &mut file).unwrap(), piece.length);
    }
}

/// Copies a journal, and checks the copy by opening it.
fn copied(copier: &Copier, from: u64) -> (Folder, u64) {
    let to = Folder::new();
    let cut = copier.hold().cut(from).unwrap();
    let seq = cut.seq;
    put(cut, to.path());
    let found = replay(to.path()).unwrap();
    assert_eq!(found.seq, seq);
    found.check_contents().unwrap();
    (to, seq)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]
    #[test]
    fn a_copy_is_what_was_durable_whatever_happens_to_the_files_meanwhile(acts in vec(any::<u8>(), 1..40)) {
        let mut bed = Bed::new();
        let mut log = Some(bed.open().log);
        for act in acts {
            let journal = log.get_or_insert_with(|| bed.open().log);
            journal.accounted().up_to(u64::MAX / 2);
            match act % 8 {
                0 => _ = bed.snapshot(journal),
                1 => journal.close_segment().unwrap(),
                2 => {
                    log = None;
                    continue;
                }
                _ => bed.submit(journal),
            }
            let cut = journal.copier().hold().cut(u64::from(act)).unwrap();
            if act % 3 == 0 {
                // The opened files are removed before they are read.
                bed.snapshot(journal);
                bed.snapshot(journal);
            }
            let (to, seq) = (Folder::new(), cut.seq);
            put(cut, to.path());
            let found = replay(to.path()).unwrap();
            assert_eq!((found.seq, seq), (bed.seq, bed.seq));
            assert_eq!(found.state, bed.expected);
            found.check_contents().unwrap();
        }
    }
}

#[test]
fn a_copy_goes_on_as_a_journal_and_has_the_records_that_accounting_lacks() {
    let mut bed = Bed::new();
    let mut log = bed.open().log;
    for _ in 0..4 {
        bed.submit(&mut log);
        bed.snapshot(&mut log);
    }
    let (to, _) = copied(&log.copier(), 3);
    let mut seqs = Vec::new();
    super::records_from(to.path(), 3, &mut |record| seqs.push(record.seq)).unwrap();
    assert_eq!(seqs, [3, 4]);
    let opened = FileLog::open(to.path(), super::SMALL).unwrap();
    assert_eq!((opened.log.next_seq(), opened.log.cluster()), (5, log.cluster()));
    drop(opened);
    drop(log);
    let (at_rest, seq) = copied(&Copier::at_rest(bed.path()).unwrap(), 5);
    assert_eq!((seq, replay(at_rest.path()).unwrap().state), (4, bed.expected.clone()));
}

#[test]
fn what_is_not_flushed_is_not_in_a_copy() {
    let mut bed = Bed::new();
    let mut log = bed.open().log;
    bed.submit(&mut log);
    let record = squall_model::event::Record { seq: 2, time: squall_model::time::Time(2), events: Vec::new() };
    log.append(&Append { records: vec![record].into(), blobs: Vec::new() }).unwrap();
    assert_eq!(copied(&log.copier(), 1).1, 1);
    log.flush().unwrap();
    assert_eq!(copied(&log.copier(), 1).1, 2);
}

#[test]
fn copies_are_whole_while_another_thread_writes_and_makes_snapshots() {
    let mut bed = Bed::new();
    let mut log = bed.open().log;
    log.accounted().up_to(u64::MAX / 2);
    let (copier, acknowledged) = (log.copier(), AtomicU64::new(0));
    let end = 400;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while acknowledged.load(Ordering::Acquire) < end {
                let before = acknowledged.load(Ordering::Acquire);
                let (_, seq) = copied(&copier, u64::MAX);
                assert!(seq >= before, "{before} were acknowledged, {seq} are in the copy");
            }
        });
        for seq in 1..=end {
            bed.submit(&mut log);
            acknowledged.store(seq, Ordering::Release);
            if seq % 20 == 0 {
                log.close_segment().unwrap();
                log.take_snapshot();
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    });
}
