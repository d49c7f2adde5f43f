//! The history of nodes, reservations and accounts: infrequent events of the journal, in its order, with names in place
//! of ids.

use std::ops::ControlFlow;

use rusqlite::params;
use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::job::{ExitCode, JobSpec};
use squall_model::time::Time;
use squall_model::wire::history::{Happening, HistoryRow};

use super::{Book, SqlResult};
use crate::accounts::encode::Packed;
use crate::accounts::query::PAGE_BYTES;

/// Changes of accounts in one row, at most: a row must fit into a frame.
const CHANGES_MAX: usize = 1024;

/// SQL that makes the history's table, with a row for each event; databases of earlier versions get it when they are
/// opened.
pub(super) const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS history
    (number INTEGER PRIMARY KEY AUTOINCREMENT, time INTEGER NOT NULL, what BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS hets (leader INTEGER PRIMARY KEY, size INTEGER NOT NULL);
";

impl Book {
    /// Stores an event of nodes, reservations or accounts.
    pub(super) fn happened(&self, time: Time, event: &Event) -> SqlResult {
        let what = match event {
            Event::NodeRegistered { name, hardware, .. } => {
                Happening::Registered { node: name.clone(), cpus: hardware.cpus, memory_mb: hardware.memory_mb }
            }
            Event::NodeDown { node, reason } => Happening::Silent { node: self.name(*node), reason: reason.clone() },
            Event::NodeUp { node } => Happening::Heard { node: self.name(*node) },
            Event::NodesSet { nodes, admin, reason, by } => {
                Happening::Set { nodes: self.names(nodes), admin: *admin, reason: reason.clone(), by: *by }
            }
            Event::NodesRemoved { nodes, by } => Happening::Removed { nodes: self.names(nodes), by: *by },
            Event::ReservationSet { reservation } => {
                Happening::Reserved { reservation: reservation.clone(), nodes: self.names(&reservation.nodes) }
            }
            Event::ReservationGone { name } => Happening::Unreserved { name: name.clone() },
            Event::PolicyChanged { changes, by } => {
                let part = |changes: &[_]| Happening::Changed { changes: changes.to_vec(), by: *by };
                return changes.chunks(CHANGES_MAX).try_for_each(|changes| self.keep(time, part(changes)));
            }
            _ => return Ok(()),
        };
        self.keep(time, what)
    }

    /// Changes the row of a job's last attempt. Values without a column go into its specification.
    pub(super) fn recorded(&mut self, job: JobId, values: &[(String, String)]) -> SqlResult {
        self.touch(job)?;
        let sql = "SELECT s.body FROM jobs j JOIN specs s ON s.id = j.spec WHERE j.id = ?1 AND j.latest";
        let spec = self.db.one(sql, params![job.0], |r| r.get::<Packed<JobSpec>>(0))?;
        let Some(Packed(mut spec)) = spec else { return Ok(()) };
        for (name, value) in values {
            match name.as_str() {
                "comment" => spec.comment = Some(value.clone()),
                "wckey" => spec.wckey = Some(value.clone()),
                "extra" => spec.options.notes.extra = Some(value.clone()),
                "admin-comment" => spec.options.notes.admin_comment = Some(value.clone()),
                "system-comment" => spec.options.notes.system_comment = Some(value.clone()),
                "derived-exit-code" => spec.options.notes.derived_exit = ExitCode::parse(value),
                _ => {}
            }
        }
        let row = self.shared(&spec)?;
        self.db.write("UPDATE jobs SET spec = ?2 WHERE id = ?1 AND latest", params![job.0, row])?;
        Ok(())
    }

    pub(super) fn het_formed(&self, leader: JobId, size: u32) -> SqlResult {
        let sql = "INSERT INTO hets (leader, size) VALUES (?1, ?2)
            ON CONFLICT (leader) DO UPDATE SET size = excluded.size";
        self.db.write(sql, params![leader.0, size])
    }

    fn keep(&self, time: Time, what: Happening) -> SqlResult {
        let sql = "INSERT INTO history (time, what) VALUES (?1, ?2)";
        self.db.write(sql, params![time.0 as i64, Packed(what)])
    }
}

/// Returns the next page of rows after row `after`, and sets `after` to the last one. An empty page is the end.
pub(in crate::accounts) fn page(book: &Book, after: &mut i64) -> rusqlite::Result<Vec<HistoryRow>> {
    let sql = "SELECT number, time, what, length(what) FROM history WHERE number > ?1 ORDER BY number LIMIT ?2";
    let (mut rows, mut bytes, mut last) = (Vec::new(), 0, *after);
    book.db.stream(sql, params![*after, ROWS_MAX], |row| {
        bytes += row.get::<u32>(3)? as usize + ROW_BYTES;
        // A single row always fits into a frame.
        if bytes > PAGE_BYTES && !rows.is_empty() {
            return Ok(ControlFlow::Break(()));
        }
        last = row.get(0)?;
        let Packed(what) = row.get(2)?;
        rows.push(HistoryRow { time: Time(row.get::<i64>(1)? as u64), what });
        Ok(ControlFlow::Continue(()))
    })?;
    *after = last;
    Ok(rows)
}

/// Most rows of a page.
const ROWS_MAX: i64 = 4096;
/// Size of a row without its texts, bytes.
const ROW_BYTES: usize = 32;
