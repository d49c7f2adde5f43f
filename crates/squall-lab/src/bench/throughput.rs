//! `bench throughput`: jobs per second from the first submission to the last durable completion, with real processes,
//! as a share of the rate at which this machine spawns processes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cluster::{Cluster, SHELL, Scale, TRUE, submission_of};
use super::ladder::{self, Rung, SLOTS_PER_CORE};
use super::{BenchOptions, Finding, spawn};

const JOBS: u64 = 5000;
const CLIENTS: usize = 4;
/// Timeout for the end of all jobs.
const PATIENCE: Duration = Duration::from_mins(10);

/// Result of one run with a cluster.
struct Rate {
    jobs_per_s: f64,
    fields: Vec<(&'static str, Value)>,
}

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    if let Some(nodes) = options.emulated {
        return super::emulated::run(options, nodes);
    }
    let jobs = options.jobs.unwrap_or(JOBS);
    let clients = options.clients.unwrap_or(CLIENTS);
    let slots = options.slots.unwrap_or(SLOTS_PER_CORE * spawn::cores() as u32);
    let before = spawn::rate(&["/bin/true"], spawn::cores(), 1.0)?;
    let rungs = options.ladder.then(|| {
        let slots = |rung: &Rung| options.slots.unwrap_or(rung.slots * spawn::cores() as u32);
        ladder::climb(true, |rung| {
            let cluster = Cluster::of_cells(rung.cells, Scale::Slots(slots(rung)), &rung.config(), rung.durable)?;
            Ok(measure((jobs, TRUE), clients, &cluster)?.jobs_per_s)
        })
    });
    let rungs = rungs.transpose()?;
    let cells = options.cells.unwrap_or(1);
    let cluster = Cluster::of_cells(cells, Scale::Slots(slots), ladder::LEASES, true)?;
    let Rate { jobs_per_s, mut fields } = measure((jobs, TRUE), clients, &cluster)?;
    drop(cluster);
    let after = spawn::rate(&["/bin/true"], spawn::cores(), 1.0)?;
    let cluster = Cluster::of_cells(cells, Scale::Slots(slots), ladder::LEASES, true)?;
    let shell = measure((jobs, SHELL), clients, &cluster)?.jobs_per_s;
    drop(cluster);
    let bare = spawn::rate(&["/bin/sh", "-c", "true"], spawn::cores(), 1.0)?;
    fields.extend([
        ("sh_jobs_per_s", json!(super::round(shell))),
        ("sh_c_true_per_s", json!(super::round(bare))),
        ("sh_ratio", json!(super::round(shell / bare))),
    ]);
    fields.extend([("slots", json!(slots)), ("cells", json!(cells)), ("jobs_in_hand", json!(ladder::in_hand()))]);
    fields.extend(rungs.map(|rungs| ("ladder", rungs)));
    let limit = (f64::midpoint(before, after), "bare posix_spawn+wait of /bin/true, as many workers as cores");
    Ok(Finding { bench: "throughput", figure: jobs_per_s, unit: "jobs/s", limit: Some(limit), fields })
}

/// Runs jobs with a script on a cluster.
fn measure((jobs, script): (u64, &str), clients: usize, cluster: &Cluster) -> Result<Rate, String> {
    let mut watch = cluster.client()?;
    let start = Instant::now();
    submit_all(cluster, (jobs, script), clients)?;
    let submitted = start.elapsed().as_secs_f64();
    let diag = loop {
        let diag = Cluster::diag(&mut watch)?;
        if diag.jobs_completed + diag.jobs_failed + diag.jobs_canceled >= jobs {
            break diag;
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("only {} of {jobs} jobs have ended after {PATIENCE:?}", diag.jobs_completed));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let seconds = start.elapsed().as_secs_f64();
    let (controller, nodes) = cluster.cpu();
    let each = |time: Duration| super::round(time.as_secs_f64() * 1e3 / jobs as f64);
    let front = cluster.front_cpu();
    if diag.jobs_completed != jobs {
        return Err(format!("{} of {jobs} jobs failed", jobs - diag.jobs_completed));
    }
    let fields = vec![
        ("jobs", json!(jobs)),
        ("clients", json!(clients)),
        ("seconds", json!(seconds)),
        ("submitted_per_s", json!(jobs as f64 / submitted)),
        ("controller_ms_per_job", json!(each(controller))),
        ("node_ms_per_job", json!(each(nodes))),
        ("front_ms_per_job", json!(each(front))),
        ("journal_flushes", json!(diag.journal_flushes)),
        ("flush_mean_us", json!(diag.flush_total_us.checked_div(diag.journal_flushes))),
    ];
    Ok(Rate { jobs_per_s: jobs as f64 / seconds, fields })
}

/// Submits jobs from several clients at once, each with many submissions in flight; a submission is acknowledged when
/// it is durable.
fn submit_all(cluster: &Cluster, (jobs, script): (u64, &str), clients: usize) -> Result<(), String> {
    let next = AtomicU64::new(0);
    let numbers = || std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < jobs));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| {
                    let requests = numbers().map(|number| submission_of(number, false, script));
                    cluster.client()?.submit(requests, |_, _| {}).map_err(|e| e.to_string())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a client panicked".to_owned())?)
    })
}
