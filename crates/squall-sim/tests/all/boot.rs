//! Jobs that reboot their nodes, and jobs that wait for nodes that are up: nothing breaks, and planted bugs are found.

use squall_model::time::Span;
use squall_sim::{Mutation, Report, Settings, run};

fn world(seed: u64, mutation: Option<Mutation>) -> Report {
    run(&Settings { seed, nodes: 8, cells: 0, controllers: 0, span: Span::from_secs(1200), mutation, trace: false })
}

#[test]
fn worlds_with_power_saving_hold() {
    for seed in [4, 9, 20, 25, 36, 41] {
        let report = world(seed, None);
        assert!(report.violation.is_none(), "seed {seed}: {:?}", report.violation);
    }
}

#[test]
fn planted_bugs_are_found() {
    for mutation in [Mutation::RebootIgnored, Mutation::RebootUnjournaled, Mutation::DelayIgnored] {
        let found = (1..=100).find(|&seed| world(seed, Some(mutation)).violation.is_some());
        let seed = found.unwrap_or_else(|| panic!("{} is never found", mutation.name()));
        eprintln!("{}: seed {seed}: {:?}", mutation.name(), world(seed, Some(mutation)).violation);
    }
}
