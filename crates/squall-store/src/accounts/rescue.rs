//! Replaces a damaged accounting database. The new one has all rows that can be read, and those that can be rebuilt
//! from the journal. All other rows are lost; the ranges of their jobs are recorded.

use minicbor::{Decode, Encode};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params, params_from_iter};
use squall_model::event::{Event, Record};
use squall_model::id::JobId;
use squall_model::limits::LOST_RANGES_MAX;
use squall_model::time::Time;

use super::book::GENERATION;
use super::book::{Book, SqlResult};
use super::encode::Packed;
use crate::accounts::pages;
use crate::file;

/// A range of jobs with rows that may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct Lost {
    #[n(0)]
    pub(super) first: JobId,
    #[n(1)]
    pub(super) last: JobId,
    /// The jobs were submitted between `since` and `until`.
    #[n(2)]
    pub(super) since: Time,
    #[n(3)]
    pub(super) until: Time,
}

/// Result of rebuilding a damaged database.
#[derive(Debug, Default)]
pub(super) struct RescueResult {
    /// Number of rows copied from the old database.
    pub(super) rows: u64,
    /// Number of rows rebuilt from the journal.
    pub(super) from_journal: u64,
    /// Jobs with rows that may be missing.
    pub(super) lost: Vec<Lost>,
}

/// A table of the database, and the column by which its rows are read in order.
struct Table {
    name: &'static str,
    key: &'static str,
    /// Indices of the columns with the row ids of an owner and a specification; None: the table has no such columns.
    shared: Option<(usize, usize)>,
    /// Whether the column `key` has job ids.
    of_jobs: bool,
}

const fn table(name: &'static str, key: &'static str, of_jobs: bool) -> Table {
    Table { name, key, shared: None, of_jobs }
}

const TABLES: [Table; 9] = [
    table("nodes", "id", false),
    table("hets", "leader", true),
    Table { name: "arrays", key: "id", shared: Some((3, 4)), of_jobs: true },
    table("array_ends", "array", true),
    Table { name: "jobs", key: "id", shared: Some((6, 7)), of_jobs: true },
    table("steps", "job", true),
    table("losses", "job", true),
    table("series", "job", true),
    table("billed", "job", true),
];

/// Builds a new database next to the one at `path`, from the rows of that one and from the journal's records up to
/// `last`. `journal` is None if the old database is intact.
pub(super) fn rebuild(
    path: &Path,
    cluster: u128,
    journal: Option<(&Path, u64)>,
) -> rusqlite::Result<(PathBuf, RescueResult)> {
    let (new, draft) = (path.with_extension("db.new"), path.with_extension("db.draft"));
    remove(&new);
    let mut book = Book::open(&new)?;
    book.begin(cluster)?;
    let mut rescue = Rescue::default();
    let old = open_old(path, &book).filter(|old| old.cluster.is_none_or(|other| other == cluster));
    match (old, journal) {
        (Some(old), None) => {
            rescue.all(&old.db, &book)?;
            rescue.follow(&mut book, &old)?;
        }
        (Some(old), Some((journal, _))) if old.position.is_some() => {
            rescue.all(&old.db, &book)?;
            rescue.follow(&mut book, &old)?;
            rescue.read_journal(&draft, journal, &mut book)?;
        }
        (old, Some((journal, last))) => {
            // The position of the old database is unknown: rows from the journal take precedence.
            book.skip_to(last)?;
            rescue.read_journal(&draft, journal, &mut book)?;
            if let Some(old) = old {
                rescue.ended_only = true;
                rescue.all(&old.db, &book)?;
            } else {
                rescue.lost.push((0, i64::from(u32::MAX)));
            }
            rescue.forget_told();
        }
        (None, None) => {}
    }
    let lost = rescue.lost(&book)?;
    book.set_lost(&lost)?;
    book.checkpoint()?;
    Ok((new, RescueResult { rows: rescue.rows, from_journal: rescue.told, lost }))
}

/// Removes a database with its log.
pub(super) fn remove(path: &Path) {
    for suffix in ["-wal", "-shm", ""] {
        // A missing file is no error.
        drop(std::fs::remove_file(with_suffix(path, suffix)));
    }
}

/// Returns the path of a database file with a suffix: that of its log, for example.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The old database, as far as it can be read.
struct Old {
    db: Connection,
    cluster: Option<u128>,
    position: Option<u64>,
}

