//! The queue: jobs with their reasons and expected starts, a page at a time.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use squall_client::ClientError;
use squall_model::duration::format_memory_mb;
use squall_model::id::JobId;
use squall_model::job::JobState;
use squall_model::time::{Span, Time};
use squall_model::wire::info::{ExpectedStart, JobInfo, JobsPage};
use squall_text::format::job::JobRow;
use squall_text::format::{why, words};
use squall_text::report::lately::Lately;

use crate::routes::ServerHandle;
use crate::web::chart::{self, Caption, PlanBar};
use crate::web::frame::{Problem, View, made};
use crate::web::html::{Html, card, link, pager};
use crate::web::job::memory;
use crate::web::lately;
use crate::web::past::choice;
use crate::web::people::Viewer;
use crate::web::row::{self, Rows, count};

/// Rows of a page.
const ROWS: usize = 50;
/// Most rows of the Gantt chart.
const PLANNED: usize = 24;
/// Longest time that the Gantt chart covers.
const AHEAD: Span = Span::from_secs(7 * 86_400);

/// What of the queue is asked for. Empty: anything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct QueueQuery {
    pub(crate) user: String,
    pub(crate) state: String,
    pub(crate) partition: String,
    pub(crate) account: String,
    pub(crate) reason: String,
    /// A part of a name, or a job id.
    pub(crate) find: String,
    pub(crate) page: usize,
}

/// Kinds of states by which the queue is filtered.
const KINDS: [(&str, &str); 4] = [("", "All"), ("pending", "Pending"), ("running", "Running"), ("ended", "Ended")];

/// `GET /jobs`.
pub(crate) async fn show(
    State(server): State<ServerHandle>,
    viewer: Viewer,
    Query(asked): Query<QueueQuery>,
) -> Result<Response, Problem> {
    let who = &viewer.caller.identity;
    let (jobs, expected) = (server.cluster.jobs_seen_by(who, None).await?, server.cluster.expected(None).await?);
    let view = View::of(&server, &viewer).await?;
    let (all, looked) = (Arc::clone(&jobs), asked.clone());
    let picked = tokio::task::spawn_blocking(move || picked(&all, &looked)).await;
    let picked = picked.map_err(|e| ClientError::Lost(e.to_string()))?;
    let may = |job: &&JobInfo| jobs.owners.get(job.owner as usize).is_some_and(|owner| view.may(owner.uid));
    let used = server.web.used.of(&server, who, picked.jobs.iter().filter(may)).await;
    made(move || page(&view, &jobs, (&expected, &used), (&asked, &picked))).await
}

/// The jobs on a page of the list.
#[derive(Debug)]
pub(crate) struct Picked {
    /// Number of jobs of each kind.
    kinds: [u64; KINDS.len()],
    /// Index of the first job in the list, and the length of the list.
    first: usize,
    total: usize,
    jobs: Vec<JobInfo>,
}

fn of_kind(state: JobState, kind: &str) -> bool {
    let word = words::state(state).0;
    match kind {
        "" => true,
        "ended" => matches!(state, JobState::Ended(_)),
        "running" => !matches!(state, JobState::Ended(_) | JobState::Pending),
        kind => word.eq_ignore_ascii_case(kind),
    }
}

impl QueueQuery {
    fn fits(&self, jobs: &JobsPage, job: &JobInfo) -> bool {
        let owner = || jobs.owners.get(job.owner as usize);
        let class = || jobs.class(job);
        let found = || {
            let named = jobs.specs.get(job.spec as usize).is_some_and(|spec| spec.name.contains(&self.find));
            let task = job.task.map(|task| task.array.to_string());
            named || job.id.to_string() == self.find || task.as_ref() == Some(&self.find)
        };
        (self.user.is_empty() || owner().is_some_and(|owner| owner.user == self.user))
            && (self.partition.is_empty() || class().is_some_and(|class| class.partition == self.partition))
            && (self.account.is_empty() || class().is_some_and(|class| class.account == self.account))
            && (self.reason.is_empty() || words::pending_reason(&job.reason) == self.reason)
            && (self.find.is_empty() || found())
    }

    /// Returns the address of another page of the list.
    fn link(&self, state: &str, page: usize) -> String {
        let page = if page > 0 { page.to_string() } else { String::new() };
        let Self { user, partition, account, reason, find, .. } = self;
        link(
            "/jobs",
            &[
                ("state", state),
                ("user", user),
                ("partition", partition),
                ("account", account),
                ("reason", reason),
                ("find", find),
                ("page", &page),
            ],
        )
    }
}

