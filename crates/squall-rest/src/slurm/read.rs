//! Operations that read what the controller has in memory.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use squall_client::{ClientError, unexpected};
use squall_model::hostlist;
use squall_model::job::JobState;
use squall_model::wire::client::{Answer, HostRequest, JobSelection, Refusal, Request};
use squall_text::columns::settings::{own_host, settings};
use squall_text::rest::change::{self as order, job_id};
use squall_text::rest::{Operation, Path};
use squall_text::shapes::{self, AnswerKind, Problem, Version, Warning};

use super::{OperationRequest, OperationResult};
use crate::cluster::Cluster;
use crate::rows::{job_rows, joined};
use crate::users::name_of;

/// Answers whether the controller responds, and in `/slurmdb` whether accounting does, which the controller keeps.
pub(super) async fn ping(ask: &mut OperationRequest) -> OperationResult {
    let begin = Instant::now();
    let is_past = ask.path.operation == Operation::PingPast;
    if let Ok(Answer::Controllers(all)) = ask.server.cluster.ask(&ask.caller.identity, HostRequest::Controllers).await
        && !all.is_empty()
        && !is_past
    {
        let answered_us = begin.elapsed().as_micros() as u64;
        let pings = all.iter().enumerate().map(|(index, one)| {
            let mode = shapes::step::mode(index, all.len());
            shapes::step::ping(&one.name, &mode, shapes::step::answered(one, answered_us))
        });
        return Ok(ask.answer(vec![("pings", pings.collect())]));
    }
    let pings = match ask.server.cluster.ask(&ask.caller.identity, Request::Ping).await {
        Ok(Answer::Pong { host, .. }) => pings(ask.path, &host, Some(begin.elapsed().as_micros() as u64)),
        Ok(_) => return Err(ask.problem(&unexpected())),
        Err(e) => silence(&ask.server.cluster, ask.path, &e).ok_or_else(|| ask.problem(&e))?,
    };
    Ok(ask.answer(vec![("pings", pings)]))
}

/// Returns the pings of a controller that does not respond, as Slurm answers them. None: the request is no ping, or the
/// controller has refused it.
pub(super) fn silence(cluster: &Cluster, path: &Path, error: &ClientError) -> Option<Value> {
    let is_ping = matches!(path.operation, Operation::Ping | Operation::PingPast);
    let is_away = !matches!(error, ClientError::Refused(refusal) if *refusal != Refusal::ShuttingDown);
    (is_ping && is_away).then(|| pings(path, &cluster.host, None))
}

fn pings(path: &Path, host: &str, answered_us: Option<u64>) -> Value {
    let (responding, latency) = (answered_us.is_some(), answered_us.unwrap_or(0));
    json!([match path.operation {
        Operation::PingPast => {
            let status = shapes::step::ping_status(responding);
            json!({"hostname": host, "responding": responding, "latency": latency, "primary": true, "status": status})
        }
        _ => shapes::step::ping(host, "primary", answered_us),
    }])
}

pub(super) async fn diag(ask: &mut OperationRequest) -> OperationResult {
    let diag = ask.server.cluster.diag(ask.since()).await.map_err(|e| ask.problem(&e))?;
    Ok(ask.answer(vec![("statistics", shapes::diag::statistics(&diag, &name_of))]))
}

pub(super) async fn shares(ask: &mut OperationRequest) -> OperationResult {
    let shares = ask.server.cluster.shares(ask.since()).await.map_err(|e| ask.problem(&e))?;
    let (accounts, users) = (ask.words("accounts"), ask.words("users"));
    let of = |names: &[String], name: &str| names.is_empty() || names.iter().any(|one| one == name);
    let wanted: Vec<_> = shares
        .iter()
        .filter(|share| of(&accounts, &share.account) && (of(&users, &share.user) || share.user.is_empty()))
        .cloned()
        .collect();
    Ok(ask.answer(vec![("shares", shapes::shares::shares(&shares, &wanted, &ask.cluster))]))
}

pub(super) async fn licenses(ask: &mut OperationRequest) -> OperationResult {
    let licenses = ask.server.cluster.licenses(ask.since()).await.map_err(|e| ask.problem(&e))?;
    let all: Vec<Value> = licenses.iter().map(shapes::license::license).collect();
    Ok(ask.answer(vec![("licenses", all.into())]))
}

