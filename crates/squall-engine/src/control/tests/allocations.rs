//! Allocations live as long as their owner's connection, or its grace.

use std::sync::Arc;

use squall_model::id::JobId;
use squall_model::job::{EndState, ExitCode, JobKind, JobSpec, JobState};
use squall_model::report::Report;
use squall_model::wire::client::{Answer, Refusal, Request};

use super::driver::{ADA, Driver, batch};
use crate::control::{CallerId, Input};

fn allocation() -> JobSpec {
    JobSpec { kind: JobKind::Allocation, ..batch() }
}

/// Asks on connection 1.
fn allocate(d: &mut Driver, immediate_s: Option<u32>) -> Vec<Answer> {
    let key = d.key();
    let request = Request::Allocate { spec: Arc::new(allocation()), env: Vec::new().into(), key, immediate_s };
    d.ask(1, ADA, request)
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
    d.step(Input::Hangup { caller: CallerId(1) });
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Failed)));
}

#[test]
fn who_hangs_up_loses_it_pending_or_running() {
    let mut d = Driver::new(1, 1);
    let (runs, waits) = (submitted(&allocate(&mut d, None)), submitted(&allocate(&mut d, None)));
    d.step(Input::Hangup { caller: CallerId(1) });
    let cancelled = EndState::Cancelled { by: ADA };
    assert_eq!(d.state_of(runs), Some(JobState::Completing(cancelled)));
    assert_eq!(d.state_of(waits), Some(JobState::Ended(cancelled)));
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
    d.step(Input::Hangup { caller: CallerId(1) });
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
