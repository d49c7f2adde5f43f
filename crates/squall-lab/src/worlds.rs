//! Random worlds and planted bugs of `squall sim`.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Map, Value, json};
use squall_model::time::Span;
use squall_replay::progress::Progress;
use squall_sim::{Coverage, Fault, Mutation, Phase, Report, Settings};
use squall_text::options::flag::Arguments;

/// Maximum number of seeds that may be needed to find a planted bug.
const MUTATION_SEEDS: u64 = 1000;

/// Options of `squall sim`.
struct SimOptions {
    seeds: Option<RangeInclusive<u64>>,
    nodes: u32,
    cells: u32,
    controllers: u32,
    hours: f64,
    json: bool,
    trace: bool,
    mutations: bool,
    mutation: Option<Mutation>,
    threads: usize,
}

/// Simulates the worlds that the options ask for. Returns whether nothing was violated, or every planted bug found.
pub(crate) fn run(given: &Arguments) -> Result<bool, String> {
    let ask = parse(given)?;
    match &ask.seeds {
        Some(seeds) if !ask.mutations => Ok(worlds(&ask, seeds.clone())),
        _ => Ok(mutations(&ask)),
    }
}

fn parse(given: &Arguments) -> Result<SimOptions, String> {
    let mutation = match given.last("mutation") {
        Some(name) => {
            Some(*Mutation::ALL.iter().find(|m| m.name() == name).ok_or(format!("there is no mutation `{name}`"))?)
        }
        None => None,
    };
    let seeds = match (given.last("seeds"), given.parsed::<u64>("seed")?) {
        (Some(range), _) => Some(seeds(range)?),
        (None, seed) => seed.map(|seed| seed..=seed),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let ask = SimOptions {
        seeds,
        nodes: given.parsed("nodes")?.unwrap_or(64),
        cells: given.parsed("cells")?.unwrap_or(0).min(64),
        controllers: given.parsed("controllers")?.unwrap_or(0),
        hours: given.parsed("hours")?.unwrap_or(1.0),
        json: given.has("json"),
        trace: given.has("trace"),
        mutations: given.has("mutations"),
        mutation,
        threads: given.parsed("threads")?.unwrap_or(threads).max(1),
    };
    if ask.seeds.is_none() && !ask.mutations {
        return Err("nothing to simulate: --seeds, --seed or --mutations is needed".into());
    }
    Ok(ask)
}

fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once("..").ok_or(format!("`{text}` should be FIRST..LAST"))?;
    Ok(number(first)?..=number(last.trim_start_matches('='))?)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

impl SimOptions {
    fn settings(&self, seed: u64) -> Settings {
        let span = Span((self.hours * 3_600_000_000.0) as u64);
        let Self { nodes, cells, controllers, mutation, trace, .. } = *self;
        Settings { seed, nodes, cells, controllers, span, mutation, trace }
    }
    /// Returns the command that replays this seed.
    fn replay(&self, seed: u64) -> String {
        let bug = self.mutation.map(|m| format!(" --mutation {}", m.name())).unwrap_or_default();
        let given = |name: &str, n: u32| if n > 0 { format!(" --{name} {n}") } else { String::new() };
        let several = given("cells", self.cells) + &given("controllers", self.controllers);
        format!("squall sim --seed {seed} --nodes {}{several} --hours {}{bug} --trace", self.nodes, self.hours)
    }
}

/// Results of all simulated seeds together.
#[derive(Default)]
struct Sum {
    worlds: u64,
    steps: u64,
    jobs: u64,
    hours: f64,
    coverage: Coverage,
    failures: Vec<Report>,
}

fn worlds(ask: &SimOptions, seeds: RangeInclusive<u64>) -> bool {
    let begin = Instant::now();
    name_seed_in_panics(ask);
    let (next, last) = (AtomicU64::new(*seeds.start()), *seeds.end());
    let sum = Mutex::new(Sum::default());
    let progress = Progress::new((last - seeds.start()) as usize + 1);
    std::thread::scope(|scope| {
        for _ in 0..ask.threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last {
                        return;
                    }
                    CURRENT.set(seed);
                    take(ask, &sum, squall_sim::run(&ask.settings(seed)));
                    progress.more(1);
                }
            });
        }
    });
    progress.end();
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    let elapsed_s = begin.elapsed().as_secs_f64();
    if ask.json {
        crate::print(&format!("{}\n", figures(ask, &sum, elapsed_s)));
    } else {
        let violated = sum.failures.len();
        let size = if ask.cells > 0 { format!("{} cells", ask.cells) } else { format!("{} nodes", ask.nodes) };
        crate::print(&format!(
            "{} worlds of {size}, {:.0} simulated hours, {} jobs, {} events, {:.1} s: {violated} violated\n",
            sum.worlds, sum.hours, sum.jobs, sum.steps, elapsed_s
        ));
    }
    sum.failures.is_empty()
}

