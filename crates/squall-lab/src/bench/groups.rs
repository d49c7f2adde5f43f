//! `squall bench groups`: in how many blocks the parallel groups of a job are, with and without `--groups`.

use std::sync::Arc;

use serde_json::{Value, json};
use squall_engine::control::Rehearsal;
use squall_model::event::Event;
use squall_model::hostlist;
use squall_model::id::{ClientKey, JobId, NodeId};
use squall_model::job::network::{self, Class};
use squall_model::job::options::{AsGiven, Chosen};
use squall_model::job::{JobSpec, Need, Owner};
use squall_model::time::Span;
use squall_sched::topology::groups::{Groups, Reach, order, spans};
use squall_sched::topology::{Source, Topology};
use squall_sim::Seed;

use super::segments::{BEGIN, BLOCK, blocks, cluster};
use super::{BenchOptions, Finding, round};

/// Number of nodes, rounded up to whole blocks.
const NODES: u32 = 5000;
const SEEDS: u64 = 5;
/// Groups of jobs with 8 GPUs, and as many ranks, on each node: 96, 512 and 2,048 GPUs, and 9,600 as in Arnold's paper.
const SHAPES: [&str; 4] = ["tp:8,pp:4,dp:3", "tp:8,pp:4,dp:16", "tp:8,pp:8,dp:32", "tp:8,pp:8,dp:150"];
/// Number of ranks on each node.
const EACH: u32 = 8;
/// Share of a block's nodes that other jobs hold, percent: from, to.
const BUSY_PERCENT: (u64, u64) = (20, 80);
/// Least ratio of the largest numbers of blocks, of the kind with the most traffic between nodes.
const GOAL: f64 = 1.6;

/// All ways, in the order of the results.
const WAYS: [Way; 3] = [Way::Numbers, Way::Blocks, Way::Groups];

/// How a job is placed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// On the first free nodes, in the order of their numbers.
    Numbers,
    /// In blocks, without groups.
    Blocks,
    /// In blocks, by its groups.
    Groups,
}

pub(super) fn run(options: &BenchOptions) -> Result<Finding, String> {
    let nodes = options.nodes.unwrap_or(NODES).div_ceil(BLOCK).max(1) * BLOCK;
    let seeds = options.seeds.unwrap_or(SEEDS).max(1);
    let mut rows: Vec<Value> = Vec::new();
    let mut worst = f64::INFINITY;
    for shape in SHAPES {
        let kinds = network::groups(shape).ok_or("a shape is malformed")?.value;
        let groups = Groups::of(&kinds).ok_or("a shape is invalid")?;
        let wanted = groups.tasks() / EACH;
        if wanted * 2 > nodes {
            continue;
        }
        // For each way and kind: sums of the largest and of the mean number of blocks.
        let mut sums = vec![vec![(0.0, 0.0); kinds.len()]; WAYS.len()];
        for seed in 1..=seeds {
            let busy = busy(nodes, wanted, &mut Seed::new(seed));
            for (way, sums) in WAYS.iter().zip(&mut sums) {
                for (reach, (most, mean)) in reached((nodes, &busy), shape, &groups, *way)?.iter().zip(sums) {
                    (*most, *mean) = (*most + f64::from(reach.most), *mean + reach.mean);
                }
            }
        }
        let each = |sum: f64| round(sum / seeds as f64);
        // The first kind stands inside a node; the second one has the most traffic between nodes.
        worst = worst.min(sums[0][1].0 / sums[2][1].0);
        rows.extend((1..kinds.len()).map(|at| {
            let [numbers, blocks, named] = [sums[0][at], sums[1][at], sums[2][at]];
            json!({
                "groups": shape, "kind": kinds[at].name, "nodes": wanted,
                "most_by_number": each(numbers.0), "most_in_blocks": each(blocks.0), "most": each(named.0),
                "mean_by_number": each(numbers.1), "mean_in_blocks": each(blocks.1), "mean": each(named.1),
            })
        }));
    }
    let fields = vec![("nodes", json!(nodes)), ("kinds", Value::Array(rows))];
    let limit = Some((GOAL, "the goal"));
    Ok(Finding { bench: "groups", figure: round(worst), unit: "times fewer blocks of a group", limit, fields })
}

