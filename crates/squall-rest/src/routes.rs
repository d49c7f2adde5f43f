//! The server: its routes and its loop.

use std::io;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use squall_files::place::Place;
use squall_text::rest::openapi;
use squall_text::shapes::Version;
use tokio::net::{TcpListener, UnixListener};

use crate::answer::Failure;
use crate::caller::{Caller, Callers, Changes, Visit};
use crate::cluster::Cluster;
use crate::connections::{accept_tcp, accept_unix};
use crate::events::Events;
use crate::listen::Listeners;
use crate::room::Room;
use crate::seats::Seats;
use crate::web::{self, Web};
use crate::{metrics, own, slurm};

/// What all routes share.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) cluster: Cluster,
    pub(crate) callers: Callers,
    pub(crate) changes: Changes,
    pub(crate) web: Web,
    pub(crate) events: Events,
    pub(crate) room: Room,
}

impl Server {
    pub(crate) fn new(place: Place, (host, secret): (String, Arc<str>), web: Web) -> Self {
        Self {
            events: Events::new(place.clone()),
            cluster: Cluster::new(place, host, secret),
            web,
            callers: Callers::default(),
            changes: Changes::default(),
            room: Room::default(),
        }
    }
}

/// The server as the routes get it.
pub(crate) type ServerHandle = Arc<Server>;

/// Serves the cluster in this state folder, without end. `host`: name of the controller's host, for answers while the
/// controller is away; `secret`: by which the controller knows this server. `ready` is called when the server accepts
/// connections. Err: the server could not start.
pub fn run(place: Place, (host, secret): (String, &str), listeners: Listeners, ready: impl FnOnce()) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(64).build()?;
    runtime.block_on(async {
        let server = Arc::new(Server::new(place, (host, secret.into()), Web::new(listeners.is_secure())?));
        let (router, seats) = (routes(server), Seats::default());
        let Listeners { tcp, unix, certificate } = listeners;
        let mut accepting = tokio::task::JoinSet::new();
        for listener in tcp {
            let listener = TcpListener::from_std(listener)?;
            accepting.spawn(accept_tcp(listener, certificate.clone(), seats.clone(), router.clone()));
        }
        for listener in unix {
            accepting.spawn(accept_unix(UnixListener::from_std(listener)?, seats.clone(), router.clone()));
        }
        ready();
        while accepting.join_next().await.is_some() {}
        Ok(())
    })
}

/// Returns the router of all paths.
pub(crate) fn routes(server: ServerHandle) -> Router {
    Router::new()
        .route("/slurm/{*path}", any(slurm::serve))
        .route("/slurmdb/{*path}", any(slurm::serve))
        .route("/util/{*path}", any(slurm::serve))
        .route("/openapi.json", get(openapi))
        .route("/openapi/v3", get(openapi))
        .route("/openapi", get(openapi))
        .route("/metrics", get(metrics::all))
        .route("/metrics/{part}", get(metrics::part))
        .nest("/squall/v1", own::routes())
        .merge(web::routes())
        .fallback(elsewhere)
        .with_state(server)
}

/// Serves a request for a path that no route fits: one of Slurm's with slashes too many, or none at all.
async fn elsewhere(server: State<ServerHandle>, request: Request) -> Response {
    match request.uri().path().split('/').find(|segment| !segment.is_empty()) {
        Some("slurm" | "slurmdb" | "util") => slurm::serve(server, request).await,
        _ => Failure::new(StatusCode::NOT_FOUND, "there is no such path").into_response(),
    }
}

impl FromRequestParts<ServerHandle> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, server: &ServerHandle) -> Result<Self, Failure> {
        let nowhere = || Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the request comes from nowhere");
        let visit = parts.extensions.get::<Visit>().ok_or_else(nowhere)?.clone();
        Ok(server.callers.find(&server.cluster, &visit, &parts.headers).await?)
    }
}

/// `GET /openapi.json`: the paths with their parameters, bodies and answers.
async fn openapi() -> Response {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| openapi::document(&Version::ALL).to_string().into());
    slurm::json(StatusCode::OK, DOCUMENT.clone())
}
