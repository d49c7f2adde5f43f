//! Choice of nodes by topology: sorts a job's candidate nodes into the order of use, and removes those that it may not
//! use.

use std::collections::BTreeMap;
use std::fmt;

use squall_model::id::NodeId;
use squall_model::job::network::{Class, Network};
use squall_model::job::options::Chosen;
use squall_model::set::NodeSet;
use squall_model::time::Time;

use super::blocks::{self, Needed, Offer};
use super::groups::Groups;
use super::segments::{self, Segments, best_fit};
use super::{Group, Switch, Topology, TopologyKind, Torus};
use crate::layout::{Grid, Ranks, lies, shapes};
use crate::torus::{AXES_MAX, Ask, Board, Chooser, Coords, Order, Prism, hull, turned};

/// Jobs of more nodes than this get network links of their own by default.
const SMALL_NODES: u32 = 8;

/// Greatest excess of a prism shape from the topology file's list over the requested number of nodes, percent.
const LISTED_SLACK: u32 = 25;
/// Number of prism shapes that are compared for a process grid.
const GRID_TRIES: usize = 64;
/// Number of the best prism shapes for a process grid that are tried.
const GRID_SHAPES: usize = 16;
/// Maximum number of process grids for which prism shapes are remembered.
const GRIDS_KEPT: usize = 256;

/// A job's requirements on the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wish {
    /// Value of `--network`: whether the job shares network links with other jobs.
    pub network: Class,
    /// Value of `--geometry`: extents of the job's prism. None: any shape will do.
    pub geometry: Option<Coords>,
    /// Values of `--grid` and `--stencil`: the job's process grid, which decides the choice of nodes. None: it has no
    /// grid.
    pub grid: Option<Ranks>,
    /// Value of `--switches`: maximum number of leaf switches. None once the job has waited long enough.
    pub switches: Option<u32>,
    /// Time at which the limit `switches` no longer applies. None: it always applies.
    pub patience: Option<Time>,
    /// Value of `--segment`. None: the job is not divided.
    pub segments: Option<Segments>,
    /// Value of `--groups`: parallel groups of the job's ranks. None: it has none.
    pub groups: Option<Groups>,
    /// `--exclusive=topo`: no other job runs in the blocks, or on the ring, of the job's nodes.
    pub alone: bool,
}

/// An invalid network option: its name and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WishFault {
    /// Name of the invalid option.
    pub option: &'static str,
    /// Value of the invalid option.
    pub value: String,
}

impl fmt::Display for WishFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{}={}", self.option, self.value)
    }
}

impl Wish {
    /// Reads the requirements from a step's options, which are some of a job's. The error names an option that contradicts itself or
    /// another.
    pub fn of(asked: &Network) -> Result<Self, WishFault> {
        let fault = |option, text: &str| WishFault { option, value: text.to_owned() };
        let geometry = asked.geometry.as_ref().map(|given| {
            let extents = given.value.as_slice();
            let fine = (1..=AXES_MAX).contains(&extents.len()) && !extents.contains(&0);
            let mut size = [1; AXES_MAX];
            size.iter_mut().zip(extents).for_each(|(axis, extent)| *axis = *extent);
            fine.then_some(size).ok_or_else(|| fault("geometry", &given.text))
        });
        let stencil = asked.stencil.as_ref();
        let grid = asked.grid.as_ref().map(|given| {
            if !given.value.is_valid() {
                return Err(fault("grid", &given.text));
            }
            let weights = stencil.map_or(&[][..], |stencil| &stencil.value);
            let named = stencil.map_or("", |stencil| &stencil.text);
            Ranks::of(&given.value, weights).ok_or_else(|| fault("stencil", named))
        });
        let groups = asked.groups.as_ref();
        let groups = groups.map(|given| Groups::of(&given.value).ok_or_else(|| fault("groups", &given.text)));
        Ok(Self {
            network: asked.class.as_ref().map(|given| given.value).unwrap_or_default(),
            geometry: geometry.transpose()?,
            grid: grid.transpose()?,
            switches: asked.switches.as_ref().map(|given| given.value.count),
            patience: None,
            segments: None,
            groups: groups.transpose()?,
            alone: false,
        })
    }
    /// Reads the requirements from all options of a job. The error names one that contradicts itself or another.
    pub fn of_job(options: &Chosen) -> Result<Self, WishFault> {
        let alone = options.exclusive_topo == Some(true);
        Ok(Self { segments: Segments::of(options), alone, ..Self::of(&options.network)? })
    }
    /// Returns whether a job of `nodes` nodes needs network links that no other job uses.
    pub fn is_sensitive(&self, nodes: u32) -> bool {
        match self.network {
            Class::Unsaid => nodes > SMALL_NODES || self.geometry.is_some() || self.grid.is_some(),
            Class::Sensitive => true,
            Class::Local | Class::Tolerant | Class::Anywhere => false,
        }
    }
}

