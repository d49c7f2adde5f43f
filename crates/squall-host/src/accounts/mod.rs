//! Accounting: a follower of the journal that keeps a row for each attempt, step and array in SQLite.
//!
//! Rows come from events only, and the number of the last record stands in the same transaction as its rows:
//! after any crash the follower goes on where it was. It can lag (a full disk), never stop the controller; a
//! missing or damaged database is built anew as far back as the journal reaches.

mod book;
mod draft;
mod encode;
mod query;
mod retire;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use squall_model::event::Record;
use squall_model::wire::client::{AccountingQuery, Answer, Refusal};

use crate::journal::{self, Accounted};
use crate::link::Outgoing;
use crate::logging::say;
use crate::place::Place;
use book::Book;
use query::Course;

/// How long records are gathered for one transaction, unless somebody asks: a job that has come and gone meanwhile is
/// written once.
const GATHER: Duration = Duration::from_secs(1);
/// Records that may wait in memory; more are read from the journal again.
const WAITING_MAX: usize = 50_000;
/// How often what is stored is made durable, so that the journal can drop it.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(5);
/// How long to wait before another try on a full disk.
const RETRY: Duration = Duration::from_millis(500);

/// How often it is looked whether a slow reader has taken its rows.
const READER_POLL: Duration = Duration::from_millis(5);

/// What wakes the thread.
enum Order {
    /// There are records.
    Gather,
    /// What, how far the wall clock is ahead of the journal's times, whom to tell.
    Query(Box<AccountingQuery>, i64, Outgoing),
}

/// Durable records that are not stored yet. They come without waking the thread but for the first.
#[derive(Debug)]
struct Fed {
    records: Receiver<Arc<Vec<Record>>>,
    /// The thread knows that there are some.
    known: Arc<AtomicBool>,
}

impl Fed {
    /// All that were fed so far. Whoever feeds more wakes the thread again.
    fn take(&self) -> Vec<Arc<Vec<Record>>> {
        self.known.store(false, Ordering::Release);
        self.records.try_iter().collect()
    }
}

/// The handle of the follower's thread, which stores what it was fed and ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Accounts {
    records: Sender<Arc<Vec<Record>>>,
    /// The thread knows that there are records.
    known: Arc<AtomicBool>,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// What a database has seen of which journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The journal.
    pub cluster: u128,
    /// The last record stored.
    pub seq: u64,
}

/// What the database at this path has seen; None: there is none, or it can't be read.
pub(crate) fn seen(path: &Path) -> Option<Seen> {
    if !path.exists() {
        return None;
    }
    let book = Book::open(path).ok()?;
    (book.cluster() != 0).then(|| Seen { cluster: book.cluster(), seq: book.position() })
}

impl Accounts {
    /// Follows the journal of that cluster whose last record is `last`.
    pub(crate) fn start(place: &Place, cluster: u128, last: u64, accounted: Accounted) -> std::io::Result<Self> {
        let (orders, inbox) = channel();
        let (records, fed) = channel();
        let known = Arc::<AtomicBool>::default();
        let mut keeper = Keeper {
            fed: Fed { records: fed, known: Arc::clone(&known) },
            place: place.clone(),
            cluster,
            book: None,
            waiting: VecDeque::new(),
            waiting_records: 0,
            behind_up_to: last,
            accounted,
            checkpoint: Instant::now(),
            dirty: true,
            trouble: false,
            open: VecDeque::new(),
        };
        let thread = std::thread::Builder::new().name("accounting".into()).spawn(move || keeper.run(&inbox))?;
        Ok(Self { records, known, orders: Some(orders), thread: Some(thread) })
    }

    /// Hands over durable records.
    pub(crate) fn feed(&self, records: Arc<Vec<Record>>) {
        // The thread ends only after this handle.
        drop(self.records.send(records));
        if !self.known.swap(true, Ordering::AcqRel) {
            self.order(Order::Gather);
        }
    }

