//! Explains why a job does not start, by the same tests as placement, node by node.

use std::collections::BTreeMap;

use squall_model::gres;
use squall_model::id::NodeId;
use squall_model::job::network::Class;
use squall_model::job::{NodeTest, PendingReason, Together};
use squall_model::resource::Memory;
use squall_model::set::NodeSet;
use squall_model::time::Time;

use crate::nodes::{fitting, licensed, span};
use crate::place::{Condition, capacity, fits};
use crate::request::Request;
use crate::scratch::Scratch;
use crate::topology::{TopologyKind, Wish, shapes};
use crate::view::{Bars, Candidate, NodeView, PartitionView, View};

/// Maximum number of suitable shapes that are listed.
const SHAPES_NAMED: usize = 6;

/// Result of all placement tests for a job in one partition, regardless of jobs ahead of it in the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// Whether the job fits on free nodes now, regardless of jobs ahead of it and of its other pending reasons.
    pub room: bool,
    /// Whether the job would fit if no other job ran.
    pub empty: bool,
    /// Whether the job would fit if no other job ran, all nodes were up and none was reserved. Also true if a node's
    /// hardware is unknown.
    pub ideal: bool,
    /// Reason why the job can never start in this partition. None: it could start in an empty cluster (`ideal` is
    /// true).
    pub never: Option<PendingReason>,
    /// Reasons that block the job on all nodes alike.
    pub reasons: Vec<PendingReason>,
    /// Minimum number of nodes that the job needs.
    pub nodes_min: u32,
    /// Nodes of the partition, grouped by the first test that each fails; nodes that pass all tests are under
    /// `NodeTest::Free`.
    pub nodes: BTreeMap<NodeTest, NodeSet>,
    /// The requirement on positions in the network that keeps the job pending although enough nodes pass all other
    /// tests. None: there is none.
    pub misfit: Option<Misfit>,
}

/// A requirement on the positions of nodes in the network that free nodes do not fulfil.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The kind of requirement, for example that nodes form a ring.
    pub together: Together,
    /// Whether enough nodes in other positions are free now. False: there would be enough if no other job ran.
    pub free: bool,
    /// The first prism shapes that would suit the job, as text; empty if the requirement is not about shapes.
    pub shapes: Vec<String>,
}

/// Runs all placement tests for a job in partition number `at`.
pub fn explain(view: &impl View, scratch: &mut Scratch, job: &Candidate<'_>, at: usize, now: Time) -> Explained {
    scratch.reset(view, now);
    let partition = view.partition(at);
    let mut told = Explained::default();
    let request = match fitting(&partition, job) {
        Ok(request) => request,
        Err(reason) => {
            told.never = Some(reason.clone());
            told.reasons.push(reason);
            return told;
        }
    };
    told.nodes_min = nodes_needed(view, scratch, &request, partition.nodes);
    let others = scratch.nodes_of_others(view.topology(), job);
    let barred = match view.bars(job, at, now) {
        Bars::Open => NodeSet::new(),
        Bars::Barred(nodes) => nodes,
        Bars::Waits(reason) => {
            told.reasons.push(reason);
            NodeSet::new()
        }
    };
    let down = view.boots_from(job).filter(|(until, _)| now < *until).map(|(_, down)| down);
    if !licensed(view, scratch, (job, at), &request, (now, span(&partition, job))) {
        told.reasons.push(PendingReason::Licenses);
    }
    for id in partition.nodes.iter() {
        let test = match () {
            () if !listed(&request, id) => NodeTest::Unlisted,
            () if request.excluded.contains(id) => NodeTest::Excluded,
            () if barred.contains(id) => NodeTest::Reserved,
            () if down.is_some_and(|down| down.contains(id)) => NodeTest::PoweredDown,
            () => match first_failed(view, scratch, &request, id) {
                NodeTest::Free if others.contains(id) => NodeTest::OtherUsers,
                test => test,
            },
        };
        told.nodes.entry(test).or_default().insert(id);
    }
    let mut open = request.clone().into_owned();
    open.excluded.union_with(&barred);
    if let Some(down) = down {
        open.excluded.union_with(down);
    }
    told.empty = fits(view, scratch, &open, partition.nodes, Condition::Empty);
    let mut now = open.clone();
    now.excluded.union_with(&others);
    told.room = fits(view, scratch, &now, partition.nodes, Condition::Now);
    let unknown = partition.nodes.iter().any(|id| view.node(id).hardware.cpus == 0);
    told.ideal = told.empty || unknown || fits(view, scratch, &request, partition.nodes, Condition::Ideal);
    told.never = (!told.ideal).then(|| hopeless(view, &request, partition.nodes));
    told.misfit = misfit(view, scratch, (&open, &others), partition.nodes, (told.room, told.empty));
    told
}

