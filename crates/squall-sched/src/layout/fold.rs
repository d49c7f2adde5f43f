//! Mapping of the dimensions of a process grid to the axes of a prism: each on one axis, on two as a snake, sharing
//! one, or inside the routers. Around holes neighbouring pencils (lines of cells along one axis) skip the same planes.

use squall_model::job::network::DIMENSIONS_MAX;

use super::{Grid, Site};
use crate::torus::{AXES_MAX, Frame};

/// Where a dimension of the grid is mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// Mapped to the nodes of one router.
    Inside,
    /// Mapped along the prism's axis with this number.
    Along(usize),
    /// Mapped as a snake: along the first axis, back and forth over the positions of the second.
    Snake(usize, usize),
}

/// Rule for pencils (lines of cells along one axis): which of them skip a plane in which one has a hole, that is, a
/// cell without usable nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skip {
    /// The prism has no holes, so nothing is skipped.
    None,
    /// Only the pencil (line of cells along one axis) with the hole skips the plane.
    Pencil,
    /// The pencil with the hole and those up to this many cells away skip the plane.
    Near(u32),
    /// All pencils that lie in a line with the pencil with the hole, along the axis with this number, skip the plane.
    Row(usize),
    /// The pencils in one half of the prism, split across the axis with this number, skip the plane. So both halves keep
    /// the same length.
    Half(usize),
    /// All pencils skip the plane.
    Plane,
}

/// A mapping of a grid's dimensions to a prism.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    targets: Vec<Target>,
    /// For each dimension of the grid: number of positions that it takes on each of its (at most two) axes.
    places: Vec<[u32; 2]>,
    /// For each dimension of the grid, and each coordinate in it: number of the block that the coordinate belongs to.
    blocks: Vec<Vec<u32>>,
    /// For each dimension of the grid: number of coordinates in its largest block.
    largest: Vec<u32>,
    /// Estimated greatest load of a link divided by its weight, calculated without routing; lower is better.
    pub(super) guess: f64,
}

/// A site, and for each axis the number of usable positions that every pencil (line of cells along the axis) has.
type Rooms<'a> = (&'a Site<'a>, &'a [u32; AXES_MAX]);

/// Returns all mappings of a grid to a prism that fit, the most promising first.
pub(super) fn folds(site: &Site<'_>, grid: &Grid) -> Vec<Fold> {
    let axes: Vec<usize> = (0..site.frame.axes().len()).filter(|axis| site.size()[*axis] > 1).collect();
    let mut options = vec![Target::Inside];
    options.extend(axes.iter().map(|&axis| Target::Along(axis)));
    let pairs = axes.iter().flat_map(|&a| axes.iter().filter(move |b| **b != a).map(move |&b| Target::Snake(a, b)));
    options.extend(pairs);
    let mut found = Vec::new();
    let mut chosen = Vec::new();
    let mut rooms = [1; AXES_MAX];
    (0..site.frame.axes().len()).for_each(|axis| rooms[axis] = room(site, axis));
    choose((site, &rooms), grid, &options, &mut chosen, &mut found);
    found.sort_by(|a: &Fold, b| a.guess.total_cmp(&b.guess));
    found
}

fn choose(site: Rooms<'_>, grid: &Grid, options: &[Target], chosen: &mut Vec<Target>, found: &mut Vec<Fold>) {
    if chosen.len() == grid.extents.len() {
        return divide(site, grid, chosen, found);
    }
    for &target in options {
        chosen.push(target);
        let users = |axis| chosen.iter().filter(|target| uses(**target, axis)).count();
        if (0..AXES_MAX).all(|axis| users(axis) <= 2) {
            choose(site, grid, options, chosen, found);
        }
        chosen.pop();
    }
}

fn uses(target: Target, axis: usize) -> bool {
    match target {
        Target::Inside => false,
        Target::Along(a) => a == axis,
        Target::Snake(a, b) => a == axis || b == axis,
    }
}

