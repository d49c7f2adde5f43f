//! Accounts, levels of service and their limits: which jobs may run, how much at once, and why others wait.

use std::sync::Arc;

use squall_model::config::Config;
use squall_model::job::{JobSpec, JobState, Need, PendingReason};
use squall_model::policy::{
    Account, AdminLevel, AssocKey, Association, Enforce, Limit, Limits, PolicyChange, Qos, ROOT, User, Whose,
};
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_sched::Item;

use crate::control::tests::driver::{ADA, Driver, array, batch};

fn limits(all: &[(Limit, u64)]) -> Limits {
    all.iter().copied().collect()
}

/// Account `phys` below root with user u1000, each with limits.
fn phys(account: &[(Limit, u64)], user: &[(Limit, u64)]) -> Vec<PolicyChange> {
    let of_account = Association { parent: ROOT.into(), limits: limits(account), ..Association::default() };
    let of_user = Association { limits: limits(user), ..Association::default() };
    let name = format!("u{ADA}");
    vec![
        PolicyChange::Account("phys".into(), Some(Account::default())),
        PolicyChange::Association(AssocKey::account("phys"), Some(of_account)),
        PolicyChange::User(name.clone(), Some(User { default_account: "phys".into(), ..User::default() })),
        PolicyChange::Association(AssocKey::user("phys", &name), Some(of_user)),
    ]
}

fn qos(name: &str, all: &[(Limit, u64)]) -> PolicyChange {
    PolicyChange::Qos(name.into(), Some(Qos { limits: limits(all), ..Qos::default() }))
}

fn change(d: &mut Driver, uid: u32, changes: Vec<PolicyChange>) -> Answer {
    let version = d.c.state().policy.version;
    d.ask(9, uid, Request::ChangePolicy { version, changes }).remove(0)
}

fn set_up(nodes: u32, cpus: u32, changes: Vec<PolicyChange>) -> Driver {
    let mut d = Driver::new(nodes, cpus);
    assert_eq!(change(&mut d, 0, changes), Answer::Done);
    d
}

fn reason(d: &Driver, id: squall_model::id::JobId) -> PendingReason {
    d.c.queue.reason(d.c.state(), d.now, Item { id, array: false })
}

fn running(d: &Driver, ids: &[squall_model::id::JobId]) -> usize {
    ids.iter().filter(|id| d.state_of(**id) == Some(JobState::Running)).count()
}

#[test]
fn without_accounts_everybody_runs() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(JobSpec { account: Some("any".into()), qos: Some("other".into()), ..batch() });
    assert_eq!(d.state_of(job), Some(JobState::Running));
}

#[test]
fn a_limit_on_running_jobs_holds_and_is_named() {
    let mut d = set_up(1, 8, phys(&[(Limit::GrpJobs, 3)], &[(Limit::MaxJobs, 2)]));
    let ids: Vec<_> = (0..4).map(|_| d.submit(batch())).collect();
    assert_eq!(running(&d, &ids), 2);
    assert_eq!(reason(&d, ids[2]), PendingReason::Limit(Whose::Association, Limit::MaxJobs));
    d.finish(ids[0], 0);
    assert_eq!(running(&d, &ids), 2, "the next one goes");
    let own = Association { parent: ROOT.into(), limits: limits(&[(Limit::GrpJobs, 1)]), ..Association::default() };
    change(&mut d, 0, vec![PolicyChange::Association(AssocKey::account("phys"), Some(own))]);
    d.finish(ids[1], 0);
    assert_eq!(running(&d, &ids), 1);
    assert_eq!(reason(&d, ids[3]), PendingReason::Limit(Whose::Association, Limit::GrpJobs));
    d.restart();
    d.register("n1", &[d.attempt(ids[2])]);
    assert_eq!(running(&d, &ids), 1, "counts are as before");
    d.finish(ids[2], 0);
    assert_eq!(d.state_of(ids[3]), Some(JobState::Running));
}

