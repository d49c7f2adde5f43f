//! Tests of the policy: invariants, and examples of placements.

mod cores;
mod exempt;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{Strategy, any, prop, proptest};
use proptest::{option, prop_assert, prop_assert_eq};
use squall_model::config::{Config, NodeConfig, Unit};
use squall_model::gres::{self, Grant, NodeGres};
use squall_model::id::{JobId, NodeId};
use squall_model::job::gpus::Gpus;
use squall_model::job::{Need, PendingReason};
use squall_model::resource::{Alloc, Hardware, Memory};
use squall_model::set::{CoreSet, NodeSet};

use squall_model::time::{Span, Time};

use crate::grain::Grain;
use crate::nodes::Nodes;
use crate::policy::{Discipline, Rules};
use crate::request::{Exemptions, Request};
use crate::scratch::Scratch;
use crate::topology::Wish;
use crate::view::{
    Bars, Candidate, Cap, End, Group, Item, Lanes, Names, NodeView, PartitionView, Plan, Queues, Row, Single, Victim,
    View,
};

/// A node of the test cluster.
#[derive(Clone, Debug)]
struct Node {
    hardware: Hardware,
    cores: CoreSet,
    memory_mb: u64,
    usable: bool,
}

/// A job of the test cluster.
#[derive(Clone, Debug)]
struct Job {
    id: u32,
    priority: u32,
    need: Need,
    /// The request parsed from `need`; None: it is not parsed yet.
    request: Option<Request>,
    limit_s: u64,
    copies: u32,
    group: Option<Group>,
    reserves: bool,
}

/// A running job of the test cluster.
#[derive(Clone, Debug)]
struct Run {
    end: Time,
    alloc: Alloc,
    gres: Vec<Grant>,
    nodes: NodeSet,
    /// Whether the job is ending already. None: it may not be preempted; otherwise job 1 may preempt it.
    yields: Option<bool>,
}

/// A partition of the test cluster.
#[derive(Clone, Debug)]
struct Partition {
    nodes: NodeSet,
    tier: u32,
    jobs: Vec<Job>,
}

/// The test cluster: nodes, partitions with pending jobs, running jobs.
#[derive(Clone, Debug)]
struct Cluster {
    nodes: Vec<Node>,
    partitions: Vec<Partition>,
    open: NodeSet,
    runs: Vec<Run>,
    /// GPUs of each node; empty: there are none.
    gpus: Vec<NodeGres>,
    /// Nodes reserved for others: from, until, nodes.
    reserved: Vec<(Time, Time, NodeSet)>,
    /// Number of rows of the gang matrix; running jobs are in the first.
    rows: u32,
    /// Unit in which CPUs are given to jobs.
    unit: Unit,
    /// Rules of all partitions.
    rules: PartitionRules,
    /// Rules that do not hold for the jobs.
    exempt: Exemptions,
    /// Weight of each node, and the nodes in the order of their weights; empty: all weights are equal.
    weights: (Vec<u32>, Vec<NodeId>),
}

/// Rules of the partitions of the test cluster.
#[derive(Clone, Copy, Debug, Default)]
struct PartitionRules {
    least_loaded: bool,
    /// Most CPUs that jobs of a partition hold on a node, and on each socket.
    cpus: Option<u32>,
    socket: Option<u32>,
    /// Whether nodes are filled one after the other.
    packs: bool,
    /// Most and fewest nodes of a job.
    most: Option<u32>,
    fewest: u32,
}

/// Time at which plans are made.
const NOW: Time = Time::from_secs(1000);

