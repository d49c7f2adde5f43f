//! The page of a job: what was asked and used, its steps, why it waits, and what would let it start sooner.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use serde::Deserialize;
use squall_model::duration::{format_elapsed, format_memory_kb, format_memory_mb, format_short};
use squall_model::id::{Attempt, JobId, StepNo};
use squall_model::job::{JobKind, JobSpec, JobState, Usage};
use squall_model::series::{Series as UsageSeries, Used};
use squall_model::time::{Span, Time};
use squall_model::wire::client::{AccountingQuery, Answer, HostRequest, JobRef, Request, Tail};
use squall_model::wire::info::{AccountingRow, JobInfo, JobsPage, StepInfo, Why};
use squall_text::columns::{accounting, jobs as columns};
use squall_text::format::accounting::cpu_text;
use squall_text::format::job::JobRow;
use squall_text::format::{why, words};
use squall_text::options::values::jobs::job_ref;
use squall_text::report::record::Record;

use crate::caller::Identity;
use crate::routes::{Server, ServerHandle};
use crate::web::chart::{self, Caption, Series, percent};
use crate::web::frame::{Problem, View, made, whole_words};
use crate::web::html::{Html, card, fact, link};
use crate::web::people::Viewer;
use crate::web::row::{self, Rows};
use crate::web::{act, array, course, record, related};

/// Most running steps of which the usage is asked for.
const MEASURED: usize = 4;

/// Time without use of a CPU that is pointed out, seconds.
const IDLE_S: u64 = 600;

/// What is known of a job beyond its entry in the queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobDetails {
    pub(crate) why: Option<Box<Why>>,
    /// Accounting of the job's run and its steps; empty: the caller may not see it.
    pub(crate) rows: Vec<AccountingRow>,
    /// Accounting of its earlier runs.
    pub(crate) earlier: Vec<AccountingRow>,
    /// What running steps have used.
    pub(crate) used: Vec<(StepNo, Used)>,
    /// The end of its output. None: the viewer is not its owner, or it has none.
    pub(crate) tail: Option<Box<Tail>>,
    /// The same of its errors, if these go to a file of their own.
    pub(crate) errors: Option<Box<Tail>>,
    /// Whether the controller has forgotten the job, so that only accounting knows it.
    pub(crate) past: bool,
}

impl JobDetails {
    /// Asks for the ends of a batch job's output and errors. `past`: the controller may have forgotten the job.
    pub(crate) async fn see_output(
        &mut self,
        server: &Server,
        who: &Identity,
        (job, past): (JobId, bool),
        spec: Option<&JobSpec>,
    ) {
        let Some(spec) = spec.filter(|spec| spec.kind == JobKind::Batch) else { return };
        let ask = |errors| server.cluster.ask(who, HostRequest::Tail { job, past, errors });
        if let Ok(Answer::Tail(tail)) = ask(false).await {
            self.tail = Some(tail);
        }
        if spec.stderr.as_ref().is_some_and(|path| Some(path) != spec.stdout.as_ref())
            && let Ok(Answer::Tail(tail)) = ask(true).await
        {
            self.errors = Some(tail);
        }
    }

    /// Takes rows of accounting of a job: those of this run, and the earlier runs.
    pub(crate) fn take(&mut self, rows: Vec<AccountingRow>, (id, attempt): (JobId, Attempt)) {
        // The number of an array that waits is also that of one of its tasks.
        let own: Vec<_> = rows.into_iter().filter(|row| row.id == id && row.pending_tasks.is_none()).collect();
        // Accounting counts a job that never started as its first run.
        let attempt = own.iter().map(|row| row.attempt).max().filter(|_| attempt.0 == 0).unwrap_or(attempt);
        let (now, earlier): (Vec<_>, Vec<_>) = own.into_iter().partition(|row| row.attempt == attempt);
        self.rows = now;
        self.earlier = earlier.into_iter().filter(|row| row.step.is_none() && row.attempt < attempt).collect();
    }
}

