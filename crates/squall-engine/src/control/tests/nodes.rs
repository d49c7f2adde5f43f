//! Nodes that restart, reboot, fall silent and come back: no attempt twice, nothing lost, nothing double-booked.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::config::{Aggregation, Config, NodeConfig, NodeLostAction};
use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{NodeId, StepKey, StepNo};
use squall_model::job::{EndState, JobSpec, JobState, Need};
use squall_model::report::Report;
use squall_model::set::NodeSet;
use squall_model::time::Span;
use squall_model::wire::client::{Answer, Request};
use squall_model::wire::fabric::{Composite, Downward, Window};
use squall_model::wire::node::Registration;

use crate::control::port::{CallerId, Input, LinkId, Out};
use crate::control::tests::driver::{Driver, batch, these};
use crate::fabric::child::Child;
use crate::machine::Machine;

#[test]
fn a_node_daemon_that_restarts_keeps_its_jobs() {
    let mut d = Driver::new(1, 2);
    let job = d.submit(batch());
    d.launched();
    let attempt = d.attempt(job);
    d.register("n1", &[attempt]);
    assert_eq!((d.launched(), d.ended()), (vec![], vec![]));
    d.finish(job, 0);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Completed)));
}

#[test]
fn a_start_that_the_node_never_heard_is_sent_again() {
    let mut d = Driver::new(1, 2);
    let job = d.submit(batch());
    let first = d.launched();
    d.restart();
    assert_eq!(d.launched(), [], "the node has not registered");
    d.register("n1", &[]);
    assert_eq!(d.launched(), first, "the same attempt");
    assert_eq!(d.attempt(job).attempt.0, 1);
}

#[test]
fn an_end_that_the_node_never_heard_is_sent_again() {
    let mut d = Driver::new(1, 2);
    let job = d.submit(batch());
    let attempt = d.attempt(job);
    d.cancel(job);
    assert_eq!(d.ended(), [(attempt, "n1".to_owned())]);
    d.restart();
    d.register("n1", &[attempt]);
    assert_eq!(d.ended(), [(attempt, "n1".to_owned())]);
    d.report("n1", &[Report::JobGone { job: attempt }]);
    assert!(matches!(d.state_of(job), Some(JobState::Ended(EndState::Cancelled { .. }))));
}

#[test]
fn a_reboot_is_the_proof_of_death() {
    let mut d = Driver::new(1, 2);
    let again = d.submit(batch());
    let once = d.submit(JobSpec { requeue: Some(false), ..batch() });
    d.launched();
    d.reboot("n1");
    assert_eq!(d.state_of(once), Some(JobState::Ended(EndState::NodeFail)));
    assert_eq!(d.state_of(again), Some(JobState::Running));
    let attempt = d.attempt(again);
    assert_eq!((attempt.attempt.0, d.launched()), (2, vec![(attempt, "n1".to_owned())]));
    // What the first life had to say comes too late.
    let key = StepKey { job: again, attempt: squall_model::id::Attempt(1), step: StepNo::BATCH };
    let end = d.end(0);
    d.report("n1", &[Report::StepEnded { key, end }]);
    assert_eq!(d.state_of(again), Some(JobState::Running));
}

/// faults.md A11: `scancel` of what was launched only now is answered when the node has heard of it, or is silent for too
/// long.
#[test]
fn a11_scancel_is_answered_when_the_node_has_heard_of_it() {
    let mut d = Driver::new(1, 3);
    let cancel = |id| Request::Cancel { jobs: these(id), signal: None, step: None, verbose: true };
    let (heard, silent, old) = (d.submit(batch()), d.submit(batch()), d.submit(batch()));
    assert_eq!(d.ask(1, 0, cancel(heard)), []);
    d.answer();
    assert_eq!(d.take_answers(CallerId(1)).len(), 1);
    assert_eq!(d.ask(2, 0, cancel(silent)), []);
    d.pass_in_silence(1);
    assert_eq!(d.take_answers(CallerId(2)), []);
    d.pass_in_silence(2);
    assert_eq!(d.take_answers(CallerId(2)).len(), 1, "a silent node does not hold it for ever");
    let waiting = d.submit(JobSpec { hold: true, ..batch() });
    assert_eq!(d.ask(3, 0, cancel(waiting)).len(), 1, "it began nowhere");
    d.answer();
    d.pass(60);
    assert_eq!(d.ask(4, 0, cancel(old)).len(), 1, "it has begun long ago");
}

