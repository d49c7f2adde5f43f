//! Who may do what: every verb by owner, other user and operator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use squall_model::checkpoint::CheckpointVerb;
use squall_model::config::PartitionState;
use squall_model::encoding::{self, ByteBuf};
use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{ClientKey, JobId, NodeId, StepNo};
use squall_model::job::{Digest, ExitCode, JobKind, JobSpec};
use squall_model::policy::{Account, PolicyChange};
use squall_model::power::PowerWish;
use squall_model::wire::broadcast::{Broadcast, BroadcastTo};
use squall_model::wire::client::{
    Answer, AnyRequest, CellsAsked, HostProblem, HostRequest, JobSelection, JobUpdate, Refusal, Request, Right,
};
use squall_model::wire::fabric::{Bytes, Comparison, Test, Variable};
use squall_model::wire::node::SignalTarget;

use crate::control::decide::tests::{ADA, BOB, World, cancel, operator, these, update_nodes, user};
use crate::control::port::Who;

/// Whether the controller said no for lack of rights.
fn is_denied(answers: &[Answer]) -> bool {
    answers.iter().any(|answer| match answer {
        Answer::Refused(refusal) => *refusal == Refusal::AccessDenied,
        Answer::Affected { refused, .. } => refused.iter().any(|(_, refusal)| *refusal == Refusal::AccessDenied),
        _ => false,
    })
}

type Make = fn(JobId) -> Request;
type MakeForHost = fn(JobId) -> HostRequest;

const ALL: [bool; 3] = [true, true, true];
/// The job's owner and operators.
const JOB: [bool; 3] = [true, false, true];
/// The job's owner alone.
const ENTER: [bool; 3] = [true, false, false];
const OPERATE: [bool; 3] = [false, false, true];

