//! Choice of a free prism for a job: high bisection bandwidth, little waste, close to used cells, next to jobs that
//! end at the same time, and where it blocks the fewest positions for larger jobs.

use std::collections::BTreeSet;

use super::board::Board;
use super::frame::{AXES_MAX, Coords, Frame, Prism};
use super::search::{Fits, corners};
use super::shapes::{Shape, Shapes};
use super::sums::Sums;

/// Greatest excess of a prism over the requested nodes, percent; the values are tried in this order.
const SLACKS: [u32; 3] = [5, 10, 25];
/// Number of candidate prisms for which the cost is calculated in full.
const CLOSELY: usize = 24;
/// Sizes of larger jobs, as multiples of this job's size. A candidate may block free positions for jobs of these sizes.
/// A blocked position weighs more where few are left. So a whole region is kept for the largest jobs while there is
/// room elsewhere.
const LARGER: [u32; 4] = [2, 4, 8, 16];
/// Difference between the ends of two jobs, seconds, from which on the jobs count as unrelated.
const AFFINE_S: f64 = 3600.0;
/// Weight of surplus nodes in a candidate's cost. The next three are the weights of the surface next to open cells, of
/// blocked positions for larger jobs, and of differences between the ends of neighbouring jobs.
const WASTE: f64 = 2.0;
const SURFACE: f64 = 1.0;
const DAMAGE: f64 = 2.0;
const APART: f64 = 0.35;

/// A request for a prism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Number of requested nodes.
    pub nodes: u32,
    /// Requested extents, in any order of the axes.
    pub geometry: Option<Coords>,
    /// Latest end of the job: the end of its time limit, seconds.
    pub end: u32,
}

/// Step of the search that found a prism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The prism has the requested geometry.
    Geometry,
    /// The prism has a legal shape and at most this many percent more cells than needed.
    Prism(u32),
}

/// A free prism for a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placed {
    /// The free prism.
    pub prism: Prism,
    /// Number of usable nodes in the prism.
    pub usable: u32,
    /// Step of the search that found the prism.
    pub step: Step,
    /// Cost of the prism: lower is better.
    pub cost: f64,
}

/// Searches for free prisms. Keeps buffers from one search to the next.
#[derive(Debug)]
pub struct Chooser {
    shapes: Shapes,
    fits: Fits,
    larger: Fits,
    lacking: Sums,
    /// Whether any router lacks nodes. None: the sums in `lacking` are outdated.
    holes: Option<bool>,
    busy: Sums,
    ends: Vec<u64>,
    /// Shapes for which the last search found no free prism; none can appear until further cells open.
    full: BTreeSet<Coords>,
}

impl Chooser {
    /// Creates a chooser for boards of this frame.
    pub fn new(frame: &Frame) -> Self {
        Self {
            shapes: Shapes::new(frame),
            fits: Fits::default(),
            larger: Fits::default(),
            lacking: Sums::default(),
            holes: None,
            busy: Sums::default(),
            ends: Vec::new(),
            full: BTreeSet::new(),
        }
    }
    /// Returns the legal shapes on this frame.
    pub fn shapes(&self) -> &Shapes {
        &self.shapes
    }
    /// Discards results that depend on open cells. Must be called when nodes were freed, went down or came up; not when
    /// nodes are allocated.
    pub fn renew(&mut self) {
        self.holes = None;
        self.full.clear();
    }

    /// Returns the shapes to try for this many nodes. Shapes with less than half the greatest bisection are omitted.
    /// `slack`: maximum excess, percent.
    pub fn shapes_for(&self, frame: &Frame, nodes: u32, slack: u32) -> Vec<Shape> {
        let per_router = frame.per_router();
        let least = nodes.div_ceil(per_router).max(1);
        let most = (u64::from(nodes) * u64::from(100 + slack) / 100).div_ceil(u64::from(per_router)) as u32;
        let Some(next) = self.shapes.next(least) else { return Vec::new() };
        let shapes = self.shapes.between(least, most.max(next));
        let best = shapes.iter().map(|shape| shape.bisection).max().unwrap_or_default();
        shapes.into_iter().filter(|shape| shape.bisection >= best / 2).collect()
    }

    /// Returns the best free prism of exactly the extents `size`. None: no such prism is free.
    pub fn just(&mut self, board: &Board, ask: &Ask, size: &Coords) -> Option<Placed> {
        if u64::from(ask.nodes) > board.free_nodes() {
            return None;
        }
        self.look(board);
        let shape = Shape { size: *size, volume: size.iter().product(), bisection: board.frame().bisection(size) };
        self.among(board, ask, &[shape], Step::Geometry)
    }

