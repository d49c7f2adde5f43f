//! Allocations live as long as their owner's connection, or its grace.

use std::sync::Arc;

use squall_model::id::{ClientKey, JobId, StepKey, StepNo};
use squall_model::job::{EndState, ExitCode, JobKind, JobSpec, JobState};
use squall_model::report::Report;
use squall_model::step::{FirstStep, StepSpec, TaskProgram};
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::node::Down;

use crate::control::port::{CallerId, Input};
use crate::control::tests::driver::{ADA, Driver, batch};

fn allocation() -> JobSpec {
    JobSpec { kind: JobKind::Allocation, ..batch() }
}

/// Asks on connection 1.
fn allocate(d: &mut Driver, immediate_s: Option<u32>) -> Vec<Answer> {
    let key = d.key();
    let (spec, env) = (Arc::new(allocation()), Vec::new().into());
    d.ask(1, ADA, Request::Allocate { spec, env, key, immediate_s, step: None })
}

fn submitted(answers: &[Answer]) -> JobId {
    let Some(Answer::Submitted { job, .. }) = answers.first() else { panic!("{answers:?}") };
    *job
}

#[test]
fn an_allocation_is_told_and_finished() {
    let mut d = Driver::new(1, 1);
    let answers = allocate(&mut d, None);
    let job = submitted(&answers);
    let [_, Answer::Allocated(facts)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((facts.nodes.as_str(), facts.cpus.clone()), ("n1", vec![1].into()));
    let exit = ExitCode { code: 2, signal: 0 };
    assert_eq!(d.ask(1, ADA, Request::Finish { job, exit }), [Answer::Done]);
    let gone = d.attempt(job);
    d.report("n1", &[Report::JobGone { job: gone }]);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Failed)));
    d.step(Input::Hangup { caller: CallerId(1), away: false });
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Failed)));
}

/// Asks on connection 1 for an allocation and a step of so many tasks in it.
fn run(d: &mut Driver, key: ClientKey, ntasks: u32) -> Vec<Answer> {
    let spec = StepSpec { ntasks: Some(ntasks), ..StepSpec::default() };
    let step = FirstStep { spec, program: TaskProgram::default(), key: ClientKey(key.0 + (1 << 64)) };
    let job = JobSpec { kind: JobKind::Run, ..batch() };
    let (spec, env, step) = (Arc::new(job), Vec::new().into(), Some(Box::new(step)));
    d.ask(1, ADA, Request::Allocate { spec, env, key, immediate_s: None, step })
}

/// How many launches of jobs and of steps nodes were sent, in order.
fn launches(d: &Driver) -> Vec<&'static str> {
    let launch = |(_, message): &(String, Down)| match message {
        Down::StartJob { .. } => Some("job"),
        Down::StartStep(_) => Some("step"),
        _ => None,
    };
    d.sent.iter().filter_map(launch).collect()
}

#[test]
fn a_step_that_was_asked_for_with_its_job_starts_with_it_and_once() {
    let mut d = Driver::new(1, 1);
    let key = d.key();
    for _ in 0..2 {
        // The second time as from a new connection, when the first one was lost.
        let answers = run(&mut d, key, 1);
        let [Answer::Submitted { job, .. }, Answer::Allocated(_), Answer::StepCreated { step, .. }] = &answers[..]
        else {
            panic!("{answers:?}")
        };
        assert_eq!((job.0, step.0), (1, 0));
    }
    assert_eq!(launches(&d)[..2], ["job", "step"], "a node hears of the job first");
    assert_eq!(d.c.state.jobs[&JobId(1)].run().map(|run| run.steps.len()), Some(1));
}

#[test]
fn a_step_waits_for_its_job() {
    let mut d = Driver::new(1, 1);
    let (runs, key) = (submitted(&allocate(&mut d, None)), d.key());
    let waits = submitted(&run(&mut d, key, 1));
    let leaves = d.key();
    let gone = submitted(&run(&mut d, leaves, 1));
    d.cancel(gone);
    assert!(matches!(d.take_answers(CallerId(1))[..], [Answer::Refused(Refusal::Revoked)]), "one word is enough");
    d.ask(1, ADA, Request::Finish { job: runs, exit: ExitCode::OK });
    d.report("n1", &[Report::JobGone { job: d.attempt(runs) }]);
    let answers = d.take_answers(CallerId(1));
    assert!(matches!(answers[..], [Answer::Allocated(_), Answer::StepCreated { .. }]), "{answers:?}");
    assert_eq!(d.state_of(waits), Some(JobState::Running));
}