    /// Has a question answered from everything fed before.
    pub(crate) fn ask(&self, query: AccountingQuery, ahead_us: i64, reply: Outgoing) {
        self.order(Order::Query(Box::new(query), ahead_us, reply));
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // The thread ends only after this handle.
            drop(orders.send(order));
        }
    }
}

impl Drop for Accounts {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

struct Keeper {
    fed: Fed,
    place: Place,
    cluster: u128,
    book: Option<Book>,
    waiting: VecDeque<Arc<Vec<Record>>>,
    waiting_records: usize,
    /// Records up to this one must be read from the journal's files.
    behind_up_to: u64,
    accounted: Accounted,
    checkpoint: Instant,
    /// Something is stored that may not be durable.
    dirty: bool,
    trouble: bool,
    /// Questions that are being answered, in turn.
    open: VecDeque<(Course, i64, Outgoing)>,
}

impl Keeper {
    fn run(&mut self, inbox: &Receiver<Order>) {
        self.store();
        // Since when records are gathered.
        let mut since = None;
        loop {
            let wait = match since {
                Some(since) => GATHER.saturating_sub(Instant::elapsed(&since)),
                None if self.trouble => RETRY,
                None => CHECKPOINT_EVERY,
            };
            let patience = match self.open.iter().any(|(_, _, reply)| reply.has_room()) {
                true => Duration::ZERO,
                false if self.open.is_empty() => wait,
                false => wait.min(READER_POLL),
            };
            match inbox.recv_timeout(patience) {
                Ok(Order::Gather) => {
                    since.get_or_insert_with(Instant::now);
                }
                Ok(Order::Query(query, ahead_us, reply)) => {
                    self.store();
                    since = None;
                    self.begin(query, ahead_us, reply);
                }
                // It was an answer's turn.
                Err(RecvTimeoutError::Timeout) if patience < wait => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.store();
                    since = None;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.store();
                    self.make_durable();
                    return;
                }
            }
            self.go_on();
            if self.dirty && self.checkpoint.elapsed() >= CHECKPOINT_EVERY {
                self.make_durable();
            }
        }
    }

    fn wait_with(&mut self, records: Arc<Vec<Record>>) {
        self.waiting_records += records.len();
        self.waiting.push_back(records);
        while self.waiting_records > WAITING_MAX {
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.waiting_records -= oldest.len();
            self.behind_up_to = oldest.last().map_or(self.behind_up_to, |r| r.seq);
        }
    }

    /// Stores what was fed. What can't be stored now waits on.
    fn store(&mut self) {
        for records in self.fed.take() {
            self.wait_with(records);
        }
        match self.try_store() {
            Ok(()) => {
                if self.trouble {
                    say("accounting goes on");
                }
                self.trouble = false;
                self.waiting.clear();
                self.waiting_records = 0;
            }
            Err(error) => {
                if !self.trouble {
                    say(&format!("accounting lags behind: {error}"));
                }
                self.trouble = true;
                if is_damage(&error) {
                    self.book = None;
                    set_aside(&self.place.accounts());
                    self.behind_up_to = self.behind_up_to.max(self.last_waiting());
                }
            }
        }
    }

    fn last_waiting(&self) -> u64 {
        self.waiting.back().and_then(|r| r.last()).map_or(0, |r| r.seq)
    }

    fn try_store(&mut self) -> rusqlite::Result<()> {
        let book = match &mut self.book {
            Some(book) => book,
            none => none.insert(open(&self.place.accounts(), self.cluster)?),
        };
        if book.position() < self.behind_up_to {
            if book.position() == 0 && self.behind_up_to > 1 {
                say("accounting has no rows yet: it is built from the journal, as far back as that reaches");
            }
            catch_up(book, &self.place.journal(), self.behind_up_to)?;
        }
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.dirty = true;
        book.store(self.waiting.iter().flat_map(|records| records.iter()))
    }

    fn make_durable(&mut self) {
        self.checkpoint = Instant::now();
        let Some(book) = &mut self.book else { return };
        if book.checkpoint().is_ok() {
            self.accounted.up_to(book.position());
            self.dirty = false;
        }
    }