/// trial-reliability.md N6: the restart counter of a job does not count attempts in which the script never began.
#[test]
fn n6_a_job_that_never_began_was_not_restarted() {
    let mut d = Driver::new(1, 2);
    let (began, never) = (d.submit(batch()), d.submit(batch()));
    let unstarted = d.attempt(never);
    d.reboot_knowing("n1", &[unstarted]);
    for (id, restarts) in [(began, 1), (never, 0)] {
        assert_eq!((d.state_of(id), d.attempt(id).attempt.0), (Some(JobState::Running), 2));
        assert_eq!(d.c.state().jobs[&id].restarts, restarts);
    }
}

#[test]
fn silence_is_not_death_until_patience_ends() {
    let mut d = Driver::empty(Config { node_lost_action: NodeLostAction::Requeue, ..Config::default() });
    (1..=2).for_each(|n| d.add_node(&format!("n{n}"), 2));
    let job = d.submit(batch());
    let old = d.attempt(job);
    d.launched();
    d.lose("n1");
    d.pass_in_silence(59);
    assert!(d.c.state().nodes[0].up);
    d.pass_in_silence(2);
    assert!(!d.c.state().nodes[0].up);
    d.pass_in_silence(230);
    assert_eq!((d.state_of(job), d.attempt(job)), (Some(JobState::Running), old));
    d.pass_in_silence(20);
    assert_eq!(d.state_of(job), Some(JobState::Pending), "the other node fell silent meanwhile");
    d.register("n2", &[]);
    let new = d.attempt(job);
    assert_eq!(new.attempt.0, 2);
    assert_eq!(d.launched(), [(new, "n2".to_owned())]);
    // The lost node comes back and still has it: it ends it, and gets nothing before it has.
    d.register("n1", &[old]);
    assert_eq!(d.ended(), [(old, "n1".to_owned())]);
    let wide = JobSpec { need: Need { nodelist: Some("n1".into()), ..Need::default() }, ..batch() };
    let next = d.submit(wide);
    assert_eq!(d.state_of(next), Some(JobState::Pending));
    d.report("n1", &[Report::JobGone { job: old }]);
    assert_eq!(d.state_of(next), Some(JobState::Running));
    assert_eq!((d.state_of(job), d.attempt(job)), (Some(JobState::Running), new));
}

#[test]
fn a2_jobs_of_a_silent_node_wait_for_proof_that_they_are_dead() {
    let mut d = Driver::new(2, 1);
    let once = d.submit(JobSpec { requeue: Some(false), ..batch() });
    let again = d.submit(batch());
    let placed = d.launched();
    assert_eq!(placed.len(), 2);
    d.pass_in_silence(100_000);
    for job in [once, again] {
        assert_eq!((d.state_of(job), d.attempt(job).attempt.0), (Some(JobState::Running), 1));
    }
    let why = d.c.state().nodes[0].reason.as_ref().expect("it is down").text.clone();
    assert!(why.contains("jobs wait until it answers"), "{why}");
    // The node that comes back brings the end of its job.
    let (first, second) = (d.attempt(once), d.attempt(again));
    d.register("n1", &[first]);
    d.finish(once, 0);
    assert_eq!(d.state_of(once), Some(JobState::Ended(EndState::Completed)));
    // The other one is dead, as the operator says: that is enough.
    let down = Event::NodesSet { nodes: NodeSet::one(NodeId(1)), admin: NodeAdmin::Down, reason: None, by: 0 };
    d.commit(down);
    assert_eq!((d.state_of(again), d.attempt(again).attempt.0), (Some(JobState::Running), 2));
    d.register("n2", &[second]);
    assert_eq!(d.ended(), [(second, "n2".to_owned())], "it is told to end what it has still");
}

#[test]
fn a2_a_node_that_was_set_down_has_its_timeout_to_let_go() {
    let mut d = Driver::new(2, 1);
    let job = d.submit(batch());
    d.commit(Event::NodesSet { nodes: NodeSet::one(NodeId(0)), admin: NodeAdmin::Down, reason: None, by: 0 });
    assert_eq!(d.state_of(job), Some(JobState::Completing(EndState::NodeFail)), "it answers: it runs there");
    d.lose("n1");
    d.pass(61);
    assert_eq!(d.state_of(job), Some(JobState::Running), "the operator's word and its silence are enough");
    assert_eq!(d.attempt(job).attempt.0, 2);
}

