//! Arrays: one record until touched, never more at once than allowed, every task once.

use std::collections::BTreeSet;

use squall_model::id::JobId;
use squall_model::job::{EndState, JobSpec, JobState, PendingReason};
use squall_model::wire::client::{Answer, JobSelection, Refusal, Request};
use squall_model::wire::info::JobsPage;
use squall_sched::Item;

use super::driver::{ADA, Driver, array, batch, these};

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
    let jobs = JobSelection { ids: vec![squall_model::wire::client::JobRef::Job(first)], ..Default::default() };
    d.ask(9, ADA, Request::Requeue { jobs, hold: false });
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
    assert_eq!(d.ask(7, ADA, Request::AwaitJob { job: id }), []);
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
    d.pass(400);
    assert!(d.c.state().jobs.is_empty() && d.c.state().arrays.is_empty() && d.c.state().index.keys.is_empty());
    assert_eq!(d.c.state().last_id, JobId(id.0 + 2));
}

fn shown(d: &mut Driver, jobs: JobSelection, ended: bool) -> JobsPage {
    match d.ask(9, ADA, Request::Jobs { jobs, ended, steps: false }).remove(0) {
        Answer::Jobs(page) => *page,
        answer => panic!("{answer:?}"),
    }
}

/// Ids, tasks and states of what a list shows.
fn rows(page: &JobsPage) -> Vec<(u32, String, JobState)> {
    let tasks = |job: &squall_model::wire::info::JobInfo| job.pending_tasks.as_ref().map(ToString::to_string);
    page.jobs.iter().map(|job| (job.id.0, tasks(job).unwrap_or_default(), job.state)).collect()
}

#[test]
fn an_array_that_never_started_is_shown_as_long_as_any_job() {
    let mut d = Driver::new(1, 8);
    let id = d.submit(JobSpec { hold: true, ..array(9, None) });
    d.pass(100);
    let cancelled = JobState::Ended(EndState::Cancelled { by: ADA });
    d.cancel(id);
    let at = d.now;
    for seconds in [0, 200] {
        d.pass(seconds);
        let page = shown(&mut d, these(id), true);
        assert_eq!((rows(&page), &page.unknown[..]), (vec![(id.0, "0-9".into(), cancelled)], &[][..]));
        assert_eq!((page.jobs[0].end, page.jobs[0].start), (Some(at), None));
        assert_eq!(rows(&shown(&mut d, JobSelection::default(), true)), [(id.0, "0-9".into(), cancelled)]);
        assert_eq!(rows(&shown(&mut d, JobSelection::default(), false)), []);
        let task = JobId(id.0 + 4);
        assert_eq!(rows(&shown(&mut d, these(task), true)), [(id.0, "3".into(), cancelled)]);
        d.restart();
        d.register("n1", &[]);
    }
    d.pass(200);
    let page = shown(&mut d, these(id), true);
    assert_eq!((rows(&page), &page.unknown[..]), (vec![], &[id][..]));
}

#[test]
fn tasks_that_never_started_are_shown_apart_from_those_that_did() {
    let mut d = Driver::new(1, 8);
    let id = d.submit(array(9, Some(1)));
    d.cancel(id);
    let first = JobId(id.0 + 1);
    let (cancelled, by) = (EndState::Cancelled { by: ADA }, JobState::Completing);
    let rest = (id.0, "1-9".to_owned(), JobState::Ended(cancelled));
    assert_eq!(rows(&shown(&mut d, these(id), true)), [rest.clone(), (first.0, String::new(), by(cancelled))]);
    // While the array has a task that lives, those that ended go when their time has come.
    d.pass(400);
    assert_eq!(d.state_of(first), Some(by(cancelled)));
    d.submit(batch());
    d.commit(squall_model::event::Event::Forgotten { ended_before: d.now });
    assert_eq!(rows(&shown(&mut d, these(id), true)), [(first.0, String::new(), by(cancelled))]);
    let again = Request::Cancel { jobs: these(JobId(id.0 + 3)), signal: None, step: None, verbose: true };
    let Answer::Affected { jobs, refused } = d.ask(9, ADA, again).remove(0) else { panic!() };
    assert_eq!((jobs.len(), refused[0].0.to_string(), &refused[0].1), (0, format!("{id}_2"), &Refusal::AlreadyDone));
}
