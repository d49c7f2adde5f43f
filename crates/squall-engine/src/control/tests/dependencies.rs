//! Dependencies: each kind starts what it should, when it should, and never what it should not.

use squall_model::id::JobId;
use squall_model::job::{
    Dependency, DependencyJob, DependencyKind, DependencyTerm, EndState, JobSpec, JobState, PendingReason,
};
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_sched::Item;

use crate::control::tests::driver::{ADA, Driver, array, batch, these};

fn after(when: DependencyKind, id: JobId) -> JobSpec {
    with(&[(when, id)], false)
}

fn with(terms: &[(DependencyKind, JobId)], any: bool) -> JobSpec {
    let job = |id| Some(DependencyJob { id, index: None, delay_min: 0 });
    let terms = terms.iter().map(|&(when, id)| DependencyTerm { when, job: job(id) }).collect();
    JobSpec { dependency: Some(Dependency { terms, any }), ..batch() }
}

fn reason(d: &Driver, id: JobId) -> PendingReason {
    d.c.queue.reason(&d.c.state, d.now, Item { id, array: false })
}

#[test]
fn each_kind_waits_for_its_own_end() {
    for (code, ok, not_ok) in [(0, true, false), (1, false, true)] {
        let mut d = Driver::new(1, 1);
        let first = d.submit(batch());
        let any = d.submit(after(DependencyKind::AfterAny, first));
        let if_ok = d.submit(after(DependencyKind::AfterOk, first));
        let if_not = d.submit(after(DependencyKind::AfterNotOk, first));
        for job in [any, if_ok, if_not] {
            assert_eq!(reason(&d, job), PendingReason::Dependency);
        }
        d.finish(first, code);
        assert_eq!(d.state_of(any), Some(JobState::Running));
        d.finish(any, 0);
        let (runs, never) = if ok { (if_ok, if_not) } else { (if_not, if_ok) };
        assert_eq!((ok, not_ok), (runs == if_ok, runs == if_not));
        assert_eq!(d.state_of(runs), Some(JobState::Running));
        assert_eq!(reason(&d, never), PendingReason::DependencyNeverSatisfied);
        d.finish(runs, 0);
        d.pass(1000);
        assert_eq!(d.state_of(never), Some(JobState::Pending), "it stays, and so does what it depends on");
        assert!(d.state_of(first).is_some());
        d.restart();
        assert_eq!(reason(&d, never), PendingReason::DependencyNeverSatisfied);
    }
}

#[test]
fn what_never_can_start_is_cancelled_on_demand() {
    let mut d = Driver::new(1, 1);
    let first = d.submit(batch());
    let job = d.submit(JobSpec { kill_on_invalid_dep: Some(true), ..after(DependencyKind::AfterOk, first) });
    let chained = d.submit(JobSpec { kill_on_invalid_dep: Some(true), ..after(DependencyKind::AfterOk, job) });
    d.finish(first, 1);
    for job in [job, chained] {
        assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Cancelled { by: ADA })));
    }
}

#[test]
fn all_and_any() {
    let mut d = Driver::new(1, 2);
    let (a, b) = (d.submit(batch()), d.submit(batch()));
    let terms = [(DependencyKind::AfterOk, a), (DependencyKind::AfterOk, b)];
    let (all, any) = (d.submit(with(&terms, false)), d.submit(with(&terms, true)));
    d.finish(a, 0);
    assert_eq!((d.state_of(all), d.state_of(any)), (Some(JobState::Pending), Some(JobState::Running)));
    d.finish(b, 0);
    assert_eq!(d.state_of(all), Some(JobState::Running));
}

#[test]
fn after_counts_from_the_start() {
    let mut d = Driver::new(1, 2);
    let blocker = d.submit(JobSpec { hold: true, ..batch() });
    let mut spec = after(DependencyKind::After, blocker);
    spec.dependency.as_mut().unwrap().terms[0].job.as_mut().unwrap().delay_min = 2;
    let job = d.submit(spec);
    d.pass(600);
    assert_eq!(d.state_of(job), Some(JobState::Pending));
    d.commit(squall_model::event::Event::JobReleased { id: blocker, whole: false });
    assert_eq!(d.state_of(blocker), Some(JobState::Running));
    d.pass(110);
    assert_eq!(d.state_of(job), Some(JobState::Pending));
    d.pass(20);
    assert_eq!(d.state_of(job), Some(JobState::Running));
}

