//! Answers to requests that fail, and bodies of requests.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use squall_client::ClientError;
use squall_text::shapes::Problem;
use tokio::time::timeout;

/// Most bytes of a request's body: a batch script with its environment.
pub(crate) const BODY_BYTES_MAX: usize = 8 << 20;
/// Most bytes of a form of the dashboard. Anybody may send one: the form to log in.
pub(crate) const FORM_BYTES_MAX: usize = 16 << 10;
/// Time within which a body must have come.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Why a request has no answer: a status, and a text for people.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let lines = error.lines("squall");
        let text = lines.iter().map(|line| line.trim_start_matches("squall: ")).collect::<Vec<_>>().join("; ");
        Self { status: status(&error), text }
    }
}

/// Returns the HTTP status for a failed request to the controller.
pub(crate) fn status(error: &ClientError) -> StatusCode {
    match error {
        ClientError::Refused(refusal) => {
            StatusCode::from_u16(Problem::of(refusal, "").status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        }
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = json!({"error": self.text}).to_string();
        (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

/// Reads the body of a request of at most `most` bytes.
pub(crate) async fn body(body: Body, most: usize) -> Result<Bytes, Failure> {
    let too_slow = |_| Failure::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time");
    let too_large = |_| {
        let text = format!("the body could not be read, or has more than {most} bytes");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    timeout(BODY_TIME, to_bytes(body, most)).await.map_err(too_slow)?.map_err(too_large)
}