/// Opens the old database. Returns None if not even its tables can be found.
fn open_old(path: &Path, fresh: &Book) -> Option<Old> {
    let open = || {
        let db = pages::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        db.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get::<_, i64>(0)).map(|_| db)
    };
    let db = open().or_else(|error| match lend_first_page(path, fresh) {
        Ok(()) => open(),
        Err(_) => Err(error),
    });
    let db = db.ok()?;
    let meta = "SELECT value FROM meta WHERE key = ?1";
    let cluster = db.query_row(meta, ["cluster"], |r| r.get::<_, Packed<u128>>(0)).ok().map(|c| c.0);
    let position = db.query_row(meta, ["position"], |r| r.get::<_, i64>(0)).ok().map(|p| p as u64);
    Some(Old { db, cluster, position })
}

/// Overwrites the first page of the damaged database with that of a new one. The page holds the locations of the
/// tables, which are the same in every database.
fn lend_first_page(path: &Path, fresh: &Book) -> std::io::Result<()> {
    use std::io::Read;
    use std::os::unix::fs::FileExt;
    if pages::has_sums(std::fs::File::open(path)?) == Some(false) && std::fs::read(path)?.starts_with(b"SQLite") {
        // A database without checksums is older: its tables may be at other locations.
        return Err(std::io::ErrorKind::Unsupported.into());
    }
    fresh.checkpoint().map_err(std::io::Error::other)?;
    let mut page = [0; pages::PAGE_BYTES];
    fresh.raw().map_err(std::io::Error::other)?.read_exact(&mut page)?;
    let file = std::fs::OpenOptions::new().write(true).open(path)?;
    let size = (file.metadata()?.len() / pages::PAGE_BYTES as u64) as u32;
    // The header gets the file's size in pages, and an empty list of free pages.
    page[28..32].copy_from_slice(&size.to_be_bytes());
    page[32..40].fill(0);
    pages::seal(1, &mut page);
    file.write_all_at(&page, 0)
}

/// Returns the stored configuration; None: it can't be read.
fn config(db: &Connection) -> Option<Value> {
    db.query_row("SELECT value FROM meta WHERE key = 'config'", [], |r| r.get(0)).ok()
}

#[derive(Default)]
struct Rescue {
    rows: u64,
    told: u64,
    /// Whether only the rows of ended jobs are copied.
    ended_only: bool,
    /// First job for which the journal is complete.
    told_from: JobId,
    /// Ranges of jobs with rows that cannot be read.
    lost: Vec<(i64, i64)>,
    /// Row ids of owners in the new database, by their row ids in the old one.
    owners: HashMap<i64, i64>,
    /// Row ids of specifications in the new database, by their row ids in the old one.
    specs: HashMap<i64, i64>,
}

impl Rescue {
    /// Copies all rows that can be read and that the new database lacks.
    fn all(&mut self, from: &Connection, to: &Book) -> SqlResult {
        to.db.run("BEGIN")?;
        self.owners = shared(from, to.db.file()?, "owners")?;
        self.specs = shared(from, to.db.file()?, "specs")?;
        for table in &TABLES {
            self.table(from, to.db.file()?, table)?;
        }
        to.db.run("COMMIT")
    }

    /// Takes over the old database's configuration, lost ranges and position in the journal.
    fn follow(&mut self, book: &mut Book, old: &Old) -> SqlResult {
        if let Some(config) = config(&old.db) {
            book.db.file()?.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('config', ?1)", [config])?;
        }
        let known =
            old.db.query_row("SELECT value FROM meta WHERE key = 'lost'", [], |r| r.get::<_, Packed<Vec<Lost>>>(0));
        let known = known.map(|known| known.0).unwrap_or_default();
        self.lost.extend(known.iter().map(|lost| (i64::from(lost.first.0), i64::from(lost.last.0))));
        book.skip_to(old.position.unwrap_or_default())?;
        book.load()
    }

    /// Adds rows rebuilt from the journal, up to the new database's position.
    fn read_journal(&mut self, draft: &Path, journal: &Path, book: &mut Book) -> SqlResult {
        remove(draft);
        let mut told = Book::open(draft)?;
        told.assume(book);
        let before = self.rows;
        self.told_from = replay(&mut told, journal, book.position())?;
        let lost = std::mem::take(&mut self.lost);
        self.all(told.db.file()?, book)?;
        self.told = self.rows - before;
        self.rows = before;
        if let Some(config) = config(told.db.file()?) {
            book.db.file()?.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('config', ?1)", [config])?;
        }
        self.lost = lost;
        drop(told);
        remove(draft);
        book.load()?;
        self.forget_told();
        Ok(())
    }

