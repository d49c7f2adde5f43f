//! A database for other programs: the rows of accounting with columns that can be read without Squall, in SQLite.
//!
//! It is a copy, in a file of its own that the members of a group may read, also while the controller runs. Squall never
//! reads its rows, so whatever happens to it, accounting is as it was. A row follows within a second or two. What another
//! program has written is found within a minute: the file is made again.
//!
//! Which jobs have changed is noted by triggers in the accounting database, in the same transaction. They are made by this
//! module alone, so a cluster without readers has none.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};
use squall_model::gres;
use squall_model::time::Time;
use squall_model::wire::info::AccountingRow;
use tracing::{error, info};

use super::book::{Book, SqlResult};
use super::query::Course;
use super::rescue;
use crate::file::free_bytes;

/// Version of the tables. A file with another one is made again.
const TABLES: i64 = 1;
/// Jobs that are copied at once, so that queries don't wait.
const JOBS_AT_ONCE: u32 = 256;
/// Bytes that the disk must have left: below, the copy is removed.
const ROOM_BYTES: u64 = 64 << 20;
/// Longest time that another program which writes may hold up accounting.
const PATIENCE: Duration = Duration::from_millis(100);
/// Interval of the check whether another program has written, and pause after a copy that failed.
const LOOK: Duration = Duration::from_secs(30);

/// A column: its name, its type, and its value.
type Column = (&'static str, &'static str, fn(&AccountingRow) -> Value);

/// Columns of the table `jobs`. Times are seconds since 1970.
#[rustfmt::skip]
const JOBS: &[Column] = &[
    ("job_id", "INTEGER NOT NULL", |r| int(r.id.0)),
    ("submit", "INTEGER NOT NULL", |r| time(r.submit)),
    ("attempt", "INTEGER NOT NULL", |r| int(r.attempt.0)),
    ("array_job_id", "INTEGER", |r| r.task.map_or(Value::Null, |task| int(task.array.0))),
    ("array_task_id", "INTEGER", |r| r.task.map_or(Value::Null, |task| int(task.index))),
    ("het_job_id", "INTEGER", |r| r.het.map_or(Value::Null, |het| int(het.leader.0))),
    ("name", "TEXT NOT NULL", |r| r.name.clone().into()),
    ("uid", "INTEGER NOT NULL", |r| int(r.owner.uid)),
    ("gid", "INTEGER NOT NULL", |r| int(r.owner.gid)),
    ("user", "TEXT NOT NULL", |r| r.owner.user.clone().into()),
    ("group_name", "TEXT NOT NULL", |r| r.owner.group.clone().into()),
    ("account", "TEXT NOT NULL", |r| r.account.clone().into()),
    ("partition", "TEXT NOT NULL", |r| r.partition.clone().into()),
    ("qos", "TEXT NOT NULL", |r| r.qos.clone().into()),
    ("wckey", "TEXT", |r| text(r.spec.wckey.as_deref())),
    ("state", "TEXT NOT NULL", |r| r.state.name().to_owned().into()),
    ("exit_code", "INTEGER NOT NULL", |r| int(r.exit.code)),
    ("exit_signal", "INTEGER NOT NULL", |r| int(r.exit.signal)),
    ("reason", "TEXT", |r| text(r.reason.as_deref())),
    ("eligible", "INTEGER", |r| if r.eligible.0 == 0 { Value::Null } else { time(r.eligible) }),
    ("start", "INTEGER", |r| r.start.map_or(Value::Null, time)),
    ("end", "INTEGER", |r| r.end.map_or(Value::Null, time)),
    ("suspended_s", "INTEGER NOT NULL", |r| big(r.suspended_s)),
    ("elapsed_s", "INTEGER", elapsed),
    ("time_limit_s", "INTEGER", |r| r.time_limit_s.map_or(Value::Null, big)),
    ("nodes", "TEXT NOT NULL", |r| r.nodes.clone().into()),
    ("num_nodes", "INTEGER NOT NULL", |r| int(r.num_nodes)),
    ("num_cpus", "INTEGER NOT NULL", |r| int(r.num_cpus)),
    ("req_cpus", "INTEGER NOT NULL", |r| int(r.req_cpus)),
    ("num_tasks", "INTEGER NOT NULL", |r| int(r.num_tasks)),
    ("memory_mb", "INTEGER NOT NULL", |r| big(r.memory_mb)),
    ("gpus", "INTEGER NOT NULL", |r| int(gpus(r))),
    ("billing", "INTEGER NOT NULL", |r| r.billing.map_or(int(r.num_cpus), |billing| big(billing.whole()))),
    ("work_dir", "TEXT NOT NULL", |r| r.spec.work_dir.clone().into()),
    ("submit_line", "TEXT NOT NULL", |r| r.submit_line.clone().into()),
    ("comment", "TEXT", |r| text(r.spec.comment.as_deref())),
];

