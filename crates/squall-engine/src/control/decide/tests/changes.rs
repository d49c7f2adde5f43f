//! Cancel, hold, release, requeue, suspend, update: effects, answers, races.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::config::{Config, PartitionConfig, PartitionState};
use squall_model::event::{Event, NodeAdmin, Requeue};
use squall_model::id::{JobId, NodeId, StepNo};
use squall_model::job::network;
use squall_model::job::{
    Dependency, DependencyJob, DependencyKind, DependencyTerm, EndState, ExitCode, JobKind, JobSpec, JobState, Outcome,
};
use squall_model::policy::{PolicyChange, PreemptMode, Qos};
use squall_model::resource::Memory;
use squall_model::time::Time;
use squall_model::wire::client::{Answer, JobSelection, JobUpdate, Refusal, Request, StateFilter};
use squall_model::wire::node::{Down, SignalTarget};

use crate::control::decide::tests::{
    ADA, BOB, Turn, World, affected, attempt, cancel, nodes, operator, tasks, these, update_nodes, user,
};
use crate::control::state::job::Hold;

fn only_answer(mut turn: Turn) -> Answer {
    assert_eq!(turn.answers.len(), 1);
    turn.answers.remove(0).1
}

#[test]
fn cancel_ends_what_waits_and_what_runs() {
    let mut world = World::new();
    let (waits, runs) = (world.submit(ADA, JobSpec::default()), world.running(ADA));
    let answer = world.answer(&user(ADA), cancel(these(&[waits, runs])));
    assert_eq!(affected(answer).0, ["1", "2"]);
    let by = EndState::Cancelled { by: ADA };
    assert_eq!(world.c.state.jobs[&waits].state(), JobState::Ended(by));
    assert_eq!(world.c.state.jobs[&runs].state(), JobState::Completing(by));
}

#[test]
fn cancel_again_changes_nothing() {
    let mut world = World::new();
    let (ended, runs) = (world.ended(ADA), world.running(ADA));
    world.ask(&user(ADA), cancel(these(&[runs])));
    let turn = world.ask(&user(ADA), cancel(these(&[ended, runs, JobId(77)])));
    assert_eq!(turn.events, []);
    let (done, refused) = affected(only_answer(turn));
    assert_eq!(done, [""; 0]);
    assert_eq!(refused["1"], Refusal::AlreadyDone);
    assert_eq!(refused["2"], Refusal::AlreadyDone);
    assert_eq!(refused["77"], Refusal::InvalidJobId);
    let quiet = Request::Cancel { jobs: these(&[ended, JobId(77)]), signal: None, step: None, verbose: false };
    assert_eq!(world.answer(&user(ADA), quiet), Answer::Affected { jobs: vec![], refused: vec![] });
}

#[test]
fn cancel_beats_a_requeue_under_way() {
    let mut world = World::new();
    let id = world.running(ADA);
    world.ask(&user(ADA), Request::Requeue { jobs: these(&[id]), hold: false, from: None, special: None });
    world.ask(&user(ADA), cancel(these(&[id])));
    world.release(id);
    assert_eq!(world.c.state.jobs[&id].state(), JobState::Ended(EndState::Cancelled { by: ADA }));
}

#[test]
fn tasks_of_an_array_end_together() {
    let mut world = World::new();
    let array = world.array(ADA, 999_999);
    world.start(JobId(array.0 + 1), 1, 1);
    let turn = world.ask(&user(ADA), cancel(tasks(array, 1, 4)));
    assert!(matches!(&turn.events[..], [Event::TasksEnded { tasks, .. }] if tasks.to_string() == "1-4"));
    let (names, _) = affected(only_answer(turn));
    assert_eq!(names, ["1_1", "1_2", "1_3", "1_4"]);
    let turn = world.ask(&user(ADA), cancel(tasks(array, 1, 5)));
    assert_eq!(affected(only_answer(turn)).0, ["1_5"]);
    let turn = world.ask(&user(ADA), cancel(these(&[array])));
    assert_eq!(turn.events.len(), 2, "all that waits, and the one that runs");
    assert_eq!(affected(only_answer(turn)), (vec!["1".to_owned()], BTreeMap::new()));
    world.release(JobId(array.0 + 1));
    assert!(world.c.state.arrays[&array].is_ended());
    let refusal = world.refusal(&user(ADA), cancel(these(&[array])));
    assert_eq!(refusal, Refusal::AlreadyDone);
}

