//! The log: what the commit pipeline (`squall_engine::commit`) appends, makes durable and reads again.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;

use squall_engine::commit::{Append, Capacity};
use squall_engine::control::state::State;
use squall_model::event::Record;
use squall_model::job::Digest;

/// Numbered records of events, in order, and the content that they refer to. It has one writer.
///
/// A constructor makes its caller the log's writer, and cuts off what the last writer left unfinished. Afterwards no
/// earlier writer can append: a file log demands the lock of the state directory, a log in etcd raises an epoch that
/// each of its transactions compares.
///
/// A batch is appended and then flushed; both may block, so that the host calls them on another thread and decides the next
/// batch meanwhile. One flush serves all records and content of the batch (group commit).
pub trait Log: Debug + Send {
    /// Returns the number of the next record. The first record of a log has number 1.
    fn next_seq(&self) -> u64;

    /// Appends a batch; its records have the numbers from [`Log::next_seq`] on. Returns how many bytes that took.
    ///
    /// The batch need not be durable before [`Log::flush`]. If the writer ends before that, the whole batch survives or
    /// nothing of it. (In etcd an append is a transaction, which leaves nothing to flush.) After [`LogError::NoRoom`]
    /// nothing has happened, and the same batch may be appended later.
    fn append(&mut self, batch: &Append) -> Result<u64, LogError>;

    /// Makes durable what was appended. After an error it is unknown what is durable: the log is fenced, because a
    /// repeated flush proves nothing.
    fn flush(&mut self) -> Result<(), LogError>;

    /// Passes the durable records from number `seq` on to `take`, in order. Returns the number of the first one. A
    /// number above `seq` means that the records before it are only in the snapshot; None means that there are no
    /// records. A standby follows a log in this way.
    fn read_from(&self, seq: u64, take: &mut dyn FnMut(Record)) -> Result<Option<u64>, LogError>;

    /// Reads the newest snapshot. None: there is none, and [`Log::read_from`] 1 gives everything. The snapshot and the
    /// records after it equal all records.
    fn snapshot(&self) -> Result<Option<Snapshot>, LogError>;

    /// Asks for a snapshot of what is durable, as far as one can be made now (a file log: of closed segments). It is made
    /// from the records and not from the controller's memory, so that each one proves that they can be replayed. Returns
    /// at once. Old records may be dropped afterwards.
    fn take_snapshot(&mut self);

    /// Returns a reader of content, which also works while the log itself is being flushed.
    fn blobs(&self) -> Arc<dyn BlobReader>;

    /// Returns how much may still be appended. While `full` is set, `room` still takes records that must be written.
    fn capacity(&mut self) -> Capacity;

    /// Returns why the log is full, for the operator. None: it is not.
    fn trouble(&self) -> Option<String>;

    /// Ends this writer: append and flush fail with [`LogError::Fenced`] from now on. A log does this itself after a
    /// failed flush, and when it finds that another writer has taken over.
    fn fence(&mut self);
}

/// Reads scripts and environments of a log.
pub trait BlobReader: Debug + Send + Sync {
    /// Reads the content with this digest. Err: it is missing or damaged.
    fn read(&self, digest: &Digest) -> Result<Vec<u8>, LogError>;
}

/// A state stored in a log, with the number of its last record.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Number of the last record that is part of the snapshot.
    pub seq: u64,
    /// The state after that record.
    pub state: State,
}

/// Why an operation of a log failed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// There is no room. Nothing was appended; trying again later may help.
    #[error(transparent)]
    NoRoom(Box<dyn Error + Send + Sync>),
    /// Another writer has the log, or a flush has failed before.
    #[error("the log takes nothing more from this controller")]
    Fenced,
    /// The operation failed for another reason. After a failed append or flush the log is fenced.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}
