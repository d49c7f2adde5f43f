//! The dashboard: pages made on the server, that work without JavaScript and are refreshed by events with it.

mod accounts;
mod act;
mod array;
mod assets;
mod chart;
mod course;
mod events;
mod faults;
mod frame;
mod health;
mod history;
mod html;
mod job;
mod lately;
mod mine;
mod nodes;
mod overview;
mod partitions;
mod past;
mod people;
mod places;
mod queue;
mod record;
mod related;
mod reservations;
mod row;
#[cfg(test)]
mod tests;

use std::io;

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::{get, post};

use crate::routes::ServerHandle;
use history::History;
use lately::UsedLately;
use mine::FailedLately;

/// What pages may load and do: nothing but our own style, script, events and forms.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What the dashboard remembers while the server runs.
pub(crate) struct Web {
    /// Key of the proofs in forms.
    key: [u8; 32],
    /// Whether browsers may send the cookie only over TLS.
    secure: bool,
    history: History,
    failed: FailedLately,
    used: UsedLately,
}

impl std::fmt::Debug for Web {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Web")
    }
}

impl Web {
    /// `secure`: the server speaks TLS.
    pub(crate) fn new(secure: bool) -> io::Result<Self> {
        let mut key = [0; 32];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
        Ok(Self {
            key,
            secure,
            history: History::default(),
            failed: FailedLately::default(),
            used: UsedLately::default(),
        })
    }
}

/// Returns the routes of the dashboard.
pub(crate) fn routes() -> Router<ServerHandle> {
    Router::new()
        .route("/", get(overview::show))
        .route("/jobs", get(queue::show))
        .route("/job/{id}", get(job::show))
        .route("/job/{id}/{deed}", post(act::on_job))
        .route("/past", get(past::show))
        .route("/nodes", get(nodes::show))
        .route("/node/{name}", get(nodes::one))
        .route("/node/{name}/{deed}", post(act::on_node))
        .route("/partitions", get(partitions::show))
        .route("/reservations", get(reservations::show))
        .route("/accounts", get(accounts::show))
        .route("/events", get(events::show))
        .route("/health", get(health::show))
        .route("/login", get(people::ask).post(people::log_in))
        .route("/logout", post(people::log_out))
        .route("/static/{file}", get(assets::file))
        .layer(map_response(guarded))
}

/// Adds the headers that keep others' pages and scripts out.
async fn guarded(mut response: Response) -> Response {
    let set = |headers: &mut HeaderMap, name: HeaderName, value| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    let headers = response.headers_mut();
    set(headers, CONTENT_SECURITY_POLICY, POLICY);
    set(headers, X_CONTENT_TYPE_OPTIONS, "nosniff");
    // With `no-referrer` browsers would send `Origin: null` with our own forms.
    set(headers, REFERRER_POLICY, "same-origin");
    set(headers, CACHE_CONTROL, "no-store");
    response
}