#[test]
fn tasks_that_an_array_does_not_have_are_unknown() {
    let mut world = World::new();
    let array = world.array(ADA, 3);
    let (done, refused) = affected(world.answer(&user(ADA), cancel(tasks(array, 3, 4))));
    assert_eq!((done, &refused["1_4"]), (vec!["1_3".to_owned()], &Refusal::InvalidJobId));
}

#[test]
fn cancel_by_filter() {
    let mut world = World::new();
    let named = |name: &str| JobSpec { name: name.into(), ..JobSpec::default() };
    let (a, b, c) = (world.submit(ADA, named("a")), world.submit(ADA, named("b")), world.submit(ADA, named("b")));
    world.start(c, 2, 1);
    let by = |wanted: JobSelection| cancel(wanted);
    let state = JobSelection { states: vec![StateFilter::Pending], names: vec!["b".into()], ..JobSelection::default() };
    assert_eq!(affected(world.answer(&user(ADA), by(state))).0, [b.to_string()]);
    let node = JobSelection { nodes: Some("n[2-4]".into()), ..Default::default() };
    assert_eq!(affected(world.answer(&user(ADA), by(node))).0, [c.to_string()]);
    let other = JobSelection { partitions: vec!["other".into()], ..Default::default() };
    assert_eq!(affected(world.answer(&user(ADA), by(other))).0, [""; 0]);
    let unknown = JobSelection { nodes: Some("n9".into()), ..Default::default() };
    assert_eq!(world.refusal(&user(ADA), by(unknown)), Refusal::InvalidNode("n9".into()));
    let debug = JobSelection { partitions: vec!["debug".into()], users: vec![ADA], ..Default::default() };
    assert_eq!(affected(world.answer(&operator(), by(debug))).0, [a.to_string()]);
}

#[test]
fn signals_go_to_the_nodes_of_running_jobs() {
    let mut world = World::new();
    let (waits, runs) = (world.submit(ADA, JobSpec::default()), world.submit(ADA, JobSpec::default()));
    world.start(runs, 2, 1);
    let ask =
        |target, step| Request::Cancel { jobs: these(&[waits, runs]), signal: Some((10, target)), step, verbose: true };
    let turn = world.ask(&user(ADA), ask(SignalTarget::Steps, None));
    let signal = |target| Down::Signal { job: attempt(runs, 1), target, signal: 10 };
    assert_eq!(turn.sends, [(NodeId(0), signal(SignalTarget::Steps)), (NodeId(1), signal(SignalTarget::Steps))]);
    assert_eq!(turn.events, [], "signals are not journaled");
    assert_eq!(affected(only_answer(turn)).1["1"], Refusal::NotRunning);
    let turn = world.ask(&user(ADA), ask(SignalTarget::Steps, Some(StepNo::BATCH)));
    assert_eq!(turn.sends, [(NodeId(0), signal(SignalTarget::Batch))], "where the script runs");
    let turn = world.ask(&user(ADA), ask(SignalTarget::Steps, Some(StepNo(3))));
    assert_eq!(affected(only_answer(turn)).1["2"], Refusal::InvalidStepId);
    let kill =
        Request::Cancel { jobs: these(&[runs]), signal: Some((9, SignalTarget::Steps)), step: None, verbose: false };
    world.ask(&user(ADA), kill);
    assert!(matches!(world.c.state.jobs[&runs].state(), JobState::Completing(EndState::Cancelled { .. })));
    let bad =
        Request::Cancel { jobs: these(&[runs]), signal: Some((99, SignalTarget::All)), step: None, verbose: false };
    assert!(matches!(world.refusal(&user(ADA), bad), Refusal::InvalidValue { .. }));
}

