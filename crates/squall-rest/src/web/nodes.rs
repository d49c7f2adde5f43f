//! Nodes: where they stand and in which state, by user, as a list, and each alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use serde::Deserialize;
use squall_model::config::Config;
use squall_model::duration::format_memory_mb;
use squall_model::hostlist;
use squall_model::job::JobState;
use squall_model::wire::info::{JobInfo, JobsPage, NodeInfo};
use squall_text::format::job::JobRow;
use squall_text::format::node::{self, NodeState};

use crate::routes::ServerHandle;
use crate::web::act;
use crate::web::chart;
use crate::web::frame::{Problem, View, made};
use crate::web::html::{Html, card, encoded, link, pager};
use crate::web::people::Viewer;
use crate::web::places::{LOOKS, counts, groups, look};
use crate::web::queue;
use crate::web::row::Rows;

/// Rows of the list.
const ROWS: usize = 50;
/// Users that have a colour of their own.
const USERS: [&str; 8] = ["w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8"];

/// What of the nodes is asked for. Empty: anything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodesQuery {
    /// What colours tell: `user`: who is where; `load`, `memory`, `gpu`: how much is in use; otherwise states.
    pub(crate) by: String,
    pub(crate) state: String,
    pub(crate) group: String,
    pub(crate) partition: String,
    pub(crate) find: String,
    pub(crate) page: usize,
}

/// `GET /nodes`.
pub(crate) async fn show(
    State(server): State<ServerHandle>,
    viewer: Viewer,
    Query(asked): Query<NodesQuery>,
) -> Result<Response, Problem> {
    let cluster = &server.cluster;
    let (nodes, config, jobs) = (cluster.nodes(None).await?, cluster.config(None).await?, cluster.jobs(None).await?);
    let view = View::of(&server, &viewer).await?;
    made(move || page(&view, &nodes, &config, &jobs, &asked)).await
}

/// Returns the page.
pub(crate) fn page(
    view: &View,
    nodes: &Arc<Vec<NodeInfo>>,
    config: &Config,
    jobs: &JobsPage,
    asked: &NodesQuery,
) -> Html {
    let mut body = Html::new();
    body.raw("<h1>Nodes</h1>");
    let (by, _, title) = BY.into_iter().find(|(by, ..)| *by == asked.by).unwrap_or(BY[0]);
    card(&mut body, "map", title);
    body.raw("<ul class=\"tabs\">");
    let with_gpus = nodes.iter().any(|node| gpus(node).1 > 0.0);
    for (word, name, _) in BY.into_iter().filter(|(word, ..)| *word != "gpu" || with_gpus) {
        let path = link("/nodes", &[("by", word)]);
        body.put("<li><a href=\"{}\" aria-current=\"{}\">{}</a></li>", &[&path, &(word == by), &name]);
    }
    body.raw("</ul>");
    let colours = match by {
        "user" => Colours::Users(holders(nodes, jobs)),
        "load" => Colours::Shares(nodes.iter().map(load_share).map(share).collect()),
        "memory" => Colours::Shares(nodes.iter().map(memory).map(share).collect()),
        "gpu" => Colours::Shares(nodes.iter().map(gpus).map(share).collect()),
        _ => Colours::States,
    };
    map(&mut body, nodes, config, &colours);
    body.raw("</section>");
    list(&mut body, view, nodes, config, asked);
    view.page("/nodes", "Nodes", &body)
}

/// What colours of nodes may tell: the word in the address, the name of the choice, the title.
const BY: [(&str, &str, &str); 5] = [
    ("", "By state", "States"),
    ("user", "By user", "Who is where"),
    ("load", "By load", "Load of the CPUs"),
    ("memory", "By memory", "Memory that jobs hold"),
    ("gpu", "By GPUs", "GPUs that jobs hold"),
];

/// Shades of shares, and what each stands for: steps of a quarter. Nodes without what is shown have none.
const SHADES: [(&str, &str); 6] = [
    ("h0", "nothing"),
    ("h1", "up to 25 %"),
    ("h2", "up to 50 %"),
    ("h3", "up to 75 %"),
    ("h4", "up to 100 %"),
    ("h5", "more"),
];

/// Most squares of which each has a title.
const TITLED: usize = 1024;

/// What the colours of nodes tell.
#[derive(Clone, Debug)]
pub(crate) enum Colours {
    States,
    Users(Holders),
    /// An index of [`SHADES`] for each node. None: it has nothing of what is shown.
    Shares(Vec<Option<usize>>),
}