    /// Returns the best free prism for a request. None: no suitable prism is free.
    pub fn prism(&mut self, board: &Board, ask: &Ask) -> Option<Placed> {
        if u64::from(ask.nodes) > board.free_nodes() {
            return None;
        }
        self.look(board);
        let frame = board.frame();
        if let Some(size) = ask.geometry {
            let shapes: Vec<Shape> = turned(frame, &size)
                .into_iter()
                .map(|size| Shape { size, volume: size.iter().product(), bisection: frame.bisection(&size) })
                .collect();
            return self.among(board, ask, &shapes, Step::Geometry);
        }
        let mut before = 0;
        for slack in SLACKS {
            let shapes = self.shapes_for(frame, ask.nodes, slack);
            if shapes.len() == before {
                continue;
            }
            before = shapes.len();
            if let Some(placed) = self.among(board, ask, &shapes, Step::Prism(slack)) {
                return Some(placed);
            }
        }
        None
    }

    /// Updates the buffers to the present usage of the torus.
    fn look(&mut self, board: &Board) {
        self.fits.renew();
        self.larger.renew();
        if self.holes.is_none() {
            board.lacking(&mut self.lacking);
            self.holes = Some((0..board.frame().cells()).any(|cell| board.usable(cell) < board.frame().per_router()));
        }
        board.busy(&mut self.busy);
    }

    /// Returns the cheapest free prism of any of these shapes. None: no prism of these shapes is free.
    fn among(&mut self, board: &Board, ask: &Ask, shapes: &[Shape], step: Step) -> Option<Placed> {
        let frame = board.frame();
        let mut best: Vec<Placed> = Vec::new();
        for shape in shapes {
            if self.full.contains(&shape.size) {
                continue;
            }
            let anchors = self.fits.anchors(frame, board.open(), &shape.size);
            if anchors.iter().all(|word| *word == 0) {
                self.full.insert(shape.size);
                continue;
            }
            ends_of_runs(frame, anchors, &shape.size, &mut self.ends);
            let full = shape.volume * frame.per_router();
            for at in corners(frame, &self.ends) {
                let prism = Prism { at, size: shape.size };
                let lacking = if self.holes == Some(true) { self.lacking.sum(&prism) as u32 } else { 0 };
                let usable = full - lacking;
                if usable < ask.nodes {
                    continue;
                }
                let waste = f64::from(usable - ask.nodes) / f64::from(ask.nodes.max(1));
                let cost = WASTE * waste + SURFACE * self.surface(frame, &prism);
                keep(&mut best, Placed { prism, usable, step, cost });
            }
        }
        for placed in &mut best {
            placed.cost += APART * apart(board, &placed.prism, ask.end);
        }
        let volume = best.first().map_or(0, |placed| placed.prism.volume() as u32);
        for times in LARGER {
            let Some((size, count)) = self.larger_shape(board, volume.saturating_mul(times)) else { break };
            let anchors = self.larger.anchors(frame, board.open(), &size);
            for placed in &mut best {
                placed.cost += DAMAGE * f64::from(spoilt(frame, anchors, &placed.prism, &size)) / f64::from(count);
            }
        }
        best.into_iter().min_by(|a, b| a.cost.total_cmp(&b.cost).then_with(|| a.prism.at.cmp(&b.prism.at)))
    }

    /// Returns the share of a prism's outer faces that border on open cells, from 0 to 1.
    fn surface(&self, frame: &Frame, prism: &Prism) -> f64 {
        let (mut area, mut busy) = (0, 0);
        for (a, axis) in frame.axes().iter().enumerate() {
            if prism.size[a] == axis.extent {
                continue;
            }
            let mut face = *prism;
            face.size[a] = 1;
            let each = face.volume() as i32;
            for (at, edge) in [
                ((prism.at[a] + axis.extent - 1) % axis.extent, prism.at[a] == 0),
                ((prism.at[a] + prism.size[a]) % axis.extent, prism.at[a] + prism.size[a] == axis.extent),
            ] {
                face.at[a] = at;
                area += each;
                busy += if edge && !axis.wrap { each } else { self.busy.sum(&face) };
            }
        }
        if area == 0 { 0.0 } else { f64::from(area - busy) / f64::from(area) }
    }

    /// Returns the shape of about this volume, in cells, with the greatest bisection bandwidth, and its number of free
    /// positions. None: no such shape has a free position.
    fn larger_shape(&mut self, board: &Board, volume: u32) -> Option<(Coords, u32)> {
        let least = self.shapes.next(volume)?;
        let shapes = self.shapes.between(least, least + least / 20);
        let widest = shapes.iter().max_by_key(|shape| shape.bisection)?;
        let anchors = self.larger.anchors(board.frame(), board.open(), &widest.size);
        let count: u32 = anchors.iter().map(|word| word.count_ones()).sum();
        (count > 0).then_some((widest.size, count))
    }
}

/// Inserts a candidate into the list of the cheapest candidates, which has a limited length.
fn keep(best: &mut Vec<Placed>, placed: Placed) {
    if best.len() == CLOSELY && best[CLOSELY - 1].cost <= placed.cost {
        return;
    }
    let at = best.partition_point(|other| other.cost <= placed.cost);
    best.insert(at, placed);
    best.truncate(CLOSELY);
}

