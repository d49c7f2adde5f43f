//! Bytes written by a release are read by every later one: events as they stand in journals, kept as hex.
//!
//! A line that no longer decodes to the same value is a broken promise, not a file to be renewed.
//! New variants are added at the end: SQUALL_GOLDEN=renew appends what is missing.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that keeps its bytes in a file")]

use std::fmt::Write;
use std::sync::Arc;

use squall_model::config::Config;
use squall_model::event::{Event, JobChange, NodeAdmin, NodeChange, Record, Requeue};
use squall_model::foreign::{Named, Question, Reply};
use squall_model::gang::{Shift, Turn};
use squall_model::gres::Grant;
use squall_model::id::{Attempt, ClientKey, Epoch, Incarnation, JobId, NodeId, StepNo};
use squall_model::job::{
    ArraySpec, Dependency, DependencyJob, DependencyKind, DependencyTerm, EndState, ExitCode, JobSpec, Outcome, Owner,
};
use squall_model::policy::{Account, AdminLevel, AssocKey, Association, Limit, PolicyChange, PreemptMode, Qos, User};
use squall_model::report::StepEnd;
use squall_model::reservation::{Flag, Reservation};
use squall_model::resource::{Alloc, AllocGroup, Hardware};
use squall_model::set::{BitSet, IndexSet, NodeSet};
use squall_model::step::{Distribution, Layout, StepSpec};
use squall_model::time::{Span, Time};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/events.txt");

#[test]
fn events_of_every_release_are_read() {
    let mut kept = std::fs::read_to_string(FILE).unwrap_or_default();
    let samples = samples();
    let lines = kept.lines().count();
    if std::env::var_os("SQUALL_GOLDEN").is_some() {
        for event in &samples[lines.min(samples.len())..] {
            kept.push_str(&hex(&postcard::to_stdvec(&record(event.clone())).unwrap()));
            kept.push('\n');
        }
        std::fs::create_dir_all(std::path::Path::new(FILE).parent().unwrap()).unwrap();
        std::fs::write(FILE, &kept).unwrap();
    }
    assert_eq!(kept.lines().count(), samples.len(), "an event has no line in {FILE}");
    for (line, event) in kept.lines().zip(samples) {
        let read: Record = postcard::from_bytes(&unhex(line)).unwrap_or_else(|e| panic!("{event:?}: {e}"));
        assert_eq!(read, record(event));
    }
}

fn record(event: Event) -> Record {
    Record { seq: 7, time: Time(1_700_000_000_000_000), events: vec![event] }
}

fn spec() -> Arc<JobSpec> {
    let term = DependencyTerm {
        when: DependencyKind::AfterOk,
        job: Some(DependencyJob { id: JobId(3), index: Some(1), delay_min: 0 }),
    };
    Arc::new(JobSpec {
        name: "golden".into(),
        time_limit_s: Some(60),
        dependency: Some(Dependency { terms: vec![term], any: false }),
        array: Some(ArraySpec { indices: IndexSet::range(0, 9), limit: Some(2), text: "0-9%2".into() }),
        ..JobSpec::default()
    })
}

fn alloc() -> Alloc {
    Alloc { groups: vec![AllocGroup { nodes: NodeSet::one(NodeId(4)), cores: BitSet::first(3), memory_mb: 100 }] }
}

fn outcome() -> Outcome {
    let exit = ExitCode { code: 3, signal: 9 };
    Outcome { state: EndState::Cancelled { by: 1000 }, exit, reason: Some("why".into()) }
}

fn end() -> StepEnd {
    let (exit, usage) = (ExitCode::OK, squall_model::job::Usage::default());
    StepEnd { exit, oom: false, lost: true, usage, started: Time(1), ended: Time(2), note: None }
}

fn changes() -> Vec<PolicyChange> {
    let limits = [(Limit::GrpJobs, 3), (Limit::MinNode, 1)].into_iter().collect();
    let user = User { default_account: "a".into(), admin: AdminLevel::Operator };
    let association = Association { id: 4, parent: "b".into(), shares: None, limits, ..Association::default() };
    let qos = Qos { preempt: vec!["low".into()], preempt_mode: Some(PreemptMode::Requeue), ..Qos::default() };
    vec![
        PolicyChange::Account("a".into(), Some(Account { description: "x".into(), ..Account::default() })),
        PolicyChange::User("u".into(), Some(user)),
        PolicyChange::Association(AssocKey::user("a", "u"), Some(association)),
        PolicyChange::Qos("high".into(), Some(qos)),
        PolicyChange::Qos("low".into(), None),
    ]
}

fn forgotten() -> Vec<PolicyChange> {
    vec![PolicyChange::Forget(AssocKey::user("a", "u")), PolicyChange::ForgetQos("high".into())]
}

