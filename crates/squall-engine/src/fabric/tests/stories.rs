//! Tests of what must hold of a whole tree.

use squall_model::id::StepKey;
use squall_model::job::Usage;
use squall_model::series::{Point, Series, Used};
use squall_model::set::NodeSet;
use squall_model::time::Span;
use squall_model::wire::client::{Answer, JobRef, JobSelection, Refusal, Request};
use squall_model::wire::counts::NodeCounts;
use squall_model::wire::fabric::{Comparison, Test, Variable};
use squall_model::wire::node::{Down, SignalTarget};
use squall_model::wire::stepd::ToStepd;

use super::grove::{Grove, name};
use crate::control::CallerId;
use crate::node::NodeAct;

/// Returns the signals that a node's tasks got, in order.
fn signals(grove: &Grove, node: usize) -> Vec<i32> {
    let acts = grove.nodes[node].acts.iter();
    let signals = acts.filter_map(|act| match act {
        NodeAct::Tell { message: ToStepd::Signal { signal, .. }, .. } => Some(*signal),
        _ => None,
    });
    signals.collect()
}

fn is(value: i64) -> Test {
    Test { variable: Variable::Named("x".into()), comparison: Comparison::Equal, value }
}

fn query(test: Test, wait: bool, write: Option<i64>, time_ms: u64) -> Request {
    let write = write.map(|value| (Variable::Named("x".into()), value));
    Request::QueryNodes { nodes: String::new(), test, wait, write, time_ms }
}

/// Returns the answer to the last query: nodes where the test does not hold, and nodes that did not answer.
fn queried(grove: &mut Grove) -> Option<(Vec<String>, Vec<String>)> {
    match grove.answers.pop() {
        Some((_, Answer::Queried { no, unreachable })) => Some((no, unreachable)),
        _ => None,
    }
}

fn all(grove: &mut Grove, test: Test) -> bool {
    grove.ask(9, query(test, false, None, 1000));
    queried(grove) == NONE
}

const NONE: Option<(Vec<String>, Vec<String>)> = Some((vec![], vec![]));

#[test]
fn a_put_reaches_exactly_its_set_once_and_in_order() {
    let mut grove = Grove::new(23, 3);
    let step = grove.step_on(23);
    let job = grove.attempt(step.job);
    grove.quiet();
    let sets = [vec![0, 1, 2], vec![22], vec![5, 9, 13, 17, 21], (0..23).collect(), vec![0, 22], vec![7]];
    for (signal, set) in (1..).zip(&sets) {
        let to = grove.ids(set.iter().copied());
        grove.c.links.put(&to, Down::Signal { job, target: SignalTarget::All, signal });
    }
    grove.pass(Span(0));
    grove.ask(1, Request::Ping);
    for node in 0..23 {
        let expected: Vec<i32> = (1..).zip(&sets).filter(|(_, set)| set.contains(&node)).map(|(n, _)| n).collect();
        assert_eq!(signals(&grove, node), expected, "node {node}");
    }
}

#[test]
fn the_end_of_a_wide_job_is_few_messages() {
    let mut grove = Grove::new(200, 8);
    let step = grove.step_on(200);
    grove.quiet();
    grove.finish_all(step, 3);
    grove.run();
    assert_eq!((grove.ends(step), grove.reports), ([(3, 200)].into(), 200));
    assert!(grove.composites <= 48, "{} messages for 200 ends", grove.composites);
    grove.quiet();
    grove.release(step.job);
    assert_eq!((grove.epilogs(grove.attempt(step.job)), grove.reports), (200, 200));
    assert!(grove.composites <= 48, "{} messages for 200 epilogs", grove.composites);
    assert_eq!(grove.c.diag().fabric.node_epilogs, 200);
}

#[test]
fn a_slow_controller_gets_the_fewer_messages() {
    let mut grove = Grove::new(100, 4);
    let step = grove.step_on(100);
    grove.quiet();
    grove.stall(None);
    grove.finish_all(step, 0);
    grove.run();
    grove.wake(None);
    grove.run();
    assert_eq!(grove.ends(step), [(0, 100)].into());
    // From each of four children come one composite for every level below it, and one with all the rest.
    assert!(grove.composites <= 24, "{} messages for 100 ends", grove.composites);
}

