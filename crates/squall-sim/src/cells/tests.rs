//! Tests: invariants hold for random seeds of cells, and equal seeds give equal runs.

use squall_model::time::Span;

use super::run;
use crate::run::Settings;

fn settings(seed: u64) -> Settings {
    Settings {
        seed,
        nodes: 0,
        cells: 2 + (seed % 3) as u32,
        controllers: 0,
        span: Span::from_secs(120),
        mutation: None,
        trace: false,
    }
}

#[test]
fn some_worlds_hold() {
    for seed in 1..=40 {
        let report = run(&settings(seed));
        assert_eq!(report.violation, None, "seed {seed}: {:#?}", report.trace);
        assert!(report.jobs > 0);
    }
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let course = |report: crate::run::Report| (report.trace_hash, report.steps, report.jobs);
    assert_eq!(course(run(&settings(7))), course(run(&settings(7))));
}
