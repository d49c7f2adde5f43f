//! Writes the rows of records that no journal has, for benchmarks.

use squall_files::place::Place;
use squall_model::event::Record;

use super::book::Book;

/// Number of records that are stored in one transaction.
const AT_ONCE: usize = 512;

/// Writes the rows of these records into the accounting database of a cluster that was never started, as the accounting
/// thread would. The database follows the cluster's own journal from that journal's first record on. Err: why it can't
/// be written.
pub fn project(place: &Place, records: impl Iterator<Item = Record>) -> Result<(), String> {
    let mut records = records.peekable();
    let mut write = || {
        let mut book = Book::open(&place.accounts())?;
        while records.peek().is_some() {
            let batch: Vec<Record> = records.by_ref().take(AT_ONCE).collect();
            book.store(batch.iter())?;
        }
        book.skip_to(0)?;
        book.checkpoint()
    };
    write().map_err(|e: rusqlite::Error| format!("{}: {e}", place.accounts().display()))
}
