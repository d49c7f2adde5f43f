//! Bytes written by a release are read by every later one: events as they stand in journals, kept as hex.
//!
//! A line that no longer decodes to the same value is a broken promise, not a file to be renewed.
//! New variants are added at the end: SQUALL_GOLDEN=renew appends what is missing.
#![expect(clippy::disallowed_methods, reason = "a test that keeps its bytes in a file")]

use std::fmt::Write;
use std::sync::Arc;

use squall_model::billing::Billing;
use squall_model::checkpoint::{CheckpointChange, CheckpointPlan, Made, Restore};
use squall_model::config::{Config, NodeConfig, NodeStart};
use squall_model::encoding::{self, Decoded, Encoded};
use squall_model::event::{Event, JobChange, NodeAdmin, NodeChange, Record, Requeue};
use squall_model::fault::{FaultKind, NodeFault};
use squall_model::foreign::{Named, Question, Reply};
use squall_model::gang::{Shift, Turn};
use squall_model::gres::Grant;
use squall_model::id::{Attempt, ClientKey, Epoch, Incarnation, JobId, NodeId, StepKey, StepNo};
use squall_model::inside::Inside;
use squall_model::interface::Interface;
use squall_model::job::gpus::{GpuBind, GpuCount, Gpus};
use squall_model::job::network::{self, Network};
use squall_model::job::options::{AsGiven, Chosen, Hint, Notes, OfStep, SegmentPlacing, Shown, TaskScripts};
use squall_model::job::spread::Spread;
use squall_model::job::{
    ArraySpec, ArrayTask, Dependency, DependencyJob, DependencyKind, DependencyTerm, EndState, ExitCode, JobAttempt,
    JobSpec, JobState, Outcome, Owner,
};
use squall_model::places::OnNodeFail;
use squall_model::policy::{Account, AdminLevel, AssocKey, Association, Limit, PolicyChange, PreemptMode, Qos, User};
use squall_model::power::{PowerPhase, PowerWish, Reboot};
use squall_model::replica::{Entry, Handover, Head, Leader, Member, TrustFile};
use squall_model::report::StepEnd;
use squall_model::reservation::{Flag, Floating, Reservation};
use squall_model::resource::{Alloc, AllocGroup, Hardware};
use squall_model::rotation::ControllerKeys;
use squall_model::set::{BitSet, IndexSet, NodeSet};
use squall_model::step::{
    Birth, Distribution, FromStep, Inside as Descent, JobFacts, Layout, Program, StepDefaults, StepLaunch, StepSpec,
    TaskProgram, ToStep,
};
use squall_model::time::{Span, Time};
use squall_model::version::ClusterVersion;
use squall_model::wire::client::{Answer, JobSelection, Refusal, Request};
use squall_model::wire::fabric::{Composite, UpFrame, Upward};
use squall_model::wire::feed::{FeedEvent, FeedJob, FeedKind, FeedPage, Position};
use squall_model::wire::stepd::{FromStepd, ToStepd};
use squall_model::wire::{Hello, Role};

#[test]
fn events_of_every_release_are_read() {
    let samples = samples();
    let now: Vec<Vec<u8>> = samples.iter().map(|event| encoding::to_vec(&record(event.clone()))).collect();
    let kept = golden("events-2", &now);
    assert_eq!(kept.len(), samples.len(), "an event has no line");
    for ((bytes, now), event) in kept.iter().zip(&now).zip(samples) {
        let read: Record = encoding::from_slice(bytes).unwrap_or_else(|e| panic!("{event:?}: {e}"));
        // A configuration is text, which gets a line with each new key.
        let is_text = matches!(event, Event::Configured { .. } | Event::PartitionChanged { .. });
        assert!(
            is_text || bytes == now,
            "the layout has changed: {event:?} is still read, but is that what was meant?"
        );
        assert_eq!(read, record(event));
    }
}

// Builds before 0.2.0 wrote options as pairs of texts. Such a record is not taken for one without options.
#[test]
fn options_that_are_pairs_are_refused() {
    let id = JobId(12);
    let event = Event::JobSubmitted { id, key: ClientKey(8), owner: Arc::new(Owner::default()), spec: spec() };
    let mut bytes = encoding::to_vec(&record(event));
    // What is at the end of a record without options: an empty list.
    assert_eq!(bytes.pop(), Some(0x80));
    bytes.extend(encoding::to_vec(&[("network", "local"), ("use-min-nodes", "")]));
    let error = encoding::from_slice::<Record>(&bytes).unwrap_err();
    assert!(error.contains("only builds before release 0.2.0 wrote"), "{error}");
}

