//! Every kind of condition against every state of the job that it names.

use std::sync::Arc;

use squall_model::config::Config;
use squall_model::event::Event;
use squall_model::id::{Attempt, ClientKey, JobId};
use squall_model::job::{
    ArraySpec, ArrayTask, Dependency, DependencyJob, DependencyKind, DependencyTerm, EndState, ExitCode, JobSpec,
    Outcome,
};
use squall_model::resource::Alloc;
use squall_model::set::IndexSet;
use squall_model::time::{Span, Time};

use super::{Standing, Waiter, standing};
use crate::control::state::State;

use DependencyKind::{After, AfterAny, AfterCorr, AfterNotOk, AfterOk, Singleton};
use Standing::{Holds, Never, Waits};

const NOW: Time = Time::from_secs(1000);

struct World(State);

impl World {
    fn new() -> Self {
        let mut config = Config::default();
        config.complete();
        let mut state = State::default();
        state.apply(NOW, &Event::Configured { config: Arc::new(config) });
        Self(state)
    }
    fn submit(&mut self, spec: JobSpec) -> JobId {
        let id = JobId(self.0.last_id.0 + 1);
        let key = ClientKey(u128::from(id.0));
        self.0.apply(NOW, &Event::JobSubmitted { id, key, owner: Arc::default(), spec: Arc::new(spec) });
        id
    }
    fn array(&mut self, last: u32) -> JobId {
        let array = ArraySpec { indices: IndexSet::range(0, last), ..ArraySpec::default() };
        self.submit(JobSpec { array: Some(array), ..JobSpec::default() })
    }
    fn start(&mut self, id: JobId) {
        let partition = "debug".into();
        self.0.apply(NOW, &Event::JobStarted { id, attempt: Attempt(1), partition, alloc: Alloc::default() });
    }
    /// Of a running job it takes effect at once: it holds no node.
    fn end(&mut self, id: JobId, state: EndState) {
        let outcome = Outcome { state, exit: ExitCode::OK, reason: None };
        self.0.apply(NOW, &Event::JobEnding { id, outcome, requeue: None });
    }
    fn of(&self, spec: &JobSpec, task: Option<ArrayTask>, now: Time) -> Standing {
        standing(&self.0, Waiter { id: JobId(9999), uid: 0, spec, task }, now)
    }
    fn on(&self, when: DependencyKind, id: JobId) -> Standing {
        self.of(&on(&[(when, id, None, 0)], false), None, NOW)
    }
}

fn on(terms: &[(DependencyKind, JobId, Option<u32>, u32)], any: bool) -> JobSpec {
    let term =
        |&(when, id, index, delay_min)| DependencyTerm { when, job: Some(DependencyJob { id, index, delay_min }) };
    JobSpec { dependency: Some(Dependency { terms: terms.iter().map(term).collect(), any }), ..JobSpec::default() }
}

#[test]
fn on_one_job() {
    let mut world = World::new();
    let id = world.submit(JobSpec::default());
    let all = |world: &World| [After, AfterAny, AfterOk, AfterNotOk, AfterCorr].map(|when| world.on(when, id));
    let wait = Waits(None);
    assert_eq!(all(&world), [wait; 5]);
    world.start(id);
    assert_eq!(all(&world), [Holds, wait, wait, wait, wait]);
    let mut failed = World(world.0.clone());
    world.end(id, EndState::Completed);
    assert_eq!(all(&world), [Holds, Holds, Holds, Never, Holds]);
    failed.end(id, EndState::Timeout);
    assert_eq!(all(&failed), [Holds, Holds, Never, Holds, Never]);
}

#[test]
fn on_a_job_that_was_cancelled_before_it_started() {
    let mut world = World::new();
    let id = world.submit(JobSpec::default());
    world.end(id, EndState::Cancelled { by: 0 });
    assert_eq!([After, AfterAny, AfterOk, AfterNotOk].map(|when| world.on(when, id)), [Holds, Holds, Never, Holds]);
}