#[test]
fn resources_are_limited_together_and_for_each_user() {
    let mut d = set_up(2, 8, vec![qos("wide", &[(Limit::GrpCpu, 6), (Limit::UserNode, 3)])]);
    let of = |cpus: u32| JobSpec {
        qos: Some("wide".into()),
        need: Need { cpus_per_task: Some(cpus), ..Need::default() },
        ..batch()
    };
    let (a, b, c) = (d.submit(of(4)), d.submit(of(4)), d.submit(of(2)));
    assert_eq!(reason(&d, b), PendingReason::Limit(Whose::Qos, Limit::GrpCpu));
    assert_eq!(d.state_of(c), Some(JobState::Running), "who fits goes");
    let never = d.submit(of(7));
    assert_eq!(reason(&d, never), PendingReason::Limit(Whose::Qos, Limit::GrpCpu));
    d.finish(a, 0);
    assert_eq!(d.state_of(b), Some(JobState::Running));
    let free = d.submit(JobSpec { need: Need { cpus_per_task: Some(7), ..Need::default() }, ..batch() });
    assert_eq!(d.state_of(free), Some(JobState::Running), "others are not limited");
}

#[test]
fn an_array_counts_as_many() {
    let mut d = set_up(1, 8, phys(&[], &[(Limit::MaxJobs, 3), (Limit::MaxSubmit, 5)]));
    let id = d.submit(array(4, None));
    let tally = &d.c.state().arrays[&id].tally;
    assert_eq!((tally.active, tally.untouched.len()), (3, 2));
    let key = d.key();
    let refused = d.submit_with(key, batch());
    assert_eq!(refused, [Answer::Refused(Refusal::Limit(Whose::Association, Limit::MaxSubmit))]);
    d.cancel(id);
    d.submit(batch());
}

#[test]
fn each_job_has_its_bounds() {
    let mut d = set_up(4, 4, phys(&[(Limit::MaxWall, 3600)], &[(Limit::MaxNode, 2)]));
    let long = d.submit(JobSpec { time_limit_s: Some(3601), ..batch() });
    assert_eq!(reason(&d, long), PendingReason::Limit(Whose::Association, Limit::MaxWall));
    let need = Need { nodes_min: Some(3), ..Need::default() };
    let wide = d.submit(JobSpec { time_limit_s: Some(60), need, ..batch() });
    assert_eq!(reason(&d, wide), PendingReason::Limit(Whose::Association, Limit::MaxNode));
    let fine = d.submit(JobSpec { time_limit_s: Some(60), ..batch() });
    assert_eq!(d.state_of(fine), Some(JobState::Running));
    change(&mut d, 0, phys(&[], &[]));
    assert_eq!(d.state_of(wide), Some(JobState::Running), "limits that go let jobs go");
}

#[test]
fn who_is_set_up_runs_where_they_are() {
    let mut d = set_up(1, 4, [phys(&[], &[]), vec![qos("high", &[])]].concat());
    let job = d.submit(batch());
    assert_eq!(d.c.state().jobs[&job].spec.account.as_deref(), Some("phys"));
    let loud = d.submit(JobSpec { account: Some("PHYS".into()), qos: Some("High".into()), ..batch() });
    let spec = &d.c.state().jobs[&loud].spec;
    assert_eq!((spec.account.as_deref(), spec.qos.as_deref()), (Some("phys"), Some("high")), "as they were set up");
    let refused = |d: &mut Driver, spec: JobSpec| {
        let key = d.key();
        d.submit_with(key, spec).remove(0)
    };
    let elsewhere = refused(&mut d, JobSpec { account: Some("chem".into()), ..batch() });
    assert_eq!(elsewhere, Answer::Refused(Refusal::InvalidAccount("chem".into())));
    let unknown = refused(&mut d, JobSpec { qos: Some("nosuch".into()), ..batch() });
    assert_eq!(unknown, Answer::Refused(Refusal::InvalidQos("nosuch".into())));
    let own = Association { qos: vec!["normal".into()], ..Association::default() };
    let config = Config {
        accounting_storage_enforce: Enforce::try_from("associations,qos".to_owned()).unwrap(),
        ..Config::default()
    };
    d.config = config;
    d.restart();
    change(&mut d, 0, vec![PolicyChange::Association(AssocKey::user("phys", &format!("u{ADA}")), Some(own))]);
    let not_theirs = refused(&mut d, JobSpec { qos: Some("high".into()), ..batch() });
    assert_eq!(not_theirs, Answer::Refused(Refusal::InvalidQos("high".into())));
    d.submit(batch());
    let stranger = Request::Submit {
        spec: Arc::new(batch()),
        script: b"#!/bin/sh\n".to_vec().into(),
        env: Vec::new().into(),
        key: d.key(),
    };
    assert_eq!(d.ask(1, 77, stranger), [Answer::Refused(Refusal::InvalidAccount("root".into()))]);
}

