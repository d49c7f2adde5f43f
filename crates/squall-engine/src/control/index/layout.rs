//! The layout of a step: which nodes of the job's allocation its tasks run on, and which cores and memory it holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use squall_model::gres::{self, Grant, NodeGres};
use squall_model::hostlist::expand_within;
use squall_model::id::NodeId;
use squall_model::inside::Inside;
use squall_model::limits::TASKS_MAX;
use squall_model::resource::{Alloc, Memory};
use squall_model::runs::Runs;
use squall_model::set::CoreSet;
use squall_model::step::{Distribution, Layout, StepSpec};
use squall_model::wire::client::Refusal;
use squall_sched::{Grain, PerTask};

/// Cluster size (nodes) from which the length limit of a step's node lists follows: a list may have twice as many
/// names.
const STEP_NAMES_MAX: usize = 1 << 14;

/// A node of a job's allocation, with what the job and its steps hold there. Lists of rooms are in the allocation's
/// order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Id of the node.
    pub(crate) node: NodeId,
    /// The node's name.
    pub(crate) name: String,
    /// Names of the failed nodes of which it has the place: in lists of nodes they stand for this one.
    pub(crate) replaces: Vec<String>,
    /// Cores that the job holds on the node.
    pub(crate) cores: CoreSet,
    /// Cores of the job on the node that no step holds.
    pub(crate) free: CoreSet,
    /// Memory that the job holds on the node, MiB; 0: no limit.
    pub(crate) memory_mb: u64,
    /// Memory of the job on the node that no step holds, MiB.
    pub(crate) free_mb: u64,
    /// Whether tasks fill the node before they go to the next one.
    pub(crate) packs: bool,
    /// Unit in which the job's CPUs are given to its steps.
    pub(crate) grain: Grain,
    /// Threads of each core of the node.
    pub(crate) threads: u32,
    /// The node's generic resources. Devices that are not the job's count as held.
    pub(crate) gres: NodeGres,
    /// The node's generic resources. Devices that are not the job's or that a step of it holds count as held.
    pub(crate) gres_free: NodeGres,
}

impl Room {
    /// Returns the index of the room that a name in a list of nodes stands for. None: the job does not have the node.
    fn named(rooms: &[Self], name: &String) -> Option<usize> {
        let own = rooms.iter().position(|room| room.name == *name);
        own.or_else(|| rooms.iter().position(|room| room.replaces.contains(name)))
    }

    /// Returns the index of a node's room. None: the job does not have the node. Rooms are in the order of node ids unless
    /// nodes of the job were replaced.
    pub(crate) fn find(rooms: &[Self], node: NodeId) -> Option<usize> {
        let sorted = rooms.binary_search_by_key(&node, |room| room.node).ok();
        sorted.or_else(|| rooms.iter().position(|room| room.node == node))
    }
}

/// What a step asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Nodes, tasks, CPUs and memory.
    pub(crate) spec: &'a StepSpec,
    /// Threads to use of each core, and tasks on each core.
    pub(crate) inside: Inside,
    /// Generic resources; None: the step shares those of the job.
    pub(crate) gres: Option<&'a gres::Ask>,
    /// Most tasks on a node.
    pub(crate) most_tasks: u32,
}

impl Wanted<'_> {
    fn per_task(&self) -> PerTask {
        PerTask { cpus: task_cpus(self.spec), inside: self.inside }
    }
}

/// The layout found for a step, and what the step holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Cores and memory that the step holds. With `--overlap` it holds none.
    pub(crate) alloc: Alloc,
    /// Which task runs on which node.
    pub(crate) layout: Layout,
    /// Generic resources that the step holds; None: it asked for none and shares the job's.
    pub(crate) gres: Option<Vec<Grant>>,
}

/// Why a step has no layout on the nodes of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unplaced {
    /// Other steps hold what the step needs: it fits when they have ended.
    Busy,
    /// The step can never fit in this allocation, for the reason in the refusal.
    Never(Refusal),
}

