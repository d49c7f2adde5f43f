//! Checkpoints of jobs: which count, and what follows from them.

use squall_model::checkpoint::{CheckpointNote, CheckpointOrder, CheckpointPlan, CheckpointVerb, Made};
use squall_model::config::Config;
use squall_model::event::{Event, NodeAdmin, Requeue};
use squall_model::fault::{FaultKind, NodeFault};
use squall_model::id::{JobId, NodeId, StepKey, StepNo};
use squall_model::job::{EndState, ExitCode, JobSpec, JobState, Need, Outcome, PendingReason};
use squall_model::limits::{
    CHECKPOINT_BEFORE_LIMIT_S, CHECKPOINT_DAMAGES_MAX, CHECKPOINT_PREEMPT_S, CHECKPOINT_TRIAL_S,
};
use squall_model::policy::{PolicyChange, Qos};
use squall_model::report::Report;
use squall_model::reservation::Reservation;
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::hook::NodeNote;
use squall_model::wire::node::{Down, EndReason, SignalTarget};

use crate::control::tests::driver::{ADA, Driver, batch, these};
use crate::control::tests::hooks::cluster;
use crate::control::tests::precedence::{change, of, qos};

fn ask(d: &mut Driver, id: JobId, verb: CheckpointVerb) -> Vec<Answer> {
    d.ask(7, ADA, Request::Checkpoint(id, verb))
}

/// The order that a node was sent last.
fn order(d: &mut Driver) -> CheckpointOrder {
    let sent = std::mem::take(&mut d.sent).into_iter();
    let order = |(_, message)| if let Down::Checkpoint(order) = message { Some(*order) } else { None };
    sent.filter_map(order).last().expect("an order")
}

fn answer(d: &mut Driver, order: &CheckpointOrder, error: Option<&str>) {
    let made =
        error.is_none().then_some(Made { bytes: 8 << 20, stood: Span::from_millis(190), pid: 4711, links: None });
    let CheckpointOrder { job, number, verb, given, .. } = *order;
    let note = CheckpointNote { job, number, verb, made, error: error.map(str::to_owned), damaged: false, given };
    d.note("n1", NodeNote::Checkpoint(Box::new(note)));
}

/// Numbers of the checkpoints that count.
fn kept(d: &Driver, id: JobId) -> Vec<u64> {
    let all = d.c.state().jobs[&id].checkpoints.as_ref();
    all.map_or(Vec::new(), |all| all.kept.iter().map(|one| one.number).collect())
}

fn gone(d: &mut Driver, id: JobId) {
    let reports = d.script_end(id, 0);
    d.report("n1", &reports);
}

fn with_checkpoints() -> Driver {
    cluster("checkpoint_dir = \"/c\"\n")
}

#[test]
fn a_job_leaves_its_node_when_its_checkpoint_counts_and_comes_back_to_it() {
    let mut d = with_checkpoints();
    let id = d.submit(batch());
    assert_eq!(ask(&mut d, id, CheckpointVerb::Vacate), [], "the answer comes when it counts");
    let ordered = order(&mut d);
    assert_eq!((ordered.number, ordered.kept.len()), (1, 0));
    let other = ask(&mut d, id, CheckpointVerb::Create);
    assert!(matches!(&other[..], [Answer::Refused(Refusal::WrongState(_))]), "{other:?}");
    answer(&mut d, &ordered, None);
    assert_eq!(kept(&d, id), [1]);
    let ends = |(_, message): &(String, Down)| {
        matches!(message, Down::EndJob { kill_wait_s: 0, cont: false, why: EndReason::None, .. })
    };
    assert!(d.sent.iter().any(ends), "what is frozen is killed, and not woken before");
    gone(&mut d, id);
    // The same report again changes nothing.
    answer(&mut d, &ordered, None);
    let run = d.c.state().jobs[&id].run().expect("it has its node again");
    assert_eq!(run.restore.map(|restore| (restore.number, restore.pid)), Some((1, 4711)));
    assert_eq!(d.c.state().jobs[&id].spec.need.nodelist.as_deref(), Some("n1"));
}

