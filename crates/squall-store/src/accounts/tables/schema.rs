//! The tables in PostgreSQL, and the views for other programs. Each version of them follows from the last by a migration.

use std::ops::ControlFlow;

use rusqlite::types::Value;
use squall_model::config::Server;
use squall_model::encoding::{Decoded, Encoded};
use squall_model::gres;
use squall_model::job::{JobSpec, Owner};

use super::server::Session;
use super::{Params, Row};
use crate::accounts::encode::{Packed, req_cpus};

/// Steps from nothing to the present tables: number N makes version N, from 1. One that was released is never changed.
const MIGRATIONS: &[&str] = &[include_str!("migrations/1.sql")];

/// Version of the tables.
pub(in crate::accounts) const TABLES: i64 = MIGRATIONS.len() as i64;

/// Number of the lock under which the tables are made: "squall".
const LOCK: &str = "SELECT pg_advisory_xact_lock(126912993651820)";

/// Brings the tables up to date. Err: what is wrong, where, and what to do.
pub(super) fn prepare(session: &Session, server: &Server) -> Result<(), String> {
    let Server { user, database, .. } = server;
    let place = format!("the database `{database}` of {}", session.place());
    let said = |e: rusqlite::Error| match e.to_string() {
        text if text.contains("(42501)") => {
            format!("the role `{user}` may not make tables in {place}: `ALTER DATABASE {database} OWNER TO {user}`")
        }
        text => format!("the database `{database}`: {text}"),
    };
    let encoding = text(session, "SELECT current_setting('server_encoding')").map_err(said)?;
    if encoding != "UTF8" {
        return Err(format!(
            "{place} is encoded in {encoding}: make one with `createdb -E UTF8 -T template0 -O {user} {database}`"
        ));
    }
    if text(session, "SELECT pg_is_in_recovery()::text").map_err(said)? != "false" {
        return Err(format!("{} is a standby, which takes no rows: name the server that writes", session.place()));
    }
    let found = version(session).map_err(said)?;
    if found > TABLES {
        return Err(format!(
            "{place} has tables of version {found}, and this version of squall knows version {TABLES}: a newer squall wrote \
             them. Nothing was changed. Start the newer one, or name another database in [accounting] store"
        ));
    }
    if found == TABLES {
        return Ok(());
    }
    migrate(session).map_err(|e| {
        drop(session.batch("ROLLBACK"));
        said(e)
    })
}

/// Has the tables follow the journal of a cluster, if they follow none yet. Err: they are another's.
pub(super) fn belong(session: &Session, server: &Server, cluster: u128) -> Result<(), String> {
    let Server { database, .. } = server;
    let place = format!("the database `{database}` of {}", session.place());
    let said = |e: rusqlite::Error| format!("the database `{database}`: {e}");
    let add = "INSERT INTO meta (key, value) VALUES ('cluster', ?1) ON CONFLICT DO NOTHING";
    session.execute(add, &[&Packed(cluster)]).map_err(said)?;
    let mut found = None;
    session
        .stream("SELECT value FROM meta WHERE key = 'cluster'", &[], &mut |row| {
            found = Some(Row::Server(&row).get::<Packed<u128>>(0)?.0);
            Ok(ControlFlow::Break(()))
        })
        .map_err(said)?;
    if found == Some(cluster) {
        return Ok(());
    }
    Err(format!(
        "{place} has the records of another cluster. Nothing was changed. Name another database in [accounting] store, or \
         remove the records there with `DROP SCHEMA squall, squall_rows CASCADE`"
    ))
}

fn migrate(session: &Session) -> rusqlite::Result<()> {
    session.batch("BEGIN")?;
    session.batch(LOCK)?;
    // Another controller may have done it meanwhile.
    let found = version(session)?;
    for (number, migration) in (1..).zip(MIGRATIONS).filter(|(number, _)| *number > found) {
        session.batch(migration)?;
        session.batch(&format!("DELETE FROM version; INSERT INTO version VALUES ({number})"))?;
    }
    session.batch("COMMIT")
}

