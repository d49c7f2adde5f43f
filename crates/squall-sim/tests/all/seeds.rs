//! Random worlds: nothing is violated, equal seeds are equal, planted bugs are found.

use squall_model::time::Span;
use squall_sim::{Mutation, Report, Settings, run};

fn world(seed: u64, mutation: Option<Mutation>) -> Report {
    run(&Settings { seed, nodes: 8, cells: 0, controllers: 0, span: Span::from_secs(1200), mutation, trace: false })
}

#[test]
fn nothing_is_violated() {
    for seed in 1..=40 {
        let report = world(seed, None);
        assert_eq!(report.violation, None, "seed {seed}\n{}", report.trace.join("\n"));
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 1..=4 {
        let (first, second) = (world(seed, None), world(seed, None));
        assert_eq!((first.trace_hash, first.steps), (second.trace_hash, second.steps));
        assert_ne!(first.trace_hash, world(seed + 100, None).trace_hash);
    }
}

#[test]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    for &mutation in Mutation::ALL {
        match (1..=100).find(|&seed| world(seed, Some(mutation)).violation.is_some()) {
            Some(seed) => eprintln!("{}: seed {seed}", mutation.name()),
            None => missed.push(mutation.name()),
        }
    }
    assert!(missed.is_empty(), "never found: {missed:?}");
}