pub(super) async fn jobs(ask: &mut OperationRequest) -> OperationResult {
    // A parameter that Slurm's document does not have, and that clients send.
    let ids = ask.words("job_id");
    ask.notes.warnings.retain(|warning| warning.source != "job_id");
    if !ids.is_empty() {
        return selected(ask, &ids.join(","), false).await;
    }
    let (server, version) = (Arc::clone(&ask.server), ask.version);
    let page = server.cluster.jobs(ask.since()).await.map_err(|e| ask.problem(&e))?;
    let cluster = ask.cluster.clone();
    let now = page.now;
    let records = tokio::task::spawn_blocking(move || server.cluster.records.of_jobs(version, &page, &cluster));
    let records = records.await.map_err(|_| ask.problem(&unexpected()))?;
    Ok(ask.records(AnswerKind::Jobs, records, vec![("last_backfill", shapes::time(Some(now)))]))
}

pub(super) async fn job(ask: &mut OperationRequest) -> OperationResult {
    let id = ask.value().to_owned();
    selected(ask, &id, true).await
}

pub(super) async fn states(ask: &mut OperationRequest) -> OperationResult {
    const KEYS: [&str; 5] = ["job_id", "array_job_id", "array_task_id", "het_job_id", "job_state"];
    let ids = ask.words("job_id").join(",");
    let selection = selection(&ids)?;
    let page = ask.server.cluster.with(&ask.caller.identity, move |client| client.jobs(selection, true, false)).await;
    let page = page.map_err(|e| ask.problem(&e))?;
    let only = |mut job: Value| {
        if let Some(job) = job.as_object_mut() {
            job.retain(|key, _| KEYS.contains(&key.as_str()));
        }
        job
    };
    let jobs: Vec<Value> = job_rows(&page, &ask.cluster).iter().map(|row| only(shapes::job::job(row))).collect();
    Ok(ask.answer(vec![("jobs", jobs.into())]))
}

/// Answers with the jobs that `ids` names. `needed`: it is an error if there are none.
async fn selected(ask: &mut OperationRequest, ids: &str, needed: bool) -> OperationResult {
    let selection = selection(ids)?;
    let page = ask.server.cluster.with(&ask.caller.identity, move |client| client.jobs(selection, true, true)).await;
    let page = page.map_err(|e| ask.problem(&e))?;
    if page.jobs.is_empty() && needed {
        return Err(Problem::of(&Refusal::InvalidJobId, ask.path.name));
    }
    let records: Vec<_> = job_rows(&page, &ask.cluster)
        .iter()
        .map(|row| shapes::record(ask.version, AnswerKind::Jobs, shapes::job::job(row)).into())
        .collect();
    Ok(ask.records(AnswerKind::Jobs, joined(&records), vec![("last_backfill", shapes::time(Some(page.now)))]))
}

/// Answers with what a running job holds on each of its nodes.
pub(super) async fn resources(ask: &mut OperationRequest) -> OperationResult {
    let selection = selection(ask.value())?;
    let page = ask.server.cluster.with(&ask.caller.identity, move |client| client.jobs(selection, true, false)).await;
    let page = page.map_err(|e| ask.problem(&e))?;
    let nodes = ask.server.cluster.nodes(ask.since()).await.map_err(|e| ask.problem(&e))?;
    if page.jobs.is_empty() {
        return Err(Problem::of(&Refusal::InvalidJobId, ask.path.name));
    }
    let cluster = ask.cluster.clone();
    let layout = move || {
        let rows = job_rows(&page, &cluster);
        let running = rows.iter().find(|row| row.info.state == JobState::Running);
        running.map(|row| shapes::resources::layout(row, &nodes))
    };
    let layout = tokio::task::spawn_blocking(layout).await.map_err(|_| ask.problem(&unexpected()))?;
    match layout {
        Some(nodes) => Ok(ask.answer(vec![("nodes", nodes.into())])),
        None => Err(Problem::of(&Refusal::NotRunning, ask.path.name)),
    }
}

