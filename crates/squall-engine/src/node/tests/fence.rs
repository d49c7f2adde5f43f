//! Node fences: what comes too late is not started, and what they end is told as such.

use std::sync::Arc;

use squall_model::id::StepNo;
use squall_model::report::Report;
use squall_model::time::Span;
use squall_model::wire::node::Down;

use super::{World, key, start_job};
use crate::node::{NodeAct, attempt_of};

/// Returns the start of a job with a fence of 30 s.
fn fenced(job: u32) -> Down {
    let mut start = start_job(key(job, StepNo::BATCH), 1);
    if let Down::StartJob { facts, .. } = &mut start {
        let spec = &mut Arc::make_mut(facts).spec;
        Arc::make_mut(spec).options.node_fence_s = Some(30);
    }
    start
}

#[test]
fn a_start_that_comes_after_the_fence_has_passed_is_refused() {
    let mut world = World::new();
    world.run();
    // The daemon was stopped, and the job runs elsewhere by now.
    world.now = world.now + Span::from_secs(60);
    let key = key(1, StepNo::BATCH);
    world.running.insert(attempt_of(key), 1);
    world.acts.clear();
    world.send(vec![fenced(1)]);
    world.run();
    assert!(!world.acts.iter().any(|act| matches!(act, NodeAct::Spawn(_))), "{:?}", world.acts);
    let told = world.ended.get(&key).map(Vec::as_slice);
    assert!(matches!(told, Some([Report::LaunchFailed { node_fault: true, .. }])), "{told:?}");
    assert!(world.gone.contains(&attempt_of(key)));
}
