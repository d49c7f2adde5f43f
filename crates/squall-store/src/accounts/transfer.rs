//! Copies the records of a cluster from one store to another, while its controller does not run.

use rusqlite::types::Value;
use rusqlite::{ToSql, params};
use squall_files::place::Place;
use squall_model::config::Server;
use squall_model::encoding;
use squall_model::job::{JobSpec, Owner};

use super::book::Book;
use super::encode::Number;
use super::tables::{self, Plain, Tables};
use crate::file::StateLock;

/// A store, from which or to which records are copied.
#[derive(Clone, Debug)]
pub enum End {
    /// The file of a state folder.
    File(Place),
    /// A database on a server.
    Server(Server),
}

/// Number of rows of a table that were copied, and that the new store has.
pub type Count = (&'static str, u64);

/// A table that is copied as it is: its columns, and those by which rows are read in order.
struct Table {
    name: &'static str,
    columns: &'static str,
    order: &'static str,
}

const TABLES: [Table; 10] = [
    Table { name: "nodes", columns: "id, name", order: "id" },
    Table {
        name: "jobs",
        columns: "id, attempt, latest, array, task, uid, owner, spec, name, partition, account, qos, state, state_by, code,
            signal, reason, submit, eligible, start, end, suspended, suspended_since, limit_s, nodes, num_nodes, num_cpus,
            memory_mb, left, requeue",
        order: "id, attempt",
    },
    Table {
        name: "steps",
        columns: "job, attempt, step, name, state, state_by, code, signal, reason, start, end, nodes, num_nodes, num_cpus,
            num_tasks, left, oom, lost, usage, submit_line",
        order: "job, attempt, step",
    },
    Table {
        name: "arrays",
        columns: "id, last, uid, owner, spec, name, partition, account, qos, submit, eligible, limit_s, tasks, pending",
        order: "id",
    },
    Table {
        name: "array_ends",
        columns: "array, number, tasks, state, state_by, code, signal, reason, time",
        order: "array, number",
    },
    Table { name: "history", columns: "number, time, what", order: "number" },
    Table { name: "hets", columns: "leader, size", order: "leader" },
    Table {
        name: "losses",
        columns: "job, attempt, node, lost, kept, heard, replaced, again",
        order: "job, attempt, lost, node",
    },
    Table { name: "series", columns: "job, attempt, step, end, points", order: "job, attempt, step" },
    Table { name: "billed", columns: "job, attempt, amount", order: "job, attempt" },
];

/// Single values that are copied as they are.
const VALUES: [&str; 3] = ["cluster", "config", "lost"];

impl End {
    /// Returns where it is, for people.
    pub fn place(&self) -> String {
        match self {
            Self::File(place) => place.accounts().display().to_string(),
            Self::Server(server) => format!("the database `{}` of PostgreSQL at {}", server.database, server.place()),
        }
    }

    fn open(&self) -> Result<Book, String> {
        let wrong = |e: rusqlite::Error| format!("{}: {e}", self.place());
        match self {
            Self::File(place) => Book::open(&place.accounts()).map_err(wrong),
            Self::Server(server) => {
                tables::connect(server, None).and_then(|session| Book::served(session).map_err(wrong))
            }
        }
    }
}

/// Copies all records in one transaction, and compares the numbers of rows. The controller must not run. Err: why nothing
/// was copied.
pub fn transfer(place: &Place, from: &End, to: &End) -> Result<Vec<Count>, String> {
    let _lock = StateLock::take(place).map_err(|e| e.to_string())?;
    if let End::File(place) = from
        && !place.accounts().exists()
    {
        return Err(format!("{} is not there: nothing to copy", from.place()));
    }
    let (source, target) = (from.open()?, to.open()?);
    let wrong = |e: rusqlite::Error| format!("{}, and nothing was copied: {e}", to.place());
    if target.position() > 0 || target.highest.is_some() {
        return Err(format!("{} has records already: copy into an empty one", to.place()));
    }
    if ![0, source.cluster()].contains(&target.cluster()) {
        return Err(format!("{} belongs to another cluster", to.place()));
    }
    target.db.run("BEGIN").map_err(wrong)?;
    let counts = copied(&source.db, &target.db).map_err(wrong)?;
    for (table, rows) in &counts {
        let count = String::leak(format!("SELECT count(*) FROM {table}"));
        let count_of =
            |tables: &Tables| tables.one(count, &[], |r| r.get::<i64>(0)).map(|rows| rows.unwrap_or(0) as u64);
        let (here, there) = (count_of(&source.db).map_err(wrong)?, count_of(&target.db).map_err(wrong)?);
        if [here, there] != [*rows; 2] {
            return Err(format!(
                "{table}: {} has {here} rows, {} would have {there}; nothing was copied",
                from.place(),
                to.place()
            ));
        }
    }
    target.db.run("COMMIT").and_then(|()| target.checkpoint()).map_err(wrong)?;
    Ok(counts)
}

fn copied(from: &Tables, to: &Tables) -> rusqlite::Result<Vec<Count>> {
    let mut counts = vec![("owners", shared::<Owner>(from, to)?), ("specs", shared::<JobSpec>(from, to)?)];
    for Table { name, columns, order } in TABLES {
        let width = columns.split(',').count();
        let marks = vec!["?"; width].join(", ");
        // A few texts, once in the life of the process: statements are kept by their place.
        let select = String::leak(format!("SELECT {columns} FROM {name} ORDER BY {order}"));
        let insert = String::leak(format!("INSERT INTO {name} ({columns}) VALUES ({marks})"));
        let mut rows = 0;
        from.stream(select, &[], |row| {
            let values = (0..width).map(|column| row.get::<Value>(column)).collect::<rusqlite::Result<Vec<_>>>()?;
            let values: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
            to.write(insert, &values)?;
            rows += 1;
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        counts.push((name, rows));
    }
    to.count_on()?;
    let find = "SELECT value FROM meta WHERE key = ?1";
    let set = "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    for key in VALUES {
        if let Some(value) = from.one(find, params![key], |row| row.get::<Value>(0))? {
            to.write(set, params![key, value])?;
        }
    }
    let position = from.one(find, params!["position"], |row| row.get::<Number>(0))?;
    to.write(set, params!["position", position.unwrap_or(Number(0))])?;
    Ok(counts)
}

/// Copies values that many rows share, with their numbers.
fn shared<T: Plain>(from: &Tables, to: &Tables) -> rusqlite::Result<u64> {
    let mut rows = 0;
    from.stream(T::ALL, &[], |row| {
        let (id, digest, body) = (row.get::<i64>(0)?, row.get::<Vec<u8>>(1)?, row.get::<Vec<u8>>(2)?);
        match to {
            Tables::File(db) => db.prepare_cached(T::PUT)?.execute(params![id, digest, body]).map(drop)?,
            Tables::Server(session) => {
                let value: T = encoding::from_slice(&body)
                    .map_err(|e| rusqlite::Error::FromSqlConversionFailure(2, rusqlite::types::Type::Blob, e.into()))?;
                session.put_shared(&value, id, &digest, body)?;
            }
        }
        rows += 1;
        Ok(std::ops::ControlFlow::Continue(()))
    })?;
    Ok(rows)
}