#[test]
fn holds_and_who_releases_them() {
    let mut world = World::new();
    let (ended, id) = (world.ended(ADA), world.submit(ADA, JobSpec::default()));
    let hold = |user| Request::Hold { jobs: these(&[id]), user };
    let release = || Request::Release { jobs: these(&[id]) };
    world.answer(&user(ADA), hold(false));
    assert_eq!(world.hold_of(id), Hold::User);
    world.answer(&user(ADA), release());
    assert_eq!(world.hold_of(id), Hold::No);
    world.answer(&operator(), hold(true));
    assert_eq!(world.hold_of(id), Hold::User, "uhold");
    world.answer(&operator(), hold(false));
    assert_eq!(world.hold_of(id), Hold::Admin);
    assert_eq!(world.refusal(&user(ADA), release()), Refusal::HeldByAdmin);
    world.answer(&user(ADA), hold(false));
    assert_eq!(world.hold_of(id), Hold::Admin, "an owner's hold does not weaken the operator's");
    world.answer(&operator(), release());
    assert_eq!(world.hold_of(id), Hold::No);
    let late = Request::Hold { jobs: these(&[ended]), user: false };
    assert_eq!(world.refusal(&user(ADA), late), Refusal::AlreadyDone);
}

#[test]
fn d7_hold_of_a_running_job_counts_when_it_is_requeued() {
    let mut world = World::new();
    let id = world.running(ADA);
    let hold = || Request::Hold { jobs: these(&[id]), user: false };
    world.answer(&operator(), hold());
    let job = &world.c.state.jobs[&id];
    assert_eq!((job.state(), job.queue.hold), (JobState::Running, Hold::Admin));
    world.answer(&operator(), Request::Release { jobs: these(&[id]) });
    assert_eq!(world.hold_of(id), Hold::No);
    world.answer(&operator(), update(id, |u| u.priority = Some(0)));
    world.answer(&user(ADA), Request::Requeue { jobs: these(&[id]), hold: false, from: None, special: None });
    world.answer(&operator(), hold());
    world.release(id);
    let job = &world.c.state.jobs[&id];
    assert_eq!((job.state(), job.queue.hold), (JobState::Pending, Hold::Admin));
    assert_eq!(world.refusal(&user(ADA), Request::Release { jobs: these(&[id]) }), Refusal::HeldByAdmin);
    let ending = world.running(ADA);
    world.answer(&user(ADA), cancel(these(&[ending])));
    let late = Request::Hold { jobs: these(&[ending]), user: false };
    assert_eq!(world.refusal(&user(ADA), late), Refusal::AlreadyDone, "it is not requeued");
}

#[test]
fn d7_hold_of_an_array_holds_its_running_tasks() {
    let mut world = World::new();
    let array = world.array(ADA, 3);
    let runs = JobId(array.0 + 1);
    world.start(runs, 1, 1);
    world.answer(&user(ADA), Request::Hold { jobs: these(&[array]), user: false });
    assert_eq!((world.hold_of(runs), world.c.state.arrays[&array].queue.hold), (Hold::User, Hold::User));
    world.answer(&user(ADA), Request::Release { jobs: these(&[array]) });
    assert_eq!((world.hold_of(runs), world.c.state.arrays[&array].queue.hold), (Hold::No, Hold::No));
}

#[test]
fn d8_what_an_operator_holds_is_held_by_the_operator_whosever_it_is() {
    let mut world = World::new();
    let holds = [
        (Request::Hold { jobs: these(&[JobId(1)]), user: false }, Hold::Admin),
        (Request::Hold { jobs: these(&[JobId(2)]), user: true }, Hold::User),
        (update(JobId(3), |u| u.priority = Some(0)), Hold::Admin),
    ];
    for (request, held) in holds {
        let id = world.submit(0, JobSpec::default());
        world.answer(&operator(), request);
        assert_eq!(world.hold_of(id), held, "{id}");
    }
}

#[test]
fn d8_uhold_of_an_operators_hold_lets_the_user_release_it() {
    let mut world = World::new();
    let (id, array) = (world.submit(ADA, JobSpec::default()), world.array(ADA, 3));
    let hold = |user| Request::Hold { jobs: these(&[id, array]), user };
    let holds = |world: &World| (world.hold_of(id), world.c.state.arrays[&array].queue.hold);
    world.answer(&operator(), hold(false));
    world.answer(&user(ADA), hold(true));
    assert_eq!(holds(&world), (Hold::Admin, Hold::Admin), "who is no operator changes nothing of it");
    world.answer(&operator(), hold(true));
    assert_eq!(holds(&world), (Hold::User, Hold::User));
    world.answer(&user(ADA), Request::Release { jobs: these(&[id, array]) });
    assert_eq!(holds(&world), (Hold::No, Hold::No));
}

