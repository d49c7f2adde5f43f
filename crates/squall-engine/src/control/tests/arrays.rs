//! Arrays: one record until touched, never more at once than allowed, every task once.

use std::collections::BTreeSet;

use squall_model::config::Config;
use squall_model::id::JobId;
use squall_model::job::options::Chosen;
use squall_model::job::{
    Dependency, DependencyJob, DependencyKind, DependencyTerm, EndState, JobSpec, JobState, PendingReason,
};
use squall_model::policy::{Limit, PriorityType, Whose};
use squall_model::wire::client::{Answer, JobSelection, Refusal, Request};
use squall_model::wire::info::JobsPage;
use squall_sched::Item;

use crate::control::tests::driver::{ADA, Driver, array, batch, these};

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
    let mut d = Driver::empty(Config { max_array_size: 1_000_000, max_jobs_per_user: 0, ..Config::default() });
    d.add_node("n1", 4);
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
    d.ask(9, ADA, Request::Requeue { jobs, hold: false, from: None, special: None });
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

fn few_ids(first_job_id: u32, max_job_id: u32) -> Driver {
    let config = Config { first_job_id, max_job_id, max_array_size: 10, ..Config::default() };
    let mut d = Driver::empty(config);
    d.add_node("n1", 1);
    d
}

fn held(last: u32) -> JobSpec {
    JobSpec { hold: true, ..array(last, None) }
}

/// faults.md C3
#[test]
fn c3_ids_come_back_when_nobody_has_them() {
    let mut d = few_ids(100, 199);
    for round in 0..200 {
        let id = d.submit(held(8));
        assert!((100..=191).contains(&id.0), "round {round}: {id}");
        d.cancel(id);
    }
    d.restart();
    d.register("n1", &[]);
    let id = d.submit(batch());
    assert_eq!(d.state_of(id), Some(JobState::Running), "a job of root's or anybody's is accepted and runs");
}

/// faults.md C3
#[test]
fn c3_ids_in_use_are_passed_over() {
    let mut d = few_ids(1, 40);
    let (job, tasks) = (d.submit(JobSpec { hold: true, ..batch() }), d.submit(held(4)));
    assert_eq!((job, tasks), (JobId(1), JobId(2)));
    let mut seen = BTreeSet::new();
    for _ in 0..30 {
        let id = d.submit(held(6));
        let ids: Vec<u32> = (id.0..id.0 + 7).collect();
        assert!(ids.iter().all(|id| (7..=40).contains(id)), "{ids:?}");
        seen.extend(ids);
        d.cancel(id);
    }
    assert!(seen.len() >= 28, "others are used again and again: {seen:?}");
    // Nothing else is left: it is said, and others are accepted as soon as there is room.
    let mut kept = Vec::new();
    let refused = loop {
        let key = d.key();
        match &d.submit_with(key, held(7))[..] {
            [Answer::Submitted { job, .. }] => kept.push(*job),
            other => break other.to_vec(),
        }
    };
    assert_eq!(refused, [Answer::Refused(Refusal::OutOfIds)]);
    assert!((3..=4).contains(&kept.len()), "{kept:?}");
    d.cancel(kept[1]);
    assert_eq!(d.submit(held(7)), kept[1]);
}

/// faults.md C3: a job that depends on one that is long gone does not wait for another one of that id.
#[test]
fn c3_an_id_that_somebody_depends_on_is_not_given() {
    let mut d = few_ids(1, 12);
    let gone = d.submit(batch());
    d.finish(gone, 0);
    let term = DependencyTerm {
        when: DependencyKind::AfterAny,
        job: Some(DependencyJob { id: gone, index: None, delay_min: 0 }),
    };
    let dependency = Some(Dependency { any: false, terms: vec![term] });
    let waits = d.submit(JobSpec { hold: true, dependency, ..batch() });
    for _ in 0..20 {
        let id = d.submit(JobSpec { hold: true, ..batch() });
        assert!(id != gone && id != waits, "{id}");
        d.cancel(id);
    }
}

