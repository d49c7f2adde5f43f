//! Backfill: a job that does not delay the first that waits passes it, and users can ask when a job would start.

use std::sync::Arc;

use squall_model::config::{Config, SchedulerType};
use squall_model::id::JobId;
use squall_model::job::{JobSpec, JobState, Need, PendingReason};
use squall_model::time::Time;
use squall_model::wire::client::{Answer, Request};
use squall_sched::Item;

use crate::control::tests::driver::{Driver, batch};

/// Two nodes of two cores.
fn cluster(scheduler_type: SchedulerType) -> Driver {
    let mut d = Driver::empty(Config { scheduler_type, ..Config::default() });
    d.add_node("n1", 2);
    d.add_node("n2", 2);
    d
}

fn job(tasks: u32, seconds: u64) -> JobSpec {
    JobSpec { need: Need { ntasks: Some(tasks), ..Need::default() }, time_limit_s: Some(seconds), ..batch() }
}

fn reason(d: &Driver, id: JobId) -> PendingReason {
    d.c.queue.reason(&d.c.state, d.now, Item { id, array: false })
}

/// Seconds from now until a job is expected to start.
fn expected(d: &mut Driver, id: JobId) -> Option<(u64, String)> {
    let answers = d.ask(7, 0, Request::Expected);
    let [Answer::Expected(starts)] = &answers[..] else { panic!("{answers:?}") };
    let start = starts.iter().find(|start| start.id == id)?;
    Some((start.time.since(d.now).secs(), start.nodes.clone()))
}

#[test]
fn a_short_job_passes_a_wide_one_that_waits_and_a_long_one_does_not() {
    let mut d = cluster(SchedulerType::Backfill);
    let long = [d.submit(job(2, 600)), d.submit(job(1, 600))];
    let wide = d.submit(job(4, 600));
    let too_long = d.submit(job(1, 601));
    let short = d.submit(job(1, 600));
    for (id, running) in [(long[0], true), (long[1], true), (wide, false), (too_long, false), (short, true)] {
        assert_eq!(d.state_of(id) == Some(JobState::Running), running, "{id:?}");
    }
    let counted = &d.c.diag.backfill;
    assert_eq!((counted.jobs_ever, counted.jobs, counted.tried.0, counted.depth.0), (1, 1, 2, 2));
    assert!(counted.cycles == 2 && counted.depth.1 == 3 && counted.times.0 >= 1 && counted.last == Some(d.now));
    assert_eq!((counted.queue.0, d.c.diag.queue_length), (3, 3));
    assert_eq!(reason(&d, wide), PendingReason::Resources);
    assert_eq!(reason(&d, too_long), PendingReason::Priority);
    assert_eq!(expected(&mut d, wide), Some((600, "n[1-2]".into())));
    assert_eq!(expected(&mut d, too_long), Some((1200, "n1".into())));
    d.finish(long[0], 0);
    d.finish(long[1], 0);
    assert_eq!(d.state_of(too_long), Some(JobState::Pending), "the wide one would have to wait for it");
    d.finish(short, 0);
    assert_eq!((d.state_of(wide), d.state_of(too_long)), (Some(JobState::Running), Some(JobState::Pending)));
}

#[test]
fn sched_builtin_lets_nobody_pass() {
    let mut d = cluster(SchedulerType::Builtin);
    d.submit(job(3, 600));
    d.submit(job(4, 600));
    let short = d.submit(job(1, 1));
    assert_eq!((d.state_of(short), reason(&d, short)), (Some(JobState::Pending), PendingReason::Priority));
}

#[test]
fn what_would_start_when_is_said_before_it_is_submitted() {
    let mut d = cluster(SchedulerType::Backfill);
    d.submit(job(3, 600));
    let when = |d: &mut Driver, spec: JobSpec| {
        let answers = d.ask(7, 0, Request::TestSubmit { spec: Arc::new(spec) });
        let [Answer::WouldStart { time, nodes, .. }] = &answers[..] else { panic!("{answers:?}") };
        (time.since(d.now).secs(), nodes.clone())
    };
    assert_eq!(when(&mut d, job(1, 60)), (0, "n2".into()));
    assert_eq!(when(&mut d, job(2, 60)), (600, "n1".into()));
    d.submit(job(4, 100));
    assert_eq!(when(&mut d, job(1, 60)), (0, "n2".into()), "beside it");
    assert_eq!(when(&mut d, job(1, 700)).0, 700, "behind it");
    let begin = Some(Time(d.now.0 + 9_000_000));
    assert_eq!(when(&mut d, JobSpec { begin, ..job(1, 60) }).0, 9);
}

#[test]
fn a_job_of_a_shape_that_found_no_room_costs_no_pass() {
    let mut d = cluster(SchedulerType::Backfill);
    for _ in 0..4 {
        d.submit(job(1, 600));
    }
    d.submit(job(1, 600));
    let cycles = d.c.diag.cycles;
    d.submit(job(1, 600));
    assert_eq!(d.c.diag.cycles, cycles);
    d.submit(job(1, 500));
    assert_eq!(d.c.diag.cycles, cycles + 1, "shorter: it might fit");
    d.submit(job(1, 500));
    assert_eq!(d.c.diag.cycles, cycles + 1);
}
