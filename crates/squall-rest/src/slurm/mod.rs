//! Slurm's REST interface: `/slurm/v0.0.NN/`, `/slurmdb/v0.0.NN/` and `/util/v0.0.NN/`.

mod change;
mod past;
mod read;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method as HttpMethod, StatusCode, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use squall_client::ClientError;
use squall_model::time::Time;
use squall_text::rest::paths::{Method, Operation, Path, find};
use squall_text::shapes::{self, AnswerKind, Meta, Notes, Problem, Version, Warning};
use tokio::runtime::Handle;

use crate::answer;
use crate::caller::{Caller, Visit};
use crate::room::{BodyPermit, Room};
use crate::routes::ServerHandle;
use crate::rows::Pieces;

/// A request of a confirmed user for an operation.
pub(crate) struct OperationRequest {
    pub(crate) server: ServerHandle,
    pub(crate) caller: Caller,
    pub(crate) path: &'static Path,
    pub(crate) version: Version,
    /// Values of the parameters in the path.
    pub(crate) values: Vec<String>,
    /// Parameters of the query.
    pub(crate) query: HashMap<String, String>,
    /// JSON of the body. Null: the request has none.
    pub(crate) body: Value,
    pub(crate) cluster: String,
    /// Address of the client.
    pub(crate) source: String,
    pub(crate) notes: Notes,
}

/// The result of an operation: an answer, or why there is none.
pub(crate) type OperationResult = Result<Response, Problem>;

/// Serves a request below `/slurm`, `/slurmdb` and `/util`.
pub(crate) async fn serve(State(server): State<ServerHandle>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let found = match parts.method {
        HttpMethod::GET | HttpMethod::HEAD => Some(Method::Get),
        HttpMethod::POST => Some(Method::Post),
        HttpMethod::DELETE => Some(Method::Delete),
        _ => None,
    };
    let path = parts.uri.path();
    let found = found.and_then(|method| find(method, path));
    // A request for the head alone is not meant to change something.
    let found = found.filter(|(found, ..)| parts.method != HttpMethod::HEAD || !found.changes());
    let Some((found, version, values)) = found else { return unknown(&parts.method, path) };
    let values = values.into_iter().map(|value| percent_decode_str(value).decode_utf8_lossy().into_owned()).collect();
    let Some(visit) = parts.extensions.get::<Visit>().cloned() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let source = visit.peer.to_string();
    let say = |status: StatusCode, body, notes: &Notes, cluster: &str| {
        let user = String::new();
        let meta =
            Meta { version, cluster, command: &[], source: &source, user: user.clone(), group: user, now: now() };
        json(status, shapes::bytes(&meta, found.answer, body, notes).into())
    };
    let refuse =
        |problem: Problem, cluster: &str| say(problem_status(&problem), Vec::new(), &Notes::of(problem), cluster);
    // Without the controller nobody can be known: all learn as much of it from a ping.
    let fail = |error: &ClientError, source: &str| match read::silence(&server.cluster, found, error) {
        Some(pings) => say(StatusCode::OK, vec![("pings", pings)], &Notes::default(), ""),
        None => refuse(problem(error, source), ""),
    };
    let caller = match server.callers.find(&server.cluster, &visit, &parts.headers).await {
        Ok(caller) => caller,
        Err(e) => return fail(&e, "authentication"),
    };
    if caller.by_cookie && found.changes() {
        // A browser sends the cookie with requests that another site's page makes.
        let text = "A browser's cookie is not taken here: send the token in X-SLURM-USER-TOKEN";
        return refuse(Problem { status: 403, ..Problem::unauthenticated(text) }, "");
    }
    let cluster = match server.cluster.config(None).await {
        Ok(config) => config.cluster.clone(),
        Err(e) => return fail(&e, found.name),
    };
    let query = match Query::<HashMap<String, String>>::try_from_uri(&parts.uri) {
        Ok(Query(query)) => query,
        Err(e) => return refuse(Problem::malformed("query", e.to_string()), &cluster),
    };
    let (body, taken) = match read_body(&server.room, caller.uid, (found, &parts.headers), body).await {
        Ok(body) => body,
        Err(problem) => return refuse(problem, &cluster),
    };
    let unknown = query.keys().filter(|name| !found.query.contains(&name.as_str()));
    let warnings =
        unknown.map(|name| Warning::new(name, "It is no parameter of this path, and has no effect")).collect();
    let notes = Notes { errors: Vec::new(), warnings };
    let ask = OperationRequest { server, caller, path: found, version, values, query, body, cluster, source, notes };
    if ask.body.is_null() {
        return answered(ask).await;
    }
    let (room, here) = (ask.server.room.clone(), Handle::current());
    let done = room.work(move || {
        let _taken = taken;
        here.block_on(answered(ask))
    });
    done.await.unwrap_or_else(IntoResponse::into_response)
}

async fn answered(mut ask: OperationRequest) -> Response {
    match dispatch(&mut ask).await {
        Ok(response) => response,
        Err(problem) => ask.refused(problem),
    }
}