/// Answers with the settings of the cluster, which `scontrol show config` shows to everybody, too.
pub(super) async fn conf(ask: &mut OperationRequest) -> OperationResult {
    let config = ask.server.cluster.config(ask.since()).await.map_err(|e| ask.problem(&e))?;
    let pong = ask.server.cluster.ask(&ask.caller.identity, Request::Ping).await.map_err(|e| ask.problem(&e))?;
    let Answer::Pong { host, started, next_job, .. } = pong else { return Err(ask.problem(&unexpected())) };
    let hosts = match ask.server.cluster.ask(&ask.caller.identity, HostRequest::Controllers).await {
        Ok(Answer::Controllers(all)) if !all.is_empty() => all.into_iter().map(|one| one.name).collect(),
        _ => vec![own_host(&config, &host)],
    };
    let settings =
        settings(&config).map_err(|why| Problem::away(format!("the configuration can't be shown: {why}")))?;
    Ok(ask.answer(vec![
        ("slurm_conf", shapes::conf::slurm_conf(ask.version, &settings, &hosts)),
        ("slurm_conf_meta", shapes::conf::slurm_conf_meta(super::now(), started, next_job.0)),
    ]))
}

/// Answers with the names of a host list, or with the list of names.
pub(super) fn hosts(ask: &mut OperationRequest) -> OperationResult {
    let is_list = ask.path.operation == Operation::HostNames;
    let read = order::hosts(&ask.body, is_list)?;
    ask.notes.warnings.extend(read.warnings);
    let body =
        if is_list { ("hostnames", read.value.into()) } else { ("hostlist", hostlist::compress(read.value).into()) };
    Ok(ask.answer(vec![body]))
}

/// Reads a list of job ids, such as `17,18_3`.
pub(super) fn selection(ids: &str) -> Result<JobSelection, Problem> {
    let words = ids.split(',').map(str::trim).filter(|word| !word.is_empty());
    Ok(JobSelection { ids: words.map(job_id).collect::<Result<_, _>>()?, ..JobSelection::default() })
}

pub(super) async fn nodes(ask: &mut OperationRequest) -> OperationResult {
    let (server, version) = (Arc::clone(&ask.server), ask.version);
    let nodes = server.cluster.nodes(ask.since()).await.map_err(|e| ask.problem(&e))?;
    let cluster = ask.cluster.clone();
    if let Some(list) = ask.values.first().filter(|name| !name.is_empty()) {
        let wrong = |e| Problem::malformed("node_name", format!("`{list}`: {e}"));
        let names = hostlist::expand(list).map_err(wrong)?;
        let mut records = Vec::new();
        for name in names {
            let node = nodes.iter().find(|node| node.name == name);
            let node = node.ok_or_else(|| Problem::not_found("node_name", &format!("node {name}")))?;
            records
                .push(shapes::record(version, AnswerKind::Nodes, shapes::node::node(node, &cluster, &name_of)).into());
        }
        return Ok(ask.records(AnswerKind::Nodes, joined(&records), Vec::new()));
    }
    let records = tokio::task::spawn_blocking(move || server.cluster.records.of_nodes(version, &nodes, &cluster));
    let records = records.await.map_err(|_| ask.problem(&unexpected()))?;
    Ok(ask.records(AnswerKind::Nodes, records, Vec::new()))
}

pub(super) async fn partitions(ask: &mut OperationRequest) -> OperationResult {
    let partitions = ask.server.cluster.partitions(ask.since()).await.map_err(|e| ask.problem(&e))?;
    let wanted = ask.value();
    let all: Vec<Value> = partitions
        .iter()
        .filter(|partition| wanted.is_empty() || partition.config.name == wanted)
        .map(|partition| shapes::partition::partition(partition, &ask.cluster))
        .collect();
    if all.is_empty() && !wanted.is_empty() {
        return Err(Problem::not_found("partition_name", &format!("partition {wanted}")));
    }
    Ok(ask.answer(vec![("partitions", all.into())]))
}

pub(super) async fn reservations(ask: &mut OperationRequest) -> OperationResult {
    let reservations = ask.server.cluster.reservations(ask.since()).await.map_err(|e| ask.problem(&e))?;
    let wanted = ask.value();
    let all: Vec<Value> = reservations
        .iter()
        .filter(|one| wanted.is_empty() || one.reservation.name == wanted)
        .map(shapes::reservation::reservation)
        .collect();
    if all.is_empty() && !wanted.is_empty() {
        let problem = Problem::not_found("reservation_name", &format!("reservation {wanted}"));
        // Clients of v0.0.44 and later delete a reservation, and then ask for it until the list is empty: Slinky's do.
        if ask.version < Version::V44 {
            return Err(problem);
        }
        ask.notes.warnings.push(Warning { source: problem.source, description: problem.description });
    }
    Ok(ask.answer(vec![("reservations", all.into())]))
}
