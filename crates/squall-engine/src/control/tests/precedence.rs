//! Which jobs go first, and which make room: multifactor priorities, usage, preemption.

use std::sync::Arc;

use squall_model::config::{Config, PartitionConfig};
use squall_model::gang::Preempt;
use squall_model::id::JobId;
use squall_model::job::{EndState, JobSpec, JobState, Need};
use squall_model::policy::{
    Account, AssocKey, Association, PolicyChange, PreemptMode, PreemptType, PriorityType, Qos, ROOT, Seconds, User,
};
use squall_model::wire::client::{Answer, JobSelection, Request};
use squall_model::wire::node::{Down, SignalTarget};
use squall_model::wire::priority_info::{JobPriority, Share};

use crate::control::tests::driver::{ADA, Driver, array, batch};

/// One node with so many CPUs.
fn cluster(config: Config, cpus: u32) -> Driver {
    let mut d = Driver::empty(config);
    d.add_node("n1", cpus);
    d
}

pub(super) fn change(d: &mut Driver, changes: Vec<PolicyChange>) {
    let version = d.c.state().policy.version;
    assert_eq!(d.ask(9, 0, Request::ChangePolicy { version, changes }), [Answer::Done]);
}

pub(super) fn qos(name: &str, priority: u32, preempt: &[&str]) -> PolicyChange {
    let preempt = preempt.iter().map(|name| (*name).to_owned()).collect();
    PolicyChange::Qos(name.into(), Some(Qos { priority, preempt, ..Qos::default() }))
}

pub(super) fn of(qos: &str) -> JobSpec {
    JobSpec { qos: Some(qos.into()), ..batch() }
}

fn priorities(d: &mut Driver) -> Vec<JobPriority> {
    match d.ask(5, 0, Request::Priorities { jobs: JobSelection::default() }).remove(0) {
        Answer::Priorities(all) => all.jobs,
        other => panic!("{other:?}"),
    }
}

fn shares(d: &mut Driver) -> Vec<Share> {
    match d.ask(5, 0, Request::Shares).remove(0) {
        Answer::Shares(all) => all,
        other => panic!("{other:?}"),
    }
}

fn multifactor() -> Config {
    Config {
        priority_type: PriorityType::Multifactor,
        priority_weight_age: 1000,
        priority_weight_qos: 500,
        priority_max_age_s: Seconds(1000),
        priority_decay_half_life_s: Seconds(0),
        ..Config::default()
    }
}

#[test]
fn the_oldest_goes_first_unless_a_qos_is_worth_more() {
    let mut d = cluster(multifactor(), 1);
    change(&mut d, vec![qos("low", 0, &[]), qos("high", 10, &[])]);
    let first = d.submit(of("low"));
    let old = d.submit(of("low"));
    d.pass(400);
    let middle = d.submit(of("high"));
    d.pass(200);
    let young = d.submit(of("low"));
    let of_job = |d: &mut Driver, id: JobId| priorities(d).into_iter().find(|p| p.id == id).unwrap().priority;
    assert_eq!((of_job(&mut d, old), of_job(&mut d, middle), of_job(&mut d, young)), (600, 700, 1));
    d.finish(first, 0);
    assert_eq!(d.state_of(middle), Some(JobState::Running));
    d.finish(middle, 0);
    assert_eq!(d.state_of(old), Some(JobState::Running));
    d.pass(2000);
    assert_eq!(of_job(&mut d, young), 1000, "who is old enough gains no more");
}

#[test]
fn basic_priorities_fit_the_numbers_of_rest_clients() {
    let mut d = cluster(Config::default(), 1);
    d.submit(batch());
    let plain = d.submit(batch());
    let priority = priorities(&mut d).into_iter().find(|p| p.id == plain).unwrap().priority;
    assert_eq!(priority, 0x7fff_0000 - plain.0, "generated clients read 32 bits with a sign");
}

