//! Licenses: never more out than there are, waited for in order, back when the job that held them is gone.

use std::sync::Arc;

use squall_model::config::Config;
use squall_model::id::JobId;
use squall_model::job::{JobSpec, JobState, Need, PendingReason};
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_sched::Item;

use crate::control::tests::driver::{ADA, Driver, array, batch};

fn cluster(licenses: &str, cpus: u32) -> Driver {
    let mut d = Driver::empty(Config { licenses: licenses.into(), ..Config::default() });
    d.add_node("n1", cpus);
    d
}

fn with(licenses: &str, spec: JobSpec) -> JobSpec {
    JobSpec { need: Need { licenses: Some(licenses.into()), ..spec.need }, ..spec }
}

fn reason(d: &Driver, id: JobId) -> PendingReason {
    d.c.queue.reason(&d.c.state, d.now, Item { id, array: false })
}

fn finish(d: &mut Driver, id: JobId) {
    let reports = d.script_end(id, 0);
    d.report("n1", &reports);
}

#[test]
fn who_lacks_a_license_waits_for_it_and_holds_up_nobody() {
    let mut d = cluster("foo:3,bar", 8);
    let two = d.submit(with("foo:2", batch()));
    let more = d.submit(with("foo:2,bar", batch()));
    let one = d.submit(with("foo", batch()));
    let none = d.submit(batch());
    for id in [two, one, none] {
        assert_eq!(d.state_of(id), Some(JobState::Running));
    }
    assert_eq!((d.state_of(more), reason(&d, more)), (Some(JobState::Pending), PendingReason::Licenses));
    finish(&mut d, one);
    assert_eq!(reason(&d, more), PendingReason::Licenses, "one of two");
    d.restart();
    d.register("n1", &[d.attempt(two), d.attempt(none)]);
    assert_eq!(reason(&d, more), PendingReason::Licenses, "a restart forgets nothing of what is out");
    finish(&mut d, two);
    assert_eq!(d.state_of(more), Some(JobState::Running));
    assert_eq!(d.c.state.index.licenses, [("bar".to_owned(), 1), ("foo".to_owned(), 2)].into());
}

/// Each return once woke only the first that waited, so that others waited for ever while licenses were free.
#[test]
fn one_that_needs_more_than_are_free_does_not_hold_up_those_behind_it() {
    let mut d = cluster("foo:4", 8);
    let _held = d.submit(with("foo", batch()));
    let [first, second] = [d.submit(with("foo:2", batch())), d.submit(with("foo", batch()))];
    let wide = d.submit(with("foo:4", batch()));
    let small: Vec<JobId> = (0..3).map(|_| d.submit(with("foo", batch()))).collect();
    finish(&mut d, second);
    assert_eq!(d.state_of(small[0]), Some(JobState::Running), "one came back");
    finish(&mut d, first);
    for id in small {
        assert_eq!(d.state_of(id), Some(JobState::Running));
    }
    assert_eq!(d.state_of(wide), Some(JobState::Pending));
}

#[test]
fn licenses_come_back_when_time_limits_end_who_holds_them() {
    let mut d = cluster("foo:3", 8);
    let job = |licenses: &str, seconds| with(licenses, JobSpec { time_limit_s: Some(seconds), ..batch() });
    d.submit(job("foo:2", 600));
    d.submit(job("foo", 300));
    let [more, all] = [d.submit(job("foo:2", 100)), d.submit(job("foo:3", 100))];
    let answers = d.ask(7, 0, Request::Expected);
    let [Answer::Expected(starts)] = &answers[..] else { panic!("{answers:?}") };
    let starts: Vec<_> = starts.iter().map(|start| (start.id, start.time.since(d.now).secs())).collect();
    assert_eq!(starts, [(more, 600), (all, 700)]);
    let mut when = |licenses: &str, seconds| {
        let answers = d.ask(7, 0, Request::TestSubmit { spec: Arc::new(job(licenses, seconds)) });
        let [Answer::WouldStart { time, .. }] = &answers[..] else { panic!("{answers:?}") };
        time.since(d.now).secs()
    };
    assert_eq!((when("", 1000), when("foo", 400)), (0, 300));
    assert_eq!((when("foo", 401), when("foo:2", 1)), (800, 800), "behind those that wait");
}

#[test]
fn components_that_wait_for_licenses_are_foretold_and_start_when_they_come_back() {
    let mut d = cluster("foo:2", 8);
    d.add_node("n2", 8);
    let job = |licenses: &str, seconds| with(licenses, JobSpec { time_limit_s: Some(seconds), ..batch() });
    let holds = d.submit(job("foo:2", 600));
    // Only the second component wants one.
    let specs = vec![JobSpec { time_limit_s: Some(100), ..batch() }, job("foo", 100)];
    let (script, env) = (b"#!/bin/sh\n".to_vec().into(), Vec::new().into());
    let request = Request::SubmitHet { specs, script, env, key: d.key(), immediate_s: None };
    let answers = d.ask(1, ADA, request);
    let [Answer::Submitted { job: het, .. }] = answers[..] else { panic!("{answers:?}") };
    let behind = d.submit(job("foo:2", 100));
    assert_eq!(reason(&d, het), PendingReason::Licenses);
    let answers = d.ask(7, 0, Request::Expected);
    let [Answer::Expected(starts)] = &answers[..] else { panic!("{answers:?}") };
    let starts: Vec<_> = starts.iter().map(|start| (start.id, start.time.since(d.now).secs())).collect();
    assert_eq!(starts, [(het, 600), (JobId(het.0 + 1), 600), (behind, 700)]);
    finish(&mut d, holds);
    assert_eq!([het, JobId(het.0 + 1), behind].map(|id| d.state_of(id)), {
        [Some(JobState::Running), Some(JobState::Running), Some(JobState::Pending)]
    });
}

#[test]
fn tasks_of_an_array_go_as_licenses_come_back() {
    let mut d = cluster("foo:2", 8);
    let array = d.submit(with("foo", array(4, None)));
    let running = |d: &Driver| -> Vec<JobId> {
        d.c.state.touched(array).filter(|(_, job)| job.is_running()).map(|(id, _)| id).collect()
    };
    for left in (1..=5_usize).rev() {
        let now = running(&d);
        assert_eq!(now.len(), left.min(2));
        finish(&mut d, now[0]);
    }
    assert!(d.c.state.index.licenses.is_empty());
}

#[test]
fn what_the_cluster_has_not_is_refused_in_slurms_words() {
    let mut d = cluster("foo:3", 1);
    for wrong in ["foo:4", "baz", "foo:x"] {
        let key = d.key();
        let answers = d.submit_with(key, with(wrong, batch()));
        let [Answer::Refused(Refusal::InvalidValue { option, .. })] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(option, "licenses");
    }
    let answers = d.ask(7, 0, Request::Licenses);
    let [Answer::Licenses(all)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((all.len(), all[0].total, all[0].used), (1, 3, 0));
}