#[test]
fn a_held_job_waits_on_disk_until_it_is_restarted() {
    let mut d = with_checkpoints();
    let id = d.submit(batch());
    ask(&mut d, id, CheckpointVerb::Hold);
    let ordered = order(&mut d);
    answer(&mut d, &ordered, None);
    gone(&mut d, id);
    assert_eq!(d.state_of(id), Some(JobState::Pending));
    assert_eq!(ask(&mut d, id, CheckpointVerb::Restart), [Answer::Done, Answer::Done], "to both requests");
    assert_eq!(d.state_of(id), Some(JobState::Running));
}

#[test]
fn a_job_comes_back_to_the_node_with_its_checkpoint_even_if_that_has_become_a_spare_one() {
    let partition = "[[partitions]]\nname = \"debug\"\nspare_nodes = 1\n";
    let text = format!("checkpoint_dir = \"/c\"\n[[nodes]]\nname = \"n[1-2]\"\n{partition}");
    let mut d = Driver::empty(Config::from_toml(&text).expect("it is right"));
    (1..=2).for_each(|n| d.add_node(&format!("n{n}"), 1));
    let id = d.submit(batch());
    ask(&mut d, id, CheckpointVerb::Hold);
    let ordered = order(&mut d);
    answer(&mut d, &ordered, None);
    gone(&mut d, id);
    let spare = |d: &Driver| d.c.state().reservations["spare_debug"].nodes.iter().collect::<Vec<_>>();
    let moved = Reservation { nodes: NodeSet::one(NodeId(0)), ..d.c.state().reservations["spare_debug"].clone() };
    d.commit(Event::ReservationSet { reservation: Box::new(moved) });
    let named = JobSpec { need: Need { nodelist: Some("n1".into()), ..batch().need }, ..batch() };
    let other = d.submit(named);
    assert_eq!((spare(&d), d.state_of(other)), (vec![NodeId(0)], Some(JobState::Pending)), "no other job gets it");
    ask(&mut d, id, CheckpointVerb::Restart);
    let next = d.submit(batch());
    assert_eq!((d.state_of(id), d.state_of(next)), (Some(JobState::Running), Some(JobState::Pending)));
    assert_eq!(spare(&d), [NodeId(1)], "the other node is a spare one now");
}

#[test]
fn a_job_comes_back_anywhere_if_all_nodes_share_its_checkpoint() {
    let text = "checkpoint_dir = \"/c\"\ncheckpoint_shared = true\n[[nodes]]\nname = \"n[1-2]\"\n";
    let mut d = Driver::empty(Config::from_toml(text).expect("it is right"));
    (1..=2).for_each(|n| d.add_node(&format!("n{n}"), 1));
    let id = d.submit(batch());
    ask(&mut d, id, CheckpointVerb::Hold);
    let ordered = order(&mut d);
    answer(&mut d, &ordered, None);
    gone(&mut d, id);
    let named = JobSpec { need: Need { nodelist: Some("n1".into()), ..batch().need }, ..batch() };
    assert_eq!(
        {
            let other = d.submit(named);
            d.state_of(other)
        },
        Some(JobState::Running)
    );
    ask(&mut d, id, CheckpointVerb::Restart);
    let run = d.c.state().jobs[&id].run().expect("it has the other node");
    assert_eq!((run.restore.map(|restore| restore.number), run.alloc.nodes()), (Some(1), NodeSet::one(NodeId(1))));
    d.sent.clear();
    let reports = d.script_end(id, 0);
    d.report("n2", &reports);
    let forgets = |(_, message): &&(String, Down)| matches!(message, Down::ForgetCheckpoints { job } if *job == id);
    let told: Vec<&str> = d.sent.iter().filter(forgets).map(|(node, _)| node.as_str()).collect();
    assert_eq!(told, ["n1", "n2"], "whichever of them is there removes them");
}

#[test]
fn a_job_with_checkpoints_leaves_a_drained_node_if_all_nodes_share_them() {
    for shared in [false, true] {
        let mut d = cluster(&format!("checkpoint_dir = \"/c\"\ncheckpoint_shared = {shared}\n"));
        let id = d.submit(planned(600, false));
        d.sent.clear();
        let drain = Request::UpdateNodes {
            nodes: "n1".into(),
            admin: Some(NodeAdmin::Drain),
            reason: Some("fan".into()),
            change: None,
        };
        assert_eq!(d.ask(7, 0, drain), [Answer::Done]);
        let ordered = d.sent.iter().filter(|(_, message)| matches!(message, Down::Checkpoint(_))).count();
        assert_eq!((ordered, d.state_of(id)), (usize::from(shared), Some(JobState::Running)));
    }
}