/// Buffers and search results that are kept from one choice of nodes to the next.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    tori: Vec<TorusMemory>,
}

#[derive(Debug)]
struct TorusMemory {
    chooser: Chooser,
    cells: usize,
    order: Order,
    /// By cell number: position of the cell in the torus's linear order, by which nodes are taken for jobs without a
    /// prism.
    rank: Vec<u32>,
    /// Prism shapes for the grids requested last, the best first.
    shapes: BTreeMap<GridAsk, Vec<Coords>>,
}

/// A grid, the number of ranks on a node, and the number of nodes or the extents of the prism if they are specified.
type GridAsk = (Ranks, u32, Option<u32>, Option<Coords>);

/// Facts about a job and the cluster that a choice of nodes depends on.
pub(crate) struct Scene<'a> {
    /// Minimum number of nodes of the job.
    pub(crate) nodes: u32,
    /// Maximum number of nodes of the job.
    pub(crate) nodes_max: u32,
    /// Number of tasks over all nodes; 0: `tasks_each` on each node.
    pub(crate) tasks: u64,
    /// Number of tasks on each node of a job without a number of tasks.
    pub(crate) tasks_each: u32,
    /// The job's requirements on the network.
    pub(crate) wish: Wish,
    /// Nodes of jobs with network links that no other job may use, one set for each job.
    pub(crate) closed: &'a [&'a NodeSet],
    /// Returns whether no job runs on a node.
    pub(crate) idle: &'a dyn Fn(NodeId) -> bool,
    /// Returns whether a node is up.
    pub(crate) up: &'a dyn Fn(NodeId) -> bool,
    /// Returns whether the job may use a node, whatever runs there.
    pub(crate) may: &'a dyn Fn(NodeId) -> bool,
}

/// Sorts candidate nodes (node, number of tasks) into the order of use and removes those that the job may not use.
/// Returns false if the job must wait.
pub(crate) fn arrange(
    topology: &Topology,
    memory: &mut Memory,
    scene: &Scene<'_>,
    fits: &mut Vec<(NodeId, u32)>,
) -> bool {
    let wanted = wanted(scene, fits);
    let outside = if wanted == 1 { outside(topology, fits) } else { Vec::new() };
    let placed = match &topology.kind {
        TopologyKind::Flat => true,
        TopologyKind::Tree { switches, dragonfly } => tree(topology, switches, *dragonfly, (scene, wanted), fits),
        TopologyKind::Block { blocks, sizes } => block(topology, (blocks, sizes), (scene, wanted), fits),
        TopologyKind::Ring(rings) => ring(topology, rings, wanted, fits),
        TopologyKind::Torus(tori) => torus(topology, tori, memory, (scene, wanted), fits),
    };
    if !placed && !outside.is_empty() {
        fits.clear();
    }
    fits.extend(&outside);
    placed || !outside.is_empty()
}

/// Returns the candidates that the topology file omits. Only jobs of one node use them, after all others.
fn outside(topology: &Topology, fits: &[(NodeId, u32)]) -> Vec<(NodeId, u32)> {
    if topology.is_flat() {
        return Vec::new();
    }
    fits.iter().filter(|(node, _)| topology.place(*node).is_none()).copied().collect()
}

/// Returns the approximate number of nodes that the job will use.
fn wanted(scene: &Scene<'_>, fits: &[(NodeId, u32)]) -> usize {
    let most = fits.iter().map(|(_, tasks)| u64::from(*tasks)).max().unwrap_or(1).max(1);
    (scene.nodes as usize).max(scene.tasks.div_ceil(most) as usize).max(1)
}

/// Returns the number of nodes that stand together because of the job's groups (`--groups`). `fits`: whether so many are
/// in one block. None: any may stand anywhere.
fn unit(scene: &Scene<'_>, wanted: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let groups = scene.wish.groups?;
    let each = if scene.tasks == 0 { Some(scene.tasks_each) } else { groups.each_on(wanted) };
    groups.unit((wanted, each.filter(|each| *each > 0)?), fits)
}