/// Returns these extents in every order of the axes in which a prism keeps the traffic between its nodes inside, the
/// given order first.
pub(crate) fn turned(frame: &Frame, size: &Coords) -> Vec<Coords> {
    let k = frame.axes().len();
    let mut found: Vec<Coords> = Vec::new();
    let mut order: Vec<usize> = (0..k).collect();
    permute(&mut order, 0, &mut |order| {
        let mut turned = [1; AXES_MAX];
        for (axis, &from) in order.iter().enumerate() {
            turned[axis] = size[from];
        }
        if frame.closed(&turned) && !found.contains(&turned) {
            found.push(turned);
        }
    });
    found
}

fn permute(order: &mut Vec<usize>, from: usize, each: &mut impl FnMut(&[usize])) {
    if from + 1 >= order.len() {
        return each(order);
    }
    for at in from..order.len() {
        order.swap(from, at);
        permute(order, from + 1, each);
        order.swap(from, at);
    }
}

/// Selects anchors (lowest corners of free prisms) that are first or last of a run on every axis, where a prism
/// touches a neighbour. If there are none, those of a run on some axis; otherwise the first anchor.
fn ends_of_runs(frame: &Frame, anchors: &[u64], size: &Coords, out: &mut Vec<u64>) {
    let axes = frame.axes();
    let last = axes.len() - 1;
    let n = axes[last].extent;
    let mask = if n == 64 { u64::MAX } else { (1 << n) - 1 };
    let inner = |m: u64| {
        if size[last] == n {
            return 0;
        }
        let (up, down) =
            if axes[last].wrap { (m << 1 | m >> (n - 1), m >> 1 | m << (n - 1)) } else { (m << 1, m >> 1) };
        m & up & down & mask
    };
    out.clear();
    out.extend(anchors.iter().map(|&m| m & !inner(m)));
    let mut stride = 1;
    let mut some = out.clone();
    for axis in (0..last).rev() {
        let n = axes[axis].extent as usize;
        let block = stride * n;
        if size[axis] as usize != n {
            for at in 0..anchors.len() {
                let row = at % block / stride;
                let below = if row > 0 {
                    anchors[at - stride]
                } else if axes[axis].wrap {
                    anchors[at + block - stride]
                } else {
                    0
                };
                let above = if row + 1 < n {
                    anchors[at + stride]
                } else if axes[axis].wrap {
                    anchors[at + stride - block]
                } else {
                    0
                };
                let inside = anchors[at] & below & above;
                out[at] &= !inside;
                some[at] |= anchors[at] & !inside;
            }
        }
        stride = block;
    }
    if out.iter().any(|word| *word != 0) {
        return;
    }
    if some.iter().any(|word| *word != 0) {
        std::mem::swap(out, &mut some);
    } else if let Some(at) = anchors.iter().position(|word| *word != 0) {
        out[at] = anchors[at] & anchors[at].wrapping_neg();
    }
}

/// Returns how far the ends of neighbouring jobs are from this job's end, from 0 to 1, averaged over the faces of the
/// prism.
fn apart(board: &Board, prism: &Prism, end: u32) -> f64 {
    let frame = board.frame();
    let (mut sum, mut count) = (0.0, 0_u32);
    for (a, axis) in frame.axes().iter().enumerate().filter(|(a, axis)| prism.size[*a] < axis.extent) {
        let mut face = *prism;
        face.size[a] = 1;
        for at in [prism.at[a] + axis.extent - 1, prism.at[a] + prism.size[a]] {
            face.at[a] = at % axis.extent;
            for cell in face.cells(frame) {
                let other = board.end(cell);
                if other > 0 && !board.is_open(cell) {
                    sum += (f64::from(other.abs_diff(end)) / AFFINE_S).min(1.0);
                    count += 1;
                }
            }
        }
    }
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

/// Returns the number of anchors (lowest corners of free prisms) of a larger shape that a prism blocks.
fn spoilt(frame: &Frame, anchors: &[u64], prism: &Prism, larger: &Coords) -> u32 {
    let mut area = Prism { at: [0; AXES_MAX], size: [1; AXES_MAX] };
    for (a, axis) in frame.axes().iter().enumerate() {
        let n = axis.extent;
        let reach = prism.size[a] + larger[a] - 1;
        // If the larger shape fills an axis, its anchors are only at position 0 of it.
        if reach >= n || larger[a] == n {
            (area.at[a], area.size[a]) = (0, n);
        } else {
            (area.at[a], area.size[a]) = ((prism.at[a] + n - (larger[a] - 1)) % n, reach);
        }
    }
    let last = frame.axes().len() - 1;
    let n = frame.last();
    let run = if area.size[last] == 64 { u64::MAX } else { (1 << area.size[last]) - 1 };
    let from = area.at[last];
    let bits = if from == 0 { run } else { run << from | run >> (n - from) };
    let bits = if n == 64 { bits } else { bits & ((1 << n) - 1) };
    area.size[last] = 1;
    area.at[last] = 0;
    area.cells(frame).map(|cell| (anchors[cell / n as usize] & bits).count_ones()).sum()
}
