//! Checkpoints of jobs on the node.

use squall_model::checkpoint::{CheckpointNote, CheckpointOrder, CheckpointVerb, Made};
use squall_model::id::{StepKey, StepNo};
use squall_model::job::JobAttempt;
use squall_model::limits::{CHECKPOINT_FROZEN_S, CHECKPOINT_S};
use squall_model::report::Report;
use squall_model::time::{Span, Time};
use squall_model::wire::hook::NodeNote;
use squall_model::wire::node::{Down, EndReason};
use squall_model::wire::stepd::ToStepd;

use super::{World, key};
use crate::node::{CheckpointAct, NodeAct, NodeInput, attempt_of};

fn script() -> (StepKey, JobAttempt) {
    let key = key(1, StepNo::BATCH);
    (key, attempt_of(key))
}

impl World {
    /// Starts a job, and orders a checkpoint of it.
    fn checkpoint(verb: CheckpointVerb) -> Self {
        let mut world = Self::new();
        world.start(1, 1);
        world.run();
        let order = CheckpointOrder { job: script().1, number: 1, verb, kept: Vec::new(), given: Time(0) };
        world.order(Down::Checkpoint(Box::new(order.clone())));
        world.order(Down::Checkpoint(Box::new(order)));
        assert_eq!(world.checkpoint_acts().len(), 1, "an order that comes twice is one");
        world
    }

    fn checkpoint_acts(&self) -> Vec<&CheckpointAct> {
        let acts = self.acts.iter().filter_map(|act| if let NodeAct::Checkpoint(act) = act { Some(act) } else { None });
        acts.collect()
    }

    fn made(&mut self) {
        let made = Ok(Some(Made { bytes: 1, stood: Span(1), pid: 7, links: None }));
        self.inputs.extend([NodeInput::Checkpointed { job: script().1, number: 1, result: made }]);
        self.run();
        self.tick(Span::from_secs(1));
    }

    fn noted(&self) -> Vec<&CheckpointNote> {
        let notes = self
            .notes
            .iter()
            .filter_map(|note| if let NodeNote::Checkpoint(note) = note { Some(&**note) } else { None });
        notes.collect()
    }

    fn thaws(&self) -> usize {
        self.checkpoint_acts().iter().filter(|act| matches!(act, CheckpointAct::Thaw { .. })).count()
    }
}

#[test]
fn a_job_that_is_to_leave_is_thawed_when_nothing_is_heard() {
    let mut world = World::checkpoint(CheckpointVerb::Vacate);
    world.made();
    assert_eq!((world.noted().last().map(|note| note.verb), world.thaws()), (Some(CheckpointVerb::Vacate), 0));
    world.tick(Span::from_secs(CHECKPOINT_FROZEN_S + 1));
    let last = world.noted().last().map(|note| (note.verb, note.made.is_some()));
    assert_eq!((last, world.thaws()), (Some((CheckpointVerb::Create, true)), 1), "it counts, but the job runs on");
}

#[test]
fn what_is_killed_because_its_checkpoint_counts_is_not_thawed_before() {
    for (cont, thaws) in [(false, 0), (true, 1)] {
        let mut world = World::checkpoint(CheckpointVerb::Vacate);
        world.made();
        let why = EndReason::None;
        world.order(Down::EndJob { job: script().1, kill_wait_s: 0, cont, why, exit: None });
        world.tick(Span::from_secs(CHECKPOINT_FROZEN_S + 1));
        assert_eq!(world.thaws(), thaws);
    }
}

#[test]
fn a_checkpoint_that_takes_too_long_is_given_up() {
    let mut world = World::checkpoint(CheckpointVerb::Create);
    world.tick(Span::from_secs(CHECKPOINT_S + 1));
    assert!(matches!(world.checkpoint_acts().last(), Some(CheckpointAct::Stop { .. })));
    assert!(world.noted().last().is_some_and(|note| note.error.is_some()));
    world.made();
    assert!(world.noted().iter().all(|note| note.made.is_none()), "what comes late does not count");
}

#[test]
fn a_job_that_ends_meanwhile_ends() {
    let mut world = World::checkpoint(CheckpointVerb::Vacate);
    let (script, job) = script();
    world.finish(script, crate::node::disk::end(0));
    world.run();
    world.tick(Span::from_secs(5));
    assert!(matches!(world.checkpoint_acts()[..], [_, CheckpointAct::Stop { .. }]));
    assert!(world.gone.contains(&job));
}

