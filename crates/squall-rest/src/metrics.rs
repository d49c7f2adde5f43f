//! `GET /metrics`: the cluster's metrics as text for Prometheus.

use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use squall_client::unexpected;
use squall_text::metrics::{CONTENT_TYPE, JobCounts, Part, Scrape};

use crate::answer::Failure;
use crate::caller::Caller;
use crate::routes::ServerHandle;
use crate::users::name_of;

/// `GET /metrics`: all metrics.
pub(crate) async fn all(State(server): State<ServerHandle>, _caller: Caller) -> Result<Response, Failure> {
    scrape(server, Part::All).await
}

/// `GET /metrics/PART`: those that Slurm 25.11 has there.
pub(crate) async fn part(
    State(server): State<ServerHandle>,
    _caller: Caller,
    Path(part): Path<String>,
) -> Result<Response, Failure> {
    let unknown = || {
        let names: Vec<&str> = Part::PATHS.into_iter().map(|(name, _)| name).filter(|name| !name.is_empty()).collect();
        Failure::new(StatusCode::NOT_FOUND, format!("there is no such part; it is one of {}", names.join(", ")))
    };
    let part = Part::at(&part).filter(|part| *part != Part::All).ok_or_else(unknown)?;
    scrape(server, part).await
}

async fn scrape(server: ServerHandle, part: Part) -> Result<Response, Failure> {
    let cluster = &server.cluster;
    let (jobs, nodes, partitions) =
        (cluster.jobs(None).await?, cluster.nodes(None).await?, cluster.partitions(None).await?);
    let (licenses, shares, diag) =
        (cluster.licenses(None).await?, cluster.shares(None).await?, cluster.diag(None).await?);
    let text = tokio::task::spawn_blocking(move || {
        let mut counts = JobCounts::default();
        counts.add(&jobs);
        let scrape = Scrape {
            diag: &diag,
            nodes: &nodes,
            partitions: &partitions,
            jobs: &counts,
            licenses: &licenses,
            shares: &shares,
        };
        scrape.text(part, &name_of)
    });
    let text = text.await.map_err(|_| Failure::from(unexpected()))?;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE))], text).into_response())
}
