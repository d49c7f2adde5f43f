//! Output formats of a replayed trace: a table, JSON, and CSV with a line for each job.

use std::fmt::Write as _;

use super::Run;
use crate::Trace;
use serde_json::{Value, json};
use squall_model::duration::format_elapsed;

/// Formats the results as a table for people.
pub(super) fn table(name: &str, trace: &Trace, runs: &[Run]) -> String {
    let mut text = format!("{name}: {} jobs on {} processors", trace.jobs.len(), trace.processors.unwrap_or_default());
    if let Some(nodes) = runs.first().and_then(|run| run.nodes) {
        let _ = write!(text, " of {nodes} nodes");
    }
    let left_out = [
        (trace.without_processors, "held no processors"),
        (trace.without_submit, "came nobody knows when"),
        (trace.without_run, "never ran"),
        (trace.too_large, "do not fit on the machine"),
    ];
    let left_out = left_out.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}"));
    let left_out: Vec<String> = left_out.collect();
    if !left_out.is_empty() {
        let _ = write!(text, " (left out: {})", left_out.join(", "));
    }
    if let Some(run) = runs.first().filter(|run| !run.passed_over.is_empty()) {
        let _ = write!(text, "\npassed over, for no node is said to have it: {}", run.passed_over.join(", "));
    }
    let _ = writeln!(
        text,
        "\n{:<13} {:>14} {:>14} {:>14} {:>14} {:>11} {:>6} {:>15} {:>7} {:>10}",
        "policy", "mean wait s", "median", "95 of 100", "longest", "slowdown", "util", "makespan", "queue", "jobs/s"
    );
    for run in runs {
        let m = &run.metrics;
        let _ = writeln!(
            text,
            "{:<13} {:>14.3} {:>14} {:>14} {:>14} {:>11.3} {:>6.4} {:>15} {:>7} {:>10.0}",
            run.policy,
            m.mean_wait,
            format_elapsed(m.median_wait),
            format_elapsed(m.p95_wait),
            format_elapsed(m.max_wait),
            m.avebsld10,
            m.util,
            format_elapsed(m.makespan),
            run.schedule.queue_max,
            run.jobs_per_s()
        );
    }
    text
}

/// Formats the results as JSON: one object for one policy, a list for several.
pub(super) fn json(name: &str, trace: &Trace, runs: &[Run]) -> String {
    let all: Vec<Value> = runs.iter().map(|run| of(name, trace, run)).collect();
    match <[Value; 1]>::try_from(all) {
        Ok([one]) => format!("{one}\n"),
        Err(all) => format!("{}\n", Value::Array(all)),
    }
}

fn of(name: &str, trace: &Trace, run: &Run) -> Value {
    let m = &run.metrics;
    json!({
        "trace": name,
        "policy": run.policy,
        "procs": trace.processors,
        "nodes": run.nodes,
        "jobs": m.jobs,
        "left_out": {
            "no_processors": trace.without_processors,
            "no_submit": trace.without_submit,
            "no_run": trace.without_run,
            "too_large": trace.too_large,
        },
        "properties_passed_over": run.passed_over,
        "mean_wait_s": m.mean_wait,
        "sum_wait_s": m.sum_wait,
        "median_wait_s": m.median_wait,
        "p95_wait_s": m.p95_wait,
        "max_wait_s": m.max_wait,
        "avebsld10": m.avebsld10,
        "avebsld60": m.avebsld60,
        "util": m.util,
        "makespan_s": m.makespan,
        "queue_max": run.schedule.queue_max,
        "passes": run.schedule.passes,
        "starts_fnv64": format!("{:016x}", m.starts_fnv64),
        "elapsed_s": run.took_s,
        "jobs_per_s": run.jobs_per_s(),
    })
}

/// Formats the results as CSV: a line for each job and policy.
pub(super) fn csv(trace: &Trace, runs: &[Run]) -> String {
    let mut text = "policy,job,submit_s,start_s,end_s,wait_s,procs,estimate_s\n".to_owned();
    for run in runs {
        for (job, start) in trace.jobs.iter().zip(&run.schedule.starts) {
            let (end, wait) = (start + job.run, start - job.submit);
            let _ = writeln!(
                text,
                "{},{},{},{start},{end},{wait},{},{}",
                run.policy, job.id, job.submit, job.processors, job.estimate
            );
        }
    }
    text
}
