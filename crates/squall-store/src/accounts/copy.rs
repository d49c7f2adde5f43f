//! Copies the accounting database. Only the connection that writes it can be sure that its file is complete, so the
//! accounting thread makes the copy, between two transactions.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};

use super::book::Book;
use super::{FollowedJournal, Order, pages, unreadable};

/// Bytes of the database that are copied at once.
const COPIED_BYTES: usize = 1 << 20;

/// Handle by which one copy of the database is made while the accounting thread runs. The thread does not end before
/// this is dropped.
#[derive(Debug)]
pub struct Copying {
    pub(super) orders: SyncSender<Order>,
}

impl Copying {
    /// Copies the database to `to`; returns the number of the last record that is in the copy. Blocks. If a server has the
    /// rows, there is no copy, and the number is that of the last record there. Err: it can't be copied, with the reason.
    pub fn copy(self, to: &Path) -> Result<u64, String> {
        let ended = || "accounting has ended".to_owned();
        let (done, result) = sync_channel(1);
        self.orders.send(Order::Copy(to.to_owned(), done)).map_err(|_| ended())?;
        drop(self);
        result.recv().unwrap_or_else(|_| Err(ended()))
    }
}

/// Copies the database of a controller that does not run. Like [`Copying::copy`]; without a database nothing is copied,
/// and the number is 0.
pub fn copy_at_rest(from: &Path, to: &Path) -> Result<u64, String> {
    if !from.exists() {
        return Ok(0);
    }
    let book = Book::open(from).map_err(|e| e.to_string())?;
    copied(&book, to).map_err(|e| e.to_string())
}

/// Copies an open database.
pub(super) fn copied(book: &Book, to: &Path) -> rusqlite::Result<u64> {
    book.checkpoint()?;
    let mut new =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(to).map_err(unreadable)?;
    io::copy(&mut BufReader::with_capacity(COPIED_BYTES, book.raw()?), &mut new).map_err(unreadable)?;
    Ok(book.position())
}

/// Checks a copy: its pages are as they were written, and it follows the journal `cluster` up to a record that is not
/// above `last`. Err: why it can't be used.
pub fn check_copy(path: &Path, cluster: u128, last: u64) -> Result<(), String> {
    let open = || File::open(path).map_err(|e| e.to_string());
    if pages::has_sums(open()?) == Some(true)
        && let Some(page) = pages::damaged(open()?).map_err(|e| e.to_string())?.first()
    {
        return Err(format!("page {page} of the accounting database is damaged"));
    }
    let book = Book::open(path).map_err(|e| format!("the accounting database can't be read: {e}"))?;
    let seen = FollowedJournal { cluster: book.cluster(), seq: book.position() };
    // A database that was just made follows no journal yet.
    if seen.cluster != 0 && cluster != 0 && seen.cluster != cluster {
        return Err("the accounting database belongs to another journal".to_owned());
    }
    if seen.seq > last {
        return Err(format!("accounting has seen record {}, and the journal ends with record {last}", seen.seq));
    }
    Ok(())
}