/// Returns the minimum number of nodes that a job needs, if these are idle and up.
fn nodes_needed(view: &impl View, scratch: &Scratch, request: &Request, nodes: &NodeSet) -> u32 {
    let each = nodes.iter().map(|id| capacity(view, scratch, request, id, Condition::Ideal)).max().unwrap_or(0);
    request.nodes_min.max(request.tasks.map_or(0, |tasks| if each > 0 { tasks.div_ceil(each) } else { 0 }))
}

/// Returns the reason why a job cannot start on these nodes even if all were idle and up.
pub(crate) fn hopeless(view: &impl View, request: &Request, nodes: &NodeSet) -> PendingReason {
    match () {
        () if more_cpus(view, request, nodes) => PendingReason::PartitionConfig,
        () if request.nodes_min as usize > nodes.len() => PendingReason::PartitionNodeLimit,
        () => PendingReason::BadConstraints,
    }
}

/// Returns why a job can never start in a partition, by the number of its nodes and CPUs alone. None: it has enough, or a
/// node's hardware is unknown.
pub fn too_large(view: &impl View, request: &Request, at: usize) -> Option<PendingReason> {
    let PartitionView { nodes, nodes_max, .. } = view.partition(at);
    match () {
        () if nodes_max.is_some_and(|most| request.nodes_min > most) => Some(PendingReason::PartitionNodeLimit),
        () if nodes.is_empty() || nodes.iter().any(|id| view.node(id).hardware.cpus == 0) => None,
        () => Some(hopeless(view, request, nodes)).filter(|reason| *reason != PendingReason::BadConstraints),
    }
}

/// Returns the requirement on positions of nodes that a job's free nodes do not fulfil. None: the job fits, or it
/// would not fit in any positions either. `others`: nodes that are not for the job because of jobs there.
fn misfit(
    view: &impl View,
    scratch: &mut Scratch,
    (request, others): (&Request, &NodeSet),
    nodes: &NodeSet,
    (room, empty): (bool, bool),
) -> Option<Misfit> {
    let together = together(view, request)?;
    let network = Class::Anywhere;
    let wish = Wish { network, ..Wish::default() };
    let loose = Request { contiguous: false, wish, ..request.clone() };
    let mut now = loose.clone();
    now.excluded.union_with(others);
    let free = !room && fits(view, scratch, &now, nodes, Condition::Now);
    if !free && (empty || !fits(view, scratch, &loose, nodes, Condition::Empty)) {
        return None;
    }
    let each = nodes.iter().map(|id| capacity(view, scratch, &loose, id, Condition::Ideal)).max().unwrap_or(1).max(1);
    let wanted = request.nodes_min.max(request.tasks.unwrap_or(0).div_ceil(each));
    let shapes = match view.topology() {
        Some(topology) if together != Together::Contiguous => {
            shapes(topology, &request.wish, (wanted, each), SHAPES_NAMED)
        }
        _ => Vec::new(),
    };
    Some(Misfit { together, free, shapes })
}

/// Returns the job's requirement on positions of nodes that can keep it pending. None: it has none.
fn together(view: &impl View, request: &Request) -> Option<Together> {
    if request.contiguous {
        return Some(Together::Contiguous);
    }
    match &view.topology()?.kind {
        TopologyKind::Flat => None,
        TopologyKind::Block { .. } if request.wish.segments.is_some() || request.wish.groups.is_some() => {
            Some(Together::Segments)
        }
        TopologyKind::Block { .. } => Some(Together::Block),
        TopologyKind::Tree { .. } => request.wish.switches.map(|_| Together::Switches),
        TopologyKind::Ring(_) => Some(Together::Ring),
        TopologyKind::Torus(_) if request.wish.geometry.is_some() => Some(Together::Geometry),
        TopologyKind::Torus(_) if request.wish.grid.is_some() => Some(Together::Grid),
        TopologyKind::Torus(_) => Some(Together::Prism),
    }
}

