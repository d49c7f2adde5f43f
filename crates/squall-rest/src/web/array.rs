//! The page of an array: how many of its tasks are in each state, why some failed, how to run these again, and a list of
//! all. It is drawn from accounting, which knows tasks that the controller has forgotten.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::response::Response;
use squall_model::duration::{format_elapsed, format_limit, format_short};
use squall_model::id::JobId;
use squall_model::job::{ArrayTask, EndState, JobState};
use squall_model::wire::client::{AccountingQuery, Answer, JobRef, Request};
use squall_model::wire::info::{AccountingRow, JobsPage, Why};
use squall_text::format::why;
use squall_text::report::Report;
use squall_text::report::many::ArraySummary;
use squall_text::report::record::Record;

use crate::caller::Identity;
use crate::routes::Server;
use crate::web::chart;
use crate::web::frame::{Problem, View, made};
use crate::web::html::{Html, card, fact, link, pager};
use crate::web::job::memory;
use crate::web::record::{self, ROWS_MAX};
use crate::web::{act, row};

/// Tasks on a page of the list.
const ROWS: usize = 50;
/// Most rows of jobs and steps of a page that is loaded again whenever something happens.
const LIVE_MAX: usize = 4000;
/// Most causes of failures that are listed, and most tasks named with each.
const CAUSES: usize = 40;
const NAMED: usize = 100;

/// Returns the array that is named: itself, tasks of it that wait, or several of its tasks. None: it is no array in the
/// controller's memory, or one task that has a page of its own.
pub(crate) fn named(jobs: &JobsPage, named: &JobRef) -> Option<JobId> {
    match named {
        JobRef::Job(id) => {
            let of = |task: Option<ArrayTask>| task.is_some_and(|task| task.array == *id);
            let found = jobs.jobs.iter().any(|job| of(job.task) || job.id == *id && job.pending_tasks.is_some());
            found.then_some(*id)
        }
        JobRef::Tasks(id, tasks) if tasks.len() > 1 => Some(*id),
        JobRef::Tasks(id, tasks) => {
            let waits = |index| {
                jobs.jobs
                    .iter()
                    .any(|job| job.id == *id && job.pending_tasks.as_ref().is_some_and(|all| all.contains(index)))
            };
            tasks.iter().any(waits).then_some(*id)
        }
        JobRef::Component(..) => None,
    }
}

/// The same for rows of accounting.
pub(crate) fn of_rows(rows: &[AccountingRow], named: &JobRef) -> Option<JobId> {
    let id = named.id();
    let waits = rows.iter().any(|row| row.id == id && row.pending_tasks.is_some());
    let is_whole = match named {
        JobRef::Job(_) => waits || rows.iter().any(|row| row.task.is_some_and(|task| task.array == id)),
        JobRef::Tasks(_, tasks) => waits || tasks.len() > 1 && !rows.is_empty(),
        JobRef::Component(..) => false,
    };
    is_whole.then_some(id)
}

/// What is known of an array.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArrayDetails {
    /// Accounting of its tasks and their steps.
    pub(crate) rows: Vec<AccountingRow>,
    /// Whether it has more tasks than were read.
    pub(crate) cut: bool,
    /// Why its next task waits.
    pub(crate) why: Option<Box<Why>>,
    /// Page of the list.
    pub(crate) page: usize,
}

/// Sends the page of an array.
pub(crate) async fn show(
    server: &Server,
    who: &Identity,
    view: View,
    (array, page): (JobId, usize),
) -> Result<Response, Problem> {
    let query = AccountingQuery { ids: vec![JobRef::Job(array)], ..AccountingQuery::default() };
    let mut spec = None;
    let keep = move |row: AccountingRow| {
        // All tasks were submitted together: one copy is enough.
        let spec = Arc::clone(spec.get_or_insert_with(|| Arc::clone(&row.spec)));
        Some(AccountingRow { spec, ..row })
    };
    let (rows, cut) = server.cluster.accounting_up_to(who, query, ROWS_MAX, keep).await?;
    if rows.is_empty() {
        return Err(record::missing(&array.to_string()));
    }
    let mut known = ArrayDetails { rows, cut, page, why: None };
    if known.rows.iter().any(|row| row.state == JobState::Pending)
        && let Ok(Answer::Why(told)) = server.cluster.ask(who, Request::Why { job: array }).await
    {
        known.why = Some(told);
    }
    made(move || self::page(&view, array, known)).await
}

