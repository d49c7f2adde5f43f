//! Operations of `/slurmdb`: accounting and its records.

use std::rc::Rc;

use serde_json::{Value, json};
use squall_client::unexpected;
use squall_files::users;
use squall_model::config::Config;
use squall_model::policy::Policy;
use squall_model::time::Time;
use squall_model::wire::client::{AccountingQuery, Answer, Refusal, Request};
use squall_text::columns::entities;
use squall_text::columns::records::Row as Record;
use squall_text::format::accounting::Row;
use squall_text::format::clock::Clock;
use squall_text::format::words::state_filter;
use squall_text::options::values::when::when_here;
use squall_text::rest::Operation;
use squall_text::rest::change::job_id;
use squall_text::rest::record;
use squall_text::shapes::{self, Problem};

use super::{OperationRequest, OperationResult};
use crate::users::name_of;

/// Parameters of a query about past jobs that select jobs.
const SELECTS: [&str; 11] = [
    "account",
    "format",
    "job_name",
    "partition",
    "state",
    "end_time",
    "start_time",
    "node",
    "users",
    "skip_steps",
    "show_duplicates",
];

pub(super) async fn jobs(ask: &mut OperationRequest) -> OperationResult {
    let mut query = AccountingQuery::default();
    let one = ask.path.operation == Operation::GetPastJob;
    if one {
        query.ids = vec![job_id(ask.value())?];
    } else {
        select(ask, &mut query)?;
    }
    let rows = ask.server.cluster.accounting(&ask.caller.identity, query).await.map_err(|e| ask.problem(&e))?;
    if rows.is_empty() && one {
        return Err(Problem::of(&Refusal::InvalidJobId, ask.path.name));
    }
    let (cluster, now) = (ask.cluster.clone(), super::now());
    let list = tokio::task::spawn_blocking(move || {
        let (clock, cluster) = (Rc::new(Clock::here(now)), Rc::<str>::from(cluster));
        let rows: Vec<Row> = rows.into_iter().map(|data| Row::new(data, &clock, &cluster)).collect();
        shapes::accounting::jobs(&rows, &name_of)
    });
    let list = list.await.map_err(|_| ask.problem(&unexpected()))?;
    Ok(ask.answer(vec![("jobs", list.into())]))
}

fn select(ask: &mut OperationRequest, query: &mut AccountingQuery) -> Result<(), Problem> {
    let unused: Vec<&&str> =
        ask.path.query.iter().filter(|name| !SELECTS.contains(*name) && ask.query.contains_key(**name)).collect();
    if let Some(name) = unused.first() {
        return Err(Problem::not_done(**name, "Past jobs can't be selected by it"));
    }
    query.accounts = ask.words("account");
    query.names = ask.words("job_name");
    query.partitions = ask.words("partition");
    query.nodes = ask.query.get("node").filter(|nodes| !nodes.is_empty()).cloned();
    query.allocations_only = is_set(ask, "skip_steps");
    query.duplicates = is_set(ask, "show_duplicates");
    for name in ask.words("users") {
        let unknown = || Problem::not_found("users", &format!("user {name}"));
        let uid = name.parse().ok().or_else(|| users::by_name(&name).map(|user| user.uid));
        query.users.push(uid.ok_or_else(unknown)?);
    }
    for word in ask.words("state") {
        let unknown = || Problem::malformed("state", format!("{word}: there is no such state"));
        query.states.push(state_filter(&word).ok_or_else(unknown)?);
    }
    query.start = time(ask, "start_time")?;
    query.end = time(ask, "end_time")?;
    Clock::here(super::now()).complete_period(query);
    Ok(())
}

fn is_set(ask: &OperationRequest, name: &str) -> bool {
    ask.query.get(name).is_some_and(|value| !["false", "0", "no"].contains(&value.to_lowercase().as_str()))
}

/// Reads a time: seconds since 1970, `uts` with seconds, or a date.
fn time(ask: &OperationRequest, name: &str) -> Result<Option<Time>, Problem> {
    let Some(text) = ask.query.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    if let Ok(seconds) = text.trim_start_matches("uts").parse() {
        return Ok(Some(Time::from_secs(seconds)));
    }
    let wrong =
        || Problem::malformed(name, format!("`{text}` is no time: use seconds since 1970 or 2026-12-31T23:59:59"));
    when_here(text).map(Some).ok_or_else(wrong)
}

/// Answers with accounts, users, associations, QOS and the like.
pub(super) async fn records(ask: &mut OperationRequest) -> OperationResult {
    use Operation as O;
    let since = ask.since();
    let policy = ask.server.cluster.policy(since).await.map_err(|e| ask.problem(&e))?;
    let config = ask.server.cluster.config(since).await.map_err(|e| ask.problem(&e))?;
    let own = ask.value().to_owned();
    let (entity, one) = match ask.path.operation {
        O::GetTres => ("tres", false),
        O::GetQos => ("qos", false),
        O::GetOneQos => ("qos", true),
        O::GetAssociations | O::GetAssociation => ("association", false),
        O::GetUsers => ("user", false),
        O::GetUser => ("user", true),
        O::GetClusters => ("cluster", false),
        O::GetCluster => ("cluster", true),
        O::GetAccounts => ("account", false),
        O::GetAccount => ("account", true),
        O::GetWckeys => ("wckey", false),
        O::GetWckey => return Err(Problem::not_found("id", "such a workload key")),
        _ => return Ok(ask.answer(vec![("instances", json!([]))])),
    };
    let mut rows = rows(ask, entity, &config, &policy).await?;
    if one {
        rows.retain(|row| row.name == own);
        if rows.is_empty() {
            return Err(Problem::not_found(ask.path.parameters().next().unwrap_or("name"), &format!("{entity} {own}")));
        }
    }
    filter(ask, entity, &mut rows);
    let known = shapes::policy::records(entity, &rows, true, &policy);
    let (_, key, list) = known.ok_or_else(|| ask.problem(&unexpected()))?;
    Ok(ask.answer(vec![(key, list)]))
}