/// Returns whether a partition has enough nodes with the requested properties, regardless of their state, usage and
/// position in the network. Also true if the partition has too few nodes or CPUs of any kind, which is a different
/// pending reason, or if a node's hardware is unknown.
pub fn has_such(view: &impl View, scratch: &mut Scratch, request: &Request, at: usize) -> bool {
    let nodes = view.partition(at).nodes;
    let anywhere = Wish { network: Class::Anywhere, ..Wish::default() };
    let such = Request { wish: anywhere, ..request.clone() };
    let inside = |id: NodeId| {
        let NodeView { hardware, grain, .. } = view.node(id);
        hardware.cpus == 0 || request.inside.most_tasks(hardware, !grain.is_cpu()) > 0
    };
    if !request.inside.is_empty() && !nodes.iter().any(inside) {
        return false;
    }
    request.nodes_min as usize > nodes.len()
        || fits(view, scratch, &such, nodes, Condition::Ideal)
        || nodes.iter().any(|id| view.node(id).hardware.cpus == 0)
        || more_cpus(view, request, nodes)
}

/// Returns whether a job needs more CPUs than these nodes have, so that more nodes of their kinds would help. False if a
/// node's CPUs are unknown.
fn more_cpus(view: &impl View, request: &Request, nodes: &NodeSet) -> bool {
    let hardware = || nodes.iter().map(|id| u64::from(view.node(id).hardware.cpus));
    let tasks = request.tasks.unwrap_or(request.nodes_min.saturating_mul(request.tasks_per_node.unwrap_or(1)));
    let tasks = tasks.max(request.nodes_min);
    let cpus = if request.overcommit { 0 } else { u64::from(tasks) * u64::from(request.task_cpus) };
    // Where `--nodes` allows too few of the largest nodes, no number of nodes would help.
    let allowed = hardware().max().unwrap_or(0).saturating_mul(request.nodes_max.into());
    hardware().all(|cpus| cpus > 0) && cpus > hardware().sum() && cpus <= allowed
}

/// Returns whether the job's node list allows a node: a list with as many nodes as the job may have excludes all
/// others.
fn listed(request: &Request, id: NodeId) -> bool {
    request.required.contains(id) || request.required.len() < request.nodes_max as usize
}

/// Returns the first test that a node fails, or `NodeTest::Free`.
fn first_failed(view: &impl View, scratch: &Scratch, request: &Request, id: NodeId) -> NodeTest {
    let node = view.node(id);
    if !node.usable {
        return NodeTest::Unusable;
    }
    if request.constraint.as_ref().is_some_and(|wanted| !wanted.holds(&node.hardware.features)) {
        return NodeTest::Features;
    }
    if node.hardware.tmp_disk_mb < request.tmp_disk_mb {
        return NodeTest::TmpDisk;
    }
    // Generic resources that are requested for the whole job count as one on each node here.
    let request = if request.gres.per_job.is_empty() { request.clone() } else { request.on_nodes(request.nodes_max) };
    let cores_only = Request { memory: Memory::Unset, gres: gres::Ask::default(), ..request.clone() };
    let no_gres = Request { gres: gres::Ask::default(), ..request.clone() };
    let room = |request: &Request, condition| capacity(view, scratch, request, id, condition) > 0;
    match () {
        () if !room(&cores_only, Condition::Empty) => NodeTest::FewCpus,
        () if !room(&no_gres, Condition::Empty) => NodeTest::LittleMemory,
        () if !room(&request, Condition::Empty) => NodeTest::FewGres,
        () if !room(&cores_only, Condition::Now) => NodeTest::BusyCpus,
        () if !room(&no_gres, Condition::Now) => NodeTest::BusyMemory,
        () if !room(&request, Condition::Now) => NodeTest::BusyGres,
        () if !view.open().contains(id) => NodeTest::Silent,
        () => NodeTest::Free,
    }
}
