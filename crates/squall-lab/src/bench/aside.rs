//! `squall bench aside`: what short jobs gain if others step aside to disk for them, on workload traces.

use serde_json::{Value, json};
use squall_replay::trace::load;
use squall_replay::{Replay, Schedule, Short, TraceJob, replay};
use squall_sched::Discipline;

use super::{BenchOptions, Finding, round};

/// Longest time limit of a short job, seconds.
const SHORT_S: u64 = 3600;
/// What a job needs more each time that it steps aside, seconds: to write its memory and to read it again.
const COST_S: f64 = 60.0;

/// Waits of jobs, seconds, and the use of the machine.
struct Outcomes {
    short_s: f64,
    other_s: f64,
    util: f64,
    asides: u64,
}

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    if options.traces.is_empty() {
        return Err("a trace is needed".to_owned());
    }
    let cost_s = options.seconds.unwrap_or(COST_S) as u64;
    let (mut rows, mut gains): (Vec<Value>, Vec<f64>) = Default::default();
    for path in &options.traces {
        let trace = load(path, options.procs)?;
        let processors = trace.processors.unwrap_or(1);
        let of = |limit_s, aside_s| {
            let settings = Replay { processors, discipline: Discipline::Easy, short: Some(Short { limit_s, aside_s }) };
            outcomes(&trace.jobs, &replay(&trace.jobs, &settings, |_| {}), processors)
        };
        let (equal, first, aside) = (of(0, None), of(SHORT_S, None), of(SHORT_S, Some(cost_s)));
        gains.push(equal.short_s / aside.short_s.max(1.0));
        let shown = |one: &Outcomes| json!({ "wait_short_s": round(one.short_s), "wait_others_s": round(one.other_s), "util": one.util });
        rows.push(json!({
            "trace": path.file_name().unwrap_or_default().to_string_lossy(),
            "procs": processors,
            "jobs": trace.jobs.len(),
            "short_jobs": trace.jobs.iter().filter(|job| job.estimate <= SHORT_S).count(),
            "equal": shown(&equal),
            "short_first": shown(&first),
            "aside": shown(&aside),
            "asides": aside.asides,
        }));
    }
    let least = gains.into_iter().reduce(f64::min).unwrap_or_default();
    let fields = vec![("short_s", json!(SHORT_S)), ("cost_s", json!(cost_s)), ("traces", Value::Array(rows))];
    Ok(Finding { bench: "aside", figure: round(least), unit: "times shorter waits of short jobs", limit: None, fields })
}

/// Time counts as wait in which a job does nothing of its own: before it begins, aside, and on the way there and back.
fn outcomes(jobs: &[TraceJob], schedule: &Schedule, processors: u32) -> Outcomes {
    let mean = |short: bool| {
        let of = jobs.iter().zip(&schedule.ends).filter(|(job, _)| (job.estimate <= SHORT_S) == short);
        let waits: Vec<u64> = of.map(|(job, end)| end - job.submit - job.run).collect();
        waits.iter().sum::<u64>() as f64 / waits.len().max(1) as f64
    };
    let begin = jobs.iter().map(|job| job.submit).min().unwrap_or_default();
    let end = schedule.ends.iter().copied().max().unwrap_or_default();
    let work: f64 = jobs.iter().map(|job| job.run as f64 * f64::from(job.processors)).sum();
    let util = work / (f64::from(processors) * end.saturating_sub(begin).max(1) as f64);
    Outcomes { short_s: mean(true), other_s: mean(false), util: (util * 1e4).round() / 1e4, asides: schedule.asides }
}
