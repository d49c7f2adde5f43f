//! The tables of accounting: in a file of SQLite, or in a database of PostgreSQL. Each statement is written once.
//!
//! SQLite's words are the common ones: its values, its errors, and its SQL as far as PostgreSQL has the same. What differs
//! in the text of a statement is in `dialect`. SQLite's own matters (its log, its checksums, rescue) stay with the file.

mod connect;
mod dialect;
mod schema;
mod secure;
mod server;
mod values;

use std::fmt::Display;
use std::ops::ControlFlow;

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, ToSql, ffi};

pub(super) use connect::{Dial, connect};
pub(super) use schema::Plain;
pub(super) use server::Session;
use values::Cell;

/// Distance by which rows are moved out of the way before they get new keys.
const FAR: i64 = 1 << 60;

/// Values of a statement's parameters.
pub(super) type Params<'a> = &'a [&'a dyn ToSql];

/// Where the tables are.
pub(super) enum Tables {
    /// In a file.
    File(Connection),
    /// On a server.
    Server(Box<Session>),
}

/// A row that was found.
pub(super) enum Row<'a> {
    File(&'a rusqlite::Row<'a>),
    Server(&'a tokio_postgres::Row),
}

impl Row<'_> {
    /// Returns the value of a column, by its number from 0.
    pub(super) fn get<T: FromSql>(&self, column: usize) -> rusqlite::Result<T> {
        match self {
            Self::File(row) => row.get(column),
            Self::Server(row) => {
                let cell: Cell<'_> = row.try_get(column).map_err(|e| server::failed(&e))?;
                let wrong = |e: rusqlite::types::FromSqlError| {
                    rusqlite::Error::FromSqlConversionFailure(column, cell.kind(), e.into())
                };
                T::column_result(cell.value()).map_err(wrong)
            }
        }
    }
}

impl Tables {
    /// Returns whether they are on a server.
    pub(super) fn is_served(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// Returns the file's connection. Err: they are on a server, which has no such thing.
    pub(super) fn file(&self) -> rusqlite::Result<&Connection> {
        match self {
            Self::File(db) => Ok(db),
            Self::Server(session) => Err(misuse(format!("{} is no file", session.place()))),
        }
    }

    /// Runs a statement, and returns how many rows it has changed.
    pub(super) fn execute(&self, sql: &'static str, values: Params<'_>) -> rusqlite::Result<usize> {
        match self {
            Self::File(db) => db.prepare_cached(sql)?.execute(values),
            Self::Server(session) => session.execute(sql, values),
        }
    }

    /// Runs a statement that returns nothing. On a server it may be under way until the next that returns something; what is
    /// wrong with it is then told there, at the end of the transaction at the latest.
    pub(super) fn write(&self, sql: &'static str, values: Params<'_>) -> rusqlite::Result<()> {
        match self {
            Self::File(db) => db.prepare_cached(sql)?.execute(values).map(drop),
            Self::Server(session) => session.write(sql, values),
        }
    }

    /// Runs a statement without parameters that is not kept prepared.
    pub(super) fn run(&self, sql: &str) -> rusqlite::Result<()> {
        match self {
            Self::File(db) => db.execute_batch(sql),
            Self::Server(session) => session.batch(sql),
        }
    }

    /// Returns what `read` makes of the first row that a statement finds. None: it finds none.
    pub(super) fn one<T>(
        &self,
        sql: &'static str,
        values: Params<'_>,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        match self {
            Self::File(db) => db.prepare_cached(sql)?.query_row(values, |row| read(&Row::File(row))).optional(),
            Self::Server(session) => {
                let (mut read, mut found) = (Some(read), None);
                session.stream(sql, values, &mut |row| {
                    found = read.take().map(|read| read(&Row::Server(&row)));
                    Ok(ControlFlow::Break(()))
                })?;
                found.transpose()
            }
        }
    }

    /// Passes the rows that a statement finds to `take`, which may run other statements. A server sends all of them first: the
    /// statement has a limit.
    pub(super) fn each(
        &self,
        sql: &'static str,
        values: Params<'_>,
        mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let Self::Server(session) = self else {
            return self.stream(sql, values, |row| take(row).map(ControlFlow::Continue));
        };
        let mut found = Vec::new();
        session.stream(sql, values, &mut |row| {
            found.push(row);
            Ok(ControlFlow::Continue(()))
        })?;
        found.iter().try_for_each(|row| take(&Row::Server(row)))
    }

