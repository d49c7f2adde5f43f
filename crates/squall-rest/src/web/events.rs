//! What happened lately: the events of the feed, and before those submissions, starts and ends of jobs in the
//! controller's memory, and states of nodes.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use squall_model::hostlist;
use squall_model::job::JobState;
use squall_model::time::Time;
use squall_model::wire::feed::FeedEvent;
use squall_model::wire::info::{JobInfo, JobsPage, NodeInfo};
use squall_text::format::event::sentence;

use crate::routes::ServerHandle;
use crate::users;
use crate::web::frame::{Problem, View, made};
use crate::web::html::{Html, card, encoded};
use crate::web::people::Viewer;
use crate::web::row::{self, Rows};

/// Most events of the page.
const ROWS: usize = 200;

/// `GET /events`.
pub(crate) async fn show(State(server): State<ServerHandle>, viewer: Viewer) -> Result<Response, Problem> {
    let (jobs, nodes) = (server.cluster.jobs(None).await?, server.cluster.nodes(None).await?);
    let view = View::of(&server, &viewer).await?;
    made(move || page(&view, &server.events.latest(ROWS), &jobs, &nodes)).await
}

/// What an event is about.
enum About<'a> {
    Submitted(&'a JobInfo),
    Started(&'a JobInfo),
    Ended(&'a JobInfo),
    Node(&'a NodeInfo, &'a str),
}

/// Returns the page. `fed`: events of the feed, the last one first.
pub(crate) fn page(view: &View, fed: &[Arc<FeedEvent>], jobs: &Arc<JobsPage>, nodes: &[NodeInfo]) -> Html {
    let mut all: Vec<(Time, About<'_>)> = Vec::new();
    let before = fed.last().map_or(Time(u64::MAX), |first| first.time);
    // Of those at the same time the last one comes first.
    for job in &jobs.jobs {
        if let (Some(at), JobState::Ended(_)) = (job.end, job.state) {
            all.push((at, About::Ended(job)));
        }
        if let Some(at) = job.start.filter(|_| job.state != JobState::Pending && !job.run().nodes.is_empty()) {
            all.push((at, About::Started(job)));
        }
        all.push((job.submit, About::Submitted(job)));
    }
    for node in nodes {
        if let Some((reason, _, at)) = &node.reason {
            all.push((*at, About::Node(node, reason)));
        }
    }
    all.retain(|(at, _)| *at < before);
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
    for event in fed {
        of_feed(&mut body, view, event);
    }
    for (at, about) in all.into_iter().take(ROWS - fed.len().min(ROWS)) {
        body.raw("<tr><td data-name=\"Time\">");
        view.time(&mut body, Some(at), "");
        body.raw("</td>");
        match about {
            About::Submitted(job) => of_job(&mut body, &rows, job, "submitted"),
            About::Started(job) => of_job(&mut body, &rows, job, "started"),
            About::Ended(job) => of_job(&mut body, &rows, job, "ended"),
            About::Node(node, reason) => {
                let path = encoded(&node.name);
                body.put("<td data-name=\"What\">node-changed</td><th scope=\"row\" data-name=\"Which\"><a href=\"/node/{}\">{}</a></th><td data-name=\"Details\"><bdi>{}</bdi></td>", &[&path, &node.name, &reason]);
            }
        }
        body.raw("</tr>");
    }
    body.put("</tbody></table><p class=\"note\">The latest {} of what the controller has in memory. <code>squall events</code> follows all.</p></section>", &[&ROWS]);
    view.page("/events", "Events", &body)
}

fn of_feed(body: &mut Html, view: &View, event: &FeedEvent) {
    body.raw("<tr><td data-name=\"Time\">");
    view.time(body, Some(event.time), "");
    body.put("</td><td data-name=\"What\">{}</td><th scope=\"row\" data-name=\"Which\">", &[&event.kind.name()]);
    match &event.job {
        Some(job) => body.put("<a href=\"{}\">{}</a>", &[&row::path_of(job.id, job.task), &job.label()]),
        None if hostlist::is_name(&event.nodes) => {
            body.put("<a href=\"/node/{}\">{}</a>", &[&encoded(&event.nodes), &event.nodes])
        }
        None => body.put("{}", &[if event.nodes.is_empty() { &event.name } else { &event.nodes }]),
    };
    let by = event.by.map(users::name_of);
    body.put("</th><td data-name=\"Details\"><bdi>{}</bdi></td></tr>", &[&sentence(event, by.as_deref())]);
}

fn of_job(body: &mut Html, rows: &Rows<'_>, job: &JobInfo, what: &'static str) {
    let Some(job) = rows.of(job) else { return };
    body.put("<td data-name=\"What\">job-{}</td><th scope=\"row\" data-name=\"Which\"><a href=\"{}\">{}</a></th><td data-name=\"Details\"><bdi>{}</bdi> of <bdi>{}</bdi> ", &[
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