impl Cluster {
    fn new(cpus: &[u32]) -> Self {
        let node = |&cpus: &u32| Node {
            hardware: Hardware { cpus, memory_mb: 1000, ..Hardware::default() },
            cores: CoreSet::new(),
            memory_mb: 0,
            usable: true,
        };
        let all: NodeSet = (0..cpus.len() as u32).map(NodeId).collect();
        let partitions = vec![Partition { nodes: all.clone(), tier: 1, jobs: Vec::new() }];
        Self {
            nodes: cpus.iter().map(node).collect(),
            partitions,
            open: all,
            runs: Vec::new(),
            gpus: Vec::new(),
            reserved: Vec::new(),
            rows: 1,
            unit: Unit::Cpu,
            rules: PartitionRules::default(),
            exempt: Exemptions::default(),
            weights: (Vec::new(), Vec::new()),
        }
    }
    fn queue(mut self, needs: Vec<Need>) -> Self {
        let jobs = needs.into_iter().enumerate();
        self.partitions[0].jobs = jobs.map(|(at, need)| job(at as u32 + 1, need)).collect();
        self
    }
    /// Plans by first in, first out.
    fn plan(&self) -> Plan {
        self.plan_by(Discipline::Fifo, &mut Scratch::default())
    }
    fn plan_by(&self, discipline: Discipline, scratch: &mut Scratch) -> Plan {
        let mut cluster = self.clone();
        for job in cluster.partitions.iter_mut().flat_map(|partition| &mut partition.jobs) {
            job.request =
                Request::of(&job.need, gres::Ask::of(job.need.gres.as_deref(), &Gpus::default()).unwrap(), self);
            job.request.iter_mut().for_each(|request| request.exempt = self.exempt);
        }
        let mut room = Nodes::new(&cluster, scratch, NOW, Span::from_secs(1_000_000_000));
        crate::plan(&cluster, &mut room, Rules { discipline, ..Rules::default() })
    }
    /// Adds a running job on a node's first free cores, with `seconds` left.
    fn run(mut self, node: u32, cores: usize, seconds: u64) -> Self {
        let of = &mut self.nodes[node as usize];
        let mut free = CoreSet::first(of.hardware.cpus as usize);
        free.subtract(&of.cores);
        let cores = free.take(cores).unwrap();
        of.cores.union_with(&cores);
        if of.cores.len() as u32 == of.hardware.cpus {
            self.open.remove(NodeId(node));
        }
        let mut alloc = Alloc::default();
        alloc.push(NodeId(node), cores, 0);
        let (end, nodes) = (NOW + Span::from_secs(seconds), NodeSet::one(NodeId(node)));
        self.runs.push(Run { end, alloc, gres: Vec::new(), nodes, yields: None });
        self.runs.sort_by_key(|run| run.end);
        self
    }
    /// Gives each node `count` GPUs, of which each running job uses one.
    fn with_gpus(mut self, count: u32) -> Self {
        let node = NodeConfig { name: "n".to_owned(), gres: format!("gpu:{count}"), ..NodeConfig::default() };
        let node = NodeGres::of(&Config { nodes: vec![node], ..Config::default() }, "n", None, &[]).unwrap();
        self.gpus = vec![node; self.nodes.len()];
        for run in &mut self.runs {
            let node = run.nodes.first().unwrap();
            let one = gres::parse("gpu:1").unwrap();
            let taken = self.gpus[node.index()].take(&one, &CoreSet::new()).unwrap();
            gres::grant(&mut run.gres, node, taken);
        }
        self
    }
    /// Reserves a node for other users, `from_s` to `until_s` seconds from now.
    fn reserve(mut self, node: u32, from_s: u64, until_s: u64) -> Self {
        let at = |seconds| NOW + Span::from_secs(seconds);
        self.reserved.push((at(from_s), at(until_s), NodeSet::one(NodeId(node))));
        self
    }
    /// Makes the jobs on a node preemptable by job 1, or already ending.
    fn yields(mut self, node: u32, leaves: bool) -> Self {
        let there = self.runs.iter_mut().filter(|run| run.nodes.contains(NodeId(node)));
        there.for_each(|run| run.yields = Some(leaves));
        self
    }
    /// Sets the time limits of the first partition's jobs, seconds.
    fn limits(mut self, seconds: &[u64]) -> Self {
        self.partitions[0].jobs.iter_mut().zip(seconds).for_each(|(job, seconds)| job.limit_s = *seconds);
        self
    }
    /// Returns the ids of jobs that backfill starts, and the latest start of each job with a reservation.
    fn backfilled(&self) -> (Vec<u32>, Vec<(u32, u64)>) {
        let plan = self.plan_by(Discipline::Easy, &mut Scratch::default());
        let reserved = plan.reserved.iter().map(|kept| (kept.item.id.0, kept.time.since(NOW).secs()));
        (plan.starts.iter().map(|start| start.item.id.0).collect(), reserved.collect())
    }
    /// Returns the allocations of started jobs: (job, cores by node).
    fn started(&self) -> Vec<(u32, Vec<(u32, usize)>)> {
        let by_node = |alloc: &Alloc| {
            let nodes = alloc.nodes();
            nodes.iter().map(|id| (id.0, alloc.on(id).map_or(0, |g| g.cores.len()))).collect()
        };
        self.plan().starts.iter().map(|start| (start.item.id.0, by_node(&start.given.alloc))).collect()
    }
}

fn job(id: u32, need: Need) -> Job {
    Job { id, priority: 1000 - id, need, request: None, limit_s: 100, copies: 1, group: None, reserves: true }
}

fn tasks(n: u32) -> Need {
    Need { ntasks: Some(n), ..Need::default() }
}

impl Queues for Cluster {
    type Need = Request;

    fn partition_count(&self) -> usize {
        self.partitions.len()
    }
    fn tier(&self, partition: usize) -> Option<u32> {
        Some(self.partitions[partition].tier)
    }
    fn queue(&self, partition: usize) -> impl Lanes<Candidate<'_>> {
        Single(self.partitions[partition].jobs.iter().map(|job| Candidate {
            item: Item { id: JobId(job.id), array: job.copies > 1 },
            priority: u64::from(job.priority),
            need: job.request.as_ref().unwrap(),
            time_limit_s: Some(Some(job.limit_s)),
            wish: Wish::default(),
            copies: job.copies,
            group: job.group,
            avoid: None,
            alone: false,
            others: &[],
            user: None,
            reserves: job.reserves,
        }))
    }
}

impl Names for Cluster {
    fn node_id(&self, name: &str) -> Option<NodeId> {
        let number: u32 = name.strip_prefix('n')?.parse().ok()?;
        (number < self.nodes.len() as u32).then_some(NodeId(number))
    }
    fn memory_per_cpu_mb(&self) -> u64 {
        0
    }
}