/// What may stand in the address.
#[derive(Debug, Deserialize)]
pub(crate) struct JobQuery {
    #[serde(default)]
    done: String,
    /// Page of the list of an array's tasks.
    #[serde(default)]
    page: usize,
}

/// `GET /job/ID`: a job, a task of an array, or an array.
pub(crate) async fn show(
    State(server): State<ServerHandle>,
    viewer: Viewer,
    Path(id): Path<String>,
    Query(asked): Query<JobQuery>,
) -> Result<Response, Problem> {
    let named = job_ref(&id).ok_or_else(|| record::missing(&id))?;
    let who = viewer.caller.identity.clone();
    // After a deed its effect is to be seen.
    let jobs = server.cluster.jobs_seen_by(&who, (!asked.done.is_empty()).then(Instant::now)).await?;
    let view = View { done: act::done(&asked.done), ..View::of(&server, &viewer).await? };
    if let Some(array) = array::named(&jobs, &named) {
        return array::show(&server, &who, view, (array, asked.page)).await;
    }
    let Some(job) = row::find(&jobs, &id).cloned() else {
        return record::show(&server, &who, view, (&id, named, asked.page)).await;
    };
    let mut known = JobDetails::default();
    if let Ok(Answer::Why(told)) = server.cluster.ask(&who, Request::Why { job: job.id }).await {
        known.why = Some(told);
    }
    let owner = jobs.owners.get(job.owner as usize);
    if owner.is_some_and(|owner| view.uid == owner.uid) && job.attempt.0 > 0 {
        let spec = jobs.specs.get(job.spec as usize);
        known.see_output(&server, &who, (job.id, false), spec.map(|spec| &**spec)).await;
    }
    let is_over = matches!(job.state, JobState::Ended(_));
    if is_over || job.attempt.0 > 0 && owner.is_some_and(|owner| view.may(owner.uid)) {
        let one = job.task.map(|task| JobRef::Tasks(task.array, [task.index].into_iter().collect()));
        let ids = vec![one.unwrap_or(JobRef::Job(job.id))];
        let query = AccountingQuery { ids, duplicates: true, series: true, ..AccountingQuery::default() };
        known.take(server.cluster.accounting(&who, query).await.unwrap_or_default(), (job.id, job.attempt));
        known.used = measured(&server, &who, &job).await;
    }
    made(move || page(&view, &jobs, &job, &known)).await
}

/// Asks for what running steps have used so far.
async fn measured(server: &Server, who: &Identity, job: &JobInfo) -> Vec<(StepNo, Used)> {
    let mut all = Vec::new();
    if job.state != JobState::Running {
        return all;
    }
    for step in job.run().steps.iter().filter(|step| step.end.is_none()).take(MEASURED) {
        let asked = server.cluster.ask(who, Request::Measure { job: job.id, step: step.step, lately: false }).await;
        if let Ok(Answer::Measured(usage, _, series)) = asked {
            all.push((step.step, Used { usage, series }));
        }
    }
    all
}

/// Returns the page.
pub(crate) fn page(view: &View, jobs: &Arc<JobsPage>, job: &JobInfo, known: &JobDetails) -> Html {
    let mut body = Html::new();
    let listed = job;
    let Some(job) = Rows::new(view, jobs).of(listed) else {
        body.raw("<p class=\"dim\">There is no such job.</p>");
        return view.page("/jobs", "Job", &body);
    };
    let title = format!("Job {}", job.array_id());
    body.put("<h1>{} <bdi class=\"dim\">{}</bdi> ", &[&title, &job.spec.name]);
    row::state(&mut body, job.info.state);
    body.raw("</h1>");
    let is_over = matches!(job.info.state, JobState::Ended(_));
    let record = record::last(view, known.rows.clone()).filter(|_| is_over);
    if let Some(record) = &record {
        body.put("<p class=\"lead\">{}</p>", &[&record.report().cause()]);
    }
    if let Some(task) = job.info.task {
        body.put("<p>A task of array <a href=\"/job/{}\">{}</a>.</p>", &[&task.array, &task.array]);
    }
    act::offer(&mut body, view, &job);
    if let Some(told) = &known.why {
        reason(&mut body, view, told);
    }
    let ran = job.info.attempt.0 > 0;
    body.raw(if ran { "<div class=\"grid\">" } else { "<div>" });
    facts(&mut body, view, &job, known);
    if ran {
        usage(&mut body, view, &job, (known, record.as_ref()));
    }
    body.raw("</div>");
    related::add(&mut body, jobs, listed);
    let lines = steps_of(&job, known);
    over_time(&mut body, view, &lines);
    files(&mut body, view, &job, (known.tail.as_deref(), known.errors.as_deref()));
    course::add(&mut body, view, &job, known);
    steps(&mut body, view, &lines);
    if let Some(record) = record.filter(|_| known.past) {
        fields(&mut body, accounting::FIELDS.iter().map(|column| (column.name, (column.get)(&record.job))));
        return view.still("/past", &title, &body);
    }
    fields(&mut body, columns::FIELDS.iter().map(|field| (field.title, field.text(&job))));
    view.page("/jobs", &title, &body)
}