/// Columns of the table `steps`. Usage is that of all tasks together, unless its name says otherwise.
#[rustfmt::skip]
const STEPS: &[Column] = &[
    ("job_id", "INTEGER NOT NULL", |r| int(r.id.0)),
    ("submit", "INTEGER NOT NULL", |r| time(r.submit)),
    ("attempt", "INTEGER NOT NULL", |r| int(r.attempt.0)),
    ("step", "TEXT NOT NULL", |r| r.step.map_or_else(String::new, |step| step.to_string()).into()),
    ("name", "TEXT NOT NULL", |r| r.name.clone().into()),
    ("state", "TEXT NOT NULL", |r| r.state.name().to_owned().into()),
    ("exit_code", "INTEGER NOT NULL", |r| int(r.exit.code)),
    ("exit_signal", "INTEGER NOT NULL", |r| int(r.exit.signal)),
    ("start", "INTEGER", |r| r.start.map_or(Value::Null, time)),
    ("end", "INTEGER", |r| r.end.map_or(Value::Null, time)),
    ("elapsed_s", "INTEGER", elapsed),
    ("nodes", "TEXT NOT NULL", |r| r.nodes.clone().into()),
    ("num_nodes", "INTEGER NOT NULL", |r| int(r.num_nodes)),
    ("num_cpus", "INTEGER NOT NULL", |r| int(r.num_cpus)),
    ("num_tasks", "INTEGER NOT NULL", |r| int(r.num_tasks)),
    ("user_cpu_s", "REAL NOT NULL", |r| Value::Real(r.usage.user.0 as f64 / 1e6)),
    ("system_cpu_s", "REAL NOT NULL", |r| Value::Real(r.usage.system.0 as f64 / 1e6)),
    ("max_rss_bytes", "INTEGER NOT NULL", |r| big(r.usage.max_rss_kb.saturating_mul(1024))),
    ("read_bytes", "INTEGER NOT NULL", |r| big(r.usage.read_bytes)),
    ("write_bytes", "INTEGER NOT NULL", |r| big(r.usage.write_bytes)),
];

