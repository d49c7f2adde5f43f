//! Search for the earliest time at which a prism for a blocked job is free, by a sliding maximum of the ends of its
//! cells.

use super::board::{Board, NEVER};
use super::frame::{AXES_MAX, Coords, Frame, Prism};
use super::shapes::Shape;
use super::sums::Sums;

/// A prism reserved for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The reserved prism.
    pub prism: Prism,
    /// Time from which the prism is free, seconds.
    pub from: u32,
}

/// Returns the first prism to become free that has one of the shapes and at least `nodes` usable nodes; of equals the
/// first found. None: there is no such prism.
pub fn earliest(board: &Board, shapes: &[Shape], nodes: u32) -> Option<Reservation> {
    let frame = board.frame();
    let mut lacking = Sums::default();
    board.lacking(&mut lacking);
    let base: Vec<u32> =
        (0..frame.cells()).map(|cell| if board.is_open(cell) { 0 } else { board.end(cell).max(1) }).collect();
    let mut windows = Windows::default();
    let mut best: Option<Reservation> = None;
    for shape in shapes {
        let ends = windows.slide(frame, &base, &shape.size);
        let full = shape.volume * frame.per_router();
        let bound = best.map_or(NEVER, |best| best.from);
        let mut found = best;
        let mut least = bound;
        for (cell, &end) in ends.iter().enumerate().filter(|(_, end)| **end < bound) {
            if end >= least {
                continue;
            }
            let prism = Prism { at: frame.coords(cell), size: shape.size };
            if inside(frame, &prism) && full - lacking.sum(&prism) as u32 >= nodes {
                least = end;
                found = Some(Reservation { prism, from: end });
            }
        }
        best = found;
    }
    best
}

/// Returns whether a prism crosses no edge of a mesh axis, and begins at position 0 on axes that it fills.
fn inside(frame: &Frame, prism: &Prism) -> bool {
    frame.axes().iter().enumerate().all(|(a, axis)| {
        let (at, size) = (prism.at[a], prism.size[a]);
        if size == axis.extent { at == 0 } else { axis.wrap || at + size <= axis.extent }
    })
}

/// Maxima of the cells' values over windows of several shapes. Results that shapes have in common are calculated once.
#[derive(Default)]
struct Windows {
    levels: Vec<(u32, Vec<u32>)>,
    spare: Vec<u32>,
}

impl Windows {
    fn slide(&mut self, frame: &Frame, base: &[u32], size: &Coords) -> &[u32] {
        let axes = frame.axes().len();
        self.levels.resize_with(axes, Default::default);
        let mut valid = true;
        for (depth, axis) in (0..axes).rev().enumerate() {
            valid &= self.levels[depth].0 == size[axis];
            if valid {
                continue;
            }
            let (before, rest) = self.levels.split_at_mut(depth);
            let source = before.last().map_or(base, |(_, values)| values);
            let (extent, values) = &mut rest[0];
            *extent = size[axis];
            values.clear();
            values.extend_from_slice(source);
            widen(values, &mut self.spare, frame, axis, size[axis]);
            rest[1..].iter_mut().for_each(|level| level.0 = 0);
        }
        &self.levels[axes - 1].1
    }
}

/// Replaces each value by the maximum of it and the values of the next cells along an axis, `extent` cells in all.
fn widen(values: &mut Vec<u32>, spare: &mut Vec<u32>, frame: &Frame, axis: usize, extent: u32) {
    let n = frame.axes()[axis].extent as usize;
    let stride: usize = frame.size()[axis + 1..AXES_MAX].iter().map(|n| *n as usize).product();
    spare.resize(values.len(), 0);
    let mut shift = |l: usize| {
        let (l, block) = (l * stride, n * stride);
        for (from, to) in values.chunks_exact(block).zip(spare.chunks_exact_mut(block)) {
            let (inner, over) = to.split_at_mut(block - l);
            inner.iter_mut().zip(from).zip(&from[l..]).for_each(|((to, a), b)| *to = *a.max(b));
            over.iter_mut().zip(&from[block - l..]).zip(from).for_each(|((to, a), b)| *to = *a.max(b));
        }
        std::mem::swap(values, spare);
    };
    let (mut l, extent) = (1, extent as usize);
    while 2 * l <= extent {
        shift(l);
        l *= 2;
    }
    if l < extent {
        shift(extent - l);
    }
}