/// Returns the rank of a job in the list: running ones first, then pending ones in the order of the queue, then the
/// others, the latest first.
fn rank(job: &JobInfo) -> (u8, Reverse<u64>, JobId) {
    match job.state {
        JobState::Running | JobState::Configuring | JobState::Suspended | JobState::Completing(_) => {
            (0, Reverse(job.start.map_or(0, |at| at.0)), job.id)
        }
        JobState::Pending => (1, Reverse(u64::from(job.priority)), job.id),
        JobState::Ended(_) => (2, Reverse(job.end.map_or(0, |at| at.0)), job.id),
    }
}

/// Returns the jobs on the page that is asked for.
pub(crate) fn picked(jobs: &JobsPage, asked: &QueueQuery) -> Picked {
    let mut kinds = [0_u64; KINDS.len()];
    let mut chosen: Vec<&JobInfo> = Vec::new();
    for job in jobs.jobs.iter().filter(|job| asked.fits(jobs, job)) {
        for (kind, (name, _)) in kinds.iter_mut().zip(KINDS) {
            *kind += if of_kind(job.state, name) { count(job) } else { 0 };
        }
        if of_kind(job.state, &asked.state) {
            chosen.push(job);
        }
    }
    let first = asked.page.saturating_mul(ROWS).min(chosen.len());
    let end = (first + ROWS).min(chosen.len());
    if chosen.len() > end {
        chosen.select_nth_unstable_by_key(end, |job| rank(job));
    }
    chosen[..end].sort_unstable_by_key(|job| rank(job));
    let shown = chosen[first..end].iter().map(|job| (*job).clone()).collect();
    Picked { kinds, first, total: chosen.len(), jobs: shown }
}

/// Returns the page. `used`: what running jobs of the list use.
pub(crate) fn page(
    view: &View,
    jobs: &Arc<JobsPage>,
    (expected, used): (&[ExpectedStart], &lately::ByJob),
    (asked, picked): (&QueueQuery, &Picked),
) -> Html {
    let all = Rows::new(view, jobs);
    let starts: HashMap<JobId, &ExpectedStart> = expected.iter().map(|start| (start.id, start)).collect();
    let shown: Vec<JobRow> = picked.jobs.iter().filter_map(|job| all.of(job)).collect();

    let mut body = Html::new();
    body.raw("<h1>Jobs</h1>");
    filter(&mut body, view, jobs, (asked, picked.kinds));
    card(&mut body, "list", "Queue");
    let end = picked.first + picked.jobs.len();
    let places = format!("{} to {end} of {} entries", picked.first + usize::from(end > 0), picked.total);
    body.put("<p class=\"note\"><span id=\"count\" aria-live=\"polite\">{}</span>", &[&places]);
    let planned = planned(view, &shown, &starts);
    body.raw(if planned.is_empty() { "</p>" } else { " · <a href=\"#plan\">Expected course ↓</a></p>" });
    table(&mut body, view, &shown, (&starts, used));
    pager(&mut body, picked.total, ROWS, asked.page, &|page| asked.link(&asked.state, page));
    body.raw("</section>");
    plan(&mut body, view, &planned);
    view.page("/jobs", "Jobs", &body)
}

fn filter(body: &mut Html, view: &View, jobs: &JobsPage, (asked, kinds): (&QueueQuery, [u64; KINDS.len()])) {
    body.raw("<section class=\"filter\" aria-label=\"Filter\" id=\"filter\"><ul class=\"tabs\">");
    for ((kind, name), count) in KINDS.into_iter().zip(kinds) {
        let current = if asked.state.eq_ignore_ascii_case(kind) { "true" } else { "false" };
        body.put(
            "<li><a href=\"{}\" aria-current=\"{}\">{} <span class=\"dim\">{}</span></a></li>",
            &[&asked.link(kind, 0), &current, &name, &count],
        );
    }
    let mine = link("/jobs", &[("user", &view.user)]);
    body.put(
        "</ul><form action=\"/jobs\" role=\"search\"><input type=\"hidden\" name=\"state\" value=\"{}\">",
        &[&asked.state],
    );
    for (name, label, value) in [("find", "Name or id", &asked.find), ("user", "User", &asked.user)] {
        body.put(
            "<label>{} <input name=\"{}\" value=\"{}\" size=\"8\" autocomplete=\"off\"></label>",
            &[&label, &name, value],
        );
    }
    let partitions = jobs.classes.iter().map(|class| &*class.partition);
    any_of(body, ("partition", "Partition"), &asked.partition, partitions);
    any_of(body, ("account", "Account"), &asked.account, jobs.classes.iter().map(|class| &*class.account));
    body.put("<button>Filter</button> <a href=\"{}\">My jobs</a> <a href=\"/jobs\">All</a> <a href=\"/past\">Past jobs</a></form></section>", &[&mine]);
}

