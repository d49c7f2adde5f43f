//! Tests of programs around jobs and on the node.

use squall_model::config::{Config, HealthConfig, Hooks};
use squall_model::id::{StepKey, StepNo};
use squall_model::job::JobAttempt;
use squall_model::report::Report;
use squall_model::time::{Span, Time};
use squall_model::wire::hook::{Hook, NodeNote};
use squall_model::wire::node::Down;

use super::{World, key, start_step};
use crate::node::disk::end;
use crate::node::{NodeAct, NodeInput, attempt_of};

/// Returns a world with the given hooks and checks, as the text of a configuration.
fn world(text: &str) -> World {
    let config = Config::from_toml(text).expect("the configuration is right");
    let mut world = World::new();
    world.disk.programs = (config.hooks, config.health);
    world.boot();
    world
}

const BOTH: &str = "[hooks]\nprolog = \"/p\"\nepilog = \"/e\"\n";

impl World {
    fn hook_ends(&mut self, hook: Hook, job: Option<JobAttempt>, error: Option<&str>) {
        let input = self.disk.end_hook(hook, job, error.map(str::to_owned));
        self.inputs.extend([input]);
        self.run();
    }

    fn ran(&self, hook: Hook) -> usize {
        self.disk.hooks.iter().filter(|(of, _)| *of == hook).count()
    }

    fn has_started(&self, key: StepKey) -> bool {
        self.disk.started.contains_key(&key)
    }
}

fn script(job: u32) -> (StepKey, Option<JobAttempt>) {
    let key = key(job, StepNo::BATCH);
    (key, Some(attempt_of(key)))
}

#[test]
fn without_hooks_there_is_nothing_more() {
    let mut plain = World::new();
    plain.start(1, 1);
    plain.run();
    assert!(plain.acts.iter().any(|act| matches!(act, NodeAct::OpenJob { batch: true, .. })));
    plain.finish(script(1).0, end(0));
    plain.run();
    assert!(plain.gone.contains(&attempt_of(script(1).0)));
    assert!(plain.disk.hooks.is_empty() && plain.notes.is_empty());
    assert_eq!((Hooks::default().on_nodes(), HealthConfig::default().program.as_str()), (false, ""));
}

#[test]
fn a_script_waits_for_its_prolog_and_its_end_for_the_epilog() {
    let mut world = world(BOTH);
    let (key, job) = script(1);
    world.start(1, 1);
    world.run();
    assert_eq!((world.ran(Hook::Prolog), world.has_started(key)), (1, false));
    world.hook_ends(Hook::Prolog, job, None);
    assert!(world.has_started(key) && world.is_live(key));
    world.finish(key, end(3));
    world.run();
    assert_eq!((world.ran(Hook::Epilog), world.gone.is_empty()), (1, true));
    // The end of the script is reported although the epilog goes on.
    world.tick(Span::from_secs(2));
    assert_eq!(world.ended.get(&key).map(Vec::len), Some(1));
    assert!(world.gone.is_empty());
    world.hook_ends(Hook::Epilog, job, None);
    assert!(world.gone.contains(&attempt_of(key)) && world.notes.is_empty());
    assert_eq!(world.disk.passed.len(), 0, "what was noted of the job is forgotten with it");
}

#[test]
fn a_restart_repeats_no_prolog_that_ended_and_forgets_no_epilog() {
    let mut world = world(BOTH);
    let (key, job) = script(1);
    world.start(1, 1);
    world.run();
    world.hook_ends(Hook::Prolog, job, None);
    world.boot();
    assert_eq!(world.ran(Hook::Prolog), 1);
    world.finish(key, end(0));
    world.run();
    assert_eq!(world.ran(Hook::Epilog), 1);
    // The daemon dies while the epilog runs.
    world.boot();
    assert_eq!((world.ran(Hook::Epilog), world.gone.is_empty()), (2, true));
    world.mute = true;
    world.hook_ends(Hook::Epilog, job, Some("exit code 1"));
    // It dies before the controller knows.
    world.mute = false;
    world.boot();
    assert_eq!(world.ran(Hook::Epilog), 2);
    assert!(world.gone.contains(&attempt_of(key)));
}

