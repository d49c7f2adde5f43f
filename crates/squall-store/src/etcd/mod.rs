//! The log in etcd: the commit point of a cluster with several controllers. Each controller's journal is a copy of it.
//!
//! What is decided is `squall_engine::replica`'s, which also says how a leader is fenced. Here are connections, the thread
//! that keeps the lease, and the [`Log`] of a controller which leads.

mod caller;
mod driver;
mod probe;
mod proto;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use squall_engine::commit::{Append, Capacity};
use squall_engine::replica::MAKE_ROOM;
use squall_files::durable;
use squall_model::event::Record;

use crate::entry::Entry;
use crate::file::FileLog;
use crate::log::{BlobReader, Log, LogError, Snapshot};

use driver::Appended;
pub use driver::{News, ReplicaHandle, Servers, start};
pub use probe::{Probe, probe};

/// Time after which the copy is flushed at the next batch. Nothing depends on it but how much a controller that lost its
/// machine's power reads again from etcd.
const FLUSH_EVERY: Duration = Duration::from_millis(250);
/// Name of the file in the journal's folder with the number of the log that the journal is a copy of.
const COPY_OF: &str = "copy-of";

/// The ends of appends, in order.
#[derive(Debug)]
pub struct Appends(Receiver<Appended>);

/// The log of a controller that leads.
#[derive(Debug)]
pub struct EtcdLog {
    copy: FileLog,
    replica: ReplicaHandle,
    appends: Appends,
    flushed: Instant,
    fenced: bool,
}

impl EtcdLog {
    /// Makes the log of a controller that leads. `copy`: its journal, which holds everything that was appended so far.
    pub fn new(copy: FileLog, replica: ReplicaHandle, appends: Appends) -> Self {
        Self { copy, replica, appends, flushed: Instant::now(), fenced: false }
    }

    /// Appends a batch to etcd, and waits until it is there.
    fn commit(&self, batch: &Append) -> Result<(), LogError> {
        let (Some(first), Some(last)) = (batch.records.first(), batch.records.last()) else { return Ok(()) };
        self.replica.append(first.seq, last.seq, Entry::of(batch).encode());
        match self.appends.0.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Some(why))) => Err(LogError::NoRoom(no_room(&why).into())),
            Ok(Err(None)) | Err(_) => Err(LogError::Fenced),
        }
    }
}

impl Log for EtcdLog {
    fn next_seq(&self) -> u64 {
        self.copy.next_seq()
    }

    fn append(&mut self, batch: &Append) -> Result<u64, LogError> {
        if self.fenced || !self.replica.counts() {
            return Err(LogError::Fenced);
        }
        let done = self.commit(batch);
        self.fenced = matches!(done, Err(LogError::Fenced | LogError::Failed(_)));
        done?;
        // The batch is in etcd. A copy that lacks it can't go on: the controller ends, and follows from there.
        append_to_copy(&mut self.copy, batch).map_err(|e| LogError::Failed(e.into()))
    }

    fn flush(&mut self) -> Result<(), LogError> {
        if self.flushed.elapsed() >= FLUSH_EVERY {
            self.copy.flush()?;
            self.flushed = Instant::now();
            self.replica.durable(self.copy.next_seq() - 1);
        }
        Ok(())
    }

    fn read_from(&self, seq: u64, take: &mut dyn FnMut(Record)) -> Result<Option<u64>, LogError> {
        self.copy.read_from(seq, take)
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, LogError> {
        self.copy.snapshot()
    }

    fn take_snapshot(&mut self) {
        self.copy.take_snapshot();
    }

    fn blobs(&self) -> Arc<dyn BlobReader> {
        self.copy.blobs()
    }

    fn capacity(&mut self) -> Capacity {
        let capacity = self.copy.capacity();
        if self.replica.is_full() {
            // What must be written is: etcd itself says when there is no room for that.
            return Capacity { reserve: capacity.room, free: 0, full: true, ..capacity };
        }
        capacity
    }

    fn trouble(&self) -> Option<String> {
        self.copy.trouble().or_else(|| self.replica.is_full().then(|| no_room("its database is nearly full")))
    }

    fn fence(&mut self) {
        self.fenced = true;
        self.copy.fence();
    }
}

/// Appends a batch that is in etcd to the journal, which is a copy. Returns its size there, bytes.
pub fn append_to_copy(copy: &mut FileLog, batch: &Append) -> Result<u64, LogError> {
    let size = copy.append(batch)?;
    copy.count_durable();
    Ok(size)
}

fn no_room(why: &str) -> String {
    format!(
        "etcd has no room for the log: {why}. Old records are removed when the other controllers have them. If that is not \
         enough, {MAKE_ROOM}"
    )
}

/// Returns the number of the log that the journal in `dir` is a copy of. None: of none so far.
pub fn copy_of(dir: &Path) -> Result<Option<u64>, String> {
    let path = dir.join(COPY_OF);
    match std::fs::read_to_string(&path) {
        Ok(text) => match u64::from_str_radix(text.trim(), 16) {
            Ok(log) => Ok(Some(log)),
            Err(_) => Err(format!("{}: `{}` is no number of a log", path.display(), text.trim())),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("cannot read {}: {e}", path.display())),
    }
}

/// Notes, durably, that the journal in `dir` is a copy of this log.
pub fn set_copy_of(dir: &Path, log: u64) -> Result<(), String> {
    let path = dir.join(COPY_OF);
    durable::write(&path, format!("{log:016x}\n").as_bytes(), 0o600)
        .map_err(|e| format!("cannot write {}: {e}", path.display()))
}