    /// Removes the jobs that were rebuilt from the journal from the lost ranges.
    fn forget_told(&mut self) {
        let told_from = i64::from(self.told_from.0);
        self.lost.retain_mut(|(first, last)| {
            *last = (*last).min(told_from - 1);
            first <= last
        });
    }

    fn table(&mut self, from: &Connection, to: &Connection, table: &Table) -> SqlResult {
        let mut start = i64::MIN;
        loop {
            let Err(last) = self.rows_from(from, to, table, start)? else { return Ok(()) };
            let after = last.map_or(start, |last| last.saturating_add(1));
            let next = behind(from, table, after);
            if table.of_jobs {
                let id = |key: i64| if key < 0 { key.rem_euclid(GENERATION) } else { key };
                let highest = i64::from(u32::MAX);
                self.lost.push((last.map_or(0, id), next.map_or(highest, id)));
            }
            let Some(next) = next else { return Ok(()) };
            start = next;
        }
    }

    /// Copies rows from a key on. Returns Err with the last readable key if the rest cannot be read.
    fn rows_from(
        &mut self,
        from: &Connection,
        to: &Connection,
        table: &Table,
        start: i64,
    ) -> rusqlite::Result<Result<(), Option<i64>>> {
        let Table { name, key, .. } = table;
        let select = format!("SELECT {key}, * FROM {name} WHERE {key} >= ?1 ORDER BY {key}");
        let Ok(mut select) = from.prepare(&select) else { return Ok(Ok(())) };
        let columns = select.column_count();
        let places = (1..columns).map(|at| format!("?{at}")).collect::<Vec<_>>().join(", ");
        let mut insert = to.prepare_cached(&format!("INSERT OR IGNORE INTO {name} VALUES ({places})"))?;
        let Ok(mut rows) = select.query([start]) else { return Ok(Err(None)) };
        let mut last = None;
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => return Ok(Ok(())),
                Err(_) => return Ok(Err(last)),
            };
            let ValueRef::Integer(at) = row.get_ref(0)? else { continue };
            last = Some(at);
            let values = (1..columns).map(|at| row.get::<_, Value>(at)).collect::<Result<Vec<_>, _>>();
            let done = match values.ok().and_then(|values| self.placed(table, values)) {
                // A row that violates the table's constraints is damaged: it counts as lost.
                Some(values) => insert.execute(params_from_iter(values)).map_or_else(
                    |error| if super::book::is_of_the_event(&error) { Ok(None) } else { Err(error) },
                    |done| Ok(Some(done)),
                )?,
                None => None,
            };
            match done {
                Some(done) => self.rows += done as u64,
                None => self.lost.push((at.rem_euclid(GENERATION), at.rem_euclid(GENERATION))),
            }
        }
    }

    /// Returns a row with the new ids of its owner and specification. None: these are lost, or the row is not wanted.
    fn placed(&self, table: &Table, mut values: Vec<Value>) -> Option<Vec<Value>> {
        /// Column of a job's row with its state.
        const STATE: usize = 12;
        /// Column of a job's row with the number of nodes that have not released the job.
        const LEFT: usize = 28;
        /// Column of an array's row with its pending tasks that have no rows of their own.
        const PENDING: usize = 13;
        /// Value of the column `PENDING` if there are no such tasks.
        const NO_TASKS: &[u8] = &[0x80];
        if let Some((owner, spec)) = table.shared {
            for (column, known) in [(owner, &self.owners), (spec, &self.specs)] {
                let Value::Integer(id) = values.get(column)? else { return None };
                values[column] = Value::Integer(*known.get(id)?);
            }
        }
        let ended = || match table.name {
            "jobs" => matches!((&values[STATE], &values[LEFT]), (Value::Integer(100..), Value::Integer(0))),
            "arrays" => matches!(&values[PENDING], Value::Blob(pending) if pending == NO_TASKS),
            _ => true,
        };
        let wanted = !self.ended_only || ended();
        wanted.then_some(values)
    }

    /// Returns the merged lost ranges, with the times between which their jobs were submitted.
    fn lost(&mut self, book: &Book) -> rusqlite::Result<Vec<Lost>> {
        self.lost.sort_unstable();
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for &(first, last) in &self.lost {
            let full = ranges.len() >= LOST_RANGES_MAX;
            match ranges.last_mut() {
                Some(before) if first <= before.1 + 1 || full => before.1 = before.1.max(last),
                _ => ranges.push((first, last)),
            }
        }
        let before = "SELECT submit FROM jobs WHERE id < ?1 ORDER BY id DESC LIMIT 1";
        let after = "SELECT submit FROM jobs WHERE id > ?1 ORDER BY id LIMIT 1";
        let submit = |sql, id| book.db.file()?.query_row(sql, [id], |r| r.get::<_, i64>(0)).optional();
        ranges
            .into_iter()
            .map(|(first, last)| {
                let since = submit(before, first)?.map_or(Time::default(), |t| Time(t as u64));
                let until = submit(after, last)?.map_or(Time(u64::MAX), |t| Time(t as u64));
                Ok(Lost { first: JobId(first as u32), last: JobId(last as u32), since, until })
            })
            .collect()
    }
}

