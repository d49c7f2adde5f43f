//! Renumbers the rows of earlier jobs when their ids are used again.

use rusqlite::params;
use squall_model::id::JobId;

use super::{Array, Book, RECENT_JOBS, SqlResult};

/// Difference by which attempt numbers of jobs, and ids of arrays, are lowered each time that the job's id is used
/// again.
pub(in crate::accounts) const GENERATION: i64 = 1 << 32;

impl Book {
    /// Handles the submission of jobs with ids from `first` to `last`. Rows of earlier jobs with these ids are
    /// renumbered, and shown by `sacct --duplicates` only.
    pub(super) fn retire(&mut self, first: JobId, last: JobId) -> SqlResult {
        let before = self.highest;
        self.highest = before.max(Some(last));
        if before.is_none_or(|before| before < first) {
            return Ok(());
        }
        let overlaps = |array: &Array| array.id <= last && array.last >= first;
        if self.recent.drafts.range(first..=last).next().is_some() {
            self.write_drafts()?;
        }
        if self.recent.array.as_ref().is_some_and(overlaps) {
            self.close_array()?;
        }
        if last.0 - first.0 < RECENT_JOBS as u32 {
            (first.0..=last.0).for_each(|id| drop(self.recent.jobs.remove(&JobId(id))));
        } else {
            self.recent.jobs.clear();
        }
        for by in self.db.steps(GENERATION) {
            for sql in [
                "UPDATE jobs SET attempt = attempt - ?3, latest = FALSE WHERE id BETWEEN ?1 AND ?2",
                "UPDATE steps SET attempt = attempt - ?3 WHERE job BETWEEN ?1 AND ?2",
                "UPDATE OR REPLACE billed SET attempt = attempt - ?3 WHERE job BETWEEN ?1 AND ?2",
            ] {
                self.db.write(sql, params![first.0, last.0, by])?;
            }
        }
        let ids = params![first.0, last.0, GENERATION];
        // Arrays do not overlap, so only the last one that begins before these ids can extend into them.
        self.db.make_way(
            "DELETE FROM array_ends WHERE (array, number) IN (SELECT e.array - ?3, e.number FROM array_ends e
                JOIN arrays a ON a.id = e.array WHERE a.id <= ?2 AND a.last >= ?1
                AND a.id >= (SELECT coalesce(max(id), 0) FROM arrays WHERE id BETWEEN 0 AND ?1))",
            ids,
        )?;
        self.db.write(
            "UPDATE OR REPLACE array_ends SET array = array - ?3 WHERE array IN (SELECT id FROM arrays WHERE id <= ?2
                AND last >= ?1 AND id >= (SELECT coalesce(max(id), 0) FROM arrays WHERE id BETWEEN 0 AND ?1))",
            ids,
        )?;
        self.db.make_way(
            "DELETE FROM arrays WHERE id IN (SELECT id - ?3 FROM arrays WHERE id <= ?2 AND last >= ?1
                AND id >= (SELECT coalesce(max(id), 0) FROM arrays WHERE id BETWEEN 0 AND ?1))",
            ids,
        )?;
        for sql in [
            "UPDATE OR REPLACE arrays SET id = id - ?3, last = last - ?3 WHERE id <= ?2 AND last >= ?1
                AND id >= (SELECT coalesce(max(id), 0) FROM arrays WHERE id BETWEEN 0 AND ?1)",
            "DELETE FROM losses WHERE job BETWEEN ?1 AND ?2 AND ?3",
            "DELETE FROM series WHERE job BETWEEN ?1 AND ?2 AND ?3",
            "DELETE FROM hets WHERE leader <= ?2 AND leader + size > ?1 AND ?3",
        ] {
            self.db.write(sql, ids)?;
        }
        Ok(())
    }
}