impl View for Cluster {
    fn partition(&self, at: usize) -> PartitionView<'_> {
        let Partition { nodes, tier, .. } = &self.partitions[at];
        let (time_max_s, time_default_s) = (None, None);
        let PartitionRules { least_loaded, cpus, socket, most, fewest, .. } = self.rules;
        let cap = Cap::of(at, cpus, socket);
        let (nodes_min, nodes_max, starts, tier) = (fewest.max(1), most, true, *tier);
        PartitionView { nodes, tier, nodes_min, nodes_max, time_max_s, time_default_s, starts, least_loaded, cap }
    }
    fn ends(&self) -> impl Iterator<Item = End<'_>> {
        self.runs.iter().map(|run| End { time: run.end, alloc: &run.alloc, gres: &run.gres, left: &run.nodes })
    }
    fn node(&self, id: NodeId) -> NodeView<'_> {
        let Node { hardware, cores, memory_mb, usable } = &self.nodes[id.index()];
        NodeView { hardware, cores, memory_mb: *memory_mb, usable: *usable, grain: Grain::of(self.unit, hardware) }
    }
    fn by_weight(&self) -> &[NodeId] {
        &self.weights.1
    }
    fn weight(&self, id: NodeId) -> u32 {
        self.weights.0.get(id.index()).copied().unwrap_or(1)
    }
    fn held_by(&self, partition: usize, node: NodeId, time: Time) -> impl Iterator<Item = &CoreSet> {
        // All running jobs are of the first partition.
        let runs = self.runs.iter().filter(move |run| partition == 0 && run.end > time);
        runs.filter_map(move |run| run.alloc.on(node)).map(|group| &group.cores)
    }
    fn packs(&self) -> bool {
        self.rules.packs
    }
    fn open(&self) -> &NodeSet {
        &self.open
    }
    fn gres(&self, id: NodeId) -> Option<&NodeGres> {
        self.gpus.get(id.index())
    }
    fn bars(&self, job: &Candidate<'_>, _: usize, time: Time) -> Bars {
        let end = time + Span::from_secs(job.time_limit_s.flatten().unwrap());
        let mut barred = NodeSet::new();
        for (_, _, nodes) in self.reserved.iter().filter(|(from, until, _)| *from < end && time < *until) {
            barred.union_with(nodes);
        }
        Bars::Barred(barred)
    }
    fn turns(&self) -> impl Iterator<Item = Time> {
        self.reserved.iter().flat_map(|(from, until, _)| [*from, *until])
    }
    fn shares(&self) -> bool {
        self.rows > 1
    }
    fn rows(&self, _: usize, _: &Request) -> u32 {
        self.rows
    }
    fn reachable(&self) -> &NodeSet {
        &self.partitions[0].nodes
    }
    fn row(&self, id: NodeId, row: Row, _: &BTreeSet<JobId>) -> CoreSet {
        if row.slot == Some(0) { self.nodes[id.index()].cores.clone() } else { CoreSet::new() }
    }
    fn victims(&self, item: Item, _partition: usize) -> Vec<Victim<'_>> {
        let runs = self.runs.iter().enumerate().filter(|_| item.id == JobId(1));
        let victims = runs.filter_map(|(at, Run { end, alloc, gres, nodes, yields })| {
            let id = JobId(100 + at as u32);
            Some(Victim { id, alloc, gres, left: nodes, cost: (end.0, 0), leaves: (*yields)?, stays: false })
        });
        victims.collect()
    }
}

#[test]
fn one_node_if_it_fits_few_if_not() {
    let started = Cluster::new(&[2, 4, 8]).queue(vec![tasks(3), tasks(8), tasks(2)]).started();
    assert_eq!(started, [(1, vec![(1, 3)]), (2, vec![(2, 8)]), (3, vec![(0, 2)])]);
    let wide = Cluster::new(&[2, 4, 8]).queue(vec![tasks(12)]).started();
    assert_eq!(wide, [(1, vec![(1, 4), (2, 8)])]);
}

#[test]
fn nodes_asked_for_share_the_tasks() {
    // As in Slurm: the first nodes are filled, and each of the others has at least one task.
    let need = Need { nodes_min: Some(2), ntasks: Some(6), ..Need::default() };
    assert_eq!(Cluster::new(&[8, 8]).queue(vec![need.clone()]).started(), [(1, vec![(0, 5), (1, 1)])]);
    let spread = Need { spread: true, ..need };
    assert_eq!(Cluster::new(&[8, 8]).queue(vec![spread]).started(), [(1, vec![(0, 3), (1, 3)])]);
    let need = Need { nodes_min: Some(3), ..Need::default() };
    assert_eq!(Cluster::new(&[8, 8, 8]).queue(vec![need]).started(), [(1, vec![(0, 1), (1, 1), (2, 1)])]);
    let need = Need { nodes_min: Some(2), ntasks_per_node: Some(2), cpus_per_task: Some(2), ..Need::default() };
    assert_eq!(Cluster::new(&[2, 4, 4]).queue(vec![need]).started(), [(1, vec![(1, 4), (2, 4)])]);
    let need = Need { nodes_min: Some(2), ntasks: Some(10), ..Need::default() };
    let uneven = Cluster::new(&[2, 3, 8]).queue(vec![need]).started();
    assert_eq!(uneven, [(1, vec![(1, 3), (2, 7)])], "the first two would be too few");
}

#[test]
fn jobs_that_hold_whole_cores_share_none() {
    let mut cluster = Cluster::new(&[8, 8]);
    for node in &mut cluster.nodes {
        let topology = (2, 2, 2);
        (node.hardware.sockets, node.hardware.cores_per_socket, node.hardware.threads_per_core) = topology;
    }
    let per_cpu = Need { memory: Memory::PerCpuMb(300), ..tasks(1) };
    let jobs = [tasks(1), tasks(3), tasks(1), per_cpu, tasks(5), tasks(1)];
    let started = |unit| Cluster { unit, ..cluster.clone() }.queue(jobs.to_vec()).started();
    let first = vec![(0, 2)];
    let of_cores = [(1, first), (2, vec![(0, 4)]), (3, vec![(0, 2)]), (4, vec![(1, 2)]), (5, vec![(1, 6)])];
    assert_eq!(started(Unit::Core), of_cores, "nothing is left for the last one");
    let four = |job, node| (job, vec![(node, 4)]);
    assert_eq!(started(Unit::Socket), [four(1, 0), four(2, 0), four(3, 1)], "1200 MB are too many for the fourth");
    assert_eq!(started(Unit::Cpu).len(), 6);
}

