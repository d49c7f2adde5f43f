//! Accounting: a follower of the journal that keeps a row for each attempt, step and array, in SQLite or in PostgreSQL.
//!
//! Rows follow from events only. The number of the last record is stored in the same transaction as its rows, so the
//! follower resumes there after any crash. It can lag (a full disk, a server that is away), but never stops the controller.
//! A missing database is rebuilt from the journal; a damaged file from its readable rows and the journal (`rescue`).

mod book;
mod copy;
mod encode;
mod pages;
pub mod past;
mod project;
mod query;
mod readers;
mod rescue;
mod series;
mod served;
mod tables;
pub mod transfer;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use squall_files::durable;
use squall_files::place::Place;
use squall_model::config::Server;
use squall_model::event::Record;
use squall_model::wire::client::{AccountingQuery, Answer, Refusal};
use tracing::{error, info, warn};

use crate::file::{self, AccountingMark};
use book::{Book, TABLES};
pub use copy::{Copying, check_copy, copy_at_rest};
pub use project::project;
use query::Course;
use readers::Readers;
use tables::Dial;

/// By how much the thread gives way to others, above all to the one that decides: rows may be late, and lists may wait.
const NICENESS: i32 = 5;
/// Time for which records are gathered for one transaction, unless a query arrives: a job that was submitted and has
/// ended meanwhile is written once.
const GATHER: Duration = Duration::from_secs(1);
/// Most records that may wait in memory; further ones are read from the journal again.
const WAITING_MAX: usize = 50_000;
/// Most batches of records that may be queued while the thread is busy; further ones are read from the journal again.
const FED_MAX: usize = 4096;
/// Most queries that may be queued; further ones are refused.
const ORDERS_MAX: usize = 1024;
/// Interval at which stored rows are made durable, so that the journal can drop the records.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(5);
/// Time for which records that a server lacks are stored before queries have their turn.
const SLICE: Duration = Duration::from_secs(1);
/// Longest time that a start waits for a server to say what it has.
const SEEN_WAIT: Duration = Duration::from_secs(3);
/// Pause before another attempt on a full disk.
const RETRY: Duration = Duration::from_millis(500);

/// Interval of the check whether a slow reader has received its rows.
const READER_POLL: Duration = Duration::from_millis(5);

/// A message to the accounting thread.
enum Order {
    /// Tells the thread that records were queued.
    Gather,
    /// A query: the selected jobs (None: the history of nodes, reservations and accounts), how far the wall clock is
    /// ahead of the journal's times in microseconds, and the connection that gets the answer.
    Query(Option<Box<AccountingQuery>>, i64, Box<dyn Reply>),
    /// Copies the database to this path; the channel gets the number of the last record in the copy, or an error.
    Copy(PathBuf, SyncSender<Result<u64, String>>),
}

/// The connection to which an answer is sent.
pub trait Reply: Send {
    /// Returns whether the reader has received enough of the answer to get more.
    fn has_room(&self) -> bool;
    /// Returns whether the reader has disconnected.
    fn is_closed(&self) -> bool;
    /// Sends an answer. One that can't be encoded closes the connection.
    fn push(&self, answer: Answer);
}

/// Queue of durable records that are not stored yet. Only the first one wakes the thread.
#[derive(Debug)]
struct Fed {
    records: Receiver<Arc<Vec<Record>>>,
    signs: Arc<Signs>,
}

/// State shared by the handle that queues records and the thread that stores them.
#[derive(Debug, Default)]
struct Signs {
    /// Whether the thread was notified since it last took the queued records.
    known: AtomicBool,
    /// Number of the last record that did not fit into the queue.
    lost: AtomicU64,
    /// Why the rows lag behind. None: they don't.
    lag: Mutex<Option<String>>,
}