/// Returns the load of a node, and its CPUs.
fn load_share(node: &NodeInfo) -> (f64, f64) {
    (f64::from(node.load_centi) / 100.0, f64::from(node.hardware.cpus))
}

/// Returns the memory that jobs hold on a node, and all.
fn memory(node: &NodeInfo) -> (f64, f64) {
    (node.memory_used_mb as f64, node.hardware.memory_mb as f64)
}

/// Returns the GPUs that jobs hold on a node, and all.
fn gpus(node: &NodeInfo) -> (f64, f64) {
    let count = |list: &str| node::devices(list).get("gpu").copied().map_or(0.0, f64::from);
    (count(&node.gres_used), count(&node.gres))
}

/// Returns the shade of a share.
fn share((part, whole): (f64, f64)) -> Option<usize> {
    // Half a percent is nothing, and a little more than all is all: loads are means.
    let quarters = part / whole * 4.0;
    (whole > 0.0).then(|| if quarters < 0.02 { 0 } else { ((quarters - 0.1).ceil().max(1.0) as usize).min(5) })
}

/// Returns what is said of a node that is pointed at.
fn title(node: &NodeInfo) -> String {
    let (held, all) = gpus(node);
    let gpus = if all > 0.0 { format!(", {held} of {all} GPUs") } else { String::new() };
    format!(
        "{}: {}, {} of {} CPUs held, load {:.1}, {} of {} memory{gpus}",
        node.name,
        NodeState::of(node).long(),
        node.cpus_used,
        node.hardware.cpus,
        load_share(node).0,
        format_memory_mb(node.memory_used_mb),
        format_memory_mb(node.hardware.memory_mb)
    )
}

/// Who holds which nodes: the users with colours, and for each node an index of [`USERS`], or none.
#[derive(Clone, Debug)]
pub(crate) struct Holders {
    users: Vec<(String, u64)>,
    of: Vec<Option<usize>>,
    others: u64,
}

/// Returns the user of each node; of several the one whose job comes first.
fn holders(nodes: &[NodeInfo], jobs: &JobsPage) -> Holders {
    let index: HashMap<&str, usize> = nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
    let mut of = vec![None; nodes.len()];
    let mut counts: HashMap<u32, u64> = HashMap::new();
    let mut left = nodes.iter().filter(|node| node.jobs_running > 0).count();
    for job in jobs
        .jobs
        .iter()
        .filter(|job| matches!(job.state, JobState::Running | JobState::Configuring | JobState::Suspended))
    {
        for name in hostlist::expand_within(&job.run().nodes, nodes.len()).unwrap_or_default() {
            let Some(held) = index.get(name.as_str()).map(|at| &mut of[*at]).filter(|held| held.is_none()) else {
                continue;
            };
            let uid = jobs.owners.get(job.owner as usize).map_or(u32::MAX, |owner| owner.uid);
            *held = Some(uid);
            *counts.entry(uid).or_default() += 1;
            left = left.saturating_sub(1);
        }
        if left == 0 {
            break;
        }
    }
    let mut order: Vec<(u32, u64)> = counts.into_iter().collect();
    order.sort_unstable_by_key(|(uid, count)| (std::cmp::Reverse(*count), *uid));
    let others = order.iter().skip(USERS.len()).map(|(_, count)| count).sum();
    order.truncate(USERS.len());
    let name = |uid| {
        jobs.owners.iter().find(|owner| owner.uid == uid).map_or_else(|| "?".to_owned(), |owner| owner.user.clone())
    };
    let place = |uid: u32| order.iter().position(|(own, _)| *own == uid).unwrap_or(USERS.len());
    let of = of.into_iter().map(|held| held.map(place)).collect();
    Holders { users: order.iter().map(|(uid, count)| (name(*uid), *count)).collect(), of, others }
}

/// Appends how many nodes look each way, with links to them.
pub(crate) fn states(body: &mut Html, looks: &[u64; LOOKS.len()]) {
    body.raw("<ul class=\"legend\">");
    for ((class, word), count) in LOOKS.iter().zip(looks).filter(|(_, count)| **count > 0) {
        body.put("<li><a href=\"{}\"><svg class=\"squares\" viewBox=\"0 0 10 10\" width=\"12\" aria-hidden=\"true\"><path class=\"{}\" d=\"M1 5h8\"/></svg> {} {}</a></li>", &[
            &link("/nodes", &[("state", class)]),
            class,
            count,
            word,
        ]);
    }
    body.raw("</ul>");
}