#[test]
fn the_least_loaded_nodes_come_first_where_they_are_to() {
    let mut cluster = Cluster::new(&[8, 8, 8]).run(0, 2, 100).run(1, 4, 100);
    cluster.rules.least_loaded = true;
    let jobs = vec![tasks(3), tasks(2), tasks(1), tasks(1)];
    let started = cluster.queue(jobs).started();
    assert_eq!(started, [(1, vec![(2, 3)]), (2, vec![(0, 2)]), (3, vec![(2, 1)]), (4, vec![(0, 1)])]);
}

#[test]
fn nodes_of_lower_weight_come_first_whatever_their_load() {
    let mut cluster = Cluster::new(&[4, 4, 4]).run(2, 1, 100);
    cluster.weights = (vec![9, 5, 1], vec![NodeId(2), NodeId(1), NodeId(0)]);
    let jobs = vec![tasks(2), tasks(2), tasks(3), tasks(1), tasks(1)];
    let in_order = [(1, vec![(2, 2)]), (2, vec![(1, 2)]), (3, vec![(0, 3)]), (4, vec![(2, 1)]), (5, vec![(1, 1)])];
    let mut cluster = cluster.queue(jobs);
    assert_eq!(cluster.started(), in_order);
    cluster.rules.least_loaded = true;
    assert_eq!(cluster.started(), in_order, "weight goes before load");
    let both = vec![Need { nodes_min: Some(2), ..Need::default() }];
    assert_eq!(cluster.queue(both).started(), [(1, vec![(1, 1), (2, 1)])]);
}

#[test]
fn jobs_of_a_partition_leave_cpus_of_each_node_to_others() {
    let mut cluster = Cluster::new(&[8, 8]).run(0, 3, 100);
    cluster.rules.cpus = Some(4);
    let cluster = cluster.queue(vec![tasks(2), tasks(1), tasks(2), tasks(1), tasks(1)]);
    assert_eq!(cluster.started(), [(1, vec![(1, 2)]), (2, vec![(0, 1)]), (3, vec![(1, 2)])]);
    let plan = cluster.plan_by(Discipline::Easy, &mut Scratch::default());
    let times: Vec<Time> = plan.reserved.iter().map(|reserved| reserved.time).collect();
    assert!(times.iter().all(|time| *time > NOW), "nothing is kept from other partitions now: {times:?}");
}

#[test]
fn a_range_of_nodes_takes_what_is_there() {
    let need = Need { nodes_min: Some(2), nodes_max: Some(4), ..Need::default() };
    let mut cluster = Cluster::new(&[1, 1, 1]).queue(vec![need]);
    assert_eq!(cluster.started()[0].1.len(), 3);
    cluster.partitions[0].jobs[0].need.ntasks = Some(2);
    assert_eq!(cluster.started()[0].1.len(), 2);
}

#[test]
fn who_spreads_has_a_task_on_each_node() {
    let cluster = Cluster::new(&[4, 4, 4, 4, 4, 4]);
    let spread = |need: Need| cluster.clone().queue(vec![Need { spread: true, ..need }]).started();
    assert_eq!(spread(tasks(4)), [(1, vec![(0, 1), (1, 1), (2, 1), (3, 1)])]);
    let cpus: Vec<usize> = spread(tasks(8))[0].1.iter().map(|(_, cpus)| *cpus).collect();
    assert_eq!(cpus, [2, 2, 1, 1, 1, 1], "on all there are");
    let required = Need { nodelist: Some("n5".into()), ..tasks(2) };
    assert_eq!(spread(required), [(1, vec![(0, 1), (5, 1)])]);
    assert_eq!(spread(Need { nodes_min: Some(3), ..tasks(2) })[0].1.len(), 3, "as many as it asks for at least");
    let uneven = Need { spread: true, nodes_min: Some(2), ..tasks(8) };
    let started = Cluster::new(&[1, 1, 7, 4]).queue(vec![uneven]).started();
    assert_eq!(started, [(1, vec![(2, 4), (3, 4)])], "where the first have no room, others do");
}

#[test]
fn whole_nodes_lists_and_features() {
    let mut cluster = Cluster::new(&[4, 4, 4]);
    cluster.nodes[0].cores = CoreSet::first(1);
    cluster.nodes[2].hardware.features = vec!["gpu".into()];
    let exclusive = Need { exclusive: true, ..Need::default() };
    assert_eq!(cluster.clone().queue(vec![exclusive]).started(), [(1, vec![(1, 4)])]);
    let listed = Need { nodelist: Some("n[1-2]".into()), ..Need::default() };
    assert_eq!(cluster.clone().queue(vec![listed]).started(), [(1, vec![(1, 1), (2, 1)])]);
    let not = Need { exclude: Some("n[0-1]".into()), ..Need::default() };
    assert_eq!(cluster.clone().queue(vec![not]).started(), [(1, vec![(2, 1)])]);
    let constraint = Need { constraint: Some("gpu".into()), ..Need::default() };
    assert_eq!(cluster.queue(vec![constraint]).started(), [(1, vec![(2, 1)])]);
}

