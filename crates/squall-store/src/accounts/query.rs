//! Answers the queries of `sacct`: rows in the order of job ids, in pages. Every condition is a bound value or a
//! comparison in this module.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use rusqlite::params;
use squall_model::hostlist;
use squall_model::id::{Attempt, JobId, StepNo};
use squall_model::job::{ArrayTask, EndState, ExitCode, Het, JobSpec, JobState, Owner, Usage};
use squall_model::limits::FRAME_BYTES_MAX;
use squall_model::set::IndexSet;
use squall_model::time::Time;
use squall_model::wire::client::{AccountingQuery, JobRef, StateFilter};
use squall_model::wire::info::AccountingRow;

use super::book::blocks::BLOCK_BITS;
use super::book::{Book, GENERATION};
use super::encode::{Packed, req_cpus, state_of};
use super::rescue::Lost;
use super::series;
use super::tables::{Row, Tables};

/// Rows of one page, at most.
const PAGE_ROWS: usize = 512;
/// Estimated bytes of one page, at most: with one more row of any length it still fits into a frame.
pub(super) const PAGE_BYTES: usize = FRAME_BYTES_MAX / 4;
/// Bytes of a row without its texts.
const ROW_BYTES: usize = 512;
/// Bytes of a lost node.
const LOSS_BYTES: usize = 48;
/// Bytes of a point of a step's usage over time.
const POINT_BYTES: usize = 64;
/// Number of jobs read from the database at once.
const CHUNK: i64 = 1024;
/// Number of jobs that take as long to read as it takes to begin with other ids.
const SPAN_ROWS: i64 = 4;
/// All ids of jobs and arrays.
const EVERYTHING: (i64, i64) = (i64::MIN, i64::MAX);

const JOBS: &str = "SELECT id, attempt, array, task, owner, spec, name, partition, account, qos, state, state_by, code,
    signal, reason, submit, eligible, start, end, suspended, limit_s, nodes, num_nodes, num_cpus, memory_mb, left, uid
    FROM jobs
    WHERE (id, attempt) > (?1, ?2) AND id <= ?3 AND (latest OR ?4)
    AND (CAST(?5 AS BIGINT) IS NULL OR submit <= ?5) AND (CAST(?6 AS BIGINT) IS NULL OR end IS NULL OR end >= ?6)
    ORDER BY id, attempt LIMIT ?7";

const ARRAYS: &str = "SELECT id, owner, spec, name, partition, account, qos, submit, eligible, limit_s, pending, uid
    FROM arrays WHERE id > ?2 AND id <= ?5 AND (id >= 0 OR ?4) AND (CAST(?1 AS BIGINT) IS NULL OR submit <= ?1) ORDER BY id LIMIT ?3";

/// Returns the last id that belongs to the array or heterogeneous job ?1; NULL: it is neither.
const LAST: &str = "SELECT max(last) FROM (SELECT last FROM arrays WHERE id = ?1
    UNION ALL SELECT leader + size - 1 FROM hets WHERE leader = ?1) AS found";

/// Returns the blocks of ids of jobs and arrays that may have rows of the time since ?1 and until ?3; ?2: an array of
/// which all tasks have rows.
const SINCE: &str = "SELECT block FROM blocks WHERE last >= ?1 AND (CAST(?3 AS BIGINT) IS NULL OR first <= ?3)
    UNION ALL SELECT id >> 8 FROM jobs WHERE end IS NULL UNION ALL SELECT id >> 8 FROM arrays WHERE pending <> ?2
    UNION ALL SELECT e.array >> 8 FROM array_ends AS e WHERE e.time >= ?1 AND (CAST(?3 AS BIGINT) IS NULL
        OR EXISTS (SELECT 1 FROM arrays AS a WHERE a.id = e.array AND a.submit <= ?3))";

const ENDS: &str =
    "SELECT tasks, state, state_by, code, signal, reason, time FROM array_ends WHERE array = ?1 ORDER BY number";