fn facts(body: &mut Html, view: &View, job: &JobRow, known: &JobDetails) {
    let told = known.why.as_deref();
    card(body, "facts", "Asked for");
    body.put(
        "<dl class=\"facts\"><div><dt>User</dt><dd><a href=\"{}\"><bdi>{}</bdi></a></dd></div>",
        &[&link("/jobs", &[("user", &job.owner.user)]), &job.owner.user],
    );
    fact(body, "Partition", &job.class.partition);
    fact(body, "Account", &job.class.account);
    fact(body, "QOS", &job.class.qos);
    fact(body, "Nodes", &job.info.num_nodes.to_string());
    fact(body, "Tasks", &job.info.num_tasks.to_string());
    fact(body, "CPUs", &job.info.num_cpus.to_string());
    fact(body, "Memory", &if job.info.memory_mb > 0 { format_memory_mb(job.info.memory_mb) } else { String::new() });
    fact(body, "Generic resources", &job.tres_per_node());
    fact(body, "Constraint", job.spec.need.constraint.as_deref().unwrap_or_default());
    fact(body, "Licenses", job.spec.need.licenses.as_deref().unwrap_or_default());
    fact(body, "Reservation", job.spec.reservation.as_deref().unwrap_or_default());
    fact(body, "Dependency", &job.info.dependency);
    fact(body, "Time limit", &job.time_limit());
    fact(body, "Priority", &if known.past { String::new() } else { job.info.priority.to_string() });
    fact(body, "Requeued", &if job.restarts() > 0 { format!("{} times", job.restarts()) } else { String::new() });
    for (name, at) in [("Submitted", Some(job.info.submit)), ("Eligible", Some(job.info.eligible))] {
        body.put("<div><dt>{}</dt><dd>", &[&name]);
        view.time(body, at, "not known");
        body.raw("</dd></div>");
    }
    let (start, end) = match job.info.state {
        JobState::Pending => ("Expected start", "Expected end at the latest"),
        JobState::Ended(_) => ("Started", "Ended"),
        _ => ("Started", "Ends at the latest"),
    };
    let limit = job.info.time_limit_s.filter(|_| job.info.state == JobState::Pending).map(Span::from_secs);
    // One expected start on a page: the one that is told with the reasons.
    let expected = told.and_then(|told| told.start.as_ref()).map(|start| start.time);
    let begins = expected.filter(|_| job.info.state == JobState::Pending).or(job.info.start);
    let ends = begins.zip(limit).map(|(start, limit)| start + limit).or(job.info.end);
    // What can never start as it is has no start to be expected.
    let never = told.is_some_and(why::never) && job.info.state == JobState::Pending;
    for (name, at) in [(start, begins), (end, ends)].into_iter().filter(|_| !never) {
        body.put("<div><dt>{}</dt><dd>", &[&name]);
        view.time(body, at, "not known");
        body.raw("</dd></div>");
    }
    if let (Some(start), true) = (job.info.start, job.started()) {
        fact(body, "Waited", &format_short(start.since(job.info.eligible).secs()));
        body.raw("<div class=\"wide\"><dt>Where</dt><dd>");
        row::nodes(body, &job.info.run().nodes);
        body.raw("</dd></div>");
    }
    body.raw("</dl></section>");
}