/// What else the file has: indexes, and views with the names and units of Slurm's own database.
const REST: &str = "
CREATE TABLE about (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE INDEX jobs_by_end ON jobs (end);
CREATE INDEX jobs_by_user ON jobs (user, submit);
CREATE INDEX jobs_by_account ON jobs (account, submit);
CREATE VIEW job_table AS SELECT job_id AS id_job, coalesce(array_job_id, 0) AS id_array_job,
    coalesce(array_task_id, 4294967294) AS id_array_task, coalesce(het_job_id, 0) AS het_job_id, uid AS id_user,
    gid AS id_group, account, partition, qos, wckey, name AS job_name,
    CASE state WHEN 'PENDING' THEN 0 WHEN 'SUSPENDED' THEN 2 WHEN 'COMPLETED' THEN 3 WHEN 'CANCELLED' THEN 4
        WHEN 'FAILED' THEN 5 WHEN 'TIMEOUT' THEN 6 WHEN 'NODE_FAIL' THEN 7 WHEN 'PREEMPTED' THEN 8
        WHEN 'BOOT_FAIL' THEN 9 WHEN 'DEADLINE' THEN 10 WHEN 'OUT_OF_MEMORY' THEN 11 WHEN 'REQUEUED' THEN 1028
        ELSE 1 END AS state,
    exit_code * 256 + exit_signal AS exit_code, submit AS time_submit, coalesce(eligible, 0) AS time_eligible,
    coalesce(start, 0) AS time_start, coalesce(end, 0) AS time_end, suspended_s AS time_suspended,
    time_limit_s / 60 AS timelimit, nodes AS nodelist, num_nodes AS nodes_alloc, req_cpus AS cpus_req,
    work_dir, submit_line FROM jobs;
CREATE VIEW step_table AS SELECT job_id AS id_job, step AS id_step, name AS step_name,
    exit_code * 256 + exit_signal AS exit_code, coalesce(start, 0) AS time_start, coalesce(end, 0) AS time_end,
    nodes AS nodelist, num_nodes AS nodes_alloc, num_tasks AS task_cnt,
    CAST(user_cpu_s AS INTEGER) AS user_sec, CAST(system_cpu_s AS INTEGER) AS sys_sec FROM steps;
";

/// Tables of the accounting database of which a changed row makes the rows of a job or array out of date, with the column
/// of its id.
const NOTED: [(&str, &str); 4] = [("jobs", "id"), ("steps", "job"), ("array_ends", "array"), ("billed", "job")];

/// Returns the SQL that makes the table of changed jobs in the accounting database, and the triggers that fill it. These
/// are of one connection, so that another version of Squall finds none.
fn noting() -> String {
    let trigger = |(table, id): (&str, &str), change: &str| {
        let row = if change == "DELETE" { "old" } else { "new" };
        format!(
            "CREATE TEMP TRIGGER IF NOT EXISTS {table}_{change} AFTER {change} ON main.{table}
             BEGIN INSERT OR IGNORE INTO changed VALUES ({row}.{id}); END;"
        )
    };
    let triggers: Vec<String> =
        NOTED.into_iter().flat_map(|row| ["INSERT", "UPDATE", "DELETE"].map(|change| trigger(row, change))).collect();
    format!("CREATE TABLE IF NOT EXISTS main.changed (id INTEGER PRIMARY KEY);{}", triggers.concat())
}

/// Key in the accounting database of the copy that has all rows but those of changed jobs.
const COMPLETE: &str = "readers";

/// The file that other programs read.
pub(super) struct Readers {
    path: PathBuf,
    /// Members of this group may read.
    gid: u32,
    open: Option<Open>,
    /// When it could not be written last. None: it could.
    trouble: Option<Instant>,
}

/// The open file.
struct Open {
    db: Connection,
    /// Number that the file got when it was made.
    name: i64,
    /// The id of the last job that was copied while all are. None: all are.
    filled: Option<i64>,
    /// SQLite's number of changes by other connections, and when it was asked for.
    seen: (i64, Instant),
}

impl Readers {
    /// Makes the keeper of a file. `gid`: id of the group that may read it.
    pub(super) fn new(path: PathBuf, gid: u32) -> Self {
        Self { path, gid, open: None, trouble: None }
    }

    /// Has an accounting database that was just opened note which jobs change. Without readers it does not, and a file that
    /// was made before is known to lack rows.
    pub(super) fn prepare(book: &Book, are_there: bool) -> SqlResult {
        if are_there {
            book.db.file()?.execute_batch(&noting())
        } else {
            book.db.file()?.execute("DELETE FROM meta WHERE key = ?1", [COMPLETE]).map(drop)
        }
    }

    /// Copies some of the rows that the file lacks. Returns whether it lacks more.
    pub(super) fn follow(&mut self, book: &Book) -> bool {
        if self.trouble.is_some_and(|since| since.elapsed() < LOOK) {
            return false;
        }
        match self.try_follow(book) {
            Ok(more) => {
                if self.trouble.take().is_some() {
                    info!("{} goes on", self.path.display());
                }
                more
            }
            Err(e) => {
                if self.trouble.is_none() {
                    error!(error = %e, "{} can't be written, and is made again", self.path.display());
                }
                self.trouble = Some(Instant::now());
                self.open = None;
                false
            }
        }
    }

    /// Has the next call check whether another program has written.
    #[cfg(test)]
    pub(super) fn look_soon(&mut self) {
        if let Some(open) = &mut self.open {
            open.seen.1 -= LOOK;
        }
    }

    fn try_follow(&mut self, book: &Book) -> rusqlite::Result<bool> {
        if self.trouble.is_some() {
            rescue::remove(&self.path);
        }
        // The journal is on the same disk, and needs room more.
        if free_bytes(self.path.ancestors().nth(2).unwrap_or(&self.path)) < ROOM_BYTES {
            return Err(super::unreadable(io::ErrorKind::StorageFull.into()));
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(Open::at(&self.path, self.gid, book)?),
        };
        if open.is_foreign()? {
            error!("another program has written to {}: it is made again", self.path.display());
            self.open = None;
            rescue::remove(&self.path);
            return Ok(true);
        }
        let changed: Vec<i64> = {
            let mut changed = book.db.file()?.prepare_cached("SELECT id FROM changed ORDER BY id LIMIT ?1")?;
            changed.query_map([JOBS_AT_ONCE], |r| r.get(0))?.collect::<Result<_, _>>()?
        };
        if changed.is_empty() {
            return open.fill(book);
        }
        open.copy(book, changed.iter().map(|id| (*id, *id)).collect())?;
        let mut copied = book.db.file()?.prepare_cached("DELETE FROM changed WHERE id = ?1")?;
        changed.iter().try_for_each(|id| copied.execute([id]).map(drop))?;
        Ok(changed.len() >= JOBS_AT_ONCE as usize || open.filled.is_some())
    }
}

impl Open {
    /// Opens the file, or makes it again if it is of another version or lacks rows.
    fn at(path: &Path, gid: u32, book: &Book) -> rusqlite::Result<Self> {
        let complete: Option<i64> =
            book.db.file()?.query_row("SELECT value FROM meta WHERE key = ?1", [COMPLETE], |r| r.get(0)).optional()?;
        make_place(path, gid).map_err(super::unreadable)?;
        let mut found = Self::opened(path).ok().filter(|found| complete == Some(found.name));
        if found.is_none() {
            rescue::remove(path);
            make_place(path, gid).map_err(super::unreadable)?;
            Self::made(path)?;
            found = Some(Self { filled: Some(i64::MIN), ..Self::opened(path)? });
            info!("{} is made from accounting", path.display());
        }
        found.ok_or(rusqlite::Error::InvalidQuery)
    }

    fn opened(path: &Path) -> rusqlite::Result<Self> {
        let db = Connection::open(path)?;
        db.busy_timeout(PATIENCE)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "NORMAL")?;
        if db.pragma_query_value::<i64, _>(None, "user_version", |r| r.get(0))? != TABLES {
            return Err(rusqlite::Error::InvalidQuery);
        }
        let name = db.query_row("SELECT value FROM about WHERE key = 'name'", [], |r| r.get(0))?;
        let seen = (changes(&db)?, Instant::now());
        Ok(Self { db, name, filled: None, seen })
    }

    fn made(path: &Path) -> SqlResult {
        let db = Connection::open(path)?;
        let list = |columns: &[Column]| {
            columns.iter().map(|(name, kind, _)| format!("\"{name}\" {kind}")).collect::<Vec<_>>().join(", ")
        };
        db.execute_batch("BEGIN")?;
        let (jobs, steps) = (list(JOBS), list(STEPS));
        db.execute_batch(&format!(
            "CREATE TABLE jobs ({jobs}, PRIMARY KEY (job_id, submit, attempt)) WITHOUT ROWID;
             CREATE TABLE steps ({steps}, PRIMARY KEY (job_id, submit, attempt, step)) WITHOUT ROWID;"
        ))?;
        db.execute_batch(REST)?;
        db.execute("INSERT INTO about VALUES ('name', random())", [])?;
        db.pragma_update(None, "user_version", TABLES)?;
        db.execute_batch("COMMIT")
    }

    /// Returns whether another program has written to the file.
    fn is_foreign(&mut self) -> rusqlite::Result<bool> {
        if self.seen.1.elapsed() < LOOK {
            return Ok(false);
        }
        let now = changes(&self.db)?;
        let before = std::mem::replace(&mut self.seen, (now, Instant::now())).0;
        Ok(now != before)
    }

    /// Copies the next jobs while not all were copied. Returns whether there are more.
    fn fill(&mut self, book: &Book) -> rusqlite::Result<bool> {
        let Some(after) = self.filled else { return Ok(false) };
        let sql = "SELECT id FROM jobs WHERE id > ?1 ORDER BY id LIMIT 1 OFFSET ?2";
        let last: Option<i64> = book
            .db
            .file()?
            .prepare_cached(sql)?
            .query_row([after, i64::from(JOBS_AT_ONCE)], |r| r.get(0))
            .optional()?;
        self.copy(book, VecDeque::from([(after.saturating_add(1), last.unwrap_or(i64::MAX))]))?;
        self.filled = last;
        if last.is_none() {
            let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)";
            book.db.file()?.execute(sql, params![COMPLETE, self.name])?;
        }
        Ok(last.is_some())
    }

    /// Copies all rows of jobs and arrays with ids in these ranges.
    fn copy(&mut self, book: &Book, ids: VecDeque<(i64, i64)>) -> SqlResult {
        let mut course = Course::over(book, ids);
        let (change, mut done) = (self.db.transaction()?, BTreeSet::new());
        let (mut result, mut submit) = (Ok(()), Time::default());
        let mut put = |mut row: AccountingRow| {
            // A step is known by its job, which comes before it.
            match row.step {
                Some(_) => row.submit = submit,
                None => submit = row.submit,
            }
            if done.insert((row.id, submit.secs())) {
                for table in ["jobs", "steps"] {
                    let sql = format!("DELETE FROM {table} WHERE job_id = ?1 AND submit = ?2");
                    change.prepare_cached(&sql)?.execute(params![int(row.id.0), time(submit)])?;
                }
            }
            insert(&change, &row)
        };
        while !course.go_on(book, &mut |rows, _, _| {
            let mut rows = rows.into_iter().filter(|row| row.pending_tasks.is_none());
            if result.is_ok() {
                result = rows.try_for_each(&mut put);
            }
        })? {}
        result?;
        change.commit()
    }
}