/// Returns the number of candidates in each of `count` groups (leaf switches, blocks or rings), by the group's index.
fn by_group(topology: &Topology, count: usize, fits: &[(NodeId, u32)]) -> Vec<usize> {
    let mut counts = vec![0; count];
    for (group, _) in fits.iter().filter_map(|(node, _)| topology.place(*node)) {
        counts[group] += 1;
    }
    counts
}

/// Sorts candidates by the given order of groups (leaf switches, blocks or rings), and removes those of groups that are
/// not in it.
fn sort_by_groups(topology: &Topology, order: &[usize], count: usize, fits: &mut Vec<(NodeId, u32)>) {
    let mut rank = vec![usize::MAX; count];
    order.iter().enumerate().for_each(|(at, group)| rank[*group] = at);
    fits.retain(|(node, _)| topology.place(*node).is_some_and(|(group, _)| rank[group] != usize::MAX));
    fits.sort_by_key(|(node, _)| topology.place(*node).map(|(group, at)| (rank[group], at)));
}

/// Sorts candidates so that those below the lowest sufficient switch are used, of several the one with the fewest
/// candidates. Its leaves are used by best fit. If no switch suffices, all leaves are used. Returns false if more leaf
/// switches would be needed than the job accepts.
fn tree(
    topology: &Topology,
    switches: &[Switch],
    dragonfly: bool,
    (scene, wanted): (&Scene<'_>, usize),
    fits: &mut Vec<(NodeId, u32)>,
) -> bool {
    let mut counts = by_group(topology, switches.len(), fits);
    let largest = switches.iter().filter(|switch| switch.level == 0).map(|switch| switch.nodes.len()).max();
    let unit = unit(scene, wanted, |nodes| Some(nodes) <= largest).unwrap_or(1);
    let whole: Vec<usize> = counts.iter().map(|nodes| nodes - nodes % unit).collect();
    let in_units = unit > 1 && whole.iter().sum::<usize>() >= wanted;
    if in_units {
        counts = whole;
    }
    let leaves = |within: &dyn Fn(usize) -> bool| -> Vec<(usize, usize)> {
        counts.iter().copied().enumerate().filter(|(at, nodes)| *nodes > 0 && within(*at)).collect()
    };
    let below =
        |top: usize| move |at: usize| std::iter::successors(Some(at), |&at| switches[at].parent).any(|a| a == top);
    let room = |top: usize| leaves(&below(top)).iter().map(|(_, nodes)| nodes).sum::<usize>();
    let tops = (0..switches.len()).map(|at| (switches[at].level, room(at), at)).filter(|(_, room, _)| *room >= wanted);
    let top = tops.min().map(|(_, _, at)| at);
    let within = match top {
        Some(top) => leaves(&below(top)),
        None => leaves(&|_| true),
    };
    let order = best_fit(within, wanted);
    let mut used = 0;
    let needed = order.iter().take_while(|leaf| {
        let more = used < wanted;
        used += counts[**leaf];
        more
    });
    let needed = needed.count();
    if scene.wish.switches.is_some_and(|most| needed > most as usize) {
        return false;
    }
    let spread = dragonfly && needed > 1;
    sort_by_groups(topology, &order, switches.len(), fits);
    if in_units {
        let parts: Vec<(usize, usize)> = order.iter().map(|leaf| (*leaf, counts[*leaf] / unit)).collect();
        segments::keep(&|node| topology.place(node), &parts, (1, unit), true, fits);
    } else if spread {
        // One node of each leaf in turn, so that all links between groups are used.
        let mut taken = vec![0; switches.len()];
        let turns: Vec<usize> = fits
            .iter()
            .map(|(node, _)| {
                let group = topology.place(*node).map_or(0, |(group, _)| group);
                taken[group] += 1;
                taken[group]
            })
            .collect();
        let mut turned: Vec<_> = turns.into_iter().zip(fits.iter().copied()).collect();
        turned.sort_by_key(|(turn, _)| *turn);
        *fits = turned.into_iter().map(|(_, fit)| fit).collect();
    }
    true
}

/// Keeps the candidates of the blocks that suit the job ([`blocks::choose`]). A job of several segments gets whole ones.
/// Returns false if the job must wait.
fn block(
    topology: &Topology,
    (groups, sizes): (&[Group], &[u32]),
    (scene, wanted): (&Scene<'_>, usize),
    fits: &mut Vec<(NodeId, u32)>,
) -> bool {
    if let Some(segments) = scene.wish.segments.filter(|segments| wanted > segments.nodes as usize) {
        // The number of nodes of a job without tasks is only limited by what it asked for.
        let most = if scene.tasks == 0 { fits.len().min(scene.nodes_max as usize).max(wanted) } else { wanted };
        let sizes = (&block_sizes(groups)[..], sizes);
        return segments::place(&|node| topology.place(node), sizes, segments, (wanted, most), fits);
    }
    let bases = block_sizes(groups);
    let in_a_block = |nodes: usize| segments::span(&bases, sizes, nodes as u32) == Some(1);
    let unit = unit(scene, wanted, in_a_block).filter(|_| scene.wish.segments.is_none());
    if let Some(nodes) = unit {
        let parts = Segments { nodes: nodes as u32, apart: false, together: false };
        let placed = segments::place(&|node| topology.place(node), (&bases, sizes), parts, (wanted, wanted), fits);
        if placed || scene.wish.network != Class::Tolerant {
            return placed;
        }
    }
    let mut offers = vec![Offer::default(); groups.len()];
    for (node, tasks) in fits.iter() {
        if let Some((block, _)) = topology.place(*node) {
            offers[block].nodes += 1;
            offers[block].tasks += u64::from(*tasks);
        }
    }
    for (offer, group) in offers.iter_mut().zip(groups) {
        offer.all = group.nodes.iter().filter(|node| (scene.up)(**node) && (scene.may)(**node)).count();
    }
    // A job of tasks may get fewer of them on some nodes, and then needs more nodes.
    let counted = scene.tasks == 0 || wanted == scene.nodes as usize;
    let firm = counted && scene.wish.network != Class::Tolerant;
    let needed = Needed { nodes: wanted, tasks: scene.tasks, firm };
    let Some(order) = blocks::choose(&offers, sizes, needed) else { return false };
    sort_by_groups(topology, &order, groups.len(), fits);
    true
}

/// Returns the number of nodes of each block.
pub fn block_sizes(blocks: &[Group]) -> Vec<usize> {
    blocks.iter().map(|block| block.nodes.len()).collect()
}

/// Keeps neighbours on one ring: the shortest sufficient run of free nodes. Returns false if there is none.
fn ring(topology: &Topology, rings: &[Group], wanted: usize, fits: &mut Vec<(NodeId, u32)>) -> bool {
    let mut best: Option<(usize, usize, usize)> = None;
    for (at, ring) in rings.iter().enumerate() {
        let n = ring.nodes.len();
        let mut free = vec![false; n];
        for (group, place) in fits.iter().filter_map(|(node, _)| topology.place(*node)) {
            if group == at {
                free[place] = true;
            }
        }
        if free.iter().all(|free| *free) {
            if n >= wanted && best.is_none_or(|(len, ..)| n < len) {
                best = Some((n, at, 0));
            }
            continue;
        }
        for from in (0..n).filter(|from| free[*from] && !free[(from + n - 1) % n]) {
            let len = (0..n).take_while(|step| free[(from + step) % n]).count();
            if len >= wanted && best.is_none_or(|(shortest, ..)| len < shortest) {
                best = Some((len, at, from));
            }
        }
    }
    let Some((len, at, from)) = best else { return false };
    let n = rings[at].nodes.len();
    let step = |node: NodeId| {
        let (group, place) = topology.place(node)?;
        Some((place + n - from) % n).filter(|step| group == at && *step < len)
    };
    fits.retain(|(node, _)| step(*node).is_some());
    fits.sort_by_key(|(node, _)| step(*node));
    fits.truncate(wanted.max(1));
    true
}

fn torus(
    topology: &Topology,
    tori: &[Torus],
    memory: &mut Memory,
    (scene, wanted): (&Scene<'_>, usize),
    fits: &mut Vec<(NodeId, u32)>,
) -> bool {
    memory.prepare(tori);
    if let Some(ranks) = scene.wish.grid {
        return on_grid(topology, tori, memory, (scene, ranks), fits);
    }
    let nodes = wanted as u32;
    let sensitive = scene.wish.is_sensitive(nodes);
    // A job in a prism sends nothing through those of others, and leaves no holes where larger jobs could fit. A
    // single node uses no links.
    let tries = sensitive || nodes > 1 || scene.wish.geometry.is_some();
    for (at, torus) in tori.iter().enumerate().filter(|_| tries) {
        let board = board(topology, tori, at, scene, fits);
        let chooser = &mut memory.tori[at].chooser;
        let ask = Ask { nodes, geometry: scene.wish.geometry, end: 0 };
        let prism = listed(torus, chooser, &board, &ask).or_else(|| Some(chooser.prism(&board, &ask)?.prism));
        if let Some(prism) = prism
            && (sensitive || tasks_inside(topology, (at, torus), &prism, fits) >= scene.tasks)
        {
            keep_inside(topology, (at, torus), &prism, fits);
            return true;
        }
    }
    if sensitive || scene.wish.geometry.is_some() {
        return false;
    }
    scatter(topology, tori, memory, scene, fits);
    true
}

/// Returns the number of tasks that the candidate nodes in a prism can take.
fn tasks_inside(topology: &Topology, (at, torus): (usize, &Torus), prism: &Prism, fits: &[(NodeId, u32)]) -> u64 {
    let inside = |node: NodeId| {
        let place = topology.place(node).filter(|(group, _)| *group == at);
        place.is_some_and(|(_, cell)| prism.contains(&torus.frame, &torus.frame.coords(cell)))
    };
    fits.iter().filter(|(node, _)| inside(*node)).map(|(_, tasks)| u64::from(*tasks)).sum()
}

/// Keeps the candidates in a prism, in the order of its cells.
fn keep_inside(topology: &Topology, (at, torus): (usize, &Torus), prism: &Prism, fits: &mut Vec<(NodeId, u32)>) {
    let place = |node: NodeId| {
        let (group, cell) = topology.place(node)?;
        let coords = torus.frame.coords(cell);
        (group == at && prism.contains(&torus.frame, &coords)).then(|| {
            let off = |a: usize| {
                let n = torus.frame.axes()[a].extent;
                (coords[a] + n - prism.at[a]) % n
            };
            (0..torus.frame.axes().len()).map(off).collect::<Vec<u32>>()
        })
    };
    fits.retain(|(node, _)| place(*node).is_some());
    fits.sort_by_cached_key(|(node, _)| place(*node));
}

/// Keeps the candidates in the best free prism on which the grid fits; of equal ones one without holes. All its nodes
/// are used, with as many ranks on each as the largest node can take.
fn on_grid(
    topology: &Topology,
    tori: &[Torus],
    memory: &mut Memory,
    (scene, ranks): (&Scene<'_>, Ranks),
    fits: &mut Vec<(NodeId, u32)>,
) -> bool {
    let per_node = fits.iter().map(|(_, tasks)| *tasks).max().unwrap_or_default();
    fits.retain(|(_, tasks)| *tasks == per_node);
    let grid = ranks.grid();
    let given = (scene.nodes == scene.nodes_max).then_some(scene.nodes);
    let ask = (ranks, per_node, given, scene.wish.geometry);
    for (at, torus) in tori.iter().enumerate() {
        let memory = &mut memory.tori[at];
        if memory.shapes.len() > GRIDS_KEPT {
            memory.shapes.clear();
        }
        let sizes = memory.shapes.entry(ask).or_insert_with(|| grid_shapes(torus, &grid, &ask));
        let board = board(topology, tori, at, scene, fits);
        let per_router = torus.frame.per_router();
        for whole in [true, false] {
            for size in sizes.iter().filter(|size| size.iter().product::<u32>() * per_router <= scene.nodes_max) {
                let all = size.iter().product::<u32>() * per_router;
                let least = (grid.tasks() as u32).div_ceil(per_node).max(scene.nodes);
                let nodes = if whole { all } else { least.min(all) };
                let ask = Ask { nodes, geometry: None, end: 0 };
                let Some(placed) = memory.chooser.just(&board, &ask, size) else { continue };
                let usable = |id: NodeId| fits.iter().any(|(node, _)| *node == id);
                if whole || lies(torus, placed.prism, usable, &grid, per_node) {
                    keep_inside(topology, (at, torus), &placed.prism, fits);
                    return true;
                }
            }
        }
    }
    false
}

/// Returns the shapes of prisms that are tried for a grid: without a requested geometry the best ones, the best first;
/// otherwise the geometry in each order of the axes on which the grid fits.
fn grid_shapes(torus: &Torus, grid: &Grid, (_, per_node, nodes, geometry): &GridAsk) -> Vec<Coords> {
    let Some(size) = geometry else {
        let mut all = shapes(&torus.frame, grid, *per_node, *nodes, GRID_TRIES);
        all.truncate(GRID_SHAPES);
        return all;
    };
    let at = [0; AXES_MAX];
    let lies = |size: &Coords| lies(torus, Prism { at, size: *size }, |_| true, grid, *per_node);
    turned(&torus.frame, size).into_iter().filter(lies).collect()
}

/// Returns the smallest free prism with a shape from the topology file's list that is not much larger than the request.
/// None: there is none.
fn listed(torus: &Torus, chooser: &mut Chooser, board: &Board, ask: &Ask) -> Option<Prism> {
    let per_router = torus.frame.per_router();
    let nodes = |size: &Coords| size.iter().product::<u32>() * per_router;
    let fits = |size: &&Coords| {
        (ask.nodes..=ask.nodes.saturating_mul(100 + LISTED_SLACK) / 100).contains(&nodes(size))
            && torus.frame.closed(size)
    };
    let mut shapes: Vec<Coords> = torus.placements.iter().filter(fits).copied().collect();
    shapes.sort_by_key(nodes);
    shapes
        .into_iter()
        .find_map(|size| chooser.prism(board, &Ask { geometry: Some(size), ..*ask }).map(|found| found.prism))
}

/// Sorts candidates for a job that gets no prism: partly used routers and columns first, then in the torus's linear
/// order (by default along a Hilbert curve). For a job that communicates with neighbours, only the linear order counts.
fn scatter(topology: &Topology, tori: &[Torus], memory: &Memory, scene: &Scene<'_>, fits: &mut [(NodeId, u32)]) {
    let boards: Vec<Board> = (0..tori.len()).map(|at| board(topology, tori, at, scene, fits)).collect();
    let compact = scene.wish.network == Class::Local;
    fits.sort_by_cached_key(|(node, _)| {
        let Some((at, cell)) = topology.place(*node) else { return (false, 0, u32::MAX) };
        let board = &boards[at];
        let column = board.open()[cell / board.frame().axes()[board.frame().axes().len() - 1].extent as usize];
        let rank = memory.tori[at].rank[cell];
        if compact { (false, 0, rank) } else { (board.is_open(cell), column.count_ones(), rank) }
    });
}

/// Returns the usage of one torus as a job finds it. A cell is open if its nodes are candidates and idle.
fn board(topology: &Topology, tori: &[Torus], at: usize, scene: &Scene<'_>, fits: &[(NodeId, u32)]) -> Board {
    let torus = &tori[at];
    let mut board = Board::new(torus.frame.clone());
    let mut free = vec![0; torus.cells.len()];
    for (node, _) in fits {
        if let Some((group, cell)) = topology.place(*node)
            && group == at
            && (scene.idle)(*node)
        {
            free[cell] += 1;
        }
    }
    for (cell, nodes) in torus.cells.iter().enumerate() {
        let up = nodes.iter().filter(|node| (scene.up)(**node)).count() as u32;
        board.retire(cell, torus.frame.per_router() - up);
        if free[cell] < up {
            board.take(cell, up - free[cell], 1);
        }
    }
    for nodes in scene.closed {
        let cells = nodes.iter().filter_map(|node| topology.place(node)).filter(|(group, _)| *group == at);
        if let Some(hull) = hull(&torus.frame, cells.map(|(_, cell)| cell)) {
            board.close(&hull, 1);
        }
    }
    board
}

impl Memory {
    fn prepare(&mut self, tori: &[Torus]) {
        let same = self.tori.len() == tori.len()
            && self
                .tori
                .iter()
                .zip(tori)
                .all(|(memory, torus)| (memory.cells, memory.order) == (torus.cells.len(), torus.order));
        if !same {
            let memory = |torus: &Torus| {
                let mut rank = vec![0; torus.cells.len()];
                torus.order.cells(&torus.frame).into_iter().enumerate().for_each(|(at, cell)| rank[cell] = at as u32);
                TorusMemory {
                    chooser: Chooser::new(&torus.frame),
                    cells: torus.cells.len(),
                    order: torus.order,
                    rank,
                    shapes: BTreeMap::new(),
                }
            };
            self.tori = tori.iter().map(memory).collect();
        }
        self.tori.iter_mut().for_each(|memory| memory.chooser.renew());
    }
}