fn share(body: &mut Html, name: &str, value: &str, (part, whole): (u64, u64)) {
    let text = if whole > 0 { format!("{value} · {} %", percent(part, whole)) } else { value.to_owned() };
    body.put("<div class=\"wide\"><dt>{}</dt><dd>{}", &[&name, &text]);
    if whole > 0 {
        chart::meter(body, &format!("{name}: {text}"), whole, &[("used", part)]);
    }
    body.raw("</dd></div>");
}

fn usage(body: &mut Html, view: &View, job: &JobRow, (known, record): (&JobDetails, Option<&Record>)) {
    card(body, "used", "Used");
    body.raw("<dl class=\"facts\">");
    let (ran, limit) = (job.time_used(), job.info.time_limit_s.unwrap_or(0));
    share(body, "Time", &format!("{} of {}", format_short(ran), job.time_limit()), (ran, limit));
    // What a job has used that is over, accounting tells to all who may see it.
    let is_known = view.may(job.owner.uid) || record.is_some();
    if is_known {
        let (cpu_s, peak_kb) = total(known);
        let held_s = ran.saturating_mul(u64::from(job.info.num_cpus));
        if held_s > 0 {
            let text = format!("{} of {} that it held", format_elapsed(cpu_s), format_elapsed(held_s));
            share(body, "CPU time", &text, (cpu_s, held_s));
        }
        let held_kb = job.info.memory_mb.saturating_mul(1024);
        let of = if held_kb > 0 { format!(" of {}", format_memory_mb(job.info.memory_mb)) } else { String::new() };
        share(body, "Memory, peak", &format!("{}{of}", memory(peak_kb)), (peak_kb, held_kb));
    }
    for (kind, count) in job.granted() {
        fact(body, kind, &count.to_string());
    }
    if let JobState::Ended(_) = job.info.state {
        fact(body, "Exit code", &words::exit_code(job.exit()));
        fact(body, "Reason", &Some(job.reason()).filter(|reason| reason != "None").unwrap_or_default());
    }
    body.raw("</dl>");
    hints(body, record);
    if !is_known {
        body.raw("<p class=\"note\">What it used is for its owner and operators.</p>");
    }
    body.raw("</section>");
}

/// Appends what to ask for next time.
fn hints(body: &mut Html, record: Option<&Record>) {
    let hints = record.map_or(Vec::new(), |record| record.report().hints());
    if !hints.is_empty() {
        body.raw("<h3>Next time</h3><ul class=\"hints\">");
        for hint in hints {
            body.put("<li>{}</li>", &[&hint]);
        }
        body.raw("</ul>");
    }
}

/// Formats KiB with three figures at most.
pub(crate) fn memory(kb: u64) -> String {
    match kb {
        ..10_240 => format_memory_kb(kb),
        10_240..10_485_760 => format!("{}M", kb >> 10),
        _ => format!("{:.1}G", kb as f64 / f64::from(1 << 20)),
    }
}

/// Returns CPU time in seconds and peak memory in KiB of a job: of ended steps by accounting, of running ones by what
/// they said last.
fn total(known: &JobDetails) -> (u64, u64) {
    let cpu = |usage: &Usage| usage.user.0.saturating_add(usage.system.0);
    let ended = known.rows.iter().filter(|row| row.step.is_some() && row.end.is_some()).map(|row| row.usage);
    let running = known.used.iter().map(|(_, used)| used.usage);
    let (mut cpu_us, mut peak) = (0_u64, 0);
    for usage in ended.chain(running) {
        cpu_us = cpu_us.saturating_add(cpu(&usage));
        peak = peak.max(usage.total_rss_kb);
    }
    (cpu_us / 1_000_000, peak)
}

