//! The promises of trait `Log`, checked on all implementations by the same properties.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use squall_engine::commit::Append;
use squall_engine::control::state::State;
use squall_model::event::{Event, Record};
use squall_model::id::{ClientKey, JobId};
use squall_model::job::{Blob, JobSpec, Owner};
use squall_model::journal::SEGMENT_HEADER_BYTES;
use squall_model::time::Time;

use crate::file::tests::Folder;
use crate::file::{FileLog, Options};
use crate::log::{Log, LogError};
use crate::memory::MemoryLog;

/// A log under test, with the means to make it crash or fail.
trait Bed {
    /// Returns the log under test.
    fn log(&mut self) -> &mut dyn Log;
    /// Records that a flush has succeeded.
    fn flushed(&mut self) {}
    /// Ends the writer and opens the log again. `kept` determines how many of the unflushed bytes survive.
    fn crash(&mut self, kept: u64);
    /// Makes the disk full, or gives it room again.
    fn set_full(&mut self, full: bool);
    /// Has a snapshot made, and waits for it. Everything was flushed before.
    fn take_snapshot(&mut self);
}

impl Bed for MemoryLog {
    fn log(&mut self) -> &mut dyn Log {
        self
    }

    fn crash(&mut self, kept: u64) {
        let loose = self.unflushed_bytes();
        Self::crash(self, kept % (loose + 1));
        self.recover();
    }

    fn set_full(&mut self, full: bool) {
        Self::set_full(self, full, Some(0));
    }

    fn take_snapshot(&mut self) {
        Log::take_snapshot(self);
        self.flush().unwrap();
    }
}

struct FileBed {
    folder: Folder,
    log: Option<FileLog>,
    /// The segment that was written at the last flush, and its end, bytes.
    flushed: (PathBuf, u64),
    /// The real file of the segment, while the log writes to `/dev/full` in its place. None: the log writes to the real
    /// file.
    good: Option<File>,
}

impl FileBed {
    fn new() -> Self {
        let mut bed = Self { folder: Folder::new(), log: None, flushed: (PathBuf::new(), 0), good: None };
        bed.open();
        bed
    }

    fn open(&mut self) {
        let options = Options { segment_bytes: 64 << 10, ..Options::default() };
        let log = self.log.insert(FileLog::open(self.folder.path(), options).unwrap().log);
        self.flushed = log.end();
    }

    fn file_log(&mut self) -> &mut FileLog {
        self.log.as_mut().unwrap()
    }
}

impl Bed for FileBed {
    fn log(&mut self) -> &mut dyn Log {
        self.file_log()
    }

    fn flushed(&mut self) {
        self.flushed = self.file_log().end();
    }

    fn crash(&mut self, kept: u64) {
        let (path, end) = self.file_log().end();
        self.log = None;
        // Closing a segment flushes it.
        let start = if path == self.flushed.0 { self.flushed.1 } else { SEGMENT_HEADER_BYTES as u64 };
        let cut = start + kept % (end - start + 1);
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&vec![0; (end - cut) as usize], cut).unwrap();
        self.open();
    }

    fn set_full(&mut self, full: bool) {
        let good = self.good.take();
        let file = if full { Some(OpenOptions::new().write(true).open("/dev/full").unwrap()) } else { good };
        let before = file.map(|file| std::mem::replace(self.file_log().file_mut(), file));
        self.good = before.filter(|_| full);
    }

    fn take_snapshot(&mut self) {
        let log = self.file_log();
        let closed = log.number();
        log.close_segment().unwrap();
        log.take_snapshot();
        assert!(log.follower().wait_covered(closed, Duration::from_secs(30)));
        self.flushed();
    }
}

#[derive(Clone, Debug)]
enum LogAction {
    /// Appends a batch of this many records.
    Append(u8),
    Flush,
    Crash(u64),
    /// Appends a batch while the disk is full.
    Full,
    Snapshot,
}

fn deeds() -> impl Strategy<Value = Vec<LogAction>> {
    let deed = prop_oneof![
        4 => (1..4_u8).prop_map(LogAction::Append),
        4 => Just(LogAction::Flush),
        2 => any::<u64>().prop_map(LogAction::Crash),
        1 => Just(LogAction::Full),
        1 => Just(LogAction::Snapshot),
    ];
    vec(deed, 1..40)
}

/// The expected content of the log.
#[derive(Default)]
struct Model {
    durable: Vec<Record>,
    /// Batches that were appended and not flushed.
    loose: Vec<Arc<Vec<Record>>>,
    /// Number of scripts made so far: it makes each script different.
    count: u64,
}

