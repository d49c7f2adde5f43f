//! Operations that change something, all made as the user who asks.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use squall_client::{ClientError, random, unexpected};
use squall_files::users;
use squall_model::encoding::ByteBuf;
use squall_model::id::ClientKey;
use squall_model::wire::client::{Answer, JobName, JobSelection, Refusal, Request};
use squall_model::wire::info::PartitionInfo;
use squall_model::wire::reservation::ListChange;
use squall_text::rest::change::{self as order, JobOrder, RequeueOrder};
use squall_text::rest::job::{self, Submission};
use squall_text::rest::policy::Ledger;
use squall_text::rest::{Operation, Parsed, partition};
use squall_text::shapes::{AnswerKind, Problem, number};
use squall_text::verbs::accounts::Draft;

use super::{OperationRequest, OperationResult, past};

pub(super) async fn change(ask: &mut OperationRequest) -> OperationResult {
    use Operation as O;
    let done = match ask.path.operation {
        O::Reconfigure => plain(ask, Request::Reconfigure { config: None }).await,
        O::SubmitJob => submit(ask).await,
        O::AllocateJob => allocate(ask).await,
        O::UpdateJob => update_job(ask).await,
        O::KillJob => kill_job(ask).await,
        O::KillJobs => kill_jobs(ask).await,
        O::UpdateNode | O::UpdateNodes => update_nodes(ask).await,
        O::DeleteNode => plain(ask, Request::DeleteNodes(ask.value().to_owned())).await,
        O::PostReservation | O::PostReservations => reserve(ask).await,
        O::RequeueJob | O::RequeueJobs => requeue(ask).await,
        O::CreateNode => create_node(ask).await,
        O::PostPartitions => change_partitions(ask).await,
        O::DeletePartition => delete_partition(ask).await,
        O::RecordJob | O::RecordJobs => past::record(ask).await,
        O::DeleteReservation => plain(ask, Request::Unreserve { name: ask.value().to_owned() }).await,
        _ => policy(ask).await,
    };
    ask.server.changes.note(ask.caller.uid);
    done
}

async fn asked(ask: &OperationRequest, request: Request) -> Result<Answer, Problem> {
    ask.server.cluster.ask(&ask.caller.identity, request).await.map_err(|e| ask.problem(&e))
}

/// Sends a request without an answer of its own.
async fn plain(ask: &OperationRequest, request: Request) -> OperationResult {
    asked(ask, request).await?;
    Ok(ask.answer(Vec::new()))
}

/// Takes the warnings about a body.
fn taken<T>(ask: &mut OperationRequest, taken: Parsed<T>) -> T {
    ask.notes.warnings.extend(taken.warnings);
    taken.value
}

