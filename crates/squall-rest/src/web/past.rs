//! Past jobs: a search over accounting, by time, user, state, partition, account and name, sorted, a page at a time.

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use squall_files::users;
use squall_model::duration::format_short;
use squall_model::job::{EndState, JobSpec, JobState};
use squall_model::time::{Span, Time};
use squall_model::wire::client::{AccountingQuery, StateFilter};
use squall_model::wire::info::{AccountingRow, PartitionInfo};
use squall_text::format::words;
use squall_text::options::values::when::when_here;
use squall_text::report::record::Record;

use crate::routes::ServerHandle;
use crate::web::frame::{Problem, View, made};
use crate::web::html::{Html, card, link, pager};
use crate::web::people::Viewer;
use crate::web::{record, row};

/// Rows of a page.
const ROWS: usize = 50;
/// Most jobs that are sorted.
const JOBS_MAX: usize = 20_000;
/// Longest text of a condition that is looked at, bytes.
const TEXT_MAX: usize = 256;

/// What of accounting is asked for. Empty: the viewer's own jobs since yesterday.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PastQuery {
    /// Name of a user; `*`: all. Empty: the viewer.
    pub(crate) user: String,
    /// A word of [`STATES`].
    pub(crate) state: String,
    pub(crate) partition: String,
    pub(crate) account: String,
    /// A part of the name.
    pub(crate) find: String,
    /// A word of [`PERIODS`].
    pub(crate) since: String,
    /// First and last day, instead of `since`: `2026-11-28`.
    pub(crate) from: String,
    pub(crate) until: String,
    /// A word of [`COLUMNS`], with a `-` before it for the other direction.
    pub(crate) sort: String,
    pub(crate) page: usize,
}

/// Periods that end now, in days before today.
const PERIODS: [(&str, &str, u64); 6] = [
    ("", "since yesterday", 1),
    ("today", "today", 0),
    ("week", "7 days", 7),
    ("month", "30 days", 30),
    ("year", "365 days", 365),
    ("ever", "all", 36_500),
];

/// States that can be asked for.
const STATES: [(&str, &str, &[StateFilter]); 9] = [
    ("", "any state", &[]),
    ("bad", "failed for any cause", &FAILED),
    ("completed", "COMPLETED", &[StateFilter::Completed]),
    ("failed", "FAILED", &[StateFilter::Failed]),
    ("cancelled", "CANCELLED", &[StateFilter::Cancelled]),
    ("timeout", "TIMEOUT", &[StateFilter::Timeout]),
    ("oom", "OUT_OF_MEMORY", &[StateFilter::OutOfMemory]),
    ("node", "NODE_FAIL", &[StateFilter::NodeFail]),
    ("preempted", "PREEMPTED", &[StateFilter::Preempted]),
];

/// States of jobs that did not do what they were to do, and that nobody had ended.
pub(crate) const FAILED: [StateFilter; 7] = [
    StateFilter::Failed,
    StateFilter::Timeout,
    StateFilter::OutOfMemory,
    StateFilter::NodeFail,
    StateFilter::Deadline,
    StateFilter::BootFail,
    StateFilter::Preempted,
];

/// How two runs are compared.
type Compare = fn(&Record, &Record) -> Ordering;

/// Columns by which the list is sorted, and whether the highest comes first.
const COLUMNS: [(&str, &str, bool, Compare); 8] = [
    ("job", "Job", true, |a, b| a.job.data.id.cmp(&b.job.data.id)),
    ("name", "Name", false, |a, b| a.job.data.name.cmp(&b.job.data.name)),
    ("user", "User", false, |a, b| a.job.data.owner.user.cmp(&b.job.data.owner.user)),
    ("partition", "Partition", false, |a, b| a.job.data.partition.cmp(&b.job.data.partition)),
    ("state", "State", false, |a, b| words::state(a.job.data.state).0.cmp(words::state(b.job.data.state).0)),
    ("ended", "Ended", true, |a, b| ended(a).cmp(&ended(b))),
    ("time", "Time", true, |a, b| a.job.elapsed().cmp(&b.job.elapsed())),
    ("cpus", "CPUs", true, |a, b| a.job.data.num_cpus.cmp(&b.job.data.num_cpus)),
];

