//! Tests of random trees under random faults: nothing is lost, and nothing is counted twice.

use std::collections::BTreeMap;

use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};
use squall_model::event::Event;
use squall_model::id::{StepKey, StepNo};
use squall_model::job::JobAttempt;

use super::grove::Grove;
use crate::control::state::job::Phase;

/// Makes an event happen to the tree: `op` chooses which, `arg` its target.
fn happen(grove: &mut Grove, said: &mut BTreeMap<StepKey, u8>, op: u8, arg: u8) {
    let count = grove.nodes.len();
    let node = usize::from(arg) % count;
    match op {
        0..3 => drop(grove.submit(1 + u32::from(arg) % count as u32)),
        3 => drop(grove.step_on(1 + u32::from(arg) % count as u32)),
        4..8 => {
            let live: Vec<StepKey> = grove.nodes[node].disk.spool.keys().copied().collect();
            if let Some(&key) = live.get(usize::from(arg / 16) % live.len().max(1)) {
                let code = (key.job.0 % 7) as u8;
                if grove.finish(node, key, code) && key.step == StepNo::BATCH {
                    said.insert(key, code);
                }
            }
        }
        8 => grove.kill(node),
        9..11 => {
            if grove.nodes[node].machine.is_none() {
                grove.boot(node);
            }
        }
        11 => grove.cut(node),
        12 => grove.stall(Some(node)),
        13 => grove.wake(Some(node)),
        14 => grove.stall(None),
        15 => grove.wake(None),
        16 => grove.restart_root(),
        // Messages under way stay under way.
        17..19 => return,
        _ => grove.pass_s(u64::from(arg % 40)),
    }
    if op.is_multiple_of(2) {
        grove.run();
    }
}

/// Starts all daemons again and lets all work end.
fn wind_up(grove: &mut Grove, said: &mut BTreeMap<StepKey, u8>) {
    grove.wake(None);
    for node in 0..grove.nodes.len() {
        grove.wake(Some(node));
        if grove.nodes[node].machine.is_none() {
            grove.boot(node);
        }
    }
    for _ in 0..200 {
        grove.pass_s(30);
        for node in 0..grove.nodes.len() {
            let live: Vec<StepKey> = grove.nodes[node].disk.spool.keys().copied().collect();
            for key in live {
                let code = (key.job.0 % 7) as u8;
                if grove.finish(node, key, code) && key.step == StepNo::BATCH {
                    said.insert(key, code);
                }
            }
        }
        grove.run();
        let running = grove.c.state().jobs.iter().filter(|(_, job)| matches!(job.phase, Phase::Running(_)));
        let running: Vec<_> = running.map(|(&id, job)| (id, job.spec.kind)).collect();
        for (id, kind) in running {
            if kind != squall_model::job::JobKind::Batch {
                grove.release(id);
            }
        }
        if grove.c.state().jobs.values().all(|job| matches!(job.phase, Phase::Ended(_))) {
            return;
        }
    }
}

/// Returns how many nodes each attempt of a job was given, as the controller's journal records it.
fn given(grove: &Grove) -> BTreeMap<JobAttempt, usize> {
    let started = grove.events.iter().filter_map(|event| match event {
        Event::JobStarted { id, attempt, alloc, .. } => {
            Some((JobAttempt { job: *id, attempt: *attempt }, alloc.nodes().len()))
        }
        _ => None,
    });
    started.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_nothing_counted_twice(
        count in 2usize..24,
        width in 2usize..6,
        story in prop::collection::vec((0u8..24, any::<u8>()), 1..60),
    ) {
        let mut grove = Grove::new(count, width);
        let mut said = BTreeMap::new();
        for (op, arg) in story {
            happen(&mut grove, &mut said, op, arg);
        }
        wind_up(&mut grove, &mut said);
        let left: Vec<_> = grove.c.state().jobs.iter().filter(|(_, job)| !job.is_ended()).collect();
        prop_assert!(left.is_empty(), "{left:?}");
        for (attempt, nodes) in given(&grove) {
            prop_assert_eq!(grove.epilogs(attempt), nodes, "{:?}", attempt);
        }
        for (key, code) in said {
            prop_assert_eq!(grove.ends(key), [(code, 1)].into(), "{}", key);
        }
        for node in &grove.nodes {
            prop_assert!(node.disk.started.values().all(|&times| times == 1), "{:?}", node.disk.started);
        }
        grove.pass_s(60);
        prop_assert_eq!(grove.connected(), count);
        for (at, node) in grove.nodes.iter().enumerate() {
            prop_assert!(node.disk.spool.is_empty() && node.disk.marks.is_empty(), "node {} keeps {:?}", at, node.disk);
        }
    }
}