fn reservation(node: NodeId) -> Reservation {
    Reservation {
        name: "maint".into(),
        start: Time(1),
        end: Time(2),
        nodes: NodeSet::one(node),
        users: vec!["root".into()],
        flags: Flag::NAMES.into_iter().map(|(_, flag)| flag).collect(),
        ..Reservation::default()
    }
}

/// One of each kind, in the order of the enum.
fn samples() -> Vec<Event> {
    let (id, node, attempt, step, incarnation) = (JobId(12), NodeId(4), Attempt(2), StepNo(0), Incarnation(5));
    let requeue = Requeue { hold: true, not_before: Some(Time(9)) };
    vec![
        Event::ControllerStarted { epoch: Epoch(3), version: "0.1.0".into() },
        // The default of arrays was another one when its bytes were written.
        Event::Configured { config: Arc::new(Config { max_array_size: 4_000_001, ..Config::default() }) },
        Event::NodeRegistered { node, name: "n5".into(), incarnation, hardware: Hardware::default() },
        Event::NodeDown { node, reason: "silent".into() },
        Event::NodeUp { node },
        Event::NodesSet { nodes: NodeSet::one(node), admin: NodeAdmin::Drain, reason: Some("fan".into()), by: 0 },
        Event::JobSubmitted { id, key: ClientKey(8), owner: Arc::new(Owner::default()), spec: spec() },
        Event::JobStarted { id, attempt, partition: "debug".into(), alloc: alloc() },
        Event::StepStarted {
            job: id,
            step,
            key: ClientKey(9),
            spec: Arc::new(StepSpec::default()),
            alloc: alloc(),
            layout: Layout {
                nodes: ["n5"].into_iter().collect(),
                tasks: vec![2].into(),
                distribution: Distribution::Block,
                cpus_per_task: 1,
            },
        },
        Event::StepNodesEnded { job: id, attempt, step: StepNo::BATCH, nodes: NodeSet::one(node), end: end() },
        Event::JobEnding { id, outcome: outcome(), requeue: Some(requeue) },
        Event::NodesReleased { id, attempt, nodes: NodeSet::one(node) },
        Event::TasksEnded { array: id, tasks: IndexSet::range(2, 5), outcome: outcome() },
        Event::JobHeld { id, admin: true, whole: true },
        Event::JobReleased { id, whole: false },
        Event::JobUpdated { id, whole: true, change: JobChange { priority: Some(1), ..JobChange::default() } },
        Event::JobRequeued { id, requeue },
        Event::JobSuspended { id, suspended: true },
        Event::Forgotten { ended_before: Time(5) },
        Event::PartitionSet { name: "debug".into(), state: squall_model::config::PartitionState::Drain },
        Event::StepAbandoned { job: id, step, outcome: outcome() },
        Event::PolicyChanged { changes: changes(), by: 0 },
        Event::JobPreempted { id, attempt, until: Time(5) },
        Event::GresGranted {
            job: id,
            step: Some(step),
            grants: vec![Grant { nodes: NodeSet::one(node), name: "gpu".into(), indices: BitSet::first(2) }],
        },
        Event::ReservationSet { reservation: Box::new(reservation(node)) },
        Event::ReservationGone { name: "maint".into() },
        Event::Ganged { shifts: vec![Shift { job: id, turn: Turn { slot: 1, mask: 6, of: 3 }, idle: Span(7) }] },
        Event::HetFormed { leader: id, size: 2 },
        Event::JobLeased { id, attempt: Attempt(2), behind: JobId(3) },
        Event::LeaseReturned { id, attempt: Attempt(2) },
        Event::ForeignResolved {
            replies: vec![
                (Question::Started(Named { id, index: None }), Reply::Started(Time(5))),
                (Question::Ended(Named { id, index: Some(4) }), Reply::Ended { well: true }),
                (Question::Alone { job: id, uid: 7, name: "golden".into(), submit: Time(6) }, Reply::Alone),
                (Question::Ended(Named { id: JobId(3), index: None }), Reply::Unknown),
            ],
        },
        Event::PartitionChanged { name: "debug".into(), config: Some(Box::default()) },
        Event::JobShrunk { id, attempt, alloc: alloc() },
        Event::StepLimited { job: id, step: StepNo(3), time_limit_s: Some(600) },
        Event::PolicyChanged { changes: forgotten(), by: 0 },
        Event::IdsLost { last: id },
        Event::Recorded { job: id, values: vec![("comment".into(), "golden".into())], by: 7 },
        Event::NodesChanged { nodes: NodeSet::one(node), change: Box::new(node_change()) },
    ]
}

fn node_change() -> NodeChange {
    NodeChange {
        weight: Some(7),
        features: Some(vec!["a".into(), "b".into()]),
        active_features: Some(vec!["a".into()]),
        gres: Some("gpu:2".into()),
        comment: Some("c".into()),
        extra: Some("x".into()),
        instance_id: Some("i".into()),
        instance_type: Some("t".into()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, b| {
        write!(text, "{b:02x}").unwrap();
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}
