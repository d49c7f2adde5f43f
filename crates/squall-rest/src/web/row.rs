//! Jobs as rows, and how states look: each has a colour, a shape and its word.

use std::rc::Rc;

use squall_model::id::JobId;
use squall_model::job::{ArrayTask, EndState, JobState};
use squall_model::wire::info::{JobInfo, JobsPage};
use squall_text::format::clock::Clock;
use squall_text::format::job::{JobRow, rows};
use squall_text::format::words;

use crate::web::frame::View;
use crate::web::html::{Html, encoded};

/// What rows of a page share.
pub(crate) struct Rows<'a> {
    jobs: &'a JobsPage,
    clock: Rc<Clock>,
    cluster: Rc<str>,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(view: &View, jobs: &'a JobsPage) -> Self {
        Self { jobs, clock: Rc::new(view.clock.clone()), cluster: view.cluster.as_str().into() }
    }

    /// Returns one of the jobs as a row.
    pub(crate) fn of(&self, job: &JobInfo) -> Option<JobRow> {
        let one = JobsPage {
            specs: vec![self.jobs.specs.get(job.spec as usize)?.clone()],
            owners: vec![self.jobs.owners.get(job.owner as usize)?.clone()],
            classes: vec![self.jobs.classes.get(job.class as usize)?.clone()],
            jobs: vec![JobInfo { spec: 0, owner: 0, class: 0, ..job.clone() }],
            ..JobsPage::default()
        };
        rows(one, &self.clock, &self.cluster, None).next()
    }
}

/// Returns the job with this id as users write it (`12`, `12_3`, `12+1`).
pub(crate) fn find<'a>(jobs: &'a JobsPage, id: &str) -> Option<&'a JobInfo> {
    if let Some((array, index)) = id.split_once('_') {
        let (array, index) = (JobId(array.parse().ok()?), index.parse::<u32>().ok()?);
        let named =
            jobs.jobs.iter().find(|job| job.task.is_some_and(|task| task.array == array && task.index == index));
        let waits =
            |job: &&JobInfo| job.id == array && job.pending_tasks.as_ref().is_some_and(|set| set.contains(index));
        return named.or_else(|| jobs.jobs.iter().find(waits));
    }
    let (id, component) = id.split_once('+').unwrap_or((id, "0"));
    // The components of a heterogeneous job have consecutive ids.
    let id = JobId(id.parse::<u32>().ok()?.checked_add(component.parse().ok()?)?);
    let at = jobs.jobs.partition_point(|job| job.id < id);
    jobs.jobs[at..].iter().find(|job| job.id == id)
}

/// Returns class and shape of a job's state.
pub(crate) fn look(state: JobState) -> (&'static str, &'static str) {
    match state {
        JobState::Pending => ("pending", "○"),
        JobState::Running => ("running", "●"),
        JobState::Suspended => ("suspended", "‖"),
        JobState::Configuring => ("pending", "◌"),
        JobState::Completing(_) => ("completing", "◐"),
        JobState::Ended(EndState::Completed) => ("completed", "✓"),
        JobState::Ended(EndState::Cancelled { .. } | EndState::Preempted | EndState::Requeued) => ("cancelled", "⊘"),
        JobState::Ended(_) => ("failed", "✕"),
    }
}

/// Appends a job's state.
pub(crate) fn state(html: &mut Html, of: JobState) {
    let (class, shape) = look(of);
    html.put(
        "<span class=\"state {}\"><span aria-hidden=\"true\">{}</span> {}</span>",
        &[&class, &shape, &words::state(of).0],
    );
}

/// Returns the path of a job's page.
pub(crate) fn path(row: &JobRow) -> String {
    path_of(row.info.id, row.info.task)
}

/// Returns the path of the page of a job, an array, or a task, whose number may be that of its array as well.
pub(crate) fn path_of(id: JobId, task: Option<ArrayTask>) -> String {
    task.map_or_else(|| format!("/job/{id}"), |task| format!("/job/{}_{}", task.array, task.index))
}

/// Returns the number of jobs of an entry: an entry may be of many pending tasks.
pub(crate) fn count(job: &JobInfo) -> u64 {
    job.pending_tasks.as_ref().map_or(1, |tasks| tasks.len() as u64)
}

/// Appends a node list with a link to its nodes. Long lists are cut.
pub(crate) fn nodes(html: &mut Html, list: &str) {
    const LENGTH: usize = 48;
    if list.is_empty() {
        html.raw("<span class=\"dim\">–</span>");
    } else if !list.contains(['[', ',']) {
        html.put("<a href=\"/node/{}\">{}</a>", &[&encoded(list), &list]);
    } else {
        let shown: String = list.chars().take(LENGTH).collect();
        let more = if shown.len() < list.len() { "…" } else { "" };
        html.put("<span class=\"list\" title=\"{}\">{}{}</span>", &[&list, &shown, &more]);
    }
}
