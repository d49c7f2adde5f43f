//! `squall bench replay`: how many jobs of a workload trace the controller's policy schedules in a second.

use std::process::Command;

use serde_json::{Value, json};

use super::{Finding, Options, round};
use crate::command::trace::{Run, load, under};

/// Each policy so often; the best counts.
const TIMES: usize = 3;

pub(super) fn run(options: &Options) -> Result<Finding, String> {
    let path = options.trace.as_ref().ok_or("a trace is needed: squall bench replay TRACE.swf[.gz]")?;
    let trace = load(path, options.procs)?;
    let best = |policy| {
        let runs = (0..TIMES).map(|_| under(policy, &trace, |_| {}));
        runs.reduce(|best, run| if run.took_s < best.took_s { run } else { best })
    };
    let (fcfs, easy) = best("fcfs").zip(best("easy")).ok_or("nothing was run")?;
    let mut fields = vec![
        ("trace", json!(path.file_name().unwrap_or_default().to_string_lossy())),
        ("jobs", json!(trace.jobs.len())),
        ("procs", json!(trace.processors)),
        ("fcfs_jobs_per_s", json!(round(fcfs.jobs_per_s()))),
        ("easy_jobs_per_s", json!(round(easy.jobs_per_s()))),
    ];
    fields.extend(of("fcfs", &fcfs));
    fields.extend(of("easy", &easy));
    let mut limit = None;
    if let Some(command) = &options.peer {
        let peer = ask(command, path, trace.processors.unwrap_or(1))?;
        limit = Some((
            peer["jobs_per_s"].as_f64().ok_or("--peer: its answer has no jobs_per_s")?,
            "the peer, in the same run",
        ));
        fields.push(("peer", peer));
    }
    Ok(Finding { bench: "replay", figure: easy.jobs_per_s(), unit: "jobs/s (EASY)", limit, fields })
}

fn of(policy: &str, run: &Run) -> [(&'static str, Value); 2] {
    let hash = json!(format!("{:016x}", run.metrics.starts_fnv64));
    match policy {
        "fcfs" => [("fcfs_mean_wait_s", json!(run.metrics.mean_wait)), ("fcfs_starts_fnv64", hash)],
        _ => [("easy_mean_wait_s", json!(run.metrics.mean_wait)), ("easy_starts_fnv64", hash)],
    }
}

/// Another simulator on the same trace: a command that is given trace and processors and prints JSON.
fn ask(command: &str, trace: &std::path::Path, processors: u32) -> Result<Value, String> {
    let script = format!("{command} \"$0\" \"$1\"");
    let output = Command::new("sh").arg("-c").arg(script).arg(trace).arg(processors.to_string()).output();
    let output = output.map_err(|e| format!("--peer {command}: {e}"))?;
    if !output.status.success() {
        let problem = String::from_utf8_lossy(&output.stderr);
        return Err(format!("--peer {command}: {}", problem.lines().last().unwrap_or("it failed")));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|e| format!("--peer {command}: its last line is no JSON: {e}"))
}