#[test]
fn what_can_not_be_checkpointed_is_said_and_nothing_happens() {
    let mut d = with_checkpoints();
    let id = d.submit(batch());
    ask(&mut d, id, CheckpointVerb::Vacate);
    let ordered = order(&mut d);
    answer(&mut d, &ordered, Some("no\ncriu"));
    assert_eq!((kept(&d, id).len(), d.state_of(id)), (0, Some(JobState::Running)));
    let without = Driver::new(1, 1);
    let mut d = without;
    let id = d.submit(batch());
    let refused = ask(&mut d, id, CheckpointVerb::Able);
    let [Answer::Refused(Refusal::WrongState(why))] = &refused[..] else { panic!("{refused:?}") };
    assert!(why.contains("checkpoint_dir"), "{why}");
}

#[test]
fn a_note_that_was_not_ordered_ends_no_job_of_several_nodes_and_uses_up_no_number() {
    let mut d = with_checkpoints();
    let mut wide = batch();
    wide.need.nodes_min = Some(2);
    for (spec, number) in [(wide, 1), (batch(), u64::MAX), (batch(), 2)] {
        let id = d.submit(spec);
        assert_eq!(d.state_of(id), Some(JobState::Running));
        let (job, verb) = (d.attempt(id), CheckpointVerb::Vacate);
        answer(&mut d, &CheckpointOrder { job, number, verb, kept: Vec::new(), given: Time(0) }, None);
        assert_eq!((kept(&d, id), d.state_of(id)), (Vec::new(), Some(JobState::Running)), "number {number}");
        assert_eq!(d.c.state().jobs[&id].spec.need.nodelist, None);
        d.finish(id, 0);
    }
}

#[test]
fn a_restore_that_fails_goes_back_to_the_checkpoint_before_and_then_to_the_start() {
    let mut d = with_checkpoints();
    let id = d.submit(batch());
    for number in 1..=3 {
        ask(&mut d, id, CheckpointVerb::Create);
        let ordered = order(&mut d);
        assert_eq!(ordered.number, number);
        answer(&mut d, &ordered, None);
    }
    assert_eq!(kept(&d, id), [2, 3], "two are kept");
    ask(&mut d, id, CheckpointVerb::Restart);
    gone(&mut d, id);
    for left in [&[2][..], &[]] {
        let job = d.attempt(id);
        let key = StepKey { job: id, attempt: job.attempt, step: StepNo::BATCH };
        let failed = Report::LaunchFailed { key, error: "pid 4711 is taken".into(), node_fault: false };
        d.report("n1", &[failed, Report::JobGone { job }]);
        assert_eq!(kept(&d, id), left);
    }
    let job = &d.c.state().jobs[&id];
    let failed = job.checkpoints.as_ref().and_then(|all| all.failed.as_deref());
    assert_eq!(failed, Some("pid 4711 is taken"));
    assert!(job.run().is_some_and(|run| run.restore.is_none()) && job.spec.need.nodelist.is_none());
}

/// A job with a checkpoint, which runs.
fn checkpointed(requeue: bool) -> (Driver, JobId) {
    let mut d = with_checkpoints();
    let id = d.submit(JobSpec { requeue: Some(requeue), ..batch() });
    ask(&mut d, id, CheckpointVerb::Create);
    let ordered = order(&mut d);
    answer(&mut d, &ordered, None);
    (d, id)
}

#[test]
fn a_job_that_goes_back_to_its_checkpoint_is_killed_at_once_as_it_must_not_tidy_up() {
    for (back, kill_wait_s, cont) in [(true, 0, false), (false, 30, true)] {
        let (mut d, id) = if back { checkpointed(true) } else { (with_checkpoints(), JobId(1)) };
        if !back {
            assert_eq!(d.submit(batch()), id);
        }
        d.sent.clear();
        let outcome = Outcome { state: EndState::Requeued, exit: ExitCode::OK, reason: None };
        let requeue = Some(Requeue { hold: false, not_before: None, special: None, expedite: None });
        d.commit(Event::JobEnding { id, outcome, requeue });
        let sent = d.sent.iter().find_map(|(_, message)| match message {
            Down::EndJob { kill_wait_s, cont, .. } => Some((*kill_wait_s, *cont)),
            _ => None,
        });
        assert_eq!(sent, Some((kill_wait_s, cont)));
    }
}

