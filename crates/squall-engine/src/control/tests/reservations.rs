//! Reservations: no job from outside runs on their nodes while they are on, over restarts and as they come again.

use std::sync::Arc;

use squall_model::config::Config;
use squall_model::event::NodeAdmin;
use squall_model::id::JobId;
use squall_model::job::{EndState, JobSpec, JobState, Need, PendingReason};
use squall_model::reservation::Flag;
use squall_model::time::Span;
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::reservation::{ListChange, ReservationChange};
use squall_sched::Item;

use crate::control::tests::driver::{ADA, Driver, array, batch};

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

/// Numbers of the nodes of a reservation.
fn nodes(d: &Driver, name: &str) -> Vec<u32> {
    d.c.state.reservations.get(name).map_or(Vec::new(), |one| one.nodes.iter().map(|id| id.0).collect())
}

fn reserve_with(d: &mut Driver, edit: impl FnOnce(&mut ReservationChange)) -> Answer {
    let mut change = change(d, "r", "n1", 0, 1000, &[]);
    edit(&mut change);
    ask(d, 0, change, true)
}

fn flags(change: &mut ReservationChange, flags: &[Flag]) {
    change.flags = Some(ListChange::Add(flags.iter().map(|flag| flag.name().to_owned()).collect()));
}

fn in_it(seconds: u64) -> JobSpec {
    JobSpec { reservation: Some("r".into()), ..lasting(seconds) }
}

fn refused(answer: &Answer) -> String {
    match answer {
        Answer::Refused(refusal) => format!("{refusal:?}"),
        other => panic!("{other:?}"),
    }
}

fn of_licenses(spec: JobSpec, licenses: &str) -> JobSpec {
    JobSpec { need: Need { licenses: Some(licenses.into()), ..Need::default() }, ..spec }
}

#[test]
fn licenses_are_kept_for_jobs_of_a_reservation() {
    let mut d = Driver::empty(Config { licenses: "foo:4".into(), ..Config::default() });
    (1..=2).for_each(|n| d.add_node(&format!("n{n}"), 8));
    let alone = |change: &mut ReservationChange| {
        (change.nodes, change.licenses) = (None, Some("foo:3".into()));
        change.start = change.start.map(|start| start + Span::from_secs(100));
    };
    assert!(refused(&reserve_with(&mut d, alone)).contains("LICENSE_ONLY"));
    let only = |change: &mut ReservationChange| {
        alone(change);
        flags(change, &[Flag::AnyNodes]);
    };
    let five = |change: &mut ReservationChange| {
        only(change);
        change.licenses = Some("foo:5".into());
    };
    assert!(refused(&reserve_with(&mut d, five)).contains("5 of foo, of which there are 4"));
    assert_eq!(reserve_with(&mut d, only), Answer::Reserved("r".into()));
    let more = |change: &mut ReservationChange| {
        only(change);
        (change.name, change.licenses) = (Some("more".into()), Some("foo:2".into()));
    };
    assert!(refused(&reserve_with(&mut d, more)).contains("5 of foo"), "beside those of others");
    let short = d.submit(of_licenses(lasting(100), "foo:2"));
    let long = d.submit(of_licenses(lasting(101), "foo:2"));
    let one = d.submit(of_licenses(lasting(500), "foo"));
    assert_eq!((d.state_of(short), d.state_of(one)), (Some(JobState::Running), Some(JobState::Running)));
    assert_eq!(reason(&d, long), PendingReason::Licenses, "it would still hold two of four when three are kept");
    d.finish(short, 0);
    d.pass(100);
    let own = d.submit(of_licenses(in_it(50), "foo:2"));
    assert_eq!(d.state_of(own), Some(JobState::Running), "on any node");
    let another = d.submit(of_licenses(lasting(10), "foo"));
    assert_eq!(reason(&d, another), PendingReason::Licenses, "one is free, and is the reservation's");
    d.finish(one, 0);
    assert_eq!(d.state_of(another), Some(JobState::Running), "what own jobs hold counts once");
    let Answer::Licenses(all) = d.ask(9, 0, Request::Licenses).remove(0) else { panic!("no licenses") };
    assert_eq!((all[0].used, all[0].reserved), (3, 3));
    d.pass(1000);
    assert_eq!(d.state_of(own), Some(JobState::Completing(EndState::Timeout)));
    d.finish(own, 0);
    d.finish(another, 0);
    assert_eq!(d.state_of(long), Some(JobState::Running), "the reservation is over");
}

