//! `bench bluewaters`: the synthetic workload of Blue Waters under different placements: how much of the machine is
//! used, and how much of that users get.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use squall_sim::blue::{Outcome, Placement, Settings, run as simulate};

use super::{Finding, Options, round, spawn};

/// Seeds unless said otherwise.
const SEEDS: u64 = 5;
/// The talk's: utilisation with prisms and by list, and what users got with prisms beside the list.
const TALK: (f64, f64, f64) = (0.77, 0.90, 1.19);
/// How much longer run times were in its default order: what our applications' communication is fitted to.
const TALK_STRETCH: f64 = 1.79;
/// What is to be reached.
const BAR_UTILISATION: f64 = 0.80;

/// Utilisation with prisms by the exact rule; a row for each placement, means over seeds.
pub(super) fn run(options: &Options) -> Result<Finding, String> {
    let seeds = options.seeds.unwrap_or(SEEDS).max(1);
    let mut settings = Settings::default();
    if let Some(window) = options.seconds {
        settings.window_s = window.max(600.0) as u32;
    }
    let each = Placement::ALL.iter().flat_map(|placement| (1..=seeds).map(move |seed| (*placement, seed)));
    let cases: Vec<Settings> = each.map(|(placement, seed)| Settings { placement, seed, ..settings }).collect();
    let outcomes = in_parallel(&cases)?;
    let by_placement: Vec<(Placement, &[Outcome])> =
        Placement::ALL.into_iter().zip(outcomes.chunks(seeds as usize)).collect();
    let base = |pick: fn(&Outcome) -> f64| mean(by_placement[0].1, pick);
    let (base, plain) = (base(|outcome| outcome.throughput), base(|outcome| outcome.efficiency));
    // By the talk's formula: utilisation beside its default scheduler's, times how much shorter run times are.
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

fn mean(all: &[Outcome], pick: impl Fn(&Outcome) -> f64) -> f64 {
    all.iter().map(pick).sum::<f64>() / all.len().max(1) as f64
}

/// From the least to the most.
fn spread(all: &[Outcome], pick: impl Fn(&Outcome) -> f64) -> f64 {
    let values = all.iter().map(pick);
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if low > high { 0.0 } else { high - low }
}

/// One simulation on each hardware thread at a time.
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
