//! Converts databases of release 0.1: they have the same tables, with packed values in another layout
//! (`squall_model::stored::v1`).

use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, Error};
use squall_model::stored::v1;

use super::book::Done;

/// Version of the tables in release 0.1.
pub(super) const TABLES: i64 = 1;

/// Columns with packed values: table, column, and the type's name in release 0.1.
const PACKED: [(&str, &str, &str); 9] = [
    ("specs", "body", "JobSpec"),
    ("owners", "body", "Owner"),
    ("arrays", "tasks", "ArraySpec"),
    ("arrays", "pending", "[Range]"),
    ("array_ends", "tasks", "[Range]"),
    ("steps", "usage", "Usage"),
    ("meta WHERE key = 'cluster'", "value", "u128"),
    ("meta WHERE key = 'config'", "value", "Config"),
    ("meta WHERE key = 'lost'", "value", "[Lost]"),
];

/// The table of the history, which databases of very early versions lack.
const HISTORY: (&str, &str, &str) = ("history", "what", "Happening");

/// Converts the tables to the present version, all or nothing. Err: a value can't be read, so the database is damaged.
pub(super) fn bring_up(db: &Connection) -> Done {
    let flags = FunctionFlags::SQLITE_DETERMINISTIC;
    db.create_scalar_function("numbered", 2, flags, |call| {
        let root: String = call.get(0)?;
        let bytes: Vec<u8> = call.get(1)?;
        v1::translate(&root, &bytes).map_err(|e| Error::UserFunctionError(e.into()))
    })?;
    db.create_scalar_function("digest", 1, flags, |call| {
        Ok(blake3::hash(&call.get::<Vec<u8>>(0)?).as_bytes().to_vec())
    })?;
    let mut statements = vec!["BEGIN".to_owned()];
    let has_history = db.table_exists(None, HISTORY.0)?;
    for (table, column, root) in PACKED.into_iter().chain(has_history.then_some(HISTORY)) {
        let (name, rest) = table.split_once(' ').unwrap_or((table, ""));
        statements.push(format!("UPDATE {name} SET {column} = numbered('{root}', {column}) {rest}"));
    }
    statements.extend(["specs", "owners"].map(|table| format!("UPDATE {table} SET digest = digest(body)")));
    statements.push(format!("PRAGMA user_version = {}", super::book::TABLES));
    statements.push("COMMIT".to_owned());
    let done = db.execute_batch(&statements.join(";"));
    if done.is_err() {
        drop(db.execute_batch("ROLLBACK"));
    }
    db.remove_function("numbered", 2)?;
    db.remove_function("digest", 1)?;
    done
}
