//! `bench wide`: a job on all nodes at once: time from its submission until it runs on all of them, and from the end of
//! its script until that is durable and all nodes are free. Also the delay of a single report from the deepest node of
//! the tree, with aggregation and without: in an idle tree, aggregation must not delay it.

use std::sync::Arc;
use std::time::{Instant, UNIX_EPOCH};

use serde_json::{Value, json};
use squall_model::encoding::ByteBuf;
use squall_model::id::{Attempt, ClientKey, JobId};
use squall_model::job::{EndState, JobAttempt, JobSpec, Need};
use squall_model::wire::client::{AccountingQuery, Answer, HostRequest, JobRef, Request};
use squall_model::wire::fabric::{Comparison, Test, Variable};
use squall_model::wire::info::Diag;

use super::cluster::Cluster;
use super::{BenchOptions, Finding};
use crate::client::{Client, unexpected};

const NODES: u32 = 10_080;
/// Number of timed jobs, of which the median counts. One more job runs before them.
const JOBS: u64 = 9;
/// Run time of the script, milliseconds: longer than its job takes to start.
const RUN_MS: u64 = 500;

/// Number of jobs on the last node only, each of which sends a single report.
const ONLY_JOBS: u64 = 40;
/// Number of the first of these jobs: a number is a job's key, and those below are of jobs on all nodes.
const ONLY_FIRST: u64 = 1 << 32;
/// Run time of a job on the last node only, milliseconds.
const ONLY_RUN_MS: u64 = 20;
/// Configuration without aggregation: every report is sent by itself.
const ONE_BY_ONE: &str = "msg_aggregation_params = \"WindowMsgs=1\"\n";

/// Properties of a job that the benchmark submits.
struct Job {
    nodes: u32,
    /// Name of the node on which the job must run. None: any node.
    on: Option<String>,
    run_ms: u64,
}

/// Durations measured for one job, milliseconds.
struct Times {
    /// Time from the submission to the controller's acknowledgement, milliseconds.
    submitted: f64,
    /// Time from the submission until a query finds the job on all nodes, milliseconds.
    started: f64,
    /// Time from the end of the script to its durable completion, milliseconds.
    ended: f64,
}

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let nodes = options.nodes.unwrap_or(NODES);
    let jobs = options.jobs.unwrap_or(JOBS).max(1);
    let cluster = Cluster::rack(nodes, "")?;
    let mut client = cluster.client()?;
    Cluster::wait_for(&mut client, nodes)?;
    let wide = Job { nodes, on: None, run_ms: RUN_MS };
    one(&cluster, &wide, 0)?;
    let before = Cluster::diag(&mut client)?;
    let times = (1..=jobs).map(|number| one(&cluster, &wide, number)).collect::<Result<Vec<_>, _>>()?;
    let after = Cluster::diag(&mut client)?;
    let aggregated = only(&cluster, nodes)?;
    drop((client, cluster));
    let cluster = Cluster::rack(nodes, ONE_BY_ONE)?;
    Cluster::wait_for(&mut cluster.client()?, nodes)?;
    let plain = only(&cluster, nodes)?;
    let handled = |diag: &Diag| {
        let all = diag.messages.iter();
        all.fold((0, 0), |(count, us), (_, more, more_us)| (count + more, us + more_us))
    };
    let (from, to) = (handled(&before), handled(&after));
    let rows = [
        show("submit to acknowledgement", &times, |t| t.submitted),
        show("submit to all started", &times, |t| t.started),
        show("end to durable completion", &times, |t| t.ended),
        show("an only report, aggregation on", &aggregated, |t| t.ended),
        show("an only report, aggregation off", &plain, |t| t.ended),
    ];
    let ended = sorted(&times, |t| t.ended);
    let rate = |ms: f64| (f64::from(nodes) / ms * 1e3).round();
    let fields = vec![
        ("nodes", json!(nodes)),
        ("measured", Value::Array(rows.to_vec())),
        ("reports_per_s_at_the_end", json!(rate(ended[ended.len() / 2]))),
        ("messages_per_job", json!((to.0 - from.0) / jobs)),
        ("controller_us_per_job", json!((to.1 - from.1) / jobs)),
    ];
    let figure = sorted(&times, |t| t.started)[times.len() / 2];
    Ok(Finding { bench: "wide", figure, unit: "ms, submit to all started", limit: None, fields })
}

