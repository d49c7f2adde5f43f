//! Limits on GPUs, on each node, and on resources over time: which jobs may start, which wait and why, and which have
//! used up their time.

use squall_model::config::{Config, NodeConfig, PartitionConfig};
use squall_model::id::JobId;
use squall_model::job::{EndState, JobSpec, JobState, Need, PendingReason};
use squall_model::policy::{
    Account, AssocKey, Association, Enforce, Limit, PolicyChange, Qos, ROOT, Scope, Seconds, Tres, User, Whose,
};
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_sched::Item;

use crate::control::tests::driver::{ADA, Driver, batch};

const USED_GPU: Limit = Limit::Tres(Scope::GrpUsed, Tres::Gpu);

fn change(d: &mut Driver, changes: Vec<PolicyChange>) {
    let version = d.c.state().policy.version;
    assert_eq!(d.ask(9, 0, Request::ChangePolicy { version, changes }), [Answer::Done]);
}

/// Two nodes with four GPUs each, and a QOS `gpu` with limits, in an account with limits.
fn cluster(enforce: &str, account: &[(Limit, u64)], qos: &[(Limit, u64)]) -> Driver {
    let node = NodeConfig { name: "n[1-2]".into(), gres: "gpu:4".into(), ..NodeConfig::default() };
    let mut d = Driver::empty(Config {
        nodes: vec![node],
        accounting_storage_enforce: Enforce::try_from(enforce.to_owned()).unwrap(),
        priority_decay_half_life_s: Seconds(0),
        ..Config::default()
    });
    (1..=2).for_each(|n| d.add_node(&format!("n{n}"), 8));
    let limits = |all: &[(Limit, u64)]| all.iter().copied().collect();
    let of_account = Association { parent: ROOT.into(), limits: limits(account), ..Association::default() };
    let own = Association { qos: vec!["gpu".into(), "normal".into()], ..Association::default() };
    let (name, user) = (format!("u{ADA}"), User { default_account: "phys".into(), ..User::default() });
    change(
        &mut d,
        vec![
            PolicyChange::Qos("gpu".into(), Some(Qos { limits: limits(qos), ..Qos::default() })),
            PolicyChange::Account("phys".into(), Some(Account::default())),
            PolicyChange::Association(AssocKey::account("phys"), Some(of_account)),
            PolicyChange::User(name.clone(), Some(user)),
            PolicyChange::Association(AssocKey::user("phys", &name), Some(own)),
        ],
    );
    d
}

/// A job of so many GPUs for so many minutes.
fn job(gpus: u32, minutes: u64) -> JobSpec {
    let need = Need { gres: Some(format!("gpu:{gpus}")), ..Need::default() };
    JobSpec { need, qos: Some("gpu".into()), time_limit_s: Some(minutes * 60), ..batch() }
}

fn reason(d: &Driver, id: JobId) -> PendingReason {
    d.c.queue.reason(d.c.state(), d.now, Item { id, array: false })
}

fn waits_for(d: &Driver, id: JobId, whose: Whose, limit: Limit) {
    assert_eq!((d.state_of(id), reason(d, id)), (Some(JobState::Pending), PendingReason::Limit(whose, limit)));
}

fn runs(d: &Driver, id: JobId) {
    assert_eq!(d.state_of(id), Some(JobState::Running));
}

#[test]
fn gpus_of_all_and_of_each_user_are_counted() {
    let (all, each) = (Limit::Tres(Scope::Grp, Tres::Gpu), Limit::Tres(Scope::User, Tres::Gpu));
    let mut d = cluster("", &[(all, 4)], &[(each, 3)]);
    let first = d.submit(job(3, 10));
    let second = d.submit(job(1, 10));
    runs(&d, first);
    waits_for(&d, second, Whose::Qos, each);
    let other = d.submit(JobSpec { qos: None, ..job(2, 10) });
    waits_for(&d, other, Whose::Association, all);
    let fits = d.submit(JobSpec { qos: None, ..job(1, 10) });
    runs(&d, fits);
    d.restart();
    d.register("n1", &[d.attempt(first), d.attempt(fits)]);
    waits_for(&d, second, Whose::Association, all);
    d.finish(first, 0);
    runs(&d, second);
    runs(&d, other);
}

#[test]
fn what_a_job_may_have_is_bounded() {
    let of_job = [
        (Limit::Tres(Scope::Job, Tres::Gpu), 2),
        (Limit::Tres(Scope::JobDue, Tres::Gpu), 120 * 60),
        (Limit::Tres(Scope::Node, Tres::Cpu), 2),
        (Limit::Tres(Scope::Least, Tres::Gpu), 1),
    ];
    let mut d = cluster("", &[], &of_job);
    let cpus = |spec: JobSpec, cpus| JobSpec { need: Need { cpus_per_task: Some(cpus), ..spec.need }, ..spec };
    for (spec, limit) in [
        (job(3, 1), of_job[0].0),
        (job(2, 61), of_job[1].0),
        (cpus(job(1, 1), 3), of_job[2].0),
        (JobSpec { need: Need::default(), ..job(0, 1) }, of_job[3].0),
    ] {
        let id = d.submit(spec);
        waits_for(&d, id, Whose::Qos, limit);
    }
    let fine = d.submit(cpus(job(2, 60), 2));
    runs(&d, fine);
}