    /// A question: it is answered portion by portion, in turn with others.
    fn begin(&mut self, query: Box<AccountingQuery>, ahead_us: i64, reply: Outgoing) {
        match &self.book {
            Some(book) => self.open.push_back((Course::new(book, query), ahead_us, reply)),
            None => fail(&reply, &rusqlite::Error::InvalidQuery),
        }
    }

    /// Goes on with the answer whose turn it is. One whose reader does not take what there is waits.
    fn go_on(&mut self) {
        self.open.retain(|(_, _, reply)| !reply.is_closed());
        let Some(next) = self.open.iter().position(|(_, _, reply)| reply.has_room()) else { return };
        let Some((mut course, ahead_us, reply)) = self.open.remove(next) else { return };
        let mut send = |rows, more| {
            let mut answer = Answer::Accounting { rows, more };
            answer.on_clock_ahead(ahead_us);
            push(&reply, &answer);
        };
        let done = match &self.book {
            Some(book) => course.go_on(book, &mut send),
            None => Err(rusqlite::Error::InvalidQuery),
        };
        match done {
            Ok(true) => {}
            Ok(false) => self.open.push_back((course, ahead_us, reply)),
            Err(error) => fail(&reply, &error),
        }
    }
}

fn push(reply: &Outgoing, answer: &Answer) {
    if reply.push(answer).is_err() {
        reply.close();
    }
}

fn fail(reply: &Outgoing, error: &rusqlite::Error) {
    say(&format!("a question to accounting failed: {error}"));
    push(reply, &Answer::Refused(Refusal::NotSupported(format!("accounting is not available now ({error})"))));
}

/// Opens the database for this journal; one that can't be used is set aside and begun anew.
fn open(path: &Path, cluster: u128) -> rusqlite::Result<Book> {
    let opened = Book::open(path);
    let unfit = match &opened {
        Ok(book) => book.cluster() != 0 && book.cluster() != cluster,
        Err(error) => is_damage(error),
    };
    let mut book = if unfit {
        drop(opened);
        set_aside(path);
        Book::open(path)?
    } else {
        opened?
    };
    if book.cluster() == 0 {
        book.begin(cluster)?;
    }
    Ok(book)
}

fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
        || matches!(error, rusqlite::Error::FromSqlConversionFailure(..) | rusqlite::Error::InvalidColumnType(..))
}

fn set_aside(path: &Path) {
    let aside = path.with_extension("db.damaged");
    say(&format!(
        "{} can't be used and is kept as {}; accounting is built anew from the journal",
        path.display(),
        aside.display()
    ));
    for suffix in ["-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        drop(std::fs::remove_file(name));
    }
    drop(std::fs::rename(path, aside));
}

/// Reads from the journal's files what the database has not seen.
fn catch_up(book: &mut Book, journal: &Path, up_to: u64) -> rusqlite::Result<()> {
    const EVENTS_AT_ONCE: usize = 16 << 10;
    let from = book.position() + 1;
    let (mut batch, mut events) = (Vec::new(), 0);
    let mut stored = Ok(());
    let mut flush = |batch: &mut Vec<Record>| {
        if stored.is_ok() {
            stored = book.store(batch.iter());
        }
        batch.clear();
    };
    let found = journal::records_from(journal, from, &mut |record| {
        events += record.events.len();
        batch.push(record);
        if events >= EVENTS_AT_ONCE {
            flush(&mut batch);
            events = 0;
        }
    });
    flush(&mut batch);
    stored?;
    let first = match found {
        Ok(first) => first,
        Err(error) => {
            say(&format!("accounting can't read the journal: {error}"));
            None
        }
    };
    match first {
        Some(first) if first == from => {}
        Some(first) => {
            say(&format!("records {from} to {} are no longer in the journal: accounting lacks them", first - 1));
        }
        None => {
            say(&format!("records {from} to {up_to} are no longer in the journal: accounting lacks them"));
            book.skip_to(up_to)?;
        }
    }
    Ok(())
}