/// Adds mappings for every way to divide the positions of an axis between two dimensions that share it.
fn divide((site, rooms): Rooms<'_>, grid: &Grid, targets: &[Target], found: &mut Vec<Fold>) {
    let mut ways: Vec<Vec<[u32; 2]>> = vec![vec![[1, 1]; targets.len()]];
    for (axis, &room) in rooms.iter().enumerate().take(site.frame.axes().len()) {
        let users: Vec<usize> = (0..targets.len()).filter(|at| uses(targets[*at], axis)).collect();
        let slot = |at: usize| usize::from(matches!(targets[at], Target::Snake(_, b) if b == axis));
        let mut more = Vec::new();
        for way in &ways {
            match users[..] {
                [] => more.push(way.clone()),
                [one] => {
                    let mut way = way.clone();
                    way[one][slot(one)] = room;
                    more.push(way);
                }
                [one, two, ..] => {
                    for first in (2..=room / 2).filter(|first| room / first >= 2) {
                        let mut way = way.clone();
                        way[one][slot(one)] = first;
                        way[two][slot(two)] = room / first;
                        more.push(way);
                    }
                }
            }
        }
        ways = more;
    }
    for places in ways {
        for spread in [false, true] {
            if let Some(fold) = Fold::new(site, grid, targets, &places, spread)
                && !found.iter().any(|other| other.blocks == fold.blocks && other.targets == fold.targets)
            {
                found.push(fold);
            }
        }
    }
}

/// Returns the number of usable positions along an axis that every pencil (line of cells along the axis) has. Holes are
/// subtracted only on the pencil axis, where they cost least.
fn room(site: &Site<'_>, axis: usize) -> u32 {
    let most = holes(site, axis).into_iter().max().unwrap_or_default();
    if axis == pencil_axis(site) { site.size()[axis] - most } else { site.size()[axis] }
}

/// Returns the axis on which pencils skip holes: its worst pencil has the fewest holes; of equal axes it is the one
/// with the fastest links.
fn pencil_axis(site: &Site<'_>) -> usize {
    let axes = site.frame.axes();
    let fits = (0..axes.len()).filter(|axis| site.size()[*axis] > 1);
    let worst = |axis: usize| holes(site, axis).into_iter().max().unwrap_or_default();
    fits.min_by_key(|&axis| (worst(axis), std::cmp::Reverse(axes[axis].weight), std::cmp::Reverse(axis))).unwrap_or(0)
}

/// Returns the number of unusable cells in each pencil (line of cells along `axis`), by the pencil's first cell.
fn holes(site: &Site<'_>, axis: usize) -> Vec<u32> {
    let mut pencils = vec![0; site.prism.volume()];
    for cell in (0..site.prism.volume()).filter(|cell| site.usable[*cell] == 0) {
        pencils[pencil(site, cell, axis)] += 1;
    }
    pencils
}

/// Returns the first cell of the pencil (line of cells along `axis`) that contains a cell.
fn pencil(site: &Site<'_>, cell: usize, axis: usize) -> usize {
    let stride: usize = site.size()[axis + 1..].iter().map(|n| *n as usize).product();
    let at = cell / stride % site.size()[axis] as usize;
    cell - at * stride
}

impl Fold {
    fn new(site: &Site<'_>, grid: &Grid, targets: &[Target], places: &[[u32; 2]], spread: bool) -> Option<Self> {
        let (mut blocks, mut largest) = (Vec::new(), Vec::new());
        for (&n, places) in grid.extents.iter().zip(places) {
            let count = (places[0] * places[1]).min(n);
            let most = n.div_ceil(count);
            let block =
                |at: u32| if spread { (u64::from(at) * u64::from(count) / u64::from(n)) as u32 } else { at / most };
            blocks.push((0..n).map(block).collect::<Vec<u32>>());
            largest.push(most);
        }
        let volume: u64 = largest.iter().map(|n| u64::from(*n)).product();
        if volume > u64::from(site.per_node) * u64::from(site.frame.per_router()) {
            return None;
        }
        let mut fold = Self { targets: targets.to_vec(), places: places.to_vec(), blocks, largest, guess: 0.0 };
        fold.guess = fold.estimate(site.frame, grid, volume);
        Some(fold)
    }