#[test]
fn magnetic_ones_take_jobs_that_do_not_ask() {
    let mut d = Driver::new(1, 2);
    assert_eq!(reserve_with(&mut d, |change| flags(change, &[Flag::Magnetic])), Answer::Reserved("r".into()));
    let submit = |d: &mut Driver, uid: u32, spec: JobSpec| {
        let key = d.key();
        let script: Arc<[u8]> = b"#!/bin/sh\n".to_vec().into();
        let request =
            Request::Submit { spec: Arc::new(spec), script: script.to_vec().into(), env: Vec::new().into(), key };
        match &d.ask(9, uid, request)[..] {
            [Answer::Submitted { job, .. }] => *job,
            other => panic!("{other:?}"),
        }
    };
    let stranger = submit(&mut d, ADA + 1, lasting(100));
    let fits = submit(&mut d, ADA, lasting(100));
    let long = submit(&mut d, ADA, lasting(1001));
    assert_eq!(d.state_of(fits), Some(JobState::Running), "an equal job of another user does not keep it");
    assert_eq!(reason(&d, stranger), PendingReason::ReqNodeNotAvail);
    assert_eq!(reason(&d, long), PendingReason::ReqNodeNotAvail, "it would not end with the reservation");
    let flex = ReservationChange { name: Some("r".into()), ..ReservationChange::default() };
    let flex = ReservationChange { flags: Some(ListChange::Add(vec!["FLEX".into()])), ..flex };
    assert_eq!(ask(&mut d, 0, flex, false), Answer::Reserved("r".into()));
    assert_eq!(d.state_of(long), Some(JobState::Running));
    d.finish(fits, 0);
    d.finish(long, 0);
    assert_eq!(d.state_of(stranger), Some(JobState::Pending));
    assert_eq!(d.ask(9, 0, Request::Unreserve { name: "r".into() }), [Answer::Done]);
    assert_eq!(d.state_of(stranger), Some(JobState::Running));
}

fn set(d: &mut Driver, node: &str, admin: NodeAdmin) {
    let reason = Some("test".into());
    let request = Request::UpdateNodes { nodes: node.into(), admin: Some(admin), reason, change: None };
    assert_eq!(d.ask(9, 0, request), [Answer::Done]);
}

#[test]
fn nodes_that_were_chosen_are_replaced_when_they_are_lost() {
    let chosen = |flags_: &'static [Flag]| {
        move |change: &mut ReservationChange| {
            (change.nodes, change.node_count) = (None, Some(2));
            flags(change, flags_);
        }
    };
    for (flags_, after) in
        [(&[][..], [0, 2]), (&[Flag::ReplaceDown], [0, 2]), (&[Flag::StaticAlloc], [0, 1]), (&[Flag::Maint], [0, 1])]
    {
        let mut d = Driver::new(3, 1);
        assert_eq!(reserve_with(&mut d, chosen(flags_)), Answer::Reserved("r".into()));
        assert_eq!(nodes(&d, "r"), [0, 1]);
        set(&mut d, "n2", NodeAdmin::Drain);
        assert_eq!(nodes(&d, "r"), after, "{flags_:?}");
    }
    let mut d = Driver::new(3, 1);
    assert_eq!(reserve_with(&mut d, |change| change.nodes = Some("n[1-2]".into())), Answer::Reserved("r".into()));
    set(&mut d, "n2", NodeAdmin::Drain);
    assert_eq!(nodes(&d, "r"), [0, 1], "they were named");
    let mut d = Driver::new(3, 1);
    let named = |change: &mut ReservationChange| flags(change, &[Flag::Replace]);
    assert!(refused(&reserve_with(&mut d, named)).contains("NodeCnt"));
    assert!(refused(&reserve_with(&mut d, chosen(&[Flag::Replace, Flag::Maint]))).contains("MAINT"));
    assert_eq!(reserve_with(&mut d, chosen(&[Flag::Replace])), Answer::Reserved("r".into()));
    let first = d.submit(in_it(100));
    assert_eq!((d.state_of(first), nodes(&d, "r")), (Some(JobState::Running), vec![1, 2]), "an idle one comes instead");
    let second = d.submit(in_it(100));
    assert_eq!((d.state_of(second), nodes(&d, "r")), (Some(JobState::Running), vec![1, 2]), "there is no other");
    d.finish(first, 0);
    assert_eq!(nodes(&d, "r"), [0, 2]);
}

#[test]
fn one_without_jobs_ends_by_itself() {
    let mut d = Driver::new(2, 1);
    let purged = |change: &mut ReservationChange| {
        flags(change, &[Flag::PurgeComp]);
        change.purge_s = Some(120);
        change.start = change.start.map(|start| start + Span::from_secs(60));
    };
    assert_eq!(reserve_with(&mut d, purged), Answer::Reserved("r".into()));
    let waits = d.submit(JobSpec { hold: true, ..in_it(10) });
    d.pass(300);
    assert!(d.c.state.reservations.contains_key("r"), "a job still asks for it");
    d.cancel(waits);
    d.pass(31);
    assert!(d.c.state.reservations["r"].idle_since.is_some());
    let own = d.submit(in_it(40));
    d.pass(31);
    assert_eq!((d.state_of(own), d.c.state.reservations["r"].idle_since), (Some(JobState::Running), None));
    d.finish(own, 0);
    d.restart();
    d.register("n1", &[]);
    d.register("n2", &[]);
    d.pass(125);
    assert!(d.c.state.reservations.contains_key("r"));
    d.pass(60);
    assert!(d.c.state.reservations.is_empty());
}