/// Appends what the colours stand for.
fn legend(body: &mut Html, colours: &Colours, looks: &[u64; LOOKS.len()]) {
    match colours {
        Colours::States => states(body, looks),
        Colours::Shares(_) => {
            body.raw("<ul class=\"legend\">");
            for (class, word) in SHADES.into_iter().chain([("down", "down or drained")]) {
                body.put("<li><svg class=\"squares\" viewBox=\"0 0 10 10\" width=\"12\" aria-hidden=\"true\"><path class=\"{}\" d=\"M1 5h8\"/></svg> {}</li>", &[&class, &word]);
            }
            body.raw("</ul>");
        }
        Colours::Users(holders) => {
            body.raw("<ul class=\"legend\">");
            for ((user, count), class) in holders.users.iter().zip(USERS) {
                body.put("<li><a href=\"{}\"><svg class=\"squares\" viewBox=\"0 0 10 10\" width=\"12\" aria-hidden=\"true\"><path class=\"{}\" d=\"M1 5h8\"/></svg> <bdi>{}</bdi> {}</a></li>", &[
                    &link("/jobs", &[("user", user), ("state", "running")]),
                    &class,
                    user,
                    count,
                ]);
            }
            for (class, word, count) in
                [("others", "other users", holders.others), ("idle", "nobody", 0), ("down", "down or drained", 0)]
            {
                let count = if count > 0 { format!(" {count}") } else { String::new() };
                body.put("<li><svg class=\"squares\" viewBox=\"0 0 10 10\" width=\"12\" aria-hidden=\"true\"><path class=\"{}\" d=\"M1 5h8\"/></svg> {}{}</li>", &[
                    &class, &word, &count,
                ]);
            }
            body.raw("</ul>");
        }
    }
}

/// Appends all nodes as small squares, in their groups.
pub(crate) fn map(body: &mut Html, nodes: &[NodeInfo], config: &Config, colours: &Colours) {
    let looks = counts(nodes);
    let (names, classes): (Vec<&'static str>, Vec<usize>) = match colours {
        Colours::States => (LOOKS.iter().map(|(class, _)| *class).collect(), nodes.iter().map(look).collect()),
        Colours::Shares(shares) => {
            let none = SHADES.len();
            let down = |(node, shade): (&NodeInfo, &Option<usize>)| match look(node) {
                5.. => none + 1,
                _ => shade.unwrap_or(none),
            };
            let names = SHADES.iter().map(|(class, _)| *class).chain(["none", "down"]).collect();
            (names, nodes.iter().zip(shares).map(down).collect())
        }
        Colours::Users(holders) => {
            let free = USERS.len() + 1;
            let class = |(node, held): (&NodeInfo, &Option<usize>)| match held {
                Some(user) => *user,
                None if look(node) >= 5 => free + 1,
                None => free,
            };
            let names = USERS.into_iter().chain(["others", "idle", "down"]).collect();
            (names, nodes.iter().zip(&holders.of).map(class).collect())
        }
    };
    legend(body, colours, &looks);
    body.raw("<div class=\"racks\">");
    for group in groups(nodes, config) {
        let own: Vec<usize> = group.cells.iter().map(|at| at.map_or(names.len(), |at| classes[at])).collect();
        let looks = counts(group.nodes().map(|at| &nodes[at]));
        let about: Vec<String> =
            LOOKS.iter().zip(looks).filter(|(_, n)| *n > 0).map(|((_, word), n)| format!("{n} {word}")).collect();
        body.put(
            "<a class=\"rack\" href=\"{}\"><span>{}</span>",
            &[&link("/nodes", &[("group", &group.name)]), &group.name],
        );
        let titles: Vec<String> = match nodes.len() {
            ..=TITLED => group.cells.iter().map(|at| at.map_or_else(String::new, |at| title(&nodes[at]))).collect(),
            _ => Vec::new(),
        };
        chart::squares(body, (&about.join(", "), group.columns), &names, (&own, &titles));
        body.raw("</a>");
    }
    body.raw("</div>");
}