/// Finds a layout for a step. A step holds all of the job's cores on its nodes; with `--exact` only as many as its
/// tasks need, by whole cores where jobs hold whole cores; with `--overlap` none. Nodes are used in the allocation's order and tasks are spread evenly, as in
/// Slurm.
pub(crate) fn place(rooms: &[Room], wanted: Wanted<'_>) -> Result<Placed, Unplaced> {
    let spec = wanted.spec;
    let ask = Ask::new(rooms, wanted).map_err(Unplaced::Never)?;
    if let Distribution::Arbitrary(places) = &spec.distribution {
        return place_ranks(rooms, wanted, &listed(rooms, spec, places).map_err(Unplaced::Never)?);
    }
    let Some(ever) = ask.spread(rooms, wanted, true) else {
        // As in Slurm, `--ntasks-per-node` is ignored if the number of tasks fits without it.
        if spec.ntasks.is_some() && spec.ntasks_per_node.is_some() {
            let spec = StepSpec { ntasks_per_node: None, ..spec.clone() };
            return place(rooms, Wanted { spec: &spec, ..wanted });
        }
        return Err(Unplaced::Never(ask.lacking(rooms, wanted)));
    };
    let shares = if spec.overlap { ever } else { ask.spread(rooms, wanted, false).ok_or(Unplaced::Busy)? };
    settle(rooms, wanted, &shares, spec.distribution.clone())
}

/// Returns the node of each rank of a step with the distribution `arbitrary`. `places` has for each rank a position in
/// the list of nodes that the step asks for.
fn listed(rooms: &[Room], spec: &StepSpec, places: &Runs<u32>) -> Result<Vec<NodeId>, Refusal> {
    let list = spec.nodelist.as_deref().unwrap_or_default();
    let names = expand_within(list, STEP_NAMES_MAX).unwrap_or_default();
    let invalid = |problem: &str| Refusal::InvalidValue {
        option: "distribution".to_owned(),
        value: "arbitrary".to_owned(),
        problem: problem.to_owned(),
    };
    if spec.ntasks.map(|tasks| tasks as usize) != Some(places.len()) || names.len() > rooms.len() {
        return Err(invalid("a node is needed for each task, and a list of the nodes"));
    }
    let known: BTreeMap<&str, NodeId> = rooms.iter().map(|room| (room.name.as_str(), room.node)).collect();
    let replaced = |name: &String| Room::named(rooms, name).map(|at| rooms[at].node);
    let node = |name: &String| known.get(name.as_str()).copied().or_else(|| replaced(name));
    let node = |name: &String| node(name).ok_or_else(|| Refusal::InvalidNode(name.clone()));
    let nodes = names.iter().map(node).collect::<Result<Vec<NodeId>, Refusal>>()?;
    let of =
        |place: &u32| nodes.get(*place as usize).copied().ok_or_else(|| invalid("a task's node is not in the list"));
    places.iter().map(of).collect()
}

/// Finds a layout for a step in which each rank runs on the given node.
pub(crate) fn place_ranks(rooms: &[Room], wanted: Wanted<'_>, nodes: &[NodeId]) -> Result<Placed, Unplaced> {
    let of = |node: &NodeId| Room::find(rooms, *node);
    let mut tasks = vec![0; rooms.len()];
    for room in nodes.iter().filter_map(of) {
        tasks[room] += 1;
    }
    let shares = tasks.into_iter().enumerate().map(|(room, tasks)| Share { room, tasks });
    let shares: Vec<Share> = shares.filter(|share| share.tasks > 0).collect();
    let has_room = |share: &Share| capacity(&rooms[share.room], wanted, wanted.spec.overlap) >= share.tasks;
    let ever = |share: &Share| capacity(&rooms[share.room], wanted, true) >= share.tasks;
    if !shares.iter().all(ever) {
        return Err(Unplaced::Never(Refusal::TooManyRequested("processors".into())));
    }
    if !shares.iter().all(has_room) {
        return Err(Unplaced::Busy);
    }
    let places: BTreeMap<NodeId, u32> = shares.iter().map(|share| rooms[share.room].node).zip(0..).collect();
    let ranks = nodes.iter().filter_map(|node| places.get(node).copied()).collect();
    settle(rooms, wanted, &shares, Distribution::Arbitrary(Arc::new(ranks)))
}