#[test]
fn a_step_that_can_never_be_is_refused_when_its_job_runs() {
    let mut d = Driver::new(1, 1);
    let key = d.key();
    let answers = run(&mut d, key, 9);
    assert!(matches!(answers[..], [Answer::Submitted { .. }, Answer::Allocated(_), Answer::Refused(_)]), "{answers:?}");
    assert_eq!(launches(&d), ["job"]);
}

#[test]
fn an_allocation_is_given_back_before_its_step_is_known_to_have_ended() {
    let mut d = Driver::new(1, 1);
    let key = d.key();
    let job = submitted(&run(&mut d, key, 1));
    // The srun has heard from the tasks.
    assert_eq!(d.ask(1, ADA, Request::Finish { job, exit: ExitCode::OK }), [Answer::Done]);
    let (job_attempt, end) = (d.attempt(job), d.end(0));
    let key = StepKey { job, attempt: job_attempt.attempt, step: StepNo(0) };
    d.report("n1", &[Report::StepEnded { key, end }, Report::JobGone { job: job_attempt }]);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Completed)));
    let step = &d.c.state.jobs[&job].last_run().unwrap().steps[&StepNo(0)];
    assert_eq!(step.ended.as_ref().map(|(_, outcome)| outcome.state), Some(EndState::Completed));
}

#[test]
fn who_hangs_up_loses_it_pending_or_running() {
    let mut d = Driver::new(1, 1);
    let (runs, waits) = (submitted(&allocate(&mut d, None)), submitted(&allocate(&mut d, None)));
    d.step(Input::Hangup { caller: CallerId(1), away: false });
    let cancelled = EndState::Cancelled { by: ADA };
    assert_eq!(d.state_of(runs), Some(JobState::Completing(cancelled)));
    assert_eq!(d.state_of(waits), Some(JobState::Ended(cancelled)));
}

#[test]
fn an_owner_on_another_machine_may_come_back_in_time() {
    for returns in [true, false] {
        let mut d = Driver::new(1, 1);
        let (runs, waits) = (submitted(&allocate(&mut d, None)), submitted(&allocate(&mut d, None)));
        d.step(Input::Hangup { caller: CallerId(1), away: true });
        d.pass(50);
        assert_eq!((d.state_of(runs), d.state_of(waits)), (Some(JobState::Running), Some(JobState::Pending)));
        if returns {
            d.ask(2, ADA, Request::Attach { job: runs });
            d.ask(2, ADA, Request::Attach { job: waits });
        }
        d.pass(100);
        let cancelled = EndState::Cancelled { by: ADA };
        let kept = (Some(JobState::Running), Some(JobState::Pending));
        let lost = (Some(JobState::Completing(cancelled)), Some(JobState::Ended(cancelled)));
        assert_eq!((d.state_of(runs), d.state_of(waits)), if returns { kept } else { lost });
    }
}

#[test]
fn an_owner_may_come_back_after_a_restart_in_time() {
    for (returns, state) in [(true, JobState::Running), (false, JobState::Completing(EndState::Cancelled { by: ADA }))]
    {
        let mut d = Driver::new(1, 1);
        let job = submitted(&allocate(&mut d, None));
        d.restart();
        d.register("n1", &[d.attempt(job)]);
        d.pass(50);
        if returns {
            let answers = d.ask(2, ADA, Request::Attach { job });
            assert!(matches!(answers[..], [Answer::Allocated(_)]), "{answers:?}");
            assert_eq!(d.ask(3, 1001, Request::Attach { job }), [Answer::Refused(Refusal::AccessDenied)]);
        }
        d.pass(100);
        assert_eq!(d.state_of(job), Some(state));
    }
}

#[test]
fn an_old_connection_that_ends_late_takes_nothing_with_it() {
    let mut d = Driver::new(1, 1);
    let job = submitted(&allocate(&mut d, None));
    d.ask(2, ADA, Request::Attach { job });
    d.step(Input::Hangup { caller: CallerId(1), away: false });
    assert_eq!(d.state_of(job), Some(JobState::Running));
}

#[test]
fn at_once_or_not_at_all() {
    let mut d = Driver::new(1, 1);
    let first = allocate(&mut d, Some(0));
    assert!(matches!(first[..], [Answer::Submitted { .. }, Answer::Allocated(_)]));
    let second = submitted(&allocate(&mut d, Some(0)));
    d.pass(1);
    assert_eq!(d.take_answers(CallerId(1)), [Answer::Refused(Refusal::Busy)]);
    assert!(matches!(d.state_of(second), Some(JobState::Ended(_))));
}

#[test]
fn an_owner_hears_that_its_allocation_was_taken_away() {
    let mut d = Driver::new(1, 1);
    let job = submitted(&allocate(&mut d, None));
    d.cancel(job);
    let answers = d.take_answers(CallerId(1));
    assert!(matches!(answers[..], [Answer::JobDone { .. }]), "{answers:?}");
}
