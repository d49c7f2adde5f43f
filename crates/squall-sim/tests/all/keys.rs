//! Worlds in which an operator rotates the controllers' keys: no message is lost by that, and no node is locked out.

use squall_model::time::Span;
use squall_sim::{Mutation, Report, Settings, run};

fn world(seed: u64, mutation: Option<Mutation>) -> Report {
    run(&Settings { seed, nodes: 8, cells: 0, controllers: 0, span: Span::from_secs(1200), mutation, trace: false })
}

#[test]
fn nothing_is_violated_where_keys_rotate() {
    for seed in (0..8).map(|n| 4 * n + 2) {
        let report = world(seed, None);
        assert_eq!(report.violation, None, "seed {seed}\n{}", report.trace.join("\n"));
    }
}

#[test]
fn a_node_that_is_not_told_of_a_rotation_is_found() {
    let mutation = Mutation::KeyUntold;
    let found = (1..=100).find(|&seed| world(seed, Some(mutation)).violation.is_some());
    let seed = found.unwrap_or_else(|| panic!("{} is never found", mutation.name()));
    eprintln!("{}: seed {seed}: {:?}", mutation.name(), world(seed, Some(mutation)).violation);
}