/// Appends a choice of all values that jobs have, or any.
fn any_of<'a>(body: &mut Html, name: (&str, &str), chosen: &'a str, all: impl Iterator<Item = &'a str>) {
    let known: BTreeSet<&str> = all.chain([chosen]).filter(|known| !known.is_empty()).collect();
    choice(body, name, chosen, [("", "any")].into_iter().chain(known.into_iter().map(|known| (known, known))));
}

/// Appends a table of jobs. `used`: what running ones use, as far as it is known.
pub(crate) fn table(
    body: &mut Html,
    view: &View,
    shown: &[JobRow],
    (starts, used): (&HashMap<JobId, &ExpectedStart>, &lately::ByJob),
) {
    if shown.is_empty() {
        body.raw("<p class=\"dim\">No jobs.</p>");
        return;
    }
    body.raw(
        "<table class=\"rows cards\"><thead><tr><th scope=\"col\">Job</th><th scope=\"col\">Name</th><th scope=\"col\">User</th>\
         <th scope=\"col\">Partition</th><th scope=\"col\">State</th><th scope=\"col\" class=\"n\">Nodes</th>\
         <th scope=\"col\" class=\"n\">CPUs</th><th scope=\"col\">Time</th>",
    );
    if !used.is_empty() {
        body.raw("<th scope=\"col\">CPUs and memory in use</th>");
    }
    body.raw("<th scope=\"col\">Where, or why it waits</th></tr></thead><tbody>");
    for job in shown {
        body.put(
            "<tr><th scope=\"row\" data-name=\"Job\"><a href=\"{}\">{}</a></th>",
            &[&row::path(job), &job.array_id()],
        );
        body.put("<td data-name=\"Name\" class=\"cut\"><bdi>{}</bdi></td>", &[&job.spec.name]);
        body.put(
            "<td data-name=\"User\"><a href=\"{}\"><bdi>{}</bdi></a></td><td data-name=\"Partition\">{}</td>",
            &[&link("/jobs", &[("user", &job.owner.user)]), &job.owner.user, &job.class.partition],
        );
        body.raw("<td data-name=\"State\">");
        row::state(body, job.info.state);
        body.put("</td><td class=\"n\" data-name=\"Nodes\">{}</td><td class=\"n\" data-name=\"CPUs\">{}</td><td data-name=\"Time\">", &[
            &job.info.num_nodes,
            &job.info.num_cpus,
        ]);
        time(body, job);
        if !used.is_empty() {
            body.raw("</td><td data-name=\"In use\">");
            in_use(body, job, used.get(&job.info.id));
        }
        body.raw("</td><td data-name=\"Where\">");
        place(body, view, job, starts.get(&job.info.id).copied());
        body.raw("</td></tr>");
    }
    body.raw("</tbody></table>");
}

fn time(body: &mut Html, job: &JobRow) {
    let used = squall_model::duration::format_short(job.time_used());
    if job.info.state == JobState::Pending {
        body.put("<span class=\"dim\">limit {}</span>", &[&job.time_limit()]);
        return;
    }
    body.put("{} <span class=\"dim\">of {}</span>", &[&used, &job.time_limit()]);
    if let Some(limit) = job.info.time_limit_s.filter(|_| job.info.state == JobState::Running) {
        chart::meter(body, &format!("{used} of {}", job.time_limit()), limit, &[("used", job.time_used())]);
    }
}