/// Returns the page.
pub(crate) fn page(view: &View, array: JobId, known: ArrayDetails) -> Html {
    let ArrayDetails { rows, cut, why, page } = known;
    let is_large = rows.len() > LIVE_MAX;
    let records = record::all(view, rows);
    let reports: Vec<Report<'_>> = records.iter().map(Record::report).collect();
    let mut body = Html::new();
    let (Some(whole), Some(first)) = (ArraySummary::of(&reports), records.first()) else {
        body.raw("<h1>Array</h1><p class=\"dim\">There is no such array.</p>");
        return view.page("/jobs", "Array", &body);
    };
    let title = format!("Array {array}");
    body.put(
        "<h1>{} <bdi class=\"dim\">{}</bdi></h1><p class=\"lead\">{}</p>",
        &[&title, &first.job.data.name, &sentence(&whole)],
    );
    progress(&mut body, &whole);
    let is_over = whole.ended() == whole.total;
    let waits = whole.states.values().any(|of| of.state == JobState::Pending);
    if !is_over {
        act::offer_array(&mut body, view, (first.job.data.owner.uid, array), waits);
    }
    if let Some(told) = why.filter(|told| told.state == JobState::Pending) {
        body.put("<p>Why the next one waits: {}</p>", &[&why::headline(&told)]);
    }
    if cut {
        body.put("<p class=\"bad\">Of its first {} tasks: there are more.</p>", &[&whole.total]);
    }
    body.raw("<div class=\"grid\">");
    states(&mut body, &whole);
    facts(&mut body, view, first);
    body.raw("</div>");
    failed(&mut body, &whole);
    tasks(&mut body, view, &records, (array, page));
    if is_large && !is_over {
        body.raw("<p class=\"note\">The array is large: load this page again to see what has changed.</p>");
    }
    match is_over {
        true => view.still("/past", &title, &body),
        false if is_large => view.still("/jobs", &title, &body),
        false => view.page("/jobs", &title, &body),
    }
}

/// Returns in a sentence how far the array is.
fn sentence(whole: &ArraySummary) -> String {
    let (ended, total) = (whole.ended(), whole.total);
    let failed = match whole.all_failed().len() {
        0 if ended == 0 => String::new(),
        0 => ", none of them failed".to_owned(),
        count => format!(", {count} of them failed"),
    };
    let tasks = if total == 1 { "task has" } else { "tasks have" };
    format!("{ended} of {total} {tasks} ended{failed}.")
}

/// Appends a bar of all tasks, those that have ended first.
fn progress(body: &mut Html, whole: &ArraySummary) {
    let rank = |state: JobState| match state {
        JobState::Ended(EndState::Completed) => 0,
        JobState::Ended(_) => 1,
        JobState::Pending => 3,
        _ => 2,
    };
    let mut all: Vec<_> = whole.states.iter().collect();
    all.sort_by_key(|(_, of)| rank(of.state));
    let words: Vec<String> = all.iter().map(|(state, of)| format!("{} {state}", of.tasks)).collect();
    let parts: Vec<(&str, u64)> = all
        .iter()
        .filter(|(_, of)| rank(of.state) < 3)
        .map(|(_, of)| (row::look(of.state).0, of.tasks as u64))
        .collect();
    body.raw("<div class=\"progress\">");
    chart::meter(body, &words.join(", "), whole.total as u64, &parts);
    body.raw("</div>");
}

fn states(body: &mut Html, whole: &ArraySummary) {
    card(body, "states", "Tasks by state");
    body.raw(
        "<table class=\"cards\"><thead><tr><th scope=\"col\">State</th><th scope=\"col\">Share</th><th scope=\"col\" class=\"n\">Tasks</th>\
         <th scope=\"col\" class=\"n\">Longest</th><th scope=\"col\" class=\"n\">Highest memory</th></tr></thead><tbody>",
    );
    for (state, of) in &whole.states {
        body.raw("<tr><th scope=\"row\">");
        row::state(body, of.state);
        body.raw("</th><td data-name=\"Share\">");
        let (count, all) = (of.tasks as u64, whole.total as u64);
        chart::meter(body, &format!("{count} of {all} {state}"), all, &[(row::look(of.state).0, count)]);
        let longest = if of.longest_s > 0 { format_elapsed(of.longest_s) } else { String::new() };
        let peak = if of.peak_kb > 0 { memory(of.peak_kb) } else { String::new() };
        body.put(
            "</td><td class=\"n\" data-name=\"Tasks\">{}</td><td class=\"n\" data-name=\"Longest\">{}</td>\
             <td class=\"n\" data-name=\"Highest memory\">{}</td></tr>",
            &[&of.tasks, &longest, &peak],
        );
    }
    body.raw("</tbody></table></section>");
}