#[test]
fn a_field_that_is_not_known_is_skipped() {
    // A record of a later release: one more field, and one more in its event.
    let mut bytes = encoding::to_vec(&record(Event::NodeUp { node: NodeId(3) }));
    assert_eq!(bytes[0], 0x83, "three fields");
    bytes[0] = 0x84;
    bytes.extend_from_slice(&[0x82, 0x01, 0x63, b'n', b'e', b'w']);
    assert_eq!(encoding::from_slice::<Record>(&bytes).unwrap(), record(Event::NodeUp { node: NodeId(3) }));
}

/// A message or file that is not an event: its bytes are kept, and are read as the same value.
fn kept<T: Encoded + Decoded + PartialEq + std::fmt::Debug>(value: &T) -> Vec<u8> {
    let bytes = encoding::to_vec(value);
    assert_eq!(encoding::from_slice::<T>(&bytes).as_ref(), Ok(value));
    bytes
}

// Of each kind of link and file one value with as much in it as may be.
#[test]
fn messages_and_files_stand_as_they_did() {
    let key = StepKey { job: JobId(12), attempt: Attempt(2), step: StepNo(0) };
    let facts = JobFacts { key, spec: spec(), cluster: "golden".into(), ..JobFacts::default() };
    let launch = StepLaunch { key, facts: Arc::new(facts), node: "n5".into(), ..StepLaunch::default() };
    let hello = Hello { release: Some("0.2.0".into()), ..Hello::new(Role::Client("squeue".into())) };
    let submit = Request::Submit { spec: spec(), script: b"#!".into(), env: b"A=1".into(), key: ClientKey(9) };
    let cancel = Request::Cancel { jobs: JobSelection::default(), signal: None, step: Some(StepNo(1)), verbose: true };
    let done = Answer::JobDone { job: JobId(12), outcome: outcome() };
    let mut composite = Composite { reports: 3, ..Composite::default() };
    composite.add_ended(key, &NodeSet::one(NodeId(4)), &end());
    composite.add_gone(JobAttempt { job: JobId(12), attempt: Attempt(2) }, &NodeSet::one(NodeId(4)));
    let up = UpFrame { hop: 7, says: vec![Upward::Composite { batch: 2, composite: Box::new(composite) }] };
    let signal = ToStepd::Signal { signal: 15, all: true };
    let found = [
        kept(&hello),
        kept(&submit),
        kept(&cancel),
        kept(&done),
        kept(&Answer::Refused(Refusal::Held)),
        kept(&up),
        kept(&launch),
        kept(&signal),
        kept(&FromStepd::Ended(end())),
        kept(&follow()),
        kept(&Answer::Followed(Box::new(FeedPage {
            events: vec![Arc::new(feed_event())],
            next: at(9, 0),
            missed: true,
        }))),
        kept(&Request::Submit { spec: later(), script: b"#!".into(), env: b"".into(), key: ClientKey(9) }),
        kept(&Answer::StepCreated {
            step: StepNo(3),
            layout: Box::default(),
            facts: Box::default(),
            kill_wait_s: 30,
            usual: Some(StepDefaults { kill_on_bad_exit: true, wait_s: 60 }),
        }),
        kept(&StepSpec { inside: Some(Descent { resumes: Some(StepNo(3)), places: None }), ..StepSpec::default() }),
        kept(&FromStep::Birth(Box::new(birth()))),
        kept(&ToStep::Inside("squall-step-1".into())),
        kept(&StepSpec {
            inside: Some(Descent { resumes: Some(StepNo(3)), places: Some([0, 2].into_iter().collect()) }),
            ..StepSpec::default()
        }),
        kept(&JobFacts { key, moved: Some(vec![(0xffff_0a00_0001, 0xffff_0a00_0002)]), ..JobFacts::default() }),
        kept(&Hardware {
            interfaces: Some(vec![Interface { address: 0xffff_0a00_0001, prefix: 120 }]),
            ..Hardware::default()
        }),
    ];
    let golden = golden("messages-2", &found);
    assert_eq!(golden, found, "the layout of a message has changed: its numbers must stay, and versions may be needed");
}

