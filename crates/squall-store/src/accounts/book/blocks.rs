//! Between which times jobs with neighbouring ids existed, so that a query for a day reads little more than its jobs.

use rusqlite::Connection;

use super::SqlResult;

/// Ids of jobs are in blocks of 2 to the power of this.
pub(in crate::accounts) const BLOCK_BITS: u32 = 8;

/// SQL that makes the table, with a row for each block that has ended jobs: first submission and last end of these. It
/// is kept by triggers, which are in the database: a row that any version of Squall writes counts.
const SCHEMA: &str = "
CREATE TABLE blocks (block INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL);
INSERT INTO blocks SELECT id >> 8, min(submit), max(end) FROM jobs WHERE end IS NOT NULL GROUP BY id >> 8;
CREATE TRIGGER block_of_new AFTER INSERT ON jobs WHEN new.end IS NOT NULL BEGIN
    INSERT OR IGNORE INTO blocks VALUES (new.id >> 8, new.submit, new.end);
    UPDATE blocks SET first = min(first, new.submit), last = max(last, new.end)
        WHERE block = new.id >> 8 AND (first > new.submit OR last < new.end);
END;
CREATE TRIGGER block_of_ended AFTER UPDATE OF end ON jobs WHEN new.end IS NOT NULL BEGIN
    INSERT OR IGNORE INTO blocks VALUES (new.id >> 8, new.submit, new.end);
    UPDATE blocks SET first = min(first, new.submit), last = max(last, new.end)
        WHERE block = new.id >> 8 AND (first > new.submit OR last < new.end);
END;
";

/// Makes the table in a new database, and in one of an earlier version from its rows.
pub(in crate::accounts) fn prepare(db: &Connection) -> SqlResult {
    if db.table_exists(None, "blocks")? {
        return Ok(());
    }
    db.execute_batch(&format!("BEGIN;{SCHEMA}COMMIT;"))
}
