//! The overview: how full the cluster is, who waits and how long, in which states jobs and nodes are.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use squall_model::config::Config;
use squall_model::gres;
use squall_model::job::{JobState, PendingReason};
use squall_model::time::Time;
use squall_model::wire::info::{ExpectedStart, JobsPage, NodeInfo, PartitionInfo};
use squall_text::format::node::NodeState;
use squall_text::format::{why, words};
use squall_text::report::many::EndedGroup;

use crate::routes::ServerHandle;
use crate::web::chart::{self, Caption, Series, percent, short};
use crate::web::frame::{Problem, View, made};
use crate::web::history::Sample;
use crate::web::html::{Html, card, link};
use crate::web::people::Viewer;
use crate::web::places::{LOOKS, counts};
use crate::web::row::count;
use crate::web::{faults, mine, nodes, row};

/// What the overview is made of.
#[derive(Clone, Debug)]
pub(crate) struct OverviewData {
    pub(crate) jobs: Arc<JobsPage>,
    pub(crate) nodes: Arc<Vec<NodeInfo>>,
    pub(crate) partitions: Arc<Vec<PartitionInfo>>,
    pub(crate) config: Arc<Config>,
    pub(crate) history: Vec<Sample>,
    pub(crate) starts: Arc<Vec<ExpectedStart>>,
    /// What of the viewer has failed lately.
    pub(crate) failed: Arc<Vec<EndedGroup>>,
}

/// `GET /`.
pub(crate) async fn show(State(server): State<ServerHandle>, viewer: Viewer) -> Result<Response, Problem> {
    let cluster = &server.cluster;
    let who = &viewer.caller.identity;
    let (jobs, nodes) = (cluster.jobs_seen_by(who, None).await?, cluster.nodes(None).await?);
    let (partitions, config) = (cluster.partitions(None).await?, cluster.config(None).await?);
    let starts = cluster.expected(None).await?;
    let view = View::of(&server, &viewer).await?;
    let failed = server.web.failed.of(&server, who, &view).await;
    made(move || {
        let history = server.web.history.add(sample(&view, &jobs, &nodes));
        page(&view, &OverviewData { jobs, nodes, partitions, config, history, starts, failed })
    })
    .await
}

fn sample(view: &View, jobs: &JobsPage, nodes: &[NodeInfo]) -> Sample {
    let of = |state| jobs.jobs.iter().filter(|job| job.state == state).map(count).sum();
    let (cpus_used, cpus) = cpus(nodes);
    Sample { at: view.clock.now, cpus_used, cpus, running: of(JobState::Running), pending: of(JobState::Pending) }
}

/// Returns the CPUs that jobs hold, and those of nodes that are not down.
pub(crate) fn cpus<'a>(nodes: impl IntoIterator<Item = &'a NodeInfo>) -> (u64, u64) {
    nodes.into_iter().fold((0, 0), |(used, all), node| {
        let usable = NodeState::of(node).usable() || node.cpus_used > 0;
        (used + u64::from(node.cpus_used), all + u64::from(if usable { node.hardware.cpus } else { 0 }))
    })
}

/// Returns the GPUs in a list of generic resources such as `gpu:a100:4(IDX:0-3)`.
fn gpus(list: &str) -> u64 {
    let bare: String = list.split('(').map(|part| part.split_once(')').map_or(part, |(_, rest)| rest)).collect();
    let gpus = gres::parse(&bare).unwrap_or_default().into_iter().filter(|count| count.name == "gpu");
    gpus.map(|count| u64::from(count.count)).sum()
}

/// Returns the page.
pub(crate) fn page(view: &View, seen: &OverviewData) -> Html {
    let mut body = Html::new();
    body.raw("<h1>Overview</h1>");
    faults::list(&mut body, &view.faults);
    mine::strip(&mut body, view, &seen.jobs, &seen.starts, &seen.failed);
    tiles(&mut body, seen);
    body.raw("<div class=\"grid\">");
    utilisation(&mut body, view, &seen.history);
    queue(&mut body, view, &seen.history);
    waits(&mut body, view, &seen.jobs);
    reasons(&mut body, &seen.jobs);
    body.raw("</div>");
    partitions(&mut body, seen);
    body.raw("<div class=\"grid\">");
    users(&mut body, &seen.jobs);
    states(&mut body, &seen.jobs);
    body.raw("</div><section class=\"card\" id=\"map\"><h2><a href=\"/nodes\">Nodes</a></h2>");
    nodes::map(&mut body, &seen.nodes, &seen.config, &nodes::Colours::States);
    body.raw("</section>");
    view.page("/", "Overview", &body)
}

