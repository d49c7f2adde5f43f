//! `bench throughput --emulated`: durable no-op jobs on emulated nodes. Shows the controller's own limit, and whether
//! it is as fast at the end of a long run as at the beginning.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use squall_model::wire::client::{Answer, Request};

use super::cluster::{Cluster, Scale, submission};
use super::{BenchOptions, Finding, ladder};
use crate::client::unexpected;

const JOBS: u64 = 1_000_000;
const CLIENTS: u64 = 2;
/// Interval at which the controller is asked for its progress.
const POLL: Duration = Duration::from_millis(20);
/// Longest time without the end of a job, after which the benchmark fails.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn run(options: &BenchOptions, nodes: u32) -> Result<Finding, String> {
    let jobs = options.jobs.unwrap_or(JOBS).max(10);
    let clients = options.clients.map_or(CLIENTS, |clients| clients.max(1) as u64);
    let ladder = options.ladder.then(|| {
        ladder::climb(false, |rung| {
            let cluster = Cluster::of_cells(rung.cells, Scale::Rack(nodes), &rung.config(), rung.durable)?;
            Ok(measure(&cluster, (nodes, rung.cells), jobs, clients)?.figure)
        })
    });
    let ladder = ladder.transpose()?;
    let cells = options.cells.unwrap_or(1);
    let cluster = Cluster::of_cells(cells, Scale::Rack(nodes), "", true)?;
    let mut finding = measure(&cluster, (nodes, cells), jobs, clients)?;
    finding.fields.extend(ladder.map(|rungs| ("ladder", rungs)));
    Ok(finding)
}

/// Measures a cluster with this number of nodes and cells: `clients` clients submit `jobs` jobs, and the time until all
/// have ended is taken.
fn measure(cluster: &Cluster, (nodes, cells): (u32, u32), jobs: u64, clients: u64) -> Result<Finding, String> {
    let mut watch = cluster.client()?;
    Cluster::wait_for(&mut watch, nodes)?;
    let start = Instant::now();
    let (submitted, ended) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|client| scope.spawn(move || submit(cluster, (client..jobs).step_by(clients as usize))))
            .collect();
        let ended = until_all_ended(cluster, jobs, start);
        for thread in threads {
            thread.join().map_err(|_| "a client panicked".to_owned())??;
        }
        Ok::<_, String>((start.elapsed().as_secs_f64(), ended?))
    })?;
    let diag = Cluster::diag(&mut watch)?;
    let (controller, rack) = cluster.cpu();
    let seconds = ended.last().map_or(submitted, |(at, _)| *at);
    let when = |count: u64| reached(&ended, count);
    let (first, last) = (when(jobs / 10), seconds - when(jobs - jobs / 10));
    let each = |time: Duration| super::round(time.as_secs_f64() * 1e6 / jobs as f64);
    let messages: u64 = diag.messages.iter().map(|(_, count, _)| count).sum();
    let mut fields = vec![
        ("jobs", json!(jobs)),
        ("nodes", json!(nodes)),
        ("cells", json!(cells)),
        ("clients", json!(clients)),
        ("seconds", json!(super::round(seconds))),
        ("first_tenth_per_s", json!((jobs as f64 / 10.0 / first).round())),
        ("last_tenth_per_s", json!((jobs as f64 / 10.0 / last).round())),
        ("last_of_first_tenth", json!(super::round(first / last))),
        ("controller_us_per_job", json!(each(controller))),
        ("rack_us_per_job", json!(each(rack))),
        ("front_us_per_job", json!(each(cluster.front_cpu()))),
        ("messages_per_job", json!(super::round(messages as f64 / jobs as f64))),
        ("journal_flushes", json!(diag.journal_flushes)),
    ];
    if cells > 1 {
        fields.push(("reckoned_with_a_core_each", reckoned(each(controller), each(cluster.front_cpu()))));
    }
    Ok(Finding {
        bench: "throughput",
        figure: jobs as f64 / seconds,
        unit: "durable no-op jobs/s",
        limit: None,
        fields,
    })
}

/// Estimates jobs per second for several numbers of cells, from the CPU time per job. Each controller and the front are
/// assumed to have a core. More cells help until the front is busy all the time.
fn reckoned(controller_us: f64, front_us: f64) -> Value {
    let rate = |cells: u32| (f64::from(cells) * 1e6 / controller_us).min(1e6 / front_us).round();
    let rows = (0..7).map(|power| 1 << power);
    rows.map(|cells| json!({ "cells": cells.to_string(), "jobs_per_s": rate(cells) })).collect()
}

/// Submits jobs with these numbers, with many submissions in flight.
fn submit(cluster: &Cluster, numbers: impl Iterator<Item = u64>) -> Result<(), String> {
    let requests = numbers.map(|number| submission(number, false));
    cluster.client()?.submit(requests, |_, _| {}).map_err(|e| e.to_string())
}

/// Waits until all jobs have ended; returns (seconds since the start, jobs ended so far).
fn until_all_ended(cluster: &Cluster, jobs: u64, start: Instant) -> Result<Vec<(f64, u64)>, String> {
    let mut watch = cluster.client()?;
    let (mut seen, mut news) = (vec![(0.0, 0)], Instant::now());
    loop {
        let Answer::Diag(diag) = watch.ask(&Request::Diag { reset: false }).map_err(|e| e.to_string())? else {
            return Err(unexpected().to_string());
        };
        if diag.jobs_failed + diag.jobs_canceled > 0 {
            return Err(format!("{} jobs failed", diag.jobs_failed + diag.jobs_canceled));
        }
        if seen.last().is_none_or(|(_, count)| *count < diag.jobs_completed) {
            seen.push((start.elapsed().as_secs_f64(), diag.jobs_completed));
            news = Instant::now();
        }
        if diag.jobs_completed >= jobs {
            return Ok(seen);
        }
        if news.elapsed() > PATIENCE {
            return Err(format!("only {} of {jobs} jobs have ended, none for {PATIENCE:?}", diag.jobs_completed));
        }
        std::thread::sleep(POLL);
    }
}

/// Returns when `count` jobs had ended, in seconds, interpolated between two observations.
fn reached(seen: &[(f64, u64)], count: u64) -> f64 {
    let after = seen.partition_point(|(_, ended)| *ended < count).clamp(1, seen.len() - 1);
    let ((t0, n0), (t1, n1)) = (seen[after - 1], seen[after]);
    t0 + (t1 - t0) * (count.saturating_sub(n0)) as f64 / (n1 - n0).max(1) as f64
}
