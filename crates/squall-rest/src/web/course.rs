//! The course of a job: when it was submitted, ran, lost nodes and ended, each run in a line.

use squall_model::job::JobState;
use squall_model::time::Time;
use squall_model::wire::info::AccountingRow;
use squall_text::format::job::JobRow;

use crate::web::frame::View;
use crate::web::html::{Html, card};
use crate::web::job::JobDetails;
use crate::web::{record, row};

/// Most lines of earlier runs and of lost nodes.
const LINES_MAX: usize = 50;

/// What happened to a job, and when.
type Line = (Time, &'static str, Html);

/// Appends the course of a job that has started once at least.
pub(crate) fn add(body: &mut Html, view: &View, job: &JobRow, known: &JobDetails) {
    if !job.started() && known.earlier.is_empty() {
        return;
    }
    let skipped = known.earlier.len().saturating_sub(LINES_MAX);
    let mut lines: Vec<Line> = known.earlier.iter().skip(skipped).flat_map(|run| earlier(view, run)).collect();
    let mut by = Html::new();
    by.put("by <bdi>{}</bdi>", &[&job.owner.user]);
    lines.push((job.info.submit, "submitted", by));
    if job.info.eligible > job.info.submit {
        lines.push((job.info.eligible, "could start", Html::new()));
    }
    if let Some(start) = job.info.start.filter(|_| job.started()) {
        lines.push((start, "started", on(&job.info.run().nodes)));
    }
    let losses = known.rows.iter().filter(|row| row.step.is_none()).filter_map(|row| row.losses.as_deref());
    for loss in losses.flat_map(|losses| &losses.losses).take(LINES_MAX) {
        lines.push((loss.lost, "gave up a failed node", Html::new()));
        lines.extend(loss.replaced.map(|at| (at, "got a node for it", Html::new())));
    }
    if let (JobState::Ended(_), Some(end)) = (job.info.state, job.info.end) {
        let mut state = Html::new();
        row::state(&mut state, job.info.state);
        lines.push((end, "ended", state));
    }
    lines.sort_by_key(|(at, ..)| *at);
    card(body, "course", "Course");
    body.raw(
        "<table class=\"rows cards\"><thead><tr><th scope=\"col\">Time</th><th scope=\"col\">What</th>\
         <th scope=\"col\">Details</th></tr></thead><tbody>",
    );
    for (at, what, details) in lines {
        body.raw("<tr><td data-name=\"Time\">");
        view.time(body, Some(at), "");
        body.put("</td><td data-name=\"What\">{}</td><td data-name=\"Details\">", &[&what]);
        body.add(&details).raw("</td></tr>");
    }
    body.raw("</tbody></table>");
    if skipped > 0 {
        body.put("<p class=\"note\">{} earlier runs are left out.</p>", &[&skipped]);
    }
    body.raw("</section>");
}

fn on(nodes: &str) -> Html {
    let mut html = Html::new();
    html.raw("on ");
    row::nodes(&mut html, nodes);
    html
}

/// Returns when an earlier run began, and why it ended.
fn earlier(view: &View, run: &AccountingRow) -> Vec<Line> {
    let Some(record) = record::last(view, vec![run.clone()]) else { return Vec::new() };
    let mut why = Html::new();
    row::state(&mut why, run.state);
    why.put(" {}", &[&record.report().cause()]);
    let start = run.start.map(|start| (start, "started", on(&run.nodes)));
    start.into_iter().chain(record.job.end().map(|end| (end, "ended", why))).collect()
}