/// Measures jobs that run on the last node only.
fn only(cluster: &Cluster, nodes: u32) -> Result<Vec<Times>, String> {
    let last = Job { nodes: 1, on: Some(format!("n{nodes}")), run_ms: ONLY_RUN_MS };
    one(cluster, &last, ONLY_FIRST)?;
    (1..=ONLY_JOBS).map(|number| one(cluster, &last, ONLY_FIRST + number)).collect()
}

fn one(cluster: &Cluster, wanted: &Job, number: u64) -> Result<Times, String> {
    let (mut client, mut watch) = (cluster.client()?, cluster.client()?);
    let start = Instant::now();
    let Answer::Submitted { job, .. } = ask(&mut client, &submission(wanted, number))? else {
        return Err(unexpected().to_string());
    };
    let submitted = ms(start);
    watch.send(&Request::AwaitJob { job }).map_err(|e| e.to_string())?;
    // One on the last node only is over before a query for it could come, on a busy machine.
    if wanted.on.is_none() {
        is_everywhere(&mut client, wanted.nodes, job)?;
    }
    let started = ms(start);
    match watch.receive().map_err(|e| e.to_string())? {
        Answer::JobDone { outcome, .. } if outcome.state == EndState::Completed => {}
        other => return Err(format!("the job did not end well: {other:?}")),
    }
    let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_micros() as f64;
    let ended = (now - script_end_us(&mut client, job)?) / 1e3;
    Ok(Times { submitted, started, ended })
}

/// Waits until a job is on all nodes.
fn is_everywhere(client: &mut Client, nodes: u32, job: JobId) -> Result<(), String> {
    let variable = Variable::Job(JobAttempt { job, attempt: Attempt(1) });
    let test = Test { variable, comparison: Comparison::AtLeast, value: 1 };
    let nodes = format!("n[1-{nodes}]");
    match ask(client, &Request::QueryNodes { nodes, test, wait: true, write: None, time_ms: 30_000 })? {
        Answer::Queried { no, unreachable } if no.is_empty() && unreachable.is_empty() => Ok(()),
        other => Err(format!("the job is not on all nodes: {other:?}").chars().take(200).collect()),
    }
}

/// Returns when the script ended, in microseconds, by its node's clock, which is this machine's.
fn script_end_us(client: &mut Client, job: JobId) -> Result<f64, String> {
    let query = AccountingQuery { ids: vec![JobRef::Job(job)], ..AccountingQuery::default() };
    client.send(&HostRequest::Accounting(Box::new(query))).map_err(|e| e.to_string())?;
    let mut end = None;
    loop {
        let Answer::Accounting { rows, more, .. } = client.receive().map_err(|e| e.to_string())? else {
            return Err(unexpected().to_string());
        };
        end = end.or(rows.iter().filter(|row| row.step.is_some()).find_map(|row| row.end));
        if !more {
            return end.map(|end| end.0 as f64).ok_or_else(|| "accounting knows of no script".to_owned());
        }
    }
}

fn submission(wanted: &Job, number: u64) -> Request {
    let nodes = Some(wanted.nodes);
    let spec = JobSpec {
        name: "wide".into(),
        comment: Some(format!("timer_ms={}", wanted.run_ms)),
        need: Need { nodes_min: nodes, nodes_max: nodes, nodelist: wanted.on.clone(), ..Need::default() },
        work_dir: "/".into(),
        command: "wide".into(),
        stdout: Some("/dev/null".into()),
        submit_line: "squall bench".into(),
        ..JobSpec::default()
    };
    Request::Submit {
        spec: Arc::new(spec),
        script: ByteBuf::from(b"#!/bin/true\n".as_slice()),
        env: ByteBuf::from(b"PATH=/usr/bin:/bin\0".as_slice()),
        key: ClientKey(u128::from(number) << 64 | u128::from(std::process::id())),
    }
}

fn ask(client: &mut Client, request: &Request) -> Result<Answer, String> {
    client.ask(request).map_err(|e| e.to_string())
}

fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

fn sorted(times: &[Times], of: impl Fn(&Times) -> f64) -> Vec<f64> {
    let mut all: Vec<f64> = times.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all
}

fn show(what: &str, times: &[Times], of: impl Fn(&Times) -> f64) -> Value {
    let all = sorted(times, of);
    let round = |ms: f64| (ms * 1e3).round() / 1e3;
    json!({
        "what": what, "min_ms": round(all[0]), "median_ms": round(all[all.len() / 2]), "max_ms": round(all[all.len() - 1]),
    })
}
