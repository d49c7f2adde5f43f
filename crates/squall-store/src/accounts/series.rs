//! What steps used over time. It is kept for 30 days: it is for people who look at a job, not for bills.

use rusqlite::params;
use squall_model::id::{Attempt, JobId, StepNo};
use squall_model::limits::SERIES_DAYS;
use squall_model::series::Series;
use squall_model::time::{Span, Time};

use super::encode::Packed;
use super::tables::Tables;

/// SQL that makes the table; databases of earlier versions get it when they are opened.
pub(super) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS series (
    job INTEGER NOT NULL, attempt INTEGER NOT NULL, step INTEGER NOT NULL, end INTEGER NOT NULL, points BLOB NOT NULL,
    PRIMARY KEY (job, attempt, step)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS series_by_end ON series (end);
";

/// Time between two removals of old series.
const SWEEP: Span = Span::from_secs(3600);

/// Adds what the tasks of a step used on some of its nodes. `swept`: when old series were removed last.
pub(super) fn note(
    db: &Tables,
    (now, swept): (Time, &mut Time),
    (job, attempt, step): (JobId, Attempt, StepNo),
    series: Option<&Series>,
) -> rusqlite::Result<()> {
    // because most steps are short
    let Some(series) = series else { return Ok(()) };
    if *swept + SWEEP <= now {
        let oldest = now - Span::from_secs(SERIES_DAYS * 86_400);
        db.write("DELETE FROM series WHERE end < ?1", params![oldest.0 as i64])?;
        *swept = now;
    }
    let mut sum = read(db, job, i64::from(attempt.0), step)?;
    Series::merge_into(&mut sum, Some(series));
    let Some(sum) = sum else { return Ok(()) };
    let sql = "INSERT INTO series (job, attempt, step, end, points) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (job, attempt, step) DO UPDATE SET end = excluded.end, points = excluded.points";
    let values = params![job.0, attempt.0, step.0, now.0 as i64, Packed(*sum)];
    db.write(sql, values)
}

/// Returns what a step of a run used over time, by the number of the attempt. None: it is not known.
pub(super) fn read(db: &Tables, job: JobId, attempt: i64, step: StepNo) -> rusqlite::Result<Option<Box<Series>>> {
    let sql = "SELECT points FROM series WHERE job = ?1 AND attempt = ?2 AND step = ?3";
    let found = db.one(sql, params![job.0, attempt, step.0], |r| r.get::<Packed<Series>>(0))?;
    Ok(found.map(|Packed(series)| Box::new(series)))
}
