//! `bench restart`: time from a controller's start to its first answer, with a full queue.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use squall_files::place::Place;
use squall_model::config::{Config, NodeConfig};
use squall_model::event::{Event, Record};
use squall_model::id::{Attempt, ClientKey, Epoch, Incarnation, JobId, NodeId};
use squall_model::job::{Digest, JobSpec, Owner};
use squall_model::resource::{Alloc, Hardware};
use squall_model::set::CoreSet;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, Request};
use squall_store::file;

use super::cluster::resident_kb;
use super::{BenchOptions, Finding};
use crate::client::Client;

const PENDING: u32 = 1_000_000;
const RUNNING: u32 = 100_000;
const CORES: u32 = 100;
/// Number of events in each journal record, as many as group commit collects under load.
const EVENTS_PER_RECORD: usize = 50;
const PATIENCE: Duration = Duration::from_mins(2);

/// Target of the design: seconds until the controller answers with a full queue.
const LIMIT_S: f64 = 3.0;

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let (pending, running) = (options.pending.unwrap_or(PENDING), options.running.unwrap_or(RUNNING));
    let folder = std::env::temp_dir().join(format!("squall-restart-{}", std::process::id()));
    let place = Place::at(&folder).map_err(|e| e.to_string())?;
    let result = measure(&place, pending, running);
    if let Err(e) = std::fs::remove_dir_all(&folder) {
        eprintln!("{}: {e}", folder.display());
    }
    result
}

fn measure(place: &Place, pending: u32, running: u32) -> Result<Finding, String> {
    std::fs::create_dir_all(place.journal()).map_err(|e| format!("{}: {e}", place.dir().display()))?;
    let config = format!("[[nodes]]\nname = \"{}\"\ncpus = {CORES}\nforce = true\n", names(running));
    std::fs::write(place.config(), config).map_err(|e| format!("{}: {e}", place.config().display()))?;
    file::write_bulk(&place.journal(), &records(pending, running)).map_err(|e| e.to_string())?;
    let read = file::replay(&place.journal()).map_err(|e| e.to_string())?;
    let start = Instant::now();
    let mut controller = start_controller(place.dir())?;
    let served = first_answer(place, start);
    let memory = resident_kb(controller.id()) / 1024;
    let counted = served.and_then(|seconds| Ok((seconds, count(place)?)));
    // Only this benchmark uses the controller.
    drop(controller.kill());
    drop(controller.wait());
    let (seconds, (waits, runs)) = counted?;
    if (waits, runs) != (u64::from(pending), u64::from(running)) {
        return Err(format!("{waits} jobs wait and {runs} run; {pending} and {running} should"));
    }
    let fields = vec![
        ("pending", json!(pending)),
        ("running", json!(running)),
        ("snapshot_bytes", json!(read.report.snapshot_bytes)),
        ("snapshot_read_s", json!(read.report.snapshot_time.as_secs_f64())),
        ("resident_mb", json!(memory)),
    ];
    let limit = Some((LIMIT_S, "the bar of the design"));
    Ok(Finding { bench: "restart", figure: seconds, unit: "s to the first answer", limit, fields })
}

fn start_controller(dir: &Path) -> Result<Child, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    Command::new(me)
        .arg("controller")
        .arg("--state")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|e| e.to_string())
}

/// Returns the time from `start` until the controller answers, seconds.
fn first_answer(place: &Place, start: Instant) -> Result<f64, String> {
    loop {
        let answer = Client::connect_to(place, "bench").and_then(|mut client| client.ask(&Request::Ping));
        match answer {
            Ok(Answer::Pong { .. }) => return Ok(start.elapsed().as_secs_f64()),
            Err(e) if start.elapsed() > PATIENCE => return Err(e.to_string()),
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Returns the numbers of pending and of running jobs, as the controller counts them.
fn count(place: &Place) -> Result<(u64, u64), String> {
    let mut client = Client::connect_to(place, "bench").map_err(|e| e.to_string())?;
    let diag = super::cluster::Cluster::diag(&mut client)?;
    Ok((diag.jobs_pending, diag.jobs_running))
}

/// Returns the names of the nodes that have `running` jobs.
fn names(running: u32) -> String {
    format!("r[1-{}]", running.div_ceil(CORES))
}

/// Returns the journal of a cluster with `running` running jobs and `pending` pending ones, all different.
fn records(pending: u32, running: u32) -> Vec<Record> {
    let time = Time::from_secs(1_700_000_000);
    let nodes = running.div_ceil(CORES);
    let all = NodeConfig { name: names(running), cpus: Some(CORES), force: true, ..NodeConfig::default() };
    let mut config = Config { cluster: "restart".into(), nodes: vec![all], ..Config::default() };
    config.complete();
    let mut events = vec![
        Event::ControllerStarted { epoch: Epoch(1), version: env!("CARGO_PKG_VERSION").into() },
        Event::Configured { config: Arc::new(config) },
    ];
    events.extend((0..nodes).map(|n| Event::NodeRegistered {
        node: NodeId(n),
        name: format!("r{}", n + 1),
        incarnation: Incarnation(u128::from(n) + 1),
        hardware: Hardware { cpus: CORES, memory_mb: 1 << 20, ..Hardware::default() },
    }));
    let owner = Arc::new(Owner { uid: 1000, gid: 1000, groups: vec![1000], user: "user".into(), group: "user".into() });
    events.extend((1..=running + pending).map(|n| submitted(n, &owner)));
    events.extend((0..running).map(|n| {
        let mut alloc = Alloc::default();
        alloc.push(NodeId(n / CORES), std::iter::once((n % CORES) as usize).collect::<CoreSet>(), 0);
        Event::JobStarted { id: JobId(n + 1), attempt: Attempt(1), partition: "debug".into(), alloc }
    }));
    let batches = events.chunks(EVENTS_PER_RECORD).zip(1..);
    batches.map(|(events, seq)| Record { seq, time, events: events.to_vec() }).collect()
}

fn submitted(n: u32, owner: &Arc<Owner>) -> Event {
    let spec = JobSpec {
        name: format!("job-{n}"),
        work_dir: format!("/home/user/runs/{n}"),
        command: format!("/home/user/runs/{n}/run.sh"),
        submit_line: format!("sbatch run.sh {n}"),
        script: Some(Digest::of(&(n % 1000).to_le_bytes())),
        env: Digest::of(b"environment"),
        time_limit_s: Some(3600),
        ..JobSpec::default()
    };
    // Clients choose random keys, which are not in order.
    let key = ClientKey(u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    Event::JobSubmitted { id: JobId(n), key, owner: Arc::clone(owner), spec: Arc::new(spec) }
}
