//! Time limits of steps that are changed while they run.

use squall_model::id::{JobId, StepNo};
use squall_model::step::{StepSpec, TaskProgram};
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::node::Down;

use crate::control::tests::driver::{ADA, Driver, batch};

fn step(d: &mut Driver, job: JobId, time_limit_s: Option<u64>) {
    let spec = Box::new(StepSpec { ntasks: Some(1), overlap: true, time_limit_s, ..StepSpec::default() });
    let (program, key) = (Box::new(TaskProgram::default()), d.key());
    let answers = d.ask(9, ADA, Request::CreateStep { job, spec, program, key });
    assert!(matches!(answers[..], [Answer::StepCreated { .. }]), "{answers:?}");
}

fn limit(d: &mut Driver, uid: u32, job: JobId, step: Option<u32>, time_limit_s: Option<u64>) -> Answer {
    d.ask(8, uid, Request::UpdateStep { job, step: step.map(StepNo), time_limit_s }).remove(0)
}

/// Numbers of steps that nodes have been told to end.
fn told_to_end(d: &Driver) -> Vec<u32> {
    let told = d.sent.iter().filter_map(|(_, message)| match message {
        Down::EndStep { key, .. } => Some(key.step.0),
        _ => None,
    });
    told.collect()
}

#[test]
fn steps_end_by_the_limit_that_they_were_given_last() {
    let mut d = Driver::new(1, 2);
    let job = d.submit(batch());
    for _ in 0..2 {
        step(&mut d, job, Some(60));
    }
    step(&mut d, job, None);
    assert_eq!(limit(&mut d, ADA, job, Some(0), Some(180)), Answer::Done);
    d.pass(90);
    assert_eq!(told_to_end(&d), [1], "0 got more time, 2 has no limit");
    assert_eq!(limit(&mut d, 0, job, Some(2), Some(60)), Answer::Done, "an operator may, and it has passed");
    d.pass(1);
    assert_eq!(told_to_end(&d), [1, 2]);
    assert_eq!(limit(&mut d, ADA, job, None, None), Answer::Done, "all of the job");
    d.pass(200);
    assert_eq!(told_to_end(&d), [1, 2], "0 may run as long as the job");
}

#[test]
fn a_step_that_waits_is_revoked_with_its_attempt() {
    let mut d = Driver::new(2, 1);
    let job = d.submit(batch());
    for caller in [7, 8] {
        let spec = Box::new(StepSpec { ntasks: Some(1), ..StepSpec::default() });
        let (program, key) = (Box::new(TaskProgram::default()), d.key());
        let answers = d.ask(caller, ADA, Request::CreateStep { job, spec, program, key });
        assert_eq!(answers.len(), usize::from(caller == 7), "the second one waits: {answers:?}");
    }
    // The job starts again on the other node, in the turn in which its node is known to have lost it.
    d.reboot("n1");
    assert_eq!(d.attempt(job).attempt.0, 2);
    let answers = std::mem::take(&mut d.answers);
    let waited = answers.iter().find(|(caller, _)| caller.0 == 8).map(|(_, answer)| answer);
    assert!(matches!(waited, Some(Answer::Refused(Refusal::Revoked))), "{answers:?}");
    let starts = |(_, message): &(String, Down)| matches!(message, Down::StartStep(start) if start.key.attempt.0 == 2);
    assert!(!d.sent.iter().any(starts), "no step of the second attempt was asked for");
}

#[test]
fn whose_limits_are_not_changed() {
    let mut d = Driver::new(1, 1);
    let (job, waits) = (d.submit(batch()), d.submit(batch()));
    let refused = |answer: Answer| match answer {
        Answer::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(limit(&mut d, ADA, job, None, Some(60))), Refusal::InvalidStepId, "a script has none");
    assert_eq!(refused(limit(&mut d, ADA, job, Some(StepNo::BATCH.0), Some(60))), Refusal::InvalidStepId);
    assert_eq!(refused(limit(&mut d, 77, job, None, Some(60))), Refusal::AccessDenied);
    assert_eq!(refused(limit(&mut d, ADA, waits, None, Some(60))), Refusal::NotRunning);
    assert_eq!(refused(limit(&mut d, ADA, JobId(9), None, Some(60))), Refusal::InvalidJobId);
}