#[test]
fn minutes_after_a_start() {
    let mut world = World::new();
    let id = world.submit(JobSpec::default());
    let spec = on(&[(After, id, None, 5)], false);
    assert_eq!(world.of(&spec, None, NOW), Waits(None));
    world.start(id);
    let then = NOW + Span::from_secs(300);
    assert_eq!(world.of(&spec, None, NOW), Waits(Some(then)));
    assert_eq!(world.of(&spec, None, then), Holds);
}

#[test]
fn on_an_array_and_on_one_task() {
    let mut world = World::new();
    let array = world.array(2);
    let task = |index| JobId(if index == 2 { array.0 } else { array.0 + 1 + index });
    let of_task = |world: &World, index| world.of(&on(&[(AfterOk, array, Some(index), 0)], false), None, NOW);
    world.start(task(0));
    assert_eq!(world.on(After, array), Waits(None));
    world.end(task(0), EndState::Completed);
    assert_eq!((of_task(&world, 0), of_task(&world, 1), of_task(&world, 7)), (Holds, Waits(None), Never));
    world.start(task(1));
    world.start(task(2));
    assert_eq!((world.on(After, array), world.on(AfterAny, array)), (Holds, Waits(None)));
    world.end(task(1), EndState::Failed);
    assert_eq!((world.on(AfterOk, array), world.on(AfterNotOk, array)), (Never, Waits(None)));
    world.end(task(2), EndState::Completed);
    assert_eq!((world.on(AfterAny, array), world.on(AfterNotOk, array)), (Holds, Holds));
}

#[test]
fn corresponding_tasks() {
    let mut world = World::new();
    let array = world.array(3);
    let spec = on(&[(AfterCorr, array, None, 0)], false);
    world.end(JobId(array.0 + 1), EndState::Completed);
    world.end(JobId(array.0 + 2), EndState::Failed);
    let of = |index| world.of(&spec, Some(ArrayTask { array: JobId(9000), index }), NOW);
    assert_eq!((of(0), of(1), of(2), of(9)), (Holds, Never, Waits(None), Never));
}

#[test]
fn all_or_any() {
    let mut world = World::new();
    let (good, bad, open) =
        (world.submit(JobSpec::default()), world.submit(JobSpec::default()), world.submit(JobSpec::default()));
    world.end(good, EndState::Completed);
    world.end(bad, EndState::Failed);
    let of = |ids: &[JobId], any| {
        let terms: Vec<_> = ids.iter().map(|&id| (AfterOk, id, None, 0)).collect();
        world.of(&on(&terms, any), None, NOW)
    };
    assert_eq!((of(&[good, open], false), of(&[good, open], true)), (Waits(None), Holds));
    assert_eq!((of(&[bad, open], false), of(&[bad, open], true)), (Never, Waits(None)));
    assert_eq!((of(&[bad], true), of(&[good], false)), (Never, Holds));
}

#[test]
fn one_at_a_time_by_name() {
    let mut world = World::new();
    let term = DependencyTerm { when: Singleton, job: None };
    let dependency = Some(Dependency { terms: vec![term], any: false });
    let spec = JobSpec { name: "one".into(), dependency, ..JobSpec::default() };
    let (first, second) = (world.submit(spec.clone()), world.submit(spec.clone()));
    let of = |world: &World, id| standing(&world.0, Waiter { id, uid: 0, spec: &spec, task: None }, NOW);
    assert_eq!((of(&world, first), of(&world, second)), (Holds, Waits(None)));
    let other = Waiter { id: second, uid: 7, spec: &spec, task: None };
    assert_eq!(standing(&world.0, other, NOW), Holds);
    world.start(first);
    assert_eq!(of(&world, second), Waits(None));
    world.end(first, EndState::Failed);
    assert_eq!(of(&world, second), Holds);
}