fn reason(body: &mut Html, view: &View, told: &Why) {
    if told.state != JobState::Pending {
        if let Some(silent) = &told.silent {
            card(body, "why", "A node does not answer");
            body.put("<p class=\"lead\">{}.</p>", &[&why::silence(silent, &view.clock)]);
            body.put("<pre>{}</pre></section>", &[&why::silence_text(told, silent, &view.clock).trim_end()]);
            return;
        }
        if !told.vacant.is_empty() {
            card(body, "why", "A node is to be replaced");
            for one in &told.vacant {
                body.put("<p>{}</p>", &[&why::vacancy_text(one, &view.clock).trim_end()]);
            }
            body.raw("</section>");
            return;
        }
        if let Some((_, Some(seat))) = &told.runs {
            card(body, "why", "Place in the network");
            body.put("<p>{}</p></section>", &[&why::seat_text(seat)]);
        }
        return;
    }
    card(body, "why", "Why it waits");
    body.put("<p class=\"lead\">{}</p><table><tbody>", &[&why::headline(told)]);
    for reason in &told.reasons {
        body.put(
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
            &[&words::pending_reason(reason), &why::meaning(reason)],
        );
    }
    body.raw("</tbody></table>");
    if told.ahead_total > 0 {
        let ahead = &told.ahead;
        body.put(
            "<p>{} ahead of it: ",
            &[&if told.ahead_total == 1 { "1 job is".to_owned() } else { format!("{} jobs are", told.ahead_total) }],
        );
        for name in ahead {
            body.put("<a href=\"{}\">{}</a> ", &[&row::path_of(name.id, name.task), name]);
        }
        body.raw(if told.ahead_total as usize > ahead.len() { "…</p>" } else { "</p>" });
    }
    if let Some(start) = &told.start {
        body.put(
            "<p>Expected to start: <strong>{}</strong> in {} on {}.</p>",
            &[&whole_words(&why::when(start.time, &view.clock)), &start.partition, &start.nodes],
        );
    }
    for partition in &told.partitions {
        body.put("<pre>{}</pre>", &[&why::partition_text(partition).trim_end()]);
    }
    if !told.changes.is_empty() {
        body.put(
            "<h3>It would start {} with any of</h3><table class=\"changes\"><tbody>",
            &[&if why::never(told) { "only" } else { "sooner" }],
        );
        for (change, at) in &told.changes {
            body.put(
                "<tr><th scope=\"row\"><code>{}</code></th><td>{}</td></tr>",
                &[&why::change_text(change), &whole_words(&why::when(*at, &view.clock))],
            );
        }
        body.raw("</tbody></table>");
    }
    body.raw("</section>");
}

