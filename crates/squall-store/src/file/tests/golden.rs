//! Snapshots written by a release are read by every later one: files of each format since release 0.2.0, kept as hex.
//!
//! If a file is no longer read as the same state, the file must not be renewed: the content of snapshots has changed,
//! and needs a format number of its own, and a reader of each format before. SQUALL_GOLDEN=renew writes the file of the
//! present format.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use squall_engine::control::state::State;
use squall_model::config::{Config, NodeConfig};
use squall_model::event::{Event, NodeAdmin};
use squall_model::id::{Attempt, ClientKey, Epoch, Incarnation, JobId, NodeId, StepNo};
use squall_model::job::{
    ArraySpec, Dependency, DependencyJob, DependencyKind, DependencyTerm, Digest, EndState, ExitCode, JobSpec, Outcome,
    Owner,
};
use squall_model::journal::{FORMAT, Link};
use squall_model::report::StepEnd;
use squall_model::resource::{Alloc, Hardware};
use squall_model::set::{BitSet, IndexSet, NodeSet};
use squall_model::step::{Distribution, Layout, StepSpec};
use squall_model::time::Time;

use super::Folder;
use crate::file::blobs::BlobPlace;
use crate::file::files::FileKind;
use crate::file::snapshot;
use crate::file::walk::Cursor;

const COVERED: u64 = 7;
/// The format of release 0.2.0.
const FIRST: u32 = 2;

#[test]
fn snapshots_of_every_format_are_read() {
    let dir = Folder::new();
    let snap = FileKind::Snapshot.path(dir.path(), COVERED);
    if std::env::var_os("SQUALL_GOLDEN").is_some() {
        snapshot::write(dir.path(), COVERED, cursor(), &state(), &blobs()).unwrap();
        let hex = std::fs::read(&snap).unwrap().iter().fold(String::new(), |mut text, b| {
            write!(text, "{b:02x}").unwrap();
            text
        });
        std::fs::write(file(FORMAT), hex).unwrap();
    }
    for format in FIRST..=FORMAT {
        let text = std::fs::read_to_string(file(format)).unwrap();
        let bytes = (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap());
        std::fs::write(&snap, bytes.collect::<Vec<u8>>()).unwrap();
        let loaded = snapshot::load(dir.path(), COVERED, 1).unwrap();
        assert_eq!(loaded.state, state(), "format {format}");
        assert_eq!((loaded.cursor, loaded.blobs), (cursor(), blobs()), "format {format}");
    }
}

fn file(format: u32) -> PathBuf {
    PathBuf::from(format!("{}/tests/golden/snapshot-{format}.txt", env!("CARGO_MANIFEST_DIR")))
}

fn cursor() -> Cursor {
    Cursor { cluster: 5, seq: 40, link: Link { frame: 11, chain: 77 } }
}

fn blobs() -> Vec<(Digest, BlobPlace)> {
    let place = BlobPlace { packed: true, number: 3, offset: 100, length: 20 };
    vec![(Digest::of(b"a"), place), (Digest::of(b"b"), BlobPlace { packed: false, ..place })]
}

fn state() -> State {
    let mut state = State::default();
    for (time, event) in events().iter().enumerate() {
        state.apply(Time(time as u64 + 1), event);
    }
    assert_eq!((state.jobs.len(), state.arrays.len(), state.nodes.len()), (6, 1, 2), "the events make sense");
    state
}