fn list(body: &mut Html, view: &View, nodes: &[NodeInfo], config: &Config, asked: &NodesQuery) {
    let group = Some(&asked.group).filter(|name| !name.is_empty());
    let members = group.map(|name| groups(nodes, config).into_iter().find(|group| group.name == *name));
    let members: Vec<usize> = match members {
        None => (0..nodes.len()).collect(),
        Some(group) => group.map(|group| group.nodes().collect()).unwrap_or_default(),
    };
    let fits = |node: &&NodeInfo| {
        let state = LOOKS[look(node)].0;
        (asked.state.is_empty() || state == asked.state)
            && (asked.partition.is_empty() || node.partitions.contains(&asked.partition))
            && (asked.find.is_empty() || node.name.contains(&asked.find))
    };
    let chosen: Vec<&NodeInfo> = members.iter().map(|at| &nodes[*at]).filter(fits).collect();
    let address = |state: &str, page: usize| {
        let page = if page > 0 { page.to_string() } else { String::new() };
        link(
            "/nodes",
            &[
                ("by", &asked.by),
                ("state", state),
                ("group", &asked.group),
                ("partition", &asked.partition),
                ("find", &asked.find),
                ("page", &page),
            ],
        )
    };
    card(body, "list", if asked.group.is_empty() { "List" } else { &asked.group });
    body.raw("<form class=\"filter\" action=\"/nodes\" role=\"search\">");
    for (name, label, value) in [("find", "Name", &asked.find), ("partition", "Partition", &asked.partition)] {
        body.put(
            "<label>{} <input name=\"{}\" value=\"{}\" size=\"10\" autocomplete=\"off\"></label>",
            &[&label, &name, value],
        );
    }
    body.raw("<label>State <select name=\"state\"><option value=\"\">any</option>");
    for (class, word) in LOOKS {
        let form = if class == asked.state {
            "<option value=\"{}\" selected>{}</option>"
        } else {
            "<option value=\"{}\">{}</option>"
        };
        body.put(form, &[&class, &word]);
    }
    body.raw("</select></label>");
    body.raw("<button>Filter</button> <a href=\"/nodes\">All</a></form>");
    let first = asked.page.saturating_mul(ROWS).min(chosen.len());
    let end = (first + ROWS).min(chosen.len());
    let places = format!("{} to {} of {} nodes", first + usize::from(end > 0), end, chosen.len());
    body.put("<p class=\"note\" id=\"count\" aria-live=\"polite\">{}</p>", &[&places]);
    body.raw(
        "<table class=\"rows cards\"><thead><tr><th scope=\"col\">Node</th><th scope=\"col\">State</th><th scope=\"col\">CPUs</th>\
         <th scope=\"col\">Memory</th><th scope=\"col\">Generic resources</th><th scope=\"col\" class=\"n\">Jobs</th>\
         <th scope=\"col\" class=\"n\">Load</th><th scope=\"col\">Partitions</th><th scope=\"col\">Reason</th></tr></thead><tbody>",
    );
    for node in &chosen[first..end] {
        line(body, view, node);
    }
    body.raw("</tbody></table>");
    pager(body, chosen.len(), ROWS, asked.page, &|page| address(&asked.state, page));
    body.raw("</section>");
}

fn state(body: &mut Html, node: &NodeInfo) {
    body.put("<span class=\"state\"><svg class=\"squares\" viewBox=\"0 0 10 10\" width=\"10\" aria-hidden=\"true\"><path class=\"{}\" d=\"M1 5h8\"/></svg> {}</span>", &[
        &LOOKS[look(node)].0,
        &NodeState::of(node).long(),
    ]);
}

fn load(node: &NodeInfo) -> String {
    format!("{}.{:02}", node.load_centi / 100, node.load_centi % 100)
}

fn line(body: &mut Html, view: &View, node: &NodeInfo) {
    body.put(
        "<tr><th scope=\"row\" data-name=\"Node\"><a href=\"/node/{}\">{}</a></th><td data-name=\"State\">",
        &[&encoded(&node.name), &node.name],
    );
    state(body, node);
    body.raw("</td><td data-name=\"CPUs\">");
    let (used, all) = (u64::from(node.cpus_used), u64::from(node.hardware.cpus));
    body.put("{} <span class=\"dim\">of {}</span>", &[&used, &all]);
    chart::meter(body, &format!("{used} of {all} CPUs"), all, &[("used", used)]);
    let memory = (node.memory_used_mb, node.hardware.memory_mb);
    body.put(
        "</td><td data-name=\"Memory\">{} <span class=\"dim\">of {}</span>",
        &[&format_memory_mb(memory.0), &format_memory_mb(memory.1)],
    );
    chart::meter(body, "memory held by jobs", memory.1, &[("used", memory.0)]);
    body.put("</td><td data-name=\"Generic resources\">{}</td><td class=\"n\" data-name=\"Jobs\">{}</td><td class=\"n\" data-name=\"Load\">{}</td><td data-name=\"Partitions\">{}</td><td data-name=\"Reason\" class=\"cut\">", &[
        &if node.gres.is_empty() { "" } else { &node.gres },
        &node.jobs_running,
        &load(node),
        &node.partitions.join(", "),
    ]);
    if let Some((reason, _, at)) = &node.reason {
        body.put("<bdi>{}</bdi> ", &[reason]);
        view.time(body, Some(*at), "");
    }
    body.raw("</td></tr>");
}