/// Verb, and whether owner, other user and operator may.
const MATRIX: [(&str, Make, [bool; 3]); 70] = [
    ("submit", |_| submit(JobSpec::default()), ALL),
    ("submit with a priority", |_| submit(JobSpec { priority: Some(9), ..JobSpec::default() }), OPERATE),
    ("test", |_| Request::TestSubmit { spec: Arc::default() }, ALL),
    ("allocate", |_| allocate(), ALL),
    ("submit het", |_| submit_het(), ALL),
    ("attach", |job| Request::Attach { job }, ENTER),
    ("finish", |job| Request::Finish { job, exit: ExitCode::OK }, ENTER),
    ("facts", |job| Request::Facts { job }, ENTER),
    ("step", step, ENTER),
    ("watch", |job| Request::Watch { job, step: StepNo(0), watcher: None }, ENTER),
    ("broadcast to a job", |job| broadcast(BroadcastTo::Job { jobs: vec![job], step: None }), ENTER),
    ("broadcast", |_| broadcast(BroadcastTo::Nodes("n1".into())), OPERATE),
    ("chunk", |_| Request::Chunk { at: 0, bytes: Bytes(Arc::from([])) }, ALL),
    ("recall", |_| Request::Recall { known_as: Digest([0; 32]) }, ALL),
    ("await", |job| Request::AwaitJob { job }, JOB),
    ("cancel", |id| cancel(these(&[id])), JOB),
    ("signal", |id| signal(id, None), JOB),
    ("cancel step", |id| signal(id, Some(StepNo::BATCH)), JOB),
    ("hold", |id| Request::Hold { jobs: these(&[id]), user: false }, JOB),
    ("release", |id| Request::Release { jobs: these(&[id]) }, JOB),
    ("requeue", |id| Request::Requeue { jobs: these(&[id]), hold: false, from: None, special: None }, JOB),
    ("replace", |id| Request::Replace(id, "n1".into()), JOB),
    ("checkpoint", |id| Request::Checkpoint(id, CheckpointVerb::Create), JOB),
    ("suspend", |id| Request::Suspend { jobs: these(&[id]), suspend: true }, OPERATE),
    ("top", |id| Request::Top { jobs: these(&[id]) }, OPERATE),
    ("update", |id| update(id, |u| u.comment = Some("x".into())), JOB),
    ("less time", |id| update(id, |u| u.time_limit_s = Some(Some(60))), JOB),
    ("more time", |id| update(id, |u| u.time_limit_s = Some(None)), OPERATE),
    ("update step", |job| Request::UpdateStep { job, step: None, time_limit_s: None }, JOB),
    ("measure", |job| Request::Measure { job, step: StepNo::BATCH, lately: false }, JOB),
    ("notify", |job| Request::Notify { job, text: "x".into() }, JOB),
    ("record", |job| record(job, "comment"), JOB),
    ("record of operators", |job| record(job, "admin-comment"), OPERATE),
    ("update nodes", |_| update_nodes("n1", NodeAdmin::Drain), OPERATE),
    ("reboot", |_| Request::Reboot { nodes: "n1".into(), asap: false, next: None, reason: None }, OPERATE),
    ("power", |_| Request::Power { nodes: "n1".into(), wish: PowerWish::Up }, OPERATE),
    ("create nodes", |_| Request::CreateNodes(Box::default()), OPERATE),
    ("delete nodes", |_| Request::DeleteNodes("n1".into()), OPERATE),
    ("future nodes", |_| Request::FutureNodes, ALL),
    ("cancel reboot", |_| Request::CancelReboot { nodes: "n1".into() }, OPERATE),
    ("update partition", |_| Request::UpdatePartition { name: "debug".into(), state: PartitionState::Down }, OPERATE),
    (
        "change partition",
        |_| Request::ChangePartition { name: "p".into(), was: None, now: Some(Box::default()) },
        OPERATE,
    ),
    ("reserve", |_| Request::Reserve { change: Box::default(), create: true }, OPERATE),
    ("unreserve", |_| Request::Unreserve { name: "x".into() }, OPERATE),
    ("reconfigure", |_| Request::Reconfigure { config: Some(Box::default()) }, OPERATE),
    ("shut down", |_| Request::ShutDown { keep_jobs: true }, OPERATE),
    ("query nodes", |_| query_nodes(), OPERATE),
    ("change policy", |_| change_policy(), OPERATE),
    ("raise version", |_| Request::RaiseVersion { to: None, others: Vec::new() }, OPERATE),
    ("rotate keys", |_| Request::RotateKeys { grace_s: 0, keys: None }, OPERATE),
    ("unresolved", |_| Request::Unresolved, OPERATE),
    ("resolve", |_| Request::Resolve { questions: Vec::new() }, OPERATE),
    ("resolved", |_| Request::Resolved { replies: Vec::new() }, OPERATE),
    ("reset", |_| Request::Diag { reset: true }, OPERATE),
    ("diag", |_| Request::Diag { reset: false }, ALL),
    ("list", |id| Request::Jobs { jobs: these(&[id]), ended: false, steps: true }, ALL),
    ("follow", |_| Request::Follow { from: None, jobs: Box::default(), kinds: Vec::new() }, ALL),
    ("nodes", |_| Request::Nodes, ALL),
    ("partitions", |_| Request::Partitions, ALL),
    ("raise version", |_| Request::RaiseVersion { to: None, others: Vec::new() }, OPERATE),
    ("config", |_| Request::Config, ALL),
    ("ping", |_| Request::Ping, ALL),
    ("licenses", |_| Request::Licenses, ALL),
    ("reservations", |_| Request::Reservations, ALL),
    ("policy", |_| Request::Policy, ALL),
    ("priorities", |id| Request::Priorities { jobs: these(&[id]) }, ALL),
    ("shares", |_| Request::Shares, ALL),
    ("expected", |_| Request::Expected, ALL),
    ("why", |job| Request::Why { job }, ALL),
    ("caller", |_| Request::Caller, ALL),
];

/// Request of the daemon, and whether owner, other user and operator may. From where it may come is the daemon's to check.
const OF_HOST: [(&str, MakeForHost, [bool; 3]); 13] = [
    ("accounting", |_| HostRequest::Accounting(Box::default()), ALL),
    ("history", |_| HostRequest::History, ALL),
    ("script", |job| HostRequest::Script { job }, JOB),
    ("tail", |job| HostRequest::Tail { job, past: false, errors: false }, ENTER),
    ("tail of a past job", |job| HostRequest::Tail { job, past: true, errors: true }, ALL),
    ("token", |_| HostRequest::Token { user: None, lifespan_s: None, link: false }, ALL),
    ("token of another", |_| HostRequest::Token { user: Some("x".into()), lifespan_s: None, link: false }, OPERATE),
    ("revoke tokens", |_| HostRequest::RevokeTokens { user: None }, ALL),
    ("revoke tokens of another", |_| HostRequest::RevokeTokens { user: Some("x".into()) }, OPERATE),
    ("controllers", |_| HostRequest::Controllers, ALL),
    ("step down", |_| HostRequest::StepDown { to: None }, OPERATE),
    ("backup", |_| HostRequest::Backup, OPERATE),
    ("copy log", |_| HostRequest::CopyLog, ALL),
];