#[test]
fn a_job_that_its_node_can_not_restore_now_tries_again_although_it_may_not_be_requeued() {
    let (mut d, id) = checkpointed(false);
    ask(&mut d, id, CheckpointVerb::Restart);
    gone(&mut d, id);
    let job = d.attempt(id);
    let key = StepKey { job: id, attempt: job.attempt, step: StepNo::BATCH };
    let failed = Report::LaunchFailed { key, error: "the disk is full".into(), node_fault: true };
    d.report("n1", &[failed, Report::JobGone { job }]);
    assert_eq!((kept(&d, id), d.state_of(id)), (vec![1], Some(JobState::Pending)));
    d.pass(60);
    let run = d.c.state().jobs[&id].run().expect("it has its node again");
    assert_eq!(run.restore.map(|restore| restore.number), Some(1));
}

/// Reports that the dump of an order was killed.
fn killed(d: &mut Driver, order: &CheckpointOrder) {
    let CheckpointOrder { job, number, verb, given, .. } = *order;
    let error = Some("CRIU was killed by signal 9".to_owned());
    let note = CheckpointNote { job, number, verb, made: None, error, damaged: true, given };
    d.note("n1", NodeNote::Checkpoint(Box::new(note)));
}

/// Returns the end of a script that its node has ended as a dump of it was killed; it ended with exit code 0 before.
fn damaged_end(d: &mut Driver, id: JobId) -> Vec<Report> {
    let mut reports = d.script_end(id, 0);
    for report in &mut reports {
        if let Report::StepEnded { end, .. } = report {
            end.note_damaged("CRIU was killed by signal 9");
        }
    }
    reports
}

#[test]
fn a_job_of_which_a_dump_was_killed_goes_back_whatever_its_script_ended_with() {
    for end_first in [false, true] {
        let mut d = with_checkpoints();
        let id = d.submit(JobSpec { requeue: Some(false), ..batch() });
        ask(&mut d, id, CheckpointVerb::Create);
        let ordered = order(&mut d);
        answer(&mut d, &ordered, None);
        ask(&mut d, id, CheckpointVerb::Vacate);
        let ordered = order(&mut d);
        let reports = damaged_end(&mut d, id);
        if end_first {
            d.report("n1", &reports);
            killed(&mut d, &ordered);
        } else {
            killed(&mut d, &ordered);
            d.report("n1", &reports);
        }
        let job = &d.c.state().jobs[&id];
        let refused = job.checkpoints.as_ref().and_then(|all| all.refused.as_deref());
        assert!(refused.is_some_and(|why| why.contains("signal 9") && why.contains("goes back to checkpoint 1")));
        let run = job.run().expect("it has its node again");
        assert_eq!(run.restore.map(|restore| restore.number), Some(1));
    }
}

#[test]
fn a_job_without_a_checkpoint_of_which_a_dump_was_killed_begins_again_or_fails() {
    for (requeue, then) in [(true, JobState::Running), (false, JobState::Ended(EndState::Failed))] {
        let mut d = with_checkpoints();
        let id = d.submit(JobSpec { requeue: Some(requeue), ..batch() });
        ask(&mut d, id, CheckpointVerb::Create);
        let ordered = order(&mut d);
        killed(&mut d, &ordered);
        let reports = damaged_end(&mut d, id);
        d.report("n1", &reports);
        assert_eq!(d.state_of(id), Some(then));
        let reason = d.c.state().jobs[&id].outcome().and_then(|outcome| outcome.reason.clone());
        assert_eq!(reason.is_some_and(|reason| reason.contains("may not be requeued")), !requeue);
    }
}

