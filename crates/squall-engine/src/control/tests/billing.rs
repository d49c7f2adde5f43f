//! Billing by weights of partitions: what jobs are billed, what of it counts against limits, as usage and for fair shares.

use squall_model::billing::{Billing, BillingWeights, PriorityFlags};
use squall_model::config::{Config, NodeConfig, PartitionConfig};
use squall_model::id::JobId;
use squall_model::job::{JobSpec, JobState, Need, PendingReason};
use squall_model::policy::{
    Account, AssocKey, Association, Limit, PolicyChange, Qos, ROOT, Scope, Seconds, Tres, User, Whose,
};
use squall_model::resource::Memory;
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, JobUpdate, Refusal, Request};
use squall_model::wire::info::JobInfo;
use squall_model::wire::priority_info::Share;
use squall_sched::Item;

use crate::control::info::cluster::partitions;
use crate::control::info::job::of_job;
use crate::control::tests::driver::{ADA, Driver, batch, these};

const WEIGHTS: &str = "CPU=1,Mem=1G,GRES/gpu=10,GRES/gpu:a100=5";
const ALL: Limit = Limit::Tres(Scope::Grp, Tres::Billing);

fn weighing(weights: &str) -> BillingWeights {
    BillingWeights::try_from(weights.to_owned()).unwrap()
}

fn partition(name: &str, weights: &str) -> PartitionConfig {
    PartitionConfig {
        name: name.into(),
        default_time_s: Some(6000),
        tres_billing_weights: weighing(weights),
        ..PartitionConfig::default()
    }
}

/// Two nodes of eight CPUs with four GPUs, of which one has a type; the partitions `debug` (with weights) and `plain`.
fn site(weights: &str, flags: &str) -> Config {
    let node = |name: &str, gres: &str| NodeConfig { name: name.into(), gres: gres.into(), ..NodeConfig::default() };
    Config {
        nodes: vec![node("n1", "gpu:4"), node("n2", "gpu:a100:4")],
        partitions: vec![partition("debug", weights), partition("plain", "")],
        priority_flags: PriorityFlags::try_from(flags.to_owned()).unwrap(),
        priority_decay_half_life_s: Seconds(0),
        ..Config::default()
    }
}

fn change(d: &mut Driver, changes: Vec<PolicyChange>) {
    let version = d.c.state().policy.version;
    assert_eq!(d.ask(9, 0, Request::ChangePolicy { version, changes }), [Answer::Done]);
}

fn start(config: Config) -> Driver {
    let mut d = Driver::empty(config);
    (1..=2).for_each(|n| d.add_node(&format!("n{n}"), 8));
    d
}

/// The site, with an account and a QOS that have limits.
fn cluster(config: Config, account: &[(Limit, u64)], qos: &[(Limit, u64)]) -> Driver {
    let mut d = start(config);
    let limits = |all: &[(Limit, u64)]| all.iter().copied().collect();
    let of_account = Association { parent: ROOT.into(), limits: limits(account), ..Association::default() };
    let own = Association { qos: vec!["paid".into()], default_qos: "paid".into(), ..Association::default() };
    let (name, user) = (format!("u{ADA}"), User { default_account: "phys".into(), ..User::default() });
    change(
        &mut d,
        vec![
            PolicyChange::Qos("paid".into(), Some(Qos { limits: limits(qos), ..Qos::default() })),
            PolicyChange::Account("phys".into(), Some(Account::default())),
            PolicyChange::Association(AssocKey::account("phys"), Some(of_account)),
            PolicyChange::User(name.clone(), Some(user)),
            PolicyChange::Association(AssocKey::user("phys", &name), Some(own)),
        ],
    );
    d
}

/// A job of so many GPUs (`2`, `a100:1`), with one CPU and 2 GiB.
fn job(gpus: &str) -> JobSpec {
    let gres = (!gpus.is_empty()).then(|| format!("gpu:{gpus}"));
    let need = Need { gres, memory: Memory::PerNodeMb(2048), ..Need::default() };
    JobSpec { need, qos: Some("paid".into()), time_limit_s: Some(6000), ..batch() }
}

