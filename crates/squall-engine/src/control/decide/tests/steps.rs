//! Steps: places, waiting for cores, retries, vanished clients, ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::event::Event;
use squall_model::id::{Attempt, ClientKey, JobId, NodeId, StepKey, StepNo};
use squall_model::job::options::AsGiven;
use squall_model::job::spread::Spread;
use squall_model::job::{EndState, ExitCode, JobSpec};
use squall_model::limits::STEP_BYTES_MAX;
use squall_model::set::CoreSet;
use squall_model::step::{Program, StepLaunch, StepSpec, TaskProgram};
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::node::{Down, EndReason};

use crate::control::decide::tests::{ADA, Turn, World, cancel, these, user};
use crate::control::effects::steps as desk;
use crate::control::index::desk::Desk;
use crate::control::port::{CallerId, Out};

fn exact() -> StepSpec {
    StepSpec { ntasks: Some(1), exact: true, ..StepSpec::default() }
}

fn create(job: JobId, spec: StepSpec, key: ClientKey) -> Request {
    let program = TaskProgram { umask: 0o22, ..TaskProgram::default() };
    Request::CreateStep { job, spec: Box::new(spec), program: Box::new(program), key }
}

fn job(world: &mut World, nodes: u32, cores: usize) -> JobId {
    let id = world.submit(ADA, JobSpec::default());
    world.start(id, nodes, cores);
    id
}

fn run(world: &mut World, job: JobId, spec: StepSpec) -> Turn {
    let key = world.key();
    world.ask(&user(ADA), create(job, spec, key))
}

fn launches(turn: &Turn) -> Vec<(NodeId, StepLaunch)> {
    let launch = |(node, message): &(NodeId, Down)| match message {
        Down::StartStep(start) => Some((*node, start.launch_on(*node)?)),
        _ => None,
    };
    turn.sends.iter().filter_map(launch).collect()
}

fn key(job: JobId, step: u32) -> StepKey {
    StepKey { job, attempt: Attempt(1), step: StepNo(step) }
}

fn created(turn: &Turn) -> Vec<(CallerId, u32)> {
    let step = |(caller, answer): &(CallerId, Answer)| match answer {
        Answer::StepCreated { step, .. } => Some((*caller, step.0)),
        _ => None,
    };
    turn.answers.iter().filter_map(step).collect()
}

fn done(turn: &Turn) -> Vec<(CallerId, u32)> {
    let step = |(caller, answer): &(CallerId, Answer)| match answer {
        Answer::StepDone { step, .. } => Some((*caller, step.0)),
        _ => None,
    };
    turn.answers.iter().filter_map(step).collect()
}