/// Returns the nodes that other jobs hold: a random share of each block, so that enough stay free.
fn busy(nodes: u32, wanted: u32, seed: &mut Seed) -> Vec<u32> {
    let mut busy = Vec::new();
    for first in (0..nodes).step_by(BLOCK as usize) {
        let percent = BUSY_PERCENT.0 + seed.below(BUSY_PERCENT.1 - BUSY_PERCENT.0);
        busy.extend((first..first + BLOCK).filter(|_| seed.below(100) < percent));
    }
    // Free as many as are needed, from the end.
    let most = nodes.saturating_sub(wanted + wanted / 4) as usize;
    busy.truncate(most);
    busy
}

/// Returns how far the groups of a job reach that is placed in one way.
fn reached((nodes, busy): (u32, &[u32]), shape: &str, groups: &Groups, way: Way) -> Result<Vec<Reach>, String> {
    let mut rehearsal = cluster(nodes, (way != Way::Numbers).then_some(&[BLOCK]));
    let names: Vec<String> = busy.iter().map(|node| format!("n{}", node + 1)).collect();
    let others = Need { nodelist: Some(hostlist::compress(&names)), exclusive: true, ..Need::default() };
    let count = busy.len() as u32;
    let others = Need { nodes_min: Some(count), nodes_max: Some(count), ..others };
    start(&mut rehearsal, JobId(1), JobSpec { need: others, time_limit_s: Some(86_400), ..JobSpec::default() })?;
    let wanted = groups.tasks() / EACH;
    let need = Need {
        nodes_min: Some(wanted),
        nodes_max: Some(wanted),
        ntasks_per_node: Some(EACH),
        // The nodes of this benchmark have few CPUs, which do not matter.
        overcommit: true,
        exclusive: true,
        ..Need::default()
    };
    let mut chosen = Chosen::default();
    match way {
        Way::Numbers => {}
        // Otherwise it would wait for fewer blocks.
        Way::Blocks => chosen.network.class = Some(AsGiven { text: "tolerant".to_owned(), value: Class::Tolerant }),
        Way::Groups => chosen.network.groups = network::groups(shape),
    }
    let spec = JobSpec { need, options: chosen.into(), time_limit_s: Some(3600), ..JobSpec::default() };
    start(&mut rehearsal, JobId(2), spec)?;
    let state = rehearsal.state();
    let run = state.jobs.get(&JobId(2)).and_then(|job| job.run());
    let held: Vec<NodeId> = run.map(|run| run.alloc.nodes().iter().collect()).unwrap_or_default();
    let network = network_of(nodes)?;
    let laid = match way {
        Way::Groups => order(&network, &held, groups).ok_or("the ranks lie on no nodes")?,
        Way::Numbers | Way::Blocks => held,
    };
    spans(&network, &laid, groups).ok_or_else(|| "the ranks don't lie evenly on the nodes".to_owned())
}

/// Returns the network of the blocks, by which all ways are judged.
fn network_of(nodes: u32) -> Result<Topology, String> {
    let node = |name: &str| name.strip_prefix('n')?.parse().ok().map(|n: u32| NodeId(n - 1));
    let text = blocks(nodes, &[BLOCK]);
    let source = Source { name: "topology.conf", text: &text, ..Source::default() };
    Topology::read(&source, &node, &[]).map_err(|fault| fault.to_string())
}

/// Submits a job that must start at once.
fn start(rehearsal: &mut Rehearsal, id: JobId, spec: JobSpec) -> Result<(), String> {
    let now = BEGIN + Span::from_secs(id.0.into());
    let (key, owner) = (ClientKey(id.0.into()), Arc::new(Owner::default()));
    rehearsal.happens(now, Event::JobSubmitted { id, key, owner, spec: Arc::new(spec) });
    rehearsal.pass(now);
    let runs = rehearsal.state().jobs.get(&id).is_some_and(|job| job.run().is_some());
    if runs { Ok(()) } else { Err(format!("job {id} does not start")) }
}
