//! Who may do what: every verb by owner, other user and operator.

use squall_model::config::PartitionState;
use squall_model::event::NodeAdmin;
use squall_model::id::{ClientKey, JobId, StepNo};
use squall_model::job::JobSpec;
use squall_model::wire::client::{Answer, JobSelection, JobUpdate, Refusal, Request};
use squall_model::wire::node::SignalTarget;

use crate::control::decide::tests::{ADA, BOB, World, cancel, operator, these, user};

/// Whether the controller said no for lack of rights.
fn is_denied(answers: &[Answer]) -> bool {
    answers.iter().any(|answer| match answer {
        Answer::Refused(refusal) => *refusal == Refusal::AccessDenied,
        Answer::Affected { refused, .. } => refused.iter().any(|(_, refusal)| *refusal == Refusal::AccessDenied),
        _ => false,
    })
}

type Make = fn(JobId) -> Request;

/// Verb, and whether owner, other user and operator may.
const MATRIX: [(&str, Make, [bool; 3]); 22] = [
    ("cancel", |id| cancel(these(&[id])), [true, false, true]),
    ("signal", |id| signal(id, None), [true, false, true]),
    ("cancel step", |id| signal(id, Some(StepNo::BATCH)), [true, false, true]),
    ("hold", |id| Request::Hold { jobs: these(&[id]), user: false }, [true, false, true]),
    ("release", |id| Request::Release { jobs: these(&[id]) }, [true, false, true]),
    ("requeue", |id| Request::Requeue { jobs: these(&[id]), hold: false, from: None }, [true, false, true]),
    ("suspend", |id| Request::Suspend { jobs: these(&[id]), suspend: true }, [false, false, true]),
    ("update", |id| update(id, |u| u.comment = Some("x".into())), [true, false, true]),
    ("less time", |id| update(id, |u| u.time_limit_s = Some(Some(60))), [true, false, true]),
    ("more time", |id| update(id, |u| u.time_limit_s = Some(None)), [false, false, true]),
    ("facts", |id| Request::Facts { job: id }, [true, false, false]),
    ("measure", |id| Request::Measure { job: id, step: StepNo::BATCH }, [true, false, true]),
    ("watch", |id| Request::Watch { job: id, step: StepNo(0), watcher: None }, [true, false, false]),
    ("notify", |id| Request::Notify { job: id, text: "x".into() }, [true, false, true]),
    ("step", |id| step(id), [true, false, false]),
    ("await", |id| Request::AwaitJob { job: id }, [true, false, true]),
    ("nodes", |_| nodes_down(), [false, false, true]),
    ("partition", |_| partition(), [false, false, true]),
    ("reconfigure", |_| Request::Reconfigure { config: Some(Box::default()) }, [false, false, true]),
    ("reset", |_| Request::Diag { reset: true }, [false, false, true]),
    ("diag", |_| Request::Diag { reset: false }, [true, true, true]),
    ("list", |id| Request::Jobs { jobs: these(&[id]), ended: false, steps: true }, [true, true, true]),
];

fn signal(id: JobId, step: Option<StepNo>) -> Request {
    Request::Cancel { jobs: these(&[id]), signal: Some((10, SignalTarget::Steps)), step, verbose: true }
}

fn update(id: JobId, change: fn(&mut JobUpdate)) -> Request {
    let mut update = JobUpdate::default();
    change(&mut update);
    Request::UpdateJob { jobs: these(&[id]), change: Box::new(update) }
}

fn step(job: JobId) -> Request {
    Request::CreateStep { job, spec: Box::default(), program: Box::default(), key: ClientKey(99) }
}

fn nodes_down() -> Request {
    crate::control::decide::tests::update_nodes("n1", NodeAdmin::Drain)
}

fn partition() -> Request {
    Request::UpdatePartition { name: "debug".into(), state: PartitionState::Down }
}

#[test]
fn the_matrix_holds() {
    for (verb, make, expected) in MATRIX {
        for (who, may) in [user(ADA), user(BOB), operator()].iter().zip(expected) {
            let mut world = World::new();
            let id = world.submit(ADA, JobSpec { time_limit_s: Some(600), ..Default::default() });
            world.start(id, 1, 1);
            let turn = world.ask(who, make(id));
            let answers: Vec<Answer> = turn.answers.into_iter().map(|(_, answer)| answer).collect();
            assert_eq!(!is_denied(&answers), may, "{verb} by {}: {answers:?}", who.owner.user);
            if !may {
                assert_eq!((turn.events, turn.sends), (vec![], vec![]), "{verb} by {}", who.owner.user);
            }
        }
    }
}

#[test]
fn filters_find_only_ones_own_jobs() {
    let mut world = World::new();
    let (a, b) = (world.running(ADA), world.submit(BOB, JobSpec::default()));
    let array = world.array(BOB, 9);
    let answer = world.answer(&user(ADA), cancel(JobSelection::default()));
    assert_eq!(crate::control::decide::tests::affected(answer).0, [a.to_string()]);
    assert!(world.c.state.jobs[&b].is_pending());
    let answer = world.answer(&operator(), cancel(JobSelection::default()));
    assert_eq!(crate::control::decide::tests::affected(answer).0, [b.to_string(), array.to_string()]);
}

#[test]
fn a_denied_array_is_left_alone() {
    let mut world = World::new();
    let array = world.array(ADA, 9);
    for wanted in [these(&[array]), crate::control::decide::tests::tasks(array, 2, 3), these(&[JobId(array.0 + 1)])] {
        let turn = world.ask(&user(BOB), cancel(wanted));
        assert_eq!(turn.events, []);
        assert!(is_denied(&turn.answers.into_iter().map(|(_, answer)| answer).collect::<Vec<_>>()));
    }
}

#[test]
fn scripts_are_read_by_owner_and_operator() {
    let mut world = World::new();
    let digest = squall_model::job::Digest([7; 32]);
    let id = world.submit(ADA, JobSpec { script: Some(digest), ..Default::default() });
    assert_eq!(world.c.script_of(&user(ADA), id), Ok(digest));
    assert_eq!(world.c.script_of(&operator(), id), Ok(digest));
    assert_eq!(world.c.script_of(&user(BOB), id), Err(Refusal::AccessDenied));
    assert_eq!(world.c.script_of(&user(ADA), JobId(99)), Err(Refusal::InvalidJobId));
}
