//! Placement of one job: first fit over nodes in the order of their weights, then ids, preferring few nodes.

use std::borrow::Cow;

use squall_model::gres::{Count, NodeGres, grant};
use squall_model::id::NodeId;
use squall_model::job::network::Class;
use squall_model::resource::Memory;
use squall_model::set::{CoreSet, NodeSet};

use crate::constraint::{Constraint, has};
use crate::grain::Grain;
use crate::request::{Request, gpus};
use crate::scratch::Scratch;
use crate::topology::{Scene, Topology, TopologyKind, arrange};
use crate::view::{Cap, Given, NodeView, View};

/// Which nodes and which usage a placement considers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Usable nodes, with resources that are free now and throughout the scratch's time window.
    Now,
    /// Usable nodes, with resources that are free from the beginning to the end of the scratch's time window.
    Then,
    /// Usable nodes, as if no job ran.
    Empty,
    /// All nodes, as if no job ran and all were up.
    Ideal,
}

/// Places a job on some of `nodes`. None: it does not fit.
pub(crate) fn place(
    view: &impl View,
    scratch: &mut Scratch,
    request: &Request,
    nodes: &NodeSet,
    condition: Condition,
) -> Option<Given> {
    let chosen = choose(view, scratch, request, nodes, condition)?;
    Some(share_out(view, scratch, request, &chosen, condition))
}

/// Returns whether a job fits on `nodes`.
pub(crate) fn fits(
    view: &impl View,
    scratch: &mut Scratch,
    request: &Request,
    nodes: &NodeSet,
    condition: Condition,
) -> bool {
    choose(view, scratch, request, nodes, condition).is_some()
}

/// Chooses nodes for a job: (node, greatest number of tasks there). None: it does not fit.
pub(crate) fn choose(
    view: &impl View,
    scratch: &mut Scratch,
    request: &Request,
    nodes: &NodeSet,
    condition: Condition,
) -> Option<Vec<(NodeId, u32)>> {
    if !request.required.is_subset(nodes) || !request.required.0.is_disjoint(&request.excluded.0) {
        return None;
    }
    if let Some(preferred) = &request.prefer {
        let first = Request { constraint: Some(preferred.clone()), prefer: None, ..request.clone() };
        // The walk's counts include nodes that are not preferred.
        let walked = std::mem::take(&mut scratch.walked);
        let found = choose(view, scratch, &first, nodes, condition);
        scratch.walked = walked;
        return found.or_else(|| choose(view, scratch, &Request { prefer: None, ..request.clone() }, nodes, condition));
    }
    if let Some(ways) = request.constraint.as_ref().and_then(Constraint::ways) {
        let mut ways = ways.map(|way| Request { constraint: Some(way), ..request.clone() });
        // The walk's counts include nodes of all kinds.
        let walked = std::mem::take(&mut scratch.walked);
        let found = ways.find_map(|one| choose(view, scratch, &one, nodes, condition));
        scratch.walked = walked;
        return found;
    }
    if request.constraint.as_ref().is_some_and(|constraint| !constraint.counts().is_empty()) {
        let request = counted(view, scratch, request, nodes, condition)?;
        return choose(view, scratch, &request, nodes, condition);
    }
    if !request.gres.per_job.is_empty() {
        // Nodes without GPUs may still take tasks.
        let gpus = request.gres.per_job.iter().map(|asked| asked.count).max().unwrap_or(1);
        let most = if request.tasks.is_some() { u32::MAX } else { gpus };
        let mut widths = request.nodes_min..=request.nodes_max.min(most.max(request.nodes_min)).min(nodes.len() as u32);
        return widths.find_map(|width| choose(view, scratch, &request.on_nodes(width), nodes, condition));
    }
    // Early exit: a wide job that waits for many nodes costs nothing each time that one job ends.
    if condition == Condition::Now && scratch.open.len() < request.nodes_min as usize {
        return None;
    }
    let mut fits = std::mem::take(&mut scratch.fits);
    let found = find(view, scratch, request, nodes, condition, &mut fits);
    scratch.fits = fits;
    found
}