#[test]
fn who_may_change_accounts() {
    let mut d = set_up(1, 1, phys(&[], &[]));
    assert_eq!(change(&mut d, ADA, vec![qos("mine", &[])]), Answer::Refused(Refusal::AccessDenied));
    let coordinated = Account { coordinators: vec![format!("u{ADA}")], ..Account::default() };
    change(&mut d, 0, vec![PolicyChange::Account("phys".into(), Some(coordinated))]);
    let user = |name: &str| {
        vec![
            PolicyChange::User(name.into(), Some(User { default_account: "phys".into(), ..User::default() })),
            PolicyChange::Association(AssocKey::user("phys", name), Some(Association::default())),
        ]
    };
    assert_eq!(change(&mut d, ADA, user("bob")), Answer::Done, "coordinators add users");
    let raise = PolicyChange::Association(AssocKey::user("phys", &format!("u{ADA}")), Some(Association::default()));
    assert_eq!(change(&mut d, ADA, vec![raise]), Answer::Refused(Refusal::AccessDenied), "and don't raise themselves");
    let stale = d.ask(9, 0, Request::ChangePolicy { version: 0, changes: user("eve") });
    assert_eq!(stale, [Answer::Refused(Refusal::Stale)]);
    let orphan = PolicyChange::Association(AssocKey::user("nosuch", "bob"), Some(Association::default()));
    assert!(matches!(change(&mut d, 0, vec![orphan]), Answer::Refused(Refusal::Contradiction(..))));
    let job = d.submit(batch());
    let gone = vec![PolicyChange::Association(AssocKey::user("phys", &format!("u{ADA}")), None)];
    assert!(matches!(change(&mut d, 0, gone.clone()), Answer::Refused(Refusal::WrongState(_))));
    d.finish(job, 0);
    assert_eq!(change(&mut d, 0, gone), Answer::Done);
}

fn user(name: &str, admin: AdminLevel, account: &str) -> PolicyChange {
    PolicyChange::User(name.into(), Some(User { admin, default_account: account.into() }))
}

/// faults.md M3
#[test]
fn cve_2026_65140_an_operator_changes_no_administrator_and_no_level() {
    let level = |name: &str, admin| user(name, admin, "phys");
    let (mine, other) = (format!("u{ADA}"), "second".to_owned());
    let setup = [
        phys(&[], &[]),
        vec![
            level(&mine, AdminLevel::Operator),
            level(&other, AdminLevel::Operator),
            level("chief", AdminLevel::Administrator),
            level("plain", AdminLevel::None),
        ],
    ];
    let mut d = set_up(1, 1, setup.concat());
    let denied = [
        level("chief", AdminLevel::None),
        level("chief", AdminLevel::Operator),
        user("chief", AdminLevel::Administrator, ROOT),
        PolicyChange::User("chief".into(), None),
        level(&other, AdminLevel::None),
        level(&other, AdminLevel::Administrator),
        PolicyChange::User(other.clone(), None),
        level(&mine, AdminLevel::Administrator),
        level("plain", AdminLevel::Operator),
        level("new", AdminLevel::Administrator),
    ];
    for deed in denied {
        let answer = change(&mut d, ADA, vec![deed.clone()]);
        assert_eq!(answer, Answer::Refused(Refusal::AccessDenied), "{deed:?}");
    }
    let done = [
        user("plain", AdminLevel::None, ROOT),
        level("new", AdminLevel::None),
        user(&mine, AdminLevel::Operator, ROOT),
    ];
    for deed in done {
        assert_eq!(change(&mut d, ADA, vec![deed.clone()]), Answer::Done, "{deed:?}");
    }
    assert_eq!(change(&mut d, ADA, vec![PolicyChange::User("plain".into(), None)]), Answer::Done);
    assert_eq!(change(&mut d, 0, vec![PolicyChange::User("chief".into(), None)]), Answer::Done, "root may");
}