/// Returns how many of a step's tasks fit on the node that can take the fewest, if no other step holds anything.
pub(crate) fn tasks_each(rooms: &[Room], wanted: Wanted<'_>) -> u32 {
    rooms.iter().map(|room| capacity(room, wanted, true)).min().unwrap_or_default()
}

/// Returns the layout of a step with a known number of tasks on each node, and the resources that the step holds.
fn settle(
    rooms: &[Room],
    wanted: Wanted<'_>,
    shares: &[Share],
    distribution: Distribution,
) -> Result<Placed, Unplaced> {
    let mut alloc = Alloc::default();
    for share in shares {
        let room = &rooms[share.room];
        alloc.push(room.node, cores_for(room, wanted, share.tasks), memory_for(room, wanted, share.tasks));
    }
    let gres = match wanted.gres {
        Some(asked) if granted(rooms, shares, asked, true).is_none() => {
            return Err(Unplaced::Never(Refusal::TooManyRequested("gres".into())));
        }
        Some(asked) => Some(granted(rooms, shares, asked, wanted.spec.overlap).ok_or(Unplaced::Busy)?),
        None => None,
    };
    let layout = Layout {
        nodes: shares.iter().map(|share| &rooms[share.room].name).collect(),
        tasks: shares.iter().map(|share| share.tasks).collect(),
        distribution,
        cpus_per_task: task_cpus(wanted.spec),
        ports: None,
    };
    Ok(Placed { alloc, layout, gres })
}

/// Picks the generic resources for each node's part of a step. With `vacant` devices of other steps count as free.
/// None: there are too few.
fn granted(rooms: &[Room], shares: &[Share], asked: &gres::Ask, vacant: bool) -> Option<Vec<Grant>> {
    let mut grants = Vec::new();
    for (place, share) in shares.iter().enumerate() {
        let room = &rooms[share.room];
        let mut from = if vacant { room.gres.clone() } else { room.gres_free.clone() };
        let wanted = asked.on_node(place as u32, shares.len() as u32, share.tasks);
        gres::grant(&mut grants, room.node, from.take(&wanted, &room.cores)?);
    }
    Some(grants)
}

/// Removes what a waiting step will need from the free cores and memory, as far as it is free already. So later steps
/// can't delay that step for ever.
pub(crate) fn reserve(rooms: &mut [Room], wanted: Wanted<'_>) {
    let wanted = Wanted { gres: None, ..wanted };
    let shares = Ask::new(rooms, wanted).ok().and_then(|ask| ask.spread(rooms, wanted, true));
    for share in shares.unwrap_or_default() {
        let room = &mut rooms[share.room];
        let (cores, memory_mb) = (cores_for(room, wanted, share.tasks), memory_for(room, wanted, share.tasks));
        room.free.subtract(&cores);
        room.free_mb = room.free_mb.saturating_sub(memory_mb);
    }
}

/// The request of a step, with defaults filled in.
struct Ask {
    /// Nodes that the step must use, as positions in the list of the job's nodes.
    required: Vec<usize>,
    /// Nodes that the step may use as well, as positions in the list of the job's nodes.
    optional: Vec<usize>,
    ntasks: u32,
    nodes_min: usize,
    nodes_max: usize,
    /// Number of nodes to use if possible, between `nodes_min` and `nodes_max`.
    nodes_best: usize,
}

/// The part of a step on one node: the node's position in the list of the job's nodes, and its number of tasks.
struct Share {
    room: usize,
    tasks: u32,
}