/// Returns the request with the nodes that its constraint's counts need as required nodes. The kind with the fewest
/// nodes chooses first; nodes that the request requires anyway are preferred. None: too few nodes of some kind are
/// free.
fn counted(
    view: &impl View,
    scratch: &Scratch,
    request: &Request,
    nodes: &NodeSet,
    condition: Condition,
) -> Option<Request> {
    let constraint = request.constraint.as_ref()?;
    let fits = |id: &NodeId| {
        let withheld = condition == Condition::Now && scratch.withheld.contains(*id);
        !withheld
            && nodes.contains(*id)
            && !request.excluded.contains(*id)
            && capacity(view, scratch, request, *id, condition) > 0
    };
    let mut others = among(scratch, nodes, condition).clone();
    others.subtract(&request.required);
    let fits: Vec<NodeId> = request.required.iter().chain(others.iter()).filter(fits).collect();
    let mut kinds: Vec<(u32, Vec<NodeId>)> = Vec::new();
    for (count, all) in constraint.counts() {
        let of = fits.iter().copied().filter(|id| has(&view.node(*id).hardware.features, all));
        kinds.push((*count, of.collect()));
    }
    kinds.sort_by_key(|(_, nodes)| nodes.len());
    let (mut chosen, mut required) = (NodeSet::new(), request.required.clone());
    for (count, of) in kinds {
        let free: Vec<NodeId> = of.into_iter().filter(|id| !chosen.contains(*id)).take(count as usize).collect();
        if free.len() < count as usize {
            return None;
        }
        for id in free {
            chosen.insert(id);
            required.insert(id);
        }
    }
    let few = required.len() <= request.nodes_max as usize;
    few.then(|| Request { required, constraint: Some(constraint.of_each()), ..request.clone() })
}

/// Returns the nodes that may have free resources under this condition; all others are skipped.
fn among<'a>(scratch: &'a Scratch, nodes: &'a NodeSet, condition: Condition) -> &'a NodeSet {
    match condition {
        Condition::Now => &scratch.open,
        Condition::Then => &scratch.among,
        Condition::Empty | Condition::Ideal => nodes,
    }
}

/// Returns the network; None: it does not affect the job's placement.
fn network<'a>(view: &'a impl View, request: &Request) -> Option<&'a Topology> {
    let anywhere = !request.required.is_empty() || request.contiguous || request.wish.network == Class::Anywhere;
    let topology = view.topology().filter(|_| !anywhere)?;
    // A single node uses no links; but on a torus it may break up a prism.
    let torus = matches!(topology.kind, TopologyKind::Torus(_));
    (torus || request.nodes_min > 1 || request.tasks.is_some_and(|tasks| tasks > 1)).then_some(topology)
}

/// Orders nodes by the network's preference. Returns false if the job must wait for better positions.
fn by_network(
    view: &impl View,
    scratch: &mut Scratch,
    request: &Request,
    (nodes, condition): (&NodeSet, Condition),
    fits: &mut Vec<(NodeId, u32)>,
) -> bool {
    let Some(topology) = network(view, request) else { return true };
    let mut memory = std::mem::take(&mut scratch.network);
    let idle = |id: NodeId| match condition {
        Condition::Now => scratch.taken.get(id).map_or(view.node(id).cores, |(cores, _)| cores).is_empty(),
        Condition::Then => free(view, scratch, id, condition).0 == view.node(id).hardware.cpus,
        Condition::Empty | Condition::Ideal => true,
    };
    let up = |id: NodeId| condition == Condition::Ideal || view.node(id).usable;
    let may = |id: NodeId| {
        let suits = || request.constraint.is_none() || capacity(view, scratch, request, id, Condition::Ideal) > 0;
        nodes.contains(id) && !request.excluded.contains(id) && suits()
    };
    let closed: Vec<&NodeSet> = match condition {
        Condition::Now | Condition::Then => scratch.closed_in_window().collect(),
        Condition::Empty | Condition::Ideal => Vec::new(),
    };
    let scene = Scene {
        nodes: request.nodes_min,
        nodes_max: request.nodes_max,
        tasks: request.tasks.unwrap_or(0).into(),
        tasks_each: request.tasks_per_node.unwrap_or(1),
        wish: request.wish,
        closed: &closed,
        idle: &idle,
        up: &up,
        may: &may,
    };
    let fine = arrange(topology, &mut memory, &scene, fits);
    scratch.network = memory;
    fine
}

