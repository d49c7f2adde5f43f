//! People at browsers: log-in by a token or a one-time link, and proof that a form is of a page of ours.

use std::collections::HashMap;

use axum::body::Body;
use axum::extract::{Extension, FromRequest, FromRequestParts, Query, State};
use axum::http::header::{HOST, LOCATION, ORIGIN, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request as Call, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use squall_client::{ClientError, unexpected};
use squall_model::wire::client::{Answer, HostRequest};

use crate::answer::{self, Failure};
use crate::caller::{COOKIE, Caller, Identity, Visit};
use crate::routes::{Server, ServerHandle};
use crate::web::Web;
use crate::web::frame::{Problem, alone, page};
use crate::web::html::Html;

/// Lifetime of a token that a one-time link is exchanged for, seconds.
const SESSION_S: u64 = 12 * 3600;
/// Where a browser is sent that shows no valid token.
const LOGIN: &str = "/login";

/// A person at a browser, and the proof that forms of pages made for it carry.
#[derive(Clone, Debug)]
pub(crate) struct Viewer {
    pub(crate) caller: Caller,
    pub(crate) proof: String,
}

impl FromRequestParts<ServerHandle> for Viewer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, server: &ServerHandle) -> Result<Self, Response> {
        match Caller::from_request_parts(parts, server).await {
            Ok(caller) => {
                let proof = server.web.proof(&caller.identity, caller.uid);
                Ok(Self { caller, proof })
            }
            Err(Failure { status: StatusCode::UNAUTHORIZED, .. }) => Err(to(LOGIN)),
            Err(failure) => Err(Problem::from(failure).into_response()),
        }
    }
}

/// A form that a person sent from a page of ours.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) viewer: Viewer,
    pub(crate) fields: HashMap<String, String>,
}

impl FromRequest<ServerHandle> for Form {
    type Rejection = Response;

    async fn from_request(request: Call<Body>, server: &ServerHandle) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let viewer = Viewer::from_request_parts(&mut parts, server).await?;
        let fields = fields(&parts.headers, body).await.map_err(IntoResponse::into_response)?;
        let given = fields.get("proof").map(String::as_str).unwrap_or_default();
        // Comparing hashes takes the same time wherever they differ.
        if blake3::hash(given.as_bytes()) != blake3::hash(viewer.proof.as_bytes()) {
            return Err(foreign().into_response());
        }
        Ok(Self { viewer, fields })
    }
}

fn foreign() -> Problem {
    let text =
        "The form did not come from a page of this server, or the page was too old. Load the page and try again.";
    Problem { status: StatusCode::FORBIDDEN, text: text.to_owned() }
}

/// Reads a form, unless another site's page has sent it.
async fn fields(headers: &HeaderMap, body: Body) -> Result<HashMap<String, String>, Problem> {
    if !is_own(headers) {
        return Err(foreign());
    }
    let malformed = || Problem { status: StatusCode::BAD_REQUEST, text: "The form can't be read.".to_owned() };
    let body = answer::body(body, answer::FORM_BYTES_MAX).await?;
    let text = std::str::from_utf8(&body).map_err(|_| malformed())?;
    let uri = Uri::try_from(format!("/?{text}")).map_err(|_| malformed())?;
    Query::try_from_uri(&uri).map(|Query(fields)| fields).map_err(|_| malformed())
}

/// Returns whether a request was made by a page of this server, as far as the browser tells.
pub(crate) fn is_own(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = text("sec-fetch-site").is_none_or(|site| site == "same-origin");
    let host = text(HOST.as_str()).unwrap_or_default();
    let same = |origin: &str| origin.split_once("://").is_some_and(|(_, from)| from == host);
    site && text(ORIGIN.as_str()).is_none_or(same)
}

impl Web {
    /// Returns what the forms of a person's pages must carry. Pages of other sites can't know it.
    fn proof(&self, identity: &Identity, uid: u32) -> String {
        let who = match identity {
            Identity::Bearer(bearer) => bearer.token.clone(),
            Identity::Socket(_) => format!("uid {uid}"),
        };
        blake3::keyed_hash(&self.key, who.as_bytes()).to_hex().to_string()
    }
}

/// What may stand in the address of the log-in page.
#[derive(Debug, Deserialize)]
pub(crate) struct LoginQuery {
    link: Option<String>,
}