#[test]
fn singletons_of_a_name_run_one_by_one() {
    let mut d = Driver::new(1, 4);
    let term = DependencyTerm { when: DependencyKind::Singleton, job: None };
    let single = JobSpec { dependency: Some(Dependency { terms: vec![term], any: false }), ..batch() };
    let plain = d.submit(batch());
    let (a, b) = (d.submit(single.clone()), d.submit(single.clone()));
    let other = d.submit(JobSpec { name: "other".into(), ..single });
    let states = |d: &Driver| [a, b, other].map(|job| d.state_of(job) == Some(JobState::Running));
    assert_eq!(states(&d), [false, false, true]);
    d.finish(plain, 0);
    assert_eq!(states(&d), [true, false, true]);
    d.restart();
    d.register("n1", &[d.attempt(a), d.attempt(other)]);
    assert_eq!(states(&d), [true, false, true]);
    d.finish(a, 1);
    assert_eq!(states(&d), [false, true, true]);
}

#[test]
fn arrays_end_before_those_who_wait_for_them() {
    let mut d = Driver::new(1, 4);
    let first = d.submit(array(1, None));
    let job = d.submit(after(DependencyKind::AfterOk, first));
    d.finish(first, 0);
    assert_eq!(d.state_of(job), Some(JobState::Pending), "the last task bears the array's id but is not the array");
    d.finish(JobId(first.0 + 1), 0);
    assert_eq!(d.state_of(job), Some(JobState::Running));
}

#[test]
fn corresponding_tasks_follow_each_other() {
    let mut d = Driver::new(1, 8);
    let first = d.submit(array(2, None));
    let dependency = after(DependencyKind::AfterCorr, first).dependency;
    let second = d.submit(JobSpec { dependency, kill_on_invalid_dep: Some(true), ..array(2, None) });
    let task = |array: JobId, index: u32| if index == 2 { array } else { JobId(array.0 + 1 + index) };
    assert_eq!(d.state_of(task(second, 1)), None);
    d.finish(task(first, 1), 0);
    assert_eq!(d.state_of(task(second, 1)), Some(JobState::Running));
    assert_eq!(d.state_of(task(second, 0)), None);
    d.finish(task(first, 0), 1);
    assert!(d.c.state().arrays[&second].tally.bad.contains(0), "cancelled: its model failed");
    d.finish(task(first, 2), 0);
    assert_eq!(d.state_of(task(second, 2)), Some(JobState::Running));
}

/// Slurm 22.05 takes dependencies on jobs that it does not know, and lifts them, whatever their kind.
#[test]
fn dependencies_on_unknown_jobs_are_lifted() {
    use DependencyKind::{After, AfterAny, AfterCorr, AfterNotOk, AfterOk};
    let mut d = Driver::new(1, 8);
    let tasks = d.submit(JobSpec { hold: true, ..array(2, None) });
    for when in [After, AfterAny, AfterCorr, AfterNotOk, AfterOk] {
        let job = d.submit(after(when, JobId(99_999)));
        assert_eq!(d.state_of(job), Some(JobState::Running), "{when:?}");
        d.finish(job, 0);
    }
    // A term that waits goes on to do so.
    let first = d.submit(JobSpec { hold: true, ..batch() });
    let both = d.submit(with(&[(AfterOk, first), (AfterOk, JobId(99_999))], false));
    assert_eq!(reason(&d, both), PendingReason::Dependency);
    let any = d.submit(with(&[(AfterOk, first), (AfterOk, JobId(99_999))], true));
    assert_eq!(d.state_of(any), Some(JobState::Running));
    // A task that the array does not have.
    let mut no_task = after(AfterOk, tasks);
    no_task.dependency.as_mut().unwrap().terms[0].job.as_mut().unwrap().index = Some(99);
    let no_task = d.submit(no_task);
    assert_eq!(d.state_of(no_task), Some(JobState::Running));
    // A job that failed, and of which the record is gone.
    let failed = d.submit(batch());
    d.finish(failed, 1);
    d.pass(1000);
    assert_eq!(d.state_of(failed), None);
    let late = d.submit(after(AfterOk, failed));
    assert_eq!(d.state_of(late), Some(JobState::Running));
}