/// Implements [`choose`], with `fits` as a buffer for the nodes that can take tasks.
fn find(
    view: &impl View,
    scratch: &mut Scratch,
    request: &Request,
    nodes: &NodeSet,
    condition: Condition,
    fits: &mut Vec<(NodeId, u32)>,
) -> Option<Vec<(NodeId, u32)>> {
    fits.clear();
    let wanted = request.tasks.unwrap_or(1);
    let network = network(view, request);
    let torus = network.is_some_and(|topology| matches!(topology.kind, TopologyKind::Torus(_)));
    let one_is_enough = request.nodes_min == 1 && request.required.is_empty() && !request.spread && !torus;
    let choice = network.is_some() || !request.required.is_empty() || request.contiguous || request.least_loaded;
    let among = among(scratch, nodes, condition);
    // Without reservations that begin later, the walk's count for a node at this time is its capacity.
    let known = condition == Condition::Then && scratch.walked && !scratch.keeps() && request.gres.is_empty();
    // Contiguous nodes are searched in the order of node numbers.
    let order = if request.contiguous { &[][..] } else { view.by_weight() };
    let by_number = among.iter().take_while(|_| order.is_empty());
    let in_order = by_number.chain(order.iter().copied().filter(|id| among.contains(*id)));
    for id in in_order.filter(|id| nodes.contains(*id) && !request.excluded.contains(*id)) {
        if condition == Condition::Now && scratch.withheld.contains(id) {
            continue;
        }
        let tasks = if known { scratch.tasks[id.index()] } else { capacity(view, scratch, request, id, condition) };
        if tasks == 0 {
            continue;
        }
        if one_is_enough && tasks >= wanted && !request.least_loaded {
            return Some(vec![(id, tasks)]);
        }
        fits.push((id, tasks));
        // Without a contiguity requirement or choice, the first sufficient nodes are as good as any.
        if request.tasks.is_none() && !choice {
            let enough = if request.spread { usize::MAX } else { request.nodes_max as usize };
            if fits.len() >= enough {
                break;
            }
        }
        let first_will_do = !choice && !request.spread;
        if first_will_do && fits.len() == request.nodes_min as usize && request.tasks.is_some() && enough(request, fits)
        {
            break;
        }
    }
    if request.least_loaded && !request.contiguous {
        let load = |id| std::cmp::Reverse(free(view, scratch, id, condition).0);
        fits.sort_by_cached_key(|(id, _)| (if order.is_empty() { 1 } else { view.weight(*id) }, load(*id)));
        if one_is_enough && let Some(one) = fits.iter().find(|(_, tasks)| *tasks >= wanted) {
            return Some(vec![*one]);
        }
    }
    if network.is_some() && !by_network(view, scratch, request, (nodes, condition), fits) {
        return None;
    }
    if torus && request.wish.grid.is_some() && network.is_some() {
        return enough(request, fits).then(|| fits.clone());
    }
    if torus
        && request.nodes_min == 1
        && let Some(one) = fits.iter().find(|(_, tasks)| *tasks >= wanted)
    {
        return Some(vec![*one]);
    }
    if request.contiguous {
        contiguous(request, fits)
    } else {
        gather(request, fits, |id| if order.is_empty() { 1 } else { view.weight(id) })
    }
}