    /// Passes the rows that a statement finds to `take`, until that breaks off. Meanwhile no other statement may run.
    pub(super) fn stream(
        &self,
        sql: &'static str,
        values: Params<'_>,
        mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<ControlFlow<()>>,
    ) -> rusqlite::Result<()> {
        match self {
            Self::File(db) => {
                let mut statement = db.prepare_cached(sql)?;
                let mut rows = statement.query(values)?;
                while let Some(row) = rows.next()? {
                    if take(&Row::File(row))?.is_break() {
                        break;
                    }
                }
                Ok(())
            }
            Self::Server(session) => session.stream(sql, values, &mut |row| take(&Row::Server(&row))),
        }
    }

    /// Returns what `read` makes of all rows that a statement finds. Meanwhile no other statement may run.
    pub(super) fn all<T>(
        &self,
        sql: &'static str,
        values: Params<'_>,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        let mut found = Vec::new();
        self.stream(sql, values, |row| {
            found.push(read(row)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// Waits until what was written is done, outside of a transaction.
    pub(super) fn settle(&self) -> rusqlite::Result<()> {
        match self {
            Self::File(_) => Ok(()),
            Self::Server(session) => session.settle(),
        }
    }

    /// Has the history's numbers go on behind those that were copied. A file does so by itself.
    pub(super) fn count_on(&self) -> rusqlite::Result<()> {
        match self {
            Self::File(_) => Ok(()),
            Self::Server(session) => session.batch(
                "SELECT setval(pg_get_serial_sequence('history', 'number'), coalesce(max(number), 0) + 1, false) FROM history",
            ),
        }
    }

    /// Forgets which rows there are of values that many share, as they may have changed.
    pub(super) fn forget_shared(&self) {
        if let Self::Server(session) = self {
            session.forget_shared();
        }
    }

    /// Removes rows that stand where others are about to be written: `UPDATE OR REPLACE` of SQLite does so by itself.
    pub(super) fn make_way(&self, sql: &'static str, values: Params<'_>) -> rusqlite::Result<()> {
        if self.is_served() { self.write(sql, values) } else { Ok(()) }
    }

    /// Returns the steps in which the keys of rows are lowered by `by`. A server, which looks at each row alone, first moves
    /// all of them far away, so that none meets one that is still to be moved.
    pub(super) fn steps(&self, by: i64) -> impl Iterator<Item = i64> + use<> {
        if self.is_served() { [by + FAR, -FAR].into_iter().take(2) } else { [by, 0].into_iter().take(1) }
    }

    /// Has each part of a transaction undone for itself if it fails ([`Self::undo_part`]). A file does so anyway.
    pub(super) fn go_carefully(&mut self, carefully: bool) {
        if let Self::Server(session) = self {
            session.is_careful = carefully;
        }
    }

    /// Begins a part of a transaction.
    pub(super) fn begin_part(&self) -> rusqlite::Result<()> {
        match self {
            Self::Server(session) if session.is_careful => session.batch("SAVEPOINT part"),
            _ => Ok(()),
        }
    }

    /// Ends a part of a transaction.
    pub(super) fn end_part(&self) -> rusqlite::Result<()> {
        match self {
            Self::Server(session) if session.is_careful => session.batch("RELEASE SAVEPOINT part"),
            _ => Ok(()),
        }
    }

    /// Undoes a part of a transaction that has failed by its own fault. False: the transaction is lost as a whole, and must be
    /// repeated carefully.
    pub(super) fn undo_part(&self) -> rusqlite::Result<bool> {
        match self {
            Self::File(_) => Ok(true),
            Self::Server(session) if session.is_careful => {
                session.forget();
                session.forget_shared();
                session.batch("ROLLBACK TO SAVEPOINT part; RELEASE SAVEPOINT part").map(|()| true)
            }
            Self::Server(_) => Ok(false),
        }
    }
}

/// Returns the error of a use that the tables don't allow.
fn misuse(why: String) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_MISUSE), Some(why))
}

/// Returns the error of tables that can't be used now, which a later attempt may have.
pub(super) fn away(why: impl Display) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CANTOPEN), Some(why.to_string()))
}
