//! `bench submit`: durable submissions per second, and the time until each answer. Each client has several submissions
//! in flight, as the library's batch function does.

use std::time::Instant;

use serde_json::json;

use super::cluster::{Cluster, submission};
use super::{BenchOptions, Finding};

const JOBS: u64 = 20_000;
const CLIENTS: usize = 8;
/// Submissions that a client sends at once, before it waits for all their answers.
const BATCH: usize = 16;

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let jobs = options.jobs.unwrap_or(JOBS);
    let clients = options.clients.unwrap_or(CLIENTS).max(1);
    let cluster = options.state.as_deref().map_or_else(|| Cluster::start(1), Cluster::at)?;
    let start = Instant::now();
    let mut waits = std::thread::scope(|scope| {
        let cluster = &cluster;
        let threads: Vec<_> =
            (0..clients as u64).map(|c| scope.spawn(move || submit(cluster, (c..jobs).step_by(clients)))).collect();
        threads.into_iter().try_fold(Vec::new(), |mut all, t| {
            all.extend(t.join().map_err(|_| "a client panicked".to_owned())??);
            Ok::<_, String>(all)
        })
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let diag = Cluster::diag(&mut cluster.client()?)?;
    waits.sort_unstable();
    let at = |share: f64| waits.get((waits.len() as f64 * share) as usize).copied().unwrap_or_default();
    let fields = vec![
        ("jobs", json!(jobs)),
        ("clients", json!(clients)),
        ("batch", json!(BATCH)),
        ("p50_us", json!(at(0.5))),
        ("p99_us", json!(at(0.99))),
        ("journal_flushes", json!(diag.journal_flushes)),
        ("flush_mean_us", json!(diag.flush_total_us.checked_div(diag.journal_flushes))),
    ];
    Ok(Finding { bench: "submit", figure: jobs as f64 / seconds, unit: "submissions/s", limit: None, fields })
}

/// Submits held jobs; returns the wait for each answer in microseconds.
fn submit(cluster: &Cluster, numbers: impl Iterator<Item = u64>) -> Result<Vec<u64>, String> {
    let mut client = cluster.client()?;
    let (mut waits, mut numbers) = (Vec::new(), numbers.peekable());
    while numbers.peek().is_some() {
        let requests: Vec<_> = numbers.by_ref().take(BATCH).map(|number| submission(number, true)).collect();
        let start = Instant::now();
        let answered = |_, _| waits.push(start.elapsed().as_micros() as u64);
        client.submit(requests.into_iter(), answered).map_err(|e| e.to_string())?;
    }
    Ok(waits)
}