#[test]
fn features_of_all_nodes_and_of_some() {
    let mut cluster = Cluster::new(&[1; 6]);
    for (node, feature) in [(0, "a"), (1, "b"), (2, "a"), (3, "b"), (4, "b")] {
        cluster.nodes[node].hardware.features.push(feature.into());
    }
    let on = |constraint: &str, nodes_min: Option<u32>| {
        let need = Need { constraint: Some(constraint.into()), nodes_min, ..Need::default() };
        let started = cluster.clone().queue(vec![need]).started();
        started.first().map(|(_, nodes)| nodes.iter().map(|(node, _)| *node).collect::<Vec<_>>())
    };
    assert_eq!(on("a|b", Some(3)), Some(vec![0, 1, 2]));
    assert_eq!(on("[a|b]", Some(2)), Some(vec![0, 2]), "all of a kind");
    assert_eq!(on("[a|b]", Some(3)), Some(vec![1, 3, 4]));
    assert_eq!(on("[a|b]", Some(4)), None);
    assert_eq!(on("[a*1&b*2]", None), Some(vec![0, 1, 3]), "as many as are counted");
    assert_eq!(on("b*2", Some(3)), Some(vec![0, 1, 3]), "the others may be anything");
    assert_eq!(on("b*4", Some(6)), None);
    assert_eq!(on("[a*2&b*1]", Some(2)), None, "more are counted than may be");
    // The reservation begins when enough nodes of one kind are free, not of any kind.
    let busy = cluster.clone().run(0, 1, 100).run(1, 1, 50).run(2, 1, 200).run(3, 1, 300).run(4, 1, 300).run(5, 1, 400);
    let alike = Need { constraint: Some("[a|b]".into()), nodes_min: Some(2), ..Need::default() };
    let plan = busy.queue(vec![alike]).plan_by(Discipline::Conservative, &mut Scratch::default());
    let kept: Vec<_> =
        plan.reserved.iter().map(|kept| (kept.time.since(NOW).secs(), kept.given.alloc.nodes())).collect();
    assert_eq!(kept, [(200, [NodeId(0), NodeId(2)].into_iter().collect())]);
    let named = Need { constraint: Some("b*2".into()), nodelist: Some("n4".into()), ..Need::default() };
    assert_eq!(cluster.clone().queue(vec![named]).started(), [(1, vec![(1, 1), (4, 1)])]);
}

#[test]
fn neighbours_are_neighbours() {
    let mut cluster = Cluster::new(&[1, 1, 1, 1, 1]);
    cluster.open.remove(NodeId(1));
    let need = Need { nodes_min: Some(3), contiguous: true, ..Need::default() };
    assert_eq!(cluster.queue(vec![need]).started(), [(1, vec![(2, 1), (3, 1), (4, 1)])]);
}

#[test]
fn memory_counts() {
    let per_node = |mb| Need { memory: Memory::PerNodeMb(mb), ..Need::default() };
    let cluster = Cluster::new(&[8]);
    assert_eq!(cluster.clone().queue(vec![per_node(600), per_node(600)]).started().len(), 1);
    assert_eq!(cluster.clone().queue(vec![per_node(500), per_node(500)]).started().len(), 2);
    let per_cpu = Need { memory: Memory::PerCpuMb(300), ..tasks(3) };
    let plan = cluster.clone().queue(vec![per_cpu]).plan();
    assert_eq!(plan.starts[0].given.alloc.memory_mb(), 900);
    let all = cluster.queue(vec![per_node(0), per_node(1)]).plan();
    assert_eq!((all.starts.len(), all.starts[0].given.alloc.memory_mb()), (1, 1000));
}

#[test]
fn the_head_holds_up_its_partition_and_what_never_fits_does_not() {
    let cluster = Cluster::new(&[4, 4]).queue(vec![tasks(3), tasks(6), tasks(1), tasks(100), tasks(1)]);
    let plan = cluster.plan();
    assert_eq!((plan.starts.len(), plan.looked_at), (1, 2), "nobody looks past the head");
    assert_eq!(plan.heads[0].item.id, JobId(2));
    let plan = Cluster::new(&[4, 4]).queue(vec![tasks(100), tasks(1)]).plan();
    assert_eq!(plan.starts[0].item.id, JobId(2));
    assert_eq!(plan.skips[0].reason, PendingReason::PartitionConfig);
    let many = Need { nodes_min: Some(3), ..Need::default() };
    let plan = Cluster::new(&[4, 4]).queue(vec![many]).plan();
    assert_eq!(plan.skips[0].reason, PendingReason::PartitionNodeLimit);
    let mut down = Cluster::new(&[4, 4]).queue(vec![tasks(8)]);
    down.nodes[1].usable = false;
    down.open.remove(NodeId(1));
    assert_eq!(down.plan().skips[0].reason, PendingReason::ReqNodeNotAvail);
}

#[test]
fn a_higher_tier_keeps_its_nodes() {
    let mut cluster = Cluster::new(&[4, 4]);
    cluster.nodes[0].cores = CoreSet::first(4);
    cluster.open.remove(NodeId(0));
    let low = Partition { tier: 0, jobs: vec![job(9, tasks(1))], ..cluster.partitions[0].clone() };
    cluster.partitions[0].jobs = vec![job(1, tasks(8))];
    cluster.partitions.push(low);
    assert_eq!(cluster.plan().starts, []);
    cluster.partitions[0].tier = 0;
    assert_eq!(cluster.plan().starts.len(), 1, "of the same tier, each partition is for itself");
}