#[test]
fn nice_and_a_priority_that_is_set_count() {
    let mut d = cluster(multifactor(), 1);
    let first = d.submit(batch());
    let nice = d.submit(JobSpec { nice: 50, ..batch() });
    let plain = d.submit(batch());
    let raised = d.submit(batch());
    let change = squall_model::event::JobChange { priority: Some(9), ..Default::default() };
    d.commit(squall_model::event::Event::JobUpdated { id: raised, change, whole: false });
    d.pass(5);
    d.finish(first, 0);
    assert_eq!(d.state_of(raised), Some(JobState::Running));
    d.finish(raised, 0);
    assert_eq!(d.state_of(plain), Some(JobState::Running));
    assert_eq!(d.state_of(nice), Some(JobState::Pending));
}

#[test]
fn who_used_less_goes_first_and_usage_is_counted_while_jobs_run() {
    let config = Config { priority_weight_fairshare: 10_000, priority_weight_age: 0, ..multifactor() };
    let mut d = cluster(config, 2);
    let user = |name: &str| {
        [
            PolicyChange::User(name.into(), Some(User { default_account: "a".into(), ..User::default() })),
            PolicyChange::Association(AssocKey::user("a", name), Some(Association::default())),
        ]
    };
    let own = Association { parent: ROOT.into(), ..Association::default() };
    let mut all = vec![
        PolicyChange::Account("a".into(), Some(Account::default())),
        PolicyChange::Association(AssocKey::account("a"), Some(own)),
    ];
    all.extend(user(&format!("u{ADA}")));
    all.extend(user("u7"));
    change(&mut d, all);
    let two = || JobSpec { need: Need { cpus_per_task: Some(2), ..Need::default() }, ..batch() };
    let first = d.submit(two());
    d.pass(100);
    let mine = d.submit(two());
    let other = Request::Submit {
        spec: Arc::new(two()),
        script: b"#!/bin/sh\n".to_vec().into(),
        env: Vec::new().into(),
        key: d.key(),
    };
    let Answer::Submitted { job: theirs, .. } = d.ask(1, 7, other).remove(0) else { panic!("it is accepted") };
    let used = |d: &mut Driver, name: &str| shares(d).into_iter().find(|s| s.user == name).unwrap();
    let ada = used(&mut d, &format!("u{ADA}"));
    assert!((ada.raw_usage.0 - 200.0).abs() < 0.01, "{ada:?}");
    assert!((ada.fairshare.0 - 0.5).abs() < 1e-9 && (used(&mut d, "u7").fairshare.0 - 1.0).abs() < 1e-9);
    // Shares are reckoned now and then.
    d.pass(300);
    d.finish(first, 0);
    assert_eq!((d.state_of(theirs), d.state_of(mine)), (Some(JobState::Running), Some(JobState::Pending)));
    d.pass(10);
    let ada = used(&mut d, &format!("u{ADA}"));
    assert!((ada.raw_usage.0 - 800.0).abs() < 0.01, "{ada:?}");
    d.restart();
    d.register("n1", &[d.attempt(theirs)]);
    let again = used(&mut d, &format!("u{ADA}"));
    assert_eq!(again.raw_usage, ada.raw_usage, "usage survives");
}

fn preempting() -> Config {
    Config {
        preempt_type: PreemptType::Qos,
        preempt_mode: Preempt { way: PreemptMode::Requeue, ..Preempt::default() },
        ..Config::default()
    }
}

#[test]
fn a_job_makes_room_and_goes_back_into_the_queue_once() {
    let mut d = cluster(preempting(), 2);
    change(&mut d, vec![qos("low", 0, &[]), qos("high", 10, &["low"])]);
    let (old, young) = (d.submit(of("low")), {
        d.pass(5);
        d.submit(of("low"))
    });
    let high = d.submit(of("high"));
    assert_eq!(d.state_of(young), Some(JobState::Completing(EndState::Preempted)), "the younger one goes");
    assert_eq!((d.state_of(old), d.state_of(high)), (Some(JobState::Running), Some(JobState::Pending)));
    assert_eq!(d.ended().len(), 1);
    d.pass(3);
    assert!(d.ended().is_empty(), "nobody else is asked meanwhile");
    d.finish(young, 0);
    assert_eq!((d.state_of(high), d.state_of(young)), (Some(JobState::Running), Some(JobState::Pending)));
    assert_eq!(d.c.state().jobs[&young].restarts, 1);
    d.finish(high, 0);
    assert_eq!(d.state_of(young), Some(JobState::Running));
    assert_eq!(d.attempt(young).attempt.0, 2);
}