#[test]
fn e_what_accounting_keeps_of_a_job_is_changed_by_operators_and_in_part_by_its_owner() {
    let mut world = World::new();
    let (id, gone) = (world.ended(ADA), JobId(4711));
    let record = |job, name: &str| Request::Record(job, vec![(name.into(), "x".into())]);
    for name in ["comment", "admin-comment"] {
        world.answer(&operator(), record(gone, name));
    }
    world.answer(&user(ADA), record(id, "comment"));
    assert_eq!(world.refusal(&user(ADA), record(id, "admin-comment")), Refusal::AccessDenied);
    assert_eq!(world.refusal(&user(ADA), record(gone, "comment")), Refusal::AccessDenied, "whose it was is not known");
    assert_eq!(world.refusal(&user(ADA + 1), record(id, "comment")), Refusal::AccessDenied);
    assert!(matches!(world.refusal(&operator(), record(id, "name")), Refusal::NotSupported(_)));
}

#[test]
fn a_whole_array_is_held_by_one_event() {
    let mut world = World::new();
    let array = world.array(ADA, 99_999);
    let turn = world.ask(&user(ADA), Request::Hold { jobs: these(&[array]), user: false });
    assert_eq!(turn.events, [Event::JobHeld { id: array, admin: false, whole: true }]);
    assert_eq!(world.c.state.arrays[&array].queue.hold, Hold::User);
    let turn = world.ask(&user(ADA), Request::Release { jobs: tasks(array, 7, 8) });
    assert_eq!(turn.events.len(), 2);
    assert_eq!(world.hold_of(JobId(array.0 + 8)), Hold::No);
    assert_eq!(world.c.state.arrays[&array].queue.hold, Hold::User);
}

#[test]
fn releasing_an_array_spares_the_task_that_the_operator_holds() {
    let mut world = World::new();
    let array = world.array(ADA, 9);
    world.answer(&operator(), Request::Hold { jobs: tasks(array, 3, 3), user: false });
    world.answer(&user(ADA), Request::Hold { jobs: these(&[array]), user: false });
    world.answer(&user(ADA), Request::Release { jobs: these(&[array]) });
    assert_eq!(world.c.state.arrays[&array].queue.hold, Hold::No);
    assert_eq!(world.hold_of(JobId(array.0 + 4)), Hold::Admin);
    world.answer(&operator(), Request::Release { jobs: these(&[array]) });
    assert_eq!(world.hold_of(JobId(array.0 + 4)), Hold::No);
}

#[test]
fn requeue_is_answered_in_the_turn_that_orders_the_end() {
    let mut world = World::new();
    let id = world.running(ADA);
    let turn = world.ask(&user(ADA), Request::Requeue { jobs: these(&[id]), hold: false, from: None, special: None });
    let requeue = Some(Requeue { hold: false, not_before: None, special: None, expedite: None });
    assert!(matches!(&turn.events[..], [Event::JobEnding { requeue: r, .. }] if *r == requeue));
    assert_eq!(affected(only_answer(turn)).0, ["1"]);
    assert_eq!(world.c.state.jobs[&id].state(), JobState::Completing(EndState::Requeued));
    world.release(id);
    let job = &world.c.state.jobs[&id];
    assert_eq!((job.state(), job.restarts), (JobState::Pending, 1));
}

#[test]
fn what_can_and_cannot_be_requeued() {
    let mut world = World::new();
    let requeue = |id, hold| Request::Requeue { jobs: these(&[id]), hold, from: None, special: None };
    let ended = world.ended(ADA);
    world.answer(&user(ADA), requeue(ended, true));
    assert_eq!(world.c.state.jobs[&ended].state(), JobState::Pending);
    assert_eq!(world.hold_of(ended), Hold::Requeue);
    world.answer(&user(ADA), Request::Release { jobs: these(&[ended]) });
    assert_eq!(world.refusal(&user(ADA), requeue(ended, false)), Refusal::WrongState("pending".into()));
    assert_eq!(world.refusal(&user(ADA), requeue(ended, true)), Refusal::WrongState("pending".into()));
    let specs = [
        JobSpec { requeue: Some(false), ..JobSpec::default() },
        JobSpec { kind: JobKind::Allocation, ..JobSpec::default() },
    ];
    for spec in specs {
        let id = world.submit(ADA, spec);
        world.start(id, 1, 0);
        assert_eq!(world.refusal(&user(ADA), requeue(id, false)), Refusal::NotRequeueable);
    }
}

