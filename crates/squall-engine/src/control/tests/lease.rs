//! Leases: which job is leased behind which, what is known of it, and the way back.

use squall_model::config::{Config, PartitionConfig};
use squall_model::event::NodeAdmin;
use squall_model::id::{JobId, StepKey, StepNo};
use squall_model::job::{JobAttempt, JobSpec, JobState, Need, PendingReason};
use squall_model::report::Report;
use squall_model::set::NodeSet;
use squall_model::wire::client::{Answer, JobSelection, Request};
use squall_model::wire::node::Down;

use crate::control::tests::driver::{ADA, Driver, array, batch, these};

const PENDING: Option<JobState> = Some(JobState::Pending);
const RUNNING: Option<JobState> = Some(JobState::Running);

/// One node of one core, which may have so many jobs in hand.
fn cluster(lease_jobs: u32, nodes: u32) -> Driver {
    let partition = PartitionConfig { lease_jobs, default_time_s: Some(60), ..PartitionConfig::default() };
    let mut d = Driver::empty(Config { partitions: vec![partition], ..Config::default() });
    (1..=nodes).for_each(|n| d.add_node(&format!("n{n}"), 1));
    d
}

fn ids(launched: Vec<(JobAttempt, String)>) -> Vec<u32> {
    launched.into_iter().map(|(job, _)| job.job.0).collect()
}

fn recalled(d: &mut Driver) -> Vec<u32> {
    let recalled = d.sent.iter().filter_map(|(_, message)| match message {
        Down::Recall { job } => Some(job.job.0),
        _ => None,
    });
    let recalled = recalled.collect();
    d.sent.retain(|(_, message)| !matches!(message, Down::Recall { .. }));
    recalled
}

fn holds_nothing(d: &Driver) -> bool {
    let nodes = &d.c.state().nodes;
    d.c.state().lines.is_empty() && nodes.iter().all(|n| n.cores.is_empty() && n.memory_mb == 0 && n.jobs.is_empty())
}

#[test]
fn the_first_that_wait_are_leased_and_begin_when_the_one_before_is_gone() {
    let mut d = cluster(2, 1);
    let jobs: Vec<JobId> = (0..5).map(|_| d.submit(batch())).collect();
    assert_eq!(ids(d.launched()), [1, 2, 3]);
    let shown = |d: &Driver| jobs.iter().map(|id| d.state_of(*id)).collect::<Vec<_>>();
    assert_eq!(shown(&d), [RUNNING, PENDING, PENDING, PENDING, PENDING]);
    let Answer::Jobs(page) =
        &d.ask(5, ADA, Request::Jobs { jobs: JobSelection::default(), ended: true, steps: false })[0]
    else {
        panic!("jobs were asked for")
    };
    let second = page.jobs.iter().find(|job| job.id == jobs[1]).unwrap();
    assert_eq!((second.state, &second.reason, second.start), (JobState::Pending, &PendingReason::Resources, None));
    d.pass(5);
    d.finish(jobs[0], 0);
    assert_eq!(shown(&d)[1..], [RUNNING, PENDING, PENDING, PENDING]);
    assert_eq!(d.c.state().jobs[&jobs[1]].run().unwrap().start, d.now, "from when it is known to run");
    assert_eq!(ids(d.launched()), [4], "one more in the same turn");
    for id in &jobs[1..] {
        d.finish(*id, 0);
    }
    assert!(holds_nothing(&d));
    assert_eq!(d.c.diag().jobs_completed, 5);
}