fn tiles(body: &mut Html, seen: &OverviewData) {
    let (used, all) = cpus(&*seen.nodes);
    let of = |state: &dyn Fn(JobState) -> bool| -> u64 {
        seen.jobs.jobs.iter().filter(|job| state(job.state)).map(count).sum()
    };
    let (running, pending) = (of(&|s| s == JobState::Running), of(&|s| s == JobState::Pending));
    let looks = counts(&*seen.nodes);
    let (drained, down) = (looks[5], looks[6]);
    let up = seen.nodes.len() as u64 - down - drained;
    body.raw("<section class=\"tiles\" id=\"tiles\" aria-label=\"Now\">");
    tile(body, "CPUs in use", &format!("{} %", percent(used, all)), &format!("{used} of {all}"), (used, all));
    let (gpus_used, gpus_all) =
        seen.nodes.iter().fold((0, 0), |(used, all), node| (used + gpus(&node.gres_used), all + gpus(&node.gres)));
    if gpus_all > 0 {
        let share = format!("{} %", percent(gpus_used, gpus_all));
        tile(body, "GPUs in use", &share, &format!("{gpus_used} of {gpus_all}"), (gpus_used, gpus_all));
    }
    let out = format!("of {} nodes; {drained} drained, {down} down", seen.nodes.len());
    tile(body, "Nodes up", &up.to_string(), &out, (up, seen.nodes.len() as u64));
    let users = |state| {
        let jobs = seen.jobs.jobs.iter().filter(|job| job.state == state);
        jobs.map(|job| job.owner).collect::<std::collections::BTreeSet<_>>().len()
    };
    let all_jobs = running + pending;
    let of_users = |count: usize| format!("of {count} {}", if count == 1 { "user" } else { "users" });
    tile(body, "Running jobs", &running.to_string(), &of_users(users(JobState::Running)), (running, all_jobs));
    tile(body, "Pending jobs", &pending.to_string(), &of_users(users(JobState::Pending)), (pending, all_jobs));
    body.raw("</section>");
}

fn tile(body: &mut Html, name: &str, value: &str, note: &str, (part, whole): (u64, u64)) {
    body.put("<div class=\"tile\"><h2>{}</h2><p class=\"big\">{}</p><p class=\"dim\">{}</p>", &[&name, &value, &note]);
    chart::meter(body, &format!("{name}: {value} {note}"), whole, &[("used", part)]);
    body.raw("</div>");
}

fn utilisation(body: &mut Html, view: &View, history: &[Sample]) {
    card(body, "utilisation", "CPUs in use");
    let points = |of: &dyn Fn(&Sample) -> u64| history.iter().map(|s| (s.at, of(s) as f64)).collect::<Vec<_>>();
    let last = history.last().copied().unwrap_or_default();
    let about = format!("Now {} of {} CPUs are held by jobs.", last.cpus_used, last.cpus);
    let lines = [
        Series { name: "held by jobs", class: "c-used", filled: true, points: points(&|s| s.cpus_used) },
        Series { name: "usable", class: "c-all", filled: false, points: points(&|s| s.cpus) },
    ];
    chart::over_time(body, &Caption { id: "u", title: "CPUs in use", about }, &view.clock, "CPUs", 1.0, &lines);
    since(body, view, history);
    body.raw("</section>");
}

fn queue(body: &mut Html, view: &View, history: &[Sample]) {
    card(body, "queue", "Queue");
    let points = |of: &dyn Fn(&Sample) -> u64| history.iter().map(|s| (s.at, of(s) as f64)).collect::<Vec<_>>();
    let last = history.last().copied().unwrap_or_default();
    let about = format!("Now {} jobs run and {} wait.", last.running, last.pending);
    let lines = [
        Series { name: "running", class: "c-running", filled: false, points: points(&|s| s.running) },
        Series { name: "pending", class: "c-pending", filled: false, points: points(&|s| s.pending) },
    ];
    chart::over_time(body, &Caption { id: "q", title: "Jobs", about }, &view.clock, "jobs", 1.0, &lines);
    since(body, view, history);
    body.raw("</section>");
}