#[test]
fn suspend_and_resume() {
    let mut world = World::new();
    let id = world.running(ADA);
    let ask = |suspend| Request::Suspend { jobs: these(&[id]), suspend };
    let turn = world.ask(&operator(), ask(true));
    let signal = |signal| Down::Signal { job: attempt(id, 1), target: SignalTarget::Full, signal };
    assert_eq!(turn.sends, [(NodeId(0), signal(19))]);
    assert_eq!(world.c.state.jobs[&id].state(), JobState::Suspended);
    assert_eq!(world.refusal(&operator(), ask(true)), Refusal::WrongState("suspended".into()));
    let turn = world.ask(&operator(), ask(false));
    assert_eq!(turn.sends, [(NodeId(0), signal(18))]);
    assert_eq!(world.c.state.jobs[&id].state(), JobState::Running);
}

fn update(id: JobId, change: impl FnOnce(&mut JobUpdate)) -> Request {
    let mut update = JobUpdate::default();
    change(&mut update);
    Request::UpdateJob { jobs: these(&[id]), change: Box::new(update) }
}

#[test]
fn updates_of_a_waiting_job() {
    let mut world = World::new();
    let id = world.submit(ADA, JobSpec::default());
    let ada = user(ADA);
    world.answer(
        &ada,
        update(id, |u| {
            u.name = Some("other".into());
            u.nodes = Some((2, Some(3)));
            u.time_limit_s = Some(Some(60));
        }),
    );
    let job = &world.c.state.jobs[&id];
    assert_eq!((job.spec.name.as_str(), job.spec.need.nodes_max), ("other", Some(3)));
    assert_eq!(job.time_limit_s(), Some(Some(60)));
    let bad = [
        update(id, |u| u.partition = Some("x".into())),
        update(id, |u| u.nodelist = Some(Some("n9".into()))),
        update(id, |u| u.nodes = Some((0, None))),
        update(id, |u| u.nodes = Some((3, Some(2)))),
        update(id, |u| u.ntasks = Some(0)),
        update(id, |u| u.comment = Some("x".repeat(1 << 20))),
    ];
    for request in bad {
        assert_eq!(world.refusals(&ada, request), 1);
    }
    assert_eq!(world.ask(&ada, update(id, |u| u.name = Some("other".into()))).events, [], "nothing changed");
}

#[test]
fn an_answer_fits_a_frame_however_long_the_refused_value() {
    let mut world = World::new();
    let ids: Vec<JobId> = (0..1000).map(|_| world.submit(ADA, JobSpec::default())).collect();
    let constraint = Some(Some("&".repeat(60_000)));
    let change = Box::new(JobUpdate { constraint, ..JobUpdate::default() });
    let answer = world.answer(&user(ADA), Request::UpdateJob { jobs: these(&ids), change });
    let bytes = squall_model::encoding::to_vec(&answer).len();
    assert!((1 << 20..8 << 20).contains(&bytes), "{bytes}");
}

#[test]
fn priorities_go_down_for_users_and_up_for_operators() {
    let mut world = World::new();
    let id = world.submit(ADA, JobSpec::default());
    let set = |priority| update(id, move |u| u.priority = Some(priority));
    world.answer(&user(ADA), set(10));
    assert_eq!(world.refusal(&user(ADA), set(11)), Refusal::AccessDenied);
    world.answer(&operator(), set(11));
    assert_eq!(world.c.state.jobs[&id].queue.priority, Some(11));
    world.answer(&user(ADA), set(0));
    assert_eq!(world.hold_of(id), Hold::User);
    assert_eq!(world.refusal(&user(ADA), update(id, |u| u.nice = Some(-1))), Refusal::AccessDenied);
}