#[test]
fn a_job_without_a_mark_repeats_no_prolog_that_ended() {
    let mut world = world(BOTH);
    let (key, job) = script(1);
    world.disk.passed.insert((attempt_of(key), Hook::Prolog));
    world.boot();
    // The spool was full when the job came first, so the daemon knows its prolog only.
    world.start(1, 1);
    world.run();
    assert_eq!((world.ran(Hook::Prolog), world.disk.started[&key]), (0, 1));
    world.finish(key, end(0));
    world.run();
    world.hook_ends(Hook::Epilog, job, None);
    assert!(world.gone.contains(&attempt_of(key)));
    // The next job has a prolog of its own.
    world.start(2, 1);
    world.run();
    assert_eq!(world.ran(Hook::Prolog), 1);
}

#[test]
fn a_prolog_that_was_cut_off_runs_again() {
    let mut world = world(BOTH);
    let (key, job) = script(1);
    world.start(1, 1);
    world.run();
    world.boot();
    assert_eq!((world.ran(Hook::Prolog), world.has_started(key)), (2, false));
    world.hook_ends(Hook::Prolog, job, None);
    assert_eq!(world.disk.started[&key], 1);
}

#[test]
fn a_prolog_that_fails_is_reported_and_nothing_of_the_job_starts() {
    let mut world = world(BOTH);
    let (key, job) = script(1);
    world.start(1, 2);
    world.run();
    world.hook_ends(Hook::Prolog, job, Some("exit code 1"));
    let error = Some("exit code 1".to_owned());
    assert_eq!(world.notes, [NodeNote::Prolog { job: attempt_of(key), error }]);
    let step = StepKey { step: StepNo(0), ..key };
    world.send(vec![start_step(step, 2)]);
    world.run();
    assert!(matches!(world.ended[&step][..], [Report::LaunchFailed { node_fault: true, .. }]));
    world.end(1, 0);
    world.run();
    assert!(!world.has_started(key) && world.ended.contains_key(&key));
    world.hook_ends(Hook::Epilog, job, Some("exit code 2"));
    assert!(world.gone.contains(&attempt_of(key)));
    let ended = NodeNote::Epilog { job: attempt_of(key), error: "exit code 2".into() };
    // A note is repeated until the controller knows that the job is gone.
    let (last, before) = world.notes.split_last().unwrap();
    assert_eq!(*last, ended);
    assert!(before.iter().all(|note| matches!(note, NodeNote::Prolog { .. })), "{before:?}");
}

#[test]
fn a_report_about_a_program_is_repeated_until_the_job_is_known_to_be_gone() {
    let mut world = world(BOTH);
    let (_, job) = script(1);
    world.start(1, 1);
    world.run();
    world.mute = true;
    world.hook_ends(Hook::Prolog, job, Some("exit code 1"));
    world.restart_controller();
    world.mute = false;
    world.unheard.clear();
    world.run();
    assert_eq!(world.notes.len(), 1);
    world.end(1, 0);
    world.run();
    world.hook_ends(Hook::Epilog, job, None);
    let said = world.notes.len();
    world.restart_controller();
    world.run();
    assert_eq!(world.notes.len(), said);
}

#[test]
fn a_program_beyond_its_time_limit_is_killed() {
    let mut world = world("[hooks]\nepilog = \"/e\"\nepilog_timeout_s = 5\n");
    let (key, _) = script(1);
    world.start(1, 1);
    world.run();
    world.finish(key, end(0));
    world.run();
    world.tick(Span::from_secs(4));
    assert!(world.gone.is_empty());
    world.tick(Span::from_secs(2));
    assert!(world.gone.contains(&attempt_of(key)));
    assert!(matches!(&world.notes[..], [NodeNote::Epilog { error, .. }] if error.contains("time limit")));
}

#[test]
fn a_job_that_ends_during_its_prolog_waits_for_it() {
    let mut world = world(BOTH);
    let (key, job) = script(1);
    world.start(1, 1);
    world.run();
    world.end(1, 30);
    world.run();
    assert_eq!(world.ended.get(&key).map(Vec::len), Some(1));
    assert!(!world.acts.contains(&NodeAct::Sweep { job: attempt_of(key) }));
    world.hook_ends(Hook::Prolog, job, None);
    assert!(!world.has_started(key));
    world.hook_ends(Hook::Epilog, job, None);
    assert!(world.gone.contains(&attempt_of(key)));
}