#[test]
fn who_makes_room_does_not_start_again_in_it() {
    // By age alone the low one would go first.
    let Config { preempt_type, preempt_mode, .. } = preempting();
    let mut d = cluster(Config { preempt_type, preempt_mode, priority_weight_qos: 0, ..multifactor() }, 1);
    change(&mut d, vec![qos("low", 10, &[]), qos("high", 0, &["low"])]);
    let low = d.submit(of("low"));
    d.pass(400);
    let high = d.submit(of("high"));
    d.finish(low, 0);
    assert_eq!((d.state_of(high), d.state_of(low)), (Some(JobState::Running), Some(JobState::Pending)));
    d.finish(high, 0);
    assert_eq!(d.state_of(low), Some(JobState::Running));
}

#[test]
fn who_goes_first_by_its_partition_makes_room_for_nobody_behind_it() {
    let fast = PartitionConfig { name: "fast".into(), priority_tier: 2, ..PartitionConfig::default() };
    let partitions = vec![PartitionConfig { default: true, ..PartitionConfig::default() }, fast];
    let mut d = cluster(Config { partitions, ..preempting() }, 1);
    change(&mut d, vec![qos("low", 0, &[]), qos("high", 10, &["low"])]);
    let low = d.submit(JobSpec { partition: Some("fast".into()), ..of("low") });
    let high = d.submit(of("high"));
    d.pass(100);
    assert_eq!((d.state_of(low), d.state_of(high)), (Some(JobState::Running), Some(JobState::Pending)));
    let first = d.submit(JobSpec { partition: Some("fast".into()), ..of("high") });
    d.finish(low, 0);
    assert_eq!((d.state_of(first), d.state_of(high)), (Some(JobState::Running), Some(JobState::Pending)));
}

#[test]
fn who_may_not_go_back_is_cancelled_and_who_must_not_go_stays() {
    let mut d = cluster(preempting(), 1);
    change(&mut d, vec![qos("low", 0, &[]), qos("high", 10, &["low"]), qos("other", 5, &[])]);
    let low = d.submit(JobSpec { requeue: Some(false), ..of("low") });
    d.submit(of("other"));
    assert_eq!(d.state_of(low), Some(JobState::Running), "only who is named makes room");
    let high = d.submit(of("high"));
    d.finish(low, 0);
    assert_eq!(d.state_of(low), Some(JobState::Ended(EndState::Preempted)));
    assert_eq!(d.state_of(high), Some(JobState::Running));
}

// Found by the simulator (seed 6377 of 4 nodes): a requeued job was scheduled first in its other partition, where it
// reserved what the preempting job needed; so it started again, and was preempted again, for ever.
#[test]
fn a_job_that_would_come_back_first_is_not_preempted() {
    let mut config = preempting();
    config.preempt_mode.way = PreemptMode::Requeue;
    let fast = PartitionConfig { name: "fast".into(), nodes: "n1".into(), priority_tier: 2, ..Default::default() };
    config.partitions = vec![PartitionConfig { default: true, ..Default::default() }, fast];
    let mut d = cluster(config, 1);
    d.add_node("n2", 1);
    change(&mut d, vec![qos("low", 0, &[]), qos("high", 10, &["low"])]);
    let within = |partition: &str, qos: &str| JobSpec { partition: Some(partition.into()), ..of(qos) };
    d.submit(within("fast", "low"));
    let both = d.submit(within("fast,debug", "low"));
    assert_eq!(d.state_of(both), Some(JobState::Running), "on the second node");
    let high = d.submit(of("high"));
    assert_eq!((d.state_of(both), d.state_of(high)), (Some(JobState::Running), Some(JobState::Pending)));
    d.finish(both, 0);
    assert_eq!(d.state_of(high), Some(JobState::Running));
    let low = d.submit(within("debug", "low"));
    d.finish(high, 0);
    d.submit(of("high"));
    assert!(matches!(d.state_of(low), Some(JobState::Completing(_))), "it comes back behind");
}

