//! Arrays: one record until touched, never more at once than allowed, every task once.

use std::collections::BTreeSet;

use squall_model::id::JobId;
use squall_model::job::{EndState, JobSpec, JobState, PendingReason};
use squall_model::wire::client::{Answer, Request};
use squall_sched::Item;

use super::driver::{Driver, array, batch};

/// Ends running tasks one after the other until none runs; returns their ids in the order of their ends, and the
/// most that ran at once.
fn run_down(d: &mut Driver) -> (Vec<JobId>, usize) {
    let (mut order, mut most) = (Vec::new(), 0);
    loop {
        let running: Vec<JobId> = d.c.state().nodes[0].jobs.iter().copied().collect();
        most = most.max(running.len());
        let Some(&job) = running.first() else { return (order, most) };
        d.finish(job, 0);
        order.push(job);
    }
}

#[test]
fn tasks_run_once_each_and_the_limit_holds() {
    let mut d = Driver::new(1, 8);
    let id = d.submit(array(9, Some(3)));
    assert_eq!(d.c.state().last_id, JobId(id.0 + 9));
    let reason = d.c.queue.reason(&d.c.state, d.now, Item { id, array: true });
    assert_eq!(reason, PendingReason::JobArrayTaskLimit);
    let (order, most) = run_down(&mut d);
    assert_eq!((order.iter().collect::<BTreeSet<_>>().len(), order.len(), most), (10, 10, 3));
    let array = &d.c.state().arrays[&id];
    assert_eq!((array.tally.ok.len(), array.tally.bad.len(), array.is_ended()), (10, 0, true));
}

#[test]
fn the_limit_holds_over_a_restart_and_may_be_raised() {
    let mut d = Driver::new(1, 8);
    let id = d.submit(array(9, Some(2)));
    d.restart();
    d.register("n1", &[d.attempt(JobId(id.0 + 1)), d.attempt(JobId(id.0 + 2))]);
    assert_eq!(d.c.state().arrays[&id].tally.active, 2);
    let change = squall_model::event::JobChange { array_limit: Some(Some(4)), ..Default::default() };
    let event = squall_model::event::Event::JobUpdated { id, change, whole: true };
    d.commit(event);
    assert_eq!(d.c.state().arrays[&id].tally.active, 4);
}

#[test]
fn a_huge_array_costs_what_runs() {
    let mut d = Driver::new(1, 4);
    let id = d.submit(array(999_999, None));
    assert_eq!(d.c.state().jobs.len(), 4);
    assert_eq!(d.c.state().arrays[&id].tally.untouched.ranges().len(), 1);
    let next = d.submit(batch());
    assert_eq!(next, JobId(id.0 + 1_000_000));
}

#[test]
fn a_requeued_task_runs_again_within_the_limit() {
    let mut d = Driver::new(1, 8);
    let id = d.submit(array(3, Some(1)));
    let first = JobId(id.0 + 1);
    d.finish(first, 1);
    let second = JobId(id.0 + 2);
    assert_eq!(d.state_of(second), Some(JobState::Running));
    let jobs = squall_model::wire::client::JobSelection {
        ids: vec![squall_model::wire::client::JobRef::Job(first)],
        ..Default::default()
    };
    d.ask(9, super::driver::ADA, Request::Requeue { jobs, hold: false });
    assert_eq!(d.state_of(first), Some(JobState::Pending));
    assert_eq!(d.c.state().arrays[&id].tally.bad.len(), 0);
    let (order, most) = run_down(&mut d);
    assert_eq!((order.len(), most), (4, 1));
    assert_eq!(d.c.state().arrays[&id].outcome().unwrap().state, EndState::Completed);
}

#[test]
fn waiting_for_an_array_is_answered_with_its_worst_task() {
    let mut d = Driver::new(1, 8);
    let id = d.submit(array(2, None));
    assert_eq!(d.ask(7, super::driver::ADA, Request::AwaitJob { job: id }), []);
    d.finish(JobId(id.0 + 1), 2);
    d.finish(JobId(id.0 + 2), 5);
    d.finish(id, 0);
    let answers = d.take_answers(crate::control::CallerId(7));
    let [Answer::JobDone { job, outcome }] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((*job, outcome.state, outcome.exit.code), (id, EndState::Failed, 5));
}

#[test]
fn an_array_is_forgotten_as_a_whole() {
    let mut d = Driver::new(1, 8);
    let id = d.submit(JobSpec { ..array(2, None) });
    run_down(&mut d);
    d.pass_alive(400);
    assert!(d.c.state().jobs.is_empty() && d.c.state().arrays.is_empty() && d.c.state().index.keys.is_empty());
    assert_eq!(d.c.state().last_id, JobId(id.0 + 2));
}