/// Returns when a run ended; one that goes on ends last.
fn ended(record: &Record) -> Time {
    record.job.end().unwrap_or(Time(u64::MAX))
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) rows: Vec<AccountingRow>,
    /// Whether there are more.
    pub(crate) cut: bool,
    /// What of the question could not be read.
    pub(crate) problem: Option<String>,
}

/// `GET /past`.
pub(crate) async fn show(
    State(server): State<ServerHandle>,
    viewer: Viewer,
    Query(asked): Query<PastQuery>,
) -> Result<Response, Problem> {
    let view = View::of(&server, &viewer).await?;
    let partitions = server.cluster.partitions(None).await?;
    let found = match query(&view, &asked) {
        Err(problem) => Found { problem: Some(problem), ..Found::default() },
        Ok(query) => {
            let part = cut(&asked.find).to_owned();
            let keep = move |row: AccountingRow| row.name.contains(&part).then(|| slim(row));
            let (rows, cut) = server.cluster.accounting_up_to(&viewer.caller.identity, query, JOBS_MAX, keep).await?;
            Found { rows, cut, problem: None }
        }
    };
    made(move || page(&view, &partitions, found, &asked)).await
}

/// Returns a row without what the list does not show, as thousands are sorted.
fn slim(row: AccountingRow) -> AccountingRow {
    static NONE: LazyLock<Arc<JobSpec>> = LazyLock::new(Arc::default);
    AccountingRow { spec: Arc::clone(&NONE), submit_line: String::new(), losses: None, ..row }
}

/// Returns the beginning of a condition's text.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_MAX)]
}

/// Returns the question to accounting. Err: what can't be read of the conditions.
pub(crate) fn query(view: &View, asked: &PastQuery) -> Result<AccountingQuery, String> {
    let one = |text: &str| if text.is_empty() { Vec::new() } else { vec![cut(text).to_owned()] };
    let users = match cut(&asked.user) {
        "" => vec![view.uid],
        "*" => Vec::new(),
        name if name == view.user => vec![view.uid],
        name => vec![users::by_name(name).ok_or_else(|| format!("There is no user {name}."))?.uid],
    };
    let states = STATES.iter().find(|(word, ..)| *word == asked.state);
    let (_, _, states) = states.ok_or("There is no such state.")?;
    let (start, end) = period(view, asked)?;
    Ok(AccountingQuery {
        users,
        states: states.to_vec(),
        partitions: one(&asked.partition),
        accounts: one(&asked.account),
        start: Some(start),
        end,
        allocations_only: true,
        ..AccountingQuery::default()
    })
}

/// Returns the period that is asked for. Without an end it goes on.
fn period(view: &View, asked: &PastQuery) -> Result<(Time, Option<Time>), String> {
    let now = view.clock.now;
    let day = |text: &str| {
        let is_date = !text.is_empty() && text.len() <= 10 && text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        let found = if is_date { when_here(text) } else { None };
        found.ok_or_else(|| format!("{} is no day: give one as 2026-11-28.", cut(text)))
    };
    let whole = Span::from_secs(86_400);
    let end = if asked.until.is_empty() { None } else { Some(day(&asked.until)? + whole) };
    if !asked.from.is_empty() {
        return Ok((day(&asked.from)?, end));
    }
    let found = PERIODS.iter().find(|(word, ..)| *word == asked.since).ok_or("There is no such period.")?;
    let today = view.clock.midnight().unwrap_or(now);
    Ok((today - Span::from_secs(found.2.saturating_mul(86_400).min(today.secs())), end))
}