#[test]
fn e_no_update_lets_a_held_job_go() {
    let mut world = World::new();
    let job = world.submit(ADA, JobSpec { hold: true, ..JobSpec::default() });
    let array = world.array(ADA, 3);
    world.answer(&operator(), Request::Hold { jobs: these(&[array]), user: false });
    for who in [user(ADA), operator()] {
        for id in [job, array] {
            assert_eq!(world.refusal(&who, update(id, |u| u.priority = Some(500))), Refusal::Held);
            let both = update(id, |u| (u.priority, u.name) = (Some(1), Some("other".into())));
            assert_eq!(world.refusal(&who, both), Refusal::Held);
            world.answer(&who, update(id, |u| u.nice = Some(7)));
            world.answer(&who, update(id, |u| u.begin = Some(Time::default())));
            world.answer(&who, Request::Top { jobs: these(&[id]) });
        }
    }
    assert_eq!((world.hold_of(job), world.c.state.arrays[&array].queue.hold), (Hold::User, Hold::Admin));
}

#[test]
fn updates_of_a_running_job() {
    let mut world = World::new();
    let id = world.submit(ADA, JobSpec { time_limit_s: Some(600), ..JobSpec::default() });
    world.start(id, 1, 1);
    let refusal = world.refusal(&user(ADA), update(id, |u| u.partition = Some("debug".into())));
    assert_eq!(refusal, Refusal::NotPending);
    let limit = |seconds| update(id, move |u| u.time_limit_s = Some(seconds));
    assert_eq!(world.refusal(&user(ADA), limit(Some(601))), Refusal::AccessDenied);
    world.answer(&user(ADA), limit(Some(300)));
    world.answer(&operator(), limit(None));
    assert_eq!(world.c.state.jobs[&id].time_limit_s(), Some(None));
}

#[test]
fn dependencies_do_not_go_round() {
    let mut world = World::new();
    let (a, b) = (world.submit(ADA, JobSpec::default()), world.submit(ADA, JobSpec::default()));
    let on = |id| {
        let job = Some(DependencyJob { id, index: None, delay_min: 0 });
        Dependency { terms: vec![DependencyTerm { when: DependencyKind::AfterOk, job }], any: false }
    };
    let depend = |of, id| update(of, move |u| u.dependency = Some(Some(on(id))));
    for id in [a, JobId(0)] {
        assert_eq!(world.refusal(&user(ADA), depend(a, id)), Refusal::DependencyProblem);
    }
    world.answer(&user(ADA), depend(b, JobId(99)));
    world.answer(&user(ADA), depend(b, a));
    assert_eq!(world.refusal(&user(ADA), depend(a, b)), Refusal::DependencyProblem);
    world.answer(&user(ADA), update(b, |u| u.dependency = Some(None)));
    world.answer(&user(ADA), depend(a, b));
    assert!(world.c.state.jobs[&a].spec.dependency.is_some());
}

#[test]
fn an_array_is_updated_as_a_whole() {
    let mut world = World::new();
    let array = world.array(ADA, 9);
    world.start(JobId(array.0 + 1), 1, 1);
    world.answer(&user(ADA), update(array, |u| u.array_limit = Some(Some(2))));
    world.answer(&user(ADA), update(array, |u| u.comment = Some("x".into())));
    let state = &world.c.state;
    assert_eq!(state.arrays[&array].limit, Some(2));
    assert_eq!(state.arrays[&array].spec.comment.as_deref(), Some("x"));
    assert_eq!(state.jobs[&JobId(array.0 + 1)].spec.comment.as_deref(), Some("x"));
}

#[test]
fn nodes_and_partitions() {
    let mut world = World::new();
    let ask = |list: &str| update_nodes(list, NodeAdmin::Drain);
    let turn = world.ask(&operator(), ask("n[2-3]"));
    assert!(matches!(&turn.events[..], [Event::NodesSet { nodes: set, .. }] if *set == nodes(&[1, 2])));
    assert_eq!(world.refusal(&operator(), ask("n[4-5]")), Refusal::InvalidNode("n5".into()));
    assert!(matches!(world.refusal(&operator(), ask("n[")), Refusal::InvalidValue { .. }));
    assert!(matches!(world.refusal(&operator(), ask("")), Refusal::InvalidNode(_)));
    let unknown = Request::UpdatePartition { name: "x".into(), state: PartitionState::Up };
    assert_eq!(world.refusal(&operator(), unknown), Refusal::InvalidPartition("x".into()));
    let same = Request::Reconfigure { config: Some(Box::new((*world.c.state.config).clone())) };
    assert_eq!(world.ask(&operator(), same).events, [], "an equal configuration is not journaled again");
}

