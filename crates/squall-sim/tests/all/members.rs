//! Worlds in which an operator removes nodes and creates them again: no job is lost, none runs twice, no node is stuck.

use squall_model::time::Span;
use squall_sim::{Mutation, Report, Settings, run};

fn world(seed: u64, mutation: Option<Mutation>) -> Report {
    run(&Settings { seed, nodes: 8, cells: 0, controllers: 0, span: Span::from_secs(1200), mutation, trace: false })
}

#[test]
fn nothing_is_violated_where_nodes_come_and_go() {
    for seed in (0..8).map(|n| 16 * n + 7) {
        let report = world(seed, None);
        assert_eq!(report.violation, None, "seed {seed}\n{}", report.trace.join("\n"));
    }
}

#[test]
fn bugs_of_removals_are_found() {
    for mutation in [Mutation::RemovalForgotten, Mutation::KeyKept, Mutation::RevokedAtOnce] {
        let found = (1..=100).find(|&seed| world(seed, Some(mutation)).violation.is_some());
        let seed = found.unwrap_or_else(|| panic!("{} is never found", mutation.name()));
        eprintln!("{}: seed {seed}: {:?}", mutation.name(), world(seed, Some(mutation)).violation);
    }
}
