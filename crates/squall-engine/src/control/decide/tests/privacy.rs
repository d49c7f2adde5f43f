//! `PrivateData`: what users see of others.

use std::sync::Arc;

use squall_model::config::{Config, PrivateData};
use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::job::JobSpec;
use squall_model::policy::{Account, AssocKey, Association, PolicyChange, ROOT, User};
use squall_model::wire::client::{Answer, JobSelection, Refusal, Request};

use crate::control::decide::tests::{ADA, BOB, World, operator, these, user};
use crate::control::port::Who;

const CARL: u32 = 1002;

/// A cluster that hides `private`, with BOB and ADA in an account that CARL coordinates.
fn world(private: &str) -> World {
    let mut world = World::new();
    let private_data = PrivateData::try_from(private.to_owned()).unwrap();
    let mut config = Config { private_data, default_account: "phys".into(), ..Config::default() };
    config.complete();
    world.commit(Event::Configured { config: Arc::new(config) });
    let led = Account { coordinators: vec![format!("u{CARL}")], ..Account::default() };
    let of_account = Association { parent: ROOT.into(), ..Association::default() };
    let mut changes = vec![
        PolicyChange::Account("phys".into(), Some(led)),
        PolicyChange::Account("chem".into(), Some(Account::default())),
        PolicyChange::Association(AssocKey::account("phys"), Some(of_account.clone())),
        PolicyChange::Association(AssocKey::account("chem"), Some(of_account)),
    ];
    for uid in [ADA, BOB] {
        let name = format!("u{uid}");
        changes.push(PolicyChange::User(name.clone(), Some(User::default())));
        changes.push(PolicyChange::Association(AssocKey::user("phys", &name), Some(Association::default())));
    }
    world.commit(Event::PolicyChanged { changes, by: 0 });
    world
}

fn listed(world: &mut World, who: &Who, jobs: JobSelection) -> (Vec<JobId>, Vec<JobId>) {
    match world.answer(who, Request::Jobs { jobs, ended: true, steps: true }) {
        Answer::Jobs(page) => (page.jobs.iter().map(|job| job.id).collect(), page.unknown.clone()),
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn jobs_of_others_are_hidden() {
    let mut world = world("jobs");
    let (ada, bob) = (world.running(ADA), world.submit(BOB, JobSpec::default()));
    let array = world.array(ADA, 3);
    let all = JobSelection::default;
    assert_eq!(listed(&mut world, &user(BOB), all()).0, [bob]);
    assert_eq!(listed(&mut world, &user(BOB), these(&[ada, bob, array])), (vec![bob], vec![ada, array]));
    for who in [user(CARL), operator()] {
        assert_eq!(listed(&mut world, &who, all()).0, [ada, bob, array], "{}", who.owner.user);
    }
    for request in [Request::Why { job: ada }, Request::Why { job: array }] {
        assert_eq!(world.refusal(&user(BOB), request), Refusal::InvalidJobId);
    }
    let priorities = |world: &mut World, who: &Who| match world.answer(who, Request::Priorities { jobs: all() }) {
        Answer::Priorities(all) => all.jobs.len(),
        answer => panic!("{answer:?}"),
    };
    let seen = [user(BOB), user(ADA), operator()].map(|who| priorities(&mut world, &who));
    assert_eq!(seen, [1, 1, 2]);
}

// Regression test of attack B8.
#[test]
fn b8_counts_of_requests_are_those_of_the_user_where_data_are_private() {
    let named = |private: &str, who: Who| match world(private).answer(&who, Request::Diag { reset: false }) {
        Answer::Diag(diag) => diag.users.into_iter().map(|user| user.0).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(named("nodes", user(ADA)), [0; 0], "all are shown");
    for word in ["jobs", "usage", "users"] {
        assert_eq!(named(word, user(ADA)), [ADA], "{word}");
        assert_eq!(named(word, operator()), [0; 0], "{word}");
    }
}

#[test]
fn nodes_and_partitions_are_for_operators() {
    for (private, hidden) in
        [("nodes", Request::Nodes), ("nodes", Request::FutureNodes), ("partitions", Request::Partitions)]
    {
        let mut world = world(private);
        assert_eq!(world.refusal(&user(BOB), hidden.clone()), Refusal::AccessDenied);
        assert!(!matches!(world.answer(&operator(), hidden), Answer::Refused(_)));
    }
}

#[test]
fn accounts_and_users_are_for_those_who_lead_them() {
    let seen = |world: &mut World, uid: u32| match world.answer(&user(uid), Request::Policy) {
        Answer::Policy(policy) => (
            policy.accounts.keys().cloned().collect::<Vec<_>>().join(" "),
            policy.users.keys().cloned().collect::<Vec<_>>().join(" "),
            policy.associations.keys().map(|key| format!("{}/{}", key.account, key.user)).collect::<Vec<_>>().join(" "),
        ),
        answer => panic!("{answer:?}"),
    };
    let shown = seen(&mut world("accounts"), BOB).1;
    assert!(shown.split(' ').any(|name| name == "root"), "{shown}: root is hidden with the other users");
    let mut world = world("accounts,users");
    let expected = |[accounts, users, associations]: [&str; 3]| (accounts.into(), users.into(), associations.into());
    assert_eq!(seen(&mut world, BOB), expected(["", "u1001", "phys/u1001"]));
    assert_eq!(seen(&mut world, CARL), expected(["phys", "u1000 u1001", "phys/ phys/u1000 phys/u1001"]));
}

#[test]
fn usage_and_history_of_others_are_hidden() {
    let mut world = world("usage");
    let users = |world: &mut World, uid| match world.answer(&user(uid), Request::Shares) {
        Answer::Shares(all) => all.into_iter().map(|share| share.account + "/" + &share.user).collect::<Vec<_>>(),
        answer => panic!("{answer:?}"),
    };
    assert_eq!(users(&mut world, BOB), ["root/", "phys/", "phys/u1001"]);
    assert_eq!(users(&mut world, CARL), ["root/", "phys/", "phys/u1000", "phys/u1001"]);
    assert!(!world.c.sight(&user(BOB)).history() && world.c.sight(&operator()).history());
}

#[test]
fn values_of_variables_are_shown_to_their_owner_only() {
    let mut world = world("none");
    let line = "sbatch --export=ALL,SECRET=hunter2 job.sh";
    let job = world.submit(ADA, JobSpec { submit_line: line.into(), ..JobSpec::default() });
    let shown = |world: &mut World, who: &Who| match world
        .answer(who, Request::Jobs { jobs: these(&[job]), ended: false, steps: false })
    {
        Answer::Jobs(page) => page.specs[0].submit_line.clone(),
        answer => panic!("{answer:?}"),
    };
    assert_eq!(shown(&mut world, &user(BOB)), "sbatch --export=ALL,SECRET=...");
    assert_eq!(shown(&mut world, &user(ADA)), line);
    assert_eq!(shown(&mut world, &operator()), line);
}
