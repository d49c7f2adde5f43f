//! `bench gang`: two parallel jobs that share cores by time slices, compared with the same jobs one after the other and
//! with sharing without slices. Also the cost of a switch and of a strobe, and the wait of a short job.

mod pair;
mod wide;

use std::path::Path;
use std::time::Duration;

#[cfg(feature = "research")]
use crate::cosched::{Method, PolicyResult, simulate};
use serde_json::{Value, json};

use self::pair::{Pairs, RankBehaviour};
use super::{BenchOptions, Finding, median, round};
use squall_replay::write_picture;
use squall_text::picture::{Axis, Chart, Series, Stroke};

/// Time slices that are tried by default, microseconds.
const SWEEP_US: [u64; 9] = [300, 1000, 2000, 5000, 10_000, 50_000, 200_000, 1_000_000, 8_000_000];
/// Time slices for which the main figures are measured, microseconds.
const FIGURES_US: [u64; 2] = [2000, 10_000];

/// Number of paired runs (together and one after the other) for each of the main figures.
const PAIRS: u64 = 7;
/// Number of paired runs for each other time slice.
const SWEEP_PAIRS: u64 = 1;

/// Shortest run time of one job, in the paired runs for the main figures.
const FIGURE_WORK: Duration = Duration::from_millis(1500);
/// Shortest run time of one job, in the other paired runs.
const SWEEP_WORK: Duration = Duration::from_millis(800);

/// Computing time between two synchronisations of a job, microseconds.
const GRAINS_US: [u64; 3] = [200, 1000, 5000];

/// Configurations compared for jobs that synchronise: (coscheduling policy, suspend mechanism).
const WAYS: [(&str, &str); 3] = [("gang", "auto"), ("gang", "freeze"), ("implicit", "auto")];

/// Coscheduling policies compared on a workload of real jobs.
const MIXED_BY: [&str; 4] = ["batch", "gang", "flexible", "implicit"];
/// Number of runs of the workload under each policy.
const MIXED_TIMES: u64 = 5;

/// Figures of other gang schedulers from the STORM talk: name, time slice in ms, nodes, slowdown in percent.
const TALK: [(&str, f64, u32, f64); 3] =
    [("RMS", 30_000.0, 15, 1.8), ("SCore-D", 100.0, 64, 2.0), ("STORM", 2.0, 64, 0.0)];

/// Number of simulated workloads on which policies are compared.
#[cfg(feature = "research")]
const SEEDS: u64 = 20;

/// Number of stopped and continued processes when a switch is measured.
const PROCESSES: usize = 32;

/// Returns the slowdown at a time slice of 2 ms in percent, with the allowed slowdown as limit.
pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let mut fields = Vec::new();
    let parts = &options.parts;
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|p| p == part);
    let mut figure = f64::NAN;
    #[cfg(feature = "research")]
    if wants("policies") {
        fields.push(("policies_simulated", policies(options.jobs.unwrap_or(SEEDS))));
    }
    if wants("switch") {
        fields.push(("switch", switch()?));
    }
    if wants("strobe") {
        fields.push(("strobe", wide::strobe(options.nodes.unwrap_or(1000))?));
    }
    if ["sweep", "mpi", "start", "mixed"].into_iter().any(wants) {
        let pairs = Pairs::start()?;
        if wants("sweep") {
            let rows = sweep(&pairs, options)?;
            let at = |row: &&Value| row["quantum_ms"].as_f64() == Some(2.0);
            figure = rows.iter().find(at).and_then(|row| row["slowdown_percent"].as_f64()).unwrap_or(f64::NAN);
            if let Some(folder) = &options.pictures {
                draw(&rows, folder)?;
            }
            fields.push(("talk", talk()));
            fields.push(("cpu_bound", Value::Array(rows)));
        }
        if wants("mpi") {
            fields.push(("synchronising", synchronising(&pairs, options)?));
        }
        if wants("mixed") {
            fields.push(("policies_on_this_machine", mixed(&pairs, options)?));
        }
        if wants("start") {
            fields.push(("short_job_on_a_full_machine", pairs.short_job(Duration::from_millis(200))?));
        }
    }
    let limit = Some((2.0, "percent allowed at 2 ms"));
    Ok(Finding { bench: "gang", figure: round(figure), unit: "percent slower at 2 ms", limit, fields })
}

#[cfg(feature = "research")]
/// Compares all coscheduling policies on the same simulated mixed workloads.
fn policies(seeds: u64) -> Value {
    let row = |method: Method| {
        let fared: Vec<PolicyResult> = (1..=seeds).map(|seed| simulate(method, seed)).collect();
        let mean = |of: fn(&PolicyResult) -> u64| fared.iter().map(of).sum::<u64>() as f64 / seeds.max(1) as f64;
        json!({
            "policy": method.name(),
            "mean_response_s": round(mean(|f| f.response_us) / 1e6),
            "mean_makespan_s": round(mean(|f| f.makespan_us) / 1e6),
            "computed_percent": round(mean(|f| f.computed_ppm) / 1e4),
            "seeds": seeds,
        })
    };
    Value::Array(Method::ALL.map(row).to_vec())
}

