//! Time limits, signals before them, begin times, deadlines; ends that race each other.

use squall_model::job::{EndState, ExitCode, JobSpec, JobState, Outcome, PendingReason, SignalSpec};
use squall_model::report::Report;
use squall_model::time::Span;
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::node::{Down, SignalTarget};
use squall_sched::Item;

use crate::control::tests::driver::{ADA, Driver, batch};

#[test]
fn the_limit_ends_a_job_and_the_signal_comes_before() {
    let mut d = Driver::new(1, 1);
    let signal = Some(SignalSpec { signal: 10, before_s: 30, batch_only: true });
    let job = d.submit(JobSpec { time_limit_s: Some(60), signal, ..batch() });
    let attempt = d.attempt(job);
    d.pass(29);
    let signals = |d: &Driver| d.sent.iter().filter(|(_, m)| matches!(m, Down::Signal { .. })).count();
    assert_eq!(signals(&d), 0);
    d.pass(1);
    assert_eq!(signals(&d), 1);
    assert!(d.sent.iter().any(|(_, m)| matches!(m, Down::Signal { target: SignalTarget::Batch, signal: 10, .. })));
    d.pass(29);
    assert_eq!(d.state_of(job), Some(JobState::Running));
    d.pass(1);
    assert_eq!(d.state_of(job), Some(JobState::Completing(EndState::Timeout)));
    assert_eq!(d.ended(), [(attempt, "n1".to_owned())]);
    // The script exits cleanly upon TERM: it has timed out all the same.
    let reports = d.script_end(job, 0);
    d.report("n1", &reports);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Timeout)));
}

#[test]
fn a_warning_is_sent_once_but_rather_twice_than_never() {
    let mut d = Driver::new(1, 1);
    let signal = Some(SignalSpec { signal: 10, before_s: 30, batch_only: false });
    let job = d.submit(JobSpec { time_limit_s: Some(60), signal, ..batch() });
    let signals = |d: &Driver| d.sent.iter().filter(|(_, m)| matches!(m, Down::Signal { .. })).count();
    d.pass(35);
    assert_eq!(signals(&d), 1);
    let change = squall_model::event::JobChange { priority: Some(7), ..Default::default() };
    d.commit(squall_model::event::Event::JobUpdated { id: job, change, whole: false });
    assert_eq!(signals(&d), 1, "an update is no reason to warn again");
    d.restart();
    d.register("n1", &[d.attempt(job)]);
    d.pass(5);
    assert_eq!(signals(&d), 1, "nobody knows whether the first was heard");
    d.pass(15);
    assert_eq!((signals(&d), d.state_of(job)), (1, Some(JobState::Running)));
}

#[test]
fn a_limit_that_passed_while_the_controller_was_down_counts() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(JobSpec { time_limit_s: Some(60), ..batch() });
    d.now = d.now + Span::from_secs(100);
    d.restart();
    assert_eq!(d.state_of(job), Some(JobState::Completing(EndState::Timeout)));
}

#[test]
fn suspended_time_does_not_count() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(JobSpec { time_limit_s: Some(60), ..batch() });
    d.pass(30);
    d.commit(squall_model::event::Event::JobSuspended { id: job, suspended: true });
    d.pass(1000);
    assert_eq!(d.state_of(job), Some(JobState::Suspended));
    d.commit(squall_model::event::Event::JobSuspended { id: job, suspended: false });
    d.pass(29);
    assert_eq!(d.state_of(job), Some(JobState::Running));
    d.pass(1);
    assert_eq!(d.state_of(job), Some(JobState::Completing(EndState::Timeout)));
}

#[test]
fn a_deadline_waits_for_who_is_suspended_as_a_limit_does() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(JobSpec { deadline: Some(d.now + Span::from_secs(60)), ..batch() });
    d.pass(50);
    d.commit(squall_model::event::Event::JobSuspended { id: job, suspended: true });
    d.pass(1000);
    assert_eq!(d.state_of(job), Some(JobState::Suspended));
    d.commit(squall_model::event::Event::JobSuspended { id: job, suspended: false });
    d.pass(9);
    assert_eq!(d.state_of(job), Some(JobState::Running));
    d.pass(1);
    assert_eq!(d.state_of(job), Some(JobState::Completing(EndState::Deadline)));
}