/// Returns events after which jobs are in every phase.
fn events() -> Vec<Event> {
    let both = NodeConfig { name: "g[1-2]".into(), cpus: Some(4), force: true, ..NodeConfig::default() };
    // The default of `max_array_size` was another one when the bytes were written.
    let own = Config { max_array_size: 4_000_001, ..Config::default() };
    let mut config = Config { cluster: "golden".into(), nodes: vec![both], ..own };
    config.complete();
    let mut events = vec![
        Event::ControllerStarted { epoch: Epoch(2), version: "0.1.0".into() },
        Event::Configured { config: Arc::new(config) },
    ];
    events.extend((0..2).map(|n| Event::NodeRegistered {
        node: NodeId(n),
        name: format!("g{}", n + 1),
        incarnation: Incarnation(u128::from(n) + 9),
        hardware: Hardware { cpus: 4, memory_mb: 1000, ..Hardware::default() },
    }));
    let term = DependencyTerm {
        when: DependencyKind::AfterOk,
        job: Some(DependencyJob { id: JobId(1), index: None, delay_min: 0 }),
    };
    let waits = Some(Dependency { terms: vec![term], any: false });
    let array = ArraySpec { indices: IndexSet::range(0, 9), limit: Some(2), text: "0-9%2".into() };
    let named = |name: &str| JobSpec { name: name.into(), comment: Some("ä".into()), nice: -3, ..JobSpec::default() };
    events.extend([
        submitted(1, named("ended")),
        submitted(2, named("runs")),
        submitted(3, JobSpec { dependency: waits, ..named("waits") }),
        submitted(4, named("completes")),
        submitted(5, JobSpec { array: Some(array), ..named("array") }),
        submitted(15, JobSpec { hold: true, ..named("held") }),
        started(1, 0, 0),
        ending(1, EndState::Completed),
        Event::NodesReleased { id: JobId(1), attempt: Attempt(1), nodes: NodeSet::one(NodeId(0)) },
        started(2, 1, 0),
        Event::StepStarted {
            job: JobId(2),
            step: StepNo(0),
            key: ClientKey(99),
            spec: Arc::new(StepSpec::default()),
            alloc: alloc(1, 0),
            layout: Layout {
                nodes: ["g2"].into_iter().collect(),
                tasks: vec![2].into(),
                distribution: Distribution::Block,
                cpus_per_task: 1,
                ports: None,
            },
        },
        Event::StepNodesEnded {
            job: JobId(2),
            attempt: Attempt(1),
            step: StepNo(0),
            nodes: NodeSet::one(NodeId(1)),
            end: end(),
            cut: None,
        },
        started(4, 1, 1),
        ending(4, EndState::Cancelled { by: 12 }),
        started(6, 1, 2),
        Event::TasksEnded { array: JobId(5), tasks: IndexSet::range(7, 8), outcome: outcome(EndState::Deadline) },
        Event::NodesSet { nodes: NodeSet::one(NodeId(0)), admin: NodeAdmin::Drain, reason: Some("fan".into()), by: 0 },
    ]);
    events
}

fn submitted(id: u32, spec: JobSpec) -> Event {
    let owner = Owner { uid: 1000, gid: 100, groups: vec![100, 7], user: "ada".into(), group: "users".into() };
    let key = ClientKey(u128::from(id) << 70);
    Event::JobSubmitted { id: JobId(id), key, owner: Arc::new(owner), spec: Arc::new(spec) }
}

fn started(id: u32, node: u32, core: usize) -> Event {
    Event::JobStarted { id: JobId(id), attempt: Attempt(1), partition: "debug".into(), alloc: alloc(node, core) }
}

fn alloc(node: u32, core: usize) -> Alloc {
    let mut alloc = Alloc::default();
    alloc.push(NodeId(node), std::iter::once(core).collect::<BitSet>(), 10);
    alloc
}

fn ending(id: u32, state: EndState) -> Event {
    Event::JobEnding { id: JobId(id), outcome: outcome(state), requeue: None }
}

fn outcome(state: EndState) -> Outcome {
    Outcome { state, exit: ExitCode { code: 3, signal: 0 }, reason: Some("why".into()) }
}

fn end() -> StepEnd {
    let usage = squall_model::job::Usage::default();
    let (started, ended) = (Time(1), Time(2));
    StepEnd {
        exit: ExitCode::OK,
        oom: false,
        lost: true,
        usage,
        started,
        ended,
        note: Some("note".into()),
        series: None,
    }
}