/// Returns the answer to a request for a path that does not exist, or not with this method.
fn unknown(method: &HttpMethod, path: &str) -> Response {
    let others = [Method::Get, Method::Post, Method::Delete];
    let exists = others.iter().any(|other| find(*other, path).is_some());
    let (status, text) = if exists {
        (StatusCode::METHOD_NOT_ALLOWED, format!("{method} is no method of this path"))
    } else {
        (StatusCode::NOT_FOUND, "Unable to find requested URL: /openapi.json lists all".to_owned())
    };
    let problem = Problem { status: status.as_u16(), ..Problem::malformed("", text) };
    let body = serde_json::json!({"meta": {}, "errors": [problem.json()], "warnings": []});
    json(status, body.to_string().into())
}

async fn read_body(
    room: &Room,
    uid: u32,
    (path, headers): (&Path, &HeaderMap),
    body: Body,
) -> Result<(Value, BodyPermit), Problem> {
    if path.body.is_empty() {
        return Ok((Value::Null, BodyPermit::default()));
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let description = format!("Content-Type is `{kind}`, and has to be application/json");
        return Err(Problem { status: 415, ..Problem::malformed("Content-Type", description) });
    }
    let problem = |failure: answer::Failure| Problem {
        status: failure.status.as_u16(),
        ..Problem::malformed("body", failure.text)
    };
    let body = answer::body(body, answer::BODY_BYTES_MAX).await.map_err(problem)?;
    room.json(uid, body).await.map_err(problem)
}

async fn dispatch(ask: &mut OperationRequest) -> OperationResult {
    use Operation as O;
    match ask.path.operation {
        O::GetShares => read::shares(ask).await,
        O::GetDiag => read::diag(ask).await,
        O::Ping | O::PingPast => read::ping(ask).await,
        O::GetLicenses => read::licenses(ask).await,
        O::GetJobs => read::jobs(ask).await,
        O::GetJobStates => read::states(ask).await,
        O::GetJob => read::job(ask).await,
        O::GetNodes | O::GetNode => read::nodes(ask).await,
        O::GetPartitions | O::GetPartition => read::partitions(ask).await,
        O::GetReservations | O::GetReservation => read::reservations(ask).await,
        O::GetPastJobs | O::GetPastJob => past::jobs(ask).await,
        O::GetConfig => past::config(ask).await,
        O::GetPastDiag => past::diag(ask).await,
        O::GetResources => read::resources(ask).await,
        O::GetConf => read::conf(ask).await,
        O::GetPastConf => past::conf(ask).await,
        O::HostNames | O::HostList => read::hosts(ask),
        _ if !ask.path.changes() => past::records(ask).await,
        _ => change::change(ask).await,
    }
}

impl OperationRequest {
    /// Returns the value of the only parameter in the path.
    pub(crate) fn value(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }

    /// Returns the words of a parameter of the query, which are separated by commas. Empty: it is not given.
    pub(crate) fn words(&self, name: &str) -> Vec<String> {
        let words = self.query.get(name).map(String::as_str).unwrap_or_default().split(',');
        words.map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    /// Returns a problem of the controller as one of this operation.
    pub(crate) fn problem(&self, error: &ClientError) -> Problem {
        problem(error, self.path.name)
    }

    pub(crate) fn meta(&self) -> Meta<'_> {
        Meta {
            version: self.version,
            cluster: &self.cluster,
            command: &[],
            source: &self.source,
            user: self.caller.user.clone(),
            group: self.caller.group.clone(),
            now: now(),
        }
    }

    /// Returns an answer of the path's kind.
    pub(crate) fn answer(&self, body: Vec<(&str, Value)>) -> Response {
        json(StatusCode::OK, shapes::bytes(&self.meta(), self.path.answer, body, &self.notes).into())
    }

    /// Returns an answer of records that are rendered already, separated by commas.
    pub(crate) fn records(&self, kind: AnswerKind, records: Bytes, rest: Vec<(&str, Value)>) -> Response {
        let (head, tail) = shapes::around(&self.meta(), kind, rest, &self.notes);
        let mut response = json(StatusCode::OK, Bytes::new());
        *response.body_mut() = Body::new(Pieces::of([head.into(), records, tail.into()]));
        response
    }

    fn refused(&self, problem: Problem) -> Response {
        let status = problem_status(&problem);
        let notes = Notes { errors: vec![problem], warnings: self.notes.warnings.clone() };
        json(status, shapes::bytes(&self.meta(), self.path.answer, Vec::new(), &notes).into())
    }

    /// Returns how old shared data may be: where the request asks for more than a look, everything before counts.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.server.changes.since(self.caller.uid)
    }
}

fn problem(error: &ClientError, source: &str) -> Problem {
    match error {
        ClientError::Refused(refusal) => Problem::of(refusal, source),
        other => Problem::away(other.detail().map_or_else(|| other.to_string(), |detail| format!("{other}: {detail}"))),
    }
}

fn problem_status(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

pub(crate) fn json(status: StatusCode, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(crate) fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Time(since.as_micros() as u64)
}
