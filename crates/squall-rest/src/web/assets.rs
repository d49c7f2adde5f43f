//! Style and script of the pages, under names that change with their content.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

pub(crate) const CSS: &str = include_str!("style.css");
pub(crate) const JS: &str = include_str!("live.js");

static NAMES: LazyLock<[String; 2]> = LazyLock::new(|| {
    let name = |text: &str, kind| format!("{}.{kind}", &blake3::hash(text.as_bytes()).to_hex()[..16]);
    [name(CSS, "css"), name(JS, "js")]
});

/// Returns the paths of style and script.
pub(crate) fn paths() -> [String; 2] {
    NAMES.each_ref().map(|name| format!("/static/{name}"))
}

/// `GET /static/HASH.css`, `.js`.
pub(crate) async fn file(Path(name): Path<String>) -> Response {
    let [css, js] = &*NAMES;
    let (kind, text) = match name {
        name if name == *css => ("text/css; charset=utf-8", CSS),
        name if name == *js => ("text/javascript; charset=utf-8", JS),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")], text).into_response()
}