/// Returns the version of the tables; 0: there are none.
fn version(session: &Session) -> rusqlite::Result<i64> {
    if text(session, "SELECT coalesce(to_regclass('squall_rows.version')::text, '')")?.is_empty() {
        return Ok(0);
    }
    text(session, "SELECT max(number)::text FROM squall_rows.version").map(|number| number.parse().unwrap_or(0))
}

fn text(session: &Session, sql: &'static str) -> rusqlite::Result<String> {
    let mut found = String::new();
    session.stream(sql, Params::default(), &mut |row| {
        found = Row::Server(&row).get(0)?;
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// A value that many rows share. In PostgreSQL its row has columns that SQL can read besides.
pub(in crate::accounts) trait Plain: Encoded + Decoded {
    /// Finds the row with a digest.
    const FIND: &'static str;
    /// Finds the rows with any of some digests, on a server.
    const FIND_ANY: &'static str;
    /// Adds a row with a digest and the value, in a file.
    const ADD: &'static str;
    /// Adds a row with its number, a digest and the value, in a file.
    const PUT: &'static str;
    /// Finds all rows.
    const ALL: &'static str;
    /// Finds the highest number of a row.
    const HIGHEST: &'static str;
    /// Adds a row with its number, a digest, the value and its columns, on a server.
    const ADD_PLAIN: &'static str;

    /// Returns the columns.
    fn plain(&self) -> Vec<Value>;
}

/// The texts that differ in nothing but the name of the table.
macro_rules! texts_of {
    ($table:literal) => {
        const FIND: &'static str = concat!("SELECT id FROM ", $table, " WHERE digest = ?1");
        const FIND_ANY: &'static str = concat!("SELECT digest, id FROM ", $table, " WHERE digest = ANY(?1)");
        const ADD: &'static str = concat!("INSERT INTO ", $table, " (digest, body) VALUES (?1, ?2)");
        const PUT: &'static str = concat!("INSERT INTO ", $table, " (id, digest, body) VALUES (?1, ?2, ?3)");
        const ALL: &'static str = concat!("SELECT id, digest, body FROM ", $table, " ORDER BY id");
        const HIGHEST: &'static str = concat!("SELECT coalesce(max(id), 0) FROM ", $table);
    };
}

impl Plain for Owner {
    texts_of!("owners");
    const ADD_PLAIN: &'static str =
        "INSERT INTO owners (id, digest, body, uid, gid, user_name, group_name) VALUES (?, ?, ?, ?, ?, ?, ?)";

    fn plain(&self) -> Vec<Value> {
        vec![
            i64::from(self.uid).into(),
            i64::from(self.gid).into(),
            self.user.clone().into(),
            self.group.clone().into(),
        ]
    }
}

impl Plain for JobSpec {
    texts_of!("specs");
    const ADD_PLAIN: &'static str =
        "INSERT INTO specs (id, digest, body, wckey, work_dir, submit_line, comment, nodes_min,
        req_cpus, tasks, tasks_by_node, gpus, gpus_by_node, gpus_by_task)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

    fn plain(&self) -> Vec<Value> {
        let asked = gres::Ask::of(self.need.gres.as_deref(), &self.options.gpus);
        // The number of GPUs is a sum of one for the job, one for each node and one for each task.
        let gpus = |nodes, tasks| asked.as_ref().map_or(0, |asked| i64::from(asked.gpus(nodes, tasks)));
        let own = gpus(0, 0);
        vec![
            self.wckey.clone().into(),
            self.work_dir.clone().into(),
            self.submit_line.clone().into(),
            self.comment.clone().into(),
            i64::from(self.need.nodes_min.unwrap_or(1)).into(),
            i64::from(req_cpus(self)).into(),
            self.need.ntasks.map(i64::from).into(),
            i64::from(self.need.ntasks_per_node.unwrap_or(1)).into(),
            own.into(),
            (gpus(1, 0) - own).into(),
            (gpus(0, 1) - own).into(),
        ]
    }
}