#[test]
fn partitions_come_and_change_and_go() {
    let mut world = World::new();
    let config = |name: &str, nodes: &str| PartitionConfig {
        name: name.into(),
        nodes: nodes.into(),
        ..PartitionConfig::default()
    };
    let ask = |was: Option<&PartitionConfig>, now: Option<&PartitionConfig>| Request::ChangePartition {
        name: "new".into(),
        was: was.cloned().map(Box::new),
        now: now.cloned().map(Box::new),
    };
    let (first, wide) = (config("new", "n1"), config("new", "n[1-2]"));
    assert_eq!(world.refusal(&user(ADA), ask(None, Some(&first))), Refusal::AccessDenied);
    let nowhere = config("new", "n9");
    assert_eq!(world.refusal(&operator(), ask(None, Some(&nowhere))), Refusal::InvalidNode("n9".into()));
    assert_eq!(world.refusal(&operator(), ask(Some(&first), None)), Refusal::InvalidPartition("new".into()));
    let suspends = PartitionConfig { preempt_mode: Some(PreemptMode::Suspend), ..first.clone() };
    let refusal = world.refusal(&operator(), ask(None, Some(&suspends)));
    assert!(matches!(refusal, Refusal::Contradiction(..)), "nobody would wake its jobs: {refusal:?}");
    world.commit(Event::PolicyChanged { changes: vec![PolicyChange::Qos("high".into(), Some(Qos::default()))], by: 0 });
    let unknown = PartitionConfig { qos: "low".into(), ..first.clone() };
    assert_eq!(world.refusal(&operator(), ask(None, Some(&unknown))), Refusal::InvalidQos("low".into()));
    world.answer(&operator(), ask(None, Some(&first)));
    assert_eq!(world.refusal(&operator(), ask(None, Some(&first))), Refusal::InvalidPartition("new".into()));
    assert_eq!(world.refusal(&operator(), ask(Some(&wide), Some(&first))), Refusal::Stale);
    let default = PartitionConfig { default: true, ..wide.clone() };
    world.answer(&operator(), ask(Some(&first), Some(&default)));
    assert_eq!(world.c.state.default_partition().map(|p| (&p.config, p.nodes.len())), Some((&default, 2)));
    assert_eq!(world.c.state.partitions.iter().filter(|p| p.config.default).count(), 1);
    let waits = world.submit(ADA, JobSpec::default());
    assert_eq!(world.refusal(&operator(), ask(Some(&default), None)), Refusal::PartitionBusy("new".into()));
    let outcome = Outcome { state: EndState::Completed, exit: ExitCode::OK, reason: None };
    world.start(waits, 1, 1);
    world.commit(Event::JobEnding { id: waits, outcome, requeue: None });
    world.release(waits);
    world.answer(&operator(), ask(Some(&default), None));
    assert!(world.c.state.partition("new").is_none());
    world.answer(&operator(), ask(None, Some(&first)));
    let same = Request::Reconfigure { config: Some(Box::new((*world.c.state.config).clone())) };
    world.answer(&operator(), same);
    assert!(world.c.state.partition("new").is_none(), "the configuration says nothing of it");
}

#[test]
fn awaiting_a_job() {
    let mut world = World::new();
    let (ended, runs, other) = (world.ended(ADA), world.running(ADA), world.array(BOB, 1));
    let outcome = Outcome { state: EndState::Completed, exit: ExitCode::OK, reason: None };
    let answer = world.answer(&user(ADA), Request::AwaitJob { job: ended });
    assert_eq!(answer, Answer::JobDone { job: ended, outcome });
    assert!(world.ask(&user(ADA), Request::AwaitJob { job: runs }).answers.is_empty());
    assert_eq!(world.refusal(&user(ADA), Request::AwaitJob { job: other }), Refusal::AccessDenied);
    assert_eq!(world.refusal(&user(ADA), Request::AwaitJob { job: JobId(99) }), Refusal::InvalidJobId);
}

