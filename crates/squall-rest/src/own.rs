//! `/squall/v1/`: what Slurm's interface has no path for.

use std::collections::BTreeMap;
use std::rc::Rc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};
use squall_client::{ClientError, unexpected};
use squall_files::users;
use squall_model::hostlist;
use squall_model::id::JobId;
use squall_model::job::JobState;
use squall_model::wire::client::{AccountingQuery, Answer, JobSelection, Refusal, Request};
use squall_text::format::clock::Clock;
use squall_text::format::why;
use squall_text::report::many;
use squall_text::report::record::Record;
use squall_text::rest::change::job_id;
use squall_text::rest::job;
use squall_text::shapes::Problem;

use crate::answer::{self, Failure};
use crate::caller::Caller;
use crate::events::events;
use crate::routes::ServerHandle;
use crate::slurm::{json as answer, now};
use crate::users::name_of;

/// Most rows of jobs and steps in a report.
const REPORTED_MAX: usize = 50_000;

pub(crate) fn routes() -> Router<ServerHandle> {
    Router::new()
        .route("/caller", get(caller))
        .route("/events", get(events))
        .route("/forecast", get(forecast))
        .route("/job/{job}/{deed}", post(act))
        .route("/ping", get(ping))
        .route("/report/{job}", get(report))
        .route("/topology", get(topology))
        .route("/what-if", post(what_if))
        .route("/why/{job}", get(why_pending))
}

fn told(value: &Value) -> Response {
    answer(StatusCode::OK, Bytes::from(value.to_string()))
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let place = if problem.source.is_empty() { String::new() } else { format!("{}: ", problem.source) };
        Self::new(status, format!("{place}{}", problem.description))
    }
}

/// `GET caller`: the user as whom the caller acts.
async fn caller(caller: Caller) -> Response {
    told(&json!({"uid": caller.uid, "user": caller.user, "group": caller.group, "operator": caller.operator}))
}

/// `GET ping`: whether the controller answers, and what it would refuse.
async fn ping(State(server): State<ServerHandle>, caller: Caller) -> Result<Response, Failure> {
    match server.cluster.ask(&caller.identity, Request::Ping).await? {
        Answer::Pong {
            host,
            version,
            nodes_up,
            nodes_expected,
            trouble,
            started,
            next_job,
            cluster_version,
            records,
            ..
        } => Ok(told(&json!({
            "host": host, "version": version, "nodes_up": nodes_up, "nodes_expected": nodes_expected,
            "trouble": trouble, "started": started.secs(), "next_job": next_job.0,
            "cluster_version": cluster_version.0, "records": records,
        }))),
        _ => Err(unexpected().into()),
    }
}

/// `GET why/JOB`: why a job is pending, and what would let it start; `text` has it in words.
async fn why_pending(
    State(server): State<ServerHandle>,
    caller: Caller,
    Path(job): Path<String>,
) -> Result<Response, Failure> {
    let id = found(&server, &caller, &job).await?;
    match server.cluster.ask(&caller.identity, Request::Why { job: id }).await? {
        Answer::Why(said) => {
            let mut value = why::json(&said);
            value["text"] = why::text(&said, &Clock::here(now()), false).into();
            Ok(told(&value))
        }
        _ => Err(unexpected().into()),
    }
}