/// Leaves the records that the parameters of the query select.
fn filter(ask: &OperationRequest, entity: &str, rows: &mut Vec<Record>) {
    let of = |name: &str, value: &str| {
        let words = ask.words(name);
        words.is_empty() || words.iter().any(|word| word == value)
    };
    match entity {
        "association" => rows.retain(|row| {
            of("account", &row.account)
                && of("user", &row.user)
                && of("partition", &row.partition)
                && of("parent_account", &row.parent)
                && of("id", &row.number().to_string())
        }),
        "qos" => rows.retain(|row| of("name", &row.name) && of("id", &row.number().to_string())),
        "user" => rows.retain(|row| of("default_account", &row.default_account)),
        "account" => rows.retain(|row| of("description", &row.description)),
        _ => {}
    }
}

/// Returns the records of a kind. As long as no user is set up, every user runs in the default account.
async fn rows(ask: &OperationRequest, entity: &str, config: &Config, policy: &Policy) -> Result<Vec<Record>, Problem> {
    Ok(match entity {
        "user" => entities::users(true, config, &entities::with_root_if_shown(policy.clone())),
        "association" => entities::associations(config, policy),
        "account" => entities::accounts(true, config, policy),
        "qos" => entities::levels(policy, config),
        "tres" => entities::resources(config),
        "cluster" => match ask.server.cluster.ask(&ask.caller.identity, Request::Ping).await {
            Ok(Answer::Pong { host, .. }) => vec![entities::cluster(config, policy, host)],
            Ok(_) => return Err(ask.problem(&unexpected())),
            Err(e) => return Err(ask.problem(&e)),
        },
        _ => Vec::new(),
    })
}

/// Answers with all records of accounting in one.
pub(super) async fn config(ask: &mut OperationRequest) -> OperationResult {
    let since = ask.since();
    let policy = ask.server.cluster.policy(since).await.map_err(|e| ask.problem(&e))?;
    let config = ask.server.cluster.config(since).await.map_err(|e| ask.problem(&e))?;
    let mut body: Vec<(&str, Value)> = Vec::new();
    for entity in ["cluster", "tres", "account", "user", "qos", "wckey", "association"] {
        let rows = rows(ask, entity, &config, &policy).await?;
        if let Some((_, key, list)) = shapes::policy::records(entity, &rows, true, &policy) {
            body.push((if key == "TRES" { "tres" } else { key }, list));
        }
    }
    Ok(ask.answer(body))
}

/// Answers with the settings of accounting, which the controller keeps.
pub(super) async fn conf(ask: &mut OperationRequest) -> OperationResult {
    let pong = ask.server.cluster.ask(&ask.caller.identity, Request::Ping).await.map_err(|e| ask.problem(&e))?;
    let Answer::Pong { host, .. } = pong else { return Err(ask.problem(&unexpected())) };
    Ok(ask.answer(vec![("slurmdbd_conf", json!({"DbdAddr": host, "DbdHost": host}))]))
}

/// Changes the records of jobs, also after their end.
pub(super) async fn record(ask: &mut OperationRequest) -> OperationResult {
    let (jobs, values) = if ask.path.operation == Operation::RecordJob {
        let read = record::values(&ask.body)?;
        ask.notes.warnings.extend(read.warnings);
        (vec![job_id(ask.value())?], read.value)
    } else {
        let read = record::jobs(&ask.body)?;
        ask.notes.warnings.extend(read.warnings);
        read.value
    };
    let query = AccountingQuery { ids: jobs, allocations_only: true, ..AccountingQuery::default() };
    let rows = ask.server.cluster.accounting(&ask.caller.identity, query).await.map_err(|e| ask.problem(&e))?;
    let mut done = Vec::new();
    // Pending tasks of an array have no record of their own yet.
    for row in rows.into_iter().filter(|row| row.pending_tasks.is_none()) {
        let request = Request::Record(row.id, values.clone());
        match ask.server.cluster.ask(&ask.caller.identity, request).await.map_err(|e| ask.problem(&e))? {
            Answer::Done => {
                done.push(format!("{} submitted at {}", row.id, Clock::here(super::now()).show(row.submit)));
            }
            _ => return Err(ask.problem(&unexpected())),
        }
    }
    if done.is_empty() {
        return Err(Problem::of(&Refusal::InvalidJobId, ask.path.name));
    }
    Ok(ask.answer(vec![("results", done.into())]))
}

/// Answers with the counters of requests: accounting has no daemon of its own, so they are the controller's.
pub(super) async fn diag(ask: &mut OperationRequest) -> OperationResult {
    let diag = ask.server.cluster.diag(ask.since()).await.map_err(|e| ask.problem(&e))?;
    let time = |total: u64, count: u64| json!({"average": total.checked_div(count).unwrap_or(0), "total": total});
    let requests: Vec<Value> = diag
        .messages
        .iter()
        .map(|(kind, count, total)| json!({"rpc": kind, "count": count, "time": time(*total, *count)}))
        .collect();
    let users: Vec<Value> = diag
        .users
        .iter()
        .map(|(uid, count, total)| json!({"user": name_of(*uid), "count": count, "time": time(*total, *count)}))
        .collect();
    Ok(ask.answer(vec![("statistics", json!({"time_start": diag.since.secs(), "RPCs": requests, "users": users}))]))
}
