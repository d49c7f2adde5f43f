//! Removes the rows of jobs and steps that ended so long ago that the site does not keep them (`purge_job_after`).
//!
//! Time is that of the records, so that a database that is built again from the journal lacks the same rows.

use rusqlite::params;
use squall_model::set::IndexSet;
use squall_model::time::{Span, Time};

use super::{Book, SqlResult};
use crate::accounts::encode::{Number, Packed};

/// Time between two removals.
const SWEEP: Span = Span::from_secs(3600);
/// Most jobs, and most steps, that are removed at once, so that queries don't wait.
const AT_ONCE: usize = 2000;

/// What was removed when.
#[derive(Debug, Default)]
pub(in crate::accounts) struct Sweep {
    /// When old usage over time was removed last.
    pub(in crate::accounts) series: Time,
    /// When no old job or step was left last.
    done: Time,
    /// Whether specifications and owners may be left that no job has any more.
    orphans: bool,
}

impl Book {
    /// Writes what a transaction has left, at the end of it. `now`: time of its last record; None: it has none.
    pub(super) fn finish(&mut self, now: Option<Time>) -> SqlResult {
        self.write_drafts()?;
        self.close_array()?;
        if let Some(now) = now {
            self.purge(now)?;
        }
        self.set_meta("position", Number(self.position as i64))
    }

    /// Removes some of the rows that are too old at `now`.
    fn purge(&mut self, now: Time) -> SqlResult {
        let (jobs, steps) = (self.config.accounting.keeps_jobs(), self.config.accounting.keeps_steps());
        // because most sites keep all
        if (jobs.is_none() && steps.is_none()) || self.sweep.done + SWEEP > now {
            return Ok(());
        }
        let mut removed = 0;
        if let Some(keep) = steps {
            removed = removed.max(self.purge_steps(now - keep)?);
        }
        if let Some(keep) = jobs {
            let count = self.purge_jobs(now - keep)? + self.purge_arrays(now - keep)?;
            self.sweep.orphans |= count > 0;
            removed = removed.max(count);
        }
        if removed >= AT_ONCE {
            return Ok(());
        }
        if std::mem::take(&mut self.sweep.orphans) {
            self.purge_orphans()?;
        }
        self.sweep.done = now;
        Ok(())
    }

    fn purge_steps(&self, before: Time) -> rusqlite::Result<usize> {
        let sql = "DELETE FROM steps WHERE (job, attempt, step) IN (SELECT s.job, s.attempt, s.step FROM jobs AS j
            JOIN steps AS s ON s.job = j.id AND s.attempt = j.attempt WHERE j.end < ?1 AND j.left = 0 AND s.end < ?1
            LIMIT ?2)";
        self.db.execute(sql, params![before.0 as i64, AT_ONCE as i64])
    }

    fn purge_jobs(&self, before: Time) -> rusqlite::Result<usize> {
        let sql = "SELECT id, attempt FROM jobs WHERE end < ?1 AND left = 0 LIMIT ?2";
        let old: Vec<(i64, i64)> =
            self.db.all(sql, params![before.0 as i64, AT_ONCE as i64], |r| Ok((r.get(0)?, r.get(1)?)))?;
        for (id, attempt) in &old {
            for sql in [
                "DELETE FROM steps WHERE job = ?1 AND attempt = ?2",
                "DELETE FROM billed WHERE job = ?1 AND attempt = ?2",
                "DELETE FROM series WHERE job = ?1 AND attempt = ?2",
                "DELETE FROM losses WHERE job = ?1 AND attempt = ?2",
                "DELETE FROM jobs WHERE id = ?1 AND attempt = ?2",
            ] {
                self.db.write(sql, params![id, attempt])?;
            }
        }
        Ok(old.len())
    }

    /// Removes arrays of which no task has a row or waits for one.
    fn purge_arrays(&self, before: Time) -> rusqlite::Result<usize> {
        let sql = "SELECT id, pending FROM arrays AS a WHERE id >= 0 AND submit < ?1
            AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id BETWEEN a.id AND a.last)
            AND NOT EXISTS (SELECT 1 FROM array_ends WHERE array = a.id AND time >= ?1) LIMIT ?2";
        let old: Vec<(i64, Packed<IndexSet>)> =
            self.db.all(sql, params![before.0 as i64, AT_ONCE as i64], |r| Ok((r.get(0)?, r.get(1)?)))?;
        let mut removed = 0;
        for (id, _) in old.iter().filter(|(_, pending)| pending.0.is_empty()) {
            for sql in ["DELETE FROM array_ends WHERE array = ?1", "DELETE FROM arrays WHERE id = ?1"] {
                self.db.write(sql, params![id])?;
            }
            removed += 1;
        }
        Ok(removed)
    }

    fn purge_orphans(&mut self) -> SqlResult {
        for sql in [
            "DELETE FROM specs WHERE id IN (SELECT id FROM specs EXCEPT SELECT spec FROM jobs EXCEPT SELECT spec FROM arrays)",
            "DELETE FROM owners WHERE id IN (SELECT id FROM owners EXCEPT SELECT owner FROM jobs EXCEPT SELECT owner FROM arrays)",
            "DELETE FROM hets WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE id BETWEEN leader AND leader + size - 1)",
        ] {
            self.db.write(sql, &[])?;
        }
        // What was used last may be gone.
        (self.recent.owner, self.recent.spec) = (None, None);
        self.db.forget_shared();
        Ok(())
    }
}