#[test]
fn a_job_of_which_a_dump_was_killed_is_ended_at_once_whatever_its_script_ends_with() {
    let mut world = World::checkpoint(CheckpointVerb::Create);
    let (script, job) = script();
    world.inputs.extend([NodeInput::Damaged { job, error: "CRIU was killed".into() }]);
    world.run();
    let tells = world.acts.iter().any(|act| {
        matches!(act, NodeAct::Tell { message: ToStepd::End { kill_wait_s: 0, why: EndReason::Damaged }, .. })
    });
    assert!(tells && world.thaws() == 0 && world.checkpoint_acts().len() == 1, "{:?}", world.acts);
    world.finish(script, crate::node::disk::end(0));
    world.run();
    world.tick(Span::from_secs(5));
    let last = world.noted().last().map(|note| (note.damaged, note.number, note.made.is_some()));
    assert_eq!(last, Some((true, 1, false)));
    let end = world.ended[&script].iter().find_map(|report| match report {
        Report::StepEnded { end, .. } => Some(end),
        _ => None,
    });
    assert!(end.is_some_and(|end| end.damage() == Some("CRIU was killed") && !end.is_own()), "{end:?}");
}

/// Starts a job of two nodes, and orders a checkpoint of it.
fn ordered() -> (World, CheckpointOrder) {
    let mut world = World::new();
    world.start(1, 2);
    world.run();
    let (number, kept) = (1, Vec::new());
    let order = CheckpointOrder { job: script().1, number, verb: CheckpointVerb::Create, kept, given: Time(5) };
    world.order(Down::Checkpoint(Box::new(order.clone())));
    (world, order)
}

/// The same, with the node's part made.
fn part() -> (World, CheckpointOrder) {
    let (mut world, order) = ordered();
    world.made();
    (world, order)
}

#[test]
fn a_part_of_a_job_stands_still_until_all_are_made() {
    let (mut world, order) = part();
    assert_eq!((world.noted().len(), world.thaws()), (1, 0));
    world.order(Down::Checkpoint(Box::new(order.clone())));
    assert_eq!(world.checkpoint_acts().len(), 1, "the same order again changes nothing");
    // The parts did not fit together: the next one is made while the job still stands still.
    world.order(Down::Checkpoint(Box::new(CheckpointOrder { given: Time(6), ..order.clone() })));
    assert!(matches!(world.checkpoint_acts()[..], [_, CheckpointAct::Make(_)]));
    world.made();
    assert_eq!(world.noted().last().map(|note| note.given), Some(Time(6)));
    world.order(Down::Checkpoint(Box::new(CheckpointOrder { verb: CheckpointVerb::Go, ..order.clone() })));
    assert_eq!(world.thaws(), 1);
    world.order(Down::Checkpoint(Box::new(CheckpointOrder { verb: CheckpointVerb::Go, ..order })));
    assert_eq!(world.thaws(), 1);
}

#[test]
fn a_part_of_a_job_goes_on_in_the_end_and_counts_for_nothing() {
    let (mut world, _) = part();
    world.tick(Span::from_secs(CHECKPOINT_S + 1));
    assert_eq!(world.thaws(), 1);
    assert!(world.noted().last().is_some_and(|note| note.made.is_none() && note.error.is_some()));
}

#[test]
fn an_order_during_another_one_is_answered_by_that() {
    let (mut world, order) = ordered();
    world.order(Down::Checkpoint(Box::new(CheckpointOrder { given: Time(9), ..order })));
    assert_eq!(world.checkpoint_acts().len(), 1);
    world.made();
    assert_eq!(world.noted().last().map(|note| (note.given, note.made.is_some())), Some((Time(9), true)));
}

#[test]
fn a_restored_part_waits_for_the_word_of_the_controller() {
    let mut world = World::new();
    world.start(1, 2);
    world.run();
    let job = script().1;
    let go = CheckpointOrder { job, number: 3, verb: CheckpointVerb::Go, kept: Vec::new(), given: Time(0) };
    world.order(Down::Checkpoint(Box::new(go.clone())));
    assert_eq!(world.checkpoint_acts().len(), 0, "it is not there yet");
    world.inputs.extend([NodeInput::Restored { job, number: 3 }]);
    world.run();
    world.tick(Span::from_secs(1));
    assert_eq!(world.noted().last().map(|note| (note.verb, note.number)), Some((CheckpointVerb::Go, 3)));
    world.order(Down::Checkpoint(Box::new(go)));
    assert!(matches!(world.checkpoint_acts()[..], [CheckpointAct::Go { .. }]));
}