fn switch() -> Result<Value, String> {
    let cost = squall_host::gang::trial(PROCESSES).map_err(|e| format!("stopping and waking: {e}"))?;
    let row = |(way, cost): &(&str, [Duration; 2])| {
        let us = |time: Duration| time.as_micros() as u64;
        json!({"way": way, "processes": PROCESSES, "median_us": us(cost[0]), "worst_us": us(cost[1])})
    };
    Ok(Value::Array(cost.iter().map(row).collect()))
}

fn sweep(pairs: &Pairs, options: &BenchOptions) -> Result<Vec<Value>, String> {
    let swept = if options.quanta_us.is_empty() { SWEEP_US.to_vec() } else { options.quanta_us.clone() };
    let mut rows = Vec::new();
    for us in swept {
        let (usual, least) = if FIGURES_US.contains(&us) { (PAIRS, FIGURE_WORK) } else { (SWEEP_PAIRS, SWEEP_WORK) };
        let work = Duration::from_micros(us * 2).max(least);
        rows.push(pairs.compare(us, options.jobs.unwrap_or(usual), work)?);
    }
    Ok(rows)
}

/// Compares jobs that synchronise: with time slices (where waiting tasks yield, or are frozen) and without.
fn synchronising(pairs: &Pairs, options: &BenchOptions) -> Result<Value, String> {
    let work = Duration::from_secs(2);
    let mut rows = Vec::new();
    let times = options.jobs.unwrap_or(3).max(1);
    for grain_us in GRAINS_US {
        let mut found = [Vec::new(), Vec::new(), Vec::new()];
        let kind = RankBehaviour::Meets { grain_us };
        for _ in 0..times {
            for ((policy, switch), found) in WAYS.into_iter().zip(&mut found) {
                pairs.configure(policy, switch, 10_000)?;
                found.push(pairs.together(kind, work, false)?.makespan);
            }
        }
        let [ganged, frozen, free] = found.map(|mut all| median(&mut all));
        rows.push(json!({
            "barrier_every_us": grain_us,
            "ganged_ms": round(ganged * 1e3),
            "frozen_ms": round(frozen * 1e3),
            "unganged_ms": round(free * 1e3),
            "gain": round(free / ganged),
            "gain_frozen": round(free / frozen),
        }));
    }
    Ok(Value::Array(rows))
}

/// Compares the policies on one mixed workload of real jobs.
fn mixed(pairs: &Pairs, options: &BenchOptions) -> Result<Value, String> {
    let mut found = MIXED_BY.map(|policy| (policy, Vec::new()));
    for _ in 0..options.jobs.unwrap_or(MIXED_TIMES).max(1) {
        for (policy, responses) in &mut found {
            responses.push(pairs.mixed(policy)?);
        }
    }
    let row = |(policy, mut responses): (&str, Vec<f64>)| {
        let middle = median(&mut responses);
        let [least, most] = [responses.first(), responses.last()].map(|at| round(at.copied().unwrap_or(f64::NAN)));
        json!({"policy": policy, "mean_response_s": round(middle), "least": least, "most": most})
    };
    Ok(Value::Array(found.map(row).to_vec()))
}

fn talk() -> Value {
    let row = |(name, quantum_ms, nodes, percent): &(&str, f64, u32, f64)| json!({"system": name, "quantum_ms": quantum_ms, "nodes": nodes, "slowdown_percent": percent});
    Value::Array(TALK.iter().map(row).collect())
}

fn draw(rows: &[Value], folder: &Path) -> Result<(), String> {
    let point = |row: &Value| Some((row["quantum_ms"].as_f64()?, row["slowdown_percent"].as_f64()?));
    let ours = Series {
        name: "Squall, one node".into(),
        stroke: Stroke::Line,
        color: 0,
        points: rows.iter().filter_map(point).collect(),
    };
    let theirs = TALK.iter().enumerate().map(|(at, (name, quantum_ms, nodes, percent))| Series {
        name: format!("{name}, {nodes} nodes"),
        stroke: Stroke::Dots,
        color: at + 1,
        points: vec![(*quantum_ms, *percent)],
    });
    let chart = Chart {
        title: "Two jobs in turns, against one after the other".into(),
        x: Axis { label: "slot, ms".into(), log: true },
        y: Axis { label: "slower by, percent".into(), log: false },
        series: std::iter::once(ours).chain(theirs).collect(),
    };
    write_picture(&chart.svg(), folder, "gang")
}
