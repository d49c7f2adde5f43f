//! Reservations: no job from outside runs on their nodes while they are on, over restarts and as they come again.

use std::sync::Arc;

use squall_model::id::JobId;
use squall_model::job::{EndState, JobSpec, JobState, Need, PendingReason};
use squall_model::reservation::Flag;
use squall_model::time::Span;
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::reservation::{ListChange, ReservationChange};
use squall_sched::Item;

use crate::control::tests::driver::{ADA, Driver, batch};

fn reason(d: &Driver, id: JobId) -> PendingReason {
    d.c.queue.reason(&d.c.state, d.now, Item { id, array: false })
}

fn lasting(seconds: u64) -> JobSpec {
    JobSpec { time_limit_s: Some(seconds), ..batch() }
}

/// For ADA, from so many seconds on, lasting so long.
fn change(d: &Driver, name: &str, nodes: &str, from_s: u64, lasts_s: u64, flags: &[Flag]) -> ReservationChange {
    let flags = flags.iter().map(|flag| flag.name().to_owned()).collect();
    ReservationChange {
        name: Some(name.into()),
        start: Some(d.now + Span::from_secs(from_s)),
        duration_s: Some(lasts_s),
        nodes: Some(nodes.into()),
        users: Some(ListChange::Set(vec![format!("u{ADA}")])),
        flags: Some(ListChange::Set(flags)),
        ..ReservationChange::default()
    }
}

fn ask(d: &mut Driver, uid: u32, change: ReservationChange, create: bool) -> Answer {
    d.ask(9, uid, Request::Reserve { change: Box::new(change), create }).remove(0)
}

fn reserve(d: &mut Driver, name: &str, nodes: &str, from_s: u64, lasts_s: u64, flags: &[Flag]) {
    let change = change(d, name, nodes, from_s, lasts_s, flags);
    assert_eq!(ask(d, 0, change, true), Answer::Reserved(name.into()));
}

#[test]
fn who_would_run_into_it_starts_elsewhere_or_not_at_all() {
    let mut d = Driver::new(2, 1);
    reserve(&mut d, "soon", "n1", 100, 100, &[]);
    let long = d.submit(lasting(101));
    let short = d.submit(lasting(100));
    let waits = d.submit(batch());
    let own = d.submit(JobSpec { reservation: Some("soon".into()), ..lasting(500) });
    let run = |d: &Driver, id: JobId| d.c.state.jobs[&id].run().map(|run| run.alloc.nodes().first().unwrap().0);
    assert_eq!((run(&d, long), run(&d, short)), (Some(1), Some(0)), "the short one ends before");
    assert_eq!((reason(&d, waits), reason(&d, own)), (PendingReason::Resources, PendingReason::Reservation));
    let nothing_else = JobSpec { need: Need { nodelist: Some("n1".into()), ..Need::default() }, ..batch() };
    let barred = d.submit(nothing_else);
    assert_eq!(reason(&d, barred), PendingReason::Priority);
    d.finish(long, 0);
    assert_eq!(run(&d, waits), Some(1));
    assert_eq!(reason(&d, barred), PendingReason::ReqNodeNotAvail, "its only node is kept for others");
    d.finish(short, 0);
    d.pass(99);
    assert_eq!(d.state_of(own), Some(JobState::Pending));
    d.restart();
    d.register("n1", &[]);
    d.register("n2", &[d.attempt(waits)]);
    d.pass(1);
    assert_eq!(run(&d, own), Some(0), "a restart forgets nothing of when it begins");
    d.pass(100);
    assert_eq!(d.state_of(own), Some(JobState::Completing(EndState::Timeout)), "it ends with its reservation");
    assert!(d.c.state.reservations.is_empty());
    d.finish(own, 0);
    assert_eq!(run(&d, barred), Some(0), "what waited for its end starts");
}

#[test]
fn recurring_ones_advance_even_while_the_controller_is_down() {
    let mut d = Driver::new(1, 1);
    reserve(&mut d, "daily", "n1", 10, 60, &[Flag::Daily]);
    let start = |d: &Driver| d.c.state.reservations["daily"].start;
    let first = start(&d);
    d.pass(70);
    assert_eq!(start(&d), first + Span::from_secs(86_400));
    d.now = d.now + Span::from_secs(3 * 86_400);
    d.restart();
    assert_eq!(start(&d), first + Span::from_secs(4 * 86_400));
    let answers = d.ask(9, 0, Request::Unreserve { name: "daily".into() });
    assert_eq!(answers, [Answer::Done]);
    assert!(d.c.state.reservations.is_empty());
}