/// Returns the greatest number of the job's tasks that a node can take; 0: none.
pub(crate) fn capacity(
    view: &impl View,
    scratch: &Scratch,
    request: &Request,
    id: NodeId,
    condition: Condition,
) -> u32 {
    let node = view.node(id);
    let fine = (node.usable || condition == Condition::Ideal)
        && node.hardware.tmp_disk_mb >= request.tmp_disk_mb
        && request.constraint.as_ref().is_none_or(|c| c.holds(&node.hardware.features));
    if !fine {
        return 0;
    }
    let (mut cpus, memory_mb) = free_on(&node, view, scratch, id, condition);
    if let Some(cap) = request.cap {
        cpus = cpus.min(node.grain.whole(left_by_cap(view, scratch, cap, id, condition)));
    }
    if cpus == 0 || cpus < request.cpus_min || (request.exclusive && cpus < node.hardware.cpus) {
        return 0;
    }
    let grain = node.grain;
    let whole = !grain.is_cpu();
    let inside = if request.inside.is_empty() { u32::MAX } else { request.inside.most_tasks(node.hardware, whole) };
    if inside == 0 {
        return 0;
    }
    let most = request.tasks_per_node.unwrap_or(u32::MAX).min(inside);
    let by_cpus = match request.overcommit {
        true if cpus >= request.task_cpus => most,
        true => 0,
        false => grain.tasks(request.per_task(), cpus),
    };
    let by_memory = match request.memory {
        Memory::PerNodeMb(0) if memory_mb < node.hardware.memory_mb => 0,
        Memory::PerNodeMb(mb) if mb > memory_mb => 0,
        Memory::Unset | Memory::PerNodeMb(_) => u32::MAX,
        Memory::PerCpuMb(mb) => tasks_by_memory(request, grain, mb, memory_mb),
    };
    let Some(by_gres) = tasks_by_gres(view, scratch, request, id, condition) else { return 0 };
    let mut tasks = most.min(by_cpus).min(by_memory).min(by_gres);
    if request.gres.bound && !request.exclusive {
        tasks = tasks_near_gres(view, scratch, request, id, condition, tasks);
    }
    let exactly = request.tasks_per_node.filter(|_| request.tasks.is_none());
    if exactly.is_some_and(|n| tasks < n) { 0 } else { tasks }
}

/// Returns how many CPUs of a node the limits of the job's partition leave under this condition.
fn left_by_cap(view: &impl View, scratch: &Scratch, cap: Cap, id: NodeId, condition: Condition) -> u32 {
    match condition {
        Condition::Now => {
            let free = within_cap(view, scratch, Some(cap), id, condition).len() as u32;
            free.min(scratch.left_by_cap(view, cap, id, false))
        }
        Condition::Then => scratch.left_by_cap(view, cap, id, true),
        Condition::Empty | Condition::Ideal => {
            cap.cpus.min(within_cap(view, scratch, Some(cap), id, condition).len() as u32)
        }
    }
}

/// Returns the free CPUs of a node under this condition, without those that a limit on each socket keeps from the job.
/// In the future it is not known which CPUs will be free: then all are.
fn within_cap(view: &impl View, scratch: &Scratch, cap: Option<Cap>, id: NodeId, condition: Condition) -> CoreSet {
    let node = view.node(id);
    let mut free = CoreSet::first(node.hardware.cpus as usize);
    if condition == Condition::Now {
        free.subtract(scratch.taken.get(id).map_or(node.cores, |(cores, _)| cores));
        return match cap {
            Some(cap) => scratch.within_cap(view, cap, id, free),
            None => free,
        };
    }
    match cap.and_then(|cap| cap.socket) {
        Some(most) => node.grain.within_sockets(node.hardware, &free, &[], most),
        None => free,
    }
}

/// Returns the number of tasks that a node's generic resources suffice for. None: they do not suffice for what the job
/// needs on each node.
fn tasks_by_gres(
    view: &impl View,
    scratch: &Scratch,
    request: &Request,
    id: NodeId,
    condition: Condition,
) -> Option<u32> {
    if request.gres.is_empty() {
        return Some(u32::MAX);
    }
    gres(view, scratch, id, condition)?.tasks(&request.gres.per_node, &request.gres.per_task)
}

/// Returns the number of tasks, `most` at most, for which a node has enough free CPUs near the devices that they get.
fn tasks_near_gres(
    view: &impl View,
    scratch: &Scratch,
    request: &Request,
    id: NodeId,
    condition: Condition,
    most: u32,
) -> u32 {
    let node = view.node(id);
    let free = within_cap(view, scratch, request.cap, id, condition);
    let most = request.tasks.map_or(most, |all| most.min(all));
    let fits = |tasks: &u32| {
        let asked = request.gres.on_node(0, request.nodes_min, *tasks);
        let Some(gres) = gres(view, scratch, id, condition).filter(|_| !asked.is_empty()) else { return true };
        let cpus = cpus_of(request, node.grain, gpus(&asked), *tasks);
        side(&gres, &asked, &free, node.grain, cpus).is_some()
    };
    (1..=most).rev().find(fits).unwrap_or(0)
}

