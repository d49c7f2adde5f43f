//! `bench bluewaters`: a synthetic workload of Blue Waters with different placements. Measures how much of the machine
//! is used, and how much work jobs get done with that.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::blue::{MACHINE, Outcome, Placement, Settings, Spot, run as simulate};
use serde_json::{Value, json};
use squall_replay::Trace;

use super::{BenchOptions, Finding, round, spawn};
use squall_replay::write_picture;
use squall_text::picture::slices::{Shade, Slices};
use squall_text::picture::{Axis, Chart, Series, Stroke};

/// Default number of seeds, each of which gives another workload.
const SEEDS: u64 = 5;
/// Results of the Blue Waters talk of 2014: utilisation with prisms, utilisation in list order, and how many times more
/// work users got done with prisms than in list order.
const TALK: (f64, f64, f64) = (0.77, 0.90, 1.19);
/// How many times longer jobs ran in the default order of the Blue Waters talk. The communication of the simulated
/// applications is fitted to it.
const TALK_STRETCH: f64 = 1.79;
/// Target of this benchmark: utilisation of the machine with prisms.
const BAR_UTILISATION: f64 = 0.80;

/// Returns the utilisation with prisms by the exact rule, and a row for each placement; means over all seeds.
pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let seeds = options.seeds.unwrap_or(SEEDS).max(1);
    let mut settings = Settings::default();
    if let Some(window) = options.seconds {
        settings.window_s = window.max(600.0) as u32;
    }
    if let Some(backlog) = options.pending {
        settings.backlog = backlog.max(1) as usize;
    }
    for variant in &options.variants {
        vary(&mut settings, variant)?;
    }
    let each = Placement::ALL.iter().flat_map(|placement| (1..=seeds).map(move |seed| (*placement, seed)));
    let cases: Vec<Settings> = each.map(|(placement, seed)| Settings { placement, seed, ..settings }).collect();
    let outcomes = in_parallel(&cases)?;
    let by_placement: Vec<(Placement, &[Outcome])> =
        Placement::ALL.into_iter().zip(outcomes.chunks(seeds as usize)).collect();
    if let Some(folder) = &options.pictures {
        draw(&by_placement, folder)?;
    }
    if let Some(file) = &options.swf {
        let text = as_trace(&by_placement).ok_or("nothing was run")?;
        std::fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let base = |pick: fn(&Outcome) -> f64| mean(by_placement[0].1, pick);
    let (base, plain) = (base(|outcome| outcome.throughput), base(|outcome| outcome.efficiency));
    // The gain by the talk's formula: utilisation relative to its default scheduler's, times the shortening of run
    // times.
    let by_talk = |all: &[Outcome]| {
        mean(all, |outcome| outcome.utilisation) / TALK.1 * mean(all, |outcome| outcome.efficiency) / plain
    };
    let row = |(placement, all): &(Placement, &[Outcome])| {
        let throughput = mean(all, |outcome| outcome.throughput);
        let idle = |kind: usize| round(mean(all, |outcome| outcome.idle[kind]));
        json!({
            "placement": placement.name(),
            "utilisation": round(mean(all, |outcome| outcome.utilisation)),
            "spread": round(spread(all, |outcome| outcome.utilisation)),
            "efficiency": round(mean(all, |outcome| outcome.efficiency)),
            "throughput": round(throughput),
            "against_default": round(throughput / base),
            "gain": round(mean(all, |outcome| outcome.efficiency) / plain),
            "by_talk": round(by_talk(all)),
            "idle_in_prisms": idle(0),
            "idle_kept": idle(1),
            "idle_elsewhere": idle(2),
            "stretch": round(mean(all, |outcome| outcome.stretch)),
            "cov_percent": round(mean(all, |outcome| outcome.variation) * 100.0),
            "jobs": mean(all, |outcome| outcome.jobs as f64).round(),
            "wait_s": mean(all, |outcome| outcome.mean_wait_s).round(),
            "large_share": round(mean(all, |outcome| outcome.large)),
        })
    };
    let rows: Vec<Value> = by_placement.iter().map(row).collect();
    let exact =
        by_placement.iter().find(|(placement, _)| *placement == Placement::Exact).map_or(&[][..], |(_, all)| all);
    let figure = round(mean(exact, |outcome| outcome.utilisation));
    let gain = mean(exact, |outcome| outcome.throughput) / base;
    let fields = vec![
        ("seeds", json!(seeds)),
        ("backlog", json!(settings.backlog)),
        ("variants", json!(options.variants.join(" "))),
        ("effective_throughput", json!(round(gain))),
        ("effective_throughput_by_talk", json!(round(by_talk(exact)))),
        ("cov_percent", json!(round(mean(exact, |outcome| outcome.variation) * 100.0))),
        ("talk_utilisation", json!([TALK.0, TALK.1])),
        ("talk_effective_throughput", json!(TALK.2)),
        ("talk_stretch_in_default_order", json!(TALK_STRETCH)),
        ("placements", Value::Array(rows)),
    ];
    let limit = Some((BAR_UTILISATION, "the bar"));
    Ok(Finding { bench: "bluewaters", figure, unit: "of the machine used (model), all in prisms", limit, fields })
}

/// Applies the variant of the workload that is named on the command line to the settings.
fn vary(settings: &mut Settings, variant: &str) -> Result<(), String> {
    let switch = match variant {
        "equal" => &mut settings.equal_runs,
        "gpus" => &mut settings.gpu_block,
        "patterns" => &mut settings.patterns,
        "fragmented" => &mut settings.fragmented,
        other => {
            return Err(format!("--variant: there is no `{other}`, but equal, gpus, patterns and fragmented"));
        }
    };
    *switch = true;
    Ok(())
}