const STEPS: &str = "SELECT step, name, state, state_by, code, signal, reason, start, end, nodes, num_nodes, num_cpus,
    num_tasks, usage, submit_line FROM steps WHERE job = ?1 AND attempt = ?2 ORDER BY step";

/// What the job line needs of steps.
const USED: &str = "SELECT step, code, signal, usage FROM steps WHERE job = ?1 AND attempt = ?2";

/// A step: its number, its exit code, and what it used.
type Used = (StepNo, ExitCode, Usage);

/// Receives rows, whether more follow, and the jobs with rows that may be missing.
type Taker<'a> = dyn FnMut(Vec<AccountingRow>, bool, Vec<(JobId, JobId)>) + 'a;

/// Progress of the answer to a query.
#[derive(Debug)]
pub(super) struct Course {
    query: Box<AccountingQuery>,
    /// Names of the nodes asked for; None: any.
    nodes: Option<BTreeSet<String>>,
    /// The jobs that the query names as such; the others of its ids are tasks and components.
    named: BTreeSet<JobId>,
    /// Ids that are still to be read: first and last ones, in order. All rows of what the query names are within.
    spans: VecDeque<(i64, i64)>,
    /// The last job that was handled: id and number of the attempt.
    after: (i64, i64),
    /// The id of the last array that was handled.
    arrays_after: i64,
    /// Whether the database was damaged during this answer, and was rebuilt.
    anew: bool,
}

impl Course {
    pub(super) fn new(book: &Book, query: Box<AccountingQuery>) -> Self {
        let list = |list: &String| hostlist::expand_within(list, book.nodes()).unwrap_or_default();
        let nodes = query.nodes.as_ref().map(|text| list(text).into_iter().collect());
        let job = |id: &JobRef| if let JobRef::Job(id) = id { Some(*id) } else { None };
        let named = query.ids.iter().filter_map(job).collect();
        let spans = spans(book, &query).unwrap_or_else(|| VecDeque::from([EVERYTHING]));
        let mut course = Self { query, nodes, named, spans, after: (0, 0), arrays_after: 0, anew: false };
        course.begin_span();
        course
    }

    /// Makes an answer with all rows of the jobs and arrays whose ids, as they are stored, are in these ranges.
    pub(super) fn over(book: &Book, spans: VecDeque<(i64, i64)>) -> Self {
        let query = Box::new(AccountingQuery { duplicates: true, ..AccountingQuery::default() });
        let mut course = Self { spans, ..Self::new(book, query) };
        course.begin_span();
        course
    }

    /// Returns the first and last ids that are still to be read.
    #[cfg(test)]
    pub(super) fn spans(&self) -> impl Iterator<Item = (i64, i64)> {
        self.spans.iter().copied()
    }

    /// Goes to the beginning of the ids that are to be read next.
    fn begin_span(&mut self) {
        let Some((first, _)) = self.spans.front() else { return };
        (self.after, self.arrays_after) = ((first.saturating_sub(1), i64::MAX), first.saturating_sub(1));
    }

    /// Returns whether the answer may continue from a database that was rebuilt. It may once: on a failing disk
    /// repeated attempts would never end.
    pub(super) fn may_continue(&mut self) -> bool {
        !std::mem::replace(&mut self.anew, true)
    }

    /// Returns the jobs that may match the query and have rows that may be missing.
    fn lost(&self, book: &Book) -> Vec<(JobId, JobId)> {
        let query = &self.query;
        let named = |lost: &Lost, id: &JobRef| match id {
            JobRef::Job(id) | JobRef::Component(id, _) | JobRef::Tasks(id, _) => (lost.first..=lost.last).contains(id),
        };
        let mut lost = book.lost().unwrap_or_default();
        lost.retain(|lost| {
            (query.ids.is_empty() || query.ids.iter().any(|id| named(lost, id)))
                && query.start.is_none_or(|start| lost.until >= start)
                && query.end.is_none_or(|end| lost.since <= end)
        });
        lost.into_iter().map(|lost| (lost.first, lost.last)).collect()
    }

