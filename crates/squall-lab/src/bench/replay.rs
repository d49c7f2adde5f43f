//! `squall bench replay`: how many jobs of a workload trace the controller's policy schedules per second, and the
//! resulting waits.

use std::process::Command;

use serde_json::{Value, json};

use super::{BenchOptions, Finding, round};
use squall_replay::trace::{Run, load, named, under};

/// Number of runs of each policy in `TIMED`, of which the quickest counts. Other policies run once.
const TIMES: usize = 3;
/// Policies for which the rate (jobs per second) is a result.
const TIMED: [&str; 2] = ["fcfs", "easy"];

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let [path] = &options.traces[..] else {
        return Err("one trace is needed: squall bench replay TRACE.swf[.gz]".into());
    };
    let trace = load(path, options.procs)?;
    let best = |policy| {
        let times = if TIMED.contains(&policy) { TIMES } else { 1 };
        let runs = (0..times).map(|_| under(policy, &trace, |_| {}));
        runs.reduce(|best, run| if run.took_s < best.took_s { run } else { best })
    };
    let runs: Vec<Run> = named("all")?.into_iter().filter_map(best).collect();
    let easy = runs.iter().find(|run| run.policy == "easy").ok_or("nothing was run")?;
    let mut fields = vec![
        ("trace", json!(path.file_name().unwrap_or_default().to_string_lossy())),
        ("jobs", json!(trace.jobs.len())),
        ("procs", json!(trace.processors)),
        ("policies", runs.iter().map(row).collect()),
    ];
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

fn row(run: &Run) -> Value {
    let m = &run.metrics;
    json!({
        "policy": run.policy,
        "jobs_per_s": run.jobs_per_s().round(),
        "sum_wait_s": m.sum_wait,
        "mean_wait_s": round(m.mean_wait),
        "p95_wait_s": m.p95_wait,
        "slowdown": round(m.avebsld10),
        "utilisation": round(m.util),
        "starts_fnv64": format!("{:016x}", m.starts_fnv64),
    })
}

/// Runs another simulator on the same trace: `command` gets the trace and the number of processors as arguments, and
/// prints JSON.
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