thread_local! {
    /// Seed that this thread simulates at present.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// Makes a panic print the command that replays its seed: a release build ends at the first panic.
fn name_seed_in_panics(ask: &SimOptions) {
    let replay = ask.replay(0);
    std::panic::set_hook(Box::new(move |panic| {
        let replay = replay.replacen("--seed 0", &format!("--seed {}", CURRENT.get()), 1);
        eprintln!("violated: machines do not panic: {panic}\n  replay: {replay}");
    }));
}

/// Adds the report of one world to the sums; prints a violation at once.
fn take(ask: &SimOptions, sum: &Mutex<Sum>, report: Report) {
    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
    sum.worlds += 1;
    sum.steps += report.steps;
    sum.jobs += report.jobs;
    sum.hours += report.ended.0 as f64 / 3.6e9;
    sum.coverage.absorb(&report.coverage);
    if ask.trace {
        report.trace.iter().for_each(|line| crate::print(&format!("{line}\n")));
        crate::print(&format!("trace hash {:016x}\n", report.trace_hash));
    }
    if let Some(violation) = &report.violation {
        let ended_s = report.ended.0 as f64 / 1e6;
        eprintln!("seed {} at {ended_s:.6} s {violation}\n  replay: {}", report.seed, ask.replay(report.seed));
        if !ask.trace {
            report.trace.iter().rev().take(25).rev().for_each(|line| eprintln!("  {line}"));
        }
        sum.failures.push(report);
    }
}

fn figures(ask: &SimOptions, sum: &Sum, elapsed_s: f64) -> Value {
    let reached = Fault::ALL.iter().map(|&fault| {
        let phases = Phase::ALL.iter().map(|&phase| (phase.name().into(), sum.coverage.reached(fault, phase).into()));
        let mut row: Map<String, Value> = phases.collect();
        row.insert("struck".into(), sum.coverage.struck(fault).into());
        (fault.name().to_owned(), Value::Object(row))
    });
    let reached: Map<String, Value> = reached.collect();
    let violated = sum.failures.iter().map(|report| {
        let text = report.violation.as_ref().map(ToString::to_string);
        json!({"seed": report.seed, "violation": text, "replay": ask.replay(report.seed)})
    });
    json!({
        "bench": "sim",
        "figure": sum.hours * 3600.0 / elapsed_s,
        "unit": "simulated s/s",
        "worlds": sum.worlds,
        "nodes": ask.nodes,
        "simulated_hours": sum.hours,
        "jobs": sum.jobs,
        "events": sum.steps,
        "elapsed_s": elapsed_s,
        "violated": violated.collect::<Vec<_>>(),
        "sometimes": reached,
    })
}

/// A planted bug, and the first seed with which it was found, with its report. None: it was not found.
type Finding = (Mutation, Option<(u64, Report)>);

fn mutations(ask: &SimOptions) -> bool {
    let next = AtomicU64::new(0);
    let findings: Mutex<Vec<Finding>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..ask.threads {
            scope.spawn(|| {
                while let Some(&mutation) = Mutation::ALL.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let finding = (mutation, hunt(mutation));
                    findings.lock().unwrap_or_else(PoisonError::into_inner).push(finding);
                }
            });
        }
    });
    let mut findings = findings.into_inner().unwrap_or_else(PoisonError::into_inner);
    findings.sort_by_key(|(mutation, _)| *mutation);
    let found = findings.iter().filter(|(_, finding)| finding.is_some()).count();
    if ask.json {
        crate::print(&format!("{}\n", mutation_figures(&findings)));
    } else {
        for (mutation, finding) in &findings {
            let text = match finding {
                Some((seed, Report { violation: Some(violation), .. })) => format!("seed {seed:<5} {violation}"),
                _ => "NOT FOUND".to_owned(),
            };
            crate::print(&format!("{:<28} {text}\n", mutation.name()));
        }
        crate::print(&format!("{found} of {} planted bugs found\n", findings.len()));
    }
    found == findings.len()
}

/// Simulates small worlds, one after the other, until one detects the planted bug. None: none does.
fn hunt(mutation: Mutation) -> Option<(u64, Report)> {
    (1..=MUTATION_SEEDS).find_map(|seed| {
        let settings = Settings {
            seed,
            nodes: 8,
            cells: 0,
            controllers: 0,
            span: Span::from_secs(1200),
            mutation: Some(mutation),
            trace: false,
        };
        let report = squall_sim::run(&settings);
        report.violation.is_some().then_some((seed, report))
    })
}

fn mutation_figures(findings: &[Finding]) -> Value {
    let rows = findings.iter().map(|(mutation, finding)| {
        let violation = finding.as_ref().and_then(|(_, report)| report.violation.as_ref().map(ToString::to_string));
        json!({"mutation": mutation.name(), "seed": finding.as_ref().map(|(seed, _)| seed), "violation": violation})
    });
    let found = findings.iter().filter(|(_, finding)| finding.is_some()).count();
    json!({
        "bench": "mutations",
        "figure": found,
        "unit": "planted bugs found",
        "limit": findings.len(),
        "limit_name": "planted bugs",
        "ratio": found as f64 / findings.len() as f64,
        "mutations": rows.collect::<Vec<_>>(),
    })
}