#[test]
fn the_controller_stops_to_checkpoint_a_job_of_which_one_dump_after_the_other_is_killed() {
    let mut d = with_checkpoints();
    let id = d.submit(planned(300, false));
    for _ in 0..CHECKPOINT_DAMAGES_MAX {
        let ordered = order_after(&mut d, CHECKPOINT_TRIAL_S);
        killed(&mut d, &ordered);
        let reports = damaged_end(&mut d, id);
        d.report("n1", &reports);
        d.sent.clear();
    }
    d.pass(1000);
    assert!(!d.sent.iter().any(|(_, message)| matches!(message, Down::Checkpoint(_))));
    assert_eq!(d.state_of(id), Some(JobState::Running));
    // A user may try.
    ask(&mut d, id, CheckpointVerb::Create);
    let ordered = order(&mut d);
    answer(&mut d, &ordered, None);
    assert_eq!((kept(&d, id), order_after(&mut d, 300).number), (vec![1], 2));
}

#[test]
fn the_reason_of_a_job_that_waits_for_its_node_is_that_it_is_on_disk() {
    let mut d = with_checkpoints();
    let id = d.submit(batch());
    ask(&mut d, id, CheckpointVerb::Vacate);
    let ordered = order(&mut d);
    d.submit(batch());
    for _ in 0..8 {
        d.submit(batch());
    }
    answer(&mut d, &ordered, None);
    gone(&mut d, id);
    let page = d.ask(9, ADA, Request::Jobs { jobs: these(id), ended: true, steps: false });
    let [Answer::Jobs(page)] = &page[..] else { panic!("{page:?}") };
    let info = &page.jobs[0];
    let pending = info.state == JobState::Pending && info.reason == PendingReason::Checkpointed;
    assert!(pending || info.state == JobState::Running, "{:?} {:?}", info.state, info.reason);
    assert_eq!(info.checkpoint.as_ref().map(|last| (last.number, last.node.as_str())), Some((1, "n1")));
}

const PREEMPTION: &str =
    "checkpoint_dir = \"/c\"\npreempt_type = \"preempt/qos\"\npreempt_mode = \"CHECKPOINT,REQUEUE\"\n";

/// A job that runs on `n1`, may be preempted, and has so much grace time. No node is free.
fn before_preemption(low: JobSpec, grace_s: u64) -> (Driver, JobId) {
    let mut d = cluster(PREEMPTION);
    let warned = PolicyChange::Qos("low".into(), Some(Qos { grace_s, ..Qos::default() }));
    change(&mut d, vec![warned, qos("high", 10, &["low"])]);
    let low = d.submit(low);
    d.submit(batch());
    (d, low)
}

/// The same job, preempted by another: the latter, and the order to checkpoint the former.
fn preempted(low: JobSpec, grace_s: u64) -> (Driver, [JobId; 2], CheckpointOrder) {
    let (mut d, low) = before_preemption(low, grace_s);
    let high = d.submit(of("high"));
    let ordered = order(&mut d);
    assert_eq!((ordered.job.job, ordered.verb), (low, CheckpointVerb::Vacate));
    assert_eq!((d.state_of(low), d.state_of(high)), (Some(JobState::Running), Some(JobState::Pending)));
    (d, [low, high], ordered)
}

#[test]
fn a_preempted_job_goes_to_disk_and_comes_back_by_itself() {
    let (mut d, [low, high], ordered) = preempted(JobSpec { requeue: Some(false), ..of("low") }, 30);
    d.pass(3);
    assert!(!d.sent.iter().any(|(_, message)| matches!(message, Down::Signal { .. })), "it need not notice");
    answer(&mut d, &ordered, None);
    assert_eq!(d.state_of(low), Some(JobState::Completing(EndState::Preempted)));
    gone(&mut d, low);
    assert_eq!((d.state_of(low), d.state_of(high)), (Some(JobState::Pending), Some(JobState::Running)));
    d.finish(high, 0);
    let run = d.c.state().jobs[&low].run().expect("it has its node again");
    assert_eq!(run.restore.map(|restore| restore.number), Some(1));
}

#[test]
fn a_preempted_job_that_can_not_be_checkpointed_is_requeued_or_cancelled() {
    for (requeue, then) in [(true, JobState::Pending), (false, JobState::Ended(EndState::Preempted))] {
        let (mut d, [low, high], ordered) = preempted(JobSpec { requeue: Some(requeue), ..of("low") }, 0);
        answer(&mut d, &ordered, Some("a device"));
        assert_eq!(d.state_of(low), Some(JobState::Completing(EndState::Preempted)));
        gone(&mut d, low);
        assert_eq!((d.state_of(low), d.state_of(high)), (Some(then), Some(JobState::Running)));
        assert_eq!(kept(&d, low), []);
    }
}