impl PastQuery {
    /// Returns the address of the list in this order, at this page.
    fn link(&self, sort: &str, page: usize) -> String {
        let page = if page > 0 { page.to_string() } else { String::new() };
        let Self { user, state, partition, account, find, since, from, until, .. } = self;
        link(
            "/past",
            &[
                ("user", user),
                ("state", state),
                ("partition", partition),
                ("account", account),
                ("find", find),
                ("since", since),
                ("from", from),
                ("until", until),
                ("sort", sort),
                ("page", &page),
            ],
        )
    }

    /// Returns the column by which the list is sorted, as its place in [`COLUMNS`], and whether in the other direction.
    fn order(&self) -> (usize, bool) {
        let (word, other) = self.sort.strip_prefix('-').map_or((self.sort.as_str(), false), |word| (word, true));
        COLUMNS.iter().position(|(name, ..)| *name == word).map_or((5, false), |at| (at, other))
    }
}

/// Returns the page.
pub(crate) fn page(view: &View, partitions: &[PartitionInfo], found: Found, asked: &PastQuery) -> Html {
    let Found { rows, cut, problem } = found;
    let mut all = record::all(view, rows);
    let (column, other) = asked.order();
    let (_, _, highest_first, compare) = COLUMNS[column];
    all.sort_by(|a, b| if highest_first == other { compare(a, b) } else { compare(b, a) });
    let first = asked.page.saturating_mul(ROWS).min(all.len());
    let end = (first + ROWS).min(all.len());
    let mut body = Html::new();
    body.raw("<h1>Past jobs</h1>");
    filter(&mut body, view, partitions, asked);
    card(&mut body, "list", "Jobs in accounting");
    if let Some(problem) = problem {
        body.put("<p class=\"bad\" role=\"alert\">{}</p></section>", &[&problem]);
        return view.still("/past", "Past jobs", &body);
    }
    if all.is_empty() {
        body.raw("<p class=\"dim\">No job of that kind is in accounting.</p></section>");
        return view.still("/past", "Past jobs", &body);
    }
    let places = format!("{} to {end} of {} jobs", first + usize::from(end > 0), all.len());
    body.put("<p class=\"note\">{}</p>", &[&places]);
    if cut {
        body.put("<p class=\"bad\">There are more than {} such jobs: the oldest ones are listed. Ask for a shorter time.</p>", &[&JOBS_MAX]);
    }
    body.raw("<table class=\"rows cards\"><thead><tr>");
    for (at, (word, name, down, _)) in COLUMNS.into_iter().enumerate() {
        let chosen = at == column;
        let direction = if down == other { "ascending" } else { "descending" };
        body.put(
            "<th scope=\"col\" class=\"{}\" aria-sort=\"{}\">",
            &[&if ["time", "cpus"].contains(&word) { "n" } else { "" }, &if chosen { direction } else { "none" }],
        );
        let sort = if chosen && !other { format!("-{word}") } else { word.to_owned() };
        let arrow = if !chosen {
            ""
        } else if direction == "ascending" {
            " ↑"
        } else {
            " ↓"
        };
        body.put("<a href=\"{}\">{}{}</a></th>", &[&asked.link(&sort, 0), &name, &arrow]);
    }
    body.raw("<th scope=\"col\">Why</th></tr></thead><tbody>");
    for record in &all[first..end] {
        line(&mut body, view, record);
    }
    body.raw("</tbody></table>");
    pager(&mut body, all.len(), ROWS, asked.page, &|page| asked.link(&asked.sort, page));
    body.raw("</section>");
    view.still("/past", "Past jobs", &body)
}

/// Appends a choice of a form.
pub(crate) fn choice<'a>(
    body: &mut Html,
    (name, label): (&str, &str),
    chosen: &str,
    all: impl Iterator<Item = (&'a str, &'a str)>,
) {
    body.put("<label>{} <select name=\"{}\">", &[&label, &name]);
    for (value, text) in all {
        let form = if value == chosen {
            "<option value=\"{}\" selected=\"\">{}</option>"
        } else {
            "<option value=\"{}\">{}</option>"
        };
        body.put(form, &[&value, &text]);
    }
    body.raw("</select></label>");
}