    /// Passes the next rows that match the query to `send`, page by page. True: the answer is complete, as the last
    /// page indicates.
    pub(super) fn go_on(&mut self, book: &Book, send: &mut Taker<'_>) -> rusqlite::Result<bool> {
        let mut page = Page { rows: Vec::new(), bytes: 0, send };
        let mut looked_at = 0;
        while looked_at < CHUNK
            && let Some((_, last)) = self.spans.front()
        {
            let mut reader = Reader::new(book, self);
            let (jobs, read) = reader.jobs(*last)?;
            let (mut arrays, arrays_up_to) = reader.arrays(*last)?;
            let full = read == CHUNK;
            let up_to = jobs.last().filter(|_| full).map_or(i64::MAX, |last| i64::from(last.id.0)).min(arrays_up_to);
            let mut after = self.after;
            for job in jobs.into_iter().take_while(|job| i64::from(job.id.0) <= up_to) {
                // An array is sorted by its id, before its tasks.
                while let Some(array) = arrays.pop_front_if(|a| a.sort <= i64::from(job.id.0)) {
                    reader.add(array, &mut page);
                }
                after = (i64::from(job.id.0), job.sort);
                reader.add_job(job, &mut page)?;
            }
            while let Some(array) = arrays.pop_front_if(|a| a.sort <= up_to) {
                reader.add(array, &mut page);
            }
            (self.after, self.arrays_after) = (after, up_to);
            if up_to == i64::MAX {
                self.spans.pop_front();
                self.begin_span();
            }
            looked_at += read + SPAN_ROWS;
        }
        let done = self.spans.is_empty();
        if done || !page.rows.is_empty() {
            (page.send)(page.rows, !done, if done { self.lost(book) } else { Vec::new() });
        }
        Ok(done)
    }
}

/// Returns the ids within which all rows are that the query asks for, in order and apart. None: they may be anywhere.
fn spans(book: &Book, query: &AccountingQuery) -> Option<VecDeque<(i64, i64)>> {
    // Rows of earlier jobs with these ids are sorted elsewhere.
    if query.duplicates {
        return None;
    }
    let found = if query.ids.is_empty() { since(book, query.start?, query.end) } else { named(book, &query.ids) };
    let mut spans: VecDeque<(i64, i64)> = VecDeque::new();
    for (first, last) in found.ok()?? {
        match spans.back_mut() {
            Some((_, end)) if first <= *end + 1 => *end = last.max(*end),
            _ => spans.push_back((first, last)),
        }
    }
    Some(spans)
}

/// Ids of jobs and arrays: first and last ones, in order. None: of any.
type Ids = rusqlite::Result<Option<BTreeSet<(i64, i64)>>>;

/// Returns the ids of the named jobs, their tasks and components.
fn named(book: &Book, ids: &[JobRef]) -> Ids {
    // Where rows are missing, those of arrays may be.
    if !book.lost()?.is_empty() {
        return Ok(None);
    }
    let mut found = BTreeSet::new();
    for id in ids {
        let (JobRef::Job(id) | JobRef::Component(id, _) | JobRef::Tasks(id, _)) = id;
        let last = book.db.one(LAST, params![id.0], |r| r.get::<Option<i64>>(0))?.flatten();
        found.insert((i64::from(id.0), last.unwrap_or_else(|| i64::from(id.0))));
    }
    Ok(Some(found))
}