impl Ask {
    fn new(rooms: &[Room], wanted: Wanted<'_>) -> Result<Self, Refusal> {
        let spec = wanted.spec;
        let (required, optional) = candidates(rooms, spec)?;
        let all = required.len() + optional.len();
        let too_many = || Refusal::TooManyRequested("nodes".into());
        let given = spec.nodes_min.map(|nodes| nodes.max(1) as usize);
        let nodes_max = spec.nodes_max.map(|nodes| nodes.max(1) as usize).or(given);
        let nodes_min = given.unwrap_or(1).max(required.len());
        if nodes_min > all || nodes_max.is_some_and(|max| max < nodes_min) || all == 0 {
            return Err(too_many());
        }
        let nodes_max = nodes_max.unwrap_or(all).min(all);
        let per_node = spec.ntasks_per_node;
        let Some(ntasks) = spec.ntasks else {
            // Of a range such as `-N1-4`, the highest number counts. `--nodelist` alone names all nodes; with a highest
            // number it names some of them.
            let named = given.is_none() && spec.nodes_max.is_none() && !required.is_empty();
            let nodes = if named { nodes_min } else { nodes_max };
            // With `--cpus-per-task` alone, a node gets as many tasks as its CPUs allow.
            let tasks_on = |at: &usize| match (per_node, spec.cpus_per_task) {
                (None, Some(_)) => tasks_in(&rooms[*at], wanted, rooms[*at].cores.len() as u32).max(1),
                _ => per_node.unwrap_or(1).max(1),
            };
            let ntasks = required.iter().chain(&optional).take(nodes).map(|at| u64::from(tasks_on(at))).sum::<u64>();
            let ntasks = u32::try_from(ntasks).map_err(|_| Refusal::TooManyRequested("processors".into()))?;
            return Ok(Self { required, optional, ntasks, nodes_min: nodes, nodes_max: nodes, nodes_best: nodes });
        };
        if ntasks == 0 || ntasks > TASKS_MAX {
            let problem = format!("must lie between 1 and {TASKS_MAX}");
            return Err(Refusal::InvalidValue { option: "ntasks".into(), value: ntasks.to_string(), problem });
        }
        let tasks = ntasks as usize;
        if required.len() > tasks {
            return Err(too_many());
        }
        let nodes_best = if given.is_some() { nodes_max } else { all }.min(tasks).min(nodes_max);
        Ok(Self { required, optional, ntasks, nodes_min: nodes_min.min(tasks), nodes_max, nodes_best })
    }

    /// Distributes the step's tasks over the job's nodes. With `vacant` what other steps hold counts as free. None: the
    /// tasks do not fit.
    fn spread(&self, rooms: &[Room], wanted: Wanted<'_>, vacant: bool) -> Option<Vec<Share>> {
        let spec = wanted.spec;
        let capacity = |&at: &usize| (at, capacity(&rooms[at], wanted, vacant));
        let required: Vec<(usize, u32)> = self.required.iter().map(capacity).collect();
        let mut optional: Vec<(usize, u32)> = self.optional.iter().map(capacity).filter(|(_, n)| *n > 0).collect();
        if required.iter().any(|(_, n)| *n == 0) {
            return None;
        }
        let base: u64 = required.iter().map(|(_, n)| u64::from(*n)).sum();
        let most = self.nodes_max.min(required.len() + optional.len());
        let best = self.nodes_best.max(self.nodes_min).min(most);
        if best < self.nodes_min {
            return None;
        }
        let fewest = |optional: &[(usize, u32)]| {
            let sums = optional.iter().scan(base, |sum, (_, n)| {
                *sum += u64::from(*n);
                Some(*sum)
            });
            let enough = std::iter::once(base).chain(sums).position(|sum| sum >= u64::from(self.ntasks))?;
            Some(best.max(required.len() + enough)).filter(|width| *width <= most)
        };
        let width = fewest(&optional).or_else(|| {
            optional.sort_by_key(|(at, n)| (std::cmp::Reverse(*n), *at));
            fewest(&optional)
        })?;
        let more = width.saturating_sub(required.len());
        let mut chosen: Vec<(usize, u32)> = required.into_iter().chain(optional.into_iter().take(more)).collect();
        chosen.sort_unstable();
        if spec.distribution == Distribution::Block && rooms.first().is_some_and(|room| room.packs) {
            let most: Vec<u32> = chosen.iter().map(|(_, most)| *most).collect();
            let dealt = chosen.iter().zip(squall_sched::deal_in_turn(self.ntasks, &most));
            return Some(dealt.map(|(&(room, _), tasks)| Share { room, tasks }).filter(|s| s.tasks > 0).collect());
        }
        Some(fill(&chosen, self.ntasks, &spec.distribution))
    }

