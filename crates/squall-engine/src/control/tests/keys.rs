//! Small keys of Slurm: waits and limits of the site, nodes that are resumed by themselves, points by resources.

use squall_model::event::{NodeAdmin, NodeChange};
use squall_model::id::{StepKey, StepNo};
use squall_model::job::{EndState, JobSpec, JobState, PendingReason};
use squall_model::policy::{Account, AssocKey, Association, PolicyChange, Qos, ROOT, User};
use squall_model::report::Report;
use squall_model::wire::client::{Answer, JobSelection, Request};
use squall_model::wire::info::NodeInfo;
use squall_model::wire::priority_info::JobPriority;
use squall_sched::Item;

use crate::control::port::{CallerId, Input};
use crate::control::tests::driver::{ADA, Driver, batch};
use crate::control::tests::hooks::cluster;

#[test]
fn others_wait_a_while_for_a_job_that_is_completing() {
    let mut d = cluster("CompleteWait = 30\n");
    let (one, other) = (d.submit(batch()), d.submit(batch()));
    d.cancel(one);
    let waits = d.submit(batch());
    assert_eq!(d.state_of(waits), Some(JobState::Pending));
    let gone = d.attempt(one);
    d.report("n1", &[Report::JobGone { job: gone }]);
    assert_eq!(d.state_of(waits), Some(JobState::Running), "nothing is completing any more");
    d.cancel(other);
    d.finish(waits, 0);
    let again = d.submit(batch());
    d.pass(29);
    assert_eq!(d.state_of(again), Some(JobState::Pending), "n1 is free");
    d.pass(2);
    assert_eq!(d.state_of(again), Some(JobState::Running), "it has waited long enough");
}

#[test]
fn an_allocation_that_is_cut_off_ends_when_the_site_says() {
    for (text, ends_after) in [("", Some(60)), ("InactiveLimit = 600\n", Some(600)), ("InactiveLimit = 0\n", None)] {
        let mut d = cluster(text);
        let (key, spec) = (d.key(), JobSpec { kind: squall_model::job::JobKind::Allocation, ..batch() });
        let request =
            Request::Allocate { spec: spec.into(), env: Vec::new().into(), key, immediate_s: None, step: None };
        let answers = d.ask(1, ADA, request);
        let Some(Answer::Submitted { job, .. }) = answers.first() else { panic!("{answers:?}") };
        d.step(Input::Hangup { caller: CallerId(1), away: true });
        d.pass(ends_after.unwrap_or(3000) - 1);
        assert_eq!(d.state_of(*job), Some(JobState::Running), "{text}");
        d.pass(2);
        let ended = Some(JobState::Completing(EndState::Cancelled { by: ADA }));
        assert_eq!(d.state_of(*job), ends_after.map_or(Some(JobState::Running), |_| ended), "{text}");
    }
}

#[test]
fn a_job_that_no_node_can_launch_is_held_at_last() {
    let mut d = cluster("MaxBatchRequeue = 2\n");
    let id = d.submit(batch());
    for round in 0..3 {
        let launched = d.launched();
        let [(attempt, node)] = &launched[..] else { panic!("round {round}: {launched:?}") };
        let key = StepKey { job: id, attempt: attempt.attempt, step: StepNo::BATCH };
        let failed = Report::LaunchFailed { key, error: "spool full".into(), node_fault: true };
        d.report(node, &[failed, Report::JobGone { job: *attempt }]);
        d.pass(70);
    }
    let reason = d.c.queue.reason(d.c.state(), d.now, Item { id, array: false });
    assert_eq!((d.state_of(id), reason), (Some(JobState::Pending), PendingReason::JobHoldMaxRequeue));
}

fn set(d: &mut Driver, admin: Option<NodeAdmin>, resume_after_s: Option<u64>) {
    let change = NodeChange { resume_after_s, ..NodeChange::default() };
    let change = resume_after_s.map(|_| Box::new(change));
    let request = Request::UpdateNodes { nodes: "n1".into(), admin, reason: Some("fan".into()), change };
    assert_eq!(d.ask(5, 0, request), [Answer::Done]);
}