#[test]
fn who_finds_no_room_in_a_row_goes_to_the_next() {
    let mut cluster = Cluster::new(&[2, 2]).run(0, 2, 50).run(1, 1, 50);
    cluster.rows = 2;
    let started = cluster.clone().queue(vec![tasks(4), tasks(1), tasks(1)]).started();
    assert_eq!(started, [(1, vec![(0, 2), (1, 2)]), (2, vec![(1, 1)])], "the last core of the first row, and no more");
    cluster.rows = 3;
    assert_eq!(cluster.queue(vec![tasks(4), tasks(4), tasks(4)]).started().len(), 2);
}

#[test]
fn memory_of_all_rows_must_fit() {
    let mut cluster = Cluster::new(&[2]).run(0, 2, 50);
    (cluster.rows, cluster.nodes[0].memory_mb) = (4, 600);
    let mb = |mb| Need { memory: Memory::PerNodeMb(mb), ..tasks(2) };
    assert_eq!(cluster.clone().queue(vec![mb(600)]).started(), []);
    assert_eq!(cluster.queue(vec![mb(200), mb(200), mb(200)]).started().len(), 2);
}

#[test]
fn rows_break_at_the_same_places() {
    let nodes = |n| Need { nodes_min: Some(n), ..Need::default() };
    let mut cluster = Cluster::new(&[1; 8]).run(0, 1, 50);
    cluster.rows = 2;
    let plan = cluster.queue(vec![nodes(2), nodes(4), nodes(2), nodes(8)]).plan();
    let got: Vec<Vec<u32>> =
        plan.starts.iter().map(|start| start.given.alloc.nodes().iter().map(|id| id.0).collect()).collect();
    assert_eq!(got, [vec![2, 3], vec![4, 5, 6, 7], vec![0, 1]], "pairs and fours are aligned, in both rows");
}

#[test]
fn an_array_starts_as_many_as_fit_and_may() {
    let mut cluster = Cluster::new(&[4]).queue(vec![tasks(1)]);
    cluster.partitions[0].jobs[0].copies = 100;
    assert_eq!(cluster.plan().starts.len(), 4);
    cluster.partitions[0].jobs[0].group = Some(Group { id: JobId(1), room: 2 });
    assert_eq!((cluster.plan().starts.len(), cluster.plan().heads.len()), (2, 0));
}

#[test]
fn who_does_not_delay_the_first_passes_it() {
    // One core of each node is free; the other three cores of the second node are used for 50 s more.
    let busy = Cluster::new(&[4, 4]).run(0, 3, 90).run(1, 3, 50);
    let queue = |needs: Vec<Need>, limits: &[u64]| busy.clone().queue(needs).limits(limits).backfilled();
    // The first job needs all cores of a node: it gets the second node in 50 s.
    assert_eq!(queue(vec![tasks(4), tasks(1)], &[10, 1000]), (vec![2], vec![(1, 50)]), "beside it, on the first node");
    assert_eq!(queue(vec![tasks(4), tasks(1), tasks(1)], &[10, 1000, 50]), (vec![2, 3], vec![(1, 50)]), "before it");
    assert_eq!(queue(vec![tasks(4), tasks(1), tasks(1)], &[10, 1000, 51]), (vec![2], vec![(1, 50)]), "in its way");
    // The first job needs both nodes completely, so nothing can run beside it.
    assert_eq!(queue(vec![tasks(8), tasks(1), tasks(1)], &[10, 91, 90]), (vec![3], vec![(1, 90)]));
    // No job can start, so no reservation is calculated.
    assert_eq!(queue(vec![tasks(4), tasks(3)], &[10, 1]), (vec![], vec![]));
}

#[test]
fn room_that_others_make_is_kept() {
    let evicted = |cluster: &Cluster| {
        let plan = cluster.plan_by(Discipline::Easy, &mut Scratch::default());
        let mut victims: Vec<u32> = plan.evictions.iter().map(|eviction| eviction.victim.0).collect();
        victims.sort_unstable();
        (victims, plan.starts.iter().map(|start| start.item.id.0).collect::<Vec<_>>())
    };
    // One of two nodes is free. The first job needs both, the others one core each.
    let busy = Cluster::new(&[4, 4]).run(0, 4, 90).queue(vec![tasks(8), tasks(1)]).limits(&[10, 5]);
    assert_eq!(evicted(&busy), (vec![], vec![2]), "nobody makes room: it is backfilled");
    assert_eq!(evicted(&busy.clone().yields(0, false)), (vec![100], vec![]), "one makes room: nobody gets in the way");
    assert_eq!(evicted(&busy.yields(0, true)), (vec![], vec![]), "one goes already: nobody is asked, nor let in");
    // Cores beside the reserved ones may be used.
    let busy = Cluster::new(&[4, 4]).run(0, 4, 90).run(1, 2, 50).queue(vec![tasks(4), tasks(2)]).limits(&[10, 500]);
    assert_eq!(evicted(&busy.yields(0, false)), (vec![100 + 1], vec![2]));
    // A job is not preempted if its end does not help.
    let busy = Cluster::new(&[4, 4]).run(0, 2, 90).run(0, 2, 80).run(1, 3, 70).queue(vec![tasks(4)]).yields(0, false);
    assert_eq!(evicted(&busy.clone().yields(1, false)), (vec![100], vec![]), "the cheapest that suffices");
    assert_eq!(evicted(&busy), (vec![101, 102], vec![]), "both of the first node");
    assert_eq!(evicted(&busy.queue(vec![tasks(8)])), (vec![], vec![]), "in vain: nobody goes");
}