// A step whose tasks descend from its srun, which goes on from a checkpoint.
fn birth() -> Birth {
    let key = StepKey { job: JobId(12), attempt: Attempt(2), step: StepNo(3) };
    let restore = Some(Restore { number: 2, ran: Span::from_secs(9), pid: 4711 });
    let facts = JobFacts { key, spec: spec(), restore, inside: Some(true), ..JobFacts::default() };
    let program = Program::Tasks(Box::new(TaskProgram { inside: Some(true), ..TaskProgram::default() }));
    let launch = StepLaunch { key, facts: Arc::new(facts), node: "n5".into(), program, ..StepLaunch::default() };
    Birth { launch, cpus: vec![0, 3], folder: b"/steps/12.2.3".to_vec().into(), cookie: [7; 16] }
}

// What controllers store in etcd, which one of the release before or after reads.
#[test]
fn values_in_etcd_stand_as_they_did() {
    let (name, address, release) = ("head1".to_owned(), "10.0.0.1:6817".to_owned(), "0.2.0".to_owned());
    let member = Member {
        address: address.clone(),
        release: release.clone(),
        durable: 90,
        applied: 91,
        since: Time(1_700_000_000_000_000),
        run: 7,
        speaks: ClusterVersion(2),
        next: None,
    };
    let found = [
        kept(&Leader { name: name.clone(), address, run: 7, journal: 12, release, since: Some(Time(9)) }),
        kept(&Head { last: 91, run: 7, log: 5 }),
        kept(&Entry { last: 91, run: 7, pieces: 0, bytes: vec![1, 2, 3] }),
        kept(&Entry { last: 91, run: 7, pieces: 3, bytes: Vec::new() }),
        kept(&member),
        kept(&Handover { to: name, stop: true }),
        kept(&TrustFile { content: Some(b"key".to_vec()) }),
        kept(&TrustFile { content: None }),
        kept(&Member { next: Some([5; 32]), ..Member::default() }),
    ];
    let golden = golden("etcd-1", &found);
    assert_eq!(golden, found, "the layout of a value in etcd has changed: its numbers must stay");
}

fn at(record: u64, index: u32) -> Position {
    Position { record, index }
}

fn follow() -> Request {
    let jobs = JobSelection { users: vec![1000], ..JobSelection::default() };
    Request::Follow { from: Some(at(7, 2)), jobs: Box::new(jobs), kinds: vec![FeedKind::JobEnded, FeedKind::NodeDown] }
}

fn feed_event() -> FeedEvent {
    let job = FeedJob {
        id: JobId(12),
        task: Some(ArrayTask { array: JobId(10), index: 2 }),
        tasks: Some("0-9".into()),
        uid: 1000,
        user: "ann".into(),
        name: "train".into(),
        partition: "main".into(),
        account: "physics".into(),
        qos: "normal".into(),
        state: JobState::Ended(EndState::Timeout),
        exit: Some(ExitCode { code: 1, signal: 9 }),
        mail: None,
    };
    FeedEvent {
        at: at(8, 3),
        time: Time(1_700_000_000_000_000),
        kind: FeedKind::StepEnded,
        job: Some(job),
        step: Some(StepNo(4)),
        nodes: "n[1-4]".into(),
        name: "night".into(),
        reason: Some("bad fan".into()),
        by: Some(0),
    }
}

/// The kept bytes of a name. SQUALL_GOLDEN=renew appends what is missing of `now`.
fn golden(name: &str, now: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let file = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let mut kept = std::fs::read_to_string(&file).unwrap_or_default();
    let lines = kept.lines().count();
    if std::env::var_os("SQUALL_GOLDEN").is_some() && lines < now.len() {
        now[lines..].iter().for_each(|bytes| kept.extend([hex(bytes), "\n".to_owned()]));
        std::fs::write(&file, &kept).unwrap();
    }
    kept.lines().map(unhex).collect()
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
    StepEnd { exit, oom: false, lost: true, usage, started: Time(1), ended: Time(2), note: None, series: None }
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
        flags: Flag::NAMES.into_iter().take(15).map(|(_, flag)| flag).collect(),
        ..Reservation::default()
    }
}

fn with_options(id: JobId) -> Event {
    let spec = JobSpec { options: options().into(), ..JobSpec::clone(&spec()) };
    Event::JobSubmitted { id, key: ClientKey(8), owner: Arc::new(Owner::default()), spec: Arc::new(spec) }
}