/// `GET /login`: the form; with `link`: exchanges a one-time token.
pub(crate) async fn ask(
    State(server): State<ServerHandle>,
    Extension(visit): Extension<Visit>,
    Query(asked): Query<LoginQuery>,
) -> Response {
    let Some(link) = asked.link else { return form(StatusCode::OK, None) };
    match exchanged(&server, link, &visit).await {
        Ok(token) => server.web.logged_in(&token),
        Err(_) => form(
            StatusCode::UNAUTHORIZED,
            Some("This link was used already, or is too old. `squall web` makes a new one."),
        ),
    }
}

async fn exchanged(server: &Server, link: String, visit: &Visit) -> Result<String, ClientError> {
    let who = Identity::of_token(link, None, visit);
    let _turn = server.callers.turn_to_log_in(visit.from()).await?;
    match server.cluster.ask(&who, HostRequest::Token { user: None, lifespan_s: Some(SESSION_S), link: false }).await? {
        Answer::Token(token) => Ok(token),
        _ => Err(unexpected()),
    }
}

/// `POST /login`: a token.
pub(crate) async fn log_in(
    State(server): State<ServerHandle>,
    Extension(visit): Extension<Visit>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let fields = match fields(&headers, body).await {
        Ok(fields) => fields,
        Err(problem) => return problem.into_response(),
    };
    let token = fields.get("token").map(|token| token.trim().to_owned()).unwrap_or_default();
    let who = Identity::of_token(token.clone(), None, &visit);
    let accepted = is_token(&token) && server.callers.confirm(&server.cluster, &who, visit.from()).await.is_ok();
    if accepted {
        return server.web.logged_in(&token);
    }
    form(StatusCode::UNAUTHORIZED, Some("This token is not valid. `scontrol token` makes one."))
}

/// `POST /logout`.
pub(crate) async fn log_out(_form: Form) -> Response {
    let gone = format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    (StatusCode::SEE_OTHER, [(LOCATION, LOGIN.to_owned()), (SET_COOKIE, gone)]).into_response()
}

impl Web {
    fn logged_in(&self, token: &str) -> Response {
        if !is_token(token) {
            return form(StatusCode::UNAUTHORIZED, None);
        }
        let secure = if self.secure { "; Secure" } else { "" };
        let cookie = format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict{secure}");
        (StatusCode::SEE_OTHER, [(LOCATION, "/".to_owned()), (SET_COOKIE, cookie)]).into_response()
    }
}

/// Returns whether a text has the characters of a token only, so that it may stand in a header.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Sends the browser to a page of ours.
pub(crate) fn to(path: &str) -> Response {
    (StatusCode::SEE_OTHER, [(LOCATION, path.to_owned())]).into_response()
}

fn form(status: StatusCode, problem: Option<&'static str>) -> Response {
    page(status, &log_in_page(problem))
}

/// Returns the log-in page.
pub(crate) fn log_in_page(problem: Option<&'static str>) -> Html {
    let mut body = Html::new();
    body.raw("<section class=\"card login\"><h1>Log in</h1>");
    if let Some(problem) = problem {
        body.put("<p role=\"alert\" class=\"bad\">{}</p>", &[&problem]);
    }
    body.raw(
        "<p>On the cluster's head, <code>squall web</code> prints a link that logs you in once. \
         Or give a token, as <code>scontrol token</code> prints it:</p>\
         <form method=\"post\" action=\"/login\"><label for=\"token\">Token</label>\
         <input id=\"token\" name=\"token\" type=\"password\" required autocomplete=\"off\" spellcheck=\"false\">\
         <button>Log in</button></form></section>",
    );
    alone("Log in", &body)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use super::{is_own, is_token};

    #[test]
    fn forms_of_other_sites_are_refused() {
        let own = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            headers.insert("host", "head:6820".parse().unwrap());
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            is_own(&headers)
        };
        assert!(own(&[]) && own(&[("origin", "https://head:6820"), ("sec-fetch-site", "same-origin")]));
        for other in ["http://evil", "http://head:6820.evil", "null", "http://head"] {
            assert!(!own(&[("origin", other)]), "{other}");
        }
        assert!(!own(&[("sec-fetch-site", "cross-site")]) && !own(&[("sec-fetch-site", "same-site")]));
    }

    #[test]
    fn only_tokens_get_into_headers() {
        assert!(is_token("eyJhbGciOi.J9-_.x"));
        for wrong in ["", "a b", "a;b", "a\r\nSet-Cookie: x", "ü"] {
            assert!(!is_token(wrong), "{wrong:?}");
        }
    }
}