#[test]
fn an_answer_is_true_or_false_or_unreachable() {
    let mut grove = Grove::new(20, 2);
    assert!(all(&mut grove, is(0)));
    let to = grove.ids([4, 5]);
    grove.c.links.put(&to, Down::Write { variable: Variable::Named("x".into()), value: 8 });
    grove.ask(9, query(is(0), false, None, 1000));
    assert_eq!(queried(&mut grove), Some((vec!["n4".into(), "n5".into()], vec![])));
    // A node that hangs is named; the others answer in time.
    let leaf = (0..20).rev().find(|&node| (0..20).all(|n| grove.above(n).first() != Some(&node))).unwrap();
    grove.stall(Some(leaf));
    grove.ask(9, query(is(0), false, None, 1000));
    assert_eq!(queried(&mut grove), None);
    grove.pass(Span::from_millis(1000));
    assert_eq!(queried(&mut grove), Some((vec!["n4".into(), "n5".into()], vec![name(leaf)])));
}

/// faults.md A11: until a step daemon has acknowledged the end, tasks may still begin there.
#[test]
fn a11_scancel_is_answered_when_all_step_daemons_have_heard_of_it() {
    let mut grove = Grove::new(6, 3);
    let step = grove.step_on(6);
    grove.quiet();
    let jobs = JobSelection { ids: vec![JobRef::Job(step.job)], ..JobSelection::default() };
    grove.ask(9, Request::Cancel { jobs, signal: None, step: None, verbose: true });
    let answered = |grove: &Grove| grove.answers.iter().any(|(caller, _)| *caller == CallerId(9));
    for node in 0..6 {
        assert!(!answered(&grove), "{node} has yet to hear of it");
        grove.heed(node, step);
    }
    assert!(answered(&grove));
}

/// Usage over time of so many nodes: one point.
fn over_time(nodes: u32, samples: u32, cpu_ms: u32) -> Series {
    let point = Point { samples, cpu_ms: u64::from(cpu_ms), ..Point::default() };
    Series { nodes, points: vec![point], ..Series::default() }
}

#[test]
fn what_a_step_uses_is_asked_of_its_nodes_and_comes_as_one_sum() {
    let mut grove = Grove::new(20, 3);
    let step = grove.step_on(20);
    grove.quiet();
    let asks = Request::Measure { job: step.job, step: step.step, lately: false };
    let asked = |grove: &Grove| {
        let tells = |node: &usize| {
            let usage = NodeAct::Tell { key: step, message: ToStepd::Usage };
            grove.nodes[*node].acts.contains(&usage)
        };
        (0..20).filter(tells).collect::<Vec<_>>()
    };
    let usage = |node: usize| Used {
        usage: Usage { max_rss_kb: 10 + node as u64, total_rss_kb: 7, ..Usage::default() },
        series: Some(Box::new(over_time(1, 1, node as u32))),
    };
    for round in 1..3 {
        grove.quiet();
        grove.ask(9, asks.clone());
        assert_eq!(asked(&grove), (0..20).collect::<Vec<_>>(), "round {round}: measured when asked, each time anew");
        assert_eq!(grove.answers, [], "nothing is told of what was not measured");
        (0..20).for_each(|node| grove.say_usage(node, step, usage(node)));
        let all = Usage { max_rss_kb: 29, total_rss_kb: 140, ..Usage::default() };
        assert_eq!(
            grove.answers.pop().map(|(_, answer)| answer),
            Some(Answer::Measured(all, 0, Some(Box::new(over_time(20, 20, 190)))))
        );
    }
    // A node where the step has ended has no usage to measure, and a silent one does not delay the answer for long.
    grove.quiet();
    grove.finish(5, step, 0);
    let leaf = (0..20).rev().find(|&node| (0..20).all(|n| grove.above(n).first() != Some(&node))).unwrap();
    grove.stall(Some(leaf));
    grove.ask(9, asks.clone());
    let left: Vec<usize> = (0..20).filter(|node| ![5, leaf].contains(node)).collect();
    for &node in &left {
        grove.say_usage(node, step, usage(node));
    }
    grove.pass_s(4);
    let most = 10 + *left.last().unwrap() as u64;
    let cpu_ms = left.iter().sum::<usize>() as u32;
    let some = Usage { max_rss_kb: most, total_rss_kb: 7 * 18, ..Usage::default() };
    assert_eq!(
        grove.answers.pop().map(|(_, answer)| answer),
        Some(Answer::Measured(some, 2, Some(Box::new(over_time(18, 18, cpu_ms)))))
    );
    grove.wake(Some(leaf));
    grove.finish_all(step, 0);
    grove.run();
    grove.ask(9, asks);
    assert_eq!(grove.answers.pop().map(|(_, answer)| answer), Some(Answer::Refused(Refusal::InvalidStepId)));
}

