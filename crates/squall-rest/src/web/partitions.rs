//! Partitions: state, limits, who may use them.

use axum::extract::State;
use axum::response::Response;
use squall_model::duration::format_limit;
use squall_model::wire::info::PartitionInfo;
use squall_text::format::words;

use crate::routes::ServerHandle;
use crate::web::frame::{Problem, View, made};
use crate::web::html::{Html, link};
use crate::web::people::Viewer;
use crate::web::row;

/// `GET /partitions`.
pub(crate) async fn show(State(server): State<ServerHandle>, viewer: Viewer) -> Result<Response, Problem> {
    let partitions = server.cluster.partitions(None).await?;
    let view = View::of(&server, &viewer).await?;
    made(move || page(&view, &partitions)).await
}

/// Returns the page.
pub(crate) fn page(view: &View, partitions: &[PartitionInfo]) -> Html {
    let mut body = Html::new();
    body.raw("<h1>Partitions</h1>");
    for partition in partitions {
        let config = &partition.config;
        body.put(
            "<section class=\"card\"><h2><bdi>{}</bdi> <span class=\"tag\">{}</span>",
            &[&config.name, &words::partition_state_long(config.state)],
        );
        if config.default {
            body.raw(" <span class=\"tag\">default</span>");
        }
        body.raw("</h2><dl class=\"facts\"><div class=\"wide\"><dt>Nodes</dt><dd>");
        row::nodes(&mut body, &partition.nodes);
        body.put(
            " <span class=\"dim\">{} nodes, {} CPUs</span></dd></div>",
            &[&partition.num_nodes, &partition.num_cpus],
        );
        let all = |list: &[String]| list.join(", ");
        for (name, value) in [
            ("Longest time limit", format_limit(config.max_time_s)),
            ("Time limit by default", config.default_time_s.map(|s| format_limit(Some(s))).unwrap_or_default()),
            (
                "Nodes of a job",
                match config.max_nodes {
                    Some(most) => format!("{} to {most}", config.min_nodes),
                    None => format!("{} or more", config.min_nodes),
                },
            ),
            ("Priority tier", config.priority_tier.to_string()),
            ("Preemption", words::preempt_mode(partition.preempt_mode).to_owned()),
            ("QOS", config.qos.clone()),
            ("Users", all(&config.allow_users)),
            ("Groups", all(&config.allow_groups)),
            ("Accounts", all(&config.allow_accounts)),
            ("Not for accounts", all(&config.deny_accounts)),
        ] {
            if !value.is_empty() {
                body.put("<div><dt>{}</dt><dd>{}</dd></div>", &[&name, &value]);
            }
        }
        body.put(
            "</dl><p><a href=\"{}\">Jobs</a> · <a href=\"{}\">Nodes</a></p></section>",
            &[&link("/jobs", &[("partition", &config.name)]), &link("/nodes", &[("partition", &config.name)])],
        );
    }
    view.page("/partitions", "Partitions", &body)
}
