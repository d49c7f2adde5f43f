//! What steps used over time: lines of bars for terminals, numbers for JSON.

use std::fmt::Write;

use serde_json::{Value, json};
use squall_model::duration::format_elapsed;
use squall_model::series::{Point, Series};

use super::amount;
use crate::format::accounting::Row;

/// Most bars of a line.
const BARS: usize = 48;

/// Most steps that are shown.
const STEPS: usize = 8;

/// Time without use of a CPU that is pointed out, seconds.
const IDLE_S: u64 = 600;

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns a bar for each value, or for the mean of some where there are many; a space where nothing was measured. The
/// highest level stands for `most`.
fn bars(values: &[Option<f64>], most: f64) -> String {
    let each = values.len().div_ceil(BARS).max(1);
    let bar = |values: &[Option<f64>]| {
        let known: Vec<f64> = values.iter().flatten().copied().collect();
        let mean = (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64);
        let level = |mean: f64| ((mean / most * LEVELS.len() as f64) as usize).min(LEVELS.len() - 1);
        mean.map_or(' ', |mean| LEVELS[if most > 0.0 { level(mean) } else { 0 }])
    };
    values.chunks(each).map(bar).collect()
}

fn greatest(values: &[Option<f64>]) -> f64 {
    values.iter().flatten().copied().fold(0.0, f64::max)
}

/// Returns the lines of the steps with usage over time. Empty: there are none.
pub(super) fn text(steps: &[Row]) -> String {
    let with: Vec<(&Row, &Series)> =
        steps.iter().filter_map(|step| Some((step, step.data.series.as_deref()?))).collect();
    // A script that waits for its steps is not idle.
    let idle = with.iter().all(|(_, series)| series.idle_s() >= IDLE_S);
    let mut text = String::new();
    for (step, series) in with.iter().take(STEPS) {
        let number = step.data.step.map_or(String::new(), |step| step.to_string());
        let point = format_elapsed(u64::from(series.point_s) * series.points.len().div_ceil(BARS).max(1) as u64);
        let _ = writeln!(text, "\n  step {number} over time, a bar is {point}");
        let mut line = |name: &str, values: &[Option<f64>], most: f64, about: String| {
            let _ = writeln!(text, "  {name:<7}{}  {about}", bars(values, most));
        };
        let cpus = series.cpus();
        let held = f64::from(step.data.num_cpus);
        line("CPU", &cpus, held.max(greatest(&cpus)), format!("up to {:.1} of {held}", greatest(&cpus)));
        let kb = series.memory_kb();
        line("memory", &kb, greatest(&kb), format!("up to {}", amount(greatest(&kb) as u64)));
        let gpus = series.gpus();
        if greatest(&gpus) > 0.0 {
            line("GPUs", &gpus, greatest(&gpus), format!("up to {:.1}", greatest(&gpus)));
        }
        if series.nodes > 1 {
            let points = || series.points.iter().filter(|point| point.samples > 0);
            let milli = |value: Option<u32>| f64::from(value.unwrap_or(0)) / 1000.0;
            let (low, high) = (milli(points().map(|p| p.low_milli).min()), milli(points().map(|p| p.high_milli).max()));
            let most = points().map(|point| point.high_kb).max().unwrap_or(0);
            let _ = writeln!(text, "  nodes  {low:.1} to {high:.1} CPUs, and up to {} on one", amount(most));
        }
        if idle {
            let _ = writeln!(text, "  idle   no CPU was used in the last {}", format_elapsed(series.idle_s()));
        }
    }
    if with.len() > STEPS {
        let _ = writeln!(text, "\n  {} more steps have such lines: --json has all.", with.len() - STEPS);
    }
    text
}

/// Returns the GPUs that were at work on average. None: they were not measured.
pub(super) fn gpus(steps: &[Row]) -> Option<f64> {
    let all = steps.iter().filter_map(|step| step.data.series.as_deref()).map(Series::gpus);
    let values: Vec<f64> = all.flatten().flatten().collect();
    (values.iter().sum::<f64>() > 0.0).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns a series as JSON. null: there is none.
pub(super) fn json(series: Option<&Series>) -> Value {
    let Some(series) = series else { return Value::Null };
    let each = |value: fn(&Point) -> u64| series.points.iter().map(value).collect::<Vec<_>>();
    let cpus = |value: fn(&Point) -> u32| {
        series.points.iter().map(|point| f64::from(value(point)) / 1000.0).collect::<Vec<_>>()
    };
    json!({
        "point_seconds": series.point_s,
        "nodes": series.nodes,
        "cpus": series.cpus(),
        "memory_kb": series.memory_kb(),
        "gpus": series.gpus(),
        "read_kb": each(|point| point.read_kb),
        "write_kb": each(|point| point.write_kb),
        "node_cpus_min": cpus(|point| point.low_milli),
        "node_cpus_max": cpus(|point| point.high_milli),
        "node_memory_max_kb": each(|point| point.high_kb),
        "idle_seconds": series.idle_s(),
    })
}