fn facts(body: &mut Html, view: &View, first: &Record) {
    let data = &first.job.data;
    card(body, "facts", "Asked for");
    body.put(
        "<dl class=\"facts\"><div><dt>User</dt><dd><a href=\"{}\"><bdi>{}</bdi></a></dd></div>",
        &[&link("/jobs", &[("user", &data.owner.user)]), &data.owner.user],
    );
    fact(body, "Partition", &data.partition);
    fact(body, "Account", &data.account);
    fact(body, "QOS", &data.qos);
    fact(body, "CPUs of a task", &data.num_cpus.max(data.req_cpus).to_string());
    fact(body, "Time limit of a task", &format_limit(data.time_limit_s));
    body.raw("<div><dt>Submitted</dt><dd>");
    view.time(body, Some(data.submit), "not known");
    body.raw("</dd></div></dl><dl class=\"facts one\">");
    fact(body, "Submitted by", &data.submit_line);
    fact(body, "Folder", &data.spec.work_dir);
    body.raw("</dl></section>");
}

/// Appends which tasks failed and why, and how to run them again.
fn failed(body: &mut Html, whole: &ArraySummary) {
    let Some(remedy) = whole.remedy() else { return };
    card(body, "failed", "Failed tasks");
    body.raw("<table><tbody>");
    for (cause, tasks) in whole.failed.iter().take(CAUSES) {
        body.raw("<tr><th scope=\"row\">");
        for (at, index) in tasks.iter().take(NAMED).enumerate() {
            body.raw(if at > 0 { ", " } else { "" });
            body.put("<a href=\"/job/{}_{}\">{}</a>", &[&whole.id, &index, &index]);
        }
        body.raw(if tasks.len() > NAMED { ", …" } else { "" });
        body.put("</th><td>{}</td></tr>", &[cause]);
    }
    body.raw("</tbody></table>");
    if whole.failed.len() > CAUSES {
        body.put("<p class=\"note\">And {} causes more.</p>", &[&(whole.failed.len() - CAUSES)]);
    }
    body.put("<h3>To run them again</h3><pre>{}</pre></section>", &[&remedy]);
}

/// Returns the rank of a task in the list: those that failed first, then running ones, those that wait, and the rest.
fn rank(record: &Record) -> (u8, Reverse<bool>, u32) {
    let data = &record.job.data;
    let rank = match data.state {
        JobState::Ended(EndState::Completed | EndState::Cancelled { .. } | EndState::Requeued) => 3,
        JobState::Ended(_) => 0,
        JobState::Pending => 2,
        _ => 1,
    };
    (rank, Reverse(data.pending_tasks.is_some()), data.task.map_or(0, |task| task.index))
}

fn tasks(body: &mut Html, view: &View, records: &[Record], (array, page): (JobId, usize)) {
    let mut all: Vec<&Record> = records.iter().collect();
    all.sort_by_key(|record| rank(record));
    let first = page.saturating_mul(ROWS).min(all.len());
    let end = (first + ROWS).min(all.len());
    card(body, "tasks", "Tasks");
    body.raw(
        "<table class=\"rows cards\"><thead><tr><th scope=\"col\">Task</th><th scope=\"col\">State</th>\
         <th scope=\"col\">Started</th><th scope=\"col\">Ended</th><th scope=\"col\" class=\"n\">Time</th>\
         <th scope=\"col\" class=\"n\">Memory</th><th scope=\"col\">Nodes</th><th scope=\"col\">Why</th></tr></thead><tbody>",
    );
    for record in &all[first..end] {
        task(body, view, record);
    }
    body.raw("</tbody></table>");
    let path = row::path_of(array, None);
    pager(body, all.len(), ROWS, page, &|page| link(&path, &[("page", &page.to_string())]));
    body.raw("</section>");
}

fn task(body: &mut Html, view: &View, record: &Record) {
    let (row, data) = (&record.job, &record.job.data);
    body.raw("<tr><th scope=\"row\" data-name=\"Task\">");
    match data.task {
        Some(task) => body.put("<a href=\"{}\">{}</a>", &[&row::path_of(data.id, Some(task)), &task.index]),
        None => body.put("{}", &[&data.pending_tasks.as_ref().map_or_else(String::new, ToString::to_string)]),
    };
    body.raw("</th><td data-name=\"State\">");
    row::state(body, data.state);
    body.raw("</td><td data-name=\"Started\">");
    view.time(body, data.start, "–");
    body.raw("</td><td data-name=\"Ended\">");
    view.time(body, row.end(), "–");
    let peak = record.steps.iter().map(|step| step.data.usage.total_rss_kb).max().unwrap_or(0);
    let peak = if peak > 0 { memory(peak) } else { String::new() };
    let ran = if data.start.is_some() { format_short(row.elapsed()) } else { String::new() };
    body.put("</td><td class=\"n\" data-name=\"Time\">{}</td><td class=\"n\" data-name=\"Memory\">{}</td><td data-name=\"Nodes\">", &[
        &ran, &peak,
    ]);
    row::nodes(body, &data.nodes);
    let why = match data.state {
        JobState::Ended(EndState::Completed) | JobState::Pending | JobState::Running => String::new(),
        _ => record.report().cause(),
    };
    body.put("</td><td data-name=\"Why\">{}</td></tr>", &[&why]);
}
