//! Nodes that jobs have lost, and what followed: the facts from which their costs are computed.

use std::collections::BTreeSet;

use rusqlite::params;
use squall_model::cost::{Loss, Losses};
use squall_model::event::Event;
use squall_model::id::{JobId, StepNo};
use squall_model::limits::LOSSES_MAX;
use squall_model::time::{Span, Time};

use super::{Book, SqlResult};

/// SQL that makes the table; databases of earlier versions get it when they are opened.
pub(super) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS losses (
    job INTEGER NOT NULL, attempt INTEGER NOT NULL, node INTEGER NOT NULL, lost INTEGER NOT NULL, kept INTEGER NOT NULL,
    heard INTEGER NOT NULL, replaced INTEGER, again INTEGER, PRIMARY KEY (job, attempt, lost, node)
) WITHOUT ROWID;
";

impl Book {
    /// Returns the jobs whose work stopped as they lost a node, and has neither started again nor ended.
    pub(super) fn losing(&self) -> rusqlite::Result<BTreeSet<JobId>> {
        let jobs = self.db.all("SELECT DISTINCT job FROM losses WHERE again IS NULL", &[], |r| r.get(0).map(JobId))?;
        Ok(jobs.into_iter().collect())
    }

    /// Stores what an event tells of lost nodes.
    pub(super) fn note_losses(&mut self, time: Time, event: &Event) -> SqlResult {
        let at = time.0 as i64;
        match event {
            Event::NodeLost { id, attempt, node, heard, kept } => {
                self.losing.insert(*id);
                let sql = "INSERT INTO losses (job, attempt, node, lost, heard, kept) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                    ON CONFLICT DO NOTHING";
                let values = params![id.0, attempt.0, node.0, at, heard.0 as i64, kept.0 as i64];
                self.db.write(sql, values)
            }
            Event::NodeReplaced { id, lost, .. } if self.losing.contains(id) => {
                let sql = "UPDATE losses SET replaced = ?3 WHERE job = ?1 AND node = ?2 AND again IS NULL";
                self.db.write(sql, params![id.0, lost.0, at])
            }
            Event::StepStarted { job, step, .. } if *step != StepNo::BATCH => self.goes_on(*job, at),
            Event::JobEnding { id, .. } => self.goes_on(*id, at),
            _ => Ok(()),
        }
    }

    /// Notes that the work of a job has started again, or has ended.
    fn goes_on(&mut self, job: JobId, at: i64) -> SqlResult {
        if !self.losing.remove(&job) {
            return Ok(());
        }
        let sql = "UPDATE losses SET again = ?2 WHERE job = ?1 AND again IS NULL";
        self.db.write(sql, params![job.0, at])
    }

    /// Returns the nodes that a job has lost until the end of a run, by the number of its attempt. None: it has lost none.
    pub(in crate::accounts) fn losses(&self, job: JobId, attempt: i64) -> rusqlite::Result<Option<Box<Losses>>> {
        let time = |value: i64| Time(value as u64);
        let sql = "SELECT kept, heard, lost, replaced, again FROM losses WHERE job = ?1 AND attempt <= ?2
            ORDER BY attempt, lost LIMIT ?3";
        let losses = self.db.all(sql, params![job.0, attempt, LOSSES_MAX as i64], |r| {
            let (replaced, again) = (r.get::<Option<i64>>(3)?, r.get::<Option<i64>>(4)?);
            let (kept, heard, lost) = (time(r.get(0)?), time(r.get(1)?), time(r.get(2)?));
            Ok(Loss { kept, heard, lost, replaced: replaced.map(time), again: again.map(time) })
        })?;
        if losses.is_empty() {
            return Ok(None);
        }
        let sql = "SELECT CAST(coalesce(sum(max(end - start - suspended, 0)), 0) AS BIGINT) FROM jobs
            WHERE id = ?1 AND attempt < ?2";
        let earlier = self.db.one(sql, params![job.0, attempt], |r| r.get::<i64>(0))?;
        Ok(Some(Box::new(Losses { earlier: Span(earlier.unwrap_or_default() as u64), losses })))
    }
}
