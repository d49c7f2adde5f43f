//! `bench ettr`: the part of a job's run time that failures leave, for each way to notice one and to go on.
//!
//! By J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps" (2006), equation 9: with
//! failures at exponential intervals of mean M, work of length C between checkpoints and a restart of length R, which may
//! fail as well, C of work takes M exp(R/M) (exp(C/M) - 1) on average.

use serde_json::{Value, json};
use squall_replay::write_picture;
use squall_text::picture::{Axis, Chart, Series, Stroke};

use super::{BenchOptions, Finding, round};

/// Time between two checkpoints, seconds.
const CHECKPOINT_S: f64 = 600.0;
/// Time from the start of a program until it works again, seconds.
const PROGRAM_START_S: f64 = 30.0;
/// Mean time between failures that the figure is for, hours: 16,384 GPUs (Kokolis et al., HPCA 2025).
const MTBF_H: f64 = 1.8;
/// Seconds from the failure until the node's job has its other node and all ranks are started: what `bench/kills`
/// measures beyond the fence and its margin of 2 s.
const REPLACE_S: f64 = 0.5;
/// Ways to go on: name, and seconds from the failure until all ranks are started.
const WAYS: [(&str, f64); 5] = [
    ("the node is set DOWN at once, its place taken", REPLACE_S),
    ("node_fence_s = 10, its place taken", 12.0 + REPLACE_S),
    ("node_fence_s = 30, its place taken", 32.0 + REPLACE_S),
    ("Slurm's SlurmdTimeout of 300 s, requeued, nodes free at once", 300.0),
    ("nothing but a watchdog of 30 minutes in the program", 1800.0),
];

/// Returns the effective training time ratio for a mean time between failures in seconds, if the ranks start again so
/// many seconds after a failure.
fn ratio(mtbf_s: f64, again_s: f64) -> f64 {
    let restart = again_s + PROGRAM_START_S;
    CHECKPOINT_S / (mtbf_s * (restart / mtbf_s).exp() * (CHECKPOINT_S / mtbf_s).exp_m1())
}

/// Returns the ratio of a job whose nodes are replaced under a fence of 10 s, all ways in a table, and draws them.
pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    if let Some(folder) = &options.pictures {
        write_picture(&chart().svg(), folder, "ettr")?;
    }
    let at = |hours: f64, again_s: f64| round(ratio(hours * 3600.0, again_s));
    let row = |(name, again_s): &(&str, f64)| {
        json!({
            "way": name,
            "again_s": again_s,
            "mtbf_0.25h": at(0.25, *again_s),
            "mtbf_1.8h": at(MTBF_H, *again_s),
            "mtbf_7.9h": at(7.9, *again_s),
        })
    };
    let fields = vec![("ways", WAYS.iter().map(row).collect::<Vec<Value>>().into())];
    let bound = (at(MTBF_H, 0.0), "with no time from the failure to the start");
    Ok(Finding { bench: "ettr", figure: at(MTBF_H, WAYS[1].1), unit: "of run time", limit: Some(bound), fields })
}

fn chart() -> Chart {
    let hours = || (0..=50).map(|step| 0.2 * 10_f64.powf(f64::from(step) / 25.0));
    let line = |(color, (name, again_s)): (usize, &(&str, f64))| Series {
        name: (*name).to_owned(),
        stroke: Stroke::Line,
        color,
        points: hours().map(|hours| (hours, ratio(hours * 3600.0, *again_s))).collect(),
    };
    let axis = |label: &str, log| Axis { label: label.into(), log };
    Chart {
        title: "Run time that failures leave (checkpoint each 10 minutes, program starts in 30 s)".into(),
        x: axis("hours between failures of the job", true),
        y: axis("ETTR", false),
        series: WAYS.iter().enumerate().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{CHECKPOINT_S, PROGRAM_START_S, ratio};

    // A failure costs half an interval and the restart, if failures are rare.
    #[test]
    fn rare_failures_cost_half_an_interval_and_the_restart() {
        let (mtbf, again) = (1e7, 20.0);
        let lost = (CHECKPOINT_S / 2.0 + PROGRAM_START_S + again) / mtbf;
        assert!((1.0 - ratio(mtbf, again) - lost).abs() < lost * 0.01);
        assert!(ratio(mtbf, again) > ratio(mtbf, again * 10.0) && ratio(mtbf, again) > ratio(mtbf / 10.0, again));
    }
}