/// Every option in a field.
fn options() -> Chosen {
    let text = |text: &str| Some(text.to_owned());
    let gpus = Gpus {
        total: GpuCount::parse("a100:2,v100:1"),
        per_node: GpuCount::parse("2"),
        per_socket: GpuCount::parse("0"),
        per_task: GpuCount::parse("1"),
        cpus: Some(3),
        memory_mb: AsGiven::memory("4G"),
        tasks: Some(2),
        bind: AsGiven::<GpuBind>::parse("mask_gpu:0x1,0xc"),
    };
    let inside = Inside { sockets: 2, cores: 4, threads: 1, tasks_per_socket: 3, tasks_per_core: 1 };
    let network = Network {
        class: Some(network::class("local")),
        geometry: network::geometry("4x4x2"),
        grid: network::grid("8x8:periodic"),
        stencil: network::stencil("4,0.5"),
        switches: network::switches("1@10:00"),
        groups: None,
    };
    let shown = Shown {
        submit_dir: text("/tmp"),
        export: text("NONE"),
        batch: text("a"),
        cpu_freq: text("low"),
        mem_bind: text("local"),
        profile: text("none"),
        tres_per_task: text("cpu=1"),
        gpu_freq: text("low"),
    };
    let step = OfStep {
        gres: text("gpu:1"),
        cpus_per_task: Some(2),
        ntasks_per_node: Some(4),
        mpi: text("pmix"),
        preserve_env: true,
        slurmd_debug: Some(1),
        srun_debug: Some(3),
        scripts: TaskScripts { prolog: "/p".into(), epilog: "/e".into() },
    };
    let notes = Notes {
        extra: text("x"),
        admin_comment: text("a"),
        system_comment: text("s"),
        derived_exit: ExitCode::parse("7:9"),
    };
    Chosen {
        gpus,
        inside,
        network,
        hint: Hint::parse("nomultithread"),
        distribution: AsGiven::of("block:cyclic", Some(Spread::of("block:cyclic"))),
        prefer: text("fast"),
        segment: Some(2),
        use_min_nodes: true,
        exclusive_user: true,
        begins_after_submission: true,
        no_shell: true,
        content_bytes: 70_000,
        notes,
        shown,
        step,
        // What came later: bytes without it are read.
        ..Chosen::default()
    }
}

/// A job with the options that came after 0.2.0.
fn later() -> Arc<JobSpec> {
    let options = Chosen {
        oom_kill_step: Some(true),
        report: Some(true),
        x11: Some("all".into()),
        reboot: Some(true),
        delay_boot_s: Some(60),
        enforce_binding: Some(true),
        node_fence_s: Some(30),
        on_node_fail: Some(OnNodeFail::Replace),
        spare_nodes: Some(2),
        expedite: Some(true),
        checkpoint: Some(CheckpointPlan { every_s: 600, must: true }),
        names_limits: Some(true),
        segments: Some(SegmentPlacing { apart: true, together: true }),
        ..Chosen::default()
    };
    Arc::new(JobSpec { options: options.into(), ..JobSpec::default() })
}