#[test]
fn the_fewest_make_room() {
    let mut d = cluster(preempting(), 4);
    change(&mut d, vec![qos("low", 0, &[]), qos("high", 10, &["low"])]);
    let array = d.submit(JobSpec { qos: Some("low".into()), ..array(3, None) });
    let need = Need { cpus_per_task: Some(2), ..Need::default() };
    d.submit(JobSpec { need, ..of("high") });
    let ending = d.c.state().touched(array).filter(|(_, job)| matches!(job.state(), JobState::Completing(_)));
    assert_eq!(ending.count(), 2);
}

#[test]
fn notice_is_given_and_young_jobs_are_left_alone() {
    let mut d = cluster(Config { preempt_exempt_time_s: Seconds(60), ..preempting() }, 1);
    let graceful = Qos { grace_s: 20, ..Qos::default() };
    change(&mut d, vec![PolicyChange::Qos("low".into(), Some(graceful)), qos("high", 10, &["low"])]);
    let low = d.submit(of("low"));
    let high = d.submit(of("high"));
    d.pass(59);
    let warned = |d: &Driver| {
        d.sent.iter().any(|(_, m)| matches!(m, Down::Signal { target: SignalTarget::Steps, signal: 15, .. }))
    };
    assert!(!warned(&d));
    d.pass(2);
    assert!(warned(&d));
    assert_eq!(d.state_of(low), Some(JobState::Running));
    d.pass(10);
    d.restart();
    d.register("n1", &[d.attempt(low)]);
    d.pass(10);
    assert_eq!(d.state_of(low), Some(JobState::Completing(EndState::Preempted)));
    d.finish(low, 0);
    assert_eq!(d.state_of(high), Some(JobState::Running));
}

#[test]
fn who_fails_after_notice_has_made_room() {
    let mut d = cluster(preempting(), 1);
    let graceful = Qos { grace_s: 20, ..Qos::default() };
    change(&mut d, vec![PolicyChange::Qos("low".into(), Some(graceful)), qos("high", 10, &["low"])]);
    let low = d.submit(of("low"));
    let high = d.submit(of("high"));
    d.pass(5);
    d.finish(low, 143);
    assert_eq!((d.state_of(low), d.state_of(high)), (Some(JobState::Pending), Some(JobState::Running)));
    d.finish(high, 0);
    let high = d.submit(of("high"));
    d.pass(5);
    d.finish(low, 0);
    assert_eq!(d.state_of(low), Some(JobState::Ended(EndState::Completed)), "who is done in time is done");
    assert_eq!(d.state_of(high), Some(JobState::Running));
}

#[test]
fn a_higher_tier_takes_from_a_lower_one() {
    let partition = |name: &str, priority_tier: u32| PartitionConfig {
        name: name.into(),
        priority_tier,
        ..PartitionConfig::default()
    };
    let config = Config {
        partitions: vec![PartitionConfig { default: true, ..partition("low", 1) }, partition("high", 2)],
        preempt_type: PreemptType::Partition,
        preempt_mode: Preempt { way: PreemptMode::Cancel, ..Preempt::default() },
        ..Config::default()
    };
    let mut d = cluster(config, 1);
    let low = d.submit(batch());
    let high = d.submit(JobSpec { partition: Some("high".into()), ..batch() });
    d.finish(low, 0);
    assert_eq!(d.state_of(low), Some(JobState::Ended(EndState::Preempted)));
    assert_eq!(d.state_of(high), Some(JobState::Running));
}