fn seen(d: &mut Driver) -> NodeInfo {
    match d.ask(5, 0, Request::Nodes).remove(0) {
        Answer::Nodes(all) => all.into_iter().find(|node| node.name == "n1").expect("n1 is there"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_drained_node_is_resumed_after_the_time_that_the_operator_gave() {
    let mut d = cluster("");
    set(&mut d, Some(NodeAdmin::Drain), Some(600));
    let due = d.now;
    assert_eq!(seen(&mut d).resumes.map(|time| time.secs() - due.secs()), Some(600));
    d.pass(599);
    assert_eq!(seen(&mut d).admin, NodeAdmin::Drain);
    d.pass(2);
    let node = seen(&mut d);
    assert_eq!((node.admin, node.reason, node.resumes), (NodeAdmin::Resume, None, None));
    // A restart of the controller does not forget the time, and resuming the node does.
    set(&mut d, Some(NodeAdmin::Down), Some(60));
    d.restart();
    d.register("n1", &[]);
    d.pass(61);
    assert_eq!(seen(&mut d).admin, NodeAdmin::Resume);
    set(&mut d, Some(NodeAdmin::Drain), Some(60));
    set(&mut d, Some(NodeAdmin::Resume), None);
    set(&mut d, Some(NodeAdmin::Drain), None);
    d.pass(100);
    assert_eq!(seen(&mut d).admin, NodeAdmin::Drain, "that time was for the drain before");
    set(&mut d, None, Some(60));
    set(&mut d, None, Some(0));
    d.pass(100);
    assert_eq!(seen(&mut d).admin, NodeAdmin::Drain, "0 is never");
}

fn priority(d: &mut Driver) -> JobPriority {
    match d.ask(5, 0, Request::Priorities { jobs: JobSelection::default() }).remove(0) {
        Answer::Priorities(mut all) => all.jobs.remove(0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_has_points_for_its_part_of_the_partitions_resources() {
    let mut d =
        cluster("PriorityType = \"priority/multifactor\"\nPriorityWeightTRES = \"CPU=1000,Node=10,billing=100\"\n");
    // What the partition has is known at the next calculation.
    d.pass(301);
    let _ = [d.submit(batch()), d.submit(batch())];
    let waits = d.submit(batch());
    assert_eq!(d.state_of(waits), Some(JobState::Pending));
    let seen = priority(&mut d);
    assert_eq!((seen.priority, seen.tres.as_deref()), (555, Some("cpu=500,node=5,billing=50")));
    assert!((seen.factors.tres.0 - 555.0).abs() < 1e-6);
}

#[test]
fn a_user_who_has_used_too_much_waits_where_the_qos_says() {
    let mut d =
        cluster("PriorityType = \"priority/multifactor\"\nPriorityCalcPeriod = 60\nPriorityWeightFairshare = 1000\n");
    let strict = Qos { usage_threshold: Some(900_000), flags: vec!["EnforceUsageThreshold".into()], ..Qos::default() };
    let lax = Qos { usage_threshold: Some(900_000), ..Qos::default() };
    let user = |uid: u32| {
        let (name, user) = (format!("u{uid}"), User { default_account: "phys".into(), ..User::default() });
        let own = PolicyChange::Association(AssocKey::user("phys", &name), Some(Association::default()));
        [PolicyChange::User(name, Some(user)), own]
    };
    let account = Association { parent: ROOT.into(), ..Association::default() };
    let mut changes = vec![
        PolicyChange::Qos("strict".into(), Some(strict)),
        PolicyChange::Qos("lax".into(), Some(lax)),
        PolicyChange::Account("phys".into(), Some(Account::default())),
        PolicyChange::Association(AssocKey::account("phys"), Some(account)),
    ];
    changes.extend(user(ADA));
    changes.extend(user(2000));
    assert_eq!(d.ask(9, 0, Request::ChangePolicy { version: 0, changes }), [Answer::Done]);
    let of = |qos: &str| JobSpec { account: Some("phys".into()), qos: Some(qos.into()), ..batch() };
    let first = d.submit(of("strict"));
    assert_eq!(d.state_of(first), Some(JobState::Running), "nothing is used yet");
    d.pass(1000);
    d.finish(first, 0);
    d.pass(100);
    let (waits, runs) = (d.submit(of("strict")), d.submit(of("lax")));
    assert_eq!((d.state_of(waits), d.state_of(runs)), (Some(JobState::Pending), Some(JobState::Running)));
    let reason = d.c.queue.reason(d.c.state(), d.now, Item { id: waits, array: false });
    assert_eq!(reason, PendingReason::UsageThreshold);
}