fn insert(db: &Connection, row: &AccountingRow) -> SqlResult {
    let (table, columns) = if row.step.is_some() { ("steps", STEPS) } else { ("jobs", JOBS) };
    let marks = vec!["?"; columns.len()].join(", ");
    let mut insert = db.prepare_cached(&format!("INSERT OR REPLACE INTO {table} VALUES ({marks})"))?;
    insert.execute(params_from_iter(columns.iter().map(|(_, _, value)| value(row)))).map(drop)
}

fn changes(db: &Connection) -> rusqlite::Result<i64> {
    db.pragma_query_value(None, "data_version", |r| r.get(0))
}

/// Makes the folder and the file, for the group to read.
fn make_place(path: &Path, gid: u32) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    match DirBuilder::new().mode(0o750).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o640)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)?;
    file.set_permissions(Permissions::from_mode(0o640))?;
    std::fs::set_permissions(folder, Permissions::from_mode(0o750))?;
    for place in [folder, path] {
        if std::fs::metadata(place)?.gid() != gid {
            let why = |e: io::Error| io::Error::new(e.kind(), format!("group {gid} for {}: {e}", place.display()));
            chown(place, None, Some(gid)).map_err(why)?;
        }
    }
    Ok(())
}

fn int(number: impl Into<i64>) -> Value {
    Value::Integer(number.into())
}

fn big(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn time(at: Time) -> Value {
    big(at.secs())
}

fn text(text: Option<&str>) -> Value {
    text.map_or(Value::Null, |text| text.to_owned().into())
}

/// Seconds for which a job or step has run, less what it was suspended. Null: it has not ended.
fn elapsed(row: &AccountingRow) -> Value {
    let (Some(start), Some(end)) = (row.start, row.end) else { return Value::Null };
    big((end.since(start).0 / 1_000_000).saturating_sub(row.suspended_s))
}

/// Number of GPUs that a job asked for, as a job gets all of them.
fn gpus(row: &AccountingRow) -> u32 {
    let asked = gres::Ask::of(row.spec.need.gres.as_deref(), &row.spec.options.gpus);
    asked.map_or(0, |asked| asked.gpus(row.num_nodes.max(1), row.num_tasks))
}