#[test]
fn a_task_remembers_what_it_alone_waits_for() {
    let mut d = Driver::new(1, 1);
    let first = d.submit(batch());
    let tasks = d.submit(JobSpec { hold: true, ..array(2, None) });
    let task = JobId(tasks.0 + 1);
    let dependency = after(DependencyKind::AfterOk, first).dependency;
    let spec = JobSpec { dependency, ..array(2, None) };
    let change = squall_model::event::JobChange { spec: Some(std::sync::Arc::new(spec)), ..Default::default() };
    d.commit(squall_model::event::Event::JobUpdated { id: task, change, whole: false });
    d.commit(squall_model::event::Event::JobReleased { id: task, whole: false });
    d.finish(first, 1);
    d.pass(1000);
    d.restart();
    d.register("n1", &[]);
    assert_eq!(d.state_of(task), Some(JobState::Pending));
    assert!(d.state_of(first).is_some(), "how it ended still matters");
    d.cancel(task);
    // A controller that has just started removes nothing for a minute.
    d.pass(80);
    assert_eq!(d.state_of(first), None, "nobody wants it any more");
}

#[test]
fn a_job_that_never_ran_is_requeued_only_while_its_dependency_is_known() {
    let mut d = Driver::new(1, 2);
    let (first, quick) = (d.submit(batch()), d.submit(batch()));
    let (never_ran, has_run) =
        (d.submit(after(DependencyKind::AfterOk, first)), d.submit(after(DependencyKind::AfterAny, quick)));
    // The jobs that depend on these two keep them known longer than the jobs on which these two depend.
    for id in [never_ran, has_run] {
        d.submit(JobSpec { hold: true, ..after(DependencyKind::AfterAny, id) });
    }
    d.finish(quick, 0);
    d.finish(has_run, 1);
    d.cancel(never_ran);
    let requeue = |d: &mut Driver, id| match d
        .ask(9, ADA, Request::Requeue { jobs: these(id), hold: false, from: None, special: None })
        .remove(0)
    {
        Answer::Affected { mut refused, .. } => refused.pop().map(|(_, refusal)| refusal),
        answer => panic!("{answer:?}"),
    };
    assert_eq!(requeue(&mut d, never_ran), None, "what it waits for is there to be judged");
    assert_eq!(d.state_of(never_ran), Some(JobState::Pending));
    d.cancel(never_ran);
    d.finish(first, 1);
    d.pass(1000);
    assert_eq!((d.state_of(first), d.state_of(quick)), (None, None));
    assert_eq!(requeue(&mut d, never_ran), Some(Refusal::DependencyProblem), "nobody remembers how it ended");
    assert!(d.state_of(never_ran).is_some_and(|state| matches!(state, JobState::Ended(_))));
    assert_eq!(requeue(&mut d, has_run), None, "its dependency came true once");
    assert_eq!(d.state_of(has_run), Some(JobState::Running));
}

/// A job ends so long after its end was decided that it is old at once, and no job depends on it any more in the same
/// turn.
#[test]
fn who_waits_for_a_job_is_answered_though_its_last_dependent_ends_with_it() {
    let mut d = Driver::new(2, 1);
    let (first, other) = (d.submit(batch()), d.submit(batch()));
    let dependent = d.submit(JobSpec { kill_on_invalid_dep: Some(true), ..after(DependencyKind::AfterOk, first) });
    assert_eq!(d.ask(7, ADA, Request::AwaitJob { job: first }), []);
    d.cancel(first);
    d.finish(other, 0);
    d.pass(400);
    assert_eq!(d.state_of(other), None);
    d.finish(first, 0);
    assert!(matches!(d.state_of(dependent), Some(JobState::Ended(_))));
    let answers = d.take_answers(crate::control::CallerId(7));
    assert!(matches!(&answers[..], [Answer::JobDone { job, .. }] if *job == first), "{answers:?}");
    d.pass(400);
    assert_eq!((d.state_of(first), d.state_of(dependent)), (None, None));
}