fn mean(all: &[Outcome], pick: impl Fn(&Outcome) -> f64) -> f64 {
    all.iter().map(pick).sum::<f64>() / all.len().max(1) as f64
}

/// Returns the difference between the largest and the smallest value that `pick` takes from the outcomes.
fn spread(all: &[Outcome], pick: impl Fn(&Outcome) -> f64) -> f64 {
    let values = all.iter().map(pick);
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if low > high { 0.0 } else { high - low }
}

/// Runs all simulations, one at a time on each hardware thread.
fn in_parallel(cases: &[Settings]) -> Result<Vec<Outcome>, String> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut found = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(at) else { return found };
            found.push((at, simulate(case)));
        }
    };
    let mut all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..spawn::cores()).map(|_| scope.spawn(worker)).collect();
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| "a simulation failed".to_owned()));
        joined.collect::<Result<Vec<_>, _>>().map(|lists| lists.concat())
    })?;
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Draws two pictures: utilisation and job speed of each placement, one dot a seed; and the machine's occupation at the
/// end of a seed, in list order and in prisms.
fn draw(by_placement: &[(Placement, &[Outcome])], folder: &Path) -> Result<(), String> {
    let dots = |(color, (placement, all)): (usize, &(Placement, &[Outcome]))| Series {
        name: placement.name(),
        stroke: Stroke::Dots,
        color,
        points: all.iter().map(|outcome| (outcome.utilisation, outcome.efficiency)).collect(),
    };
    let axis = |label: &str| Axis { label: label.into(), log: false };
    let chart = Chart {
        title: "Synthetic Blue Waters: what is used, and what jobs get of it".into(),
        x: axis("share of the machine that is used"),
        y: axis("speed of jobs, beside the widest prism alone"),
        series: by_placement.iter().enumerate().map(dots).collect(),
    };
    write_picture(&chart.svg(), folder, "bluewaters")?;
    for (placement, name) in [(Placement::Default, "bluewaters-list"), (Placement::Exact, "bluewaters-prisms")] {
        let found = by_placement.iter().find(|(other, _)| *other == placement);
        if let Some(outcome) = found.and_then(|(_, all)| all.first()) {
            write_picture(&who_is_where(placement, outcome).svg(), folder, name)?;
        }
    }
    Ok(())
}

/// Draws slices of the machine across y, every sixth, with a colour for each job.
fn who_is_where(placement: Placement, outcome: &Outcome) -> Slices {
    let [x, y, z] = MACHINE;
    let shade = |spot: &Spot| -> Shade {
        match spot {
            Spot::Service => None,
            Spot::Free => Some([0.0, 0.0, 0.94]),
            // Steps by the golden ratio give neighbours different hues.
            Spot::Job(job) => {
                let turn = |by: f64| (f64::from(*job) * by).fract();
                Some([turn(0.618_034), 0.45 + 0.4 * turn(0.414_214), 0.42 + 0.3 * turn(0.732_051)])
            }
        }
    };
    let cut = |at: u32| {
        let cells = (0..z).flat_map(|down| (0..x).map(move |across| ((across * y + at) * z + down) as usize));
        (format!("y={at}"), cells.map(|cell| outcome.map.get(cell).and_then(shade)).collect())
    };
    Slices {
        title: format!("Who is where on a synthetic Blue Waters: {}", placement.name()),
        note: "a colour for each job; light: free; dark: service nodes".into(),
        axes: ("x".into(), "z".into()),
        extents: (x, z),
        cell: 13,
        gap: 0,
        cuts: (0..y).step_by(6).map(cut).collect(),
    }
}

/// Returns the jobs of the first seed with the placement `Exact` as a workload trace, with the run time that each has
/// alone. None: this placement was not simulated.
fn as_trace(by_placement: &[(Placement, &[Outcome])]) -> Option<String> {
    let (_, all) = by_placement.iter().find(|(placement, _)| *placement == Placement::Exact)?;
    let outcome = all.first()?;
    let trace = Trace { jobs: outcome.workload.clone(), processors: Some(outcome.nodes), ..Trace::default() };
    Some(trace.text("synthetic Blue Waters, made by `squall bench bluewaters`: a processor is a node"))
}

#[cfg(test)]
mod tests {
    use crate::blue::{Outcome, Placement, Settings, Spot, run};
    use squall_replay::Trace;

    use super::{as_trace, who_is_where};

    #[test]
    fn a_run_is_a_trace_and_a_picture() {
        let short = Settings { warm_up_s: 600, window_s: 600, backlog: 30, ..Settings::default() };
        let outcome = run(&short);
        let all: &[Outcome] = std::slice::from_ref(&outcome);
        let trace = Trace::read(&as_trace(&[(Placement::Exact, all)]).unwrap(), None).unwrap();
        assert_eq!((trace.jobs.len(), trace.processors), (outcome.workload.len(), Some(27_432)));
        assert!(trace.jobs.iter().all(|job| job.estimate >= job.run && job.processors <= 6000));
        let picture = who_is_where(Placement::Exact, &outcome);
        let cells = || picture.cuts.iter().flat_map(|(_, cells)| cells);
        assert_eq!((picture.cuts.len(), cells().count()), (4, 4 * 24 * 24));
        let service = outcome.map.iter().filter(|spot| **spot == Spot::Service).count();
        assert!(service == 108 && cells().any(Option::is_none) && outcome.map.contains(&Spot::Free));
    }
}