/// Draws what the step used that used most CPU time: a script waits for its steps.
fn over_time(body: &mut Html, view: &View, steps: &[StepLine<'_>]) {
    let known = steps.iter().filter_map(|step| Some((step, step.start?, step.series?)));
    let Some((step, start, series)) = known.max_by_key(|(_, _, series)| cpu_ms(series)) else { return };
    let timed = |values: Vec<Option<f64>>, part: f64| {
        let at = |at: usize| start + Span::from_secs(u64::from(series.point_s) * (at as u64 + 1));
        values.into_iter().enumerate().filter_map(|(n, value)| Some((at(n), value? / part))).collect::<Vec<_>>()
    };
    let last = |points: &[(Time, f64)]| points.last().map_or(0.0, |(_, value)| *value);
    let most = |points: &[(Time, f64)]| points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let (cpu, kib) = (timed(series.cpus(), 1.0), timed(series.memory_kb(), 1024.0));
    let gpus = timed(series.gpus(), 1.0);
    let note = |body: &mut Html| {
        if series.nodes > 1 {
            body.put(
                "<p class=\"note\">{} nodes together, a point for each {}.</p>",
                &[&series.nodes, &format_elapsed(u64::from(series.point_s))],
            );
        }
        body.raw("</section>");
    };
    let what = if step.end.is_some() { "At its end" } else { "Now" };
    body.raw("<div class=\"grid\">");
    card(body, "cpu", &format!("CPUs in use by step {}", step.id));
    let idle = if series.idle_s() >= IDLE_S {
        format!(" Idle for {}.", format_elapsed(series.idle_s()))
    } else {
        String::new()
    };
    let about = format!("{what} {:.1} of {} CPUs, at most {:.1}.{idle}", last(&cpu), step.cpus, most(&cpu));
    let lines = [Series { name: "in use", class: "c-used", filled: true, points: cpu }];
    let caption = Caption { id: "c", title: "CPUs in use", about };
    chart::over_time(body, &caption, &view.clock, "CPUs", f64::from(step.cpus), &lines);
    note(body);
    card(body, "memory", &format!("Memory of step {}", step.id));
    let about = format!("{what} {:.0} MiB, at most {:.0}.", last(&kib), most(&kib));
    let lines = [Series { name: "resident", class: "c-running", filled: true, points: kib }];
    chart::over_time(body, &Caption { id: "m", title: "Memory", about }, &view.clock, "MiB", 1.0, &lines);
    note(body);
    if most(&gpus) > 0.0 {
        card(body, "gpu", &format!("GPUs at work in step {}", step.id));
        let about = format!("{what} {:.1} GPUs, at most {:.1}.", last(&gpus), most(&gpus));
        let lines = [Series { name: "at work", class: "c-used", filled: true, points: gpus }];
        chart::over_time(body, &Caption { id: "g", title: "GPUs at work", about }, &view.clock, "GPUs", 1.0, &lines);
        note(body);
    }
    body.raw("</div>");
}

/// Returns the CPU time of a series, milliseconds.
fn cpu_ms(series: &UsageSeries) -> u64 {
    series.points.iter().map(|point| point.cpu_ms).fold(0, u64::saturating_add)
}

/// A line of the table of steps.
struct StepLine<'a> {
    id: String,
    name: &'a str,
    state: JobState,
    tasks: u32,
    start: Option<Time>,
    end: Option<Time>,
    usage: Option<Usage>,
    series: Option<&'a UsageSeries>,
    cpus: u32,
    nodes: &'a str,
}

/// Returns the steps of a job that the controller knows.
fn steps_of<'a>(job: &'a JobRow, known: &'a JobDetails) -> Vec<StepLine<'a>> {
    let line = |step: &'a StepInfo| {
        let row = known.rows.iter().find(|row| row.step == Some(step.step) && row.end.is_some());
        let live = known.used.iter().find(|(seen, _)| *seen == step.step).map(|(_, used)| used);
        StepLine {
            id: step.step.to_string(),
            name: &step.name,
            state: step.end.as_ref().map_or(JobState::Running, |(_, outcome)| JobState::Ended(outcome.state)),
            tasks: step.num_tasks,
            start: Some(step.start),
            end: step.end.as_ref().map(|(at, _)| *at),
            usage: row.map(|row| row.usage).or(live.map(|used| used.usage)),
            series: row.and_then(|row| row.series.as_deref()).or(live.and_then(|used| used.series.as_deref())),
            cpus: step.num_cpus,
            nodes: &step.nodes,
        }
    };
    job.info.run().steps.iter().map(line).collect()
}