    /// Estimates the greatest load of a link divided by its weight, from the distance of neighbours in each dimension.
    fn estimate(&self, frame: &Frame, grid: &Grid, volume: u64) -> f64 {
        let mut worst = 0.0_f64;
        for (at, target) in self.targets.iter().enumerate() {
            let face = volume as f64 / f64::from(self.largest[at]) * grid.weights[at];
            let apart = |axis: usize| {
                // The first of two dimensions on an axis steps over all places of the second.
                let others = self.targets[at + 1..].iter().enumerate().filter(|(_, other)| uses(**other, axis));
                let stride: u32 = others.map(|(other, _)| self.on(at + 1 + other, axis)).product();
                f64::from(stride) / f64::from(frame.axes()[axis].weight)
            };
            let load = match *target {
                Target::Inside => 0.0,
                Target::Along(axis) => face * apart(axis),
                Target::Snake(a, b) => face * apart(a).max(apart(b)),
            };
            worst = worst.max(if grid.periodic { load * 1.5 } else { load });
        }
        worst
    }

    /// Returns the number of positions on an axis that a dimension uses.
    fn on(&self, dimension: usize, axis: usize) -> u32 {
        match self.targets[dimension] {
            Target::Snake(_, b) if b == axis => self.places[dimension][1],
            _ => self.places[dimension][0],
        }
    }

    /// Returns the mapping as text such as `x/3 y/6 z/3`, followed by the rule for holes.
    pub(super) fn name(&self, frame: &Frame, skip: Skip) -> String {
        let letter = |axis: usize| {
            if frame.axes().len() <= 3 { ["x", "y", "z"][axis].to_owned() } else { format!("axis{axis}") }
        };
        let dimension = |(at, target): (usize, &Target)| {
            let block = self.largest[at];
            match *target {
                Target::Inside => format!("inside/{block}"),
                Target::Along(axis) => format!("{}/{block}", letter(axis)),
                Target::Snake(a, b) => format!("{}{}/{block}", letter(a), letter(b)),
            }
        };
        let mut name = self.targets.iter().enumerate().map(dimension).collect::<Vec<_>>().join(" ");
        let way = match skip {
            Skip::None => return name,
            Skip::Pencil => "the pencil".to_owned(),
            Skip::Near(_) => "neighbours".to_owned(),
            Skip::Row(axis) => format!("a row along {}", letter(axis)),
            Skip::Half(axis) => format!("half a plane along {}", letter(axis)),
            Skip::Plane => "the plane".to_owned(),
        };
        name.push_str("; skipped at holes by ");
        name.push_str(&way);
        name
    }

    /// Returns the cell of every rank in the prism, for each rule by which pencils (lines of cells) avoid holes.
    pub(super) fn placed(&self, site: &Site<'_>, grid: &Grid) -> Vec<(Skip, Vec<u32>)> {
        let volume: u32 = self.largest.iter().product();
        // A router with too few usable nodes for a block is a hole.
        let usable: Vec<bool> = site.usable.iter().map(|nodes| nodes * site.per_node >= volume).collect();
        let axis = pencil_axis(site);
        let needed = self.extent(axis);
        let skips: Vec<Skip> = if usable.iter().all(|usable| *usable) {
            vec![Skip::None]
        } else {
            let others = (0..site.frame.axes().len()).filter(|a| *a != axis && site.size()[*a] > 1);
            let rows = others.flat_map(|a| [Skip::Row(a), Skip::Half(a)]);
            [Skip::Pencil, Skip::Near(1), Skip::Plane].into_iter().chain(rows).collect()
        };
        let stride: usize = site.size()[axis + 1..].iter().map(|n| *n as usize).product();
        let mut found = Vec::new();
        for skip in skips {
            let Some(open) = pencils(site, &usable, axis, needed, skip) else { continue };
            let cell = |rank: usize| {
                let place = self.place(grid, rank);
                let flat = (0..AXES_MAX).fold(0, |cell, a| cell * site.size()[a] as usize + place[a] as usize);
                let first = pencil(site, flat, axis);
                (first + open[first][place[axis] as usize] as usize * stride) as u32
            };
            found.push((skip, (0..grid.tasks()).map(cell).collect()));
        }
        found
    }