impl Signs {
    fn lag(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.lag.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fed {
    /// Takes all queued records. The next record that is queued wakes the thread again.
    fn take(&self) -> Vec<Arc<Vec<Record>>> {
        self.signs.known.store(false, Ordering::Release);
        self.records.try_iter().collect()
    }

    /// Returns the number of the last record that did not fit into the queue. It is set before later records are
    /// queued.
    fn lost(&self) -> u64 {
        self.signs.lost.load(Ordering::Acquire)
    }
}

/// Handle of the accounting thread, which stores what was queued and ends when this is dropped.
#[derive(Debug)]
pub struct Accounts {
    records: SyncSender<Arc<Vec<Record>>>,
    signs: Arc<Signs>,
    orders: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// Where the rows are kept.
#[derive(Clone, Debug)]
pub enum Store {
    /// In a file of the state folder.
    File {
        /// Id of the group that may read a copy of the rows. None: there is no copy.
        readers: Option<u32>,
    },
    /// On a server.
    Server(Server),
}

/// The journal that a database follows, and how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowedJournal {
    /// Random number that identifies the journal.
    pub cluster: u128,
    /// Number of the last record that the database has stored.
    pub seq: u64,
}

/// Returns how far the database at this path has followed its journal; None: there is none, or it can't be read.
pub fn seen(path: &Path) -> Option<FollowedJournal> {
    if !path.exists() {
        return None;
    }
    let book = Book::open(path).ok()?;
    (book.cluster() != 0).then(|| FollowedJournal { cluster: book.cluster(), seq: book.position() })
}

/// Like [`seen`], for a database on a server. A server that does not answer soon is not waited for.
pub fn seen_on(server: &Server) -> Option<FollowedJournal> {
    let (server, (done, seen)) = (server.clone(), sync_channel(1));
    let ask = move || {
        let seen = tables::connect(&server, None).ok().and_then(|session| {
            let book = Book::served(session).ok()?;
            (book.cluster() != 0).then(|| FollowedJournal { cluster: book.cluster(), seq: book.position() })
        });
        // Nobody may wait any more.
        done.send(seen).ok();
    };
    std::thread::Builder::new().name("accounting-seen".into()).spawn(ask).ok()?;
    seen.recv_timeout(SEEN_WAIT).ok()?
}

impl Accounts {
    /// Starts to follow the journal of `cluster`; the journal's last record is `last`.
    pub fn start(
        place: &Place,
        cluster: u128,
        last: u64,
        accounted: AccountingMark,
        store: Store,
    ) -> std::io::Result<Self> {
        let (orders, inbox) = sync_channel(ORDERS_MAX);
        let (records, fed) = sync_channel(FED_MAX);
        let signs = Arc::<Signs>::default();
        let fed = Fed { records: fed, signs: Arc::clone(&signs) };
        let mut keeper = Keeper::new(place, cluster, last, fed, accounted);
        match store {
            Store::File { readers } => keeper.readers = readers.map(|gid| Readers::new(place.records(), gid)),
            Store::Server(server) => keeper.dial = Some(Dial::to(server, cluster)),
        }
        let thread = std::thread::Builder::new().name("accounting".into()).spawn(move || {
            // Only this thread: on Linux each one has a nice value of its own.
            let _ = rustix::process::nice(NICENESS);
            keeper.run(&inbox);
        })?;
        Ok(Self { records, signs, orders: Some(orders), thread: Some(thread) })
    }

    /// Queues durable records for the accounting thread.
    pub fn feed(&self, records: Arc<Vec<Record>>) {
        // The controller never waits for the thread, even if its disk is slow: records that do not fit are read from
        // the journal.
        if let Err(TrySendError::Full(records)) = self.records.try_send(records) {
            self.signs.lost.store(records.last().map_or(0, |record| record.seq), Ordering::Release);
        }
        // If the order does not fit, queries precede it, and for each query the thread takes the records too.
        if !self.signs.known.swap(true, Ordering::AcqRel) {
            self.order(Order::Gather);
        }
    }

    /// Queues a query for jobs (None: for the history), answered from all records queued before it. If too many queries
    /// wait, it is refused.
    pub fn ask(&self, query: Option<Box<AccountingQuery>>, ahead_us: i64, reply: Box<dyn Reply>) {
        if let Some(Order::Query(_, _, reply)) = self.order(Order::Query(query, ahead_us, reply)) {
            reply.push(refused("too many questions wait; ask again later"));
        }
    }

    /// Returns why the rows lag behind, in a sentence. None: they don't.
    pub fn lag(&self) -> Option<String> {
        self.signs.lag().clone()
    }

    /// Returns a handle by which the database is copied. None: the thread ends.
    pub fn copying(&self) -> Option<Copying> {
        self.orders.clone().map(|orders| Copying { orders })
    }

    /// Sends an order to the thread. Some: it did not fit into the queue.
    fn order(&self, order: Order) -> Option<Order> {
        // The thread ends only after this handle.
        match self.orders.as_ref()?.try_send(order) {
            Err(TrySendError::Full(order)) => Some(order),
            _ => None,
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
    /// The way to the server that has the rows. None: a file has them.
    dial: Option<Dial>,
    book: Option<Book>,
    waiting: VecDeque<Arc<Vec<Record>>>,
    waiting_records: usize,
    /// Number of the last record that must be read from the journal's files; 0: none must.
    behind_up_to: u64,
    accounted: AccountingMark,
    checkpoint: Instant,
    /// Whether stored rows may not be durable yet.
    dirty: bool,
    /// Why the last records could not be stored.
    trouble: Option<String>,
    /// Queries in progress, answered in turn.
    open: VecDeque<(Topic, i64, Box<dyn Reply>)>,
    /// The copy that other programs read. None: there is none.
    readers: Option<Readers>,
    /// Whether that lacks rows that can be copied at once.
    copies: bool,
}

/// Progress of the answer to a query.
enum Topic {
    /// A query for jobs.
    Jobs(Course),
    /// A query for the history of nodes, reservations and accounts: rows up to this number were sent.
    History(i64),
}

impl Topic {
    /// Returns whether the answer may continue from a database that was rebuilt. See [`Course::may_continue`].
    fn may_continue(&mut self) -> bool {
        match self {
            Self::Jobs(course) => course.may_continue(),
            Self::History(_) => false,
        }
    }
}

impl Keeper {
    fn new(place: &Place, cluster: u128, last: u64, fed: Fed, accounted: AccountingMark) -> Self {
        Self {
            fed,
            place: place.clone(),
            cluster,
            dial: None,
            book: None,
            waiting: VecDeque::new(),
            waiting_records: 0,
            behind_up_to: last,
            accounted,
            checkpoint: Instant::now(),
            dirty: true,
            trouble: None,
            open: VecDeque::new(),
            readers: None,
            copies: false,
        }
    }

    fn run(&mut self, inbox: &Receiver<Order>) {
        self.store();
        // Time since which records are gathered.
        let mut since = None;
        loop {
            let wait = match since {
                Some(since) => GATHER.saturating_sub(Instant::elapsed(&since)),
                None if self.is_behind() => Duration::ZERO,
                None if self.trouble.is_some() => RETRY,
                None => CHECKPOINT_EVERY,
            };
            let patience = match self.open.iter().any(|(_, _, reply)| reply.has_room()) {
                true => Duration::ZERO,
                false if self.copies => Duration::ZERO,
                false if self.open.is_empty() => wait,
                false => wait.min(READER_POLL),
            };
            match inbox.recv_timeout(patience) {
                Ok(Order::Gather) => {
                    since.get_or_insert_with(Instant::now);
                }
                Ok(Order::Copy(to, done)) => {
                    self.store();
                    since = None;
                    // Without a receiver the backup was given up.
                    drop(done.try_send(self.copy(&to)));
                }
                Ok(Order::Query(query, ahead_us, reply)) => {
                    self.store();
                    since = None;
                    self.begin(query, ahead_us, reply);
                }
                // The timeout was that of an answer in progress.
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
            self.copies = match (&mut self.readers, &self.book) {
                (Some(readers), Some(book)) => readers.follow(book),
                _ => false,
            };
            if self.dirty && self.checkpoint.elapsed() >= CHECKPOINT_EVERY {
                self.make_durable();
            }
        }
    }

    /// Handles records up to `lost` that did not fit into the queue: they, and all waiting ones before them, are read
    /// from the journal.
    fn pass_over(&mut self, lost: u64) {
        while let Some(oldest) = self.waiting.pop_front_if(|records| records.first().is_some_and(|r| r.seq <= lost)) {
            self.waiting_records -= oldest.len();
        }
        self.behind_up_to = self.behind_up_to.max(lost);
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

    /// Stores the queued records. Records that can't be stored now remain queued.
    fn store(&mut self) {
        for records in self.fed.take() {
            self.wait_with(records);
        }
        self.pass_over(self.fed.lost());
        match self.try_store() {
            Ok(()) => {
                if self.trouble.take().is_some() {
                    info!("accounting goes on");
                }
                if !self.is_behind() {
                    self.waiting.clear();
                    self.waiting_records = 0;
                }
                self.stored();
            }
            Err(error) => {
                if self.trouble.is_none() {
                    error!(%error, "accounting lags behind");
                }
                *self.fed.signs.lag() = Some(format!("the records of accounting lag behind: {error}"));
                self.trouble = Some(error.to_string());
                if self.dial.is_some() {
                    self.leave(&error);
                } else if is_damage(&error) {
                    self.behind_up_to = self.behind_up_to.max(self.last_waiting());
                    self.renew(&error);
                }
            }
        }
    }

    /// Replaces a damaged database by a new one. Records that the damaged one had not stored are read from the journal.
    fn renew(&mut self, error: &rusqlite::Error) {
        if let Some(book) = self.book.take() {
            self.behind_up_to = self.behind_up_to.max(book.position());
        }
        match replace(&self.place, self.cluster, self.behind_up_to, error) {
            Ok(book) => match Readers::prepare(&book, self.readers.is_some()) {
                Ok(()) => self.book = Some(book),
                Err(error) => error!(%error, "accounting can't note what changes"),
            },
            Err(error) => error!(%error, "accounting can't be built again now"),
        }
        self.dirty = true;
    }

    fn last_waiting(&self) -> u64 {
        self.waiting.back().and_then(|r| r.last()).map_or(0, |r| r.seq)
    }

    fn try_store(&mut self) -> rusqlite::Result<()> {
        let book = match (&mut self.book, &mut self.dial) {
            (Some(book), _) => book,
            (none, Some(dial)) => none.insert(Book::served(dial.session()?)?),
            (none, None) => {
                let book = open(&self.place, self.cluster, self.behind_up_to)?;
                Readers::prepare(&book, self.readers.is_some())?;
                none.insert(book)
            }
        };
        if book.position() < self.behind_up_to {
            if book.position() == 0 && self.behind_up_to > 1 {
                info!("accounting has no rows yet: it is built from the journal, as far back as that reaches");
            }
            let slice = self.dial.is_some().then_some(SLICE);
            catch_up(book, &self.place.journal(), self.behind_up_to, slice)?;
            self.dirty = true;
        }
        if self.waiting.is_empty() || book.position() < self.behind_up_to {
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

    /// Copies the file with the rows. What a server has is left to backups of its own.
    fn copy(&mut self, to: &Path) -> Result<u64, String> {
        if self.dial.is_some() {
            return Ok(self.book.as_ref().map_or(0, Book::position));
        }
        let book = self.book.as_ref().ok_or("accounting is not available now")?;
        copy::copied(book, to).map_err(|e| e.to_string())
    }

    /// Returns why no database is open.
    fn unavailable(&self) -> rusqlite::Error {
        let why = self.trouble.as_deref().unwrap_or("its database is not open");
        rusqlite::Error::ToSqlConversionFailure(why.into())
    }

    /// Begins the answer to a query. It is sent page by page, in turn with other answers.
    fn begin(&mut self, query: Option<Box<AccountingQuery>>, ahead_us: i64, reply: Box<dyn Reply>) {
        match (&self.book, query) {
            (Some(book), Some(query)) => {
                self.open.push_back((Topic::Jobs(Course::new(book, query)), ahead_us, reply));
            }
            (Some(_), None) => self.open.push_back((Topic::History(0), ahead_us, reply)),
            // The log has why, once.
            (None, _) => reply.push(refused(&self.unavailable().to_string())),
        }
    }

    /// Sends the next page of one answer, the reader of which has received the last page.
    fn go_on(&mut self) {
        self.open.retain(|(_, _, reply)| !reply.is_closed());
        let Some(next) = self.open.iter().position(|(_, _, reply)| reply.has_room()) else { return };
        let Some((mut topic, ahead_us, reply)) = self.open.remove(next) else { return };
        let send = |mut answer: Answer| {
            answer.on_clock_ahead(ahead_us);
            reply.push(answer);
        };
        let done = match (&self.book, &mut topic) {
            (Some(book), Topic::Jobs(course)) => {
                course.go_on(book, &mut |rows, more, lost| send(Answer::Accounting { rows, more, lost }))
            }
            (Some(book), Topic::History(after)) => book::history::page(book, after).map(|rows| {
                let done = rows.is_empty();
                send(Answer::History(rows, !done));
                done
            }),
            (None, _) => Err(self.unavailable()),
        };
        match done {
            Ok(true) => {}
            Ok(false) => self.open.push_back((topic, ahead_us, reply)),
            Err(error) if self.dial.is_some() => {
                self.leave(&error);
                self.store();
                if self.book.is_some() && topic.may_continue() {
                    self.open.push_front((topic, ahead_us, reply));
                } else {
                    fail(&*reply, &error);
                }
            }
            Err(error) if is_damage(&error) && topic.may_continue() => {
                self.renew(&error);
                self.store();
                self.open.push_front((topic, ahead_us, reply));
            }
            Err(error) => fail(&*reply, &error),
        }
    }
}

fn fail(reply: &dyn Reply, error: &rusqlite::Error) {
    error!(%error, "a question to accounting failed");
    reply.push(refused(&error.to_string()));
}

fn refused(why: &str) -> Answer {
    Answer::Refused(Refusal::NotSupported(format!("accounting is not available now ({why})")))
}

/// Opens the database for this journal. One that follows another journal is set aside; otherwise the checksums of all
/// pages are verified.
fn open(place: &Place, cluster: u128, last: u64) -> rusqlite::Result<Book> {
    let path = place.accounts();
    match checked(&path, cluster) {
        Err(error) if is_damage(&error) => replace(place, cluster, last, &error),
        opened => opened,
    }
}

fn checked(path: &Path, cluster: u128) -> rusqlite::Result<Book> {
    let mut book = Book::open(path)?;
    if book.cluster() != 0 && book.cluster() != cluster {
        drop(book);
        warn!("{} follows another journal and is kept as {}", path.display(), aside(path).display());
        set_aside(path).map_err(unreadable)?;
        book = Book::open(path)?;
    }
    if book.cluster() == 0 {
        book.begin(cluster)?;
    }
    book.checkpoint()?;
    // Not through a descriptor of our own: closing that would drop the lock (`pages::Raw`).
    if pages::has_sums(book.raw()?) == Some(false) {
        return with_sums(path, book);
    }
    let damaged = pages::damaged(book.raw()?).map_err(unreadable)?;
    match damaged.first() {
        None => Ok(book),
        Some(page) => Err(damage(format!("{} of its pages are not what was written, first {page}", damaged.len()))),
    }
}

/// Copies a database without checksums into one with checksums. If the disk lacks room for the copy, the old one stays
/// in use.
fn with_sums(path: &Path, book: Book) -> rusqlite::Result<Book> {
    let cluster = book.cluster();
    drop(book);
    match rescue::rebuild(path, cluster, None) {
        Ok((new, rescued)) => {
            std::fs::rename(&new, path).and_then(|()| durable::sync_folder(path)).map_err(unreadable)?;
            info!(rows = rescued.rows, "the pages of {} have checksums now", path.display());
        }
        Err(error) if is_damage(&error) => return Err(error),
        Err(error) => error!(%error, "the pages of {} can't get checksums now", path.display()),
    }
    Book::open(path)
}

/// Replaces a damaged database by a new one and logs the lost ranges. The damaged file is kept under another name.
fn replace(place: &Place, cluster: u128, last: u64, error: &rusqlite::Error) -> rusqlite::Result<Book> {
    let path = place.accounts();
    error!("{} is damaged ({error}); it is kept as {}", path.display(), aside(&path).display());
    let (new, rescued) = rescue::rebuild(&path, cluster, Some((&place.journal(), last)))?;
    set_aside(&path).and_then(|()| std::fs::rename(&new, &path)).map_err(unreadable)?;
    durable::sync_folder(&path).map_err(unreadable)?;
    warn!(
        rows = rescued.rows,
        from_journal = rescued.from_journal,
        "accounting goes on with the rows that can be read, and with those that are built from the journal"
    );
    for lost in &rescued.lost {
        error!("rows of jobs {} to {} may be missing in accounting", lost.first, lost.last);
    }
    Book::open(&path)
}

fn unreadable(error: std::io::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(error.into())
}

fn damage(what: String) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT), Some(what))
}

/// Returns the error of a database with tables of another version. It is no damage, so the file is left alone.
fn another_version(path: &Path, tables: i64) -> rusqlite::Error {
    let by = if tables < TABLES { "a build before release 0.2.0" } else { "a newer version of squall" };
    let why = format!(
        "{} has tables of format {tables}, and this version of squall reads format {TABLES} only: it was written by {by}. \
         Nothing was changed. Start what wrote it, or move the file away: a new one gets what the journal has",
        path.display()
    );
    rusqlite::Error::ToSqlConversionFailure(why.into())
}

fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
        || matches!(error, rusqlite::Error::FromSqlConversionFailure(..) | rusqlite::Error::InvalidColumnType(..))
}

fn aside(path: &Path) -> PathBuf {
    path.with_extension("db.damaged")
}

/// Renames a database and SQLite's log of it.
fn set_aside(path: &Path) -> std::io::Result<()> {
    let aside = aside(path);
    rescue::remove(&aside);
    for suffix in ["", "-wal"] {
        match std::fs::rename(rescue::with_suffix(path, suffix), rescue::with_suffix(&aside, suffix)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    rescue::remove(path);
    Ok(())
}

/// Stores the records that the database lacks, reading them from the journal's files. `slice`: time after which it leaves the
/// rest to the next call; None: it stores all.
fn catch_up(book: &mut Book, journal: &Path, up_to: u64, slice: Option<Duration>) -> rusqlite::Result<()> {
    const EVENTS_AT_ONCE: usize = 16 << 10;
    const FILES_AT_ONCE: usize = 2;
    let from = book.position() + 1;
    let (mut batch, mut events) = (Vec::new(), 0);
    let (mut stored, begun) = (Ok(()), Instant::now());
    let mut flush = |batch: &mut Vec<Record>| {
        if stored.is_ok() && slice.is_none_or(|slice| begun.elapsed() <= slice) {
            stored = book.store(batch.iter());
        }
        batch.clear();
    };
    let files = slice.map_or(usize::MAX, |_| FILES_AT_ONCE);
    let found = file::some_records_from(journal, from, files, &mut |record| {
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
            error!(%error, "accounting can't read the journal");
            None
        }
    };
    match first {
        Some(first) if first == from => {}
        Some(first) => {
            error!("records {from} to {} are no longer in the journal: accounting lacks them", first - 1);
        }
        None => {
            error!("records {from} to {up_to} are no longer in the journal: accounting lacks them");
            book.skip_to(up_to)?;
        }
    }
    Ok(())
}