/// faults.md P9: a controller that was stopped takes nobody's silence in that time for death.
#[test]
fn p9_a_controller_that_did_not_run_doubts_itself_first() {
    let (node_timeout_s, node_lost_s, node_lost_action) = (30, 30, NodeLostAction::Requeue);
    let mut d = Driver::empty(Config { node_timeout_s, node_lost_s, node_lost_action, ..Config::default() });
    (1..=2).for_each(|n| d.add_node(&format!("n{n}"), 1));
    let jobs = [d.submit(batch()), d.submit(batch())];
    let all_up = |d: &Driver| d.c.state().nodes.iter().all(|node| node.up);
    for away in [9, 29, 31, 400, 100_000] {
        d.pass(15);
        d.now = d.now + Span::from_secs(away);
        d.step(Input::Tick);
        assert!(all_up(&d), "after {away} s");
        // What the nodes have sent meanwhile may still be on its way to the controller's ears.
        let end = d.now + Span::from_secs(10);
        while let Some(at) = d.c.deadline().filter(|at| *at < end) {
            d.now = at;
            d.step(Input::Tick);
        }
        assert!(all_up(&d) && d.c.is_connected(NodeId(0)) && d.c.is_connected(NodeId(1)), "after {away} s");
        d.answer();
    }
    for job in jobs {
        assert_eq!((d.state_of(job), d.attempt(job).attempt.0), (Some(JobState::Running), 1));
    }
    d.pass_in_silence(50);
    assert!(d.c.state().nodes.iter().all(|node| !node.up), "who stays silent is down");
}

#[test]
fn silence_is_seen_within_a_small_timeout_and_a_slow_daemon_is_not_silent() {
    let mut d = Driver::empty(Config { node_timeout_s: 6, ..Config::default() });
    (1..=2).for_each(|n| d.add_node(&format!("n{n}"), 1));
    let up = |d: &Driver| [0, 1].map(|n| d.c.state().nodes[n].up && d.c.is_connected(NodeId(n as u32)));
    // The controller asks every 2 s, and gets all answers just before it asks again.
    for _ in 0..30 {
        let end = d.now + Span::from_millis(1900);
        while let Some(at) = d.c.deadline().filter(|at| *at < end) {
            d.now = at;
            d.step(Input::Tick);
        }
        d.now = end;
        d.answer();
        d.now = end + Span::from_millis(100);
        d.step(Input::Tick);
        assert_eq!(up(&d), [true, true]);
    }
    d.answer();
    d.pass_in_silence(5);
    assert!(d.c.state().nodes.iter().all(|node| node.up) && !d.c.is_connected(NodeId(0)), "shown as silent");
    d.pass_in_silence(2);
    assert!(d.c.state().nodes.iter().all(|node| !node.up));
}

#[test]
fn a_node_has_its_whole_time_from_when_it_was_heard_of_last() {
    let mut d = Driver::new(2, 2);
    d.pass(75);
    d.lose("n1");
    d.pass_in_silence(54);
    assert!(d.c.state().nodes[0].up, "it was heard of less than a minute ago");
    d.pass_in_silence(10);
    assert!(!d.c.state().nodes[0].up);
}

#[test]
fn a_job_on_two_nodes_ends_when_both_have_let_go() {
    let mut d = Driver::new(2, 2);
    let job = d.submit(JobSpec { need: Need { nodes_min: Some(2), ..Need::default() }, ..batch() });
    assert_eq!(d.launched().len(), 1, "one script");
    let attempt = d.attempt(job);
    let key = StepKey { job, attempt: attempt.attempt, step: StepNo::BATCH };
    let end = d.end(0);
    d.report("n1", &[Report::StepEnded { key, end }]);
    assert_eq!(d.state_of(job), Some(JobState::Completing(EndState::Completed)));
    assert_eq!(d.ended().len(), 2);
    d.report("n2", &[Report::JobGone { job: attempt }]);
    assert_eq!(d.state_of(job), Some(JobState::Completing(EndState::Completed)));
    d.report("n1", &[Report::JobGone { job: attempt }]);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Completed)));
}