fn steps(body: &mut Html, view: &View, steps: &[StepLine<'_>]) {
    if steps.is_empty() {
        return;
    }
    card(body, "steps", "Steps");
    body.raw(
        "<table class=\"rows cards\"><thead><tr><th scope=\"col\">Step</th><th scope=\"col\">Name</th><th scope=\"col\">State</th>\
         <th scope=\"col\" class=\"n\">Tasks</th><th scope=\"col\">Started</th><th scope=\"col\">Ended</th>\
         <th scope=\"col\" class=\"n\">CPU time</th><th scope=\"col\" class=\"n\">Memory</th><th scope=\"col\">Nodes</th>\
         </tr></thead><tbody>",
    );
    for step in steps.iter().take(100) {
        let cpu = step.usage.map(|u| cpu_text(Span(u.user.0.saturating_add(u.system.0))));
        body.put("<tr><th scope=\"row\" data-name=\"Step\">{}</th><td data-name=\"Name\" class=\"cut\"><bdi>{}</bdi></td><td data-name=\"State\">", &[
            &step.id, &step.name,
        ]);
        row::state(body, step.state);
        body.put("</td><td class=\"n\" data-name=\"Tasks\">{}</td><td data-name=\"Started\">", &[&step.tasks]);
        view.time(body, step.start, "");
        body.raw("</td><td data-name=\"Ended\">");
        view.time(body, step.end, "–");
        body.put("</td><td class=\"n\" data-name=\"CPU time\">{}</td><td class=\"n\" data-name=\"Memory\">{}</td><td data-name=\"Nodes\">", &[
            &cpu.unwrap_or_default(),
            &step.usage.map(|u| memory(u.total_rss_kb)).unwrap_or_default(),
        ]);
        row::nodes(body, step.nodes);
        body.raw("</td></tr>");
    }
    body.raw("</tbody></table>");
    if steps.len() > 100 {
        body.put("<p class=\"note\">The first 100 of {} steps.</p>", &[&steps.len()]);
    }
    body.raw("</section>");
}

fn files(body: &mut Html, view: &View, job: &JobRow, (tail, errors): (Option<&Tail>, Option<&Tail>)) {
    card(body, "files", "Command and output");
    body.raw("<dl class=\"facts one\">");
    fact(body, "Command", &job.command());
    fact(body, "Submitted by", &job.spec.submit_line);
    fact(body, "Folder", &job.spec.work_dir);
    fact(body, "Output", &job.stdout());
    fact(body, "Errors", &if job.stderr() == job.stdout() { String::new() } else { job.stderr() });
    body.raw("</dl>");
    if let Some(tail) = tail {
        body.raw("<div class=\"outs\"><div>");
        end_of_output(body, tail, (job, "output"));
        if let Some(errors) = errors {
            body.raw("</div><div>");
            end_of_output(body, errors, (job, "errors"));
        }
        body.raw("</div></div>");
    } else if job.is_batch() && !job.started() {
        body.raw("<p class=\"note\">It has written nothing yet.</p>");
    } else if job.is_batch() && view.uid == job.owner.uid {
        body.raw("<p class=\"note\">Its output can't be shown at the moment.</p>");
    } else if job.is_batch() {
        body.raw("<p class=\"note\">Only its owner sees here what it has written.</p>");
    }
    body.raw("</section>");
}

/// Appends the end of a job's output, which is the user's and may be anything.
fn end_of_output(body: &mut Html, tail: &Tail, (job, what): (&JobRow, &'static str)) {
    let text = String::from_utf8_lossy(&tail.bytes);
    match &tail.problem {
        Some(_) if tail.path == "/dev/null" => {
            body.put("<p class=\"note\">Its {} is not kept. It goes to /dev/null.</p>", &[&what]);
        }
        Some(problem) => {
            body.put("<p class=\"note\">The controller's host can't show its {}: {}.", &[&what, problem]);
            let host = &job.info.run().batch_host;
            if !host.is_empty() {
                body.put(" Its script ran on {}.", &[host]);
            }
            body.raw("</p>");
        }
        None if text.is_empty() => {
            let what = if what == "errors" { "no errors" } else { "nothing" };
            body.put("<p class=\"note\">It has written {} so far.</p>", &[&what]);
        }
        None if (tail.bytes.len() as u64) < tail.size => {
            // A line that was cut is left out.
            let whole = text.split_once('\n').map_or(&*text, |(_, whole)| whole);
            body.put("<h3>The end of its {}</h3><pre class=\"out\" tabindex=\"0\">{}</pre>", &[&what, &whole]);
        }
        None => {
            body.put("<h3>Its {}</h3><pre class=\"out\" tabindex=\"0\">{}</pre>", &[&what, &text]);
        }
    }
}

fn fields<'a>(body: &mut Html, all: impl Iterator<Item = (&'a str, String)>) {
    body.raw("<details class=\"card\" id=\"fields\"><summary>All fields</summary><dl class=\"facts\">");
    for (name, value) in all.filter(|(_, value)| !["", "(null)", "N/A", "n/a", "NA"].contains(&value.as_str())) {
        fact(body, name, &value);
    }
    body.raw("</dl></details>");
}