#[test]
fn only_a_job_that_can_not_be_checkpointed_has_grace_time() {
    let (mut d, [low, _], ordered) = preempted(of("low"), 30);
    answer(&mut d, &ordered, Some("a device"));
    let term =
        |(_, message): &(String, Down)| matches!(message, Down::Signal { target: SignalTarget::Steps, signal: 15, .. });
    assert!(d.sent.iter().any(term), "it is warned");
    d.pass(29);
    assert_eq!(d.state_of(low), Some(JobState::Running));
    d.pass(2);
    assert_eq!(d.state_of(low), Some(JobState::Completing(EndState::Preempted)));
}

#[test]
fn a_node_that_does_not_answer_in_time_keeps_no_preempted_job() {
    let (mut d, [low, _], _) = preempted(of("low"), 0);
    d.pass(CHECKPOINT_PREEMPT_S - 1);
    assert_eq!(d.state_of(low), Some(JobState::Running));
    d.pass(2);
    assert_eq!(d.state_of(low), Some(JobState::Completing(EndState::Preempted)));
}

#[test]
fn a_controller_that_restarts_orders_the_checkpoint_of_a_preempted_job_again() {
    let (mut d, [low, high], ordered) = preempted(of("low"), 0);
    d.restart();
    let attempt = d.attempt(low);
    d.register("n1", &[attempt]);
    assert_eq!(order(&mut d), ordered);
    answer(&mut d, &ordered, None);
    gone(&mut d, low);
    assert_eq!(d.state_of(high), Some(JobState::Running));
    assert!(d.c.state().jobs[&low].restore().is_some());
}

#[test]
fn a_preempted_job_leaves_after_the_checkpoint_that_is_being_made() {
    let (mut d, low) = before_preemption(of("low"), 0);
    ask(&mut d, low, CheckpointVerb::Create);
    let first = order(&mut d);
    d.submit(of("high"));
    assert!(!d.sent.iter().any(|(_, message)| matches!(message, Down::Checkpoint(_))), "one at a time");
    answer(&mut d, &first, None);
    let second = order(&mut d);
    assert_eq!((second.number, second.verb, second.kept), (2, CheckpointVerb::Vacate, vec![1]));
}

#[test]
fn a_job_that_fails_while_it_is_checkpointed_has_failed_by_itself() {
    let (mut d, [low, _], _) = preempted(of("low"), 0);
    d.finish(low, 1);
    assert_eq!(d.state_of(low), Some(JobState::Ended(EndState::Failed)));
}

/// A job that the controller checkpoints every five minutes.
fn planned(every_s: u64, must: bool) -> JobSpec {
    let mut spec = batch();
    spec.options.checkpoint = Some(CheckpointPlan { every_s, must });
    spec
}

/// Lets time pass until a node was sent an order, but not before `seconds`.
fn order_after(d: &mut Driver, seconds: u64) -> CheckpointOrder {
    d.pass(seconds - 1);
    assert!(!d.sent.iter().any(|(_, message)| matches!(message, Down::Checkpoint(_))), "it is too early");
    d.pass(1);
    order(d)
}

#[test]
fn the_controller_tries_a_job_and_then_checkpoints_it_now_and_then() {
    let mut d = with_checkpoints();
    let id = d.submit(planned(300, false));
    let trial = order_after(&mut d, CHECKPOINT_TRIAL_S);
    assert_eq!((trial.verb, trial.number), (CheckpointVerb::Able, 1));
    let CheckpointOrder { job, number, verb, given, .. } = trial;
    let note = CheckpointNote { job, number, verb, made: None, error: None, damaged: false, given };
    d.note("n1", NodeNote::Checkpoint(Box::new(note)));
    for number in 1..=3 {
        let ordered = order_after(&mut d, 300);
        assert_eq!((ordered.verb, ordered.number), (CheckpointVerb::Create, number));
        answer(&mut d, &ordered, None);
    }
    assert_eq!((kept(&d, id), d.state_of(id)), (vec![2, 3], Some(JobState::Running)));
    d.restart();
    let attempt = d.attempt(id);
    d.register("n1", &[attempt]);
    assert_eq!(order_after(&mut d, 300).number, 4);
}