#[test]
fn a3_an_end_by_itself_wins_over_requeue_and_down() {
    let told = |d: &Driver, told| {
        let mut end = d.end(0);
        if told {
            end.note_told();
        }
        end
    };
    let ask = |d: &mut Driver, job, down| {
        let requeue = Request::Requeue { jobs: these(job), hold: true, from: None, special: None };
        d.ask(9, 0, if down { Request::ShutDown { keep_jobs: false } } else { requeue });
        assert_eq!(d.state_of(job), Some(JobState::Completing(EndState::Requeued)));
    };
    for (down, was_told) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut d = Driver::new(1, 1);
        let job = d.submit(batch());
        ask(&mut d, job, down);
        let attempt = d.attempt(job);
        let key = StepKey { job, attempt: attempt.attempt, step: StepNo::BATCH };
        let end = told(&d, was_told);
        d.report("n1", &[Report::StepEnded { key, end }, Report::JobGone { job: attempt }]);
        let then = if was_told { JobState::Pending } else { JobState::Ended(EndState::Completed) };
        assert_eq!(d.state_of(job), Some(then), "down: {down}, told to end: {was_told}");
    }
    // One that requeues itself runs again however its script ends.
    let mut d = Driver::new(1, 1);
    let job = d.submit(batch());
    d.ask(9, 0, Request::Requeue { jobs: these(job), hold: true, from: Some(job), special: None });
    let attempt = d.attempt(job);
    let key = StepKey { job, attempt: attempt.attempt, step: StepNo::BATCH };
    let end = told(&d, false);
    d.report("n1", &[Report::StepEnded { key, end }, Report::JobGone { job: attempt }]);
    assert_eq!(d.state_of(job), Some(JobState::Pending));
}

#[test]
fn a_node_fault_is_tried_elsewhere_and_never_strands_the_job() {
    let mut d = Driver::new(2, 1);
    let job = d.submit(batch());
    let mut nodes = Vec::new();
    for round in 0..10 {
        let launched = d.launched();
        let [(attempt, node)] = &launched[..] else { panic!("round {round}: {launched:?}") };
        nodes.push(node.clone());
        let key = StepKey { job, attempt: attempt.attempt, step: StepNo::BATCH };
        let failed = Report::LaunchFailed { key, error: "spool full".into(), node_fault: true };
        d.report(node, &[failed, Report::JobGone { job: *attempt }]);
        assert_eq!(d.state_of(job), Some(JobState::Pending));
        d.pass(70);
    }
    assert_eq!(nodes[..2], ["n1", "n2"]);
    assert_eq!(d.state_of(job), Some(JobState::Running));
}

#[test]
fn nothing_starts_on_a_full_disk_and_all_goes_on_afterwards() {
    let mut d = Driver::new(1, 1);
    let (runs, waits) = (d.submit(batch()), d.submit(batch()));
    d.step(Input::Disk { full: true });
    d.finish(runs, 0);
    assert_eq!(d.state_of(runs), Some(JobState::Ended(EndState::Completed)));
    assert_eq!(d.state_of(waits), Some(JobState::Pending));
    d.step(Input::Disk { full: false });
    assert_eq!(d.state_of(waits), Some(JobState::Running));
}

#[test]
fn a_fault_of_the_job_itself_is_its_end() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(batch());
    let attempt = d.attempt(job);
    let key = StepKey { job, attempt: attempt.attempt, step: StepNo::BATCH };
    let failed = Report::LaunchFailed { key, error: "no such directory".into(), node_fault: false };
    d.report("n1", &[failed, Report::JobGone { job: attempt }]);
    assert_eq!(d.state_of(job), Some(JobState::Ended(EndState::Failed)));
}

#[test]
fn a_job_that_may_lose_nodes_goes_on_without_them() {
    for (no_kill, then) in [(true, JobState::Running), (false, JobState::Completing(EndState::NodeFail))] {
        let mut d = Driver::new(2, 1);
        let need = Need { nodes_min: Some(2), ..Need::default() };
        let job = d.submit(JobSpec { need, no_kill, requeue: Some(false), ..batch() });
        let second = NodeSet::one(NodeId(1));
        d.commit(Event::NodesSet { nodes: second, admin: NodeAdmin::Down, reason: None, by: 0 });
        assert_eq!(d.state_of(job), Some(then), "--no-kill: {no_kill}");
    }
}

#[test]
fn draining_lets_jobs_finish_and_down_does_not() {
    let mut d = Driver::new(1, 4);
    let job = d.submit(batch());
    let set = |admin| Event::NodesSet { nodes: NodeSet::one(NodeId(0)), admin, reason: None, by: 0 };
    d.commit(set(NodeAdmin::Drain));
    let waits = d.submit(batch());
    assert_eq!((d.state_of(job), d.state_of(waits)), (Some(JobState::Running), Some(JobState::Pending)));
    d.commit(set(NodeAdmin::Down));
    assert_eq!(d.state_of(job), Some(JobState::Completing(EndState::NodeFail)));
    let gone = d.attempt(job);
    d.report("n1", &[Report::JobGone { job: gone }]);
    assert_eq!(d.state_of(job), Some(JobState::Pending));
    d.commit(set(NodeAdmin::Resume));
    assert_eq!((d.state_of(job), d.state_of(waits)), (Some(JobState::Running), Some(JobState::Running)));
}

