//! What is said of a job on 10,080 nodes is as small as what is said of a job on one.

use std::sync::Arc;

use squall_model::event::Event;
use squall_model::hostlist::HostList;
use squall_model::id::{Attempt, ClientKey, JobId, NodeId, StepKey, StepNo};
use squall_model::job::{JobSpec, Owner};
use squall_model::resource::{Alloc, AllocGroup};
use squall_model::set::{BitSet, NodeSet};
use squall_model::step::{Addresses, BatchStart, Distribution, JobFacts, Layout, Program, StepSpec, StepStart};
use squall_model::time::Time;
use squall_model::wire::node::Down;

const NODES: u32 = 10_080;

fn nodes() -> NodeSet {
    (0..NODES).map(NodeId).collect()
}

fn names() -> HostList {
    (1..=NODES).map(|n| format!("n{n:05}")).collect()
}

fn alloc() -> Alloc {
    Alloc { groups: vec![AllocGroup { nodes: nodes(), cores: BitSet::first(16), memory_mb: 64 << 10 }] }
}

fn layout() -> Layout {
    Layout {
        nodes: names(),
        tasks: nodes().iter().map(|_| 16).collect(),
        distribution: Distribution::Cyclic,
        cpus_per_task: 1,
        ports: None,
    }
}

fn facts() -> JobFacts {
    JobFacts {
        key: StepKey { job: JobId(7), attempt: Attempt(1), step: StepNo(0) },
        array: None,
        owner: Owner { uid: 1000, gid: 100, groups: vec![100, 200], user: "ada".into(), group: "users".into() }.into(),
        spec: JobSpec { name: "wide".into(), work_dir: "/home/ada/work".into(), ..JobSpec::default() }.into(),
        partition: "debug".into(),
        account: "root".into(),
        qos: "normal".into(),
        cluster: "squall".into(),
        nodes: names(),
        ids: nodes(),
        cpus: nodes().iter().map(|_| 16).collect(),
        memory_mb: nodes().iter().map(|_| 64 << 10).collect(),
        tasks: nodes().iter().map(|_| 16).collect(),
        start: Time::from_secs(1_800_000_000),
        end: None,
        restarts: 0,
        addresses: Addresses::default(),
        ganged: false,
        components: Vec::new(),
        changed: None,
        restore: None,
        inside: None,
        moved: None,
        gres: Vec::new(),
    }
}

fn step() -> StepStart {
    let program = Program::Timer { run_ms: 1000, code: 0 };
    let facts = Arc::new(facts());
    StepStart { key: facts.key, facts, layout: layout(), shares: alloc(), program, kill_wait_s: 30, gres: Vec::new() }
}

fn size(what: &impl squall_model::encoding::Encoded) -> usize {
    squall_model::encoding::to_vec(what).len()
}

#[test]
fn events_are_small() {
    let (job, step, key) = (JobId(7), StepNo(0), ClientKey(u128::MAX));
    let spec = Arc::new(StepSpec::default());
    let started = Event::JobStarted { id: job, attempt: Attempt(1), partition: "debug".into(), alloc: alloc() };
    assert!(size(&started) < 64, "{}", size(&started));
    let started = Event::StepStarted { job, step, key, spec, alloc: alloc(), layout: layout() };
    assert!(size(&started) < 256, "{}", size(&started));
}

#[test]
fn messages_are_small_and_say_to_each_node_what_it_must_know() {
    let start = step();
    let batch = BatchStart { node: NodeId(0), cores: BitSet::first(16), kill_wait_s: 30, leased: false, report: false };
    let job = Down::StartJob { facts: Arc::new(facts()), batch: Some(batch.clone()) };
    assert!(size(&job) < 512, "{}", size(&job));
    let message = Down::StartStep(Box::new(start.clone()));
    assert!(size(&message) < 512, "{}", size(&message));
    assert_eq!(squall_model::encoding::from_slice::<Down>(&squall_model::encoding::to_vec(&message)).unwrap(), message);
    let launch = start.launch_on(NodeId(2519)).unwrap();
    assert_eq!((launch.node.as_str(), launch.node_index, launch.job_node_index), ("n02520", 2519, 2519));
    assert_eq!((launch.cores.len(), launch.memory_mb), (16, 64 << 10));
    assert_eq!(launch.ranks(), (0..16).map(|i| i * NODES + 2519).collect::<Vec<_>>());
    assert_eq!(start.launch_on(NodeId(NODES)), None);
    assert_eq!(batch.launch_on(&start.facts, NodeId(1)), None);
    let script = batch.launch_on(&start.facts, NodeId(0)).unwrap();
    assert_eq!((script.key.step, script.node.as_str(), script.ranks()), (StepNo::BATCH, "n00001", vec![0]));
}

#[test]
fn a_step_on_some_nodes_of_its_job_counts_its_own() {
    let mut start = step();
    let some: NodeSet = [3, 5, 8].map(NodeId).into_iter().collect();
    start.shares = Alloc::default();
    start.shares.push(NodeId(5), BitSet::first(2), 10);
    start.shares.push(NodeId(3), BitSet::first(1), 0);
    start.shares.push(NodeId(8), BitSet::first(1), 0);
    start.layout.nodes = some.iter().map(|node| format!("n{:05}", node.0 + 1)).collect();
    start.layout.tasks = vec![1, 2, 1].into();
    let places = some.iter().map(|node| start.launch_on(node).unwrap());
    let places: Vec<_> = places.map(|l| (l.node.clone(), l.node_index, l.job_node_index, l.ranks())).collect();
    let want = [("n00004", 0, 3, vec![0]), ("n00006", 1, 5, vec![1, 3]), ("n00009", 2, 8, vec![2])];
    assert_eq!(places, want.map(|(name, at, in_job, ranks)| (name.to_owned(), at, in_job, ranks)));
    assert_eq!(start.launch_on(NodeId(4)), None);
}