/// Copies the owners or specifications that match their digests. Returns the new ids by the old ones.
fn shared(from: &Connection, to: &Connection, name: &'static str) -> rusqlite::Result<HashMap<i64, i64>> {
    let mut known = HashMap::new();
    let find = format!("SELECT id FROM {name} WHERE digest = ?1");
    let insert = format!("INSERT INTO {name} (digest, body) VALUES (?1, ?2)");
    let table = Table { name, key: "id", shared: None, of_jobs: false };
    let mut start = Some(i64::MIN);
    while let Some(first) = start {
        let sql = format!("SELECT id, digest, body FROM {name} WHERE id >= ?1 ORDER BY id");
        let Ok(mut select) = from.prepare(&sql) else { return Ok(known) };
        let Ok(mut rows) = select.query([first]) else { return Ok(known) };
        let mut after = first;
        start = loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => break None,
                Err(_) => break behind(from, &table, after),
            };
            let (Ok(id), Ok(digest), Ok(body)) =
                (row.get::<_, i64>(0), row.get::<_, Vec<u8>>(1), row.get::<_, Vec<u8>>(2))
            else {
                continue;
            };
            after = id.saturating_add(1);
            if blake3::hash(&body).as_bytes()[..] != digest {
                continue;
            }
            let here: Option<i64> = to.prepare_cached(&find)?.query_row([&digest], |r| r.get(0)).optional()?;
            if here.is_none() {
                to.prepare_cached(&insert)?.execute(params![digest, body])?;
            }
            known.insert(id, here.unwrap_or_else(|| to.last_insert_rowid()));
        };
    }
    Ok(known)
}

/// Returns the first key from `start` on from which rows can be read again. None: there is none.
fn behind(from: &Connection, table: &Table, start: i64) -> Option<i64> {
    let sql = format!("SELECT {0} FROM {1} WHERE {0} >= ?1 ORDER BY {0} LIMIT 1", table.key, table.name);
    let readable = |at: i64| from.query_row(&sql, [at], |r| r.get::<_, i64>(0)).optional();
    let start = start.max(-GENERATION * 16);
    let (mut bad, mut step) = (start, 1_i64);
    let mut good = loop {
        let at = start.checked_add(step).filter(|at| *at < GENERATION * 2)?;
        if readable(at).is_ok() {
            break at;
        }
        (bad, step) = (at, step * 2);
    };
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        if readable(middle).is_ok() { good = middle } else { bad = middle }
    }
    matches!(readable(good), Ok(Some(_))).then_some(good)
}

/// Stores the rows that follow from the journal's records up to `up_to`. Returns the first job for which the journal is
/// complete.
fn replay(book: &mut Book, journal: &Path, up_to: u64) -> rusqlite::Result<JobId> {
    const RECORDS_AT_ONCE: usize = 4096;
    let (mut batch, mut stored): (Vec<Record>, SqlResult) = (Vec::new(), Ok(()));
    let mut submitted = None;
    let mut flush = |batch: &mut Vec<Record>| {
        if stored.is_ok() {
            stored = book.store(batch.iter());
        }
        batch.clear();
    };
    let found = file::records_from(journal, 1, &mut |record| {
        let first = record.events.iter().find_map(|event| match event {
            Event::JobSubmitted { id, .. } => Some(*id),
            _ => None,
        });
        submitted = submitted.or(first);
        if record.seq <= up_to {
            batch.push(record);
        }
        if batch.len() >= RECORDS_AT_ONCE {
            flush(&mut batch);
        }
    });
    flush(&mut batch);
    stored?;
    // Damage of the journal itself is reported where it is opened.
    let from_the_beginning = found.is_ok_and(|first| first == Some(1));
    Ok(if from_the_beginning { JobId(0) } else { submitted.unwrap_or(JobId(u32::MAX)) })
}
