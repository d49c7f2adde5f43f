//! Pages of a job list. Each is as large as a frame allows and contains values that several jobs share only once.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::id::JobId;
use squall_model::job::{JobSpec, Owner};
use squall_model::limits::FRAME_BYTES_MAX;
use squall_model::time::Time;
use squall_model::wire::info::{JobClass, JobInfo, JobsPage, RunInfo};

/// Maximum size of a page by estimate, bytes; well below the limit of a frame.
const PAGE_BYTES_MAX: usize = FRAME_BYTES_MAX / 4;
/// Smallest size of a job in a page by estimate, bytes.
const JOB_BYTES: usize = 256;

/// A job of a list page, with the values that the jobs of a page share.
pub(crate) struct Row<'a> {
    /// The job; [`Pages::push`] sets `spec`, `owner` and `class`.
    pub(crate) info: JobInfo,
    /// The job's specification.
    pub(crate) spec: &'a Arc<JobSpec>,
    /// The job's user.
    pub(crate) owner: &'a Arc<Owner>,
    /// The job's partition, account and QOS.
    pub(crate) class: Class<'a>,
}

/// A [`JobClass`] as borrowed strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class<'a> {
    pub(crate) partition: &'a str,
    pub(crate) account: &'a str,
    pub(crate) qos: &'a str,
}

impl Class<'_> {
    fn is(&self, class: &JobClass) -> bool {
        *self == Class { partition: &class.partition, account: &class.account, qos: &class.qos }
    }

    fn to_owned(self) -> JobClass {
        let Class { partition, account, qos } = self;
        JobClass { partition: partition.to_owned(), account: account.to_owned(), qos: qos.to_owned() }
    }
}

/// Collects jobs in pages of a list.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Maximum number of jobs in a page.
    jobs_max: usize,
    done: Vec<JobsPage>,
    page: JobsPage,
    bytes: usize,
    specs: BTreeMap<usize, u32>,
    owners: BTreeMap<usize, u32>,
    classes: BTreeMap<Arc<JobClass>, u32>,
}

impl Pages {
    /// Makes an empty collector of pages with at most `jobs_max` jobs each.
    pub(crate) fn of(jobs_max: usize) -> Self {
        Self { jobs_max, ..Self::default() }
    }

    /// Adds a job, in a new page if the current one is full.
    pub(crate) fn push(&mut self, row: Row<'_>) {
        let Row { info: mut job, spec, owner, class } = row;
        let bytes = job_bytes(&job);
        let fresh = !self.has(spec);
        let more = bytes + if fresh { spec.bytes() } else { 0 };
        let full = self.page.jobs.len() >= self.jobs_max || self.bytes + more > PAGE_BYTES_MAX;
        if full && !self.page.jobs.is_empty() {
            self.turn();
        }
        job.spec = self.spec(spec);
        job.owner = self.owner(owner);
        job.class = self.class(class);
        self.bytes += bytes;
        self.page.jobs.push(job);
    }

    /// Removes and returns the complete pages, which are not the last of the list. Their time is set to `now`.
    pub(crate) fn take(&mut self, now: Time) -> impl Iterator<Item = JobsPage> {
        self.done.drain(..).map(move |page| JobsPage { more: true, now, ..page })
    }

    /// Returns whether a page is complete.
    pub(crate) fn is_turned(&self) -> bool {
        !self.done.is_empty()
    }

    /// Returns the last page of the list, marked as such. `unknown` are the ids that the client asked for and that
    /// don't exist.
    pub(crate) fn last(self, unknown: Vec<JobId>, now: Time) -> JobsPage {
        JobsPage { unknown, now, more: false, ..self.page }
    }

    // Jobs with a common spec usually follow one another, so the last one is compared first.

    fn has(&self, spec: &Arc<JobSpec>) -> bool {
        self.page.specs.last().is_some_and(|last| Arc::ptr_eq(last, spec)) || self.specs.contains_key(&address(spec))
    }

    fn spec(&mut self, spec: &Arc<JobSpec>) -> u32 {
        let next = self.page.specs.len() as u32;
        if self.page.specs.last().is_some_and(|last| Arc::ptr_eq(last, spec)) {
            return next - 1;
        }
        *self.specs.entry(address(spec)).or_insert_with(|| {
            self.page.specs.push(Arc::clone(spec));
            self.bytes += spec.bytes();
            next
        })
    }

    fn owner(&mut self, owner: &Arc<Owner>) -> u32 {
        let next = self.page.owners.len() as u32;
        if self.page.owners.last().is_some_and(|last| Arc::ptr_eq(last, owner)) {
            return next - 1;
        }
        *self.owners.entry(address(owner)).or_insert_with(|| {
            self.page.owners.push(Arc::clone(owner));
            self.bytes += owner.groups.len() * 5 + owner.user.len() + owner.group.len();
            next
        })
    }

    fn class(&mut self, class: Class<'_>) -> u32 {
        let next = self.page.classes.len() as u32;
        if self.page.classes.last().is_some_and(|last| class.is(last)) {
            return next - 1;
        }
        let class = Arc::new(class.to_owned());
        *self.classes.entry(Arc::clone(&class)).or_insert_with(|| {
            self.bytes += class.partition.len() + class.account.len() + class.qos.len();
            self.page.classes.push(class);
            next
        })
    }

    fn turn(&mut self) {
        self.done.push(std::mem::take(&mut self.page));
        self.bytes = 0;
        self.specs.clear();
        self.owners.clear();
        self.classes.clear();
    }
}

/// Returns the address by which shared values are recognized. Equal values at different addresses are sent twice, which
/// does no harm.
fn address<T>(shared: &Arc<T>) -> usize {
    Arc::as_ptr(shared) as usize
}

fn job_bytes(job: &JobInfo) -> usize {
    let ranges = job.pending_tasks.as_ref().map_or(0, |tasks| tasks.ranges().len() * 10);
    JOB_BYTES + ranges + job.dependency.len() + job.run.as_ref().map_or(0, |run| run_bytes(run))
}

fn run_bytes(run: &RunInfo) -> usize {
    let per_node: usize = run.per_node.iter().map(|(nodes, cores, _)| nodes.len() + cores.len() + 16).sum();
    let gres: usize = run.gres.iter().map(|(nodes, devices)| nodes.len() + devices.len() + 8).sum();
    let steps: usize = run.steps.iter().map(|step| step.name.len() + step.nodes.len() + 96).sum();
    per_node + gres + steps + run.nodes.len() + run.batch_host.len()
}