#[test]
fn a_query_waits_until_it_holds_or_time_is_up() {
    let mut grove = Grove::new(20, 2);
    grove.ask(9, query(is(1), true, None, 60_000));
    grove.pass_s(5);
    assert_eq!(queried(&mut grove), None);
    let everybody = grove.c.links.connected().clone();
    let (last, variable) = (grove.ids([19]), || Variable::Named("x".into()));
    let mut most = everybody.clone();
    most.subtract(&last);
    grove.c.links.put(&most, Down::Write { variable: variable(), value: 1 });
    grove.pass_s(5);
    assert_eq!(queried(&mut grove), None);
    grove.c.links.put(&last, Down::Write { variable: variable(), value: 1 });
    grove.pass(Span(0));
    grove.ask(8, Request::Ping);
    assert!(grove.answers.contains(&(CallerId(9), Answer::Queried { no: vec![], unreachable: vec![] })));
    grove.answers.clear();
    grove.ask(9, query(is(2), true, None, 2000));
    grove.pass(Span::from_millis(1700));
    assert_eq!(queried(&mut grove), None);
    grove.pass(Span::from_millis(300));
    assert_eq!(queried(&mut grove).map(|(no, silent)| (no.len(), silent)), Some((20, vec![])));
}

#[test]
fn of_two_queries_that_write_all_nodes_have_the_same_value() {
    let mut grove = Grove::new(20, 3);
    grove.stall(None);
    for value in [1, 2] {
        let test = Test { variable: Variable::Heard, comparison: Comparison::AtLeast, value: 0 };
        grove.ask(9, query(test, false, Some(value), 1000));
    }
    grove.wake(None);
    grove.run();
    assert_eq!((queried(&mut grove), queried(&mut grove)), (NONE, NONE));
    assert!(all(&mut grove, is(2)));
    // All or none: with one node that can't be reached, nothing is written.
    grove.stall(Some(19));
    grove.ask(9, query(is(2), false, Some(3), 1000));
    grove.pass_s(1);
    assert_eq!(queried(&mut grove), Some((vec![], vec![name(19)])));
    grove.wake(Some(19));
    grove.run();
    assert!(all(&mut grove, is(2)));
}

#[test]
fn when_a_collector_dies_nothing_is_lost_or_counted_twice() {
    for width in [2, 4] {
        let mut grove = Grove::new(40, width);
        let step = grove.step_on(40);
        let job = grove.attempt(step.job);
        grove.quiet();
        // Half has ended, and the reports are under way, when a node in the middle dies.
        let middle = (0..40).find(|&node| !grove.above(node).is_empty() && grove.above(39).contains(&node));
        let middle = middle.unwrap_or(grove.above(39)[0]);
        grove.stall(Some(middle));
        grove.finish_on((0..40).step_by(2), step, 1);
        grove.run();
        grove.kill(middle);
        grove.run();
        let up = (0..40).filter(|&node| node != middle);
        assert!(up.clone().all(|node| grove.nodes[node].machine.as_ref().unwrap().session().is_some()));
        assert_eq!(grove.connected(), 39, "all the others are back at once");
        for node in up.filter(|&node| grove.above(node).first() == Some(&middle)) {
            assert_eq!(grove.parent(node), grove.above(middle).first().copied(), "with the grandparent");
        }
        grove.finish_on((1..40).step_by(2), step, 1);
        grove.run();
        assert_eq!(grove.ends(step), [(1, 39)].into());
        grove.finish(middle, step, 1);
        grove.boot(middle);
        grove.run();
        assert_eq!(grove.ends(step), [(1, 40)].into());
        grove.release(step.job);
        assert_eq!((grove.epilogs(job), grove.c.diag().fabric.node_epilogs), (40, 40));
        // After a while all nodes are back with their own parents.
        grove.pass_s(45);
        for node in 0..40 {
            assert_eq!(grove.parent(node), grove.above(node).first().copied(), "node {node}");
        }
        assert_eq!(grove.connected(), 40);
    }
}

