//! Jobs that the controller has forgotten: their pages are those of jobs in its memory, drawn from accounting.

use std::rc::Rc;
use std::sync::Arc;

use axum::response::Response;
use squall_model::hostlist;
use squall_model::id::{Attempt, JobId};
use squall_model::job::{JobState, Outcome, PendingReason};
use squall_model::time::{Span, Time};
use squall_model::wire::client::{AccountingQuery, JobRef};
use squall_model::wire::info::{AccountingRow, JobClass, JobInfo, JobsPage, RunInfo, StepInfo};
use squall_text::report::record::Record;

use crate::caller::Identity;
use crate::routes::Server;
use crate::users::name_of;
use crate::web::array;
use crate::web::frame::{Problem, View, made};
use crate::web::html::Html;
use crate::web::job::{self, JobDetails};

/// Most rows of jobs and steps that are read for a page.
pub(crate) const ROWS_MAX: usize = 50_000;

/// Returns that a viewer sees no job of this name.
pub(crate) fn missing(id: &str) -> Problem {
    Problem::missing(format!("There is no job {id} that you may see."))
}

/// Returns the runs of jobs in these rows.
pub(crate) fn all(view: &View, rows: Vec<AccountingRow>) -> Vec<Record> {
    let (clock, cluster) = (Rc::new(view.clock.clone()), Rc::from(view.cluster.as_str()));
    Record::all(rows, (&clock, &cluster), name_of)
}

/// Returns the last run in these rows. None: they are of no job.
pub(crate) fn last(view: &View, rows: Vec<AccountingRow>) -> Option<Record> {
    all(view, rows).pop()
}

/// Returns the page of a job, an array or a task that the controller has forgotten. `page`: of the list of tasks.
pub(crate) async fn show(
    server: &Server,
    who: &Identity,
    view: View,
    (id, named, page): (&str, JobRef, usize),
) -> Result<Response, Problem> {
    let query =
        AccountingQuery { ids: vec![named.clone()], duplicates: true, series: true, ..AccountingQuery::default() };
    let (rows, _) = server.cluster.accounting_up_to(who, query, ROWS_MAX, Some).await?;
    if let Some(array) = array::of_rows(&rows, &named) {
        return array::show(server, who, view, (array, page)).await;
    }
    let jobs = || rows.iter().filter(|row| row.step.is_none() && row.pending_tasks.is_none());
    // Of a heterogeneous job: its first component.
    let wanted = jobs().find(|row| matches!(named, JobRef::Job(id) if id == row.id)).or_else(|| jobs().next());
    let Some(wanted) = wanted.map(|row| row.id) else { return Err(missing(id)) };
    let Some(run) = jobs().filter(|row| row.id == wanted).max_by_key(|row| row.attempt).cloned() else {
        return Err(missing(id));
    };
    let mut known = JobDetails { past: true, ..JobDetails::default() };
    known.take(rows, (run.id, run.attempt));
    if run.owner.uid == view.uid && run.start.is_some() {
        known.see_output(server, who, (run.id, true), Some(&run.spec)).await;
    }
    made(move || past(&view, &known)).await
}

/// Returns the page of a job from its rows of accounting.
pub(crate) fn past(view: &View, known: &JobDetails) -> Html {
    let (job, steps): (Vec<&AccountingRow>, Vec<&AccountingRow>) =
        known.rows.iter().partition(|row| row.step.is_none());
    let page = JobsPage {
        specs: job.iter().map(|row| Arc::clone(&row.spec)).collect(),
        owners: job.iter().map(|row| Arc::clone(&row.owner)).collect(),
        classes: job.iter().map(|row| Arc::new(class_of(row))).collect(),
        now: view.clock.now,
        ..JobsPage::default()
    };
    let info = job.first().map_or_else(nothing, |row| info_of(row, &steps));
    job::page(view, &Arc::new(page), &info, known)
}

fn class_of(row: &AccountingRow) -> JobClass {
    JobClass { partition: row.partition.clone(), account: row.account.clone(), qos: row.qos.clone() }
}

/// Returns how a job or a step has ended. None: it has not.
fn outcome_of(row: &AccountingRow) -> Option<Outcome> {
    let (JobState::Ended(state) | JobState::Completing(state)) = row.state else { return None };
    Some(Outcome { state, exit: row.exit, reason: row.reason.clone() })
}

/// Returns a job as the controller had it in memory, as far as accounting knows.
fn info_of(row: &AccountingRow, steps: &[&AccountingRow]) -> JobInfo {
    let first = hostlist::expand(&row.nodes).unwrap_or_default().into_iter().next();
    let run = RunInfo {
        outcome: outcome_of(row),
        derived_exit: row.derived_exit,
        idle: Span::from_secs(row.suspended_s),
        nodes: row.nodes.clone(),
        batch_host: first.unwrap_or_default(),
        steps: steps.iter().filter_map(|step| step_of(step)).collect(),
        ..RunInfo::default()
    };
    JobInfo {
        id: row.id,
        task: row.task,
        state: row.state,
        attempt: if row.start.is_some() { row.attempt } else { Attempt(0) },
        submit: row.submit,
        eligible: row.eligible,
        start: row.start,
        end: row.end,
        time_limit_s: row.time_limit_s,
        num_nodes: row.num_nodes,
        num_cpus: row.num_cpus.max(row.req_cpus),
        num_tasks: row.num_tasks,
        memory_mb: row.memory_mb,
        het: row.het,
        restarts: row.attempt.0.saturating_sub(1),
        billing: row.billing.or(row.req_billing),
        run: row.start.is_some().then(|| Box::new(run)),
        ..nothing()
    }
}

fn step_of(row: &AccountingRow) -> Option<StepInfo> {
    Some(StepInfo {
        step: row.step?,
        name: row.name.clone(),
        nodes: row.nodes.clone(),
        num_nodes: row.num_nodes,
        num_cpus: row.num_cpus,
        num_tasks: row.num_tasks,
        memory_mb: 0,
        start: row.start.unwrap_or_default(),
        time_limit_s: None,
        end: row.end.zip(outcome_of(row)),
        ports: None,
        cpu_freq: None,
        tres_per_node: None,
    })
}

/// Returns a job of which nothing is known.
pub(crate) fn nothing() -> JobInfo {
    JobInfo {
        id: JobId(0),
        task: None,
        pending_tasks: None,
        array_limit: None,
        spec: 0,
        owner: 0,
        class: 0,
        state: JobState::Pending,
        reason: PendingReason::None,
        attempt: Attempt(0),
        priority: 0,
        submit: Time::default(),
        eligible: Time::default(),
        start: None,
        end: None,
        time_limit_s: None,
        num_nodes: 0,
        num_cpus: 0,
        num_tasks: 0,
        memory_mb: 0,
        dependency: String::new(),
        het: None,
        run: None,
        restarts: 0,
        checkpoint: None,
        billing: None,
    }
}