    /// Returns the number of positions that all dimensions together use along an axis.
    fn extent(&self, axis: usize) -> u32 {
        let on = (0..self.targets.len()).filter(|at| uses(self.targets[*at], axis));
        on.map(|at| self.on(at, axis)).product()
    }

    /// Returns the position of a rank on each axis, as if there were no holes.
    fn place(&self, grid: &Grid, rank: usize) -> [u32; AXES_MAX] {
        let coords: [u32; DIMENSIONS_MAX] = grid.coords(rank);
        let mut place = [0; AXES_MAX];
        for (at, target) in self.targets.iter().enumerate() {
            let block = self.blocks[at][coords[at] as usize];
            match *target {
                Target::Inside => {}
                Target::Along(axis) => add(&mut place[axis], block, self.places[at][0]),
                Target::Snake(a, b) => {
                    let width = self.places[at][1];
                    let (high, low) = (block / width, block % width);
                    add(&mut place[a], high, self.places[at][0]);
                    add(&mut place[b], if high.is_multiple_of(2) { low } else { width - 1 - low }, width);
                }
            }
        }
        place
    }
}

/// Adds a further dimension to a position on an axis: the dimension runs back and forth for every position of the
/// dimension before.
fn add(place: &mut u32, at: u32, radix: u32) {
    let at = if place.is_multiple_of(2) { at } else { radix - 1 - at };
    *place = *place * radix + at;
}

/// Returns the positions along the axis that each pencil (line of cells along the axis) uses, at least `needed` of
/// them. The list is indexed by the pencil's first cell. None: some pencil has too few usable cells.
fn pencils(site: &Site<'_>, usable: &[bool], axis: usize, needed: u32, skip: Skip) -> Option<Vec<Vec<u32>>> {
    let n = site.size()[axis];
    let stride: usize = site.size()[axis + 1..].iter().map(|n| *n as usize).product();
    let firsts: Vec<usize> = (0..usable.len()).filter(|cell| pencil(site, *cell, axis) == *cell).collect();
    let mut open = vec![Vec::new(); usable.len()];
    let places: Vec<_> = firsts.iter().map(|first| site.prism.place(*first)).collect();
    for (&first, place) in firsts.iter().zip(&places) {
        let own = |at: u32| usable[first + at as usize * stride];
        let asked = |at: u32| {
            firsts.iter().zip(&places).any(|(&other, there)| {
                let off = |a: usize| place[a].abs_diff(there[a]);
                let others = (0..AXES_MAX).filter(|a| *a != axis);
                let near = match skip {
                    Skip::None | Skip::Pencil => return false,
                    Skip::Near(reach) => others.map(off).all(|off| off <= reach),
                    Skip::Row(along) => others.filter(|a| *a != along).map(off).all(|off| off == 0),
                    Skip::Half(along) => {
                        let middle = site.prism.at[along] + site.size()[along] / 2;
                        (place[along] < middle) == (there[along] < middle)
                    }
                    Skip::Plane => true,
                };
                near && !usable[other + at as usize * stride]
            })
        };
        // A pencil always skips planes in which it has a hole itself. It skips planes with holes of other pencils as
        // long as it has places to spare.
        let mut spare = (0..n).filter(|at| own(*at)).count() as u32;
        if spare < needed {
            return None;
        }
        for at in (0..n).filter(|at| own(*at)) {
            if spare > needed && asked(at) {
                spare -= 1;
            } else {
                open[first].push(at);
            }
        }
    }
    Some(open)
}