/// Reads a job of the body.
async fn submission(
    ask: &mut OperationRequest,
    read: fn(&Value, &job::Caller<'_>) -> Result<Parsed<Submission>, Problem>,
) -> Result<Submission, Problem> {
    let (name, uid) = (ask.caller.user.clone(), ask.caller.uid);
    let user = tokio::task::spawn_blocking(move || users::by_name(&name).or_else(|| users::by_uid(uid)));
    let user = user.await.ok().flatten().ok_or_else(|| Problem::unauthenticated("the user is not known here"))?;
    let caller = job::Caller {
        user: &user.name,
        uid: user.uid,
        gid: user.gid,
        home: &user.home,
        cluster: &ask.cluster,
        host: &ask.source,
    };
    let submission = read(&ask.body, &caller)?;
    Ok(taken(ask, submission))
}

async fn submit(ask: &mut OperationRequest) -> OperationResult {
    let Submission { mut specs, script, env } = submission(ask, job::submit).await?;
    let (script, env, key) = (ByteBuf::from(script), ByteBuf::from(env), ClientKey(u128::from_le_bytes(random())));
    let request = match specs.len() {
        1 => Request::Submit { spec: Arc::new(specs.remove(0)), script, env, key },
        _ => Request::SubmitHet { specs, script, env, key, immediate_s: None },
    };
    let Answer::Submitted { job, message, .. } = asked(ask, request).await? else {
        return Err(ask.problem(&unexpected()));
    };
    let told = message.unwrap_or_default();
    Ok(ask.answer(vec![
        ("job_id", job.0.into()),
        ("step_id", "batch".into()),
        ("job_submit_user_msg", told.as_str().into()),
        ("result", json!({"job_id": job.0, "step_id": "batch", "error_code": 0, "error": "No error", "job_submit_user_msg": told})),
    ]))
}

async fn allocate(ask: &mut OperationRequest) -> OperationResult {
    let Submission { mut specs, env, .. } = submission(ask, job::allocate).await?;
    let (env, key) = (ByteBuf::from(env), ClientKey(u128::from_le_bytes(random())));
    let request = match specs.len() {
        1 => Request::Allocate { spec: Arc::new(specs.remove(0)), env, key, immediate_s: None, step: None },
        _ => Request::SubmitHet { specs, script: ByteBuf::from(Vec::new()), env, key, immediate_s: None },
    };
    let Answer::Submitted { job, message, .. } = asked(ask, request).await? else {
        return Err(ask.problem(&unexpected()));
    };
    Ok(ask.answer(vec![("job_id", job.0.into()), ("job_submit_user_msg", message.unwrap_or_default().into())]))
}

/// Returns the only job that the path names.
fn named(ask: &OperationRequest) -> Result<JobSelection, Problem> {
    Ok(JobSelection { ids: vec![order::job_id(ask.value())?], ..JobSelection::default() })
}

/// The jobs to which a request was applied, and those to which it was not, with the reasons.
type AffectedJobs = (Vec<JobName>, Vec<(JobName, Refusal)>);

/// Returns the jobs to which a request was applied; the error is why it was applied to none.
fn affected(ask: &OperationRequest, answer: Answer) -> Result<AffectedJobs, Problem> {
    match answer {
        Answer::Affected { jobs, refused } => match refused.first() {
            Some((_, why)) if jobs.is_empty() => Err(Problem::of(why, ask.path.name)),
            _ => Ok((jobs, refused)),
        },
        _ => Err(ask.problem(&unexpected())),
    }
}

async fn update_job(ask: &mut OperationRequest) -> OperationResult {
    let read = order::job(&ask.body)?;
    let JobOrder { update, hold } = taken(ask, read);
    let jobs = named(ask)?;
    let mut results = Vec::new();
    if update != squall_model::wire::client::JobUpdate::default() {
        let request = Request::UpdateJob { jobs: jobs.clone(), change: Box::new(update) };
        results.push(affected(ask, asked(ask, request).await?)?);
    }
    if let Some(hold) = hold {
        let request = if hold { Request::Hold { jobs, user: false } } else { Request::Release { jobs } };
        results.push(affected(ask, asked(ask, request).await?)?);
    }
    let each: Vec<Value> = results
        .iter()
        .flat_map(|(jobs, refused)| {
            let done = jobs.iter().map(|job| entry(job, None));
            done.chain(refused.iter().map(|(job, why)| entry(job, Some(why))))
        })
        .collect();
    Ok(ask.answer(vec![("results", each.into()), ("job_id", ask.value().into())]))
}

/// Returns the entry of a job in the results of a change.
fn entry(job: &JobName, refused: Option<&Refusal>) -> Value {
    let problem = refused.map(|refusal| Problem::of(refusal, ""));
    json!({
        "job_id": job.id.0,
        "step_id": job.to_string(),
        "error": problem.as_ref().map_or("No error", |problem| problem.error.as_str()),
        "error_code": problem.as_ref().map_or(0, |problem| problem.number),
        "why": problem.as_ref().map_or("", |problem| problem.description.as_str()),
    })
}

async fn kill_job(ask: &mut OperationRequest) -> OperationResult {
    let signal = ask.query.get("signal").cloned().unwrap_or_default();
    let signal = order::signal(&signal, &ask.words("flags"))?;
    let request = Request::Cancel { jobs: named(ask)?, signal, step: None, verbose: true };
    killed(ask, request).await
}

async fn kill_jobs(ask: &mut OperationRequest) -> OperationResult {
    let read = order::kill(&ask.body)?;
    let mut kill = taken(ask, read);
    for name in std::mem::take(&mut kill.users) {
        let unknown = || Problem::not_found("user_name", &format!("user {name}"));
        let uid = name.parse().ok().or_else(|| users::by_name(&name).map(|user| user.uid));
        kill.jobs.users.push(uid.ok_or_else(unknown)?);
    }
    let request = Request::Cancel { jobs: kill.jobs, signal: kill.signal, step: None, verbose: true };
    killed(ask, request).await
}

async fn killed(ask: &mut OperationRequest, request: Request) -> OperationResult {
    let answer = asked(ask, request).await?;
    let (jobs, refused) = match answer {
        Answer::Affected { jobs, refused } if ask.path.answer == AnswerKind::KilledMany => (jobs, refused),
        other => affected(ask, other)?,
    };
    let line = |job: &JobName, refused: Option<&Refusal>| {
        let problem = refused.map(|refusal| Problem::of(refusal, ""));
        json!({
            "error": {
                "string": problem.as_ref().map_or("No error", |problem| problem.error.as_str()),
                "code": problem.as_ref().map_or(0, |problem| problem.number),
                "message": problem.as_ref().map_or("", |problem| problem.description.as_str()),
            },
            "step_id": job.to_string(),
            "job_id": number(Some(u64::from(job.id.0))),
            "federation": {"sibling": ""},
        })
    };
    let done = jobs.iter().map(|job| line(job, None));
    let status: Vec<Value> = done.chain(refused.iter().map(|(job, why)| line(job, Some(why)))).collect();
    Ok(ask.answer(vec![("status", status.into())]))
}

/// Requeues the job of the path, or those of the body one by one.
async fn requeue(ask: &mut OperationRequest) -> OperationResult {
    let is_one = ask.path.operation == Operation::RequeueJob;
    let (names, how) = if is_one {
        let is_set = |name: &&&str| ask.query.get(**name).is_some_and(|value| value != "false" && value != "0");
        let flags: Vec<String> = ask.path.query.iter().filter(is_set).map(|name| (*name).to_owned()).collect();
        (vec![ask.value().to_owned()], RequeueOrder::of(&flags)?)
    } else {
        let read = order::requeue(&ask.body)?;
        taken(ask, read)
    };
    let jobs = names.iter().map(|name| order::job_id(name)).collect::<Result<Vec<_>, _>>()?;
    let mut all: Vec<Value> = Vec::new();
    for (name, job) in names.iter().zip(jobs) {
        let answer = ask.server.cluster.ask(&ask.caller.identity, how.request(job)).await;
        let each: Vec<Value> = match answer {
            Ok(Answer::Affected { jobs, refused }) => {
                if let Some((_, why)) = refused.first().filter(|_| is_one && jobs.is_empty()) {
                    return Err(Problem::of(why, ask.path.name));
                }
                let done = jobs.iter().map(|job| entry(job, None));
                done.chain(refused.iter().map(|(job, why)| entry(job, Some(why)))).collect()
            }
            // The other jobs of the body are requeued nevertheless.
            Err(ClientError::Refused(why)) if !is_one => {
                let problem = Problem::of(&why, "");
                let (error, number) = (problem.error.as_str(), problem.number);
                let id = name.split(['_', '+']).next().and_then(|id| id.parse::<u32>().ok()).unwrap_or(0);
                let text = &problem.description;
                vec![json!({"job_id": id, "step_id": name, "error": error, "error_code": number, "why": text})]
            }
            Ok(_) => return Err(ask.problem(&unexpected())),
            Err(e) => return Err(ask.problem(&e)),
        };
        all.push(each.into());
    }
    let status = if is_one { all.pop().unwrap_or_default() } else { all.into() };
    Ok(ask.answer(vec![("status", status)]))
}

async fn create_node(ask: &mut OperationRequest) -> OperationResult {
    let read = order::new_nodes(&ask.body)?;
    let node = taken(ask, read);
    plain(ask, Request::CreateNodes(Box::new(node))).await
}

/// Returns the partitions as they are.
async fn known_partitions(ask: &OperationRequest) -> Result<Arc<Vec<PartitionInfo>>, Problem> {
    ask.server.cluster.partitions(Some(Instant::now())).await.map_err(|e| ask.problem(&e))
}

/// Creates or changes partitions. Nothing is done unless all of them can be read.
async fn change_partitions(ask: &mut OperationRequest) -> OperationResult {
    let nodes = ask.server.cluster.nodes(ask.since()).await.map_err(|e| ask.problem(&e))?.len();
    let read = partition::partitions(&ask.body, nodes)?;
    let orders = taken(ask, read);
    let known = known_partitions(ask).await?;
    let was = |name: &str| known.iter().map(|one| &one.config).find(|config| config.name == name);
    let requests = orders.iter().map(|order| order.request(was(&order.name))).collect::<Result<Vec<_>, _>>()?;
    for (at, request) in requests.into_iter().enumerate() {
        asked(ask, request).await.map_err(|problem| Problem { source: format!("partitions[{at}]"), ..problem })?;
    }
    Ok(ask.answer(Vec::new()))
}

async fn delete_partition(ask: &mut OperationRequest) -> OperationResult {
    let name = ask.value().to_owned();
    let known = known_partitions(ask).await?;
    let was = known.iter().map(|one| &one.config).find(|config| config.name == name).cloned();
    let was = was.ok_or_else(|| Problem::not_found("partition_name", &format!("partition {name}")))?;
    plain(ask, Request::ChangePartition { name, was: Some(Box::new(was)), now: None }).await
}

async fn update_nodes(ask: &mut OperationRequest) -> OperationResult {
    let read = order::node(&ask.body)?;
    let mut order = taken(ask, read);
    if !ask.value().is_empty() {
        ask.value().clone_into(&mut order.nodes);
    }
    if order.nodes.is_empty() {
        return Err(Problem::malformed("name", "No node is named"));
    }
    for request in order.requests() {
        asked(ask, request).await?;
    }
    Ok(ask.answer(Vec::new()))
}

async fn reserve(ask: &mut OperationRequest) -> OperationResult {
    let bodies = match ask.path.operation {
        Operation::PostReservations => match ask.body.get("reservations").and_then(Value::as_array) {
            Some(list) => list.clone(),
            None => return Err(Problem::malformed("reservations", "It is missing, or is no list")),
        },
        _ => vec![ask.body.clone()],
    };
    let known = ask.server.cluster.reservations(Some(Instant::now())).await.map_err(|e| ask.problem(&e))?;
    let mut made = Vec::new();
    for body in bodies {
        let read = order::reservation(&body)?;
        let mut change = taken(ask, read);
        for group in change.groups.iter_mut().flat_map(ListChange::entries_mut) {
            let name = group.clone();
            let gid = tokio::task::spawn_blocking(move || users::group_id(&name)).await.ok().flatten();
            let unknown = || Problem::malformed("groups", format!("there is no group called {group}"));
            *group = format!("{group}:{}", gid.ok_or_else(unknown)?);
        }
        let exists = |name: &String| known.iter().any(|one| one.reservation.name == *name);
        let create = !change.name.as_ref().is_some_and(exists);
        match asked(ask, Request::Reserve { change: Box::new(change), create }).await? {
            Answer::Reserved(name) => {
                let mut body = body;
                body["name"] = name.into();
                made.push(body);
            }
            _ => return Err(ask.problem(&unexpected())),
        }
    }
    Ok(ask.answer(vec![("reservations", made.into())]))
}

/// Changes accounts, users, associations and QOS.
async fn policy(ask: &mut OperationRequest) -> OperationResult {
    use Operation as O;
    let policy = match asked(ask, Request::Policy).await? {
        Answer::Policy(policy) => *policy,
        _ => return Err(ask.problem(&unexpected())),
    };
    let version = policy.version;
    let mut draft = Draft::of(policy);
    let cluster = ask.cluster.clone();
    let mut ledger = Ledger::new(&mut draft, &cluster);
    let (name, body) = (ask.value().to_owned(), ask.body.clone());
    let mut answer: Vec<(&str, Value)> = Vec::new();
    match ask.path.operation {
        O::PostAccounts => ledger.enter(AnswerKind::Accounts, &body)?,
        O::PostUsers => ledger.enter(AnswerKind::Users, &body)?,
        O::PostAssociations => ledger.enter(AnswerKind::Associations, &body)?,
        O::PostQos => ledger.enter(AnswerKind::Qos, &body)?,
        O::PostWckeys => ledger.enter(AnswerKind::Wckeys, &body)?,
        O::PostClusters => ledger.enter(AnswerKind::Clusters, &body)?,
        O::PostTres => ledger.enter(AnswerKind::Tres, &body)?,
        O::PostConfig => ledger.enter(AnswerKind::Config, &body)?,
        O::PostAccountsAssociation => answer.push(("added_accounts", ledger.add_accounts(&body)?.join(",").into())),
        O::PostUsersAssociation => answer.push(("added_users", ledger.add_users(&body)?.join(",").into())),
        O::DeleteUser => ledger.delete_user(&name)?,
        O::DeleteAccount => answer.push(("removed_accounts", ledger.delete_account(&name)?.into())),
        O::DeleteQos => answer.push(("removed_qos", ledger.delete_qos(&name)?.into())),
        O::DeleteAssociations | O::DeleteAssociation => {
            let (accounts, users, partitions) = (ask.words("account"), ask.words("user"), ask.words("partition"));
            if accounts.is_empty() && users.is_empty() && partitions.is_empty() {
                return Err(Problem::malformed("account", "No condition is given: all associations would be removed"));
            }
            let of = |names: &[String], name: &str| names.is_empty() || names.iter().any(|one| one == name);
            let gone = ledger.delete_associations(|key| {
                of(&accounts, &key.account) && of(&users, &key.user) && of(&partitions, &key.partition)
            })?;
            answer.push(("removed_associations", gone.into()));
        }
        O::DeleteCluster => return Err(Problem::not_done("cluster_name", "The cluster is this one, and stays")),
        O::DeleteWckey => return Err(Problem::not_found("id", "such a workload key")),
        _ => return Err(Problem::not_done("path", "There is no such operation")),
    }
    ask.notes.warnings.append(&mut ledger.warnings);
    let changes = draft.finish();
    if !changes.is_empty() {
        asked(ask, Request::ChangePolicy { version, changes }).await?;
    }
    Ok(ask.answer(answer))
}
