//! Tests: a short run of each placement, and that other jobs do not slow down sensitive jobs in prisms.

use super::{MACHINE, Placement, Settings, Spot, run};

const SHORT: Settings = Settings {
    placement: Placement::Exact,
    seed: 3,
    backlog: 40,
    warm_up_s: 600,
    window_s: 1200,
    equal_runs: false,
    gpu_block: false,
    patterns: false,
    fragmented: false,
};

#[test]
fn prisms_keep_others_traffic_out() {
    let short = |placement| run(&Settings { placement, ..SHORT });
    let (list, prisms) = (short(Placement::Default), short(Placement::Exact));
    assert!(prisms.stretch < list.stretch, "{prisms:?} {list:?}");
    assert!(prisms.variation < 1e-3, "nothing of others' goes over a prism's links: {prisms:?}");
    assert!(prisms.utilisation > 0.2 && list.utilisation <= 1.0 && prisms.jobs > 0, "{prisms:?} {list:?}");
    assert_eq!(list, short(Placement::Default), "the same seed gives the same run");
}

#[test]
fn jobs_of_the_block_with_gpus_stay_there_and_nobody_elses_get_in() {
    for placement in [Placement::Default, Placement::Fixed, Placement::Exact, Placement::ExactScatter] {
        let outcome = run(&Settings { placement, gpu_block: true, ..SHORT });
        let in_block = |cell: usize| cell / 576 < 15 && cell / 24 % 24 < 6;
        let cells = outcome.map.iter().enumerate();
        let inside = |within: bool| {
            let of = cells.clone().filter(move |(cell, _)| in_block(*cell) == within);
            let jobs = of.filter_map(|(_, spot)| if let Spot::Job(job) = spot { Some(*job) } else { None });
            jobs.collect::<std::collections::BTreeSet<u32>>()
        };
        let (with, without) = (inside(true), inside(false));
        assert!(!with.is_empty() && !without.is_empty() && with.is_disjoint(&without), "{placement:?}");
        assert_eq!(outcome.nodes, 27_432, "every node is in one part");
        let service = outcome.map.iter().filter(|spot| **spot == Spot::Service).count();
        assert_eq!((service, outcome.map.len() as u32), (108, MACHINE.iter().product()));
        assert!(outcome.variation < 1e-3 || placement != Placement::Exact, "{outcome:?}");
    }
}

#[test]
fn most_jobs_run_equally_long_if_asked_for() {
    let share = |equal_runs: bool| {
        let jobs = run(&Settings { equal_runs, ..SHORT }).workload;
        let equal = jobs.iter().filter(|job| job.run == 1800).count();
        equal as f64 / jobs.len() as f64
    };
    assert!(share(false) < 0.05 && (0.8..1.0).contains(&share(true)), "{} {}", share(false), share(true));
}

#[test]
fn a_machine_in_pieces_has_no_prisms_at_first() {
    // The whole measured time is within the first hour, so scattered jobs are disturbed.
    let variation = |fragmented| run(&Settings { fragmented, ..SHORT }).variation;
    assert!(variation(false) < 1e-3 && variation(true) > 1e-3, "{} {}", variation(false), variation(true));
}