#[test]
fn what_can_not_be_is_refused() {
    let mut d = Driver::new(2, 1);
    reserve(&mut d, "one", "n1", 50, 100, &[]);
    reserve(&mut d, "daily", "n2", 1000, 10, &[Flag::Daily]);
    let job = d.submit(lasting(50));
    let mut refusal = |uid: u32, nodes: &str, from_s: u64, lasts_s: u64, edit: fn(&mut ReservationChange)| {
        let mut change = change(&d, "two", nodes, from_s, lasts_s, &[]);
        edit(&mut change);
        match ask(&mut d, uid, change, true) {
            Answer::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refusal(ADA, "n2", 50, 10, |_| ()), Refusal::AccessDenied);
    assert!(matches!(refusal(0, "n[1-2]", 149, 10, |_| ()), Refusal::ReservationOverlap(_)));
    assert!(matches!(refusal(0, "n2", 365 * 86_400 + 1005, 10, |_| ()), Refusal::ReservationOverlap(_)));
    let both = |change: &mut ReservationChange| {
        change.users = Some(ListChange::Set(vec!["ada".into(), "-bob".into()]));
    };
    assert!(matches!(refusal(0, "n2", 50, 10, both), Refusal::ReservationInvalid(_)), "some let in, some kept out");
    let twice = |change: &mut ReservationChange| {
        change.flags = Some(ListChange::Set(vec!["HOURLY".into(), "WEEKDAY".into()]));
    };
    assert!(matches!(refusal(0, "n2", 50, 10, twice), Refusal::ReservationInvalid(_)), "hourly or on weekdays");
    assert!(matches!(refusal(0, "n9", 50, 10, |_| ()), Refusal::InvalidNode(name) if name == "n9"));
    assert_eq!(refusal(0, "n1", 10, 20, |change| change.nodes = None), Refusal::InvalidNode(String::new()));
    assert!(matches!(refusal(0, "n2", 50, 10, |change| change.users = None), Refusal::ReservationInvalid(_)));
    assert!(matches!(refusal(0, "n2", 50, 0, |_| ()), Refusal::InvalidValue { .. }));
    assert!(matches!(refusal(0, "n2", 50, 10, |c| c.name = Some("one".into())), Refusal::ReservationInvalid(_)));
    assert_eq!(refusal(0, "n1", 20, 10, |_| ()), Refusal::Busy, "a job runs there until then");
    let count = |change: &mut ReservationChange| (change.nodes, change.node_count) = (None, Some(3));
    assert_eq!(refusal(0, "", 20, 10, count), Refusal::Busy);
    d.finish(job, 0);
    let key = d.key();
    let unknown = d.submit_with(key, JobSpec { reservation: Some("none".into()), ..batch() });
    assert!(matches!(&unknown[..], [Answer::Refused(Refusal::ReservationInvalid(_))]));
    reserve(&mut d, "others", "n2", 500, 10, &[]);
    let change = ReservationChange {
        name: Some("others".into()),
        users: Some(ListChange::Set(vec!["bob".into()])),
        ..ReservationChange::default()
    };
    assert_eq!(ask(&mut d, 0, change, false), Answer::Reserved("others".into()));
    let key = d.key();
    let denied = d.submit_with(key, JobSpec { reservation: Some("others".into()), ..batch() });
    assert!(matches!(&denied[..], [Answer::Refused(Refusal::ReservationAccess(_))]));
    let (spec, key) = (JobSpec { reservation: Some("others".into()), ..batch() }, d.key());
    let request =
        Request::Submit { spec: Arc::new(spec), script: b"#!/bin/sh\n".to_vec().into(), env: Vec::new().into(), key };
    assert!(matches!(&d.ask(9, 0, request)[..], [Answer::Submitted { .. }]), "root may use any");
}

#[test]
fn maintenance_goes_over_others_and_one_in_use_stays() {
    let mut d = Driver::new(1, 2);
    reserve(&mut d, "mine", "n1", 0, 1000, &[]);
    let job = d.submit(JobSpec { reservation: Some("mine".into()), ..lasting(100) });
    assert_eq!(d.state_of(job), Some(JobState::Running));
    let busy = d.ask(9, 0, Request::Unreserve { name: "mine".into() });
    assert!(matches!(&busy[..], [Answer::Refused(Refusal::ReservationBusy(_))]));
    reserve(&mut d, "maint", "ALL", 200, 50, &[Flag::Maint, Flag::IgnoreJobs]);
    let later = d.submit(JobSpec { reservation: Some("mine".into()), ..lasting(201) });
    let fits = d.submit(JobSpec { reservation: Some("mine".into()), ..lasting(200) });
    assert_eq!((d.state_of(later), d.state_of(fits)), (Some(JobState::Pending), Some(JobState::Running)));
}

#[test]
fn a_job_of_several_reservations_runs_in_one_that_is_on() {
    let mut d = Driver::new(3, 1);
    reserve(&mut d, "now", "n1", 0, 100, &[]);
    reserve(&mut d, "later", "n2", 50, 100, &[]);
    let either = || JobSpec { reservation: Some("now,later".into()), ..lasting(500) };
    let run = |d: &Driver, id: JobId| d.c.state.jobs[&id].run().map(|run| run.alloc.nodes().first().unwrap().0);
    let (first, second) = (d.submit(either()), d.submit(either()));
    assert_eq!((run(&d, first), run(&d, second)), (Some(0), None), "neither on n2 before its time nor outside");
    assert!(matches!(d.ask(9, 0, Request::Unreserve { name: "now".into() })[0], Answer::Refused(_)));
    d.pass(50);
    assert_eq!(run(&d, second), Some(1));
    d.pass(50);
    assert_eq!(d.state_of(first), Some(JobState::Completing(EndState::Timeout)), "it ends with the one it is in");
    assert_eq!(d.state_of(second), Some(JobState::Running));
    d.pass(50);
    assert_eq!(d.state_of(second), Some(JobState::Completing(EndState::Timeout)));
    let key = d.key();
    let refused = d.submit_with(key, either());
    assert!(
        matches!(refused[..], [Answer::Refused(Refusal::ReservationInvalid(_))]),
        "each must be there: {refused:?}"
    );
}
