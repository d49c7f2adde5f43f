//! `bench clients`: cost of users' commands and of pending jobs: `srun` on an idle cluster, `sbatch` one after another,
//! a long array, a long queue and `squeue` of it, and the slowdown of other jobs meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use squall_model::wire::client::JobSelection;

use super::cluster::{Cluster, submission};
use super::{BenchOptions, Finding, median, round};

/// Number of `srun` commands on an idle cluster; the median duration counts.
const SRUNS: usize = 21;
/// Number of `sbatch` processes, one after another.
const SBATCHES: u32 = 300;
/// Number of tasks in the long array.
const TASKS: u32 = 1_000_000;
/// Number of pending jobs (not tasks of an array) in the long queue.
const JOBS: u64 = 100_000;
/// Number of `squeue` commands; the median duration counts.
const SQUEUES: usize = 5;
/// Number of jobs that run on emulated nodes: first without other clients, then while a client lists the queue without
/// a pause.
const BESIDE: u64 = 50_000;
/// Number of emulated nodes on which `BESIDE` jobs run.
const BESIDE_NODES: u32 = 100;

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let jobs = options.jobs.unwrap_or(JOBS).max(1);
    let mut rows = Vec::new();
    let mut row = |what: &str, measured: f64, unit: &str| {
        rows.push(json!({ "what": what, "measured": round(measured), "unit": unit }));
    };
    let cluster = Cluster::with(&format!("max_array_size = {}\n", TASKS + 1), &["--nodes", "1"])?;
    let ms = |args: &[&str]| cluster.command_ms(args);
    ms(&["srun", "-n1", "true"])?;
    let mut sruns = (0..SRUNS).map(|_| ms(&["srun", "-n1", "true"])).collect::<Result<Vec<_>, _>>()?;
    let srun_ms = median(&mut sruns);
    row("srun -n1 true", srun_ms, "ms");
    let held = ["sbatch", "--hold", "-D", "/", "-o", "/dev/null", "--wrap", "true"];
    let start = Instant::now();
    for _ in 0..SBATCHES {
        ms(&held)?;
    }
    row("sbatch processes", f64::from(SBATCHES) / start.elapsed().as_secs_f64(), "1/s");
    let before = cluster.controller_kb();
    let array = format!("--array=1-{TASKS}");
    row("an array of 1 M tasks", ms(&[&held[..1], &[&array], &held[1..]].concat())?, "ms");
    row("memory of a waiting array task", per(cluster.controller_kb() - before, u64::from(TASKS)), "bytes");
    drop(cluster);
    let cluster = Cluster::nodes(1)?;
    let before = cluster.controller_kb();
    let requests = (0..jobs).map(|number| submission(number, true));
    cluster.client()?.submit(requests, |_, _| {}).map_err(|e| e.to_string())?;
    row("memory of a waiting job", per(cluster.controller_kb() - before, jobs), "bytes");
    let mut lists = (0..SQUEUES).map(|_| cluster.command_ms(&["squeue", "-h"])).collect::<Result<Vec<_>, _>>()?;
    row("squeue of all that wait", median(&mut lists), "ms");
    drop(cluster);
    let (alone, looked_at) = beside(jobs)?;
    row("no-op jobs/s behind all that wait", alone, "1/s");
    row("the same while somebody lists all without a pause", looked_at, "1/s");
    let fields = vec![("jobs", json!(jobs)), ("measured", Value::Array(rows))];
    Ok(Finding { bench: "clients", figure: srun_ms, unit: "ms, srun -n1 true", limit: None, fields })
}

fn per(kb: f64, count: u64) -> f64 {
    kb * 1024.0 / count as f64
}

/// Returns durable no-op jobs per second behind a long queue: alone, and while a client lists the whole queue
/// repeatedly.
fn beside(jobs: u64) -> Result<(f64, f64), String> {
    let cluster = Cluster::rack(BESIDE_NODES, "")?;
    Cluster::wait_for(&mut cluster.client()?, BESIDE_NODES)?;
    let held = (0..jobs).map(|number| submission(number, true));
    cluster.client()?.submit(held, |_, _| {}).map_err(|e| e.to_string())?;
    let alone = rate(&cluster, jobs, 0)?;
    let over = AtomicBool::new(false);
    let looked_at = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut client = cluster.client()?;
            while !over.load(Ordering::Relaxed) {
                client.jobs(JobSelection::default(), false, false).map_err(|e| e.to_string())?;
            }
            Ok::<_, String>(())
        });
        let rate = rate(&cluster, jobs, BESIDE);
        over.store(true, Ordering::Relaxed);
        looking.join().map_err(|_| "a client panicked".to_owned())??;
        rate
    })?;
    Ok((alone, looked_at))
}

/// Returns jobs per second from the first submission to the last durable end. `held`: pending jobs in the queue
/// meanwhile; `from`: number of jobs that earlier calls have submitted.
fn rate(cluster: &Cluster, held: u64, from: u64) -> Result<f64, String> {
    let mut watch = cluster.client()?;
    let start = Instant::now();
    let requests = (0..BESIDE).map(|number| submission(held + from + number, false));
    cluster.client()?.submit(requests, |_, _| {}).map_err(|e| e.to_string())?;
    Cluster::until_completed(&mut watch, from + BESIDE)?;
    Ok(BESIDE as f64 / start.elapsed().as_secs_f64())
}
