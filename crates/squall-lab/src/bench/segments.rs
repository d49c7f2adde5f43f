//! `squall bench segments`: occupancy of a cluster of blocks whose jobs are made of segments.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use serde_json::{Value, json};
use squall_engine::control::Rehearsal;
use squall_model::config::{Config, NodeConfig, TopologyFile};
use squall_model::event::Event;
use squall_model::id::{ClientKey, Incarnation, JobId, NodeId};
use squall_model::job::options::Chosen;
use squall_model::job::{EndState, ExitCode, JobSpec, Need, Outcome, Owner};
use squall_model::resource::Hardware;
use squall_model::time::{Span, Time};
use squall_sim::Seed;

use super::{BenchOptions, Finding, round};

/// Number of nodes of a block: a rack of GPUs.
pub(super) const BLOCK: u32 = 18;
/// Number of nodes of an aggregated block.
const ROW: u32 = 8 * BLOCK;
/// Number of nodes, rounded up to whole blocks.
const NODES: u32 = 5000;
/// Sizes of segments, nodes.
const SEGMENTS: [u32; 3] = [1, 4, 16];
/// Share of the cluster's time that jobs ask for, percent.
const LOAD: u64 = 90;
const SEEDS: u64 = 5;
const JOBS: u64 = 4000;
/// Share of the submissions before occupancy counts, percent.
const WARM_UP: u64 = 25;
/// Shortest and longest run time, seconds.
const RUN_S: (u64, u64) = (600, 14_400);
/// Simulated time at which the benchmark starts.
pub(super) const BEGIN: Time = Time::from_secs(1_000_000);
/// Largest difference of occupancies, percentage points.
const BAR: f64 = 1.0;

/// A job: whole nodes for some time.
#[derive(Clone, Copy)]
struct Job {
    submit: Time,
    nodes: u32,
    segment: u32,
    run_s: u64,
    limit_s: u64,
}

/// Result of a run over all jobs of a workload.
#[derive(Default)]
struct Outcomes {
    /// Share of nodes in use while jobs were submitted, percent.
    occupancy: f64,
    /// Mean wait, seconds.
    wait_s: f64,
    /// Number of jobs that had a segment over a border of blocks.
    crossed: u64,
    /// Number of blocks of the jobs of more than one node, in relation to the fewest that can hold them.
    span: f64,
}

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let nodes = options.nodes.unwrap_or(NODES).div_ceil(BLOCK).max(1) * BLOCK;
    let (seeds, jobs) = (options.seeds.unwrap_or(SEEDS), options.jobs.unwrap_or(JOBS).max(4));
    let mut rows: Vec<Value> = Vec::new();
    let (mut worst, mut crossed) = (0.0_f64, 0);
    for seed in 1..=seeds {
        let workload = workload(nodes, jobs, &mut Seed::new(seed));
        let (blocks, flat) = (simulate(nodes, &workload, true)?, simulate(nodes, &workload, false)?);
        worst = worst.max((flat.occupancy - blocks.occupancy).abs());
        crossed += blocks.crossed;
        rows.push(json!({
            "seed": seed, "occupancy": round(blocks.occupancy), "without_segments": round(flat.occupancy),
            "wait_s": round(blocks.wait_s), "wait_without_s": round(flat.wait_s), "over_borders": blocks.crossed,
            "over_borders_without": flat.crossed, "span": round(blocks.span), "span_without": round(flat.span),
        }));
    }
    let fields = vec![
        ("nodes", json!(nodes)),
        ("jobs", json!(jobs)),
        ("load_percent", json!(LOAD)),
        ("over_borders", json!(crossed)),
        ("workloads", Value::Array(rows)),
    ];
    if crossed > 0 {
        return Err(format!("{crossed} jobs had a segment over a border of blocks"));
    }
    let limit = Some((BAR, "the bar"));
    Ok(Finding { bench: "segments", figure: round(worst), unit: "points of occupancy at most", limit, fields })
}

/// Makes jobs that together ask for `LOAD` percent of the cluster.
fn workload(nodes: u32, count: u64, seed: &mut Seed) -> Vec<Job> {
    let mut now = BEGIN;
    let mut jobs = Vec::new();
    for _ in 0..count {
        let segment = SEGMENTS[seed.below(SEGMENTS.len() as u64) as usize];
        let parts = 1 + seed.below(16) as u32;
        let run_s = RUN_S.0 + seed.below(RUN_S.1 - RUN_S.0);
        let job =
            Job { submit: now, nodes: segment * parts, segment, run_s, limit_s: run_s * (100 + seed.below(100)) / 100 };
        jobs.push(job);
        // The next one comes when the cluster could have done this one, by its load.
        let own_s = u64::from(job.nodes) * run_s * 100 / (u64::from(nodes) * LOAD);
        now = now + Span::from_secs(own_s.max(1));
    }
    jobs
}

/// Returns a file of blocks with these sizes of blocks and aggregated blocks.
pub(super) fn blocks(nodes: u32, sizes: &[u32]) -> String {
    let line = |at: u32| format!("BlockName=b{at} Nodes=n[{}-{}]\n", at * BLOCK + 1, (at + 1) * BLOCK);
    let lines: String = (0..nodes / BLOCK).map(line).collect();
    let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
    format!("{lines}BlockSizes={}\n", sizes.join(","))
}