    /// Returns the refusal that names what the allocation has too little of: generic resources, memory or processors.
    fn lacking(&self, rooms: &[Room], wanted: Wanted<'_>) -> Refusal {
        if wanted.gres.is_some() && self.spread(rooms, Wanted { gres: None, ..wanted }, true).is_some() {
            let problem = "the job has not so many on its nodes".to_owned();
            return Refusal::InvalidValue { option: "gres".into(), value: String::new(), problem };
        }
        let without_memory = StepSpec { memory: Memory::Unset, ..wanted.spec.clone() };
        let fits = self.spread(rooms, Wanted { spec: &without_memory, ..wanted }, true).is_some();
        Refusal::TooManyRequested(if fits { "memory" } else { "processors" }.into())
    }
}

/// Returns the nodes that the step must use, and those that it may use as well, as positions in the list of the job's
/// nodes.
fn candidates(rooms: &[Room], spec: &StepSpec) -> Result<(Vec<usize>, Vec<usize>), Refusal> {
    let find = |name: &String| Room::named(rooms, name).ok_or_else(|| Refusal::InvalidNode(name.clone()));
    let mut required = Vec::new();
    for name in names("nodelist", spec.nodelist.as_deref())? {
        let at = find(&name)?;
        if !required.contains(&at) {
            required.push(at);
        }
    }
    let excluded = names("exclude", spec.exclude.as_deref())?;
    let first = spec.relative.unwrap_or(0) as usize;
    if first >= rooms.len() {
        return Err(Refusal::TooManyRequested("nodes".into()));
    }
    if let Some(&at) = required.iter().find(|&&at| excluded.contains(&rooms[at].name)) {
        return Err(Refusal::InvalidNode(rooms[at].name.clone()));
    }
    let optional = (first..rooms.len()).filter(|at| !required.contains(at) && !excluded.contains(&rooms[*at].name));
    Ok((required.clone(), optional.collect()))
}

fn names(option: &str, list: Option<&str>) -> Result<Vec<String>, Refusal> {
    let text = list.unwrap_or_default();
    // The list may also exclude nodes outside the job.
    expand_within(text, STEP_NAMES_MAX).map_err(|e| Refusal::InvalidValue {
        option: option.into(),
        value: text.into(),
        problem: e.to_string(),
    })
}

fn task_cpus(spec: &StepSpec) -> u32 {
    spec.cpus_per_task.unwrap_or(1).max(1)
}

/// Returns how many of a step's tasks `cpus` of the job's CPUs on a node suffice for.
fn tasks_in(room: &Room, wanted: Wanted<'_>, cpus: u32) -> u32 {
    let threads = wanted.inside.threads;
    // As for jobs: where single CPUs are given out, a step can't leave threads of a core unused. A step that asks for
    // more threads than cores have gets those that they have, as in Slurm.
    let unused = room.grain.is_cpu() && threads > 0 && threads < room.threads;
    if unused { 0 } else { room.grain.tasks(wanted.per_task(), cpus) }
}