#[test]
fn on_an_old_way_nobody_registers_and_nobody_is_lost() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(batch());
    let attempt = d.attempt(job);
    d.register("n1", &[attempt]);
    d.launched();
    // The daemon of before this one woke up late: it takes up the offer that was made to it, and knows nothing.
    let stale = Registration { session: d.offered_before("n1"), ..d.registration("n1", &[], &[]) };
    d.say_on_old_link("n1", |child| child.register(stale));
    assert_eq!((d.launched(), d.connected("n1")), (vec![], true), "nothing is started again");
    // What ends on the old way does not concern the node any more, whatever reports it.
    let session = d.offered_before("n1").number;
    let lost = BTreeMap::from([(NodeId(0), session + 1)]);
    d.say_on_old_link("n1", |child| child.composite(Composite { lost, reports: 1, ..Composite::default() }));
    assert!(d.connected("n1"));
    d.lose_old_link("n1");
    assert!(d.connected("n1"));
    d.report("n1", &[Report::JobGone { job: attempt }]);
    assert_eq!(d.state_of(job), Some(JobState::Running), "requeued: the node lost it");
    assert_eq!(d.attempt(job).attempt.0, 2);
}

#[test]
fn only_the_newest_offer_to_a_name_is_taken_up() {
    let mut d = Driver::new(1, 1);
    let job = d.submit(batch());
    d.connect("n1");
    d.knock("n1");
    let first = d.registration("n1", &[], &[]);
    d.knock("n1");
    d.launched();
    d.say("n1", |child| child.register(first));
    assert_eq!(d.launched(), [], "an offer that was followed by another");
    d.identify("n1", &[], &[]);
    assert_eq!(d.launched(), [(d.attempt(job), "n1".to_owned())]);
    d.identify("n1", &[], &[]);
    assert_eq!(d.launched(), [], "an offer is taken up once");
}

#[test]
fn a_node_that_asks_by_its_old_parent_too_registers_by_the_new_one() {
    let mut d = Driver::new(2, 1);
    d.connect("n1");
    d.knock("n1");
    let by_itself = d.registration("n1", &[], &[]);
    // The parent of before passes the same request on, and can't pass the answer.
    d.say("n2", |child| child.knock("n1"));
    let job = d.submit(JobSpec { need: Need { nodes_min: Some(2), ..Need::default() }, ..batch() });
    d.launched();
    d.say("n1", |child| child.register(by_itself));
    assert!(d.connected("n1"));
    assert_eq!(d.launched(), [(d.attempt(job), "n1".to_owned())]);
}

#[test]
fn a_gap_ends_the_connection_and_a_repeated_frame_changes_nothing() {
    let mut d = Driver::new(2, 1);
    let job = d.submit(batch());
    let reports = d.script_end(job, 0);
    d.report("n1", &reports);
    d.repeat_last("n1");
    assert_eq!((d.drops.len(), d.connected("n1")), (0, true));
    d.say("n2", |child| {
        child.knock("n2");
        child.knock("n2")
    });
    assert_eq!((d.drops.len(), d.connected("n2"), d.connected("n1")), (1, false, true));
}

#[test]
fn the_configured_window_goes_down_with_the_path() {
    let window = Window { messages: 1, time_ms: 7 };
    let mut d = Driver::empty(Config { msg_aggregation_params: Aggregation(window), ..Config::default() });
    let (link, mut out) = (LinkId(77), Out::default());
    d.c.step(d.now, Input::Opened { link, name: None }, &mut out);
    let said = out.sends.iter().filter(|(to, _)| *to == link).flat_map(|(_, frame)| &frame.says);
    let windows: Vec<Window> = said
        .filter_map(|say| match say {
            Downward::Path(path) => Some(path.window),
            _ => None,
        })
        .collect();
    assert_eq!(windows, [window]);
}