/// faults.md E: keys of `scontrol update job` that were not known.
#[test]
fn e_more_of_a_job_is_updated() {
    let mut world = World::new();
    let id = world.submit(ADA, JobSpec::default());
    let deadline = world.now + squall_model::time::Span::from_secs(7200);
    let ask = update(id, |u| {
        (u.deadline, u.time_min_s, u.time_limit_s) = (Some(deadline), Some(60), Some(Some(3600)));
        (u.wckey, u.contiguous, u.cpus_min) = (Some("w".into()), Some(true), Some(2));
        (u.oversubscribe, u.stdin) = (Some((true, false)), Some("/in".into()));
        (u.extra, u.switches) = (Some(Some("e".into())), Some(network::switches("1")));
    });
    world.answer(&user(ADA), ask);
    let spec = &world.c.state.jobs[&id].spec;
    assert_eq!((spec.deadline, spec.time_min_s, spec.wckey.as_deref()), (Some(deadline), Some(60), Some("w")));
    assert_eq!((spec.need.contiguous, spec.need.cpus_min, spec.need.oversubscribe), (true, Some(2), true));
    let said = |world: &World| {
        let options = &world.c.state.jobs[&id].spec.options;
        (options.notes.extra.clone(), options.network.switches.is_some())
    };
    assert_eq!(said(&world), (Some("e".to_owned()), true));
    world.answer(&user(ADA), update(id, |u| u.switches = Some(None)));
    assert_eq!(said(&world), (Some("e".to_owned()), false));
    let admin = || update(id, |u| u.admin_comment = Some(Some("a".into())));
    assert_eq!(world.refusal(&user(ADA), admin()), Refusal::AccessDenied);
    world.answer(&operator(), admin());
    let reservation = world.refusal(&user(ADA), update(id, |u| u.reservation = Some(Some("nosuch".into()))));
    assert!(matches!(reservation, Refusal::ReservationInvalid(_)), "{reservation:?}");
    let licenses = update(id, |u| u.licenses = Some(Some("nosuch".into())));
    let gres = update(id, |u| u.gres = Some(Some("fpga:1".into())));
    for request in [licenses, gres] {
        let refusal = world.refusal(&user(ADA), request);
        assert!(matches!(refusal, Refusal::InvalidValue { .. }), "{refusal:?}");
    }
    assert_eq!(world.refusal(&user(ADA), update(id, |u| u.end = Some(deadline))), Refusal::NotRunning);
    world.start(id, 1, 1);
    world.answer(&operator(), update(id, |u| u.end = Some(deadline)));
    assert_eq!(world.c.state.jobs[&id].time_limit_s(), Some(Some(7200)));
}

#[test]
fn limits_on_memory_hold_for_updates_as_at_submission() {
    let mut world = World::new();
    let mut config = Config::clone(&world.c.state.config);
    config.partitions[0].max_mem_per_cpu_mb = 500;
    let few = PartitionConfig { name: "few".into(), nodes: "ALL".into(), ..PartitionConfig::default() };
    config.partitions.push(PartitionConfig { max_mem_per_node_mb: 1000, ..few });
    world.commit(Event::Configured { config: Arc::new(config) });
    let id = world.submit(ADA, JobSpec::default());
    let need = |world: &World| {
        let need = &world.c.state.jobs[&id].spec.need;
        (need.memory, need.cpus_per_task, need.cpus_min)
    };
    world.answer(&user(ADA), update(id, |u| u.name = Some("x".into())));
    assert_eq!(need(&world), (Memory::Unset, None, None), "other changes leave the memory alone");
    world.answer(&user(ADA), update(id, |u| u.memory = Some(Memory::PerCpuMb(900))));
    assert_eq!(need(&world), (Memory::PerCpuMb(450), Some(2), None), "more CPUs for more memory");
    world.answer(&operator(), update(id, |u| u.memory = Some(Memory::PerNodeMb(1400))));
    assert_eq!(need(&world), (Memory::PerNodeMb(1400), Some(2), Some(3)), "operators are no exception");
    let moved = update(id, |u| u.partition = Some("few".into()));
    let refusal = world.refusal(&user(ADA), moved);
    assert!(matches!(&refusal, Refusal::InvalidValue { option, .. } if option == "mem"), "{refusal:?}");
    let both = update(id, |u| (u.partition, u.memory) = (Some("few".into()), Some(Memory::PerCpuMb(300))));
    world.answer(&user(ADA), both);
    assert_eq!(need(&world), (Memory::PerCpuMb(300), Some(2), Some(3)));
    let wide = world.refusal(&user(ADA), update(id, |u| u.ntasks_per_node = Some(2)));
    assert!(matches!(&wide, Refusal::InvalidValue { option, .. } if option == "mem-per-cpu"), "{wide:?}");
}
