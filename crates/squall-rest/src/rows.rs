//! Jobs and nodes as JSON, rendered once and again only when they change.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::Bytes;
use http_body::{Frame, SizeHint};
use squall_model::encoding;
use squall_model::wire::info::{JobInfo, JobsPage, NodeInfo};
use squall_text::format::clock::Clock;
use squall_text::format::job::{JobRow, rows};
use squall_text::shapes::{self, AnswerKind, Version};

use crate::users::name_of;

/// JSON of jobs and nodes by version, from the last time that all of them were rendered.
#[derive(Debug, Default)]
struct Rows {
    jobs: Mutex<HashMap<Version, RenderedRows<u32>>>,
    nodes: Mutex<HashMap<Version, RenderedRows<String>>>,
}

/// JSON of records by key, with a hash of what it was rendered from.
type RenderedRows<K> = HashMap<K, (u64, Bytes)>;

impl Rows {
    /// Returns the JSON of all jobs of a page.
    fn jobs(&self, version: Version, page: &JobsPage, cluster: &str) -> Vec<Bytes> {
        let known = take(&self.jobs, version);
        let shared = |list: &[u64], at: u32| list.get(at as usize).copied().unwrap_or_default();
        let specs: Vec<u64> = page.specs.iter().map(|spec| hash(&encoding::to_vec(&**spec))).collect();
        let owners: Vec<u64> = page.owners.iter().map(|owner| hash(&encoding::to_vec(&**owner))).collect();
        let classes: Vec<u64> = page.classes.iter().map(|class| hash(&encoding::to_vec(&**class))).collect();
        let key = |job: &JobInfo| {
            let own = JobInfo { spec: 0, owner: 0, class: 0, ..job.clone() };
            let shared = (shared(&specs, job.spec), shared(&owners, job.owner), shared(&classes, job.class));
            hash(&(encoding::to_vec(&own), shared))
        };
        let (mut rendered, mut all) =
            (RenderedRows::with_capacity(page.jobs.len()), Vec::with_capacity(page.jobs.len()));
        for row in job_rows(page, cluster) {
            let key = key(&row.info);
            let id = row.info.id.0;
            let bytes = match known.get(&id) {
                Some((same, bytes)) if *same == key => bytes.clone(),
                _ => shapes::record(version, AnswerKind::Jobs, shapes::job::job(&row)).into(),
            };
            all.push(bytes.clone());
            rendered.insert(id, (key, bytes));
        }
        put(&self.jobs, version, rendered);
        all
    }

    /// Returns the JSON of all nodes.
    fn nodes(&self, version: Version, nodes: &[NodeInfo], cluster: &str, user: &dyn Fn(u32) -> String) -> Vec<Bytes> {
        let known = take(&self.nodes, version);
        let (mut rendered, mut all) = (RenderedRows::with_capacity(nodes.len()), Vec::with_capacity(nodes.len()));
        for node in nodes {
            let key = hash(&encoding::to_vec(node));
            let bytes = match known.get(&node.name) {
                Some((same, bytes)) if *same == key => bytes.clone(),
                _ => shapes::record(version, AnswerKind::Nodes, shapes::node::node(node, cluster, user)).into(),
            };
            all.push(bytes.clone());
            rendered.insert(node.name.clone(), (key, bytes));
        }
        put(&self.nodes, version, rendered);
        all
    }
}

/// Returns the rows of a page of jobs.
pub(crate) fn job_rows(page: &JobsPage, cluster: &str) -> Vec<JobRow> {
    let (clock, cluster) = (Rc::new(Clock::here(page.now)), Rc::from(cluster));
    rows(page.clone(), &clock, &cluster, None).collect()
}

fn take<K>(all: &Mutex<HashMap<Version, RenderedRows<K>>>, version: Version) -> RenderedRows<K> {
    all.lock().unwrap_or_else(PoisonError::into_inner).remove(&version).unwrap_or_default()
}

fn put<K>(all: &Mutex<HashMap<Version, RenderedRows<K>>>, version: Version, rendered: RenderedRows<K>) {
    all.lock().unwrap_or_else(PoisonError::into_inner).insert(version, rendered);
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Joins records, separated by commas.
pub(crate) fn joined(records: &[Bytes]) -> Bytes {
    let length: usize = records.iter().map(|record| record.len() + 1).sum();
    let mut all = Vec::with_capacity(length);
    for (at, record) in records.iter().enumerate() {
        if at > 0 {
            all.push(b',');
        }
        all.extend_from_slice(record);
    }
    all.into()
}

/// The body of an answer in pieces, which answers may share.
#[derive(Debug)]
pub(crate) struct Pieces {
    left: VecDeque<Bytes>,
}

impl Pieces {
    pub(crate) fn of(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        Self { left: pieces.into_iter().filter(|piece| !piece.is_empty()).collect() }
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.left.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.iter().map(|piece| piece.len() as u64).sum())
    }
}

/// All jobs and nodes as JSON, in the versions in which they were asked for.
#[derive(Debug, Default)]
pub(crate) struct Records {
    rows: Rows,
    jobs: RecordsByVersion<JobsPage>,
    nodes: RecordsByVersion<Vec<NodeInfo>>,
}

impl Records {
    /// Returns the records of all jobs, separated by commas.
    pub(crate) fn of_jobs(&self, version: Version, jobs: &Arc<JobsPage>, cluster: &str) -> Bytes {
        known(&self.jobs, version, jobs).unwrap_or_else(|| {
            let records = joined(&self.rows.jobs(version, jobs, cluster));
            lock(&self.jobs).insert(version, (Arc::clone(jobs), records.clone()));
            records
        })
    }

    /// Returns the records of all nodes, separated by commas.
    pub(crate) fn of_nodes(&self, version: Version, nodes: &Arc<Vec<NodeInfo>>, cluster: &str) -> Bytes {
        known(&self.nodes, version, nodes).unwrap_or_else(|| {
            let records = joined(&self.rows.nodes(version, nodes, cluster, &name_of));
            lock(&self.nodes).insert(version, (Arc::clone(nodes), records.clone()));
            records
        })
    }

    /// Makes the records of jobs that were just read, so that no request waits for that.
    pub(crate) fn renew_jobs(&self, jobs: &Arc<JobsPage>, cluster: &str) {
        let versions: Vec<Version> = lock(&self.jobs).keys().copied().collect();
        for version in versions {
            self.of_jobs(version, jobs, cluster);
        }
    }

    /// Makes the records of nodes that were just read, so that no request waits for that.
    pub(crate) fn renew_nodes(&self, nodes: &Arc<Vec<NodeInfo>>, cluster: &str) {
        let versions: Vec<Version> = lock(&self.nodes).keys().copied().collect();
        for version in versions {
            self.of_nodes(version, nodes, cluster);
        }
    }
}

/// Records by version, with the part of which they were made.
type RecordsByVersion<T> = Mutex<HashMap<Version, (Arc<T>, Bytes)>>;

fn lock<T>(made: &RecordsByVersion<T>) -> std::sync::MutexGuard<'_, HashMap<Version, (Arc<T>, Bytes)>> {
    made.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the records that were made of this part. None: the last ones were made of another.
fn known<T>(made: &RecordsByVersion<T>, version: Version, part: &Arc<T>) -> Option<Bytes> {
    let made = lock(made);
    let (of, records) = made.get(&version)?;
    Arc::ptr_eq(of, part).then(|| records.clone())
}