impl Model {
    /// Returns a batch of submissions, each with a script of its own.
    fn batch(&mut self, first: u64, records: u8) -> Append {
        let mut batch = (Vec::new(), Vec::new());
        for seq in first..first + u64::from(records) {
            self.count += 1;
            let script = Blob::new(format!("#!/bin/sh\necho {}\n", self.count).into_bytes());
            let env = Blob::new(b"HOME=/\0".to_vec());
            let spec = JobSpec { script: Some(script.digest), env: env.digest, ..JobSpec::default() };
            let key = ClientKey(u128::from(self.count));
            let (owner, spec) = (Arc::new(Owner::default()), Arc::new(spec));
            let events = vec![Event::JobSubmitted { id: JobId(seq as u32), key, owner, spec }];
            batch.0.push(Record { seq, time: Time(seq), events });
            batch.1.extend([script, env]);
        }
        Append { records: Arc::new(batch.0), blobs: batch.1 }
    }

    fn flush(&mut self) {
        self.durable.extend(self.loose.drain(..).flat_map(|batch| batch.to_vec()));
    }

    /// Removes the batches that did not survive: a batch survives as a whole or not at all, and only if all earlier
    /// ones do.
    fn crash(&mut self, log: &dyn Log) {
        let mut loose = std::mem::take(&mut self.loose).into_iter();
        while self.durable.len() as u64 + 1 < log.next_seq() {
            self.durable.extend(loose.next().expect("no more survives than was appended").to_vec());
        }
    }

    fn check(&self, log: &dyn Log) {
        let appended = self.loose.iter().map(|batch| batch.len()).sum::<usize>();
        assert_eq!(log.next_seq() as usize, self.durable.len() + appended + 1);
        let read = |from| {
            let mut records = Vec::new();
            let first = log.read_from(from, &mut |record| records.push(record)).unwrap();
            assert_eq!(first, records.first().map(|record: &Record| record.seq));
            records
        };
        assert_eq!(read(1), self.durable);
        let middle = self.durable.len() / 2;
        assert_eq!(read(middle as u64 + 1), self.durable[middle..]);
        let all = replayed(State::default(), &self.durable);
        if let Some(snapshot) = log.snapshot().unwrap() {
            assert!(snapshot.seq as usize <= self.durable.len());
            assert_eq!(replayed(snapshot.state, &read(snapshot.seq + 1)), all);
        }
        let blobs = log.blobs();
        for job in all.jobs.values() {
            blobs.read(&job.spec.script.unwrap()).unwrap();
            blobs.read(&job.spec.env).unwrap();
        }
    }
}

fn replayed(mut state: State, records: &[Record]) -> State {
    for record in records {
        state.apply_record(record);
    }
    state
}

fn run(bed: &mut dyn Bed, deeds: &[LogAction]) {
    let mut model = Model::default();
    for deed in deeds {
        match deed {
            LogAction::Append(records) => {
                let batch = model.batch(bed.log().next_seq(), *records);
                assert!(bed.log().append(&batch).unwrap() > 0);
                model.loose.push(batch.records);
            }
            LogAction::Flush | LogAction::Snapshot => {
                bed.log().flush().unwrap();
                bed.flushed();
                model.flush();
                if matches!(deed, LogAction::Snapshot) {
                    bed.take_snapshot();
                    assert_eq!(bed.log().snapshot().unwrap().map(|s| s.seq), Some(model.durable.len() as u64));
                }
            }
            LogAction::Crash(kept) => {
                bed.crash(*kept);
                model.crash(bed.log());
            }
            LogAction::Full => {
                let batch = model.batch(bed.log().next_seq(), 1);
                bed.set_full(true);
                assert!(matches!(bed.log().append(&batch), Err(LogError::NoRoom(_))));
                bed.set_full(false);
            }
        }
        model.check(bed.log());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Property: flushed records are read back in order, a torn tail is cut off, a full log refuses appends and loses
    /// nothing, and a snapshot with the records after it equals all records.
    #[test]
    fn a_file_keeps_the_contract(deeds in deeds()) {
        run(&mut FileBed::new(), &deeds);
    }

    #[test]
    fn memory_keeps_the_contract(deeds in deeds()) {
        run(&mut MemoryLog::default(), &deeds);
    }
}

#[test]
fn a_fenced_log_takes_nothing() {
    let mut beds: [Box<dyn Bed>; 2] = [Box::new(FileBed::new()), Box::new(MemoryLog::default())];
    for bed in &mut beds {
        let mut model = Model::default();
        let batch = model.batch(1, 2);
        bed.log().append(&batch).unwrap();
        bed.log().flush().unwrap();
        bed.flushed();
        model.durable = batch.records.to_vec();
        bed.log().fence();
        let next = model.batch(3, 1);
        assert!(matches!(bed.log().append(&next), Err(LogError::Fenced)));
        assert!(matches!(bed.log().flush(), Err(LogError::Fenced)));
        model.check(bed.log());
        // The next writer continues.
        bed.crash(0);
        bed.log().append(&next).unwrap();
        bed.log().flush().unwrap();
        model.durable.extend(next.records.to_vec());
        model.check(bed.log());
    }
}
