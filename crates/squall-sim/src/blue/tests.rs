//! A short run of each kind; and that nobody disturbs sensitive jobs in prisms.

use super::{Placement, Settings, run};

#[test]
fn prisms_keep_others_traffic_out() {
    let short = |placement| run(&Settings { placement, warm_up_s: 600, window_s: 1200, backlog: 40, seed: 3 });
    let (list, prisms) = (short(Placement::Default), short(Placement::Exact));
    assert!(prisms.stretch < list.stretch, "{prisms:?} {list:?}");
    assert!(prisms.variation < 1e-3, "nothing of others' goes over a prism's links: {prisms:?}");
    assert!(prisms.utilisation > 0.2 && list.utilisation <= 1.0 && prisms.jobs > 0, "{prisms:?} {list:?}");
    assert_eq!(list, short(Placement::Default), "the same seed gives the same run");
}
