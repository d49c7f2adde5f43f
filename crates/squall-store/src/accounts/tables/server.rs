//! A session with PostgreSQL. Statements without a result are sent one after the other without waiting for an answer.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rusqlite::ffi;
use rusqlite::types::Value;
use squall_model::encoding;
use tokio::runtime::Runtime;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, RowStream, Statement};

use super::schema::Plain;
use super::values::Given;
use super::{Params, away, dialect};

/// Longest time for which a server may work on a statement: then it is taken for lost. A connection that is dead is found
/// sooner, by its keepalives.
const PATIENCE: Duration = Duration::from_mins(1);
/// Most statements that are under way.
const UNDER_WAY_MAX: usize = 512;
/// Most values for which rows are looked up at once.
const LOOKED_UP_MAX: usize = 10_000;
/// Most values of which it is remembered that they have a row.
const SHARED_MAX: usize = 100_000;

type Sent = Pin<Box<dyn Future<Output = Result<u64, Error>> + Send>>;
type Taker<'a> = dyn FnMut(tokio_postgres::Row) -> rusqlite::Result<ControlFlow<()>> + 'a;

/// An open session.
pub(in crate::accounts) struct Session {
    runtime: Runtime,
    client: Arc<Client>,
    place: String,
    /// Prepared statements, by the place of their text.
    statements: RefCell<HashMap<(usize, usize), Statement>>,
    under_way: RefCell<VecDeque<Sent>>,
    /// Rows of values that many share, by their digests.
    shared: RefCell<HashMap<(&'static str, [u8; 32]), i64>>,
    /// Such values that are known to have no row yet.
    absent: RefCell<HashSet<(&'static str, [u8; 32])>>,
    /// The highest number of a row in tables of such values, by the statement that finds it.
    highest: RefCell<HashMap<&'static str, i64>>,
    /// Whether each part of a transaction can be undone for itself.
    pub(super) is_careful: bool,
}

impl Session {
    /// Makes a session of a connection on which nothing was said yet. `place`: where the server is, for people.
    pub(super) fn new(runtime: Runtime, client: Client, place: String) -> Self {
        Self {
            runtime,
            client: Arc::new(client),
            place,
            statements: RefCell::default(),
            under_way: RefCell::default(),
            shared: RefCell::default(),
            absent: RefCell::default(),
            highest: RefCell::default(),
            is_careful: false,
        }
    }

    /// Returns where the server is.
    pub(in crate::accounts) fn place(&self) -> &str {
        &self.place
    }

    /// Waits for an answer.
    fn wait<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> rusqlite::Result<T> {
        let answer = pin!(answer);
        match self.runtime.block_on(async { tokio::time::timeout(PATIENCE, answer).await }) {
            Ok(answer) => answer.map_err(|e| self.said(failed(&e))),
            Err(_) => Err(away(format!("{} has not answered for {} s", self.place, PATIENCE.as_secs()))),
        }
    }

    /// Says where the server is that said so.
    fn said(&self, error: rusqlite::Error) -> rusqlite::Error {
        match error {
            rusqlite::Error::SqliteFailure(code, Some(why)) => {
                rusqlite::Error::SqliteFailure(code, Some(format!("{}: {why}", self.place)))
            }
            other => other,
        }
    }

    fn prepared(&self, sql: &'static str) -> rusqlite::Result<Statement> {
        let key = (sql.as_ptr() as usize, sql.len());
        if let Some(known) = self.statements.borrow().get(&key) {
            return Ok(known.clone());
        }
        // A statement that failed before would fail this one, too, and hide why.
        self.settle()?;
        let statement = self.wait(self.client.prepare(&dialect::translated(sql)))?;
        self.statements.borrow_mut().insert(key, statement.clone());
        Ok(statement)
    }

    /// Sends a statement.
    pub(super) fn write(&self, sql: &'static str, values: Params<'_>) -> rusqlite::Result<()> {
        let values = values.iter().map(|value| Given::of(*value)).collect::<Result<_, _>>()?;
        self.send(sql, values)
    }

    /// Sends a statement with these values.
    pub(super) fn send(&self, sql: &'static str, values: Vec<Given>) -> rusqlite::Result<()> {
        let (statement, client) = (self.prepared(sql)?, Arc::clone(&self.client));
        let mut sent: Sent = Box::pin(async move { client.execute_raw(&statement, values).await });
        // The first look at it hands it to the connection, behind what was sent before.
        match sent.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => {
                self.settle()?;
                done.map(drop).map_err(|e| failed(&e))
            }
            Poll::Pending => {
                self.under_way.borrow_mut().push_back(sent);
                if self.is_careful || self.under_way.borrow().len() >= UNDER_WAY_MAX { self.settle() } else { Ok(()) }
            }
        }
    }

    /// Waits until all that was sent is done. Err: what was wrong with the first that failed.
    pub(super) fn settle(&self) -> rusqlite::Result<()> {
        loop {
            let Some(sent) = self.under_way.borrow_mut().pop_front() else { return Ok(()) };
            if let Err(error) = self.wait(sent) {
                self.forget();
                return Err(error);
            }
        }
    }

    /// Forgets what is under way, as its transaction is lost.
    pub(super) fn forget(&self) {
        self.under_way.borrow_mut().clear();
    }

    /// Runs a statement, and returns how many rows it has changed.
    pub(super) fn execute(&self, sql: &'static str, values: Params<'_>) -> rusqlite::Result<usize> {
        let statement = self.prepared(sql)?;
        let values: Vec<Given> = values.iter().map(|value| Given::of(*value)).collect::<Result<_, _>>()?;
        let done = self.wait(self.client.execute_raw(&statement, values));
        self.settle()?;
        done.map(|count| count as usize)
    }

    /// Returns the number of the row of a value that many rows share, and adds it if needed. Nobody else may write meanwhile.
    pub(in crate::accounts) fn shared<T: Plain>(
        &self,
        value: &T,
        digest: [u8; 32],
        body: Vec<u8>,
    ) -> rusqlite::Result<i64> {
        if let Some(id) = self.shared.borrow().get(&(T::FIND, digest)) {
            return Ok(*id);
        }
        let is_new = self.absent.borrow_mut().remove(&(T::FIND, digest));
        let known = if is_new { None } else { self.number(T::FIND, &[&&digest[..]])? };
        let id = match known {
            Some(id) => id,
            None => self.add_shared(value, &digest, body)?,
        };
        let mut shared = self.shared.borrow_mut();
        if shared.len() >= SHARED_MAX {
            shared.clear();
        }
        shared.insert((T::FIND, digest), id);
        Ok(id)
    }

    /// Finds out which of these values have rows: asked for one by one, each would wait for all that was sent before.
    pub(in crate::accounts) fn look_up<'a, T: Plain + 'a>(
        &self,
        values: impl Iterator<Item = &'a T>,
    ) -> rusqlite::Result<()> {
        let mut digests: Vec<[u8; 32]> =
            values.map(|value| *blake3::hash(&encoding::to_vec(value)).as_bytes()).collect();
        digests.sort_unstable();
        digests.dedup();
        let (mut shared, mut absent) = (self.shared.borrow_mut(), self.absent.borrow_mut());
        if shared.len() >= SHARED_MAX {
            shared.clear();
        }
        digests.retain(|digest| !shared.contains_key(&(T::FIND, *digest)));
        for some in digests.chunks(LOOKED_UP_MAX) {
            let statement = self.prepared(T::FIND_ANY)?;
            let bytes: Vec<&[u8]> = some.iter().map(|digest| &digest[..]).collect();
            let found = self.wait(self.client.query(&statement, &[&bytes]));
            self.settle()?;
            absent.extend(some.iter().map(|digest| (T::FIND, *digest)));
            for row in found? {
                let digest: &[u8] = row.try_get(0).map_err(|e| failed(&e))?;
                let Ok(digest) = <[u8; 32]>::try_from(digest) else { continue };
                absent.remove(&(T::FIND, digest));
                shared.insert((T::FIND, digest), row.try_get(1).map_err(|e| failed(&e))?);
            }
        }
        Ok(())
    }

    fn add_shared<T: Plain>(&self, value: &T, digest: &[u8], body: Vec<u8>) -> rusqlite::Result<i64> {
        let highest = self.highest.borrow().get(T::HIGHEST).copied();
        let id = 1 + match highest {
            Some(highest) => highest,
            None => self.number(T::HIGHEST, &[])?.unwrap_or_default(),
        };
        self.put_shared(value, id, digest, body)?;
        self.highest.borrow_mut().insert(T::HIGHEST, id);
        Ok(id)
    }

    /// Adds the row of a value that many rows share, with its number.
    pub(in crate::accounts) fn put_shared<T: Plain>(
        &self,
        value: &T,
        id: i64,
        digest: &[u8],
        body: Vec<u8>,
    ) -> rusqlite::Result<()> {
        let own = [Value::Integer(id), Value::Blob(digest.to_vec()), Value::Blob(body)];
        self.send(T::ADD_PLAIN, own.into_iter().chain(value.plain()).map(Given::from).collect())
    }

    /// Returns a number that a statement finds. None: it finds none.
    fn number(&self, sql: &'static str, values: Params<'_>) -> rusqlite::Result<Option<i64>> {
        let mut found = None;
        self.stream(sql, values, &mut |row| {
            found = Some(row.try_get(0).map_err(|e| failed(&e))?);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// Forgets which values have rows.
    pub(super) fn forget_shared(&self) {
        self.shared.borrow_mut().clear();
        self.absent.borrow_mut().clear();
        self.highest.borrow_mut().clear();
    }

    /// Runs statements without parameters.
    pub(super) fn batch(&self, sql: &str) -> rusqlite::Result<()> {
        let done = self.wait(self.client.batch_execute(sql));
        self.settle()?;
        done
    }

    /// Passes the rows that a statement finds to `take`, until that breaks off. The connection waits for whoever takes them, so
    /// another statement would wait for ever meanwhile.
    pub(super) fn stream(&self, sql: &'static str, values: Params<'_>, take: &mut Taker<'_>) -> rusqlite::Result<()> {
        let statement = self.prepared(sql)?;
        let values: Vec<Given> = values.iter().map(|value| Given::of(*value)).collect::<Result<_, _>>()?;
        let found = self.wait(self.client.query_raw(&statement, values));
        // What was sent before is done by now; if it has failed, the question has, too.
        self.settle()?;
        let mut found = pin!(found?);
        while let Some(row) = self.wait(next(&mut found))? {
            if take(row)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Returns the next row. None: there is none.
async fn next(rows: &mut Pin<&mut RowStream>) -> Result<Option<tokio_postgres::Row>, Error> {
    use futures_core::Stream;
    std::future::poll_fn(|cx| rows.as_mut().poll_next(cx)).await.transpose()
}

/// Returns an error in SQLite's terms: its code says of which kind it is.
pub(super) fn failed(error: &Error) -> rusqlite::Error {
    let Some(said) = error.as_db_error() else {
        // All others are of the connection.
        let text = described(error);
        let of_value =
            text.starts_with("error serializing parameter") || text.starts_with("error deserializing column");
        return with(if of_value { ffi::SQLITE_MISMATCH } else { ffi::SQLITE_CANTOPEN }, text);
    };
    let code = match said.code() {
        state if state.code().starts_with("23") => ffi::SQLITE_CONSTRAINT,
        &SqlState::PROGRAM_LIMIT_EXCEEDED => ffi::SQLITE_TOOBIG,
        state if state.code().starts_with("22") => ffi::SQLITE_MISMATCH,
        &SqlState::DISK_FULL => ffi::SQLITE_FULL,
        state if state.code().starts_with("57P") || state.code().starts_with("08") => ffi::SQLITE_CANTOPEN,
        _ => ffi::SQLITE_ERROR,
    };
    with(code, format!("{} ({})", said.message(), said.code().code()))
}

fn with(code: i32, why: String) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(why))
}

/// Returns an error with its cause.
pub(super) fn described(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
