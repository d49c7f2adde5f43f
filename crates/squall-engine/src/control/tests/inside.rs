//! Steps of which the tasks descend from their `srun`: checkpoints contain them, and they keep their number.

use squall_model::checkpoint::{CheckpointNote, CheckpointVerb, Made};
use squall_model::id::{ClientKey, JobId, StepNo};
use squall_model::job::JobState;
use squall_model::limits::STEP_OWNER_GRACE_S;
use squall_model::step::{Inside, StepSpec, TaskProgram};
use squall_model::time::Span;
use squall_model::wire::client::{Answer, Refusal, Request};
use squall_model::wire::hook::NodeNote;
use squall_model::wire::node::Down;

use crate::control::Input;
use crate::control::port::CallerId;
use crate::control::tests::driver::{ADA, Driver, batch};
use crate::control::tests::hooks::cluster;

/// Connections of the `srun` and of the user who wants checkpoints.
const SRUN: u64 = 9;
const USER: u64 = 7;

/// Asks for a step; returns the answers' refusals.
fn step(d: &mut Driver, job: JobId, key: ClientKey, inside: Option<Inside>) -> Vec<Answer> {
    let program = Box::new(TaskProgram { inside: inside.as_ref().map(|_| true), ..TaskProgram::default() });
    let spec = Box::new(StepSpec { inside, ..StepSpec::default() });
    d.ask(SRUN, ADA, Request::CreateStep { job, spec, program, key })
}

fn number(answers: &[Answer]) -> Option<StepNo> {
    answers.iter().find_map(|answer| if let Answer::StepCreated { step, .. } = answer { Some(*step) } else { None })
}

/// Answers the order of a checkpoint that the node was sent last.
fn made(d: &mut Driver) {
    let sent = std::mem::take(&mut d.sent).into_iter();
    let order = sent.filter_map(|(_, said)| if let Down::Checkpoint(order) = said { Some(order) } else { None }).last();
    let order = order.expect("an order");
    let made = Some(Made { bytes: 1 << 20, stood: Span::from_millis(50), pid: 4711, links: None });
    let note = CheckpointNote {
        job: order.job,
        number: order.number,
        verb: order.verb,
        made,
        error: None,
        damaged: false,
        given: order.given,
    };
    d.note("n1", NodeNote::Checkpoint(Box::new(note)));
}

#[test]
fn a_step_outside_of_the_script_is_in_the_way_and_one_inside_is_not() {
    let mut d = cluster("checkpoint_dir = \"/c\"\n");
    let id = d.submit(batch());
    let key = d.key();
    assert_eq!(number(&step(&mut d, id, key, None)), Some(StepNo(0)));
    let refused = d.ask(USER, ADA, Request::Checkpoint(id, CheckpointVerb::Create));
    let [Answer::Refused(Refusal::WrongState(why))] = &refused[..] else { panic!("{refused:?}") };
    assert!(why.contains("step 0 runs outside of the script"), "{why}");
    d.finish(id, 0);
    let id = d.submit(batch());
    let key = d.key();
    assert_eq!(number(&step(&mut d, id, key, Some(Inside::default()))), Some(StepNo(0)));
    assert_eq!(d.ask(USER, ADA, Request::Checkpoint(id, CheckpointVerb::Create)), [], "it is ordered");
    made(&mut d);
    assert_eq!(d.state_of(id), Some(JobState::Running));
}

#[test]
fn a_restored_step_has_its_number_again_and_nobody_else_chooses_one() {
    let mut d = cluster("checkpoint_dir = \"/c\"\n");
    let id = d.submit(batch());
    let chosen = Some(Inside { resumes: Some(StepNo(5)), places: None });
    let (first, second) = (d.key(), d.key());
    assert_eq!(number(&step(&mut d, id, first, chosen.clone())), Some(StepNo(0)), "this attempt was not restored");
    d.ask(USER, ADA, Request::Checkpoint(id, CheckpointVerb::Vacate));
    made(&mut d);
    let reports = d.script_end(id, 0);
    d.report("n1", &reports);
    assert!(d.c.state().jobs[&id].run().is_some_and(|run| run.restore.is_some()), "it goes on");
    assert_eq!(number(&step(&mut d, id, first, chosen.clone())), Some(StepNo(5)));
    assert_eq!(number(&step(&mut d, id, first, chosen.clone())), Some(StepNo(5)), "it is the same step");
    let other = Some(Inside { resumes: Some(StepNo(5)), places: None });
    let spec = Box::new(StepSpec { inside: other, overlap: true, ..StepSpec::default() });
    let again = d.ask(SRUN, ADA, Request::CreateStep { job: id, spec, program: Box::default(), key: second });
    assert_eq!(number(&again), Some(StepNo(6)), "the number is taken");
    let wild = Some(Inside { resumes: Some(StepNo::BATCH), places: None });
    let (spec, key) = (Box::new(StepSpec { inside: wild, overlap: true, ..StepSpec::default() }), d.key());
    let wild = d.ask(SRUN, ADA, Request::CreateStep { job: id, spec, program: Box::default(), key });
    assert_eq!(number(&wild), Some(StepNo(7)));
}

#[test]
fn an_srun_that_has_parted_for_a_checkpoint_is_waited_for() {
    let mut d = cluster("checkpoint_dir = \"/c\"\n");
    let id = d.submit(batch());
    let key = d.key();
    step(&mut d, id, key, Some(Inside::default()));
    d.ask(USER, ADA, Request::Checkpoint(id, CheckpointVerb::Create));
    d.step(Input::Hangup { caller: CallerId(SRUN), away: false });
    let ended = |d: &Driver| d.sent.iter().any(|(_, said)| matches!(said, Down::EndStep { .. }));
    d.pass(3 * STEP_OWNER_GRACE_S);
    assert!(!ended(&d), "it stands still");
    made(&mut d);
    d.pass(2 * STEP_OWNER_GRACE_S);
    assert!(ended(&d), "it has not come back");
}
