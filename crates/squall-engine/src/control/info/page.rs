//! Pages of jobs: as many as fit a frame, with what they share sent once.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::job::{JobSpec, Owner};
use squall_model::limits::{ANSWER_JOBS_MAX, FRAME_BYTES_MAX};
use squall_model::time::Time;
use squall_model::wire::info::{JobInfo, JobsPage};

/// Bytes that a page may have by our estimate, well below what a frame may.
const PAGE_BYTES_MAX: usize = FRAME_BYTES_MAX / 4;
/// What a job costs at least.
const JOB_BYTES: usize = 256;

/// Fills pages.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    done: Vec<JobsPage>,
    page: JobsPage,
    bytes: usize,
    specs: BTreeMap<usize, u32>,
    owners: BTreeMap<usize, u32>,
}

impl Pages {
    /// Adds a job, whose `spec` and `owner` indices are set here.
    pub(crate) fn push(&mut self, mut job: JobInfo, spec: &Arc<JobSpec>, owner: &Arc<Owner>) {
        let bytes = job_bytes(&job);
        let fresh = !self.specs.contains_key(&address(spec));
        let more = bytes + if fresh { spec_bytes(spec) } else { 0 };
        if self.page.jobs.len() == ANSWER_JOBS_MAX || (self.bytes + more > PAGE_BYTES_MAX && !self.page.jobs.is_empty())
        {
            self.turn();
        }
        job.spec = *self.specs.entry(address(spec)).or_insert_with(|| {
            self.page.specs.push(Arc::clone(spec));
            self.bytes += spec_bytes(spec);
            self.page.specs.len() as u32 - 1
        });
        job.owner = *self.owners.entry(address(owner)).or_insert_with(|| {
            self.page.owners.push(Arc::clone(owner));
            self.bytes += owner.groups.len() * 5 + owner.user.len() + owner.group.len();
            self.page.owners.len() as u32 - 1
        });
        self.bytes += bytes;
        self.page.jobs.push(job);
    }

    /// The pages; the last says that no other follows and names what was asked for and is not known.
    pub(crate) fn finish(mut self, unknown: Vec<squall_model::id::JobId>, now: Time) -> Vec<JobsPage> {
        self.page.unknown = unknown;
        self.done.push(self.page);
        let last = self.done.len() - 1;
        for (at, page) in self.done.iter_mut().enumerate() {
            page.more = at < last;
            page.now = now;
        }
        self.done
    }

    fn turn(&mut self) {
        self.done.push(std::mem::take(&mut self.page));
        self.bytes = 0;
        self.specs.clear();
        self.owners.clear();
    }
}

/// What tells shared values apart: equal values that are not shared are sent twice, which does no harm.
fn address<T>(shared: &Arc<T>) -> usize {
    Arc::as_ptr(shared) as usize
}

fn job_bytes(job: &JobInfo) -> usize {
    let per_node: usize = job.per_node.iter().map(|(nodes, cores, _)| nodes.len() + cores.len() + 16).sum();
    let steps: usize = job.steps.iter().map(|step| step.name.len() + step.nodes.len() + 96).sum();
    let ranges = job.pending_tasks.as_ref().map_or(0, |tasks| tasks.ranges().len() * 10);
    let texts = [&job.partition, &job.account, &job.qos, &job.nodes, &job.batch_host, &job.dependency];
    JOB_BYTES + per_node + steps + ranges + texts.iter().map(|text| text.len()).sum::<usize>()
}

fn spec_bytes(spec: &JobSpec) -> usize {
    let texts: usize = spec.texts().map(str::len).sum();
    let lists = spec.args.iter().map(|arg| arg.len() + 4).sum::<usize>()
        + spec.others.iter().map(|(name, value)| name.len() + value.len() + 8).sum::<usize>();
    let terms = spec.dependency.as_ref().map_or(0, |dependency| dependency.terms.len() * 16);
    let array = spec.array.as_ref().map_or(0, |array| array.indices.ranges().len() * 10 + array.text.len());
    JOB_BYTES + texts + lists + terms + array + spec.rlimits.len() * 12
}