/// Returns how many of a step's tasks fit on the node now. With `vacant` what other steps hold counts as free.
fn capacity(room: &Room, wanted: Wanted<'_>, vacant: bool) -> u32 {
    let spec = wanted.spec;
    let (free, free_mb) = if vacant { (&room.cores, room.memory_mb) } else { (&room.free, room.free_mb) };
    let whole = !spec.exact && !spec.overlap;
    let cpus = if whole && *free != room.cores { 0 } else { free.len() as u32 };
    let by_cpus = if spec.overcommit && cpus > 0 { wanted.most_tasks } else { tasks_in(room, wanted, cpus) };
    let by_memory = match spec.memory {
        _ if room.memory_mb == 0 => u32::MAX,
        Memory::PerNodeMb(mb) if mb > free_mb => 0,
        Memory::PerCpuMb(mb) if mb > 0 => {
            let cpus = u32::try_from(free_mb / mb).unwrap_or(u32::MAX);
            if spec.exact { room.grain.tasks(wanted.per_task(), cpus) } else { cpus / task_cpus(spec) }
        }
        Memory::Unset | Memory::PerNodeMb(_) | Memory::PerCpuMb(_) => u32::MAX,
    };
    let per_node = spec.ntasks_per_node.unwrap_or(u32::MAX).max(1);
    let devices = if vacant { &room.gres } else { &room.gres_free };
    let by_gres = wanted.gres.map_or(Some(u32::MAX), |gres| devices.tasks(&gres.per_node, &gres.per_task));
    let Some(by_gres) = by_gres else { return 0 };
    by_cpus.min(by_gres).min(by_memory).min(per_node).min(wanted.most_tasks)
}

/// Distributes tasks over nodes that can take all of them. The nodes get tasks in turn: one each, or as many at a time
/// as a `plane` distribution gives. `chosen` are nodes (positions in the list of the job's nodes) with the number of
/// tasks that fit.
fn fill(chosen: &[(usize, u32)], ntasks: u32, distribution: &Distribution) -> Vec<Share> {
    let at_once = match distribution {
        Distribution::Plane(size) => (*size).max(1),
        Distribution::Block | Distribution::Cyclic | Distribution::Arbitrary(_) => 1,
    };
    let mut shares: Vec<Share> = chosen.iter().map(|&(room, _)| Share { room, tasks: 0 }).collect();
    let mut left = ntasks;
    while left > 0 {
        let before = left;
        for (share, &(_, capacity)) in shares.iter_mut().zip(chosen) {
            let more = at_once.min(left).min(capacity - share.tasks);
            share.tasks += more;
            left -= more;
        }
        if left == before {
            break;
        }
    }
    shares.retain(|share| share.tasks > 0);
    shares
}

fn cores_for(room: &Room, wanted: Wanted<'_>, tasks: u32) -> CoreSet {
    if wanted.spec.overlap {
        CoreSet::new()
    } else if wanted.spec.exact {
        room.grain.take(&room.free, held(room, wanted, tasks))
    } else {
        room.cores.clone()
    }
}

/// Returns how many CPUs so many tasks of a step with `--exact` hold on a node.
fn held(room: &Room, wanted: Wanted<'_>, tasks: u32) -> u32 {
    room.grain.cpus(wanted.per_task(), tasks, 1)
}

/// Returns the memory that a step holds on a node, MiB: what it asked for; 0 if it asked for none and shares the job's.
/// Memory for each CPU counts all CPUs that a step with `--exact` holds, and only those of the tasks otherwise.
fn memory_for(room: &Room, wanted: Wanted<'_>, tasks: u32) -> u64 {
    let spec = wanted.spec;
    match spec.memory {
        _ if spec.overlap => 0,
        Memory::Unset => 0,
        Memory::PerNodeMb(mb) => mb,
        Memory::PerCpuMb(mb) if spec.exact => mb.saturating_mul(u64::from(held(room, wanted, tasks))),
        Memory::PerCpuMb(mb) => mb.saturating_mul(u64::from(tasks.saturating_mul(task_cpus(spec)))),
    }
}

#[cfg(test)]
mod tests;