fn filter(body: &mut Html, view: &View, partitions: &[PartitionInfo], asked: &PastQuery) {
    body.raw("<section class=\"filter\" aria-label=\"Filter\" id=\"filter\"><ul class=\"tabs\">");
    let own = asked.user.is_empty() || asked.user == view.user;
    for (user, name, chosen) in [("", "My jobs", own), ("*", "All jobs", asked.user == "*")] {
        let of = PastQuery { user: user.to_owned(), ..asked.clone() };
        let current = if chosen { "true" } else { "false" };
        body.put("<li><a href=\"{}\" aria-current=\"{}\">{}</a></li>", &[&of.link(&asked.sort, 0), &current, &name]);
    }
    body.put(
        "</ul><form action=\"/past\" role=\"search\"><input type=\"hidden\" name=\"sort\" value=\"{}\">",
        &[&asked.sort],
    );
    body.put("<label>Name <input name=\"find\" value=\"{}\" size=\"10\" autocomplete=\"off\"></label>", &[&asked.find]);
    body.put(
        "<label>User <input name=\"user\" value=\"{}\" size=\"8\" placeholder=\"{}\" autocomplete=\"off\"></label>",
        &[&asked.user, &view.user],
    );
    choice(body, ("since", "Time"), &asked.since, PERIODS.iter().map(|(word, name, _)| (*word, *name)));
    choice(body, ("state", "State"), &asked.state, STATES.iter().map(|(word, name, _)| (*word, *name)));
    let names = partitions.iter().map(|partition| partition.config.name.as_str());
    let any = std::iter::once(("", "any"));
    choice(body, ("partition", "Partition"), &asked.partition, any.chain(names.map(|name| (name, name))));
    for (name, label, value, kind) in [
        ("account", "Account", &asked.account, "text"),
        ("from", "From", &asked.from, "date"),
        ("until", "Until", &asked.until, "date"),
    ] {
        body.put(
            "<label>{} <input name=\"{}\" value=\"{}\" type=\"{}\" size=\"8\" autocomplete=\"off\"></label>",
            &[&label, &name, value, &kind],
        );
    }
    body.raw("<button>Search</button> <a href=\"/past\">Reset</a></form></section>");
}

fn line(body: &mut Html, view: &View, record: &Record) {
    let (job, data) = (&record.job, &record.job.data);
    let path = row::path_of(data.id, data.task);
    body.put("<tr><th scope=\"row\" data-name=\"Job\"><a href=\"{}\">{}</a></th>", &[&path, &job.id()]);
    body.put("<td data-name=\"Name\" class=\"cut\"><bdi>{}</bdi></td>", &[&data.name]);
    body.put(
        "<td data-name=\"User\"><a href=\"{}\"><bdi>{}</bdi></a></td><td data-name=\"Partition\">{}</td>",
        &[&link("/past", &[("user", &data.owner.user)]), &data.owner.user, &data.partition],
    );
    body.raw("<td data-name=\"State\">");
    row::state(body, data.state);
    body.raw("</td><td data-name=\"Ended\">");
    view.time(body, job.end(), "–");
    let ran = if data.start.is_some() { format_short(job.elapsed()) } else { String::new() };
    body.put(
        "</td><td class=\"n\" data-name=\"Time\">{}</td><td class=\"n\" data-name=\"CPUs\">{}</td>",
        &[&ran, &data.num_cpus],
    );
    let why = match data.state {
        JobState::Ended(how) if how != EndState::Completed => record.report().cause(),
        _ => String::new(),
    };
    body.put("<td data-name=\"Why\">{}</td></tr>", &[&why]);
}
