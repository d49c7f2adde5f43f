//! Jobs that share cores: which is told to run when, what counts as time, and that the journal has it.

use squall_model::config::{Config, PartitionConfig};
use squall_model::gang::{Coscheduling, OverSubscribe, Preempt, Strobe, TimeSlice, Turn};
use squall_model::id::JobId;
use squall_model::job::{EndState, JobSpec, JobState, Need};
use squall_model::time::Span;
use squall_model::wire::client::{Answer, JobSelection, Request};
use squall_model::wire::node::Down;

use crate::control::tests::driver::{ADA, Driver, batch, these};

/// So many nodes of two cores, each of which two jobs may hold, and slots of a second.
fn driver(nodes: u32) -> Driver {
    let shared = PartitionConfig { oversubscribe: OverSubscribe::Force(2), ..PartitionConfig::default() };
    let mut d = Driver::empty(Config {
        partitions: vec![shared],
        preempt_mode: Preempt::try_from("SUSPEND,GANG".to_owned()).unwrap(),
        scheduler_time_slice: TimeSlice(Span::from_secs(1)),
        ..Config::default()
    });
    (1..=nodes).for_each(|n| d.add_node(&format!("n{n}"), 2));
    d
}

/// All of so many nodes.
fn wide(nodes: u32) -> JobSpec {
    let need = Need { nodes_min: Some(nodes), ntasks: Some(2 * nodes), ..Need::default() };
    JobSpec { need, ..batch() }
}

/// What a node was told last of when its jobs run.
fn turns(d: &Driver, name: &str) -> Vec<(JobId, Turn)> {
    let told = d.sent.iter().filter(|(node, _)| node == name).filter_map(|(_, message)| match message {
        Down::Turns(turns) => Some(turns),
        _ => None,
    });
    let mut last = std::collections::BTreeMap::new();
    for (job, turn) in told.flatten() {
        last.insert(job.job, *turn);
    }
    last.into_iter().collect()
}

fn strobes(d: &Driver, name: &str) -> Vec<Strobe> {
    let told = d.sent.iter().filter(|(node, _)| node == name);
    told.filter_map(|(_, m)| if let Down::Strobe(strobe) = m { Some(*strobe) } else { None }).collect()
}

const FIRST: Turn = Turn { slot: 0, mask: 0b01, of: 2 };
const SECOND: Turn = Turn { slot: 1, mask: 0b10, of: 2 };

#[test]
fn a_second_job_starts_beside_the_first_and_a_third_waits() {
    let mut d = driver(2);
    let jobs = [d.submit(wide(2)), d.submit(wide(2)), d.submit(wide(2))];
    assert_eq!(
        jobs.map(|job| d.state_of(job)),
        [Some(JobState::Running), Some(JobState::Running), Some(JobState::Pending)]
    );
    for node in ["n1", "n2"] {
        assert_eq!(turns(&d, node), [(jobs[0], FIRST), (jobs[1], SECOND)]);
        let strobe = strobes(&d, node).pop().unwrap();
        assert_eq!((strobe.slice, strobe.policy), (Span::from_secs(1), Coscheduling::Gang));
    }
    // The first ends, and the third gets its row.
    d.finish(jobs[0], 0);
    let job = d.attempt(jobs[0]);
    d.report("n2", &[squall_model::report::Report::JobGone { job }]);
    assert_eq!(d.state_of(jobs[2]), Some(JobState::Running));
    assert_eq!(turns(&d, "n1")[1..], [(jobs[1], SECOND), (jobs[2], FIRST)]);
    // The third ends: the second moves up, and has all the time.
    d.cancel(jobs[2]);
    assert_eq!(turns(&d, "n1")[1], (jobs[1], Turn { slot: 1, mask: 1, of: 1 }));
}

#[test]
fn nodes_hear_the_time_every_second_and_a_new_session_hears_all() {
    let mut d = driver(1);
    let jobs = [d.submit(wide(1)), d.submit(wide(1))];
    d.sent.clear();
    d.pass(10);
    let heard = strobes(&d, "n1");
    assert_eq!(heard.len(), 10);
    assert!(heard.windows(2).all(|pair| pair[1].at.since(pair[0].at) == Span::from_secs(1)));
    assert!(turns(&d, "n1").is_empty(), "nothing has changed");
    d.restart();
    let known = jobs.map(|job| d.attempt(job));
    d.register("n1", &known);
    assert_eq!(turns(&d, "n1"), [(jobs[0], FIRST), (jobs[1], SECOND)]);
    assert!(!strobes(&d, "n1").is_empty());
}