/// Appends what a job uses of what it holds, and whether it is idle.
fn in_use(body: &mut Html, job: &JobRow, used: Option<&Lately>) {
    let Some(used) = used else { return };
    let cpus = format!("{:.1} of {} CPUs", used.cpus, job.info.num_cpus);
    let held_kb = job.info.memory_mb.saturating_mul(1024);
    let memory = match held_kb {
        0 => memory(used.memory_kb),
        _ => format!("{} of {}", memory(used.memory_kb), format_memory_mb(job.info.memory_mb)),
    };
    match used.idle() {
        Some(long) => {
            body.put("<span class=\"mark idle\">idle for {}</span> <span class=\"dim\">{}</span>", &[&long, &memory])
        }
        None => body.put("{} <span class=\"dim\">{}</span>", &[&cpus, &memory]),
    };
    let milli = u64::from(job.info.num_cpus) * 1000;
    chart::meter(body, &cpus, milli, &[("used", ((used.cpus * 1000.0) as u64).min(milli))]);
    if held_kb > 0 {
        chart::meter(body, &memory, held_kb, &[("running", used.memory_kb.min(held_kb))]);
    }
}

fn place(body: &mut Html, view: &View, job: &JobRow, expected: Option<&ExpectedStart>) {
    match job.info.state {
        JobState::Pending => {
            let reason = &job.info.reason;
            body.put(
                "<a href=\"{}#why\" title=\"{}\">{}</a>",
                &[&row::path(job), &why::meaning(reason), &words::pending_reason(reason)],
            );
            if let Some(at) = expected.map(|start| start.time).or(job.info.start) {
                body.raw(" <span class=\"dim\">starts ");
                view.time(body, Some(at.max(view.clock.now)), "");
                body.raw("</span>");
            }
        }
        JobState::Ended(_) => {
            body.put(
                "<span class=\"dim\">{}</span> ",
                &[&Some(job.reason()).filter(|r| r != "None").unwrap_or_default()],
            );
            view.time(body, job.info.end, "");
        }
        _ => row::nodes(body, &job.info.run().nodes),
    }
}

/// Returns the bars of running jobs, until their limits, and of pending ones, when they are expected: some of each.
fn planned(view: &View, shown: &[JobRow], starts: &HashMap<JobId, &ExpectedStart>) -> Vec<PlanBar> {
    let now = view.clock.now;
    let (mut running, mut pending) = (Vec::new(), Vec::new());
    for job in shown {
        let limit = job.info.time_limit_s.map(Span::from_secs);
        let (from, until, class, list) = match job.info.state {
            JobState::Running | JobState::Configuring | JobState::Suspended => {
                (job.info.start.unwrap_or(now), job.info.end, "running", &mut running)
            }
            JobState::Pending => {
                let Some(at) = starts.get(&job.info.id).map(|start| start.time).or(job.info.start) else { continue };
                let at = at.max(now);
                (at, limit.map(|limit| at + limit), "expected", &mut pending)
            }
            _ => continue,
        };
        let end = until.map_or_else(|| "no limit".to_owned(), |until| view.clock.show(until));
        let note = format!("{} {}: {} to {end}", job.array_id(), job.spec.name, view.clock.show(from));
        list.push(PlanBar { name: format!("{} {}", job.array_id(), job.spec.name), class, from, until, note });
    }
    running.sort_by_key(|job| job.until.unwrap_or(Time(u64::MAX)));
    pending.sort_by_key(|job| job.from);
    pending.truncate(PLANNED - running.len().min(PLANNED / 2));
    running.truncate(PLANNED - pending.len());
    running.into_iter().chain(pending).collect()
}

/// Appends jobs as a Gantt chart.
fn plan(body: &mut Html, view: &View, all: &[PlanBar]) {
    let now = view.clock.now;
    if all.is_empty() {
        return;
    }
    card(body, "plan", "Expected course");
    chart::legend(body, [("running", "runs, until its limit"), ("expected", "expected")].into_iter());
    let ends = all.iter().filter_map(|job| job.until);
    let until = ends.max().unwrap_or(now + Span::from_secs(3600)).clamp(now + Span::from_secs(600), now + AHEAD);
    let back = Span(until.since(now).0 / 4);
    let from = all.iter().map(|job| job.from).min().unwrap_or(now).max(now - back);
    let about = format!("{} jobs until {}. The table has the same times.", all.len(), view.clock.show(until));
    chart::plan(body, &Caption { id: "g", title: "Jobs over time", about }, &view.clock, (from, until), all);
    body.raw(
        "<p class=\"note\">Pending jobs are drawn where they start if every job runs until its limit.</p></section>",
    );
}