#[test]
fn a_step_over_two_nodes() {
    let mut world = World::new();
    let id = job(&mut world, 2, 4);
    let turn = run(&mut world, id, StepSpec { ntasks: Some(3), ..StepSpec::default() });
    let sent = launches(&turn);
    assert_eq!(sent.iter().map(|(node, _)| node.0).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((sent[0].1.ranks(), sent[1].1.ranks()), (vec![0, 1], vec![2]));
    assert_eq!((sent[0].1.node.as_str(), sent[1].1.node.as_str()), ("n1", "n2"));
    assert_eq!(sent.iter().map(|(_, l)| (l.node_index, l.job_node_index)).collect::<Vec<_>>(), [(0, 0), (1, 1)]);
    assert_eq!((sent[1].1.cores.len(), sent[1].1.memory_mb), (4, 1000));
    assert_eq!((sent[1].1.key, sent[1].1.facts.key), (key(id, 0), key(id, 0)));
    assert!(matches!(&sent[1].1.program, Program::Tasks(program) if program.umask == 0o22));
    assert!(matches!(&turn.answers[..], [(_, Answer::StepCreated { layout, .. })] if layout.ntasks() == 3));
    assert_eq!(done(&world.end_step_on(key(id, 0), NodeId(1), 0)), []);
    let last = world.end_step_on(key(id, 0), NodeId(0), 3);
    let Some((caller, Answer::StepDone { outcome, .. })) = last.answers.first() else { panic!("{last:?}") };
    assert_eq!((*caller, outcome.state, outcome.exit.code), (turn.caller, EndState::Failed, 3));
}

#[test]
fn tasks_are_packed_on_nodes_as_the_distribution_says() {
    for (packs, distribution, tasks) in [
        (false, "block", [3, 3]),
        (false, "block:cyclic,Pack", [4, 2]),
        (true, "block", [4, 2]),
        (true, "block,NoPack", [3, 3]),
    ] {
        let mut world = World::new();
        let mut config = (*world.c.state.config).clone();
        config.select_type_parameters.pack_nodes = packs;
        world.commit(Event::Configured { config: Arc::new(config) });
        let id = job(&mut world, 2, 4);
        let mut program = TaskProgram::default();
        program.options.distribution = AsGiven::of(distribution, Some(Spread::of(distribution)));
        let (spec, key) = (StepSpec { ntasks: Some(6), ..StepSpec::default() }, world.key());
        let request = Request::CreateStep { job: id, spec: Box::new(spec), program: Box::new(program), key };
        let turn = world.ask(&user(ADA), request);
        let sent = launches(&turn).into_iter().map(|(_, launch)| launch.ranks().len()).collect::<Vec<_>>();
        assert_eq!(sent, tasks, "{packs} {distribution}");
    }
}

#[test]
fn an_overlapping_step_may_use_all_cores_and_holds_none() {
    let mut world = World::new();
    let id = job(&mut world, 1, 4);
    run(&mut world, id, StepSpec { ntasks: Some(1), ..StepSpec::default() });
    let turn = run(&mut world, id, StepSpec { ntasks: Some(1), overlap: true, ..StepSpec::default() });
    assert_eq!(launches(&turn)[0].1.cores.len(), 4);
    let waits = run(&mut world, id, exact());
    assert_eq!(waits.answers, []);
    let turn = world.end_step_on(key(id, 0), NodeId(0), 0);
    assert_eq!(created(&turn), [(waits.caller, 2)], "the overlapping step is not in its way");
}

#[test]
fn what_never_fits_is_refused_and_what_does_not_fit_now_waits_or_is_busy() {
    let mut world = World::new();
    let id = job(&mut world, 1, 2);
    let key = world.key();
    let never = create(id, StepSpec { ntasks: Some(3), ..StepSpec::default() }, key);
    assert_eq!(world.refusal(&user(ADA), never), Refusal::TooManyRequested("processors".into()));
    run(&mut world, id, StepSpec::default());
    let key = world.key();
    let now = create(id, StepSpec { immediate: true, ..exact() }, key);
    assert_eq!(world.refusal(&user(ADA), now), Refusal::Busy);
    let waits = run(&mut world, id, exact());
    assert_eq!((waits.answers, waits.events), (vec![], vec![]));
    world.ask(&user(ADA), cancel(these(&[id])));
    let turn = world.settle(id);
    assert!(turn.answers.contains(&(waits.caller, Answer::Refused(Refusal::Revoked))));
    let key = world.key();
    assert_eq!(world.refusal(&user(ADA), create(id, exact(), key)), Refusal::AlreadyDone);
}

#[test]
fn what_would_not_fit_into_a_frame_to_a_node_is_refused() {
    let mut world = World::new();
    let id = job(&mut world, 1, 1);
    let program = TaskProgram { env: vec![0; STEP_BYTES_MAX].into(), ..TaskProgram::default() };
    let key = world.key();
    let request = Request::CreateStep { job: id, spec: Box::default(), program: Box::new(program), key };
    let turn = world.ask(&user(ADA), request);
    assert!(matches!(&turn.answers[..], [(_, Answer::Refused(Refusal::TooLarge(..)))]), "{:?}", turn.answers);
    assert!(turn.sends.is_empty());
}

#[test]
fn a_job_that_does_not_run_has_no_steps() {
    let mut world = World::new();
    let (waits, array) = (world.submit(ADA, JobSpec::default()), world.array(ADA, 5));
    for (id, refusal) in
        [(waits, Refusal::NotRunning), (JobId(array.0 + 2), Refusal::NotRunning), (JobId(99), Refusal::InvalidJobId)]
    {
        let key = world.key();
        assert_eq!(world.refusal(&user(ADA), create(id, exact(), key)), refusal);
    }
}

#[test]
fn five_hundred_steps_on_four_cores() {
    let mut world = World::new();
    let id = job(&mut world, 1, 4);
    let mut live: BTreeMap<u32, CoreSet> = BTreeMap::new();
    let (mut starts, mut ends) = (BTreeMap::new(), BTreeMap::new());
    let mut callers = Vec::new();
    let mut take = |turn: &Turn, live: &mut BTreeMap<u32, CoreSet>| {
        for (_, launch) in launches(turn) {
            assert_eq!(launch.cores.len(), 1);
            assert!(live.values().all(|held| held.is_disjoint(&launch.cores)), "cores are shared");
            live.insert(launch.key.step.0, launch.cores);
        }
        for (caller, _) in created(turn) {
            *starts.entry(caller).or_insert(0) += 1;
        }
        for (caller, _) in done(turn) {
            *ends.entry(caller).or_insert(0) += 1;
        }
    };
    for _ in 0..500 {
        let turn = run(&mut world, id, exact());
        callers.push(turn.caller);
        take(&turn, &mut live);
    }
    let mut dice = 1_u32;
    while !live.is_empty() {
        dice = dice.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let step = *live.keys().nth(dice as usize % live.len()).unwrap();
        live.remove(&step);
        let turn = world.end_step_on(key(id, step), NodeId(0), 0);
        take(&turn, &mut live);
    }
    assert!(callers.iter().all(|caller| starts.get(caller) == Some(&1) && ends.get(caller) == Some(&1)));
    assert_eq!(world.c.state.jobs[&id].run().unwrap().next_step, 500);
}

#[test]
fn requests_are_served_in_order() {
    let mut world = World::new();
    let id = job(&mut world, 1, 2);
    run(&mut world, id, StepSpec::default());
    let wide = run(&mut world, id, StepSpec { ntasks: Some(2), ..exact() });
    let narrow = run(&mut world, id, exact());
    let turn = world.end_step_on(key(id, 0), NodeId(0), 0);
    assert_eq!(created(&turn), [(wide.caller, 1)]);
    let turn = world.end_step_on(key(id, 1), NodeId(0), 0);
    assert_eq!(created(&turn), [(narrow.caller, 2)]);
}

#[test]
fn narrow_steps_that_keep_coming_do_not_starve_a_wide_one() {
    let mut world = World::new();
    let id = job(&mut world, 2, 2);
    let narrow: Vec<Turn> = (0..4).map(|_| run(&mut world, id, exact())).collect();
    assert!(narrow.iter().all(|turn| !created(turn).is_empty()));
    // All of the second node: a later step may have the first one only.
    let on_second = |ntasks| StepSpec {
        ntasks: Some(ntasks),
        nodelist: Some("n2".into()),
        nodes_min: Some(1),
        nodes_max: Some(1),
        ..exact()
    };
    let wide = run(&mut world, id, on_second(2));
    let behind: Vec<CallerId> = (0..3).map(|_| run(&mut world, id, exact()).caller).collect();
    assert_eq!(created(&world.end_step_on(key(id, 2), NodeId(1), 0)), [], "kept for the wide one");
    assert_eq!(created(&world.end_step_on(key(id, 0), NodeId(0), 0)), [(behind[0], 4)], "not in its way");
    assert_eq!(created(&run(&mut world, id, on_second(1))), [], "who comes last does not pass");
    assert_eq!(created(&world.end_step_on(key(id, 3), NodeId(1), 0)), [(wide.caller, 5)]);
    assert_eq!(created(&world.end_step_on(key(id, 5), NodeId(1), 0)).len(), 2);
}

#[test]
fn a_step_asked_for_from_within_a_step_is_not_held_up_by_who_waits_for_that_step() {
    let mut world = World::new();
    let id = job(&mut world, 1, 2);
    run(&mut world, id, exact());
    assert_eq!(created(&run(&mut world, id, StepSpec { ntasks: Some(2), ..exact() })), []);
    assert_eq!(created(&run(&mut world, id, exact())), []);
    let program = Box::new(TaskProgram { within: Some(StepNo(0)), ..TaskProgram::default() });
    let inner = Request::CreateStep { job: id, spec: Box::new(exact()), program, key: world.key() };
    assert_eq!(created(&world.ask(&user(ADA), inner)).len(), 1);
}

#[test]
fn the_same_key_is_the_same_step() {
    let mut world = World::new();
    let id = job(&mut world, 2, 1);
    let key_of = world.key();
    let spec = || StepSpec { ntasks: Some(2), ..StepSpec::default() };
    world.ask(&user(ADA), create(id, spec(), key_of));
    let again = world.ask(&user(ADA), create(id, spec(), key_of));
    assert_eq!((again.events.len(), created(&again)), (0, vec![(again.caller, 0)]));
    assert_eq!(launches(&again).len(), 2, "nodes that know it pass it over");
    world.end_step_on(key(id, 0), NodeId(0), 0);
    let again = world.ask(&user(ADA), create(id, spec(), key_of));
    assert_eq!(launches(&again).iter().map(|(node, _)| node.0).collect::<Vec<_>>(), [1]);
    let end = world.end_step_on(key(id, 0), NodeId(1), 0);
    assert_eq!(done(&end), [(again.caller, 0)], "told once, on the newest connection");
    let late = world.ask(&user(ADA), create(id, spec(), key_of));
    assert_eq!((launches(&late).len(), done(&late)), (0, vec![(late.caller, 0)]));
}

#[test]
fn a_waiting_request_follows_its_client_and_goes_with_it() {
    let mut world = World::new();
    let id = job(&mut world, 1, 1);
    run(&mut world, id, StepSpec::default());
    let key_of = world.key();
    let first = world.ask(&user(ADA), create(id, exact(), key_of));
    let second = world.ask(&user(ADA), create(id, exact(), key_of));
    hangup(&mut world, first.caller);
    let gone = run(&mut world, id, exact());
    hangup(&mut world, gone.caller);
    let turn = world.end_step_on(key(id, 0), NodeId(0), 0);
    assert_eq!(created(&turn), [(second.caller, 1)]);
    let turn = world.end_step_on(key(id, 1), NodeId(0), 0);
    assert_eq!(turn.events, [], "nobody waits any more");
}

fn hangup(world: &mut World, caller: CallerId) {
    desk::hangup(&mut world.c, world.now, caller, false);
}

fn timers(world: &mut World, later: Span) -> Turn {
    world.now = world.now + later;
    desk::timers(&mut world.c, world.now);
    world.turn(CallerId(0), Out::default())
}

#[test]
fn a_step_without_its_client_ends_after_a_grace() {
    let mut world = World::new();
    let id = job(&mut world, 1, 1);
    let turn = run(&mut world, id, StepSpec::default());
    hangup(&mut world, turn.caller);
    assert_eq!(timers(&mut world, Span::from_secs(5)).sends, []);
    let end = Down::EndStep { key: key(id, 0), kill_wait_s: 30, why: EndReason::Cancelled };
    assert_eq!(timers(&mut world, Span::from_secs(10)).sends, [(NodeId(0), end)]);
    assert_eq!(desk::deadline(&world.c), None);
}

#[test]
fn a_client_that_comes_back_in_time_keeps_its_step() {
    let mut world = World::new();
    let id = job(&mut world, 1, 1);
    let key_of = world.key();
    let turn = world.ask(&user(ADA), create(id, exact(), key_of));
    hangup(&mut world, turn.caller);
    world.ask(&user(ADA), create(id, exact(), key_of));
    assert_eq!(timers(&mut world, Span::from_secs(100)).sends, []);
}

#[test]
fn a_steps_own_time_limit() {
    let mut world = World::new();
    let id = job(&mut world, 1, 1);
    run(&mut world, id, StepSpec { time_limit_s: Some(60), ..StepSpec::default() });
    assert_eq!(desk::deadline(&world.c), Some(world.now + Span::from_secs(60)));
    let end = Down::EndStep { key: key(id, 0), kill_wait_s: 30, why: EndReason::TimeLimit };
    assert_eq!(timers(&mut world, Span::from_secs(60)).sends, [(NodeId(0), end)]);
}

#[test]
fn cancelling_a_step_leaves_the_job() {
    let mut world = World::new();
    let id = job(&mut world, 1, 1);
    run(&mut world, id, StepSpec::default());
    let ask = |step| Request::Cancel { jobs: these(&[id]), signal: None, step: Some(StepNo(step)), verbose: true };
    let turn = world.ask(&user(ADA), ask(0));
    assert!(matches!(&turn.sends[..], [(_, Down::EndStep { why: EndReason::Cancelled, .. })]));
    assert!(world.c.state.jobs[&id].is_running());
    assert_eq!(world.refusal(&user(ADA), ask(7)), Refusal::InvalidStepId);
    world.end_step_on(key(id, 0), NodeId(0), 0);
    assert_eq!(world.refusal(&user(ADA), ask(0)), Refusal::AlreadyDone);
}

fn registered(world: &mut World, node: u32, known: &[StepKey]) -> Turn {
    desk::registered(&mut world.c, NodeId(node), known);
    world.turn(CallerId(0), Out::default())
}

#[test]
fn a_node_that_comes_back_is_told_what_it_missed() {
    let mut world = World::new();
    let id = job(&mut world, 1, 2);
    run(&mut world, id, exact());
    run(&mut world, id, exact());
    assert_eq!(registered(&mut world, 0, &[key(id, 0), key(id, 1)]).sends, []);
    let turn = registered(&mut world, 0, &[key(id, 1)]);
    assert_eq!(launches(&turn).iter().map(|(_, launch)| launch.key).collect::<Vec<_>>(), [key(id, 0)]);
    world.ask(&user(ADA), Request::Cancel { jobs: these(&[id]), signal: None, step: Some(StepNo(0)), verbose: true });
    let turn = registered(&mut world, 0, &[key(id, 1)]);
    assert!(matches!(&turn.sends[..], [(_, Down::EndStep { key: k, .. })] if *k == key(id, 0)));
    world.end_step_on(key(id, 0), NodeId(0), 0);
    let turn = registered(&mut world, 0, &[key(id, 0), key(id, 1)]);
    assert!(matches!(&turn.sends[..], [(_, Down::EndStep { key: k, kill_wait_s: 0, .. })] if *k == key(id, 0)));
}

#[test]
fn after_a_restart_the_client_brings_the_program_again_or_the_step_ends() {
    let mut world = World::new();
    let id = job(&mut world, 1, 2);
    let (back, gone) = (world.key(), world.key());
    world.ask(&user(ADA), create(id, exact(), back));
    world.ask(&user(ADA), create(id, exact(), gone));
    world.c.steps = Desk::default();
    let jobs: Vec<JobId> = world.c.state.jobs.keys().copied().collect();
    desk::started(&mut world.c, world.now, jobs.into_iter());
    assert_eq!(registered(&mut world, 0, &[]).sends, [], "nothing to send before the program is back");
    let turn = world.ask(&user(ADA), create(id, exact(), back));
    assert_eq!((created(&turn), launches(&turn).len()), (vec![(turn.caller, 0)], 1));
    let turn = timers(&mut world, Span::from_secs(60));
    assert!(matches!(&turn.sends[..], [(_, Down::EndStep { key: k, .. })] if *k == key(id, 1)));
}

#[test]
fn the_end_of_the_job_is_the_end_of_its_steps() {
    let mut world = World::new();
    let id = job(&mut world, 1, 1);
    let turn = run(&mut world, id, StepSpec::default());
    world.ask(&user(ADA), cancel(these(&[id])));
    assert_eq!(done(&world.settle(id)), [], "its processes may still run");
    world.release(id);
    assert_eq!(done(&world.settle(id)), [(turn.caller, 0)]);
}

#[test]
fn a_step_that_ends_by_a_signal_with_its_job_was_cancelled() {
    let mut world = World::new();
    let id = job(&mut world, 1, 2);
    let (early, late) = (run(&mut world, id, exact()), run(&mut world, id, exact()));
    let killed = ExitCode { code: 0, signal: 15 };
    let of = |turn: &Turn, caller| match turn.answers.iter().find(|(to, _)| *to == caller) {
        Some((_, Answer::StepDone { outcome, .. })) => (outcome.state, outcome.exit),
        other => panic!("{other:?}"),
    };
    let turn = world.end_step_with(key(id, 0), NodeId(0), killed);
    assert_eq!(of(&turn, early.caller), (EndState::Cancelled { by: EndState::NOBODY }, killed), "by itself");
    world.ask(&user(ADA), cancel(these(&[id])));
    let turn = world.end_step_with(key(id, 1), NodeId(0), killed);
    assert_eq!(of(&turn, late.caller), (EndState::Cancelled { by: ADA }, killed));
}

#[test]
fn steps_wait_while_the_job_is_suspended() {
    let mut world = World::new();
    let id = job(&mut world, 1, 1);
    world.commit(Event::JobSuspended { id, suspended: true });
    let turn = run(&mut world, id, exact());
    assert_eq!(turn.answers, []);
    world.settle(id);
    world.commit(Event::JobSuspended { id, suspended: false });
    assert_eq!(created(&world.settle(id)), [(turn.caller, 0)]);
}

#[test]
fn the_clock_may_stand_still() {
    let mut world = World::new();
    world.now = Time(0);
    let id = job(&mut world, 1, 1);
    run(&mut world, id, StepSpec { time_limit_s: Some(0), ..StepSpec::default() });
    assert!(matches!(&timers(&mut world, Span(0)).sends[..], [(_, Down::EndStep { .. })]));
}