#[test]
fn a_collector_that_hangs_is_left_and_only_it_is_lost() {
    let mut grove = Grove::new(30, 3);
    let hangs = *grove.above(29).last().unwrap();
    grove.stall(Some(hangs));
    grove.pass_s(60);
    let lost: NodeSet = grove.ids([hangs]);
    let mut missing = grove.ids(0..30);
    missing.subtract(grove.c.links.connected());
    assert_eq!(missing, lost);
    grove.wake(Some(hangs));
    grove.pass_s(60);
    assert_eq!(grove.connected(), 30);
    assert!((0..30).all(|node| grove.parent(node) == grove.above(node).first().copied()));
}

#[test]
fn a_dead_node_is_found_within_three_heartbeats() {
    let mut grove = Grove::new(30, 3);
    grove.pass_s(35);
    let leaf = 29;
    grove.stall(Some(leaf));
    grove.pass_s(30);
    let mut missing = grove.ids(0..30);
    missing.subtract(grove.c.links.connected());
    assert_eq!(missing, grove.ids([leaf]));
}

#[test]
fn a_connection_that_breaks_is_made_again_and_nothing_is_told_twice() {
    let mut grove = Grove::new(13, 3);
    let step = grove.step_on(13);
    let job = grove.attempt(step.job);
    grove.quiet();
    for signal in 1..=26 {
        grove.cut(signal as usize % 13);
        grove.run();
        assert_eq!(grove.connected(), 13);
        let everybody = grove.c.links.connected().clone();
        grove.c.links.put(&everybody, Down::Signal { job, target: SignalTarget::All, signal });
        grove.ask(1, Request::Ping);
    }
    for node in 0..13 {
        assert_eq!(signals(&grove, node), (1..=26).collect::<Vec<_>>(), "node {node}");
    }
    grove.finish_all(step, 0);
    grove.run();
    assert_eq!(grove.ends(step), [(0, 13)].into());
}

#[test]
fn another_controller_finds_all_nodes_and_what_they_have_to_say() {
    let mut grove = Grove::new(40, 3);
    let step = grove.step_on(40);
    let job = grove.attempt(step.job);
    grove.stall(None);
    grove.finish_on((0..40).step_by(3), step, 5);
    grove.run();
    grove.restart_root();
    grove.pass_s(1);
    assert_eq!((grove.connected(), grove.ends(step)), (40, [(5, 14)].into()));
    grove.finish_all(step, 5);
    grove.run();
    grove.release(step.job);
    assert_eq!((grove.ends(step), grove.epilogs(job)), ([(5, 40)].into(), 40));
}

#[test]
fn an_idle_tree_keeps_its_sessions_and_says_little() {
    let mut grove = Grove::new(50, 4);
    let sessions = |grove: &Grove| -> Vec<_> {
        grove.nodes.iter().map(|node| node.machine.as_ref().unwrap().session().unwrap().0).collect()
    };
    let (before, composites) = (sessions(&grove), grove.composites);
    grove.pass_s(600);
    assert_eq!(sessions(&grove), before);
    assert_eq!(grove.composites, composites, "answers to heartbeats tell all there is to tell");
}

#[test]
fn what_node_daemons_count_is_added_up_once() {
    let mut grove = Grove::new(20, 3);
    let start = |grove: &mut Grove| {
        let step = grove.step_on(20);
        grove.pass_s(60);
        step
    };
    let end = |grove: &mut Grove, step: StepKey| {
        grove.finish_all(step, 0);
        grove.run();
        grove.release(step.job);
        grove.pass_s(60);
    };
    let counted = |grove: &Grove| {
        let NodeCounts { steps, tasks, ended, reports, .. } = grove.c.diag().node_daemons;
        [steps, tasks, ended, reports]
    };
    let step = start(&mut grove);
    end(&mut grove, step);
    assert_eq!(counted(&grove), [20, 20, 20, 40]);
    // A daemon with nodes below it starts again, then the tree changes elsewhere: registrations and answers are repeated.
    let step = start(&mut grove);
    grove.kill(0);
    grove.boot(0);
    grove.pass_s(60);
    grove.cut(1);
    end(&mut grove, step);
    assert_eq!(counted(&grove), [40, 40, 40, 80]);
    assert!(grove.c.diag().node_daemons.sessions > 0);
    // Another run of the controller counts from 0.
    grove.restart_root();
    grove.pass_s(60);
    assert_eq!(counted(&grove), [0; 4]);
    let step = start(&mut grove);
    end(&mut grove, step);
    assert_eq!(counted(&grove), [20, 20, 20, 40]);
}
