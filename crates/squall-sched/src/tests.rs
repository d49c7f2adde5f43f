//! What the policy must never do, and some placements by example.

use std::collections::BTreeMap;

use proptest::prelude::{Strategy, any, prop, proptest};
use proptest::{option, prop_assert, prop_assert_eq};
use squall_model::id::{JobId, NodeId};
use squall_model::job::{Need, PendingReason};
use squall_model::resource::{Alloc, Hardware, Memory};
use squall_model::set::{CoreSet, NodeSet};

use crate::topology::Wish;
use crate::view::{Candidate, Group, Item, NodeView, PartitionView, Plan, Scratch, View};

/// A pretended node.
#[derive(Clone, Debug)]
struct Node {
    hardware: Hardware,
    cores: CoreSet,
    memory_mb: u64,
    usable: bool,
}

/// A pretended job.
#[derive(Clone, Debug)]
struct Job {
    id: u32,
    priority: u32,
    need: Need,
    copies: u32,
    group: Option<Group>,
}

/// A pretended partition.
#[derive(Clone, Debug)]
struct Partition {
    nodes: NodeSet,
    tier: u32,
    jobs: Vec<Job>,
}

/// A pretended cluster.
#[derive(Clone, Debug)]
struct Cluster {
    nodes: Vec<Node>,
    partitions: Vec<Partition>,
    open: NodeSet,
}

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
        Self { nodes: cpus.iter().map(node).collect(), partitions, open: all }
    }
    fn queue(mut self, needs: Vec<Need>) -> Self {
        let jobs = needs.into_iter().enumerate();
        self.partitions[0].jobs = jobs.map(|(at, need)| job(at as u32 + 1, need)).collect();
        self
    }
    fn plan(&self) -> Plan {
        crate::plan(self, &mut Scratch::default())
    }
    /// What each started job got: (job, cores by node).
    fn started(&self) -> Vec<(u32, Vec<(u32, usize)>)> {
        let by_node = |alloc: &Alloc| {
            let nodes = alloc.nodes();
            nodes.iter().map(|id| (id.0, alloc.on(id).map_or(0, |g| g.cores.len()))).collect()
        };
        self.plan().starts.iter().map(|start| (start.item.id.0, by_node(&start.alloc))).collect()
    }
}

fn job(id: u32, need: Need) -> Job {
    Job { id, priority: 1000 - id, need, copies: 1, group: None }
}

fn tasks(n: u32) -> Need {
    Need { ntasks: Some(n), ..Need::default() }
}

impl View for Cluster {
    fn partition_count(&self) -> usize {
        self.partitions.len()
    }
    fn partition(&self, at: usize) -> PartitionView<'_> {
        let Partition { nodes, tier, .. } = &self.partitions[at];
        PartitionView { nodes, tier: *tier, nodes_min: 1, nodes_max: None, time_max_s: None, starts: true }
    }
    fn queue(&self, partition: usize) -> impl Iterator<Item = Candidate<'_>> {
        self.partitions[partition].jobs.iter().map(|job| Candidate {
            item: Item { id: JobId(job.id), array: job.copies > 1 },
            priority: job.priority,
            need: &job.need,
            time_limit_s: None,
            wish: Wish::default(),
            copies: job.copies,
            group: job.group,
            avoid: None,
        })
    }
    fn node(&self, id: NodeId) -> NodeView<'_> {
        let Node { hardware, cores, memory_mb, usable } = &self.nodes[id.index()];
        NodeView { hardware, cores, memory_mb: *memory_mb, usable: *usable }
    }
    fn open(&self) -> &NodeSet {
        &self.open
    }
    fn node_id(&self, name: &str) -> Option<NodeId> {
        let number: u32 = name.strip_prefix('n')?.parse().ok()?;
        (number < self.nodes.len() as u32).then_some(NodeId(number))
    }
    fn memory_per_cpu_mb(&self) -> u64 {
        0
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
    let need = Need { nodes_min: Some(2), ntasks: Some(6), ..Need::default() };
    assert_eq!(Cluster::new(&[8, 8]).queue(vec![need]).started(), [(1, vec![(0, 3), (1, 3)])]);
    let need = Need { nodes_min: Some(3), ..Need::default() };
    assert_eq!(Cluster::new(&[8, 8, 8]).queue(vec![need]).started(), [(1, vec![(0, 1), (1, 1), (2, 1)])]);
    let need = Need { nodes_min: Some(2), ntasks_per_node: Some(2), cpus_per_task: Some(2), ..Need::default() };
    assert_eq!(Cluster::new(&[2, 4, 4]).queue(vec![need]).started(), [(1, vec![(1, 4), (2, 4)])]);
    let need = Need { nodes_min: Some(2), ntasks: Some(10), ..Need::default() };
    let uneven = Cluster::new(&[2, 3, 8]).queue(vec![need]).started();
    assert_eq!(uneven, [(1, vec![(1, 3), (2, 7)])], "the first two would be too few");
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
    assert_eq!(plan.starts[0].alloc.memory_mb(), 900);
    let all = cluster.queue(vec![per_node(0), per_node(1)]).plan();
    assert_eq!((all.starts.len(), all.starts[0].alloc.memory_mb()), (1, 1000));
}

#[test]
fn the_head_holds_up_its_partition_and_what_never_fits_does_not() {
    let cluster = Cluster::new(&[4, 4]).queue(vec![tasks(3), tasks(6), tasks(1), tasks(100), tasks(1)]);
    let plan = cluster.plan();
    assert_eq!((plan.starts.len(), plan.looked_at), (1, 2), "nobody looks past the head");
    assert_eq!(plan.heads[0].item.id, JobId(2));
    let plan = Cluster::new(&[4, 4]).queue(vec![tasks(100), tasks(1)]).plan();
    assert_eq!(plan.starts[0].item.id, JobId(2));
    assert_eq!(plan.skips[0].reason, PendingReason::BadConstraints);
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
fn an_array_starts_as_many_as_fit_and_may() {
    let mut cluster = Cluster::new(&[4]).queue(vec![tasks(1)]);
    cluster.partitions[0].jobs[0].copies = 100;
    assert_eq!(cluster.plan().starts.len(), 4);
    cluster.partitions[0].jobs[0].group = Some(Group { id: JobId(1), room: 2 });
    assert_eq!((cluster.plan().starts.len(), cluster.plan().heads.len()), (2, 0));
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
            let (nodes, cpus) = (start.alloc.nodes(), start.alloc.cpus());
            prop_assert!(nodes.len() as u32 >= need.nodes_min.unwrap_or(1));
            prop_assert!(cpus >= need.tasks_on(nodes.len() as u32) * need.task_cpus());
            for group in &start.alloc.groups {
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
        let mut scratch = Scratch::default();
        let first = crate::plan(&cluster, &mut scratch);
        prop_assert_eq!(&first, &crate::plan(&cluster, &mut scratch));
        prop_assert_eq!(&first, &cluster.plan());
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