/// `GET report/JOB`: what a job used of what it asked for, how it ended and why, as `squall report --json`; of an array,
/// also its summary.
async fn report(
    State(server): State<ServerHandle>,
    caller: Caller,
    Path(job): Path<String>,
) -> Result<Response, Failure> {
    let query = AccountingQuery { ids: vec![job_id(&job)?], ..AccountingQuery::default() };
    let (rows, cut) = server.cluster.accounting_up_to(&caller.identity, query, REPORTED_MAX, Some).await?;
    if rows.iter().all(|row| row.step.is_some()) {
        return Err(ClientError::Refused(Refusal::InvalidJobId).into());
    }
    if cut {
        let text = format!("the array has more than {REPORTED_MAX} tasks and steps: ask for a task, such as {job}_1");
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    let config = server.cluster.config(None).await?;
    let value = tokio::task::spawn_blocking(move || {
        let (clock, cluster) = (Rc::new(Clock::here(now())), Rc::from(config.cluster.as_str()));
        let records = Record::all(rows, (&clock, &cluster), name_of);
        many::json(&records.iter().map(Record::report).collect::<Vec<_>>())
    });
    Ok(told(&value.await.map_err(|_| Failure::from(unexpected()))?))
}

/// Returns the id of the job that users know by this text.
async fn found(server: &ServerHandle, caller: &Caller, text: &str) -> Result<JobId, Failure> {
    let jobs = JobSelection { ids: vec![job_id(text)?], ..JobSelection::default() };
    let page = server.cluster.with(&caller.identity, move |client| client.jobs(jobs, true, false)).await?;
    let first = page.jobs.first().map(|job| job.id);
    first.ok_or_else(|| ClientError::Refused(Refusal::InvalidJobId).into())
}

/// `GET forecast`: when and where the first pending jobs are expected to start.
async fn forecast(State(server): State<ServerHandle>, caller: Caller) -> Result<Response, Failure> {
    let starts = server.cluster.expected(server.changes.since(caller.uid)).await?;
    let each: Vec<Value> = starts
        .iter()
        .map(|start| json!({"job_id": start.id.0, "start": start.time.secs(), "nodes": start.nodes}))
        .collect();
    Ok(told(&json!({"starts": each})))
}

/// Whether a job in this state holds nodes.
fn holds_nodes(state: JobState) -> bool {
    matches!(state, JobState::Running | JobState::Configuring | JobState::Suspended | JobState::Completing(_))
}

/// `GET topology`: the network as the configuration describes it, and the jobs on each node.
async fn topology(State(server): State<ServerHandle>, caller: Caller) -> Result<Response, Failure> {
    let since = server.changes.since(caller.uid);
    let (nodes, jobs) = (server.cluster.nodes(since).await?, server.cluster.jobs(since).await?);
    let config = server.cluster.config(None).await?;
    let value = tokio::task::spawn_blocking(move || {
        let mut on: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for job in jobs.jobs.iter().filter(|job| holds_nodes(job.state)) {
            for node in job.run.iter().flat_map(|run| hostlist::expand(&run.nodes).unwrap_or_default()) {
                on.entry(node).or_default().push(job.id.0);
            }
        }
        let switches: Vec<Value> =
            config.switches.iter().map(|switch| json!({"name": switch.name, "nodes": switch.nodes})).collect();
        let nodes: Vec<Value> = nodes
            .iter()
            .map(|node| json!({"name": node.name, "jobs": on.get(&node.name).cloned().unwrap_or_default()}))
            .collect();
        json!({
            "plugin": config.topology_plugin, "file": config.topology.name, "text": config.topology.text,
            "switches": switches, "nodes": nodes,
        })
    });
    Ok(told(&value.await.map_err(|_| Failure::from(unexpected()))?))
}

/// `POST what-if`: when a job would start that has this body of `job/submit`. Nothing is submitted.
async fn what_if(State(server): State<ServerHandle>, caller: Caller, body: Body) -> Result<Response, Failure> {
    let (body, _room) = server.room.json(caller.uid, answer::body(body, answer::BODY_BYTES_MAX).await?).await?;
    let config = server.cluster.config(None).await?;
    let name = caller.user.clone();
    let read = server.room.work(move || {
        let user = users::by_name(&name);
        let user = user.ok_or_else(|| Failure::new(StatusCode::UNAUTHORIZED, "the user is not known here"))?;
        let who = job::Caller {
            user: &user.name,
            uid: user.uid,
            gid: user.gid,
            home: &user.home,
            cluster: &config.cluster,
            host: "",
        };
        Ok::<_, Failure>(job::submit(&body, &who)?)
    });
    let taken = read.await??;
    let mut specs = taken.value.specs;
    if specs.len() != 1 {
        return Err(Failure::new(StatusCode::NOT_IMPLEMENTED, "what-if takes one job, not a heterogeneous one"));
    }
    let spec = std::sync::Arc::new(specs.remove(0));
    match server.cluster.ask(&caller.identity, Request::TestSubmit { spec }).await? {
        Answer::WouldStart { time, cpus, nodes, partition, .. } => Ok(told(&json!({
            "start": time.secs(), "cpus": cpus, "nodes": nodes, "partition": partition,
            "warnings": taken.warnings.iter().map(squall_text::shapes::Warning::json).collect::<Vec<_>>(),
        }))),
        _ => Err(unexpected().into()),
    }
}

/// `POST job/JOB/hold`, `release`, `requeue`, `suspend` or `resume`.
async fn act(
    State(server): State<ServerHandle>,
    caller: Caller,
    Path((job, deed)): Path<(String, String)>,
) -> Result<Response, Failure> {
    if caller.by_cookie {
        let text = "a browser's cookie is not taken here: send the token in X-SLURM-USER-TOKEN";
        return Err(Failure::new(StatusCode::FORBIDDEN, text));
    }
    let jobs = JobSelection { ids: vec![job_id(&job)?], ..JobSelection::default() };
    let request = match deed.as_str() {
        "hold" => Request::Hold { jobs, user: false },
        "release" => Request::Release { jobs },
        "requeue" => Request::Requeue { jobs, hold: false, from: None, special: None },
        "suspend" => Request::Suspend { jobs, suspend: true },
        "resume" => Request::Suspend { jobs, suspend: false },
        other => return Err(Failure::new(StatusCode::NOT_FOUND, format!("there is no deed `{other}`"))),
    };
    let done = server.cluster.ask(&caller.identity, request).await?;
    server.changes.note(caller.uid);
    match done {
        Answer::Affected { jobs, refused } => match refused.into_iter().next() {
            Some((_, refusal)) if jobs.is_empty() => Err(ClientError::Refused(refusal).into()),
            _ => Ok(told(&json!({"jobs": jobs.iter().map(ToString::to_string).collect::<Vec<_>>()}))),
        },
        _ => Err(unexpected().into()),
    }
}