/// Returns a request of each kind at least, about a job.
pub(crate) fn every(job: JobId) -> Vec<AnyRequest> {
    let of_host = OF_HOST.iter().map(|(_, make, _)| make(job).into());
    MATRIX.iter().map(|(_, make, _)| make(job).into()).chain(of_host).collect()
}

fn submit(spec: JobSpec) -> Request {
    Request::Submit {
        spec: spec.into(),
        script: b"#!/bin/sh\n".to_vec().into(),
        env: ByteBuf::new(),
        key: ClientKey(98),
    }
}

fn allocate() -> Request {
    let spec = JobSpec { kind: JobKind::Allocation, ..JobSpec::default() };
    Request::Allocate { spec: spec.into(), env: ByteBuf::new(), key: ClientKey(97), immediate_s: None, step: None }
}

fn submit_het() -> Request {
    let (specs, key) = (vec![JobSpec::default(); 2], ClientKey(96));
    Request::SubmitHet { specs, script: ByteBuf::new(), env: ByteBuf::new(), key, immediate_s: None }
}

fn broadcast(to: BroadcastTo) -> Request {
    let (digest, place, time_ms, known_as) = (Digest([0; 32]), None, None, None);
    Request::Broadcast(Box::new(Broadcast { to, digest, size: 1, shared: false, place, time_ms, known_as }))
}

fn record(job: JobId, name: &str) -> Request {
    Request::Record(job, vec![(name.to_owned(), "x".to_owned())])
}

fn query_nodes() -> Request {
    let test = Test { variable: Variable::Heard, comparison: Comparison::Equal, value: 0 };
    Request::QueryNodes { nodes: String::new(), test, wait: false, write: None, time_ms: 1 }
}

fn change_policy() -> Request {
    let changes = vec![PolicyChange::Account("phys".into(), Some(Account::default()))];
    Request::ChangePolicy { version: 0, changes }
}

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

/// Returns the number that a request has on the wire.
fn number(request: &AnyRequest) -> u64 {
    minicbor::Decoder::new(&encoding::to_vec(request)[1..]).u64().unwrap()
}

#[test]
fn the_matrix_has_every_request() {
    // A request without fields: one that exists lacks some, or is whole.
    let exists = |number: &u64| {
        let bytes = encoding::to_vec(&(*number, [0_u8; 0]));
        minicbor::decode::<AnyRequest>(&bytes).map_or_else(|e| !e.is_unknown_variant(), |_| true)
    };
    let all: BTreeSet<u64> = (0..=255).filter(exists).collect();
    let covered: BTreeSet<u64> = every(JobId(1)).iter().map(number).collect();
    assert!(all.len() >= 69);
    assert_eq!(covered, all, "each kind of request has a row");
}