/// Returns those of the free CPUs near which devices are to be taken, so that there are enough CPUs near these devices.
/// None: there are not.
fn side(gres: &NodeGres, asked: &[Count], free: &CoreSet, grain: Grain, cpus: u32) -> Option<CoreSet> {
    let near = gres.kinds.iter().filter(|kind| !kind.cores.is_empty()).map(|kind| free.intersection(&kind.cores));
    std::iter::once(free.clone()).chain(near).find(|cores| {
        let mut trial = gres.clone();
        let Some(taken) = trial.take(asked, cores) else { return false };
        let near = trial.cores_near(&taken);
        near.is_empty() || grain.whole(free.intersection(&near).len() as u32) >= cpus
    })
}

/// Returns the number of CPUs that tasks hold on a node, with so many GPUs, if they don't get all.
fn cpus_of(request: &Request, grain: Grain, gpus: u32, tasks: u32) -> u32 {
    let least = request.cpus_min.max(gpus.saturating_mul(request.gres.cpus_per_gpu)).max(1);
    grain.cpus(request.per_task(), if request.overcommit { 1 } else { tasks }, least)
}

/// Returns a node's generic resources with their usage under this condition. None: the node has none.
fn gres<'a>(view: &'a impl View, scratch: &'a Scratch, id: NodeId, condition: Condition) -> Option<Cow<'a, NodeGres>> {
    match condition {
        Condition::Now | Condition::Then => scratch.gres_of(view, id, condition == Condition::Then),
        Condition::Empty | Condition::Ideal => Some(Cow::Owned(view.gres(id)?.vacant())),
    }
}

/// Returns the number of tasks that `free_mb` of memory suffices for at `mb` for each CPU.
fn tasks_by_memory(request: &Request, grain: Grain, mb: u64, free_mb: u64) -> u32 {
    let cpus = free_mb.checked_div(mb).map_or(u32::MAX, |cpus| u32::try_from(cpus).unwrap_or(u32::MAX));
    if grain.whole(cpus) < request.cpus_min {
        return 0;
    }
    if request.overcommit || cpus == u32::MAX { u32::MAX } else { grain.tasks(request.per_task(), cpus) }
}

/// Returns the free CPUs and memory (MiB) of a node. Where jobs hold no memory of their own, all of it is free.
pub(crate) fn free(view: &impl View, scratch: &Scratch, id: NodeId, condition: Condition) -> (u32, u64) {
    free_on(&view.node(id), view, scratch, id, condition)
}

/// Implements [`free`] for a node of which the view is at hand.
fn free_on(node: &NodeView<'_>, view: &impl View, scratch: &Scratch, id: NodeId, condition: Condition) -> (u32, u64) {
    let (cpus, memory_mb) = free_of(node, scratch, id, condition);
    (node.grain.whole(cpus), if view.gives_memory() { memory_mb } else { node.hardware.memory_mb })
}

/// Implements [`free`] for single CPUs, and for jobs that hold memory of their own.
fn free_of(node: &NodeView<'_>, scratch: &Scratch, id: NodeId, condition: Condition) -> (u32, u64) {
    if matches!(condition, Condition::Empty | Condition::Ideal) {
        return (node.hardware.cpus, node.hardware.memory_mb);
    }
    let (cores, memory_mb) = match scratch.taken.get(id) {
        Some((cores, memory_mb)) => (cores, *memory_mb),
        None => (node.cores, node.memory_mb),
    };
    let mut cpus = node.hardware.cpus.saturating_sub(cores.len() as u32);
    let mut memory_mb = node.hardware.memory_mb.saturating_sub(memory_mb);
    if condition == Condition::Then {
        let (more, more_mb) = scratch.gain_of(id);
        (cpus, memory_mb) = ((cpus + more).min(node.hardware.cpus), (memory_mb + more_mb).min(node.hardware.memory_mb));
    }
    if scratch.keeps() { scratch.outside_holds(id, (cpus, memory_mb)) } else { (cpus, memory_mb) }
}