fn since(body: &mut Html, view: &View, history: &[Sample]) {
    body.raw("<p class=\"note\">Recorded while somebody had a page open, since ");
    view.time(body, history.first().map(|sample| sample.at), "now");
    body.raw("</p>");
}

/// Upper ends of the classes of waits, seconds, and their names.
const WAITS: [(u64, &str); 9] = [
    (10, "10 s"),
    (60, "1 min"),
    (600, "10 min"),
    (3600, "1 h"),
    (4 * 3600, "4 h"),
    (12 * 3600, "12 h"),
    (86_400, "1 day"),
    (7 * 86_400, "7 days"),
    (u64::MAX, "more"),
];

fn waits(body: &mut Html, view: &View, jobs: &JobsPage) {
    card(body, "waits", "How long jobs waited");
    let mut classes = WAITS.map(|(_, name)| (name.to_owned(), 0));
    let (mut total, mut sum) = (0_u64, 0_u64);
    for job in jobs.jobs.iter().filter(|job| job.state != JobState::Pending && !job.run().nodes.is_empty()) {
        let (Some(start), Some(since)) = (job.start, Some(job.eligible).filter(|at| *at > Time::default())) else {
            continue;
        };
        let wait = start.since(since).secs();
        let class = WAITS.partition_point(|(end, _)| *end <= wait).min(WAITS.len() - 1);
        classes[class].1 += 1;
        (total, sum) = (total + 1, sum + wait);
    }
    let mean = squall_model::duration::format_short(sum.checked_div(total).unwrap_or(0));
    let about = format!("{total} jobs waited {mean} on average.");
    let caption = Caption { id: "w", title: "Jobs by how long they waited", about: about.clone() };
    chart::bars(body, &caption, "c-pending", "jobs; waited less than", &classes);
    body.put("<p class=\"note\">{} Jobs that have started and are in the controller's memory. ", &[&about]);
    let oldest = jobs.jobs.iter().filter(|job| job.state == JobState::Pending).map(|job| job.submit).min();
    if let Some(oldest) = oldest {
        body.raw("The oldest pending job was submitted ");
        view.time(body, Some(oldest), "");
        body.raw(".");
    }
    body.raw("</p></section>");
}

