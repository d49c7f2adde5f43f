//! Long lists: page by page, while others are served and jobs come, start and end.

use std::collections::BTreeMap;

use proptest::prelude::{Just, Strategy, prop_assert_eq, prop_oneof, proptest};
use squall_model::event::Event;
use squall_model::id::JobId;
use squall_model::job::{EndState, ExitCode, JobSpec, Outcome};
use squall_model::wire::client::{Answer, JobSelection, Request};
use squall_model::wire::info::{JobInfo, JobsPage};

use crate::control::decide::tests::{ADA, BOB, Turn, World, these, user};
use crate::control::port::{CallerId, Input, Out};

const PAGE: usize = 3;

fn everything() -> Request {
    Request::Jobs { jobs: JobSelection::default(), ended: false, steps: false }
}

fn pages(turn: Turn) -> Vec<JobsPage> {
    let page = |(caller, answer)| match answer {
        Answer::Jobs(page) if caller == turn.caller => *page,
        answer => panic!("{caller:?} {answer:?}"),
    };
    turn.answers.into_iter().map(page).collect()
}

fn ids(pages: &[JobsPage]) -> Vec<u32> {
    pages.iter().flat_map(|page| &page.jobs).map(|job| job.id.0).collect()
}

/// So many waiting jobs, of which three are on a page.
fn waiting(jobs: u32) -> World {
    let mut world = World::new();
    world.c.set_page(PAGE);
    for _ in 0..jobs {
        world.submit(ADA, JobSpec::default());
    }
    world
}

#[test]
fn lists_take_turns() {
    let mut world = waiting(7);
    let (one, other) = (world.ask(&user(ADA), everything()), world.ask(&user(BOB), everything()));
    assert!(one.answers.is_empty() && other.answers.is_empty());
    let mut told: BTreeMap<CallerId, Vec<usize>> = BTreeMap::new();
    for turn in 0..6 {
        let caller = if turn % 2 == 0 { one.caller } else { other.caller };
        let page = pages(world.list_on(caller)).remove(0);
        assert_eq!(page.more, turn < 4);
        told.entry(caller).or_default().push(page.jobs.len());
    }
    assert!(!world.c.lists());
    assert!(told.values().all(|pages| pages == &[3, 3, 1]));
    // A request for a few jobs by id is answered at once.
    let few = Request::Jobs { jobs: these(&[JobId(2)]), ended: false, steps: false };
    assert_eq!(ids(&pages(world.ask(&user(ADA), few))), [2]);
}

#[test]
fn whoever_asks_something_else_has_the_rest_first() {
    let mut world = waiting(10);
    let turn = world.ask(&user(ADA), everything());
    let first = pages(world.list_on(turn.caller));
    let rest = world.ask_on(turn.caller, &user(ADA), Request::Ping);
    assert_eq!([ids(&first), vec![4, 5, 6, 7, 8, 9, 10]].concat(), (1..=10).collect::<Vec<_>>());
    let kinds: Vec<bool> = rest.answers.iter().map(|(_, answer)| matches!(answer, Answer::Jobs(_))).collect();
    assert_eq!(kinds, [true, true, true, false]);
    assert!(!world.c.lists());
}

#[test]
fn nobody_lists_for_a_client_that_has_gone() {
    let mut world = waiting(10);
    let caller = world.ask(&user(ADA), everything()).caller;
    let mut out = Out::default();
    world.c.take(world.now, Input::Hangup { caller, away: false }, &mut out);
    assert!(!world.c.lists() && out.answers.is_empty());
}

#[test]
fn what_does_not_fit_costs_its_look_only() {
    let mut world = waiting(200);
    let bobs = world.submit(BOB, JobSpec::default());
    let own = JobSelection { users: vec![BOB], ..JobSelection::default() };
    let turn = world.ask(&user(BOB), Request::Jobs { jobs: own, ended: false, steps: false });
    let (mut turns, mut told) = (0, Vec::new());
    while world.c.lists() {
        turns += 1;
        told.extend(pages(world.list_on(turn.caller)));
    }
    assert_eq!(ids(&told), [bobs.0]);
    assert_eq!(turns, 200 / (PAGE * 16) + 1);
}

/// What happens between two pages.
#[derive(Clone, Debug)]
enum Deed {
    Submit,
    /// The waiting job with that number starts.
    Start(u32),
    /// The running job with that number ends.
    End(u32),
    Nothing,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        Just(Deed::Submit),
        (0..40_u32).prop_map(Deed::Start),
        (0..40_u32).prop_map(Deed::End),
        Just(Deed::Nothing)
    ];
    proptest::collection::vec(deed, 0..40)
}

/// Each job that an entry stands for: its id, or array and index.
fn jobs_of(info: &JobInfo) -> Vec<(u32, Option<u32>)> {
    match (&info.pending_tasks, info.task) {
        (Some(tasks), _) => tasks.iter().map(|index| (info.id.0, Some(index))).collect(),
        (None, Some(task)) => vec![(task.array.0, Some(task.index))],
        (None, None) => vec![(info.id.0, None)],
    }
}

proptest! {
    #[test]
    fn each_job_once_and_none_forgotten(deeds in deeds(), named in proptest::bool::ANY) {
        let mut world = waiting(5);
        let array = world.array(ADA, 9);
        for _ in 0..5 {
            world.submit(ADA, JobSpec::default());
        }
        let last = world.c.state.last_id.0;
        let all: Vec<JobId> = (1..=5).chain([array.0]).chain(array.0 + 10..=last).map(JobId).collect();
        let jobs = if named { these(&all) } else { JobSelection::default() };
        let turn = world.ask(&user(BOB), Request::Jobs { jobs, ended: false, steps: false });
        let caller = turn.caller;
        let mut told = pages(turn);
        let mut deeds = deeds.into_iter();
        while world.c.lists() {
            match deeds.next().unwrap_or(Deed::Nothing) {
                Deed::Submit => { world.submit(ADA, JobSpec::default()); }
                Deed::Start(id) => {
                    let id = JobId(id);
                    if world.c.state.find(id).is_some() && world.c.state.jobs.get(&id).is_none_or(|job| job.is_pending()) {
                        world.start(id, 1, 0);
                    }
                }
                Deed::End(id) => {
                    let id = JobId(id);
                    if world.c.state.jobs.get(&id).is_some_and(|job| job.is_running()) {
                        let outcome = Outcome { state: EndState::Completed, exit: ExitCode::OK, reason: None };
                        world.commit(Event::JobEnding { id, outcome, requeue: None });
                        world.release(id);
                    }
                }
                Deed::Nothing => {}
            }
            told.extend(pages(world.list_on(caller)));
        }
        let mut seen: BTreeMap<(u32, Option<u32>), u32> = BTreeMap::new();
        for job in told.iter().flat_map(|page| &page.jobs).flat_map(jobs_of) {
            *seen.entry(job).or_default() += 1;
        }
        prop_assert_eq!(seen.values().max(), Some(&1), "{:?}", seen);
        for id in (1..=5).chain(array.0 + 10..=last) {
            let lives = world.c.state.jobs.get(&JobId(id)).is_some_and(|job| !job.is_ended());
            prop_assert_eq!(seen.contains_key(&(id, None)) || !lives, true, "job {}", id);
        }
        for index in world.c.state.arrays[&array].tally.untouched.iter() {
            prop_assert_eq!(seen.get(&(array.0, Some(index))), Some(&1), "task {}", index);
        }
    }
}