fn info(d: &Driver, id: JobId) -> JobInfo {
    of_job(&d.c, id, &d.c.state().jobs[&id], false, d.now).info
}

fn billed(d: &Driver, id: JobId) -> Option<u64> {
    info(d, id).billing.map(Billing::whole)
}

fn waits_for(d: &Driver, id: JobId, whose: Whose, limit: Limit) {
    let reason = d.c.queue.reason(d.c.state(), d.now, Item { id, array: false });
    assert_eq!((d.state_of(id), reason), (Some(JobState::Pending), PendingReason::Limit(whose, limit)));
}

fn runs(d: &Driver, id: JobId) {
    assert_eq!(d.state_of(id), Some(JobState::Running));
}

/// The user's line of `sshare`.
fn share(d: &mut Driver) -> Share {
    match d.ask(9, 0, Request::Shares).remove(0) {
        Answer::Shares(all) => all.into_iter().find(|share| !share.user.is_empty()).expect("the user has a line"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_job_holds_is_weighed_when_it_starts_and_kept() {
    let mut d = start(site(WEIGHTS, ""));
    let of_n1 = d.submit(JobSpec { qos: None, ..job("2") });
    assert_eq!(billed(&d, of_n1), Some(1 + 2 + 20));
    let of_n2 = d.submit(JobSpec { qos: None, ..job("a100:1") });
    assert_eq!(billed(&d, of_n2), Some(1 + 2 + 10 + 5));
    // Which GPUs a job has got counts, not what it asked for.
    let any = d.submit(JobSpec { qos: None, ..job("3") });
    assert_eq!(billed(&d, any), Some(1 + 2 + 30 + 15), "n1 has only two more");
    let waits = d.submit(JobSpec { qos: None, ..job("a100:4") });
    assert_eq!((d.state_of(waits), billed(&d, waits)), (Some(JobState::Pending), Some(1 + 2 + 40 + 20)));
    let plain = d.submit(JobSpec { partition: Some("plain".into()), qos: None, ..job("1") });
    assert_eq!((d.state_of(plain), billed(&d, plain)), (Some(JobState::Running), None), "its CPUs");
    let whole = |d: &Driver| partitions(d.c.state()).into_iter().map(|p| p.billing.map(Billing::whole));
    let memory = d.c.state().nodes.iter().map(|node| node.hardware.memory_mb).sum::<u64>() / 1024;
    assert_eq!(whole(&d).collect::<Vec<_>>(), [Some(16 + memory + 80 + 20), None]);
    // Other weights are for jobs that start from now on.
    let was = d.c.state().partitions[0].config.clone();
    let now = Some(Box::new(PartitionConfig { tres_billing_weights: weighing("node=7"), ..was.clone() }));
    assert_eq!(
        d.ask(9, 0, Request::ChangePartition { name: "debug".into(), was: Some(Box::new(was)), now }),
        [Answer::Done]
    );
    d.restart();
    assert_eq!((billed(&d, of_n1), billed(&d, waits)), (Some(23), Some(7)));
}

#[test]
fn flags_say_how_weights_are_combined() {
    for (flags, expected) in [("", 1 + 2 + 20), ("MAX_TRES", 20), ("MAX_TRES_GRES", 2 + 20)] {
        let mut d = start(site(WEIGHTS, flags));
        let id = d.submit(JobSpec { qos: None, ..job("2") });
        assert_eq!(billed(&d, id), Some(expected), "{flags}");
    }
}

#[test]
fn what_is_billed_is_limited() {
    let mut d = cluster(site(WEIGHTS, ""), &[(ALL, 30)], &[]);
    let first = d.submit(job("2"));
    runs(&d, first);
    let second = d.submit(job("1"));
    waits_for(&d, second, Whose::Association, ALL);
    let small = d.submit(job(""));
    runs(&d, small);
    // Jobs of a partition without weights are billed for their CPUs.
    let plain = |cpus| JobSpec {
        partition: Some("plain".into()),
        need: Need { cpus_per_task: Some(cpus), ..Need::default() },
        ..job("")
    };
    let five = d.submit(plain(5));
    waits_for(&d, five, Whose::Association, ALL);
    let four = d.submit(plain(4));
    runs(&d, four);
    d.restart();
    let attempts: Vec<_> = [first, small, four].iter().map(|id| d.attempt(*id)).collect();
    let on = |d: &Driver, name: u32| {
        let is = |job: &JobId| {
            d.c.state().jobs[job].run().is_some_and(|run| run.alloc.nodes().first().map(|n| n.0) == Some(name))
        };
        attempts.iter().filter(|attempt| is(&attempt.job)).copied().collect::<Vec<_>>()
    };
    let (one, two) = (on(&d, 0), on(&d, 1));
    d.register("n1", &one);
    d.register("n2", &two);
    waits_for(&d, second, Whose::Association, ALL);
    d.finish(first, 0);
    runs(&d, second);
}

#[test]
fn each_limit_on_resources_can_be_on_billing() {
    let one = |scope| Limit::of(scope, Tres::Billing);
    for (limit, most, breaks) in [
        (one(Scope::Job), 20, "2"),
        (one(Scope::JobDue), 20 * 6000, "2"),
        (one(Scope::User), 20, "2"),
        (one(Scope::Account), 20, "2"),
        (one(Scope::GrpDue), 20 * 6000, "2"),
        (one(Scope::UserDue), 20 * 6000, "2"),
        (one(Scope::Least), 10, ""),
    ] {
        let mut d = cluster(site(WEIGHTS, ""), &[], &[(limit, most)]);
        let over = d.submit(job(breaks));
        waits_for(&d, over, Whose::Qos, limit);
        let within = d.submit(job("1"));
        runs(&d, within);
    }
}

#[test]
fn a_budget_of_billing_is_used_up_by_what_is_billed() {
    let budget = Limit::of(Scope::GrpUsed, Tres::Billing);
    let mut d = cluster(site(WEIGHTS, ""), &[(budget, 23 * 600)], &[]);
    let first = d.submit(job("2"));
    d.pass(480);
    runs(&d, first);
    d.pass(240);
    assert!(matches!(d.state_of(first), Some(JobState::Completing(_))), "23 units for ten minutes");
    let reports = d.script_end(first, 0);
    let node = d.c.state().jobs[&first].run().and_then(|run| run.alloc.nodes().first()).unwrap();
    d.report(&format!("n{}", node.0 + 1), &reports);
    let next = d.submit(job(""));
    waits_for(&d, next, Whose::Association, budget);
}

#[test]
fn usage_counts_what_is_billed_and_cpus_before_that() {
    let mut d = cluster(site("", ""), &[], &[]);
    let before = d.submit(JobSpec { need: Need { cpus_per_task: Some(2), ..Need::default() }, ..job("") });
    d.pass(100);
    assert_eq!((share(&mut d).raw_usage.0 as u64, share(&mut d).cpu_usage), (200, None));
    assert!(!d.c.state().usage.contains_key(&(Whose::Association, Tres::Billing)), "nobody pays for what nobody uses");
    let was = d.c.state().partitions[0].config.clone();
    let now = Some(Box::new(PartitionConfig { tres_billing_weights: weighing("CPU=2.5,GRES/gpu=10"), ..was.clone() }));
    assert_eq!(
        d.ask(9, 0, Request::ChangePartition { name: "debug".into(), was: Some(Box::new(was)), now }),
        [Answer::Done]
    );
    let after = d.submit(job("1"));
    assert_eq!(info(&d, after).billing, Some(Billing(12_500_000)));
    d.pass(100);
    let used = share(&mut d);
    // 200 s of two CPUs, 100 s of 12.5 units: parts of a unit are charged, too.
    assert_eq!((used.raw_usage.0.round() as u64, used.cpu_usage.map(|cpu| cpu.0.round() as u64)), (1650, Some(500)));
    assert!(used.billing_minutes > Some(used.run_minutes[0]), "{used:?}");
    d.restart();
    for n in 0..2 {
        let on = |id: &JobId| {
            d.c.state().jobs[id].run().is_some_and(|run| run.alloc.nodes().first().map(|n| n.0) == Some(n))
        };
        let here: Vec<_> = [before, after].iter().filter(|id| on(id)).map(|id| d.attempt(*id)).collect();
        d.register(&format!("n{}", n + 1), &here);
    }
    let (earlier, time) = (used.raw_usage.0, d.now);
    d.finish(after, 0);
    d.pass(100);
    d.finish(before, 0);
    let ended = share(&mut d);
    let seconds = d.now.secs() - time.secs();
    assert!(ended.raw_usage.0 >= earlier + 2.0 * seconds as f64 - 1.0, "{} after {earlier}", ended.raw_usage.0);
    d.pass(100);
    assert_eq!(share(&mut d).raw_usage, ended.raw_usage, "nothing runs any more");
    change(&mut d, vec![PolicyChange::Forget(AssocKey::account("phys"))]);
    assert!(share(&mut d).raw_usage.0 < 1e-6);
}

#[test]
fn jobs_are_billed_less_for_nodes_that_they_give_back() {
    let mut d = cluster(site("node=4", ""), &[(ALL, 10)], &[]);
    let wide = d.submit(JobSpec { need: Need { nodes_min: Some(2), ..Need::default() }, ..job("") });
    assert_eq!(billed(&d, wide), Some(8));
    let waits = d.submit(job(""));
    waits_for(&d, waits, Whose::Association, ALL);
    let one = JobUpdate { nodes: Some((1, None)), ..JobUpdate::default() };
    let answers = d.ask(9, ADA, Request::UpdateJob { jobs: these(wide), change: Box::new(one) });
    assert!(matches!(answers[..], [Answer::Affected { .. }]));
    assert_eq!(billed(&d, wide), Some(4));
    runs(&d, waits);
}

#[test]
fn leased_jobs_are_billed_when_they_are_leased() {
    let partition = PartitionConfig { lease_jobs: 2, ..partition("debug", "CPU=3") };
    let mut d = Driver::empty(Config { partitions: vec![partition], ..Config::default() });
    d.add_node("n1", 1);
    let jobs: Vec<JobId> = (0..3).map(|_| d.submit(batch())).collect();
    let kept =
        |d: &Driver| jobs.iter().map(|id| d.c.state().jobs[id].run().and_then(|run| run.billing)).collect::<Vec<_>>();
    assert_eq!(kept(&d), [Some(Billing(3_000_000)); 3]);
    d.finish(jobs[0], 0);
    assert_eq!((d.state_of(jobs[1]), kept(&d)[1]), (Some(JobState::Running), Some(Billing(3_000_000))));
}

#[test]
fn an_older_release_reads_neither_weights_nor_bills() {
    let mut d = Driver::speaking(ClusterVersion(2), site(WEIGHTS, ""));
    (1..=2).for_each(|n| d.add_node(&format!("n{n}"), 8));
    let id = d.submit(JobSpec { qos: None, ..job("2") });
    assert_eq!((d.state_of(id), billed(&d, id)), (Some(JobState::Running), None));
    let was = d.c.state().partitions[0].config.clone();
    let now = Some(Box::new(PartitionConfig { tres_billing_weights: weighing("node=7"), ..was.clone() }));
    let answer = d.ask(9, 0, Request::ChangePartition { name: "debug".into(), was: Some(Box::new(was)), now });
    assert!(matches!(&answer[..], [Answer::Refused(Refusal::NotSupported(_))]), "{answer:?}");
    for change in [
        PolicyChange::Qos("paid".into(), Some(Qos { limits: [(ALL, 3)].into(), ..Qos::default() })),
        PolicyChange::Association(
            AssocKey::account(ROOT),
            Some(Association { limits: [(ALL, 3)].into(), ..Association::default() }),
        ),
    ] {
        let version = d.c.state().policy.version;
        let answer = d.ask(9, 0, Request::ChangePolicy { version, changes: vec![change] });
        assert!(matches!(&answer[..], [Answer::Refused(Refusal::NotSupported(_))]), "{answer:?}");
    }
}