fn reasons(body: &mut Html, jobs: &JobsPage) {
    card(body, "reasons", "Why jobs wait");
    let mut all: BTreeMap<&'static str, (u64, &PendingReason)> = BTreeMap::new();
    for job in jobs.jobs.iter().filter(|job| job.state == JobState::Pending) {
        all.entry(words::pending_reason(&job.reason)).or_insert((0, &job.reason)).0 += count(job);
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    if all.is_empty() {
        body.raw("<p class=\"dim\">No job waits.</p></section>");
        return;
    }
    body.raw("<table class=\"cards\"><thead><tr><th scope=\"col\">Reason</th><th scope=\"col\">Meaning</th><th scope=\"col\" class=\"n\">Jobs</th></tr></thead><tbody>");
    for (name, (count, reason)) in all.into_iter().take(9) {
        body.put(
            "<tr><th scope=\"row\"><a href=\"{}\">{}</a></th><td class=\"dim\" data-name=\"Meaning\">{}</td><td class=\"n\" data-name=\"Jobs\">{}</td></tr>",
            &[&link("/jobs", &[("state", "pending"), ("reason", name)]), &name, &why::meaning(reason), &count],
        );
    }
    body.raw("</tbody></table></section>");
}

fn partitions(body: &mut Html, seen: &OverviewData) {
    card(body, "partitions", "Partitions");
    let mut waiting: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for job in &seen.jobs.jobs {
        let Some(class) = seen.jobs.class(job) else { continue };
        match job.state {
            JobState::Running => waiting.entry(&class.partition).or_default().0 += 1,
            JobState::Pending => waiting.entry(&class.partition).or_default().1 += count(job),
            _ => {}
        }
    }
    let mut of: BTreeMap<&str, Vec<&NodeInfo>> = BTreeMap::new();
    for node in &*seen.nodes {
        for partition in &node.partitions {
            of.entry(partition).or_default().push(node);
        }
    }
    body.raw(
        "<table class=\"rows cards\"><thead><tr><th scope=\"col\">Partition</th><th scope=\"col\">State</th>\
              <th scope=\"col\">Nodes</th><th scope=\"col\">CPUs in use</th><th scope=\"col\" class=\"n\">Running</th>\
              <th scope=\"col\" class=\"n\">Pending</th></tr></thead><tbody>",
    );
    for partition in &*seen.partitions {
        let name = partition.config.name.as_str();
        let own = of.get(name).map(Vec::as_slice).unwrap_or_default();
        let (used, all) = cpus(own.iter().copied());
        let (running, pending) = waiting.get(name).copied().unwrap_or_default();
        body.put(
            "<tr><th scope=\"row\"><a href=\"{}\">{}</a></th><td data-name=\"State\">{}</td><td data-name=\"Nodes\">",
            &[&link("/jobs", &[("partition", name)]), &name, &words::partition_state(partition.config.state)],
        );
        let looks = counts(own.iter().copied());
        let words = LOOKS.iter().zip(looks).filter(|(_, count)| *count > 0);
        let words: Vec<String> = words.map(|((_, word), count)| format!("{count} {word}")).collect();
        let parts = LOOKS.iter().zip(looks).map(|((class, _), count)| (*class, count)).collect::<Vec<_>>();
        chart::meter(body, &words.join(", "), own.len() as u64, &parts);
        body.put("<span class=\"dim\">{}</span></td><td data-name=\"CPUs\">", &[&words.join(", ")]);
        chart::meter(body, &format!("{used} of {all} CPUs"), all, &[("used", used)]);
        body.put(
            "<span class=\"dim\">{} of {} · {} %</span></td><td class=\"n\" data-name=\"Running\">{}</td><td class=\"n\" data-name=\"Pending\">{}</td></tr>",
            &[&used, &all, &percent(used, all), &running, &pending],
        );
    }
    body.raw("</tbody></table></section>");
}

fn users(body: &mut Html, jobs: &JobsPage) {
    card(body, "users", "Users");
    let mut all: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for job in &jobs.jobs {
        let Some(owner) = jobs.owners.get(job.owner as usize) else { continue };
        match job.state {
            JobState::Running => {
                let own = all.entry(&owner.user).or_default();
                (own.0, own.1) = (own.0 + u64::from(job.num_cpus), own.1 + 1);
            }
            JobState::Pending => all.entry(&owner.user).or_default().2 += count(job),
            _ => {}
        }
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(_, counts)| std::cmp::Reverse(*counts));
    let total: u64 = all.iter().map(|(_, (cpus, ..))| cpus).sum();
    if all.is_empty() {
        body.raw("<p class=\"dim\">No jobs.</p></section>");
        return;
    }
    body.raw("<table><thead><tr><th scope=\"col\">User</th><th scope=\"col\" class=\"n\">CPUs</th><th scope=\"col\">Share</th><th scope=\"col\" class=\"n\">Running</th><th scope=\"col\" class=\"n\">Pending</th></tr></thead><tbody>");
    for (user, (cpus, running, pending)) in all.into_iter().take(8) {
        body.put(
            "<tr><th scope=\"row\"><a href=\"{}\"><bdi>{}</bdi></a></th><td class=\"n\">{}</td><td>",
            &[&link("/jobs", &[("user", user)]), &user, &short(cpus as f64)],
        );
        chart::meter(body, &format!("{cpus} of {total} CPUs in use"), total, &[("used", cpus)]);
        body.put("</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>", &[&running, &pending]);
    }
    body.raw("</tbody></table></section>");
}

fn states(body: &mut Html, jobs: &JobsPage) {
    card(body, "states", "Jobs by state");
    let mut all: BTreeMap<u32, (JobState, u64)> = BTreeMap::new();
    for job in &jobs.jobs {
        all.entry(words::state_order(job.state)).or_insert((job.state, 0)).1 += count(job);
    }
    let most = all.values().map(|(_, count)| *count).max().unwrap_or(1);
    body.raw("<table><thead><tr><th scope=\"col\">State</th><th scope=\"col\">Share</th><th scope=\"col\" class=\"n\">Jobs</th></tr></thead><tbody>");
    for (state, count) in all.into_values() {
        let word = words::state(state).0;
        body.raw("<tr><th scope=\"row\">");
        row::state(body, state);
        body.raw("</th><td>");
        chart::meter(body, &format!("{count} {word}"), most, &[(row::look(state).0, count)]);
        body.put("</td><td class=\"n\"><a href=\"{}\">{}</a></td></tr>", &[&link("/jobs", &[("state", word)]), &count]);
    }
    body.raw("</tbody></table><p class=\"note\">Ended jobs stay in the controller's memory for a while.</p></section>");
}