/// Returns a cluster of equal, idle nodes, in blocks of these sizes or not.
pub(super) fn cluster(nodes: u32, sizes: Option<&[u32]>) -> Rehearsal {
    let mut rehearsal = Rehearsal::new();
    let mut config = Config::default();
    config.nodes.push(NodeConfig { name: format!("n[1-{nodes}]"), ..NodeConfig::default() });
    if let Some(sizes) = sizes {
        config.topology = TopologyFile { name: "topology.conf".to_owned(), text: blocks(nodes, sizes) };
    }
    config.complete();
    rehearsal.happens(BEGIN, Event::Configured { config: Arc::new(config) });
    for at in 0..nodes {
        let hardware = Hardware { cpus: 4, memory_mb: 64_000, ..Hardware::default() };
        let (node, name) = (NodeId(at), format!("n{}", at + 1));
        rehearsal.happens(BEGIN, Event::NodeRegistered { node, name, incarnation: Incarnation(1), hardware });
    }
    rehearsal
}

fn spec(job: &Job, in_blocks: bool) -> JobSpec {
    let need = Need { nodes_min: Some(job.nodes), nodes_max: Some(job.nodes), exclusive: true, ..Need::default() };
    let segment = Some(job.segment).filter(|_| in_blocks);
    let options = Chosen { segment, ..Chosen::default() }.into();
    JobSpec { need, options, time_limit_s: Some(job.limit_s), ..JobSpec::default() }
}

/// Runs a workload on a cluster.
fn simulate(nodes: u32, jobs: &[Job], in_blocks: bool) -> Result<Outcomes, String> {
    let mut rehearsal = cluster(nodes, in_blocks.then_some(&[BLOCK, ROW]));
    let last = jobs.last().map_or(BEGIN, |job| job.submit);
    let first = jobs[jobs.len() * WARM_UP as usize / 100].submit;
    let mut ends = BinaryHeap::new();
    let (mut next, mut busy, mut used_s, mut waited_s, mut spans) = (0, 0_u64, 0_u64, 0_u64, (0, 0));
    let mut waiting = BTreeMap::new();
    let (mut now, mut outcomes) = (BEGIN, Outcomes::default());
    while next < jobs.len() || !waiting.is_empty() || !ends.is_empty() {
        let end = ends.peek().map(|Reverse((end, _)): &Reverse<(Time, JobId)>| *end);
        let submit = jobs.get(next).map(|job| job.submit);
        let Some(time) = end.into_iter().chain(submit).min() else {
            return Err(format!("{} jobs never start", waiting.len()));
        };
        let inside = |time: Time| time.max(first).min(last);
        used_s += busy * inside(time).since(inside(now)).secs();
        now = time;
        while let Some(Reverse((_, id))) = ends.peek().copied().filter(|Reverse((end, _))| *end <= now) {
            ends.pop();
            busy -= end_job(&mut rehearsal, now, id);
        }
        while let Some(job) = jobs.get(next).filter(|job| job.submit <= now) {
            next += 1;
            let id = JobId(next as u32);
            let (key, owner) = (ClientKey(id.0.into()), Arc::new(Owner::default()));
            rehearsal.happens(now, Event::JobSubmitted { id, key, owner, spec: Arc::new(spec(job, in_blocks)) });
            waiting.insert(id, job);
        }
        rehearsal.pass(now);
        let state = rehearsal.state();
        let started: Vec<JobId> =
            waiting.keys().copied().filter(|id| state.jobs.get(id).is_some_and(|job| job.run().is_some())).collect();
        for id in started {
            let Some(job) = waiting.remove(&id) else { continue };
            let blocks = blocks_of(&rehearsal, id);
            outcomes.crossed += u64::from(is_cut(&blocks, job.segment));
            spans = (spans.0 + blocks.len(), spans.1 + fewest(job));
            busy += u64::from(job.nodes);
            waited_s += now.since(job.submit).secs();
            ends.push(Reverse((now + Span::from_secs(job.run_s), id)));
        }
    }
    outcomes.occupancy = 100.0 * used_s as f64 / (u64::from(nodes) * last.since(first).secs()).max(1) as f64;
    outcomes.wait_s = waited_s as f64 / jobs.len() as f64;
    outcomes.span = spans.0 as f64 / spans.1.max(1) as f64;
    Ok(outcomes)
}

/// Ends a running job; returns the number of its nodes.
fn end_job(rehearsal: &mut Rehearsal, now: Time, id: JobId) -> u64 {
    let job = rehearsal.state().jobs.get(&id).and_then(|job| Some((job.attempt, job.run()?.left.clone())));
    let Some((attempt, nodes)) = job else { return 0 };
    let outcome = Outcome { state: EndState::Completed, exit: ExitCode::OK, reason: None };
    let count = nodes.len() as u64;
    rehearsal.happens(now, Event::JobEnding { id, outcome, requeue: None });
    rehearsal.happens(now, Event::NodesReleased { id, attempt, nodes });
    count
}

/// Returns the number of a job's nodes in each block.
fn blocks_of(rehearsal: &Rehearsal, id: JobId) -> BTreeMap<u32, u32> {
    let mut blocks = BTreeMap::new();
    let run = rehearsal.state().jobs.get(&id).and_then(|job| job.run());
    let nodes = run.map(|run| run.alloc.nodes()).unwrap_or_default();
    nodes.iter().for_each(|node| *blocks.entry(node.0 / BLOCK).or_default() += 1);
    blocks
}

/// Returns whether some segment of a job crosses a border of blocks.
fn is_cut(blocks: &BTreeMap<u32, u32>, segment: u32) -> bool {
    blocks.values().any(|nodes| nodes % segment > 0)
}

/// Returns the fewest blocks that can hold a job.
fn fewest(job: &Job) -> usize {
    let parts = job.nodes / job.segment;
    parts.div_ceil(BLOCK / job.segment) as usize
}