/// What may stand in the address of a node's page.
#[derive(Debug, Deserialize)]
pub(crate) struct AskedOne {
    #[serde(default)]
    done: String,
}

/// `GET /node/NAME`.
pub(crate) async fn one(
    State(server): State<ServerHandle>,
    viewer: Viewer,
    Path(name): Path<String>,
    Query(asked): Query<AskedOne>,
) -> Result<Response, Problem> {
    // After a deed its effect is to be seen.
    let since = (!asked.done.is_empty()).then(Instant::now);
    let (nodes, jobs) = (server.cluster.nodes(since).await?, server.cluster.jobs(None).await?);
    let view = View { done: act::done(&asked.done), ..View::of(&server, &viewer).await? };
    let Some(at) = nodes.iter().position(|node| node.name == name) else {
        return Err(Problem::missing(format!("No node is called {name}.")));
    };
    made(move || node_page(&view, &nodes[at], &jobs)).await
}

/// Returns the page of a node.
pub(crate) fn node_page(view: &View, node: &NodeInfo, jobs: &Arc<JobsPage>) -> Html {
    let mut body = Html::new();
    body.put("<h1>Node {} ", &[&node.name]);
    state(&mut body, node);
    body.raw("</h1>");
    act::offer_node(&mut body, view, &node.name, node.admin);
    card(&mut body, "facts", "Hardware and use");
    body.raw("<dl class=\"facts\">");
    let hardware = &node.hardware;
    let features = node.features.join(", ");
    for (name, value) in [
        ("State", NodeState::of(node).list().join("+")),
        ("Has", node::has(node)),
        ("Held by jobs", node::holds(node)),
        ("Load", load(node)),
        ("Free memory", format_memory_mb(node.free_mb)),
        (
            "Sockets, cores, threads",
            format!("{}, {}, {}", hardware.sockets, hardware.cores_per_socket, hardware.threads_per_core),
        ),
        ("System", format!("{} {}", hardware.os, hardware.arch)),
        ("Address", hardware.address.clone()),
        ("Partitions", node.partitions.join(", ")),
        ("Features", features),
        ("Reservation", node.reservation.clone()),
        ("Weight", node.weight.to_string()),
        ("Version", node.version.clone()),
        ("Comment", node.comment.clone()),
    ] {
        if !value.trim().is_empty() {
            body.put("<div><dt>{}</dt><dd>{}</dd></div>", &[&name, &value]);
        }
    }
    if let Some((reason, _, at)) = &node.reason {
        body.put("<div class=\"wide\"><dt>Reason</dt><dd><bdi>{}</bdi> ", &[reason]);
        view.time(&mut body, Some(*at), "");
        body.raw("</dd></div>");
    }
    if !node.faults.is_empty() {
        body.put("<div class=\"wide\"><dt>Faults</dt><dd>{}</dd></div>", &[&node::faults(node, &view.clock)]);
    }
    for (name, at) in [("Registered", node.registered), ("Last message", node.heard)] {
        body.put("<div><dt>{}</dt><dd>", &[&name]);
        view.time(&mut body, Some(at), "never");
        body.raw("</dd></div>");
    }
    body.raw("</dl></section>");
    card(&mut body, "jobs", "Jobs on it");
    let holds = |job: &&JobInfo| {
        !matches!(job.state, JobState::Pending | JobState::Ended(_)) && hostlist::contains(&job.run().nodes, &node.name)
    };
    let all = Rows::new(view, jobs);
    let shown: Vec<JobRow> = jobs.jobs.iter().filter(holds).take(200).filter_map(|job| all.of(job)).collect();
    queue::table(&mut body, view, &shown, (&HashMap::new(), &HashMap::new()));
    body.raw("</section>");
    view.page("/nodes", &format!("Node {}", node.name), &body)
}