/// faults.md C3: what was submitted first starts first, also when its id is the higher one.
#[test]
fn c3_what_was_submitted_first_starts_first_when_ids_have_come_back() {
    for priority_type in [PriorityType::Basic, PriorityType::Multifactor] {
        let config = Config { first_job_id: 1, max_job_id: 30, max_array_size: 10, priority_type, ..Config::default() };
        let mut d = Driver::empty(config);
        d.add_node("n1", 1);
        let runs = d.submit(batch());
        let early = d.submit(batch());
        // Until the last id is given, and then some.
        let mut later = Vec::new();
        while later.len() < 3 {
            d.pass(1);
            let id = d.submit(held(2));
            d.cancel(id);
            if id.0 > 20 || !later.is_empty() {
                later.push(d.submit(batch()));
            }
        }
        let mut order = vec![early];
        order.extend(later);
        assert!(order.iter().any(|id| *id > early) && order.windows(2).any(|two| two[0] > two[1]), "{order:?}");
        d.restart();
        d.register("n1", &[d.attempt(runs)]);
        let mut now = runs;
        for id in order {
            assert_eq!(d.state_of(id), Some(JobState::Pending));
            d.finish(now, 0);
            assert_eq!(d.state_of(id), Some(JobState::Running), "{priority_type:?}");
            now = id;
        }
    }
}

/// faults.md M2
#[test]
fn m2_a_user_has_a_share_of_the_queue() {
    let mut d = Driver::empty(Config { max_jobs_per_user: 10, ..Config::default() });
    d.add_node("n1", 1);
    let (one, many) = (d.submit(batch()), d.submit(held(7)));
    d.submit(JobSpec { hold: true, ..batch() });
    let refused = |d: &mut Driver| {
        let key = d.key();
        d.submit_with(key, batch()) == [Answer::Refused(Refusal::Limit(Whose::Qos, Limit::UserSubmit))]
    };
    assert!(refused(&mut d));
    d.restart();
    d.register("n1", &[d.attempt(one)]);
    assert!(refused(&mut d), "after a restart, too");
    let (script, key) = (b"#!/bin/sh\n".to_vec(), d.key());
    let of = |key| Request::Submit {
        spec: std::sync::Arc::new(batch()),
        script: script.clone().into(),
        env: Vec::new().into(),
        key,
    };
    assert!(matches!(d.ask(1, 77, of(key))[..], [Answer::Submitted { .. }]), "others have theirs");
    d.finish(one, 0);
    d.submit(batch());
    assert!(refused(&mut d));
    d.cancel(many);
    assert!(!refused(&mut d));
}

/// faults.md M2
#[test]
fn m2_a_user_has_a_share_of_what_is_kept_for_jobs() {
    let mut d = Driver::empty(Config { max_content_per_user_mb: 10, ..Config::default() });
    let big = |d: &mut Driver, uid: u32, mib: usize| {
        let script = [b"#!/bin/sh\n".to_vec(), vec![b'#'; mib << 20]].concat();
        // What a client says of it does not count.
        let options = Chosen { content_bytes: 1, ..Chosen::default() }.into();
        let spec = std::sync::Arc::new(JobSpec { hold: true, options, ..batch() });
        let key = d.key();
        d.ask(1, uid, Request::Submit { spec, script: script.into(), env: Vec::new().into(), key }).remove(0)
    };
    let first = big(&mut d, ADA, 3);
    assert!(matches!(first, Answer::Submitted { .. }));
    for _ in 0..2 {
        assert!(matches!(big(&mut d, ADA, 3), Answer::Submitted { .. }));
    }
    assert!(matches!(big(&mut d, ADA, 3), Answer::Refused(Refusal::TooLarge(_, 10_485_760))));
    d.restart();
    assert!(matches!(big(&mut d, ADA, 3), Answer::Refused(Refusal::TooLarge(_, 10_485_760))));
    assert!(matches!(big(&mut d, ADA, 0), Answer::Submitted { .. }), "small ones are not counted");
    assert!(matches!(big(&mut d, 77, 3), Answer::Submitted { .. }));
    assert!(matches!(big(&mut d, 0, 3), Answer::Submitted { .. }));
    let Answer::Submitted { job, .. } = first else { return };
    d.cancel(job);
    d.now = d.now + squall_model::time::Span::from_secs(1);
    d.commit(squall_model::event::Event::Forgotten { ended_before: d.now });
    assert!(matches!(big(&mut d, ADA, 3), Answer::Submitted { .. }));
}