/// Returns ids among which all jobs are that existed at a time or later, and not after another time. None: there is no
/// such time.
fn since(book: &Book, start: Time, end: Option<Time>) -> Ids {
    let end = end.map(|end| end.0 as i64);
    let (mut blocks, mut previous) = (BTreeSet::new(), None);
    book.db.stream(SINCE, params![start.0 as i64, Packed(IndexSet::default()), end], |row| {
        let block: i64 = row.get(0)?;
        if previous.replace(block) != Some(block) {
            blocks.insert(block);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let ids = |block| (block << BLOCK_BITS, ((block + 1) << BLOCK_BITS) - 1);
    Ok(Some(blocks.into_iter().map(ids).collect()))
}

/// The page being filled; full pages are sent.
struct Page<'a, 'b> {
    rows: Vec<AccountingRow>,
    bytes: usize,
    send: &'a mut Taker<'b>,
}

impl Page<'_, '_> {
    fn push(&mut self, row: AccountingRow) {
        let bytes = row_bytes(&row);
        let full = self.rows.len() >= PAGE_ROWS || self.bytes + bytes > PAGE_BYTES;
        if full && !self.rows.is_empty() {
            (self.send)(std::mem::take(&mut self.rows), true, Vec::new());
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.rows.push(row);
    }
}

/// Returns the bytes of a row in a frame: its own texts, and the values shared with other rows, which are sent with
/// each.
fn row_bytes(row: &AccountingRow) -> usize {
    let tasks = row.pending_tasks.as_ref().map_or(0, |tasks| tasks.ranges().len() * 10);
    let texts = [&row.name, &row.partition, &row.account, &row.qos, &row.nodes, &row.submit_line];
    let texts: usize = texts.into_iter().chain(&row.reason).map(String::len).sum();
    let losses = row.losses.as_ref().map_or(0, |losses| losses.losses.len() * LOSS_BYTES);
    ROW_BYTES
        + tasks
        + losses
        + row.series.as_ref().map_or(0, |series| series.points.len() * POINT_BYTES)
        + texts
        + row.spec.bytes()
        + row.owner.groups.len() * 5
        + row.owner.user.len()
        + row.owner.group.len()
}

/// A row being made: of a job, or of an array's tasks that never started.
struct Draft {
    id: JobId,
    /// Sort key: the attempt's number, which a requeued job has before its next start; for an array, its id as stored.
    sort: i64,
    uid: u32,
    row: AccountingRow,
    left: u32,
}

struct Reader<'a> {
    book: &'a Book,
    query: &'a AccountingQuery,
    specs: HashMap<i64, Arc<JobSpec>>,
    owners: HashMap<i64, Arc<Owner>>,
    course: &'a Course,
    /// Whether there are heterogeneous jobs.
    hets: bool,
    /// Whether jobs have lost nodes.
    losses: bool,
    /// Whether jobs were billed by weights.
    billed: bool,
}

impl<'a> Reader<'a> {
    fn new(book: &'a Book, course: &'a Course) -> Self {
        let (specs, owners) = (HashMap::new(), HashMap::new());
        let any = |sql| book.db.one(sql, &[], |r| r.get(0)).ok().flatten().unwrap_or_default();
        let hets = any("SELECT EXISTS (SELECT 1 FROM hets)");
        let losses = any("SELECT EXISTS (SELECT 1 FROM losses)");
        let billed = any("SELECT EXISTS (SELECT 1 FROM billed)");
        Self { book, query: &course.query, course, specs, owners, hets, losses, billed }
    }

    /// Reads the next jobs with ids up to `last`. Returns also how many rows were read, with damaged ones.
    fn jobs(&mut self, last: i64) -> rusqlite::Result<(Vec<Draft>, i64)> {
        // With states, a job matches if it was in one of them within the time asked for; `in_time` checks that.
        let end = self.query.end.map(|t| t.0 as i64);
        let start = self.query.start.map(|t| t.0 as i64);
        let (id, attempt) = self.course.after;
        let values = params![id, attempt, last, self.query.duplicates, end, start, CHUNK];
        let (mut found, mut read) = (Vec::new(), 0);
        self.book.db.each(JOBS, values, |row| {
            read += 1;
            found.extend(sensible(self.job(row))?);
            Ok(())
        })?;
        Ok((found, read))
    }

    fn job(&mut self, r: &Row<'_>) -> rusqlite::Result<Draft> {
        let spec = self.spec(r.get(5)?)?;
        let start = time(r, 17)?;
        let sort: i64 = r.get(1)?;
        let (left, num_nodes): (u32, u32) = (r.get(25)?, r.get(22)?);
        let id = JobId(r.get(0)?);
        let task = match (r.get::<Option<u32>>(2)?, r.get::<Option<u32>>(3)?) {
            (Some(array), Some(index)) => Some(ArrayTask { array: JobId(array), index }),
            _ => None,
        };
        let num_nodes = if start.is_some() { num_nodes } else { spec.need.nodes_min.unwrap_or(1) };
        let partition: String = r.get(7)?;
        let billing = if self.billed { self.book.billed(id, sort)? } else { None };
        let weighs = billing.is_some() || start.is_none();
        let req_billing = weighs.then(|| self.book.would_bill(&partition, &spec, req_cpus(&spec))).flatten();
        let row = AccountingRow {
            id,
            task,
            pending_tasks: None,
            attempt: Attempt(if start.is_some() { sort.rem_euclid(GENERATION) as u32 } else { 0 }),
            step: None,
            owner: self.owner(r.get(4)?)?,
            name: r.get(6)?,
            partition,
            account: r.get(8)?,
            qos: r.get(9)?,
            state: state(r, 10, 11)?,
            exit: ExitCode { code: r.get(12)?, signal: r.get(13)? },
            derived_exit: ExitCode::OK,
            reason: r.get(14)?,
            submit: time(r, 15)?.unwrap_or_default(),
            eligible: time(r, 16)?.unwrap_or_default(),
            start,
            end: time(r, 18)?,
            suspended_s: r.get::<i64>(19)? as u64 / 1_000_000,
            time_limit_s: r.get::<Option<i64>>(20)?.map(|s| s as u64),
            nodes: r.get(21)?,
            num_nodes,
            num_cpus: r.get(23)?,
            req_cpus: req_cpus(&spec),
            num_tasks: spec.need.tasks_on(num_nodes),
            memory_mb: r.get::<i64>(24)? as u64,
            usage: Usage::default(),
            submit_line: spec.submit_line.clone(),
            spec,
            het: self.het(id)?,
            losses: if self.losses { self.book.losses(id, sort.rem_euclid(GENERATION))? } else { None },
            series: None,
            billing,
            req_billing,
        };
        Ok(Draft { id, sort, uid: r.get(26)?, row, left })
    }

    /// Returns the heterogeneous job of which the job `id` is a component. None: it is no component.
    fn het(&self, id: JobId) -> rusqlite::Result<Option<Het>> {
        if !self.hets {
            return Ok(None);
        }
        let sql = "SELECT leader, size FROM hets WHERE leader <= ?1 ORDER BY leader DESC LIMIT 1";
        let found = self.book.db.one(sql, params![id.0], |r| Ok(Het { leader: JobId(r.get(0)?), size: r.get(1)? }))?;
        Ok(found.filter(|het| het.offset(id) < het.size))
    }

    /// Returns rows for array tasks without rows of their own, pending or ended before they started, and the id up to
    /// which these are complete. `last`: arrays with higher ids are not read.
    fn arrays(&mut self, last: i64) -> rusqlite::Result<(VecDeque<Draft>, i64)> {
        let end = self.query.end.map(|t| t.0 as i64);
        let values = params![end, self.course.arrays_after, CHUNK, self.query.duplicates, last];
        let (mut found, mut seen, mut read) = (VecDeque::new(), 0, i64::MAX);
        self.book.db.each(ARRAYS, values, |r| {
            seen += 1;
            read = r.get(0)?;
            if let Some(waiting) = sensible(self.array(r))? {
                found.extend(self.array_ends(&waiting)?);
                if waiting.row.pending_tasks.as_ref().is_some_and(|tasks| !tasks.is_empty()) {
                    found.push_back(waiting);
                }
            }
            Ok(())
        })?;
        Ok((found, if seen == CHUNK { read } else { i64::MAX }))
    }

    fn array(&mut self, r: &Row<'_>) -> rusqlite::Result<Draft> {
        let spec = self.spec(r.get(2)?)?;
        let sort: i64 = r.get(0)?;
        let id = JobId(sort.rem_euclid(GENERATION) as u32);
        let num_nodes = spec.need.nodes_min.unwrap_or(1);
        let partition: String = r.get(4)?;
        let row = AccountingRow {
            id,
            task: None,
            pending_tasks: Some(r.get::<Packed<IndexSet>>(10)?.0),
            attempt: Attempt(0),
            step: None,
            owner: self.owner(r.get(1)?)?,
            name: r.get(3)?,
            req_billing: self.book.would_bill(&partition, &spec, req_cpus(&spec)),
            billing: None,
            partition,
            account: r.get(5)?,
            qos: r.get(6)?,
            state: JobState::Pending,
            exit: ExitCode::OK,
            derived_exit: ExitCode::OK,
            reason: None,
            submit: time(r, 7)?.unwrap_or_default(),
            eligible: time(r, 8)?.unwrap_or_default(),
            start: None,
            end: None,
            suspended_s: 0,
            time_limit_s: r.get::<Option<i64>>(9)?.map(|s| s as u64),
            nodes: String::new(),
            num_nodes,
            num_cpus: 0,
            req_cpus: req_cpus(&spec),
            num_tasks: spec.need.tasks_on(num_nodes),
            memory_mb: 0,
            usage: Usage::default(),
            submit_line: spec.submit_line.clone(),
            spec,
            het: None,
            losses: None,
            series: None,
        };
        Ok(Draft { id, sort, uid: r.get(11)?, row, left: 0 })
    }

    fn array_ends(&self, array: &Draft) -> rusqlite::Result<Vec<Draft>> {
        self.book.db.all(ENDS, params![array.sort], |r| {
            let row = AccountingRow {
                pending_tasks: Some(r.get::<Packed<IndexSet>>(0)?.0),
                state: state(r, 1, 2)?,
                exit: ExitCode { code: r.get(3)?, signal: r.get(4)? },
                reason: r.get(5)?,
                end: time(r, 6)?,
                ..array.row.clone()
            };
            Ok(Draft { id: array.id, sort: array.sort, uid: array.uid, row, left: 0 })
        })
    }

    fn add_job(&self, job: Draft, page: &mut Page<'_, '_>) -> rusqlite::Result<()> {
        let mut job = job;
        if job.left > 0
            && let JobState::Ended(how) = job.row.state
        {
            job.row.state = JobState::Completing(how);
        }
        if !self.fits(&job) {
            return Ok(());
        }
        // Most lists are of jobs alone.
        let jobs_alone = self.query.allocations_only && self.query.step.is_none();
        let steps = if jobs_alone { Vec::new() } else { self.steps(&job.row, job.sort)? };
        let used: Vec<Used> = if jobs_alone {
            self.used(job.id, job.sort)?
        } else {
            steps.iter().filter_map(|step| Some((step.step?, step.exit, step.usage))).collect()
        };
        for (number, exit, usage) in &used {
            job.row.usage.absorb(usage);
            if *number != StepNo::BATCH {
                job.row.derived_exit = job.row.derived_exit.max(*exit);
            }
        }
        job.row.usage.energy_j = energy(&used);
        if let Some(exit) = job.row.spec.options.notes.derived_exit {
            job.row.derived_exit = exit;
        }
        if self.query.step.is_none() {
            page.push(job.row);
        }
        let asked = |step: &AccountingRow| self.query.step.is_none_or(|no| step.step == Some(no));
        if !self.query.allocations_only {
            steps.into_iter().filter(asked).for_each(|step| page.push(step));
        }
        Ok(())
    }

    fn add(&self, draft: Draft, page: &mut Page<'_, '_>) {
        if self.query.step.is_none() && self.fits(&draft) {
            page.push(draft.row);
        }
    }

    /// Returns what the steps of an attempt have used, without the rest of their rows.
    fn used(&self, job: JobId, attempt: i64) -> rusqlite::Result<Vec<Used>> {
        let mut found = Vec::new();
        self.book.db.each(USED, params![job.0, attempt], |r| {
            let used = || {
                let exit = ExitCode { code: r.get(1)?, signal: r.get(2)? };
                Ok((StepNo(r.get(0)?), exit, r.get::<Packed<Usage>>(3)?.0))
            };
            found.extend(sensible(used())?);
            Ok(())
        })?;
        Ok(found)
    }

    fn steps(&self, job: &AccountingRow, attempt: i64) -> rusqlite::Result<Vec<AccountingRow>> {
        let mut found = Vec::new();
        self.book.db.each(STEPS, params![job.id.0, attempt], |r| {
            found.extend(sensible(step(job, r))?);
            Ok(())
        })?;
        // The script comes first. SQLite would make a table for that order, for each job.
        found.sort_by_key(|step| step.step.is_some_and(|number| number < StepNo::BATCH));
        if self.query.series {
            for step in &mut found {
                let number = step.step.unwrap_or(StepNo::BATCH);
                step.series =
                    sensible(series::read(&self.book.db, job.id, attempt.rem_euclid(GENERATION), number))?.flatten();
            }
        }
        Ok(found)
    }

    fn fits(&self, draft: &Draft) -> bool {
        let (query, row) = (self.query, &draft.row);
        let any = |list: &[String], value: &str| list.is_empty() || list.iter().any(|v| v == value);
        (query.ids.is_empty() || self.is_named(row))
            && (query.users.is_empty() || query.users.contains(&draft.uid))
            && any(&query.names, &row.name)
            && any(&query.partitions, &row.partition)
            && any(&query.accounts, &row.account)
            && self.in_time(row)
            && self.on_nodes(row)
    }

    fn is_named(&self, row: &AccountingRow) -> bool {
        let named = &self.course.named;
        let of = [row.task.map(|task| task.array), row.het.map(|het| het.leader)];
        named.contains(&row.id)
            || of.into_iter().flatten().any(|id| named.contains(&id))
            || self.query.ids.iter().any(|id| is_part(row, id))
    }

    fn on_nodes(&self, row: &AccountingRow) -> bool {
        let Some(asked) = &self.course.nodes else { return true };
        hostlist::expand(&row.nodes).is_ok_and(|names| names.iter().any(|n| asked.contains(n)))
    }

    /// Whether the job existed, or was in one of the states asked for, within the time asked for. As in Slurm, a job is
    /// pending from the time on when it became eligible.
    fn in_time(&self, row: &AccountingRow) -> bool {
        let from = self.query.start.unwrap_or_default();
        let to = self.query.end.unwrap_or(Time(u64::MAX));
        let within = |since: Option<Time>, until: Option<Time>| {
            since.is_some_and(|since| since <= to && until.is_none_or(|until| until >= from))
        };
        let eligible = Some(row.eligible).filter(|time| *time > Time::default());
        if self.query.states.is_empty() {
            // A range with an end is one of eligible jobs, unless jobs are named.
            let by_submit = self.query.end.is_none() || !self.query.ids.is_empty();
            return within(if by_submit { Some(row.submit) } else { eligible }, row.end);
        }
        self.query.states.iter().any(|state| match state {
            StateFilter::Pending => within(eligible, row.start.or(row.end)),
            StateFilter::Running => within(row.start, row.end),
            StateFilter::Suspended => row.state == JobState::Suspended,
            StateFilter::Completing => matches!(row.state, JobState::Completing(_)),
            StateFilter::Never | StateFilter::Configuring | StateFilter::SpecialExit => false,
            how => is_end(*how, row.state) && within(row.end, row.end),
        })
    }

    fn spec(&mut self, id: i64) -> rusqlite::Result<Arc<JobSpec>> {
        shared(&self.book.db, &mut self.specs, "SELECT body FROM specs WHERE id = ?1", id)
    }

    fn owner(&mut self, id: i64) -> rusqlite::Result<Arc<Owner>> {
        shared(&self.book.db, &mut self.owners, "SELECT body FROM owners WHERE id = ?1", id)
    }
}

/// Returns the joules of a job: those of its steps one after another, or of its script if it took more, as its steps ran
/// meanwhile. None: they were not measured.
fn energy(steps: &[Used]) -> Option<u64> {
    let sum = |script: bool| {
        let steps = steps.iter().filter(|(number, ..)| (*number == StepNo::BATCH) == script);
        steps.filter_map(|(.., usage)| usage.energy_j).reduce(u64::saturating_add)
    };
    sum(true).max(sum(false))
}

/// Returns the content of a row. None: the row is damaged, and is left out.
fn sensible<T>(row: rusqlite::Result<T>) -> rusqlite::Result<Option<T>> {
    match row {
        Err(error) if error.sqlite_error_code().is_none() => Ok(None),
        row => row.map(Some),
    }
}

fn step(job: &AccountingRow, r: &Row<'_>) -> rusqlite::Result<AccountingRow> {
    Ok(AccountingRow {
        step: Some(StepNo(r.get(0)?)),
        name: r.get(1)?,
        state: state(r, 2, 3)?,
        exit: ExitCode { code: r.get(4)?, signal: r.get(5)? },
        derived_exit: ExitCode::OK,
        reason: r.get(6)?,
        submit: time(r, 7)?.unwrap_or_default(),
        eligible: time(r, 7)?.unwrap_or_default(),
        start: time(r, 7)?,
        end: time(r, 8)?,
        suspended_s: 0,
        time_limit_s: None,
        nodes: r.get(9)?,
        num_nodes: r.get(10)?,
        num_cpus: r.get(11)?,
        req_cpus: r.get(11)?,
        num_tasks: r.get(12)?,
        usage: r.get::<Packed<Usage>>(13)?.0,
        submit_line: r.get(14)?,
        losses: None,
        series: None,
        billing: None,
        req_billing: None,
        ..job.clone()
    })
}

/// Returns a value that many rows share; it is read from the database once.
fn shared<T: squall_model::encoding::Decoded>(
    db: &Tables,
    known: &mut HashMap<i64, Arc<T>>,
    sql: &'static str,
    id: i64,
) -> rusqlite::Result<Arc<T>> {
    const KEPT: usize = 1024;
    if let Some(value) = known.get(&id) {
        return Ok(Arc::clone(value));
    }
    let found = db.one(sql, params![id], |r| r.get::<Packed<T>>(0))?;
    let Packed(value) = found.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let value = Arc::new(value);
    if known.len() >= KEPT {
        known.clear();
    }
    known.insert(id, Arc::clone(&value));
    Ok(value)
}

/// Whether a row is of these tasks of an array, or of this component.
fn is_part(row: &AccountingRow, id: &JobRef) -> bool {
    match id {
        JobRef::Job(_) => false,
        JobRef::Component(leader, offset) => {
            row.het.is_some_and(|het| het.leader == *leader && het.offset(row.id) == *offset)
        }
        JobRef::Tasks(array, tasks) => match (&row.pending_tasks, row.task) {
            (Some(pending), _) => row.id == *array && !pending.intersection(tasks).is_empty(),
            (None, Some(task)) => task.array == *array && tasks.contains(task.index),
            (None, None) => false,
        },
    }
}

fn is_end(filter: StateFilter, state: JobState) -> bool {
    let (JobState::Ended(how) | JobState::Completing(how)) = state else { return false };
    let wanted = match how {
        EndState::Completed => StateFilter::Completed,
        EndState::Failed => StateFilter::Failed,
        EndState::Cancelled { .. } => StateFilter::Cancelled,
        EndState::Timeout => StateFilter::Timeout,
        EndState::NodeFail => StateFilter::NodeFail,
        EndState::OutOfMemory => StateFilter::OutOfMemory,
        EndState::Preempted => StateFilter::Preempted,
        EndState::Deadline => StateFilter::Deadline,
        EndState::BootFail => StateFilter::BootFail,
        EndState::Requeued => StateFilter::Requeued,
    };
    filter == wanted
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Time>> {
    Ok(row.get::<Option<i64>>(column)?.map(|us| Time(us as u64)))
}

fn state(row: &Row<'_>, number: usize, by: usize) -> rusqlite::Result<JobState> {
    let (value, by) = (row.get::<i64>(number)?, row.get(by)?);
    state_of(value, by).ok_or(rusqlite::Error::IntegralValueOutOfRange(number, value))
}