#[test]
fn each_row_has_all_parts() {
    let mut kinds: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    let all = every(JobId(1));
    for request in &all {
        let row = request.row();
        assert!(row.kind.starts_with("REQUEST_") && row.kind.len() > 8, "{request:?}");
        assert!(!row.standby || row.right == Right::Nothing, "{request:?}: a standby decides nothing");
        assert!(!matches!(row.cells, CellsAsked::Own(text) if text.is_empty()), "{request:?}");
        kinds.entry(row.kind).or_default().insert(number(request));
    }
    // As Slurm, which has one message type for these.
    kinds.retain(|_, numbers| numbers.len() > 1);
    let shared: Vec<&str> = kinds.into_keys().collect();
    assert_eq!(shared, ["REQUEST_NODE_INFO", "REQUEST_REBOOT_NODES", "REQUEST_UPDATE_NODE"]);
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
fn the_matrix_of_the_host_holds() {
    let mut world = World::new();
    let id = world.submit(ADA, JobSpec::default());
    for (verb, make, expected) in OF_HOST {
        for (who, may) in [user(ADA), user(BOB), operator()].iter().zip(expected) {
            let allowed = world.c.authorize(who, make(id).row().right);
            assert_eq!(allowed, if may { Ok(()) } else { Err(Refusal::AccessDenied) }, "{verb}");
        }
    }
}

#[test]
fn cve_2024_48936_nobody_runs_or_watches_a_step_in_anothers_job() {
    let watch: Make = |id| Request::Watch { job: id, step: StepNo(0), watcher: None };
    let facts: Make = |id| Request::Facts { job: id };
    for made in [step, watch, facts] {
        for stranger in [user(BOB), operator()] {
            let mut world = World::new();
            let id = world.running(ADA);
            let turn = world.ask(&stranger, made(id));
            let answers: Vec<Answer> = turn.answers.into_iter().map(|(_, answer)| answer).collect();
            assert!(is_denied(&answers), "{answers:?}");
            assert_eq!((turn.events, turn.sends), (vec![], vec![]));
        }
    }
}

#[test]
fn cve_2026_65107_nobody_sends_a_file_into_anothers_job() {
    let mut world = World::new();
    let id = world.running(ADA);
    let file = Broadcast {
        to: BroadcastTo::Job { jobs: vec![id], step: None },
        digest: Digest([7; 32]),
        size: 1,
        shared: false,
        place: None,
        time_ms: None,
        known_as: None,
    };
    let turn = world.ask(&user(BOB), Request::Broadcast(Box::new(file)));
    let answers: Vec<Answer> = turn.answers.into_iter().map(|(_, answer)| answer).collect();
    assert!(is_denied(&answers), "{answers:?}");
    assert_eq!((turn.events, turn.sends), (vec![], vec![]));
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

/// Asks for the script of a job as the daemon does.
fn script(world: &World, who: &Who, job: JobId) -> Result<Digest, Refusal> {
    world.c.authorize(who, HostRequest::Script { job }.row().right)?;
    world.c.script_of(job)
}

#[test]
fn cve_2021_43337_scripts_are_read_by_owner_and_operator() {
    let mut world = World::new();
    let digest = Digest([7; 32]);
    let id = world.submit(ADA, JobSpec { script: Some(digest), ..Default::default() });
    assert_eq!(script(&world, &user(ADA), id), Ok(digest));
    assert_eq!(script(&world, &operator(), id), Ok(digest));
    assert_eq!(script(&world, &user(BOB), id), Err(Refusal::AccessDenied));
    assert_eq!(script(&world, &user(ADA), JobId(99)), Err(Refusal::InvalidJobId));
}

#[test]
fn a_node_speaks_for_the_jobs_that_it_has() {
    let mut world = World::new();
    let here = world.running(ADA);
    let by_node = Who { by: Some(NodeId(0)), ..user(ADA) };
    let elsewhere = world.submit(ADA, JobSpec { script: Some(Digest([7; 32])), ..JobSpec::default() });
    let of_bob = world.submit(BOB, JobSpec::default());
    let refused = Refusal::NotFrom("n1".into(), HostProblem::OtherJob);
    for request in [cancel(these(&[elsewhere])), Request::Hold { jobs: these(&[elsewhere]), user: false }] {
        let answer = world.answer(&by_node, request);
        let refusals = crate::control::decide::tests::affected(answer).1;
        assert_eq!(refusals.into_values().collect::<Vec<_>>(), std::slice::from_ref(&refused));
    }
    assert_eq!(world.refusal(&by_node, Request::Facts { job: elsewhere }), refused);
    assert_eq!(script(&world, &by_node, elsewhere), Err(refused));
    assert_eq!(world.refusal(&by_node, record(elsewhere, "comment")), Refusal::AccessDenied);
    assert_eq!(world.refusals(&by_node, cancel(these(&[of_bob]))), 1);
    // What it submits is the job's, whatever it claims, and so is what that submits.
    let mut nested = here;
    for claimed in [None, Some(elsewhere), Some(of_bob), Some(JobId(999)), Some(here)] {
        let spec = JobSpec { within: claimed, ..JobSpec::default() }.into();
        let key = world.key();
        let script = ByteBuf::from(b"#!/bin/sh\n".to_vec());
        let request = Request::Submit { spec, script, env: ByteBuf::new(), key };
        let Answer::Submitted { job, .. } = world.answer(&by_node, request) else { panic!("{claimed:?}") };
        assert_eq!(world.c.state.jobs[&job].spec.within, Some(here), "{claimed:?}");
        nested = job;
    }
    let spec = JobSpec { within: Some(nested), ..JobSpec::default() };
    let inner = world.submit(ADA, spec);
    a6_what_runs_in_a_job_that_a_node_vouched_for_reaches_no_more(&mut world, (nested, inner, elsewhere));
    // A filter finds these only.
    let answer = world.answer(&by_node, cancel(JobSelection::default()));
    let found = crate::control::decide::tests::affected(answer).0;
    assert!(found.contains(&inner.to_string()) && found.contains(&here.to_string()), "{found:?}");
    assert!(!found.contains(&elsewhere.to_string()), "{found:?}");
    assert!(world.c.state.jobs[&elsewhere].is_pending());
    // A user that no node vouches for may do all this, and a site may trust its nodes.
    assert_eq!(world.refusals(&user(ADA), Request::Hold { jobs: these(&[elsewhere]), user: true }), 0);
    let mut config = (*world.c.state.config).clone();
    config.nodes_vouch_for_users.0 = true;
    let config = Arc::new(config);
    world.commit(Event::Configured { config });
    assert_eq!(world.refusals(&by_node, cancel(these(&[elsewhere]))), 0);
}

/// Regression test of fault A6 in attack-trial.md: `nested` was submitted by way of a node that may have been taken over. What
/// runs in it has the limits of that node, on whichever machine, and so has what it submits.
fn a6_what_runs_in_a_job_that_a_node_vouched_for_reaches_no_more(
    world: &mut World,
    (nested, inner, elsewhere): (JobId, JobId, JobId),
) {
    assert_eq!(world.c.state.jobs[&nested].spec.vouched_by, Some(NodeId(0)));
    assert_eq!(world.c.state.jobs[&elsewhere].spec.vouched_by, None);
    let refused = Refusal::NotFrom("n1".into(), HostProblem::OtherJob);
    // On the controller's machine the kernel tells who the user is; on another node that node does.
    let here = Who { job: Some(nested), ..user(ADA) };
    for inside in [here.clone(), Who { by: Some(NodeId(0)), ..here.clone() }] {
        assert_eq!(world.c.vouching(&inside), Some("n1"), "it gets no tokens");
        assert_eq!(script(world, &inside, elsewhere), Err(refused.clone()));
        assert_eq!(world.refusal(&inside, Request::Facts { job: elsewhere }), refused);
        assert_eq!(world.refusals(&inside, Request::Hold { jobs: these(&[elsewhere]), user: true }), 1);
        assert_eq!(world.refusals(&inside, Request::Hold { jobs: these(&[nested, inner]), user: true }), 0);
    }
    // The mark stays with what it submits, whatever that claims.
    let spec = submitted(world, &here, Some(elsewhere));
    assert_eq!((spec.within, spec.vouched_by), (Some(nested), Some(NodeId(0))));
    // A job that the user submitted, or one of somebody else, gives no mark; nor does a user who claims one.
    for job in [elsewhere, JobId(999)] {
        assert_eq!(world.c.vouching(&Who { job: Some(job), ..user(ADA) }), None);
    }
    assert_eq!(world.c.vouching(&Who { job: Some(nested), ..user(BOB) }), None);
    assert_eq!(submitted(world, &user(ADA), None).vouched_by, None);
}

/// The spec of a job that this user submits, who claims to do that from within a job, and that a node vouched.
fn submitted(world: &mut World, who: &Who, within: Option<JobId>) -> Arc<JobSpec> {
    let spec = JobSpec { within, vouched_by: Some(NodeId(7)), ..JobSpec::default() }.into();
    let (key, script) = (world.key(), ByteBuf::from(b"#!/bin/sh\n".to_vec()));
    let request = Request::Submit { spec, script, env: ByteBuf::new(), key };
    let Answer::Submitted { job, .. } = world.answer(who, request) else { panic!("everybody may submit") };
    Arc::clone(&world.c.state.jobs[&job].spec)
}