#[test]
fn cve_2025_43904_a_coordinator_makes_no_administrator() {
    let account = Account { coordinators: vec![format!("u{ADA}")], ..Account::default() };
    let setup = [phys(&[], &[]), vec![PolicyChange::Account("phys".into(), Some(account))]];
    let mut d = set_up(1, 1, setup.concat());
    for level in [AdminLevel::Operator, AdminLevel::Administrator] {
        for name in ["new", "bob", &format!("u{ADA}")] {
            let answer = change(&mut d, ADA, vec![user(name, level, "phys")]);
            assert_eq!(answer, Answer::Refused(Refusal::AccessDenied), "{name}: {level:?}");
        }
    }
}

/// faults.md M4
#[test]
fn m4_a_coordinator_gives_no_qos_that_is_not_there_to_give() {
    let bob = |value: Association| PolicyChange::Association(AssocKey::user("phys", "bob"), Some(value));
    let own = |qos: &[&str], default: &str| Association {
        qos: qos.iter().map(|name| (*name).to_owned()).collect(),
        default_qos: default.into(),
        ..Association::default()
    };
    let coordinated = Account { coordinators: vec![format!("u{ADA}")], ..Account::default() };
    let setup = [
        phys(&[], &[]),
        vec![qos("urgent", &[]), qos("normal", &[]), qos("high", &[])],
        vec![
            PolicyChange::Account("phys".into(), Some(coordinated)),
            user("bob", AdminLevel::None, "phys"),
            bob(own(&["normal", "high"], "normal")),
        ],
    ];
    let mut d = set_up(1, 1, setup.concat());
    let lists = ["normal", "high"];
    let first = Association { priority: Some(1000), ..own(&lists, "normal") };
    for denied in [own(&lists, "urgent"), own(&["normal", "urgent"], "normal"), own(&[], ""), first] {
        let answer = change(&mut d, ADA, vec![bob(denied.clone())]);
        assert_eq!(answer, Answer::Refused(Refusal::AccessDenied), "{denied:?}");
    }
    for given in [own(&lists, "high"), own(&lists, "")] {
        assert_eq!(change(&mut d, ADA, vec![bob(given)]), Answer::Done);
    }
    let eve = PolicyChange::Association(AssocKey::user("phys", "eve"), Some(own(&[], "urgent")));
    let brought = change(&mut d, ADA, vec![user("eve", AdminLevel::None, "phys"), eve]);
    assert_eq!(brought, Answer::Refused(Refusal::AccessDenied), "of a new user neither");
    let stray = change(&mut d, 0, vec![bob(own(&lists, "urgent"))]);
    assert!(matches!(stray, Answer::Refused(Refusal::Contradiction(..))), "{stray:?}");
}

/// faults.md M4: a default that the association may not use is no way round its list.
#[test]
fn m4_a_default_qos_must_be_usable_at_submission() {
    let mine = AssocKey::user("phys", &format!("u{ADA}"));
    let setup = [
        phys(&[], &[]),
        vec![qos("urgent", &[]), qos("normal", &[]), qos("high", &[])],
        vec![
            PolicyChange::Association(
                AssocKey::account("phys"),
                Some(Association {
                    parent: ROOT.into(),
                    qos: vec!["urgent".into()],
                    default_qos: "urgent".into(),
                    ..Association::default()
                }),
            ),
            PolicyChange::Association(
                mine,
                Some(Association { qos: vec!["normal".into(), "high".into()], ..Association::default() }),
            ),
        ],
    ];
    let mut d = set_up(1, 1, setup.concat());
    let key = d.key();
    let answer = d.submit_with(key, batch());
    assert_eq!(answer, [Answer::Refused(Refusal::InvalidQos("urgent".into()))], "its default is the account's");
}