#[test]
fn a_floating_one_is_always_ahead() {
    let mut d = Driver::new(1, 4);
    let floats = |change: &mut ReservationChange| {
        flags(change, &[Flag::TimeFloat]);
        change.start = change.start.map(|start| start + Span::from_secs(100));
        change.duration_s = Some(60);
    };
    let daily = |change: &mut ReservationChange| {
        floats(change);
        flags(change, &[Flag::TimeFloat, Flag::Daily]);
    };
    assert!(refused(&reserve_with(&mut d, daily)).contains("TIME_FLOAT"));
    assert_eq!(reserve_with(&mut d, floats), Answer::Reserved("r".into()));
    d.pass(5000);
    let (short, long) = (d.submit(lasting(100)), d.submit(lasting(101)));
    assert_eq!((d.state_of(short), d.state_of(long)), (Some(JobState::Running), Some(JobState::Pending)));
    let Answer::Reservations(all) = d.ask(9, 0, Request::Reservations).remove(0) else { panic!("no reservations") };
    let shown = &all[0].reservation;
    assert_eq!((shown.start, shown.end), (d.now + Span::from_secs(100), d.now + Span::from_secs(160)));
    let key = d.key();
    let inside = d.submit_with(key, in_it(10));
    assert!(matches!(&inside[..], [Answer::Refused(Refusal::ReservationAccess(_))]), "{inside:?}");
    let fixed = ReservationChange { name: Some("r".into()), ..ReservationChange::default() };
    let fixed = ReservationChange { flags: Some(ListChange::Remove(vec!["TIME_FLOAT".into()])), ..fixed };
    assert!(refused(&ask(&mut d, 0, fixed, false)).contains("TIME_FLOAT"));
}

#[test]
fn users_may_delete_theirs_and_jobs_go_on_without() {
    let mut d = Driver::new(1, 1);
    let gone = |d: &mut Driver, uid: u32| d.ask(9, uid, Request::Unreserve { name: "r".into() }).remove(0);
    assert_eq!(reserve_with(&mut d, |_| ()), Answer::Reserved("r".into()));
    assert_eq!(gone(&mut d, ADA), Answer::Refused(Refusal::AccessDenied));
    let later = d.submit(JobSpec { hold: true, ..in_it(10) });
    assert_eq!(gone(&mut d, 0), Answer::Done);
    assert_eq!(
        d.c.state.jobs[&later].spec.reservation.as_deref(),
        Some("r"),
        "it waits for a reservation of that name"
    );
    d.cancel(later);
    let free = |change: &mut ReservationChange| flags(change, &[Flag::UserDelete, Flag::NoHoldJobsAfterEnd]);
    assert_eq!(reserve_with(&mut d, free), Answer::Reserved("r".into()));
    assert_eq!(
        reserve_with(&mut d, |change| change.name = Some("s".into())),
        Answer::Refused(Refusal::ReservationOverlap("r has some of these nodes then".into()))
    );
    let first = d.submit(in_it(10));
    assert!(matches!(gone(&mut d, ADA), Answer::Refused(Refusal::ReservationBusy(_))), "a job runs in it");
    let (next, tasks) = (d.submit(in_it(2000)), d.submit(JobSpec { reservation: Some("r".into()), ..array(2, None) }));
    d.finish(first, 0);
    d.cancel(next);
    assert_eq!(gone(&mut d, ADA + 1), Answer::Refused(Refusal::AccessDenied));
    let next = d.submit(JobSpec { hold: true, ..in_it(10) });
    d.pass(2000);
    assert!(d.c.state.reservations.is_empty());
    assert_eq!(d.c.state.jobs[&next].spec.reservation, None);
    assert_eq!(d.c.state.arrays[&tasks].spec.reservation, None);
}

