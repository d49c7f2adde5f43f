//! Why a job does not start: the same tests as placement makes, node by node.

use std::collections::BTreeMap;

use squall_model::gres;
use squall_model::id::NodeId;
use squall_model::job::network::Class;
use squall_model::job::{NodeTest, PendingReason, Together};
use squall_model::resource::Memory;
use squall_model::set::NodeSet;
use squall_model::time::Time;

use crate::nodes::{fitting, licensed};
use crate::place::{Condition, capacity, fits};
use crate::request::Request;
use crate::scratch::Scratch;
use crate::topology::{Kind, Wish, shapes};
use crate::view::{Bars, Candidate, View};

/// So many of the shapes that would do are named.
const SHAPES_NAMED: usize = 6;

/// How a job stands in one partition, whoever is ahead of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// There is room for it now, whoever is ahead and whatever else it waits for.
    pub room: bool,
    /// It would start if nothing ran.
    pub empty: bool,
    /// It would start if moreover all nodes were up and none was reserved, or nobody knows what they have.
    pub ideal: bool,
    /// Why it could not start even then.
    pub never: Option<PendingReason>,
    /// What keeps it from every node alike.
    pub reasons: Vec<PendingReason>,
    /// How many nodes it needs at least.
    pub nodes_min: u32,
    /// The partition's nodes by the first test that each fails, or by having passed all.
    pub nodes: BTreeMap<NodeTest, NodeSet>,
    /// There would be nodes enough, but not such that stand together as it wants them.
    pub misfit: Option<Misfit>,
}

/// What keeps a job from nodes that pass all other tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// How they have to stand together.
    pub together: Together,
    /// Enough are free now. Else they would be if nothing ran.
    pub free: bool,
    /// The first of the shapes that would do, if it is one.
    pub shapes: Vec<String>,
}

/// Makes all tests for a job in a partition.
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
    let others = scratch.nodes_of_others(job);
    let barred = match view.bars(job, at, now) {
        Bars::Open => NodeSet::new(),
        Bars::Barred(nodes) => nodes,
        Bars::Waits(reason) => {
            told.reasons.push(reason);
            NodeSet::new()
        }
    };
    if !licensed(view, scratch, &request) {
        told.reasons.push(PendingReason::Licenses);
    }
    for id in partition.nodes.iter() {
        let test = match () {
            () if !listed(&request, id) => NodeTest::Unlisted,
            () if request.excluded.contains(id) => NodeTest::Excluded,
            () if barred.contains(id) => NodeTest::Reserved,
            () => match first_failed(view, scratch, &request, id) {
                NodeTest::Free if others.contains(id) => NodeTest::OtherUsers,
                test => test,
            },
        };
        told.nodes.entry(test).or_default().insert(id);
    }
    let mut open = request.clone().into_owned();
    open.excluded.union_with(&barred);
    told.empty = fits(view, scratch, &open, partition.nodes, Condition::Empty);
    let mut now = open.clone();
    now.excluded.union_with(&others);
    told.room = fits(view, scratch, &now, partition.nodes, Condition::Now);
    let unknown = partition.nodes.iter().any(|id| view.node(id).hardware.cpus == 0);
    told.ideal = told.empty || unknown || fits(view, scratch, &request, partition.nodes, Condition::Ideal);
    told.never = (!told.ideal).then(|| hopeless(view, &request, partition.nodes));
    told.misfit = misfit(view, scratch, &open, partition.nodes, (told.room, told.empty));
    told
}

/// How many nodes a job needs at least, if these are idle and up.
fn nodes_needed(view: &impl View, scratch: &Scratch, request: &Request, nodes: &NodeSet) -> u32 {
    let each = nodes.iter().map(|id| capacity(view, scratch, request, id, Condition::Ideal)).max().unwrap_or(0);
    request.nodes_min.max(request.tasks.map_or(0, |tasks| if each > 0 { tasks.div_ceil(each) } else { 0 }))
}

/// Why a job can't start on these nodes though all were idle and up.
pub(crate) fn hopeless(view: &impl View, request: &Request, nodes: &NodeSet) -> PendingReason {
    match () {
        () if more_cpus(view, request, nodes) => PendingReason::PartitionConfig,
        () if request.nodes_min as usize > nodes.len() => PendingReason::PartitionNodeLimit,
        () => PendingReason::BadConstraints,
    }
}

/// Whether it is only that nodes do not stand together as they have to: if they stood anywhere, they would do.
fn misfit(
    view: &impl View,
    scratch: &mut Scratch,
    request: &Request,
    nodes: &NodeSet,
    (room, empty): (bool, bool),
) -> Option<Misfit> {
    let together = together(view, request)?;
    let network = Class::Anywhere;
    let wish = Wish { network, ..Wish::default() };
    let loose = Request { contiguous: false, wish, ..request.clone() };
    let free = !room && fits(view, scratch, &loose, nodes, Condition::Now);
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

/// What a job wants of where its nodes stand, if that may be what keeps it.
fn together(view: &impl View, request: &Request) -> Option<Together> {
    if request.contiguous {
        return Some(Together::Contiguous);
    }
    match &view.topology()?.kind {
        Kind::Flat | Kind::Block { .. } => None,
        Kind::Tree { .. } => request.wish.switches.map(|_| Together::Switches),
        Kind::Ring(_) => Some(Together::Ring),
        Kind::Torus(_) if request.wish.geometry.is_some() => Some(Together::Geometry),
        Kind::Torus(_) if request.wish.grid.is_some() => Some(Together::Grid),
        Kind::Torus(_) => Some(Together::Prism),
    }
}

/// Whether a partition has nodes enough that have what a job asks for, up or down, busy or not, and wherever they stand in the network.
/// True, too, if it has not even so many nodes or CPUs, whatever they have: then that is what it waits for.
pub fn has_such(view: &impl View, scratch: &mut Scratch, request: &Request, at: usize) -> bool {
    let nodes = view.partition(at).nodes;
    let anywhere = Wish { network: Class::Anywhere, ..Wish::default() };
    let such = Request { wish: anywhere, ..request.clone() };
    let inside = |id: NodeId| {
        let hardware = view.node(id).hardware;
        hardware.cpus == 0 || request.inside.most_tasks(hardware) > 0
    };
    if !request.inside.is_empty() && !nodes.iter().any(inside) {
        return false;
    }
    request.nodes_min as usize > nodes.len()
        || fits(view, scratch, &such, nodes, Condition::Ideal)
        || nodes.iter().any(|id| view.node(id).hardware.cpus == 0)
        || more_cpus(view, request, nodes)
}

/// Whether a job asks for more CPUs than these nodes have, all of which are known.
fn more_cpus(view: &impl View, request: &Request, nodes: &NodeSet) -> bool {
    let hardware = || nodes.iter().map(|id| u64::from(view.node(id).hardware.cpus));
    let tasks = request.tasks.unwrap_or(request.nodes_min.saturating_mul(request.tasks_per_node.unwrap_or(1)));
    let tasks = tasks.max(request.nodes_min);
    let cpus = if request.overcommit { 0 } else { u64::from(tasks) * u64::from(request.task_cpus) };
    hardware().all(|cpus| cpus > 0) && cpus > hardware().sum()
}

/// Whether a node may be one of the job's: not where it names as many as it wants.
fn listed(request: &Request, id: NodeId) -> bool {
    request.required.contains(id) || request.required.len() < request.nodes_max as usize
}

/// The first test that a node fails.
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
    // What is asked for over all nodes needs one of it here at least.
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
