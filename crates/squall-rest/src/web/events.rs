//! What happened lately: submissions, starts and ends of jobs in the controller's memory, and states of nodes.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use squall_model::job::JobState;
use squall_model::time::Time;
use squall_model::wire::info::{JobInfo, JobsPage, NodeInfo};

use crate::routes::Shared;
use crate::web::frame::{Problem, View, made};
use crate::web::html::{Html, encoded};
use crate::web::overview::card;
use crate::web::people::Viewer;
use crate::web::row::{self, Rows};

/// Most events of the page.
const ROWS: usize = 200;

/// `GET /events`.
pub(crate) async fn show(State(server): State<Shared>, viewer: Viewer) -> Result<Response, Problem> {
    let (jobs, nodes) = (server.cluster.jobs(None).await?, server.cluster.nodes(None).await?);
    let view = View::of(&server, &viewer).await?;
    made(move || page(&view, &jobs, &nodes)).await
}

/// What an event is about.
enum About<'a> {
    Submitted(&'a JobInfo),
    Started(&'a JobInfo),
    Ended(&'a JobInfo),
    Node(&'a NodeInfo, &'a str),
}

/// Returns the page.
pub(crate) fn page(view: &View, jobs: &Arc<JobsPage>, nodes: &[NodeInfo]) -> Html {
    let mut all: Vec<(Time, About<'_>)> = Vec::new();
    for job in &jobs.jobs {
        all.push((job.submit, About::Submitted(job)));
        if let Some(at) = job.start.filter(|_| job.state != JobState::Pending && !job.run().nodes.is_empty()) {
            all.push((at, About::Started(job)));
        }
        if let (Some(at), JobState::Ended(_)) = (job.end, job.state) {
            all.push((at, About::Ended(job)));
        }
    }
    for node in nodes {
        if let Some((reason, _, at)) = &node.reason {
            all.push((*at, About::Node(node, reason)));
        }
    }
    if all.len() > ROWS {
        all.select_nth_unstable_by_key(ROWS, |(at, _)| std::cmp::Reverse(*at));
        all.truncate(ROWS);
    }
    all.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let rows = Rows::new(view, jobs);
    let mut body = Html::new();
    body.raw("<h1>Events</h1>");
    card(&mut body, "list", "Latest");
    body.raw("<table class=\"rows cards\"><thead><tr><th scope=\"col\">Time</th><th scope=\"col\">What</th><th scope=\"col\">Which</th><th scope=\"col\">Details</th></tr></thead><tbody>");
    for (at, about) in all {
        body.raw("<tr><td data-name=\"Time\">");
        view.time(&mut body, Some(at), "");
        body.raw("</td>");
        match about {
            About::Submitted(job) => of_job(&mut body, &rows, job, "submitted"),
            About::Started(job) => of_job(&mut body, &rows, job, "started"),
            About::Ended(job) => of_job(&mut body, &rows, job, "ended"),
            About::Node(node, reason) => {
                let path = encoded(&node.name);
                body.put("<td data-name=\"What\">node state set</td><th scope=\"row\" data-name=\"Which\"><a href=\"/node/{}\">{}</a></th><td data-name=\"Details\"><bdi>{}</bdi></td>", &[&path, &node.name, &reason]);
            }
        }
        body.raw("</tr>");
    }
    body.put("</tbody></table><p class=\"note\">The latest {} of what the controller has in memory. `squall events` follows all.</p></section>", &[&ROWS]);
    view.page("/events", "Events", &body)
}

fn of_job(body: &mut Html, rows: &Rows<'_>, job: &JobInfo, what: &'static str) {
    let Some(job) = rows.of(job) else { return };
    body.put("<td data-name=\"What\">job {}</td><th scope=\"row\" data-name=\"Which\"><a href=\"{}\">{}</a></th><td data-name=\"Details\"><bdi>{}</bdi> of <bdi>{}</bdi> ", &[
        &what,
        &row::path(&job),
        &job.array_id(),
        &job.spec.name,
        &job.owner.user,
    ]);
    match what {
        "started" => {
            body.raw("on ");
            row::nodes(body, &job.info.run().nodes);
        }
        "ended" => row::state(body, job.info.state),
        _ => {
            body.put("in {}", &[&job.class.partition]);
        }
    }
    body.raw("</td>");
}