// Found by the simulator (seed 6377 of 4 nodes): a job preempted another, could not start itself before the reservation
// for a job of a higher tier, and preempted that other job again as soon as it had started again.
#[test]
fn nothing_is_preempted_for_a_job_that_a_reservation_keeps_from_starting() {
    let both = Need { nodes_min: Some(2), ..tasks(2) };
    let busy = Cluster::new(&[4, 4]).run(0, 1, 50).run(1, 4, 900).yields(1, false).queue(vec![both]);
    let evicted = |limit_s: u64| {
        let mut cluster = busy.clone().limits(&[limit_s]);
        // Job 50 of a higher tier gets all of the first node in 50 s.
        let higher = Partition { nodes: NodeSet::one(NodeId(0)), tier: 2, jobs: vec![job(50, tasks(4))] };
        cluster.partitions.push(higher);
        let plan = cluster.plan_by(Discipline::Easy, &mut Scratch::default());
        plan.evictions.iter().map(|eviction| eviction.victim.0).collect::<Vec<_>>()
    };
    assert_eq!(evicted(49), [101], "it ends before the reservation");
    assert_eq!(evicted(51), [0; 0]);
}

#[test]
fn memory_is_kept_too() {
    let mb = |mb, n| Need { memory: Memory::PerNodeMb(mb), ..tasks(n) };
    let busy = Cluster::new(&[4]).run(0, 1, 50);
    let queue = |needs: Vec<Need>, limits: &[u64]| busy.clone().queue(needs).limits(limits).backfilled();
    assert_eq!(queue(vec![mb(600, 4), mb(300, 1)], &[10, 60]).0, Vec::<u32>::new(), "no core beside it");
    let queue = |needs: Vec<Need>, limits: &[u64]| {
        let mut cluster = Cluster::new(&[4, 4]).run(0, 4, 50).run(1, 2, 90).queue(needs).limits(limits);
        cluster.nodes[1].memory_mb = 600;
        cluster.backfilled()
    };
    assert_eq!(queue(vec![mb(600, 2), mb(400, 1)], &[10, 60]), (vec![2], vec![(1, 50)]), "on the other node");
}

#[test]
fn gpus_are_kept_too() {
    let gpus = |count: u32| Need { gres: Some(format!("gpu:{count}")), ..tasks(1) };
    let busy = Cluster::new(&[4, 4]).run(0, 1, 50).run(1, 1, 90).with_gpus(2);
    let queue = |needs: Vec<Need>, limits: &[u64]| busy.clone().queue(needs).limits(limits);
    // The first job gets both GPUs of the first node in 50 s. A job that uses one of them must end before that.
    let waits = queue(vec![gpus(2), gpus(1), gpus(1), tasks(1)], &[10, 60, 40, 1000]);
    assert_eq!(waits.backfilled(), (vec![2, 3, 4], vec![(1, 50)]));
    let plan = waits.plan_by(Discipline::Easy, &mut Scratch::default());
    let got =
        plan.starts.iter().map(|start| start.given.gres.first().map(|grant| (grant.nodes.clone(), &grant.indices)));
    let second: CoreSet = std::iter::once(1).collect();
    let node = |number| NodeSet::one(NodeId(number));
    assert_eq!(got.collect::<Vec<_>>(), [Some((node(1), &second)), Some((node(0), &second)), None]);
    assert_eq!(queue(vec![gpus(2), gpus(1), gpus(1)], &[10, 60, 60]).backfilled(), (vec![2], vec![(1, 50)]));
    // GPUs allocated in this pass count as returned later. No job waits for more GPUs than exist.
    let free = Cluster::new(&[4]).with_gpus(2).queue(vec![gpus(2), gpus(1)]).limits(&[30, 10]);
    assert_eq!(free.backfilled(), (vec![1], vec![]));
    let plan = free.plan_by(Discipline::Conservative, &mut Scratch::default());
    assert_eq!(plan.reserved.iter().map(|kept| kept.time.since(NOW).secs()).collect::<Vec<_>>(), [30]);
    let free = Cluster::new(&[4]).with_gpus(2).queue(vec![gpus(3), gpus(1)]);
    assert_eq!(free.plan().skips.iter().map(|skip| skip.item.id.0).collect::<Vec<_>>(), [1]);
    assert_eq!(free.backfilled(), (vec![2], vec![]));
}

#[test]
fn nothing_runs_into_a_reservation_and_the_first_waits_until_it_is_over() {
    let four = || tasks(4);
    let cluster = Cluster::new(&[4, 4]).reserve(0, 100, 200);
    let started = |limits: &[u64]| cluster.clone().queue(limits.iter().map(|_| four()).collect()).limits(limits);
    assert_eq!(started(&[100, 101]).backfilled(), (vec![1, 2], vec![]), "one up to it, one beside it");
    assert_eq!(started(&[101, 101, 50]).backfilled(), (vec![1, 3], vec![(2, 101)]), "before it, on its node");
    // Both nodes are free at 95 s, but for less than 10 s.
    let both = Need { nodes_min: Some(2), ..tasks(8) };
    let busy = cluster.clone().run(1, 4, 95).queue(vec![both, four(), four()]).limits(&[10, 90, 90]);
    assert_eq!(busy.backfilled(), (vec![2], vec![(1, 200)]));
    // A job that does not fit because of the reservation blocks no other job.
    let narrow = Cluster::new(&[4]).reserve(0, 100, 200).queue(vec![four(), four()]).limits(&[101, 100]);
    let plan = narrow.plan();
    assert_eq!(plan.skips.iter().map(|skip| skip.reason.clone()).collect::<Vec<_>>(), [PendingReason::ReqNodeNotAvail]);
    assert_eq!(plan.starts.iter().map(|start| start.item.id.0).collect::<Vec<_>>(), [2]);
}