#[test]
fn the_controller_chooses_the_interval_by_cost_and_faults() {
    let mut d = with_checkpoints();
    let id = d.submit(planned(CheckpointPlan::AUTO_S, false));
    let trial = order_after(&mut d, CHECKPOINT_TRIAL_S);
    assert_eq!(trial.verb, CheckpointVerb::Able);
    let CheckpointOrder { job, number, verb, given, .. } = trial;
    let note = CheckpointNote { job, number, verb, made: None, error: None, damaged: false, given };
    d.note("n1", NodeNote::Checkpoint(Box::new(note)));
    // The square root of twice a second and a year.
    let first = order_after(&mut d, 7945);
    answer(&mut d, &first, None);
    // It stood still for 190 ms.
    let second = order_after(&mut d, 3463);
    let node = d.c.state().node_id("n1").expect("it is there");
    let fault = NodeFault { node, kind: FaultKind::Health, job: None };
    d.commit(Event::NodeFault(fault));
    answer(&mut d, &second, None);
    assert_eq!(order_after(&mut d, 961).number, 3, "a node that has failed this month may fail again");
    assert_eq!(d.state_of(id), Some(JobState::Running));
}

#[test]
fn a_job_that_can_not_be_checkpointed_runs_on_and_says_why_or_ends_if_it_must() {
    let mut d = with_checkpoints();
    let (runs_on, must) = (d.submit(planned(300, false)), planned(300, true));
    let ordered = order_after(&mut d, CHECKPOINT_TRIAL_S);
    answer(&mut d, &ordered, Some("a device"));
    let refused = d.c.state().jobs[&runs_on].checkpoints.as_ref().and_then(|all| all.refused.clone());
    assert_eq!((refused.as_deref(), d.state_of(runs_on)), (Some("a device"), Some(JobState::Running)));
    let again = order_after(&mut d, 300);
    answer(&mut d, &again, None);
    assert_eq!(d.c.state().jobs[&runs_on].checkpoints.as_ref().and_then(|all| all.refused.clone()), None);
    d.finish(runs_on, 0);
    let id = d.submit(must);
    let ordered = order_after(&mut d, CHECKPOINT_TRIAL_S);
    answer(&mut d, &ordered, Some("a device"));
    let ends = |(_, message): &(String, Down)| matches!(message, Down::EndJob { why: EndReason::Unsaved, .. });
    assert!(d.sent.iter().any(ends));
    gone(&mut d, id);
    assert_eq!(d.state_of(id), Some(JobState::Ended(EndState::Failed)));
    let outcome = d.c.state().jobs[&id].outcome().and_then(|outcome| outcome.reason.clone());
    assert_eq!(outcome.as_deref(), Some("can't be checkpointed: a device"));
}

#[test]
fn a_job_leaves_its_node_before_its_time_limit_and_waits_for_a_longer_one() {
    let mut d = with_checkpoints();
    let mut spec = planned(0, false);
    spec.time_limit_s = Some(600);
    let id = d.submit(spec);
    let trial = order_after(&mut d, CHECKPOINT_TRIAL_S);
    assert_eq!(trial.verb, CheckpointVerb::Able);
    answer(&mut d, &trial, Some("a step runs"));
    let ordered = order_after(&mut d, 600 - CHECKPOINT_TRIAL_S - CHECKPOINT_BEFORE_LIMIT_S);
    assert_eq!(ordered.verb, CheckpointVerb::Hold);
    answer(&mut d, &ordered, None);
    gone(&mut d, id);
    assert_eq!(d.state_of(id), Some(JobState::Pending));
    d.pass(1000);
    ask(&mut d, id, CheckpointVerb::Restart);
    assert_eq!(d.state_of(id), Some(JobState::Running));
    d.pass(CHECKPOINT_BEFORE_LIMIT_S + 1);
    assert_eq!(d.state_of(id), Some(JobState::Completing(EndState::Timeout)), "its limit is still what it was");
}

#[test]
fn a_cluster_without_checkpoints_takes_no_job_that_wants_some() {
    let mut d = Driver::new(1, 1);
    let key = d.key();
    let answers = d.submit_with(key, planned(300, false));
    let refused = |answer: &Answer| matches!(answer, Answer::Refused(Refusal::InvalidValue { option, .. }) if option == "checkpoint");
    assert!(answers.iter().all(refused) && !answers.is_empty(), "{answers:?}");
}