#[test]
fn a_budget_that_is_used_up_ends_who_runs_and_keeps_others() {
    for (account, qos, whose) in
        [(vec![(USED_GPU, 60 * 60)], vec![], Whose::Association), (vec![], vec![(USED_GPU, 60 * 60)], Whose::Qos)]
    {
        let mut d = cluster("", &account, &qos);
        let first = d.submit(job(4, 100));
        d.pass(14 * 60);
        runs(&d, first);
        d.pass(2 * 60);
        assert_eq!(d.state_of(first), Some(JobState::Completing(EndState::Timeout)), "{whose:?}");
        let reports = d.script_end(first, 0);
        d.report("n1", &reports);
        let next = d.submit(job(1, 1));
        waits_for(&d, next, whose, USED_GPU);
        let without = d.submit(JobSpec { need: Need::default(), ..job(0, 1) });
        runs(&d, without);
        d.restart();
        d.register("n1", &[d.attempt(without)]);
        d.register("n2", &[]);
        waits_for(&d, next, whose, USED_GPU);
        if whose == Whose::Association {
            change(&mut d, vec![PolicyChange::Forget(AssocKey::account("phys"))]);
            runs(&d, next);
        }
    }
}

#[test]
fn with_safe_only_who_fits_the_budget_starts_and_nobody_is_ended() {
    let mut d = cluster("safe", &[(USED_GPU, 60 * 60)], &[]);
    let never = d.submit(job(2, 31));
    waits_for(&d, never, Whose::Association, USED_GPU);
    let first = d.submit(job(4, 10));
    let second = d.submit(job(4, 6));
    runs(&d, first);
    waits_for(&d, second, Whose::Association, USED_GPU);
    d.pass(5 * 60);
    d.finish(first, 0);
    runs(&d, second);
}

#[test]
fn what_runs_may_still_use_is_bounded_and_grows_less_by_itself() {
    let due = Limit::Tres(Scope::GrpDue, Tres::Cpu);
    let mut d = cluster("", &[(due, 60 * 60)], &[]);
    let first = d.submit(job(1, 50));
    let second = d.submit(job(1, 20));
    runs(&d, first);
    waits_for(&d, second, Whose::Association, due);
    d.pass(9 * 60);
    waits_for(&d, second, Whose::Association, due);
    d.pass(2 * 60);
    runs(&d, second);
    let never = d.submit(job(1, 61));
    waits_for(&d, never, Whose::Association, due);
}

#[test]
fn a_qos_remembers_how_long_its_jobs_ran() {
    let mut d = cluster("", &[], &[(Limit::GrpWall, 10 * 60)]);
    let first = d.submit(job(1, 9));
    d.pass(6 * 60);
    d.finish(first, 0);
    let second = d.submit(job(1, 9));
    runs(&d, second);
    d.pass(5 * 60);
    assert_eq!(d.state_of(second), Some(JobState::Completing(EndState::Timeout)));
    let third = d.submit(job(1, 1));
    waits_for(&d, third, Whose::Qos, Limit::GrpWall);
}

#[test]
fn what_the_jobs_of_a_user_or_an_account_may_still_use_is_bounded() {
    for scope in [Scope::UserDue, Scope::AccountDue] {
        let due = Limit::Tres(scope, Tres::Cpu);
        let mut d = cluster("", &[], &[(due, 60 * 60)]);
        let first = d.submit(job(1, 50));
        let second = d.submit(job(1, 20));
        let never = d.submit(job(1, 61));
        runs(&d, first);
        waits_for(&d, second, Whose::Qos, due);
        waits_for(&d, never, Whose::Qos, due);
        let apart = d.submit(JobSpec { qos: None, ..job(1, 100) });
        runs(&d, apart);
        d.pass(12 * 60);
        runs(&d, second);
    }
}

/// Gives the QOS `gpu` these flags.
fn flagged(d: &mut Driver, flags: &[&str]) {
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    change(d, vec![PolicyChange::Qos("gpu".into(), Some(Qos { flags, ..Qos::default() }))]);
}

#[test]
fn flags_of_a_qos_lift_limits_of_partitions_and_ask_for_reservations() {
    let mut d = cluster("", &[], &[]);
    let mut config = d.config.clone();
    config.partitions = vec![PartitionConfig { max_time_s: Some(600), ..PartitionConfig::default() }];
    d.config = config;
    d.restart();
    d.register("n1", &[]);
    d.register("n2", &[]);
    let long = d.submit(job(1, 20));
    assert_eq!(reason(&d, long), PendingReason::PartitionTimeLimit);
    flagged(&mut d, &["PartitionTimeLimit"]);
    runs(&d, long);
    flagged(&mut d, &["RequiresReservation"]);
    let key = d.key();
    let refused = d.submit_with(key, job(1, 1));
    assert!(matches!(&refused[..], [Answer::Refused(Refusal::InvalidValue { .. })]), "{refused:?}");
    let free = d.submit(JobSpec { qos: None, ..job(1, 1) });
    runs(&d, free);
}