#[test]
fn recurring_ones_are_skipped_and_may_have_begun() {
    let mut d = Driver::new(1, 1);
    let late = |change: &mut ReservationChange| {
        change.start = change.start.map(|start| squall_model::time::Time(start.0 - 3_600_000_000));
        change.duration_s = Some(7200);
        flags(change, &[Flag::Daily]);
    };
    assert!(refused(&reserve_with(&mut d, late)).contains("FORCE_START"));
    let once = |change: &mut ReservationChange| {
        late(change);
        flags(change, &[Flag::ForceStart]);
    };
    assert!(refused(&reserve_with(&mut d, once)).contains("comes again"));
    let forced = |change: &mut ReservationChange| {
        late(change);
        flags(change, &[Flag::ForceStart, Flag::Daily]);
    };
    assert_eq!(reserve_with(&mut d, forced), Answer::Reserved("r".into()));
    assert!(d.c.state.reservations["r"].active(d.now));
    let before = d.c.state.reservations["r"].start;
    let skip = ReservationChange { name: Some("r".into()), skip: true, ..ReservationChange::default() };
    assert_eq!(ask(&mut d, 0, skip.clone(), false), Answer::Reserved("r".into()));
    assert_eq!(d.c.state.reservations["r"].start, before + Span::from_secs(86_400));
    assert!(refused(&ask(&mut d, 0, skip, true)).contains("Skip"));
}

#[test]
fn it_is_for_groups_qos_and_partitions() {
    let text = "[[nodes]]\nname = \"n[1-3]\"\n[[partitions]]\nname = \"debug\"\n[[partitions]]\nname = \"other\"\n";
    let mut d = Driver::empty(Config::from_toml(text).expect("it is right"));
    (1..=3).for_each(|n| d.add_node(&format!("n{n}"), 2));
    let of = |change: &mut ReservationChange, groups: &str, partitions: &str| {
        change.users = None;
        let list = |text: &str| Some(ListChange::Set(vec![text.to_owned()])).filter(|_| !text.is_empty());
        (change.groups, change.allowed_partitions) = (list(groups), list(partitions));
    };
    assert!(refused(&reserve_with(&mut d, |change| of(change, "", "nosuch"))).contains("nosuch"));
    assert!(refused(&reserve_with(&mut d, |change| of(change, "", ""))).contains("AllowedPartitions"));
    let both = |change: &mut ReservationChange| {
        of(change, "bio:7", "");
        change.users = Some(ListChange::Set(vec!["ada".into()]));
    };
    assert!(refused(&reserve_with(&mut d, both)).contains("not for both"));
    assert!(refused(&reserve_with(&mut d, |change| of(change, "-bio:7", ""))).contains("kept out"));
    let group = format!("g:{ADA}");
    assert_eq!(reserve_with(&mut d, |change| of(change, &group, "other")), Answer::Reserved("r".into()));
    let key = d.key();
    let elsewhere = d.submit_with(key, JobSpec { partition: Some("debug".into()), ..in_it(10) });
    assert!(matches!(&elsewhere[..], [Answer::Refused(Refusal::ReservationAccess(_))]), "{elsewhere:?}");
    let own = d.submit(in_it(10));
    let run = d.c.state.jobs[&own].run().map(|run| run.partition.clone());
    assert_eq!(run.as_deref(), Some("other"), "the reservation's partition is the job's default");
    let either = d.submit(JobSpec { partition: Some("debug,other".into()), ..in_it(10) });
    let run = d.c.state.jobs[&either].run().map(|run| run.partition.clone());
    assert_eq!(run.as_deref(), Some("other"));
    let nodes_ = |more: Option<&str>, less: Option<&str>| ReservationChange {
        name: Some("r".into()),
        more_nodes: more.map(str::to_owned),
        less_nodes: less.map(str::to_owned),
        ..ReservationChange::default()
    };
    assert_eq!(ask(&mut d, 0, nodes_(Some("n[2-3]"), Some("n2")), false), Answer::Reserved("r".into()));
    assert_eq!(nodes(&d, "r"), [0, 2]);
    assert!(matches!(ask(&mut d, 0, nodes_(None, Some("n[1-3]")), false), Answer::Refused(Refusal::InvalidNode(_))));
}

#[test]
fn jobs_run_on_after_their_reservation_where_the_site_allows_it() {
    for (minutes, ends_after) in [(0, Some(0)), (2, Some(120)), (65_535, None)] {
        let mut d = Driver::empty(Config { resv_over_run_min: minutes, ..Config::default() });
        d.add_node("n1", 1);
        reserve(&mut d, "r", "n1", 0, 100, &[Flag::Daily]);
        let id = d.submit(in_it(5000));
        d.pass(100);
        if let Some(seconds) = ends_after.filter(|seconds| *seconds > 0) {
            assert_eq!(d.state_of(id), Some(JobState::Running), "{minutes}");
            d.restart();
            d.register("n1", &[d.attempt(id)]);
            d.pass(seconds - 1);
            assert_eq!(d.state_of(id), Some(JobState::Running), "{minutes}");
            d.pass(2);
        }
        let expected = ends_after.map_or(JobState::Running, |_| JobState::Completing(EndState::Timeout));
        assert_eq!(d.state_of(id), Some(expected), "{minutes}");
    }
}