/// Chooses the required nodes, then the first sufficient ones; if these take too few tasks, those with the greatest
/// capacity. None: the nodes do not suffice.
fn gather(request: &Request, fits: &[(NodeId, u32)], weight: impl Fn(NodeId) -> u32) -> Option<Vec<(NodeId, u32)>> {
    let (required, others) = if request.required.is_empty() {
        (Vec::new(), fits.to_vec())
    } else {
        fits.iter().copied().partition(|(id, _)| request.required.contains(*id))
    };
    if required.len() < request.required.len() {
        return None;
    }
    let mut chosen = required;
    if request.spread {
        // More nodes than tasks would leave some idle.
        let most = request.tasks.unwrap_or(u32::MAX).max(request.nodes_min).min(request.nodes_max);
        let wide: Vec<_> = chosen.iter().chain(&others).take(most as usize).copied().collect();
        if enough(request, &wide) {
            return Some(wide);
        }
    }
    let must = (request.nodes_min as usize).saturating_sub(chosen.len());
    if request.tasks.is_none() {
        let may = request.nodes_max as usize - chosen.len();
        chosen.extend(others.iter().take(may));
        return enough(request, &chosen).then_some(chosen);
    }
    let first: Vec<_> = chosen.iter().chain(others.iter().take(must)).copied().collect();
    if enough(request, &first) {
        return Some(first);
    }
    let mut roomy = others;
    // Among equal nodes the first are chosen: by number, or by the network's preference.
    roomy.sort_by_key(|(id, tasks)| (weight(*id), std::cmp::Reverse(*tasks)));
    for fit in roomy {
        if enough(request, &chosen) || chosen.len() == request.nodes_max as usize {
            break;
        }
        chosen.push(fit);
    }
    enough(request, &chosen).then_some(chosen)
}

/// Returns the first sufficient run of nodes with consecutive numbers. None: there is none.
fn contiguous(request: &Request, fits: &[(NodeId, u32)]) -> Option<Vec<(NodeId, u32)>> {
    for from in 0..fits.len() {
        let mut chosen = Vec::new();
        for &(id, tasks) in &fits[from..] {
            let broken = chosen.last().is_some_and(|(last, _): &(NodeId, u32)| last.0 + 1 != id.0);
            if broken || chosen.len() == request.nodes_max as usize {
                break;
            }
            chosen.push((id, tasks));
            let all = chosen.iter().filter(|(id, _)| request.required.contains(*id)).count() == request.required.len();
            if all && enough(request, &chosen) {
                return Some(chosen);
            }
        }
    }
    None
}

/// Returns whether these are enough nodes, with capacity for all tasks.
fn enough(request: &Request, chosen: &[(NodeId, u32)]) -> bool {
    let room: u64 = chosen.iter().map(|(_, tasks)| u64::from(*tasks)).sum();
    chosen.len() >= request.nodes_min as usize
        && chosen.len() <= request.nodes_max as usize
        && request.tasks.is_none_or(|tasks| room >= u64::from(tasks))
}

