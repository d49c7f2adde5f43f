//! The log in files, called the journal. Segments of frames (`squall_model::journal`), snapshots, blobs.
//!
//! | file of `DIR/journal/` | holds |
//! |---|---|
//! | `NNNNNNNN.seg` | frames, one for each flush; all but the last are closed |
//! | `NNNNNNNN.snap` | the state after segment N, and where its blobs stand |
//! | `NNNNNNNN.pack` | blobs carried over from old segments when snapshot N was made |
//! | `spare.tmp` | the next segment: zeros |
//!
//! A start reads the newest snapshot and every segment after it. While there is room, the snapshot before it is
//! kept too, with the segments and packs that it needs: should the newest get damaged, that one is read instead.

mod blobs;
mod copy;
mod error;
mod files;
mod follower;
mod lock;
mod replay;
mod snapshot;
mod spare;
mod walk;
mod writer;

#[cfg(test)]
pub(crate) mod tests;

pub use blobs::Blobs;
pub use copy::{Copier, Cut, HeldJournal, Piece, is_file_name};
pub use error::JournalError;
pub(crate) use files::free_bytes;
pub use follower::{AccountingMark, Follower};
pub use lock::StateLock;
pub use replay::{Replay, ReplayReport, replay};
pub use writer::{FileLog, OpenedLog, Options};

use std::path::Path;

use squall_engine::commit::Append;
use squall_model::event::Record;

use files::{FileKind, Listing};
use walk::{FrameItem, walk};

use crate::log::{Log, LogError};

/// Passes all records from number `from` on that are in the files to `take`; returns the number of the first one (None:
/// there are none). For followers of the journal; not while the last segment is being written.
pub(crate) fn records_from(dir: &Path, from: u64, take: &mut dyn FnMut(Record)) -> Result<Option<u64>, JournalError> {
    some_records_from(dir, from, usize::MAX, take)
}

/// Like [`records_from`], but reads only so many files.
pub(crate) fn some_records_from(
    dir: &Path,
    from: u64,
    files: usize,
    take: &mut dyn FnMut(Record),
) -> Result<Option<u64>, JournalError> {
    let listing = Listing::read(dir)?;
    let start = listing.segments.iter().rposition(|n| follower::first_seq(dir, *n).is_some_and(|seq| seq <= from));
    let mut first = None;
    let mut numbers = &listing.segments[start.unwrap_or(0)..];
    // Segments with needed blobs are kept longer than their neighbours, so this begins behind the last gap.
    if let Some(gap) = numbers.windows(2).rposition(|w| w[0] + 1 != w[1]) {
        numbers = &numbers[gap + 1..];
    }
    numbers = &numbers[..numbers.len().min(files)];
    let walk = walk(dir, numbers, None, &mut |_, found| {
        if let FrameItem::Record(record) = found
            && record.seq >= from
        {
            first.get_or_insert(record.seq);
            take(record);
        }
        Ok(())
    });
    match walk.error {
        Some(error) => Err(error),
        None => Ok(first),
    }
}

/// Writes records as a journal that ends with a snapshot, as fast as the disk permits; for benchmarks.
pub fn write_bulk(dir: &Path, records: &[Record]) -> Result<(), LogError> {
    const RECORDS_PER_FRAME: usize = 256;
    let mut log = FileLog::open(dir, Options::default())?.log;
    for chunk in records.chunks(RECORDS_PER_FRAME) {
        log.append(&Append { records: chunk.to_vec().into(), blobs: Vec::new() })?;
        log.flush()?;
    }
    let last = Listing::read(dir)?.segments.last().copied().unwrap_or_default();
    log.close_segment()?;
    log.take_snapshot();
    if log.follower().wait_covered(last, std::time::Duration::from_mins(10)) {
        return Ok(());
    }
    let why = "it could not be made in 10 minutes".into();
    Err(JournalError::Missing { path: FileKind::Snapshot.path(dir, last), why }.into())
}
