//! A job's life: submitted, started, ended, forgotten, each exactly once.

use squall_model::job::{EndState, JobSpec, JobState};
use squall_model::time::Span;
use squall_model::wire::client::{Answer, Refusal, Request};

use crate::control::tests::driver::{ADA, Driver, batch};

#[test]
fn a_job_runs_once_ends_and_is_forgotten() {
    let mut d = Driver::new(1, 2);
    let job = d.submit(batch());
    let launched = d.launched();
    assert_eq!(launched, [(d.attempt(job), "n1".to_owned())]);
    assert_eq!(d.state_of(job), Some(JobState::Running));
    d.finish(job, 3);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Failed)));
    assert_eq!(d.ended(), [], "a job that ended by itself is not ended again");
    assert!(d.c.state().nodes[0].jobs.is_empty() && d.c.state().nodes[0].cores.is_empty());
    d.pass(290);
    assert!(d.state_of(job).is_some());
    d.pass(40);
    assert_eq!(d.state_of(job), None);
    assert!(d.c.state().index.keys.is_empty());
}

/// A client that was not answered repeats its submission to the next controller, when the job has long ended (seed 196
/// of the simulator).
#[test]
fn a_submission_is_known_again_by_a_controller_that_has_just_started() {
    let mut d = Driver::new(1, 2);
    let key = d.key();
    let answers = d.submit_with(key, batch());
    let [Answer::Submitted { job, .. }] = answers[..] else { panic!("{answers:?}") };
    d.finish(job, 0);
    d.pass(295);
    d.restart();
    d.pass(50);
    let again = d.submit_with(key, batch());
    assert!(matches!(again[..], [Answer::Submitted { job: same, .. }] if same == job), "{again:?}");
    d.pass(30);
    assert_eq!(d.state_of(job), None);
}

/// Its end was decided longer ago than `MinJobAge` when its last node let go of it (seed 6815 of the simulator).
#[test]
fn who_waits_for_a_job_is_answered_before_it_is_forgotten() {
    let mut d = Driver::new(1, 2);
    let job = d.submit(batch());
    assert_eq!(d.ask(7, ADA, Request::AwaitJob { job }), []);
    d.cancel(job);
    d.pass(400);
    assert!(d.state_of(job).is_some());
    let reports = d.script_end(job, 0);
    // Nothing was looked at for so long that old jobs are looked for with this very message.
    d.now = d.now + Span::from_secs(20);
    d.report("n1", &reports);
    assert_eq!(d.state_of(job), None);
    let answers = d.take_answers(crate::control::CallerId(7));
    assert!(matches!(&answers[..], [Answer::JobDone { job: told, .. }] if *told == job), "{answers:?}");
}

#[test]
fn the_same_key_is_the_same_job_and_another_spec_under_it_is_refused() {
    let mut d = Driver::new(1, 2);
    let key = d.key();
    let first = d.submit_with(key, batch());
    assert_eq!(d.submit_with(key, batch()), first);
    d.restart();
    assert_eq!(d.submit_with(key, batch()), first);
    let other = JobSpec { args: vec!["x".into()], ..batch() };
    assert_eq!(d.submit_with(key, other), [Answer::Refused(Refusal::KeyReused)]);
    assert_eq!(d.c.state().jobs.len(), 1);
}

#[test]
fn reports_that_come_twice_count_once() {
    let mut d = Driver::new(1, 1);
    let first = d.submit(batch());
    let second = d.submit(batch());
    let reports = d.script_end(first, 0);
    d.report("n1", &reports);
    assert_eq!(d.state_of(second), Some(JobState::Running));
    let before = d.c.state().clone();
    let counted = d.c.diag().fabric.clone();
    assert_eq!((counted.node_epilogs, counted.repeats), (1, 0));
    assert_eq!(counted.windows, [2, 1], "a knock, a registration, and one message of two reports");
    d.report("n1", &reports);
    assert_eq!(&before, d.c.state());
    let again = &d.c.diag().fabric;
    assert_eq!((again.node_epilogs, again.repeats), (1, 2));
}