#[test]
fn a_cancel_and_an_end_may_meet() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(batch());
    d.cancel(job);
    let reports = d.script_end(job, 0);
    d.report("n1", &reports);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Cancelled { by: ADA })), "decided first");
    let job = d.submit(batch());
    let reports = d.script_end(job, 0);
    d.report("n1", &reports);
    d.cancel(job);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Completed)), "ended first");
}

#[test]
fn begin_and_deadline() {
    let mut d = Driver::new(1, 1);
    let begin = d.now + Span::from_secs(50);
    let job = d.submit(JobSpec { begin: Some(begin), ..batch() });
    let reason = d.c.queue.reason(&d.c.state, d.now, Item { id: job, array: false });
    assert_eq!(reason, PendingReason::BeginTime);
    d.pass(49);
    assert_eq!(d.state_of(job), Some(JobState::Pending));
    d.pass(1);
    assert_eq!(d.state_of(job), Some(JobState::Running));
}

#[test]
fn who_could_not_end_by_the_deadline_does_not_start() {
    let mut d = Driver::new(1, 1);
    let deadline = Some(d.now + Span::from_secs(60));
    let refused = |d: &mut Driver, spec: JobSpec, what: &str| {
        let key = d.key();
        let answers = d.submit_with(key, spec);
        matches!(&answers[..], [Answer::Refused(Refusal::InvalidValue { option, .. })] if option == what)
    };
    assert!(refused(&mut d, JobSpec { deadline, time_limit_s: Some(61), ..batch() }, "deadline"));
    let least = JobSpec { deadline, time_limit_s: Some(100), time_min_s: Some(61), ..batch() };
    assert!(refused(&mut d, least, "time-min"), "as in Slurm, it is the least time that is too long");
    let first = d.submit(batch());
    let limited = d.submit(JobSpec { deadline, time_limit_s: Some(40), ..batch() });
    let shorter = d.submit(JobSpec { deadline, time_limit_s: Some(600), time_min_s: Some(30), ..batch() });
    let tasks = d.submit(JobSpec { deadline, time_limit_s: Some(50), ..crate::control::tests::driver::array(2, None) });
    let any = d.submit(JobSpec { deadline, ..batch() });
    d.pass(10);
    assert_eq!(d.c.state.arrays[&tasks].outcome(), None, "the last moment is not too late");
    d.pass(1);
    assert_eq!(d.c.state.arrays[&tasks].outcome().map(|outcome| outcome.state), Some(EndState::Deadline));
    d.pass(9);
    assert_eq!(d.state_of(limited), Some(JobState::Pending));
    d.pass(1);
    assert_eq!(d.state_of(limited), Some(JobState::Ended(EndState::Deadline)));
    let change = squall_model::event::JobChange { time_limit_s: Some(Some(5)), ..Default::default() };
    d.commit(squall_model::event::Event::JobUpdated { id: any, change, whole: false });
    d.pass(10);
    assert_eq!(d.state_of(shorter), Some(JobState::Ended(EndState::Deadline)));
    assert_eq!((d.state_of(first), d.state_of(any)), (Some(JobState::Running), Some(JobState::Pending)));
    d.pass(25);
    assert_eq!(d.state_of(any), Some(JobState::Ended(EndState::Deadline)), "its new limit counts");
}

#[test]
fn who_comes_back_too_late_for_the_deadline_does_not_start_again() {
    let mut d = Driver::new(1, 1);
    let deadline = Some(d.now + Span::from_secs(60));
    let job = d.submit(JobSpec { deadline, time_limit_s: Some(40), ..batch() });
    let first = d.attempt(job);
    d.pass(30);
    d.ask(
        5,
        ADA,
        Request::Requeue { jobs: crate::control::tests::driver::these(job), hold: false, from: None, special: None },
    );
    d.report("n1", &[Report::JobGone { job: first }]);
    d.pass(0);
    assert_eq!((d.attempt(job), d.state_of(job)), (first, Some(JobState::Ended(EndState::Deadline))));
}