#[test]
fn only_time_in_turn_counts() {
    let mut d = driver(1);
    let (long, short) = (d.submit(wide(1)), d.submit(JobSpec { time_limit_s: Some(60), ..wide(1) }));
    d.pass(119);
    assert_eq!(d.state_of(short), Some(JobState::Running), "it ran for half of the time");
    d.pass(1);
    assert_eq!(d.state_of(short), Some(JobState::Completing(EndState::Timeout)));
    let idle = |d: &Driver, job| d.c.state().jobs[&job].last_run().unwrap().suspended_total;
    assert_eq!((idle(&d, short), idle(&d, long)), (Span::from_secs(60), Span::from_secs(60)));
    // A job that is ending needs no slots: the other has all the time at once.
    assert_eq!(turns(&d, "n1")[0], (long, Turn { slot: 0, mask: 1, of: 1 }));
    d.pass(100);
    d.cancel(long);
    assert_eq!(idle(&d, long), Span::from_secs(60));
}

#[test]
fn who_is_suspended_leaves_the_time_to_the_others() {
    let mut d = driver(1);
    let jobs = [d.submit(wide(1)), d.submit(JobSpec { time_limit_s: Some(60), ..wide(1) })];
    d.sent.clear();
    let suspend = |suspend| Request::Suspend { jobs: these(jobs[0]), suspend };
    assert!(matches!(d.ask(1, 0, suspend(true))[..], [Answer::Affected { .. }]));
    assert_eq!(
        turns(&d, "n1"),
        [(jobs[0], Turn { slot: 0, mask: 0, of: 1 }), (jobs[1], Turn { slot: 1, mask: 1, of: 1 })]
    );
    assert!(!d.sent.iter().any(|(_, m)| matches!(m, Down::Signal { .. })), "the switcher does it");
    d.pass(59);
    assert_eq!((d.state_of(jobs[0]), d.state_of(jobs[1])), (Some(JobState::Suspended), Some(JobState::Running)));
    d.ask(1, 0, suspend(false));
    assert_eq!(turns(&d, "n1"), [(jobs[0], FIRST), (jobs[1], SECOND)]);
    d.pass(2);
    assert_eq!(d.state_of(jobs[1]), Some(JobState::Completing(EndState::Timeout)));
}

#[test]
fn squeue_says_whose_turn_it_is() {
    let mut d = driver(1);
    let jobs = [d.submit(wide(1)), d.submit(wide(1))];
    for second in 0..4 {
        let answer = d.ask(7, ADA, Request::Jobs { jobs: JobSelection::default(), ended: false, steps: false });
        let [Answer::Jobs(list)] = &answer[..] else { panic!("{answer:?}") };
        let seen: Vec<JobState> =
            jobs.iter().map(|job| list.jobs.iter().find(|j| j.id == *job).unwrap().state).collect();
        let first = second % 2;
        assert_eq!((seen[first], seen[1 - first]), (JobState::Running, JobState::Suspended), "second {second}");
        d.pass(1);
    }
}

#[test]
fn without_gang_all_run_at_once_and_batch_shares_nothing() {
    let mut d = driver(1);
    d.config.coscheduling = Some(Coscheduling::Implicit);
    d.restart();
    d.register("n1", &[]);
    let jobs = [d.submit(wide(1)), d.submit(wide(1))];
    assert_eq!(turns(&d, "n1").iter().map(|(_, turn)| (turn.mask, turn.of)).collect::<Vec<_>>(), [(1, 1), (1, 1)]);
    assert_eq!(d.state_of(jobs[1]), Some(JobState::Running));
    let mut d = driver(1);
    d.config.coscheduling = Some(Coscheduling::Batch);
    d.restart();
    d.register("n1", &[]);
    let jobs = [d.submit(wide(1)), d.submit(wide(1))];
    assert_eq!((d.state_of(jobs[0]), d.state_of(jobs[1])), (Some(JobState::Running), Some(JobState::Pending)));
}

#[test]
fn skew_is_asked_closer_by_as_long_as_it_holds() {
    let mut d = driver(1);
    let _ = [d.submit(wide(1)), d.submit(wide(1))];
    d.pass(25);
    let [Answer::Diag(diag)] = &d.ask(7, 0, Request::Diag { reset: false })[..] else { panic!() };
    assert_eq!((diag.gang.jobs, diag.gang.rows, diag.gang.nodes), (2, 2, 1));
    assert_eq!(diag.gang.skew_us, Some(64), "asked twice: under 128, then under 64");
}