#[test]
fn conservative_backfill_keeps_room_for_all() {
    let busy = Cluster::new(&[4]).run(0, 2, 50).queue(vec![tasks(4), tasks(3), tasks(1)]).limits(&[10, 20, 60]);
    assert_eq!(busy.backfilled().0, Vec::<u32>::new());
    let plan = busy.plan_by(Discipline::Conservative, &mut Scratch::default());
    let times: Vec<u64> = plan.reserved.iter().map(|kept| kept.time.since(NOW).secs()).collect();
    assert_eq!(times, [50, 60, 60]);
    let shorter = busy.limits(&[10, 20, 50]).plan_by(Discipline::Conservative, &mut Scratch::default());
    assert_eq!(shorter.starts[0].item.id, JobId(3));
}

fn need() -> impl Strategy<Value = Need> {
    let counts = (option::of(1..4_u32), option::of(1..12_u32), option::of(1..4_u32), option::of(1..4_u32));
    let rest = (any::<bool>(), any::<bool>(), 0..3_u8, 0..700_u64);
    (counts, rest).prop_map(
        |((nodes_min, ntasks, ntasks_per_node, cpus_per_task), (exclusive, contiguous, kind, mb))| {
            let memory = match kind {
                0 => Memory::Unset,
                1 => Memory::PerNodeMb(mb),
                _ => Memory::PerCpuMb(mb / 4),
            };
            let exclusive = exclusive && contiguous;
            Need { nodes_min, ntasks, ntasks_per_node, cpus_per_task, exclusive, contiguous, memory, ..Need::default() }
        },
    )
}

fn cluster() -> impl Strategy<Value = Cluster> {
    let nodes = prop::collection::vec((1..9_u32, 0..9_usize, any::<bool>()), 1..7);
    (nodes, prop::collection::vec(need(), 1..20)).prop_map(|(nodes, needs)| {
        let mut cluster = Cluster::new(&nodes.iter().map(|(cpus, ..)| *cpus).collect::<Vec<_>>());
        for (at, (cpus, used, usable)) in nodes.into_iter().enumerate() {
            cluster.nodes[at].cores = CoreSet::first(used.min(cpus as usize));
            cluster.nodes[at].usable = usable;
            if !usable {
                cluster.open.remove(NodeId(at as u32));
            }
        }
        cluster.queue(needs)
    })
}

proptest! {
    #[test]
    fn nothing_is_given_twice_and_everything_asked_for_is_given(cluster in cluster()) {
        let mut cores: Vec<CoreSet> = cluster.nodes.iter().map(|node| node.cores.clone()).collect();
        let mut memory: BTreeMap<NodeId, u64> = BTreeMap::new();
        for start in cluster.plan().starts {
            let need = &cluster.partitions[0].jobs[start.item.id.0 as usize - 1].need;
            let (nodes, cpus) = (start.given.alloc.nodes(), start.given.alloc.cpus());
            prop_assert!(nodes.len() as u32 >= need.nodes_min.unwrap_or(1));
            prop_assert!(cpus >= need.tasks_on(nodes.len() as u32) * need.task_cpus());
            for group in &start.given.alloc.groups {
                for id in group.nodes.iter() {
                    let node = &cluster.nodes[id.index()];
                    prop_assert!(node.usable);
                    prop_assert!(cores[id.index()].is_disjoint(&group.cores));
                    cores[id.index()].union_with(&group.cores);
                    prop_assert!(cores[id.index()].is_subset(&CoreSet::first(node.hardware.cpus as usize)));
                    let held = memory.entry(id).or_default();
                    *held += group.memory_mb;
                    prop_assert!(*held <= node.hardware.memory_mb);
                }
            }
        }
    }

    #[test]
    fn the_same_view_gives_the_same_plan(cluster in cluster()) {
        for discipline in [Discipline::Fifo, Discipline::Easy, Discipline::Conservative] {
            let mut scratch = Scratch::default();
            let first = cluster.plan_by(discipline, &mut scratch);
            prop_assert_eq!(&first, &cluster.plan_by(discipline, &mut scratch));
            prop_assert_eq!(&first, &cluster.plan_by(discipline, &mut Scratch::default()));
        }
    }

    #[test]
    fn nobody_overtakes_who_could_run_some_day(cluster in cluster()) {
        let plan = cluster.plan();
        let order: Vec<u32> = plan.starts.iter().map(|start| start.item.id.0).collect();
        prop_assert!(order.is_sorted());
        if let Some(head) = plan.heads.first() {
            prop_assert!(order.iter().all(|id| *id < head.item.id.0));
        }
        let seen = plan.starts.len() + plan.heads.len() + plan.skips.len();
        prop_assert!(seen == cluster.partitions[0].jobs.len() || plan.heads.len() == 1);
    }
}

// Finding E of faults.md: of a range of node counts a job gets as many nodes as possible.
#[test]
fn e_a_range_of_nodes_gives_as_many_as_possible() {
    let cluster = || Cluster::new(&[4, 4, 4, 4]);
    let nodes = |need: Need| cluster().queue(vec![need]).started()[0].1.len();
    let range = |min, max, ntasks| Need { nodes_min: Some(min), nodes_max: Some(max), ntasks, ..Need::default() };
    assert_eq!((nodes(range(1, 3, None)), nodes(range(1, 4, Some(4))), nodes(range(1, 4, Some(2)))), (3, 4, 2));
    assert_eq!(nodes(range(2, 8, None)), 4, "no more than there are");
}