#[test]
fn a_node_known_by_its_key_is_heard_on_itself_only() {
    let mut d = Driver::empty(Config::default());
    let mut out = Out::default();
    let link = LinkId(77);
    d.c.step(d.now, Input::Opened { link, name: Some("n7".into()) }, &mut out);
    let mut child = Child::default();
    let offered = |out: &Out| {
        let says = out.sends.iter().flat_map(|(_, frame)| &frame.says);
        says.filter(|say| matches!(say, Downward::Reply { .. })).count()
    };
    let mut out = Out::default();
    d.c.step(d.now, Input::Frame { link, frame: Box::new(child.knock("n1")) }, &mut out);
    assert_eq!(offered(&out), 0, "it knocked as somebody else");
    let mut out = Out::default();
    d.c.step(d.now, Input::Frame { link, frame: Box::new(child.knock("n7")) }, &mut out);
    assert_eq!(offered(&out), 1);
}

/// faults.md A4: what a node acknowledged and knows no more was forgotten. It may have run, so this attempt is not sent again.
#[test]
fn a4_a_script_that_its_node_took_and_forgot_is_given_up() {
    let mut d = Driver::new(1, 2);
    let (twice, once) = (d.submit(batch()), d.submit(JobSpec { requeue: Some(false), ..batch() }));
    let first = d.attempt(twice);
    // A heartbeat is answered: the node has taken both.
    d.pass(25);
    d.launched();
    d.register("n1", &[]);
    assert_eq!(d.state_of(once), Some(JobState::Ended(EndState::NodeFail)));
    assert_eq!(d.launched(), [(d.attempt(twice), "n1".to_owned())]);
    assert_eq!(d.attempt(twice).attempt.0, first.attempt.0 + 1, "a further attempt, not the same one");
}

/// faults.md A4: what a node says that nothing of it ran, and what it may never have heard of, is sent again.
#[test]
fn a4_an_unstarted_script_is_sent_again() {
    let mut d = Driver::new(1, 2);
    let job = d.submit(JobSpec { requeue: Some(false), ..batch() });
    let attempt = d.attempt(job);
    d.pass(25);
    d.launched();
    let unstarted = |said: Registration| Registration { unstarted: vec![attempt], ..said };
    d.connect("n1");
    d.knock("n1");
    let said = unstarted(d.registration("n1", &[], &[]));
    d.say("n1", |child| child.register(said));
    assert_eq!(d.launched(), [(attempt, "n1".to_owned())]);
    d.register("n1", &[]);
    assert_eq!(d.launched(), [(attempt, "n1".to_owned())], "no heartbeat since");
}

// faults.md C, beside D6: a node that left the configuration stayed in its partitions for ever.
#[test]
fn d6_a_node_that_left_the_configuration_leaves_its_partitions() {
    let config = |nodes: &str| {
        let mut config = Config::default();
        config.nodes.push(NodeConfig { name: nodes.into(), ..NodeConfig::default() });
        config.complete();
        config
    };
    let configured = |d: &mut Driver, nodes: &str| {
        d.config = config(nodes);
        d.commit(Event::Configured { config: Arc::new(config(nodes)) });
    };
    let mut d = Driver::empty(config("n[1-3]"));
    (1..=4).for_each(|n| d.add_node(&format!("n{n}"), 1));
    let shown = |d: &mut Driver| match &d.ask(3, 0, Request::Nodes)[..] {
        [Answer::Nodes(nodes)] => nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>().join(","),
        other => panic!("{other:?}"),
    };
    let there = |d: &Driver| d.c.state.partitions[0].nodes.iter().map(|id| id.0 + 1).collect::<Vec<_>>();
    let jobs = [(); 4].map(|()| d.submit(batch()));
    configured(&mut d, "n[1-2]");
    assert_eq!(there(&d), [1, 2, 4], "n4 was never listed: it joined");
    assert_eq!((d.state_of(jobs[2]), shown(&mut d).as_str()), (Some(JobState::Running), "n1,n2,n3,n4"));
    d.finish(jobs[2], 0);
    let next = d.submit(batch());
    assert_eq!(d.state_of(next), Some(JobState::Pending), "nothing more starts on n3");
    d.lose("n3");
    d.pass(600);
    assert_eq!(shown(&mut d), "n1,n2,n4");
    d.restart();
    configured(&mut d, "n[1-2]");
    assert_eq!(there(&d), [1, 2, 4], "it stays away");
    configured(&mut d, "n[1-3]");
    assert_eq!((there(&d), shown(&mut d).as_str()), (vec![1, 2, 3, 4], "n1,n2,n3,n4"));
}