/// One of each kind, in the order of the enum.
#[expect(clippy::too_many_lines, reason = "a table: a row for each event")]
fn samples() -> Vec<Event> {
    let (id, node, attempt, step, incarnation) = (JobId(12), NodeId(4), Attempt(2), StepNo(0), Incarnation(5));
    let requeue = Requeue { hold: true, not_before: Some(Time(9)), special: None, expedite: None };
    let mut samples = vec![
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
                ports: None,
            },
        },
        Event::StepNodesEnded {
            job: id,
            attempt,
            step: StepNo::BATCH,
            nodes: NodeSet::one(node),
            end: end(),
            cut: None,
        },
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
        Event::JobShrunk { id, attempt, alloc: alloc(), vacant: None },
        Event::StepLimited { job: id, step: StepNo(3), time_limit_s: Some(600) },
        Event::PolicyChanged { changes: forgotten(), by: 0 },
        Event::IdsLost { last: id },
        Event::Recorded { job: id, values: vec![("comment".into(), "golden".into())], by: 7 },
        Event::NodesChanged { nodes: NodeSet::one(node), change: Box::new(node_change()) },
        with_options(id),
        Event::Restored { last: id },
        Event::VersionRaised { to: ClusterVersion(2), by: 7 },
    ];
    samples.extend(of_programs(id, attempt, node));
    samples.extend(of_power(id, attempt, node));
    samples.push(Event::KeysRotated { keys: Box::new(controller_keys()), by: 7 });
    // Fields that came later.
    let outcome = || Outcome { state: EndState::Requeued, exit: ExitCode::OK, reason: None };
    let special = Some(Requeue { hold: true, not_before: None, special: Some(true), expedite: None });
    let change = JobChange { independent: Some(true), ..JobChange::default() };
    samples.extend([
        Event::JobEnding { id, outcome: outcome(), requeue: special },
        Event::StepNodesEnded {
            job: id,
            attempt,
            step,
            nodes: NodeSet::one(node),
            end: end(),
            cut: Some(EndState::Timeout),
        },
        Event::JobUpdated { id, change, whole: false },
        Event::JobShrunk { id, attempt, alloc: alloc(), vacant: Some(node) },
        Event::NodeReplaced { id, attempt, lost: node, node: NodeId(9), alloc: alloc(), gres: Vec::new() },
        Event::NodeFault(NodeFault { node, kind: FaultKind::Lost, job: Some(id) }),
        Event::Checkpoint(Box::new(CheckpointChange {
            job: JobAttempt { job: id, attempt },
            number: 3,
            node,
            made: Some(Made { bytes: 7 << 20, stood: Span(190_000), pid: 4711, links: None }),
            error: None,
            damaged: None,
            nodes: None,
            interfaces: None,
        })),
        Event::NodeLost { id, attempt, node, heard: Time(7), kept: Time(5) },
        Event::JobUpdated {
            id,
            change: JobChange { progress: Some("step 1200".into()), ..JobChange::default() },
            whole: false,
        },
        Event::ReservationSet { reservation: Box::new(newer_reservation(node)) },
        Event::JobBilled { id, attempt, billing: Billing(2_500_000) },
        Event::Checkpoint(Box::new(CheckpointChange {
            job: JobAttempt { job: id, attempt },
            number: 4,
            node,
            made: Some(Made { bytes: 7 << 20, stood: Span(190_000), pid: 4711, links: Some(0x1234) }),
            error: None,
            damaged: None,
            nodes: Some([node, NodeId(9)].into_iter().collect()),
            interfaces: None,
        })),
        Event::Checkpoint(Box::new(CheckpointChange {
            job: JobAttempt { job: id, attempt },
            number: 5,
            node,
            made: Some(Made { bytes: 7 << 20, stood: Span(190_000), pid: 4711, links: None }),
            error: None,
            damaged: None,
            nodes: Some([node, NodeId(9)].into_iter().collect()),
            interfaces: Some(vec![vec![Interface { address: 0xffff_0a00_0001, prefix: 120 }], Vec::new()]),
        })),
    ]);
    samples
}

fn newer_reservation(node: NodeId) -> Reservation {
    Reservation {
        flags: Flag::NAMES.into_iter().map(|(_, flag)| flag).collect(),
        groups: vec!["bio:7".into()],
        qos: vec!["-low".into()],
        allowed_partitions: vec!["debug".into()],
        comment: Some("golden".into()),
        licenses: Some("fluent:2".into()),
        purge_s: Some(300),
        idle_since: Some(Time(3)),
        floats: Some(Floating { ahead_s: 60, lasts_s: Some(600) }),
        ..reservation(node)
    }
}

fn of_programs(id: JobId, attempt: Attempt, node: NodeId) -> [Event; 5] {
    let reboot = Some(Box::new(reboot()));
    [
        Event::JobConfigured { id, attempt },
        Event::EpilogEnded { id, attempt },
        Event::NodesReboot { nodes: NodeSet::one(node), reboot },
        Event::NodesRemoved { nodes: NodeSet::one(node), by: 7 },
        Event::NodesCreated { node: Box::new(future("n[8-9]")), by: 7 },
    ]
}

fn controller_keys() -> ControllerKeys {
    ControllerKeys { key: [1; 32], signer: [2; 32], until: Time(1_700_000_000_000_000) }
}

fn future(name: &str) -> NodeConfig {
    NodeConfig { name: name.into(), cpus: Some(4), state: NodeStart::Future, ..NodeConfig::default() }
}

fn of_power(id: JobId, attempt: Attempt, node: NodeId) -> [Event; 4] {
    let nodes = NodeSet::one(node);
    [
        Event::NodesPower { nodes: nodes.clone(), phase: PowerPhase::GoingUp, owed: true },
        Event::PowerWished { nodes: nodes.clone(), wish: PowerWish::DownAsap, by: 7 },
        Event::PowerProgramEnded { nodes, phase: PowerPhase::GoingDown },
        Event::JobAwake { id, attempt },
    ]
}

fn reboot() -> Reboot {
    Reboot {
        asap: true,
        next: Some(NodeAdmin::Drain),
        reason: Some("kernel".into()),
        by: 7,
        issued: Some(Time(8)),
        job: None,
    }
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
        resume_after_s: None,
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