#[test]
fn several_ends_in_one_report_are_taken_in_the_order_of_the_line() {
    let mut d = cluster(3, 1);
    let first = d.submit(array(3, None));
    let all: Vec<JobId> = (0..4).map(|n| JobId(first.0 + n)).collect();
    assert_eq!(d.launched().len(), 4);
    d.restart();
    let known: Vec<JobAttempt> = all.iter().map(|id| d.attempt(*id)).collect();
    // The second runs already, and of the first nothing is left: that is said again after the registration.
    let scripts = |d: &Driver| {
        d.script_end(all[1], 0)[..1]
            .iter()
            .filter_map(|report| match report {
                Report::StepEnded { key, .. } => Some(*key),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    let scripts = scripts(&d);
    d.register_with("n1", &known[1..], &scripts);
    assert_eq!(d.state_of(all[1]), RUNNING);
    let reports: Vec<Report> = all[..3].iter().flat_map(|id| d.script_end(*id, 0)).collect();
    d.report("n1", &reports);
    assert_eq!(d.state_of(all[3]), RUNNING);
    d.finish(all[3], 0);
    assert!(holds_nothing(&d));
    assert_eq!(d.c.diag().jobs_completed, 4);
}

#[test]
fn nobody_is_leased_past_one_that_asks_for_something_else() {
    let mut d = cluster(4, 2);
    let (a, b) = (d.submit(batch()), d.submit(batch()));
    let wide = d.submit(JobSpec { need: Need { nodes_min: Some(2), ..Need::default() }, ..batch() });
    // Longer than the other ones, so that it may not pass.
    let behind = d.submit(JobSpec { time_limit_s: Some(3600), ..batch() });
    assert_eq!(ids(d.launched()), [a.0, b.0]);
    d.finish(a, 0);
    d.finish(b, 0);
    assert_eq!(d.state_of(wide), RUNNING);
    assert_eq!(d.state_of(behind), PENDING);
}

#[test]
fn who_can_not_go_back_or_has_no_time_limit_is_not_leased() {
    let mut d = cluster(4, 1);
    d.submit(batch());
    d.launched();
    d.submit(JobSpec { requeue: Some(false), ..batch() });
    assert!(d.launched().is_empty());
    let mut d = Driver::empty(Config {
        partitions: vec![PartitionConfig { lease_jobs: 4, ..PartitionConfig::default() }],
        ..Config::default()
    });
    d.add_node("n1", 1);
    d.submit(batch());
    d.submit(batch());
    assert_eq!(d.launched().len(), 1);
}

#[test]
fn d7_hold_of_a_leased_job_calls_it_back() {
    let mut d = cluster(3, 1);
    let jobs: Vec<JobId> = (0..2).map(|_| d.submit(batch())).collect();
    d.launched();
    d.ask(7, ADA, Request::Hold { jobs: these(jobs[1]), user: true });
    assert_eq!(recalled(&mut d), [jobs[1].0]);
    let job = d.attempt(jobs[1]);
    d.report("n1", &[Report::JobGone { job }]);
    d.finish(jobs[0], 0);
    assert_eq!(d.state_of(jobs[1]), PENDING);
    d.ask(7, ADA, Request::Release { jobs: these(jobs[1]) });
    assert_eq!(d.state_of(jobs[1]), RUNNING);
}

#[test]
fn a_leased_job_is_cancelled_and_requeued() {
    let mut d = cluster(3, 1);
    let jobs: Vec<JobId> = (0..4).map(|_| d.submit(batch())).collect();
    d.launched();
    d.cancel(jobs[1]);
    d.ask(7, ADA, Request::Requeue { jobs: these(jobs[2]), hold: true, from: None, special: None });
    assert_eq!(ids(d.ended()), [jobs[1].0, jobs[2].0]);
    for id in &jobs[1..3] {
        let job = d.attempt(*id);
        d.report("n1", &[Report::JobGone { job }]);
    }
    assert!(matches!(d.state_of(jobs[1]), Some(JobState::Ended(_))));
    assert!(d.c.state().jobs[&jobs[1]].last_run().is_none(), "it never ran");
    assert_eq!((d.state_of(jobs[2]), d.c.state().jobs[&jobs[2]].restarts), (PENDING, 0));
    d.finish(jobs[0], 0);
    assert_eq!(d.state_of(jobs[3]), RUNNING);
    d.finish(jobs[3], 0);
    assert!(holds_nothing(&d));
}

#[test]
fn what_was_decided_of_one_that_had_begun_stands() {
    let mut d = cluster(1, 1);
    let (a, b) = (d.submit(batch()), d.submit(batch()));
    d.cancel(b);
    let mut reports = d.script_end(a, 0);
    reports.extend(d.script_end(b, 15));
    d.report("n1", &reports);
    let job = &d.c.state().jobs[&b];
    assert!(matches!(job.state(), JobState::Ended(squall_model::job::EndState::Cancelled { .. })), "{:?}", job.state());
    assert!(job.last_run().is_some(), "it is known that it ran");
    assert!(holds_nothing(&d));
}

#[test]
fn a_drained_node_gives_back_what_has_not_begun() {
    let mut d = cluster(2, 1);
    let jobs: Vec<JobId> = (0..3).map(|_| d.submit(batch())).collect();
    d.launched();
    let node = NodeSet::one(d.c.state().node_id("n1").unwrap());
    let set = |admin| squall_model::event::Event::NodesSet { nodes: node.clone(), admin, reason: None, by: 0 };
    d.commit(set(NodeAdmin::Drain));
    assert_eq!(recalled(&mut d), [jobs[1].0, jobs[2].0]);
    let job = d.attempt(jobs[2]);
    d.report("n1", &[Report::JobGone { job }]);
    assert!(d.c.state().jobs[&jobs[2]].is_pending());
    // The other one had begun before it was called back.
    d.finish(jobs[0], 0);
    assert_eq!(d.state_of(jobs[1]), RUNNING);
    d.finish(jobs[1], 0);
    assert!(holds_nothing(&d));
    d.commit(set(NodeAdmin::Resume));
    assert_eq!((d.state_of(jobs[2]), d.attempt(jobs[2]).attempt.0), (RUNNING, 2));
}

#[test]
fn a_node_that_comes_back_gets_again_what_it_does_not_know_and_a_dead_one_nothing() {
    let mut d = cluster(2, 1);
    let jobs: Vec<JobId> = (0..3).map(|_| d.submit(batch())).collect();
    d.launched();
    d.lose("n1");
    let running = d.attempt(jobs[0]);
    d.register("n1", &[running]);
    assert_eq!(ids(d.launched()), [jobs[1].0, jobs[2].0]);
    d.reboot("n1");
    let attempts: Vec<u32> = jobs.iter().map(|id| d.attempt(*id).attempt.0).collect();
    assert_eq!(attempts, [2, 2, 2], "proven dead, and started or leased anew");
    assert_eq!(d.state_of(jobs[0]), RUNNING);
    assert_eq!(d.c.state().lines.values().flatten().count(), 3);
}

/// Jobs of one line are sent again one behind the other, even if all are recorded as begun: the node forgot that their
/// launches failed, which it could not write down.
#[test]
fn jobs_of_a_line_never_run_side_by_side() {
    let mut d = cluster(2, 1);
    let jobs: Vec<JobId> = (0..3).map(|_| d.submit(batch())).collect();
    d.launched();
    d.lose("n1");
    let known: Vec<JobAttempt> = jobs.iter().map(|id| d.attempt(*id)).collect();
    d.register("n1", &known);
    assert!(jobs.iter().all(|id| d.state_of(*id) == RUNNING), "all scripts are reported");
    d.lose("n1");
    d.register("n1", &[]);
    let behind = d.sent.iter().filter_map(|(_, message)| match message {
        Down::StartJob { facts, batch: Some(batch) } => Some((facts.key.job, batch.leased)),
        _ => None,
    });
    assert_eq!(behind.collect::<Vec<_>>(), [(jobs[0], false), (jobs[1], true), (jobs[2], true)]);
}

/// Regression test of fault A7 in attack-trial.md: what a node says of jobs that it does not have is acknowledged, and changes
/// nothing. It begins no leased job of another node either.
#[test]
fn a7_reports_about_what_a_node_does_not_have_change_nothing() {
    let mut d = cluster(1, 2);
    let jobs: Vec<JobId> = (0..4).map(|_| d.submit(batch())).collect();
    let placed = d.launched();
    let leased = placed.iter().find(|(job, node)| d.state_of(job.job) == PENDING && node == "n1").unwrap().0;
    let running = placed.iter().find(|(job, node)| d.state_of(job.job) == RUNNING && node == "n1").unwrap().0;
    let before = d.c.state().clone();
    for job in [leased, running, JobAttempt { job: JobId(77), ..running }] {
        let key = StepKey { job: job.job, attempt: job.attempt, step: StepNo::BATCH };
        let end = d.end(0);
        d.sent.clear();
        d.report(
            "n2",
            &[
                Report::LaunchFailed { key, error: "x".repeat(1000), node_fault: true },
                Report::StepEnded { key, end },
                Report::JobGone { job },
            ],
        );
        assert_eq!(*d.c.state(), before, "{job:?}");
        let known = |message: &Down| matches!(message, Down::Known { steps, jobs } if steps.contains(&key) && jobs.contains(&job));
        assert!(d.sent.iter().any(|(_, message)| known(message)), "the node may forget it: {:?}", d.sent);
    }
    assert_eq!(jobs.len(), placed.len());
}
