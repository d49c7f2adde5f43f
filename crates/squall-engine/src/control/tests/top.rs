//! `scontrol top`: whose jobs go first, and at whose expense.

use std::sync::Arc;

use squall_model::config::Config;
use squall_model::id::JobId;
use squall_model::job::{JobSpec, JobState};
use squall_model::policy::PriorityType;
use squall_model::wire::client::{Answer, JobRef, JobSelection, Refusal, Request};

use crate::control::tests::driver::{ADA, Driver, array, batch};

fn cluster(config: Config) -> Driver {
    let mut d = Driver::empty(config);
    d.add_node("n1", 1);
    d
}

fn users_may(priority_type: PriorityType) -> Config {
    let mut config = Config { priority_type, priority_weight_age: 1000, ..Config::default() };
    config.scheduler_parameters.enable_user_top = true;
    config
}

fn top(d: &mut Driver, uid: u32, jobs: &[JobId]) -> Vec<Refusal> {
    let ids = jobs.iter().map(|id| JobRef::Job(*id)).collect();
    let jobs = JobSelection { ids, ..JobSelection::default() };
    match d.ask(9, uid, Request::Top { jobs }).remove(0) {
        Answer::Affected { refused, .. } => refused.into_iter().map(|(_, refusal)| refusal).collect(),
        Answer::Refused(refusal) => vec![refusal],
        other => panic!("{other:?}"),
    }
}

/// Ends the running jobs, one after the other, and returns those that came next.
fn order(d: &mut Driver, first: JobId, rest: usize) -> Vec<JobId> {
    let mut running = first;
    let mut order = Vec::new();
    for _ in 0..rest {
        d.finish(running, 0);
        let next = d.c.state().jobs.iter().find(|(_, job)| job.is_running()).map(|(id, _)| *id);
        running = next.expect("somebody starts");
        order.push(running);
    }
    order
}

#[test]
fn who_is_named_goes_first_whatever_priorities_are_made_of() {
    for kind in [PriorityType::Basic, PriorityType::Multifactor] {
        let mut d = cluster(users_may(kind));
        let runs = d.submit(batch());
        let waiting = [0; 4].map(|_| d.submit(batch()));
        assert_eq!(top(&mut d, ADA, &[waiting[3], waiting[2]]), []);
        assert_eq!(top(&mut d, ADA, &[waiting[1]]), []);
        let nice: i64 = waiting.iter().map(|id| i64::from(d.c.state().jobs[id].spec.nice)).sum();
        assert!((0..=12).contains(&nice), "they gain nothing all together: {nice}");
        assert_eq!(order(&mut d, runs, 4), [1, 3, 2, 0].map(|at: usize| waiting[at]));
    }
}

#[test]
fn others_keep_their_places() {
    let mut d = cluster(users_may(PriorityType::Basic));
    let runs = d.submit(batch());
    let first = d.submit(batch());
    let key = d.key();
    let theirs = d.ask(
        1,
        1001,
        Request::Submit {
            spec: Arc::new(batch()),
            script: b"#!/bin/sh\n".to_vec().into(),
            env: Vec::new().into(),
            key,
        },
    );
    let Some(Answer::Submitted { job: theirs, .. }) = theirs.first() else { panic!("{theirs:?}") };
    let (theirs, last) = (*theirs, d.submit(batch()));
    assert_eq!(top(&mut d, ADA, &[theirs]), [Refusal::AccessDenied]);
    assert_eq!(top(&mut d, ADA, &[last]), []);
    assert_eq!(order(&mut d, runs, 3), [last, theirs, first]);
}

#[test]
fn who_may_and_what_can_not_be() {
    let mut d = cluster(Config::default());
    let runs = d.submit(batch());
    let [waits, set] = [batch(), batch()].map(|spec| d.submit(spec));
    let held = d.submit(JobSpec { priority: Some(0), ..batch() });
    let several = d.submit(array(2, None));
    assert_eq!(top(&mut d, ADA, &[set]), [Refusal::AccessDenied], "operators only, unless it is said");
    assert_eq!(top(&mut d, 0, &[several]), []);
    assert_eq!(
        top(&mut d, 0, &[runs, held, JobId(99)]),
        [Refusal::NotPending, Refusal::NotPending, Refusal::InvalidJobId]
    );
    d.finish(runs, 0);
    assert_eq!(d.state_of(waits), Some(JobState::Pending), "the array goes first");
}