#[test]
fn the_deadline_ends_what_runs() {
    let mut d = Driver::new(1, 3);
    let deadline = Some(d.now + Span::from_secs(60));
    let any = d.submit(JobSpec { deadline, ..batch() });
    let least = d.submit(JobSpec { deadline, time_limit_s: Some(600), time_min_s: Some(60), ..batch() });
    let limited = d.submit(JobSpec { deadline, time_limit_s: Some(30), ..batch() });
    d.pass(30);
    assert_eq!(d.state_of(limited), Some(JobState::Completing(EndState::Timeout)));
    d.pass(29);
    assert_eq!((d.state_of(any), d.state_of(least)), (Some(JobState::Running), Some(JobState::Running)));
    d.pass(1);
    let ended = Some(JobState::Completing(EndState::Deadline));
    assert_eq!((d.state_of(any), d.state_of(least)), (ended, ended));
}

#[test]
fn a_requeue_is_a_new_attempt_after_the_old_is_gone() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(batch());
    let first = d.attempt(job);
    d.launched();
    let jobs = crate::control::tests::driver::these(job);
    d.ask(5, ADA, Request::Requeue { jobs, hold: false, from: None, special: None });
    assert_eq!(d.ended(), [(first, "n1".to_owned())]);
    assert_eq!(d.launched(), []);
    d.report("n1", &[Report::JobGone { job: first }]);
    let second = d.attempt(job);
    assert_eq!((second.attempt.0, d.launched()), (2, vec![(second, "n1".to_owned())]));
    assert_eq!(d.c.state().jobs[&job].restarts, 1);
}

#[test]
fn a_cancel_stops_a_requeue() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(batch());
    let first = d.attempt(job);
    d.ask(
        5,
        ADA,
        Request::Requeue { jobs: crate::control::tests::driver::these(job), hold: false, from: None, special: None },
    );
    let outcome = Outcome { state: EndState::Cancelled { by: ADA }, exit: ExitCode::OK, reason: None };
    d.commit(squall_model::event::Event::JobEnding { id: job, outcome, requeue: None });
    d.report("n1", &[Report::JobGone { job: first }]);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Cancelled { by: ADA })));
}

#[test]
fn a_full_disk_refuses_what_is_new_and_lets_the_rest_go_on() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(batch());
    d.step(crate::control::Input::Disk { full: true });
    let key = d.key();
    let answers = d.submit_with(key, batch());
    assert_eq!(answers, [Answer::Refused(Refusal::DiskFull)]);
    d.finish(job, 0);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Completed)));
    d.step(crate::control::Input::Disk { full: false });
    assert!(matches!(d.submit_with(key, batch())[..], [Answer::Submitted { .. }]));
}

#[test]
fn going_down_puts_running_jobs_back_and_waits_for_nodes() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(batch());
    let attempt = d.attempt(job);
    assert_eq!(d.ask(3, 0, Request::ShutDown { keep_jobs: false }), []);
    assert_eq!(d.ended(), [(attempt, "n1".to_owned())]);
    assert!(!d.exit);
    let key = d.key();
    let refused = Refusal::ShuttingDown;
    assert_eq!(d.submit_with(key, batch()), [Answer::Refused(refused)]);
    d.report("n1", &[Report::JobGone { job: attempt }]);
    assert!(d.exit);
    assert_eq!(d.state_of(job), Some(JobState::Pending));
    assert!(d.sent.iter().any(|(_, m)| matches!(m, Down::ShutDown { keep_jobs: false })));
    d.restart();
    d.register("n1", &[]);
    assert_eq!(d.attempt(job).attempt.0, 2);
}

#[test]
fn going_down_does_not_wait_for_ever() {
    let mut d = Driver::new(1, 1);
    d.submit(batch());
    d.ask(3, 0, Request::ShutDown { keep_jobs: false });
    d.pass(34);
    assert!(!d.exit);
    d.pass(1);
    assert!(d.exit);
}
