//! Health of the cluster: the controller, its journal and scheduler, and nodes that do not answer.

use axum::extract::State;
use axum::response::Response;
use squall_model::wire::info::{Diag, NodeInfo};
use squall_text::format::counters::{average, minutes};

use crate::cluster::Controller;
use crate::routes::ServerHandle;
use crate::web::frame::{Problem, View, made};
use crate::web::html::{Html, card};
use crate::web::people::Viewer;
use crate::web::places::counts;
use crate::web::{faults, nodes};

/// `GET /health`.
pub(crate) async fn show(State(server): State<ServerHandle>, viewer: Viewer) -> Result<Response, Problem> {
    let (diag, nodes) = (server.cluster.diag(None).await?, server.cluster.nodes(None).await?);
    let controller = server.cluster.controller(None).await?;
    let view = View::of(&server, &viewer).await?;
    made(move || page(&view, &controller, &diag, &nodes)).await
}

/// Returns the page.
pub(crate) fn page(view: &View, controller: &Controller, diag: &Diag, all: &[NodeInfo]) -> Html {
    let mut body = Html::new();
    body.raw("<h1>Health</h1>");
    let looks = counts(all);
    if view.faults.is_empty() {
        body.raw("<p class=\"good\" role=\"status\">✓ No trouble is known.</p>");
    }
    faults::list(&mut body, &view.faults);
    body.raw("<div class=\"grid\">");
    about(&mut body, view, controller, diag);
    numbers(&mut body, diag);
    body.raw("</div>");
    card(&mut body, "nodes", "Nodes");
    nodes::states(&mut body, &looks);
    body.raw("</section>");
    times(&mut body, diag);
    messages(&mut body, diag);
    view.page("/health", "Health", &body)
}

/// Appends the controller's counters.
fn numbers(body: &mut Html, diag: &Diag) {
    let ms = |us: u64| format!("{}.{} ms", us / 1000, us % 1000 / 100);
    let each = |total, count| ms(average(total, count));
    group(
        body,
        "scheduler",
        "Scheduler",
        &[
            ("Passes", diag.cycles.to_string()),
            ("Last pass", ms(diag.cycle_last_us)),
            ("Average pass", each(diag.cycle_total_us, diag.cycles)),
            ("Longest pass", ms(diag.cycle_max_us)),
            ("Jobs tried in a pass", average(diag.cycle_depth_total, diag.cycles).to_string()),
            ("Queue at the last pass", diag.queue_length.to_string()),
            ("Started by backfill", diag.backfill.jobs.to_string()),
        ],
    );
    group(
        body,
        "journal",
        "Journal",
        &[
            ("Records", diag.journal_records.to_string()),
            ("Events", diag.journal_events.to_string()),
            ("Bytes", diag.journal_bytes.to_string()),
            ("Flushes", diag.journal_flushes.to_string()),
            ("Average flush", each(diag.flush_total_us, diag.journal_flushes)),
            ("Longest flush", ms(diag.flush_max_us)),
        ],
    );
    group(
        body,
        "jobs",
        "Jobs",
        &[
            ("Submitted", diag.jobs_submitted.to_string()),
            ("Started", diag.jobs_started.to_string()),
            ("Completed", diag.jobs_completed.to_string()),
            ("Failed", diag.jobs_failed.to_string()),
            ("Cancelled", diag.jobs_canceled.to_string()),
        ],
    );
}

fn about(body: &mut Html, view: &View, controller: &Controller, diag: &Diag) {
    card(body, "controller", "Controller");
    body.put("<dl class=\"facts\"><div><dt>Host</dt><dd>{}</dd></div><div><dt>Version</dt><dd>{}</dd></div><div><dt>Started</dt><dd>", &[
        &controller.host,
        &controller.version,
    ]);
    view.time(body, Some(controller.started), "not known");
    body.put("</dd></div><div><dt>Connections</dt><dd>{} clients, {} nodes</dd></div><div><dt>Counted for</dt><dd>{} min</dd></div></dl></section>", &[
        &diag.clients,
        &diag.nodes,
        &minutes(diag),
    ]);
}

fn group(body: &mut Html, id: &'static str, title: &str, all: &[(&str, String)]) {
    card(body, id, title);
    body.raw("<dl class=\"facts\">");
    for (name, value) in all {
        body.put("<div><dt>{}</dt><dd>{}</dd></div>", &[name, value]);
    }
    body.raw("</dl></section>");
}

/// Formats microseconds with their unit.
fn short(us: u64) -> String {
    match us {
        ..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

fn times(body: &mut Html, diag: &Diag) {
    card(body, "times", "Times");
    body.raw("<table><thead><tr><th scope=\"col\">What</th><th scope=\"col\" class=\"n\">Count</th><th scope=\"col\" class=\"n\">Median</th><th scope=\"col\" class=\"n\">99 % are below</th></tr></thead><tbody>");
    for (name, histogram) in diag.latency.all() {
        let quantile = |permille| histogram.quantile_us(permille).map_or_else(|| "–".to_owned(), short);
        body.put(
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            &[&name, &histogram.count(), &quantile(500), &quantile(990)],
        );
    }
    body.raw("</tbody></table></section>");
}

fn messages(body: &mut Html, diag: &Diag) {
    card(body, "messages", "Messages that took the controller most time");
    let mut all = diag.messages.clone();
    all.sort_by_key(|(_, _, us)| std::cmp::Reverse(*us));
    body.raw("<table><thead><tr><th scope=\"col\">Kind</th><th scope=\"col\" class=\"n\">Count</th><th scope=\"col\" class=\"n\">Average</th><th scope=\"col\" class=\"n\">Total</th></tr></thead><tbody>");
    for (name, count, us) in all.iter().take(12) {
        body.put(
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            &[name, count, &short(us.checked_div(*count).unwrap_or(0)), &short(*us)],
        );
    }
    body.raw("</tbody></table></section>");
}
