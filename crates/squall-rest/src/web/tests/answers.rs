//! Answers to requests without a controller: who is sent to log in, and what keeps others out.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use squall_files::place::Place;

use crate::caller::{Peer, Visit};
use crate::routes::{Server, routes};
use crate::web::{Web, assets};

fn router() -> Router {
    let place = Place::at(Path::new("/nonexistent/squall")).unwrap();
    routes(Arc::new(Server::new(place, ("head".into(), "".into()), Web::new(true).unwrap())))
}

async fn ask(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let mut request = Request::builder().method(method).uri(path).header("host", "head:6820");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request
        .extension(Visit::new(Peer::Address(IpAddr::from([192, 0, 2, 1])), None))
        .body(Body::from(body.to_owned()));
    TowerToHyperService::new(router()).call(request.unwrap()).await.unwrap()
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

async fn text(response: Response) -> String {
    String::from_utf8(to_bytes(response.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn strangers_are_sent_to_log_in_and_change_nothing() {
    for path in [
        "/",
        "/jobs",
        "/past",
        "/past?user=*",
        "/job/1",
        "/job/1_2",
        "/nodes",
        "/node/n1",
        "/partitions",
        "/reservations",
        "/accounts",
        "/health",
    ] {
        let seen = ask("GET", path, &[], "").await;
        assert_eq!((seen.status(), header(&seen, "location")), (StatusCode::SEE_OTHER, "/login"), "{path}");
        assert!(
            header(&seen, "content-security-policy").starts_with("default-src 'none'; style-src 'self'; script-src")
        );
    }
    for path in ["/job/1/cancel", "/job/1_2/cancel", "/node/n1/drain", "/logout"] {
        assert_eq!(ask("POST", path, &[], "proof=x").await.status(), StatusCode::SEE_OTHER, "{path}");
        assert_eq!(ask("GET", path, &[], "").await.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
}

#[tokio::test]
async fn the_log_in_page_and_its_files_are_for_all() {
    let seen = ask("GET", "/login", &[], "").await;
    assert_eq!((seen.status(), header(&seen, "cache-control")), (StatusCode::OK, "no-store"));
    assert_eq!((header(&seen, "x-content-type-options"), header(&seen, "referrer-policy")), ("nosniff", "same-origin"));
    super::check("login", &text(seen).await);
    for (path, content) in assets::paths().iter().zip([assets::CSS, assets::JS]) {
        let seen = ask("GET", path, &[], "").await;
        assert_eq!(header(&seen, "cache-control"), "public, max-age=31536000, immutable");
        assert_eq!(text(seen).await, content);
    }
    assert_eq!(ask("GET", "/static/..%2fstyle.css", &[], "").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_is_no_token_is_never_made_a_cookie() {
    for token in ["", "a%0d%0aSet-Cookie:%20x=y", "a%3b%20Domain=evil", "%22"] {
        let seen = ask("POST", "/login", &[("origin", "https://head:6820")], &format!("token={token}")).await;
        assert_eq!((seen.status(), header(&seen, "set-cookie")), (StatusCode::UNAUTHORIZED, ""), "{token}");
    }
    let seen = ask("POST", "/login", &[("origin", "https://evil")], "token=abc").await;
    assert_eq!(seen.status(), StatusCode::FORBIDDEN, "a form of another site");
    super::check("refused", &text(seen).await);
}

#[tokio::test]
async fn a_ping_is_answered_without_a_controller() {
    for (path, status) in [("/slurm/v0.0.42/ping", 200), ("/slurmdb/v0.0.42/ping/", 200), ("/slurm/v0.0.42/jobs", 503)]
    {
        let response = ask("GET", path, &[("x-slurm-user-token", "x.y.z")], "").await;
        assert_eq!(response.status().as_u16(), status, "{path}");
        let told: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
        if status == 200 {
            let ping = &told["pings"][0];
            assert_eq!((&ping["hostname"], &ping["responding"]), (&"head".into(), &false.into()), "{told}");
            assert_eq!(told["errors"], serde_json::json!([]));
        }
    }
    assert_eq!(ask("GET", "/slurm/v0.0.42/ping", &[], "").await.status(), StatusCode::UNAUTHORIZED);
}