#[test]
fn with_alloc_the_prolog_runs_at_once_and_with_serial_one_at_a_time() {
    let mut world = world(&format!("{BOTH}prolog_flags = \"Alloc,Serial\"\n"));
    world.start(1, 2);
    world.start(2, 2);
    world.run();
    assert_eq!(world.disk.hooks, [(Hook::Prolog, script(1).1)]);
    world.hook_ends(Hook::Prolog, script(1).1, None);
    assert_eq!(world.ran(Hook::Prolog), 2);
}

#[test]
fn in_the_job_the_epilog_comes_before_the_remaining_processes_are_killed() {
    let mut world = world("[hooks]\nepilog = \"/e\"\nprolog_flags = \"RunInJob\"\n");
    let (key, job) = script(1);
    world.start(1, 1);
    world.run();
    world.finish(key, end(0));
    world.run();
    assert_eq!(world.ran(Hook::Epilog), 1);
    assert!(!world.acts.contains(&NodeAct::Sweep { job: attempt_of(key) }));
    world.hook_ends(Hook::Epilog, job, None);
    assert!(world.gone.contains(&attempt_of(key)));
}

#[test]
fn checks_follow_their_interval_and_the_states_of_the_node() {
    let mut world = world("[health]\nprogram = \"/c\"\ninterval_s = 60\nnode_state = \"IDLE\"\n");
    assert_eq!(world.ran(Hook::Health), 1);
    world.hook_ends(Hook::Health, None, Some("disk is full"));
    world.tick(Span::from_secs(59));
    assert_eq!(world.ran(Hook::Health), 1);
    world.tick(Span::from_secs(2));
    assert_eq!(world.ran(Hook::Health), 2);
    world.hook_ends(Hook::Health, None, None);
    let errors = [Some("disk is full".to_owned()), None].map(|error| NodeNote::Health { error });
    assert_eq!(world.notes, errors);
    world.start(1, 1);
    world.run();
    world.tick(Span::from_secs(120));
    assert_eq!(world.ran(Hook::Health), 2, "it is not idle");
}

#[test]
fn after_a_fault_the_check_runs_until_it_passes() {
    let mut world = world("[health]\nafter_fault = \"/c\"\n");
    let ordered = |world: &mut World, at| world.order(Down::Check { fault: Time(at) });
    ordered(&mut world, 1);
    assert_eq!(world.ran(Hook::AfterFault), 1);
    // Another fault meanwhile, and the order comes twice.
    ordered(&mut world, 2);
    ordered(&mut world, 2);
    assert_eq!(world.ran(Hook::AfterFault), 1);
    world.hook_ends(Hook::AfterFault, None, None);
    assert_eq!(world.ran(Hook::AfterFault), 2);
    world.hook_ends(Hook::AfterFault, None, Some("fan"));
    world.tick(Span::from_secs(59));
    assert_eq!(world.ran(Hook::AfterFault), 2);
    world.tick(Span::from_secs(2));
    assert_eq!(world.ran(Hook::AfterFault), 3);
    world.hook_ends(Hook::AfterFault, None, None);
    world.tick(Span::from_secs(200));
    assert_eq!(world.ran(Hook::AfterFault), 3);
    let said = [(1, None), (2, Some("fan")), (2, None)];
    let said = said.map(|(at, error)| NodeNote::AfterFault { fault: Time(at), error: error.map(str::to_owned) });
    assert_eq!(world.notes, said);
}

#[test]
fn processes_that_can_not_be_killed_are_reported() {
    let mut world = world("[health]\nunkillable_step_program = \"/u\"\nunkillable_step_timeout_s = 20\n");
    let (key, job) = script(1);
    world.disk.slow_sweep = true;
    world.start(1, 1);
    world.run();
    world.finish(key, end(0));
    world.run();
    world.tick(Span::from_secs(19));
    assert!(world.notes.is_empty());
    world.tick(Span::from_secs(2));
    assert_eq!(world.notes, [NodeNote::Unkillable { job: attempt_of(key) }]);
    assert_eq!(world.disk.hooks, [(Hook::Unkillable, job)]);
    world.inputs.push_back(NodeInput::Swept { job: attempt_of(key) });
    world.run();
    assert!(world.gone.contains(&attempt_of(key)));
}