/// Allocates tasks to the chosen nodes, and to each node the cores and memory that its tasks need.
pub(crate) fn share_out(
    view: &impl View,
    scratch: &Scratch,
    request: &Request,
    chosen: &[(NodeId, u32)],
    condition: Condition,
) -> Given {
    let mut chosen = chosen.to_vec();
    chosen.sort_unstable_by_key(|(id, _)| *id);
    let tasks = deal(request, &chosen, view.packs());
    let mut given = Given::default();
    let none = CoreSet::new();
    // A node equal to the previous one, in cores, usage and tasks, gets the same cores.
    let size = |node: &NodeView<'_>| (node.hardware.cpus, node.hardware.memory_mb, node.grain);
    let mut before: Option<(&CoreSet, NodeView<'_>, u32, usize)> = None;
    for (place, (&(id, _), tasks)) in chosen.iter().zip(tasks).enumerate() {
        let node = view.node(id);
        let used = match scratch.taken.get(id) {
            _ if condition != Condition::Now => &none,
            Some((cores, _)) => cores,
            None => node.cores,
        };
        let whole = if request.exclusive { view.gres(id).map(NodeGres::whole) } else { None };
        if let Some((cores, like, dealt, group)) = before
            && request.gres.is_empty()
            && whole.is_none()
            && request.cap.is_none_or(|cap| cap.socket.is_none())
            && (cores, size(&like), dealt) == (used, size(&node), tasks)
        {
            given.alloc.groups[group].nodes.insert(id);
            continue;
        }
        let asked = request.gres.on_node(place as u32, chosen.len() as u32, tasks);
        let gpus = gpus(&asked);
        // An exclusive node is allocated with everything in it.
        let wanted = whole.unwrap_or(asked);
        let free = within_cap(view, scratch, request.cap, id, condition);
        let cpus = if request.exclusive { free.len() as u32 } else { cpus_of(request, node.grain, gpus, tasks) };
        let memory_mb = match request.memory {
            _ if gpus > 0 && request.gres.mem_per_gpu_mb > 0 => {
                u64::from(gpus).saturating_mul(request.gres.mem_per_gpu_mb)
            }
            Memory::Unset => 0,
            Memory::PerNodeMb(0) => node.hardware.memory_mb,
            Memory::PerNodeMb(mb) => mb,
            Memory::PerCpuMb(mb) => mb.saturating_mul(u64::from(cpus)).min(node.hardware.memory_mb),
        };
        let mut near = CoreSet::new();
        if !wanted.is_empty()
            && let Some(mut gres) = gres(view, scratch, id, condition)
        {
            let bound = request.gres.bound.then(|| side(&gres, &wanted, &free, node.grain, cpus)).flatten();
            let taken = gres.to_mut().take(&wanted, bound.as_ref().unwrap_or(&free)).unwrap_or_default();
            near = gres.cores_near(&taken);
            grant(&mut given.gres, id, taken);
        }
        let cores = node.grain.take_near(&free, cpus, &near);
        before = Some((used, node, tasks, given.alloc.push(id, cores, memory_mb)));
    }
    given
}

/// Returns the number of tasks of each chosen node. If the CPUs of each are fixed anyway, tasks are distributed
/// evenly. Otherwise each node in turn gets as many as it can take, but one is left for each node behind it, as in
/// Slurm. Example: `-N2 -n4` on nodes of 4 CPUs gives 3 and 1. `pack`: whether the nodes are always filled in turn.
fn deal(request: &Request, chosen: &[(NodeId, u32)], pack: bool) -> Vec<u32> {
    let Some(total) = request.tasks else {
        let each = request.tasks_per_node.unwrap_or(1);
        return vec![each; chosen.len()];
    };
    let most = chosen.iter().map(|(_, most)| *most).collect::<Vec<u32>>();
    let whole = request.exclusive || request.overcommit || request.cpus_min > request.task_cpus;
    if (whole && !pack) || request.spread || (total as usize) < most.len() {
        return deal_evenly(total, &most);
    }
    deal_in_turn(total, &most)
}

/// Gives each node in turn as many tasks as it can take, up to its capacity in `most`, but leaves one for each node
/// behind it.
pub fn deal_in_turn(total: u32, most: &[u32]) -> Vec<u32> {
    let mut left = total;
    let behind = (0..most.len() as u32).rev();
    let dealt = most.iter().zip(behind).map(|(most, behind)| {
        let here = left.saturating_sub(behind).min(*most);
        left -= here;
        here
    });
    dealt.collect()
}

/// Distributes tasks evenly, one to each node in turn, up to the capacity `most` of each.
pub fn deal_evenly(total: u32, most: &[u32]) -> Vec<u32> {
    let mut tasks = vec![0_u32; most.len()];
    let mut left = total;
    while left > 0 {
        let room = most.iter().zip(&tasks).filter(|(most, has)| most > has).map(|(most, has)| most - has);
        let (open, least) = room.fold((0, u32::MAX), |(open, least), room| (open + 1, least.min(room)));
        if open == 0 {
            break;
        }
        let round = (left / open).clamp(1, least);
        for (most, has) in most.iter().zip(&mut tasks) {
            let more = round.min(left).min(most - *has);
            *has += more;
            left -= more;
        }
    }
    tasks
}
