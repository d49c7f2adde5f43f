//! The accounting database and what each event writes into it.

mod batch;
mod billed;
pub(super) mod blocks;
mod change;
mod draft;
pub(super) mod history;
mod losses;
mod purge;
mod retire;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags, params};
use squall_model::config::Config;
use squall_model::encoding;
use squall_model::event::{Event, JobChange, Record};
use squall_model::hostlist;
use squall_model::id::{Attempt, JobId, NodeId, StepNo};
use squall_model::job::{ArraySpec, EndState, ExitCode, JobKind, JobSpec, JobState, Outcome, Owner, Usage};
use squall_model::report::StepEnd;
use squall_model::resource::Alloc;
use squall_model::set::{IndexSet, NodeSet};
use squall_model::step::{Layout, StepSpec};
use squall_model::time::Time;

use crate::accounts::encode::{Number, Packed, state_columns};
use crate::accounts::pages::{self, Raw};
use crate::accounts::rescue::Lost;
use crate::accounts::series;
use crate::accounts::tables::{Params, Plain, Session, Tables};
use crate::file::free_bytes;
use draft::Draft;
pub(super) use retire::GENERATION;

/// Version of the database's tables.
pub(super) const TABLES: i64 = 2;

const SCHEMA: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE nodes (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE specs (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL);
CREATE TABLE owners (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL);
CREATE TABLE jobs (
    id INTEGER NOT NULL, attempt INTEGER NOT NULL, latest INTEGER NOT NULL DEFAULT 1,
    array INTEGER, task INTEGER, uid INTEGER NOT NULL, owner INTEGER NOT NULL, spec INTEGER NOT NULL,
    name TEXT NOT NULL, partition TEXT NOT NULL, account TEXT NOT NULL, qos TEXT NOT NULL,
    state INTEGER NOT NULL DEFAULT 0, state_by INTEGER, code INTEGER NOT NULL DEFAULT 0,
    signal INTEGER NOT NULL DEFAULT 0, reason TEXT,
    submit INTEGER NOT NULL, eligible INTEGER NOT NULL, start INTEGER, end INTEGER,
    suspended INTEGER NOT NULL DEFAULT 0, suspended_since INTEGER, limit_s INTEGER,
    nodes TEXT NOT NULL DEFAULT '', num_nodes INTEGER NOT NULL DEFAULT 0, num_cpus INTEGER NOT NULL DEFAULT 0,
    memory_mb INTEGER NOT NULL DEFAULT 0, left INTEGER NOT NULL DEFAULT 0, requeue INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (id, attempt)
) WITHOUT ROWID;
CREATE TABLE arrays (
    id INTEGER PRIMARY KEY, last INTEGER NOT NULL, uid INTEGER NOT NULL, owner INTEGER NOT NULL,
    spec INTEGER NOT NULL, name TEXT NOT NULL, partition TEXT NOT NULL, account TEXT NOT NULL, qos TEXT NOT NULL,
    submit INTEGER NOT NULL, eligible INTEGER NOT NULL, limit_s INTEGER, tasks BLOB NOT NULL, pending BLOB NOT NULL
);
CREATE TABLE array_ends (
    array INTEGER NOT NULL, number INTEGER NOT NULL, tasks BLOB NOT NULL, state INTEGER NOT NULL, state_by INTEGER,
    code INTEGER NOT NULL, signal INTEGER NOT NULL, reason TEXT, time INTEGER NOT NULL,
    PRIMARY KEY (array, number)
) WITHOUT ROWID;
CREATE TABLE steps (
    job INTEGER NOT NULL, attempt INTEGER NOT NULL, step INTEGER NOT NULL, name TEXT NOT NULL,
    state INTEGER NOT NULL DEFAULT 1, state_by INTEGER, code INTEGER NOT NULL DEFAULT 0,
    signal INTEGER NOT NULL DEFAULT 0, reason TEXT, start INTEGER NOT NULL, end INTEGER,
    nodes TEXT NOT NULL, num_nodes INTEGER NOT NULL, num_cpus INTEGER NOT NULL, num_tasks INTEGER NOT NULL,
    left INTEGER NOT NULL, oom INTEGER NOT NULL DEFAULT 0, lost INTEGER NOT NULL DEFAULT 0,
    usage BLOB NOT NULL, submit_line TEXT NOT NULL,
    PRIMARY KEY (job, attempt, step)
) WITHOUT ROWID;
";

/// The open accounting database, in a file or on a server.
pub(super) struct Book {
    pub(super) db: Tables,
    cluster: u128,
    position: u64,
    nodes: HashMap<u32, String>,
    config: Arc<Config>,
    /// Highest job id that has a row; None: there is none. A submission with an id up to this one reuses that id.
    pub(super) highest: Option<JobId>,
    pub(super) recent: Recent,
    /// Jobs whose work stopped as they lost a node, and has neither started again nor ended.
    pub(super) losing: BTreeSet<JobId>,
    /// When old rows were removed last.
    pub(super) sweep: purge::Sweep,
}

/// Cache of rows written lately: reading them back would cost more than writing them.
#[derive(Default)]
pub(super) struct Recent {
    /// Submitted jobs; their rows are written before the transaction ends.
    pub(super) drafts: BTreeMap<JobId, Draft>,
    /// Specifications of jobs that have a row or get one; until their nodes are released, or the cache is full.
    pub(super) jobs: HashMap<JobId, Arc<JobSpec>>,
    /// The owner used last, with its row id; None: none was used yet.
    owner: Option<(Arc<Owner>, i64)>,
    /// The specification used last, with its row id; None: none was used yet.
    spec: Option<(Arc<JobSpec>, i64)>,
    /// The array with the tasks that were changed last; None: there is none, or its changes are written.
    pub(super) array: Option<Array>,
}

/// Number of drafts that causes all drafts to be written, after the record that reaches it. Each takes about a KiB.
const DRAFTS_MAX: usize = 8192;

/// Number of jobs that causes `Recent::jobs` to be emptied.
pub(super) const RECENT_JOBS: usize = 100_000;

/// Cached state of an array while its tasks are being changed.
pub(super) struct Array {
    pub(super) id: JobId,
    /// Job id of the array's last task.
    pub(super) last: JobId,
    tasks: ArraySpec,
    /// Indexes of the tasks that have no row of their own.
    pending: IndexSet,
    spec: Arc<JobSpec>,
    /// Whether the database has the present content of `pending`.
    written: bool,
}

impl Recent {
    fn has_row(&mut self, id: JobId, spec: Arc<JobSpec>) {
        if self.jobs.len() >= RECENT_JOBS {
            self.jobs.clear();
        }
        self.jobs.insert(id, spec);
    }
}

pub(super) type SqlResult = rusqlite::Result<()>;

impl Book {
    /// Opens the database at `path`, or creates it.
    pub(super) fn open(path: &Path) -> rusqlite::Result<Self> {
        // Readable for the owner only, as submit lines and comments are private. One that is there is not opened, as
        // closing it would drop the lock of a connection to it.
        drop(std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(path));
        Self::on(pages::open(path, OpenFlags::default())?, path)
    }

    /// Prepares the database of an open connection.
    pub(super) fn on(db: Connection, path: &Path) -> rusqlite::Result<Self> {
        let tables: i64 = db.pragma_query_value(None, "user_version", |r| r.get(0))?;
        if ![0, TABLES].contains(&tables) {
            return Err(crate::accounts::another_version(path, tables));
        }
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "NORMAL")?;
        db.pragma_update(None, "wal_autocheckpoint", log_pages(path))?;
        db.set_prepared_statement_cache_capacity(64);
        if tables == 0 {
            db.execute_batch("BEGIN")?;
            db.execute_batch(SCHEMA)?;
            db.pragma_update(None, "user_version", TABLES)?;
            db.execute_batch("COMMIT")?;
        }
        db.execute_batch("CREATE INDEX IF NOT EXISTS jobs_by_end ON jobs (end)")?;
        for schema in [history::SCHEMA, losses::SCHEMA, series::SCHEMA, billed::SCHEMA] {
            db.execute_batch(schema)?;
        }
        blocks::prepare(&db)?;
        Self::of(Tables::File(db))
    }

    /// Goes on with the tables of a server.
    pub(super) fn served(session: Session) -> rusqlite::Result<Self> {
        Self::of(Tables::Server(Box::new(session)))
    }

    fn of(db: Tables) -> rusqlite::Result<Self> {
        let mut book = Self {
            db,
            cluster: 0,
            position: 0,
            nodes: HashMap::new(),
            config: Arc::default(),
            highest: None,
            recent: Recent::default(),
            losing: BTreeSet::new(),
            sweep: purge::Sweep::default(),
        };
        book.load()?;
        Ok(book)
    }

    /// Reads the values that are kept in memory.
    pub(super) fn load(&mut self) -> SqlResult {
        let cluster: Option<Packed<u128>> = self.meta("cluster")?;
        self.cluster = cluster.map_or(0, |c| c.0);
        self.position = self.meta::<Number>("position")?.map_or(0, |seq| seq.0 as u64);
        self.db.forget_shared();
        self.config = self.meta::<Packed<Config>>("config")?.map(|c| Arc::new(c.0)).unwrap_or_default();
        let sql = "SELECT max((SELECT coalesce(max(id), -1) FROM jobs),
            coalesce((SELECT last FROM arrays WHERE id >= 0 ORDER BY id DESC LIMIT 1), -1))";
        let highest: Option<i64> = self.db.one(sql, &[], |r| r.get(0))?;
        self.highest = highest.and_then(|id| u32::try_from(id).ok()).map(JobId);
        let nodes = self.db.all("SELECT id, name FROM nodes", &[], |r| Ok((r.get(0)?, r.get(1)?)))?;
        self.nodes = nodes.into_iter().collect();
        self.losing = self.losing()?;
        Ok(())
    }

    fn meta<T: rusqlite::types::FromSql>(&self, key: &str) -> rusqlite::Result<Option<T>> {
        self.db.one("SELECT value FROM meta WHERE key = ?1", params![key], |r| r.get(0))
    }
    fn set_meta<T: rusqlite::ToSql>(&self, key: &str, value: T) -> SqlResult {
        let sql =
            "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        self.db.write(sql, params![key, value])
    }
    /// Returns the random number of the journal that is followed; 0: not set yet.
    pub(super) fn cluster(&self) -> u128 {
        self.cluster
    }
    /// Returns the number of the last stored record.
    pub(super) fn position(&self) -> u64 {
        self.position
    }
    /// Returns the number of nodes that have ever registered.
    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }
    /// Sets the journal that a new database follows.
    pub(super) fn begin(&mut self, cluster: u128) -> SqlResult {
        self.set_meta("cluster", Packed(cluster))?;
        self.db.settle()?;
        self.cluster = cluster;
        Ok(())
    }
    /// Copies nodes and configuration from another database.
    pub(super) fn assume(&mut self, other: &Self) {
        self.nodes.clone_from(&other.nodes);
        self.config = Arc::clone(&other.config);
    }
    /// Returns the ranges of jobs of which rows may be missing.
    pub(super) fn lost(&self) -> rusqlite::Result<Vec<Lost>> {
        Ok(self.meta::<Packed<Vec<Lost>>>("lost")?.map(|lost| lost.0).unwrap_or_default())
    }
    pub(super) fn set_lost(&self, lost: &Vec<Lost>) -> SqlResult {
        self.set_meta("lost", Packed(lost))
    }
    /// Continues after the record `seq`, although not all records before it are stored.
    pub(super) fn skip_to(&mut self, seq: u64) -> SqlResult {
        self.set_meta("position", Number(seq as i64))?;
        self.db.settle()?;
        self.position = seq;
        Ok(())
    }
    /// Returns the database's file, to be read while this holds its lock.
    pub(super) fn raw(&self) -> rusqlite::Result<Raw<'_>> {
        Raw::of(self.db.file()?).map_err(crate::accounts::unreadable)
    }
    /// Makes everything stored durable. On a server it is so when a transaction has ended.
    pub(super) fn checkpoint(&self) -> SqlResult {
        match &self.db {
            Tables::File(db) => db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())),
            Tables::Server(_) => Ok(()),
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: a row for each event")]
    fn event(&mut self, record: &Record, event: &Event) -> SqlResult {
        let time = record.time;
        if self.noted(time, event)? {
            return Ok(());
        }
        self.note_losses(time, event)?;
        match event {
            Event::Configured { config } => {
                self.config = Arc::clone(config);
                self.set_meta("config", Packed(&**config))
            }
            Event::PartitionChanged { name, config } => {
                let all = &mut Arc::make_mut(&mut self.config).partitions;
                let default = config.as_ref().is_some_and(|config| config.default);
                for p in all.iter_mut() {
                    p.default &= !default;
                }
                all.retain(|p| p.name != *name);
                all.extend(config.as_deref().cloned());
                self.set_meta("config", Packed(&*self.config))
            }
            Event::NodeRegistered { node, name, .. } => {
                self.nodes.insert(node.0, name.clone());
                let sql = "INSERT INTO nodes (id, name) VALUES (?1, ?2)
                    ON CONFLICT (id) DO UPDATE SET name = excluded.name";
                self.db.write(sql, params![node.0, name])?;
                self.happened(time, event)
            }
            Event::NodeDown { .. }
            | Event::NodeUp { .. }
            | Event::NodesSet { .. }
            | Event::NodesRemoved { .. }
            | Event::PolicyChanged { .. }
            | Event::ReservationSet { .. }
            | Event::ReservationGone { .. } => self.happened(time, event),
            Event::JobSubmitted { id, owner, spec, .. } => self.submitted(time, *id, owner, spec),
            Event::JobStarted { id, attempt, partition, alloc } => self.started(time, *id, *attempt, partition, alloc),
            Event::StepStarted { job, step, spec, alloc, layout, .. } => {
                self.step_started(time, *job, *step, spec, alloc, layout)
            }
            Event::StepNodesEnded { job, attempt, step, nodes, end, cut } => {
                let (at, step_of) = ((time, &mut self.sweep.series), (*job, *attempt, *step));
                series::note(&self.db, at, step_of, end.series.as_deref())?;
                self.step_nodes_ended((*job, *attempt, *step), nodes.len() as u32, end, *cut)
            }
            Event::StepAbandoned { job, step, outcome } => self.step_ended(time, *job, *step, outcome),
            Event::JobEnding { id, outcome, requeue } => self.ending(time, *id, outcome, requeue.is_some()),
            Event::NodesReleased { id, attempt, nodes } => self.released(time, *id, *attempt, nodes),
            Event::JobAwake { id, attempt } => self.awake(time, *id, *attempt),
            Event::JobBilled { id, attempt, billing } => self.set_billed(*id, *attempt, *billing),
            Event::JobShrunk { id, attempt, alloc, .. } => self.shrunk(*id, *attempt, alloc),
            Event::NodeReplaced { id, attempt, alloc, .. } => self.node_replaced(*id, *attempt, alloc),
            Event::TasksEnded { array, tasks, outcome } => self.tasks_ended(record.seq, time, *array, tasks, outcome),
            Event::JobUpdated { id, change, whole } => self.updated(time, *id, change, *whole),
            Event::JobRequeued { id, .. } => self.touch(*id).and_then(|()| self.back_to_queue(time, *id)),
            Event::HetFormed { leader, size } => self.het_formed(*leader, *size),
            Event::Recorded { job, values, .. } => self.recorded(*job, values),
            Event::JobSuspended { id, suspended } => self.suspended(time, *id, *suspended),
            Event::Ganged { shifts } => shifts.iter().try_for_each(|shift| self.shifted(shift)),
            Event::JobHeld { id, whole: false, .. } => self.touch(*id),
            Event::JobReleased { id, whole } => self.may_start(time, *id, *whole, false),
            Event::NodeLost { .. }
            | Event::JobHeld { whole: true, .. }
            | Event::ControllerStarted { .. }
            | Event::Forgotten { .. }
            | Event::NodeFault(_)
            | Event::Checkpoint(_)
            | Event::JobPreempted { .. }
            | Event::JobLeased { .. }
            | Event::LeaseReturned { .. }
            | Event::ForeignResolved { .. }
            | Event::PartitionSet { .. }
            | Event::GresGranted { .. }
            | Event::StepLimited { .. }
            | Event::IdsLost { .. }
            | Event::Restored { .. }
            | Event::VersionRaised { .. }
            | Event::KeysRotated { .. }
            | Event::NodesChanged { .. }
            | Event::JobConfigured { .. }
            | Event::NodesPower { .. }
            | Event::PowerWished { .. }
            | Event::PowerProgramEnded { .. }
            | Event::EpilogEnded { .. }
            | Event::NodesCreated { .. }
            | Event::NodesReboot { .. } => Ok(()),
        }
    }

    fn submitted(&mut self, time: Time, id: JobId, owner: &Arc<Owner>, spec: &Arc<JobSpec>) -> SqlResult {
        let size = spec.array.as_ref().map_or(1, |array| array.indices.len() as u32);
        self.retire(id, JobId(id.0 + size.max(1) - 1))?;
        let owner_row = match &self.recent.owner {
            Some((known, row)) if known == owner => *row,
            _ => self.shared(&**owner)?,
        };
        self.recent.owner = Some((Arc::clone(owner), owner_row));
        let spec_row = match &self.recent.spec {
            Some((known, row)) if known == spec => *row,
            _ => self.shared(&**spec)?,
        };
        self.recent.spec = Some((Arc::clone(spec), spec_row));
        let partition = self.partition(spec);
        let limit = self.limit(spec, &partition);
        // Unknown while the job is held or waits for another one.
        let waits = spec.is_held() || spec.dependency.is_some();
        let eligible = if waits { Time::default() } else { spec.begin.map_or(time, |begin| begin.max(time)) };
        let Some(array) = &spec.array else {
            let (uid, owner, spec_row, spec) = (owner.uid, owner_row, spec_row, Arc::clone(spec));
            self.recent.has_row(id, Arc::clone(&spec));
            let (run, end) = (None, None);
            let draft = Draft { uid, owner, spec_row, spec, partition, submit: time, eligible, limit, run, end };
            self.recent.drafts.insert(id, draft);
            return Ok(());
        };
        let common = params![
            id.0,
            owner.uid,
            owner_row,
            spec_row,
            spec.name,
            partition,
            self.account(spec),
            self.qos(spec),
            time.0 as i64,
            eligible.0 as i64,
            limit
        ];
        let sql = "INSERT INTO arrays (id, uid, owner, spec, name, partition, account, qos, submit, eligible, limit_s, last, tasks, pending)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
            ON CONFLICT DO NOTHING";
        let last = id.0 + array.indices.len().saturating_sub(1) as u32;
        let own = params![last, Packed(array), Packed(&array.indices)];
        self.db.write(sql, &[common, own].concat())
    }

    /// Returns the row id of a value that many rows share, inserting it if needed.
    pub(super) fn shared<T: Plain>(&self, value: &T) -> rusqlite::Result<i64> {
        let body = encoding::to_vec(value);
        let digest = blake3::hash(&body);
        match &self.db {
            Tables::File(db) => {
                let digest = &digest.as_bytes()[..];
                if let Some(id) = self.db.one(T::FIND, params![digest], |r| r.get(0))? {
                    return Ok(id);
                }
                db.prepare_cached(T::ADD)?.execute(params![digest, body])?;
                Ok(db.last_insert_rowid())
            }
            Tables::Server(session) => session.shared(value, *digest.as_bytes(), body),
        }
    }

    pub(super) fn account<'a>(&'a self, spec: &'a JobSpec) -> &'a String {
        spec.account.as_ref().unwrap_or(&self.config.default_account)
    }

    pub(super) fn qos<'a>(&'a self, spec: &'a JobSpec) -> &'a String {
        spec.qos.as_ref().unwrap_or(&self.config.default_qos)
    }

    fn partition(&self, spec: &JobSpec) -> String {
        let asked = spec.partition.as_deref().and_then(|p| p.split(',').next());
        let name = asked.or(self.config.default_partition().map(|p| p.name.as_str()));
        name.unwrap_or_default().to_owned()
    }

    pub(super) fn limit(&self, spec: &JobSpec, partition: &str) -> Option<i64> {
        let found = self.config.partitions.iter().find(|p| p.name == partition);
        let default = found.and_then(|p| p.default_time_s.or(p.max_time_s));
        spec.time_limit_s.or(default).map(|s| s as i64)
    }

    /// Makes sure that a job, or an array task without changes so far, has a row of its own.
    pub(super) fn touch(&mut self, id: JobId) -> SqlResult {
        if self.recent.jobs.contains_key(&id)
            || self.db.one("SELECT 1 FROM jobs WHERE id = ?1 AND latest", params![id.0], |_| Ok(()))?.is_some()
        {
            return Ok(());
        }
        let Some(array) = self.array(id)? else { return Ok(()) };
        let index = array.tasks.rank_of(array.id, id).and_then(|rank| array.tasks.indices.at(rank));
        let Some(index) = index else { return Ok(()) };
        array.pending.remove(index);
        array.written = false;
        let (first, spec) = (array.id, Arc::clone(&array.spec));
        let sql = "INSERT INTO jobs (id, attempt, array, task, uid, owner, spec, name, partition, account, qos, submit, eligible, limit_s)
            SELECT ?1, 1, id, ?2, uid, owner, spec, name, partition, account, qos, submit, eligible, limit_s FROM arrays WHERE id = ?3
            ON CONFLICT DO NOTHING";
        self.db.write(sql, params![id.0, index, first.0])?;
        self.recent.has_row(id, spec);
        Ok(())
    }

    /// Returns the array to which a job id belongs. None: the job is no array task.
    fn array(&mut self, id: JobId) -> rusqlite::Result<Option<&mut Array>> {
        if self.recent.array.as_ref().is_none_or(|array| id < array.id || array.last < id) {
            self.close_array()?;
            let sql = "SELECT a.id, a.last, a.tasks, a.pending, s.body FROM arrays a JOIN specs s ON s.id = a.spec
                WHERE a.id <= ?1 AND a.last >= ?1 ORDER BY a.id DESC LIMIT 1";
            self.recent.array = self.db.one(sql, params![id.0], |r| {
                Ok(Array {
                    id: JobId(r.get(0)?),
                    last: JobId(r.get(1)?),
                    tasks: r.get::<Packed<ArraySpec>>(2)?.0,
                    pending: r.get::<Packed<IndexSet>>(3)?.0,
                    spec: Arc::new(r.get::<Packed<JobSpec>>(4)?.0),
                    written: true,
                })
            })?;
        }
        Ok(self.recent.array.as_mut())
    }

    /// Writes the changes of the current array.
    pub(super) fn close_array(&mut self) -> SqlResult {
        let Some(array) = self.recent.array.take().filter(|array| !array.written) else { return Ok(()) };
        let sql = "UPDATE arrays SET pending = ?2 WHERE id = ?1";
        self.db.write(sql, params![array.id.0, Packed(array.pending)])
    }

    fn started(&mut self, time: Time, id: JobId, attempt: Attempt, partition: &str, alloc: &Alloc) -> SqlResult {
        self.touch(id)?;
        let nodes = self.names(&alloc.nodes());
        let Some(spec) = self.spec(id)? else { return Ok(()) };
        self.db.make_way(
            "DELETE FROM jobs WHERE id = ?1 AND attempt = ?2 AND NOT latest
                AND EXISTS (SELECT 1 FROM jobs WHERE id = ?1 AND latest)",
            params![id.0, attempt.0],
        )?;
        let sql = "UPDATE OR REPLACE jobs SET attempt = ?2, state = 1, start = ?3, partition = ?4, nodes = ?5,
            num_nodes = ?6, num_cpus = ?7, memory_mb = ?8, left = ?6, requeue = FALSE,
            limit_s = CASE WHEN ?9 THEN limit_s ELSE coalesce(limit_s, ?10) END,
            eligible = CASE WHEN eligible = 0 THEN ?3 ELSE min(eligible, ?3) END
            WHERE id = ?1 AND latest";
        let (memory_mb, limit) = (alloc.memory_mb() as i64, self.limit(&spec, partition));
        let (count, fixed) = (alloc.nodes().len() as i64, spec.time_limit_s.is_some());
        let values =
            params![id.0, attempt.0, time.0 as i64, partition, nodes, count, alloc.cpus(), memory_mb, fixed, limit];
        self.db.write(sql, values)?;
        if spec.kind != JobKind::Batch {
            return Ok(());
        }
        let first = alloc.nodes().first();
        let name = first.map_or(String::new(), |n| self.name(n));
        let cpus = first.and_then(|n| alloc.on(n)).map_or(0, |g| g.cores.len());
        self.insert_step(id, StepNo::BATCH, "batch", time, (&name, 1), (cpus as u32, 1), "")
    }

    /// Returns the specification of a job; None: the job has no row.
    fn spec(&self, id: JobId) -> rusqlite::Result<Option<Arc<JobSpec>>> {
        if let Some(spec) = self.recent.jobs.get(&id) {
            return Ok(Some(Arc::clone(spec)));
        }
        let sql = "SELECT s.body FROM jobs j JOIN specs s ON s.id = j.spec WHERE j.id = ?1 AND j.latest";
        let found = self.db.one(sql, params![id.0], |r| r.get::<Packed<JobSpec>>(0))?;
        Ok(found.map(|Packed(spec)| Arc::new(spec)))
    }

    #[expect(clippy::too_many_arguments, reason = "one for each column")]
    fn insert_step(
        &self,
        job: JobId,
        step: StepNo,
        name: &str,
        time: Time,
        (nodes, num_nodes): (&str, u32),
        (num_cpus, num_tasks): (u32, u32),
        submit_line: &str,
    ) -> SqlResult {
        let sql = "INSERT INTO steps (job, attempt, step, name, start, nodes, num_nodes, num_cpus, num_tasks, left, usage, submit_line)
            SELECT id, attempt, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?6, ?9, ?10 FROM jobs WHERE id = ?1 AND latest
            ON CONFLICT DO NOTHING";
        self.db.write(
            sql,
            params![
                job.0,
                step.0,
                name,
                time.0 as i64,
                nodes,
                num_nodes,
                num_cpus,
                num_tasks,
                Packed(Usage::default()),
                submit_line
            ],
        )
    }

    fn step_started(
        &self,
        time: Time,
        job: JobId,
        step: StepNo,
        spec: &StepSpec,
        alloc: &Alloc,
        layout: &Layout,
    ) -> SqlResult {
        let nodes = layout.nodes.as_str();
        let tasks = layout.ntasks();
        let cpus = if alloc.cpus() > 0 { alloc.cpus() } else { tasks.saturating_mul(layout.cpus_per_task.max(1)) };
        let num_nodes = layout.nodes.len() as u32;
        self.insert_step(job, step, &spec.name, time, (nodes, num_nodes), (cpus, tasks), &spec.submit_line)
    }

    fn step_nodes_ended(
        &self,
        (job, attempt, step): (JobId, Attempt, StepNo),
        nodes: u32,
        end: &StepEnd,
        cut: Option<EndState>,
    ) -> SqlResult {
        if end.exit.is_ok() && !end.oom && !end.lost && cut.is_none() {
            // Fast path: usually a step has one node and succeeds, so its row need not be read.
            let sql = "UPDATE steps SET left = 0, reason = ?4, usage = ?5, state = ?6, end = max(coalesce(end, 0), ?7)
                WHERE job = ?1 AND attempt = ?2 AND step = ?3 AND num_nodes = 1 AND left = 1 AND state = 1";
            let (how, _) = state_columns(JobState::Ended(EndState::Completed));
            let values = params![job.0, attempt.0, step.0, end.note, Packed(end.usage), how, end.ended.0 as i64];
            if self.db.execute(sql, values)? > 0 {
                return Ok(());
            }
        }
        let sql = "SELECT left, code, signal, oom, lost, reason, usage, state FROM steps WHERE job = ?1 AND attempt = ?2 AND step = ?3";
        let found = self.db.one(sql, params![job.0, attempt.0, step.0], |r| {
            let exit = ExitCode { code: r.get(1)?, signal: r.get(2)? };
            let flags: (bool, bool) = (r.get(3)?, r.get(4)?);
            Ok((
                r.get::<u32>(0)?,
                exit,
                flags,
                r.get::<Option<String>>(5)?,
                r.get::<Packed<Usage>>(6)?,
                r.get::<i64>(7)?,
            ))
        })?;
        let Some((left, exit, (oom, lost), reason, Packed(mut usage), state)) = found else { return Ok(()) };
        if left == 0 || state != 1 {
            return Ok(());
        }
        let left = left.saturating_sub(nodes);
        usage.absorb(&end.usage);
        let (oom, lost) = (oom || end.oom, lost || end.lost);
        let exit = exit.max(end.exit);
        let reason = reason.into_iter().chain(end.note.clone()).min();
        let by = if left == 0 && exit.signal > 0 { self.cancelled_by(job, attempt)? } else { None };
        let ended = JobState::Ended(StepEnd::step_state(exit, (oom, lost), cut, by));
        let how = if left > 0 { JobState::Running } else { ended };
        let (how, by) = state_columns(how);
        let shown = if oom && left == 0 { ExitCode::OUT_OF_MEMORY } else { exit };
        let sql = "UPDATE steps SET left = ?4, code = ?5, signal = ?6, oom = ?7, lost = ?8, reason = ?9, usage = ?10,
            state = ?11, state_by = ?13, end = CASE WHEN CAST(?4 AS BIGINT) = 0 THEN max(coalesce(end, 0), ?12) ELSE end END
            WHERE job = ?1 AND attempt = ?2 AND step = ?3";
        self.db.write(
            sql,
            params![
                job.0,
                attempt.0,
                step.0,
                left,
                shown.code,
                shown.signal,
                oom,
                lost,
                reason,
                Packed(usage),
                how,
                end.ended.0 as i64,
                by
            ],
        )
    }

    /// Returns the id of the user who cancelled an attempt. None: no user did.
    fn cancelled_by(&self, job: JobId, attempt: Attempt) -> rusqlite::Result<Option<u32>> {
        let sql = "SELECT state_by FROM jobs WHERE id = ?1 AND attempt = ?2 AND state >= 100";
        Ok(self.db.one(sql, params![job.0, attempt.0], |r| r.get(0))?.flatten())
    }

    fn step_ended(&self, time: Time, job: JobId, step: StepNo, outcome: &Outcome) -> SqlResult {
        let (state, by) = state_columns(JobState::Ended(outcome.state));
        let sql = "UPDATE steps SET state = ?3, state_by = ?4, code = ?5, signal = ?6, reason = ?7, end = ?8, left = 0
            WHERE job = ?1 AND step = ?2 AND attempt = (SELECT attempt FROM jobs WHERE id = ?1 AND latest)";
        let Outcome { exit, reason, .. } = outcome;
        let values = params![job.0, step.0, state, by, exit.code, exit.signal, reason, time.0 as i64];
        self.db.write(sql, values)
    }

    fn ending(&mut self, time: Time, id: JobId, outcome: &Outcome, requeue: bool) -> SqlResult {
        self.touch(id)?;
        // The first decision is kept, but a later one against a requeue counts.
        let sql =
            "UPDATE jobs SET state = ?2, state_by = ?3, code = ?4, signal = ?5, reason = ?6, end = ?7, requeue = ?8,
            suspended = suspended + CASE WHEN suspended_since IS NULL THEN 0 ELSE ?7 - suspended_since END,
            suspended_since = NULL
            WHERE id = ?1 AND latest AND (state < 100 OR (left > 0 AND requeue AND NOT ?8))
            RETURNING requeue AND left = 0";
        let (state, by) = state_columns(JobState::Ended(outcome.state));
        let Outcome { exit, reason, .. } = outcome;
        let values = params![id.0, state, by, exit.code, exit.signal, reason, time.0 as i64, requeue];
        self.requeue_perhaps(time, id, sql, values)
    }

    fn released(&mut self, time: Time, id: JobId, attempt: Attempt, nodes: &NodeSet) -> SqlResult {
        self.recent.jobs.remove(&id);
        let sql = "UPDATE jobs SET left = max(left - ?3, 0) WHERE id = ?1 AND attempt = ?2
            RETURNING latest AND requeue AND left = 0 AND state >= 100";
        self.requeue_perhaps(time, id, sql, params![id.0, attempt.0, nodes.len() as i64])
    }

    /// Runs the change `sql`. If no node holds the job afterwards, it is requeued, provided that this was decided
    /// before.
    fn requeue_perhaps(&self, time: Time, id: JobId, sql: &'static str, values: Params<'_>) -> SqlResult {
        let back: Option<bool> = self.db.one(sql, values, |r| r.get(0))?;
        if back == Some(true) { self.back_to_queue(time, id) } else { Ok(()) }
    }

    fn back_to_queue(&self, time: Time, id: JobId) -> SqlResult {
        let sql = "INSERT INTO jobs (id, attempt, latest, array, task, uid, owner, spec, name, partition, account, qos, submit, eligible, limit_s)
            SELECT id, attempt + 1, FALSE, array, task, uid, owner, spec, name, partition, account, qos, submit, ?2, limit_s
            FROM jobs WHERE id = ?1 AND latest ON CONFLICT DO NOTHING";
        self.db.write(sql, params![id.0, time.0 as i64])?;
        let sql = "UPDATE jobs SET latest = (attempt = (SELECT max(attempt) FROM jobs WHERE id = ?1)), requeue = FALSE WHERE id = ?1";
        self.db.write(sql, params![id.0])
    }

    fn tasks_ended(&mut self, number: u64, time: Time, array: JobId, tasks: &IndexSet, outcome: &Outcome) -> SqlResult {
        let Some(at_hand) = self.array(array)?.filter(|at_hand| at_hand.id == array) else { return Ok(()) };
        let ended = at_hand.pending.intersection(tasks);
        if ended.is_empty() {
            return Ok(());
        }
        at_hand.pending = at_hand.pending.difference(&ended);
        at_hand.written = false;
        let (state, by) = state_columns(JobState::Ended(outcome.state));
        let Outcome { exit, reason, .. } = outcome;
        // One record may end several sets of one array's tasks.
        let sql = "INSERT INTO array_ends (array, number, tasks, state, state_by, code, signal, reason, time)
            SELECT ?1, max(?2, coalesce((SELECT max(number) + 1 FROM array_ends WHERE array = ?1), 0)), ?3, ?4, ?5, ?6, ?7, ?8, ?9";
        let values =
            params![array.0, number as i64, Packed(ended), state, by, exit.code, exit.signal, reason, time.0 as i64];
        self.db.write(sql, values)
    }

    fn updated(&mut self, time: Time, id: JobId, change: &JobChange, whole: bool) -> SqlResult {
        self.recent.jobs.remove(&id);
        self.close_array()?;
        let (limit_sql, spec_sql) =
            if whole {
                (
                    "UPDATE arrays SET limit_s = ?2 WHERE id = ?1",
                    "UPDATE arrays SET spec = ?2, name = ?3, partition = ?4, account = ?5, qos = ?6 WHERE id = ?1",
                )
            } else {
                self.touch(id)?;
                ("UPDATE jobs SET limit_s = ?2 WHERE id = ?1 AND latest",
             "UPDATE jobs SET spec = ?2, name = ?3, partition = CASE WHEN start IS NULL THEN ?4 ELSE partition END,
                account = ?5, qos = ?6 WHERE id = ?1 AND latest")
            };
        if let Some(limit) = change.time_limit_s {
            self.db.write(limit_sql, params![id.0, limit.map(|s| s as i64)])?;
        }
        if change.independent == Some(true) {
            return self.may_start(time, id, whole, true);
        }
        let Some(spec) = &change.spec else { return Ok(()) };
        let row = self.shared(&**spec)?;
        let values = params![id.0, row, spec.name, self.partition(spec), self.account(spec), self.qos(spec)];
        self.db.write(spec_sql, values)
    }

    /// Makes a job eligible that was submitted held, or with a dependency that is `met`: now, or at its begin time.
    fn may_start(&mut self, time: Time, id: JobId, whole: bool, met: bool) -> SqlResult {
        let (spec_sql, sql): (_, &[_]) = if whole {
            (
                "SELECT s.body FROM arrays a JOIN specs s ON s.id = a.spec WHERE a.id = ?1",
                &[
                    "UPDATE jobs SET eligible = ?2 WHERE id BETWEEN ?1 AND (SELECT last FROM arrays WHERE id = ?1)
                        AND array = ?1 AND eligible = 0 AND state = 0",
                    "UPDATE arrays SET eligible = ?2 WHERE id = ?1 AND eligible = 0",
                ],
            )
        } else {
            self.touch(id)?;
            (
                "SELECT s.body FROM jobs j JOIN specs s ON s.id = j.spec WHERE j.id = ?1 AND j.latest",
                &["UPDATE jobs SET eligible = ?2 WHERE id = ?1 AND latest AND eligible = 0"],
            )
        };
        let spec = self.db.one(spec_sql, params![id.0], |r| r.get::<Packed<JobSpec>>(0))?;
        let Some(Packed(spec)) = spec.filter(|Packed(spec)| met || spec.dependency.is_none()) else { return Ok(()) };
        for sql in sql {
            self.db.write(sql, params![id.0, time.max(spec.begin.unwrap_or_default()).0 as i64])?;
        }
        Ok(())
    }

    pub(super) fn name(&self, node: NodeId) -> String {
        self.nodes.get(&node.0).cloned().unwrap_or_else(|| format!("node-{node}"))
    }

    pub(super) fn names(&self, nodes: &NodeSet) -> String {
        hostlist::compress(nodes.iter().map(|n| self.name(n)))
    }
}

/// Pages up to which SQLite's own log may grow: on a small disk it must leave room for the journal.
fn log_pages(path: &Path) -> i64 {
    let free = path.parent().map_or(0, free_bytes);
    (free / 32 / 4096).clamp(16, 4000) as i64
}

/// Whether an error is caused by the event's content: a retry would not help, and other events are unaffected.
pub(super) fn is_of_the_event(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{ConstraintViolation, TooBig, TypeMismatch};
    matches!(error.sqlite_error_code(), Some(ConstraintViolation | TooBig | TypeMismatch))
        || matches!(error, rusqlite::Error::ToSqlConversionFailure(_))
}
