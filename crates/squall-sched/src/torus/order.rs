//! Linear orders of cells for jobs without a prism: slabs on the axis with the slowest links, walked back and forth; a
//! Hilbert curve; or the order of numbers.

use std::fmt;

use super::frame::{Coords, Frame};

/// Linear order of a torus's cells, in which nodes are taken for jobs without a prism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By coordinates, the last axis fastest, in slabs of this many cells of the first axis. The default of ALPS is
    /// slabs of 4 cells.
    Numeric(u32),
    /// `2Y`, `4Y`: slabs of this thickness on the axis with the slowest links; the other axes are walked back and
    /// forth.
    Snake(u32),
    /// Along a Hilbert curve through the cells.
    #[default]
    Hilbert,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numeric(_) => f.write_str("default"),
            Self::Snake(thickness) => write!(f, "{thickness}Y"),
            Self::Hilbert => f.write_str("hilbert"),
        }
    }
}

impl Order {
    /// Parses an order's name, as in Slurm: `2Y`, `4Y`, `hilbert` or `default`.
    pub fn named(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "default" | "yz" => Some(Self::Numeric(4)),
            "hilbert" => Some(Self::Hilbert),
            other => other.strip_suffix('y')?.parse().ok().filter(|t| *t > 0).map(Self::Snake),
        }
    }
    /// Returns all cells of a frame in this order.
    pub fn cells(self, frame: &Frame) -> Vec<usize> {
        let mut cells: Vec<usize> = (0..frame.cells()).collect();
        match self {
            Self::Numeric(t) => cells.sort_by_cached_key(|&cell| {
                let c = frame.coords(cell);
                let rest: Vec<u32> = c[1..frame.axes().len()].to_vec();
                (c[0] / t.max(1), rest, c[0])
            }),
            Self::Snake(t) => {
                let axes = rising(frame);
                cells.sort_by_cached_key(|&cell| snake(frame, &axes, t.max(1), &frame.coords(cell)));
            }
            Self::Hilbert => {
                let bits = frame.axes().iter().map(|axis| 32 - (axis.extent - 1).leading_zeros()).max().unwrap_or(1);
                cells.sort_by_cached_key(|&cell| hilbert(frame, bits.max(1), &frame.coords(cell)));
            }
        }
        cells
    }
}

/// Returns the axes, the one with the slowest links first.
fn rising(frame: &Frame) -> Vec<usize> {
    let mut axes: Vec<usize> = (0..frame.axes().len()).collect();
    axes.sort_by_key(|&axis| frame.axes()[axis].weight);
    axes
}

/// Returns a cell's sort key in a snake order: first the slab, then back and forth over the other axes, then over the
/// thickness of the slab.
fn snake(frame: &Frame, axes: &[usize], t: u32, coords: &Coords) -> Vec<u32> {
    let thick = axes[0];
    let slab = coords[thick] / t;
    let mut key = vec![slab];
    // The parity of the number of steps so far gives the next direction.
    let mut before = slab;
    for &axis in &axes[1..] {
        let n = frame.axes()[axis].extent;
        let at = if before.is_multiple_of(2) { coords[axis] } else { n - 1 - coords[axis] };
        key.push(at);
        before = before * n + at;
    }
    let depth = t.min(frame.axes()[thick].extent - slab * t);
    let at = coords[thick] % t;
    key.push(if before.is_multiple_of(2) { at } else { depth - 1 - at });
    key
}

/// Returns the position of a cell on a Hilbert curve (Skilling's transform).
fn hilbert(frame: &Frame, bits: u32, coords: &Coords) -> u64 {
    let axes = frame.axes().len();
    let mut place = *coords;
    for bit in (1..bits).rev() {
        let (digit, below) = (1_u32 << bit, (1_u32 << bit) - 1);
        for axis in 0..axes {
            if place[axis] & digit == 0 {
                let swapped = (place[0] ^ place[axis]) & below;
                place[0] ^= swapped;
                place[axis] ^= swapped;
            } else {
                place[0] ^= below;
            }
        }
    }
    for axis in 1..axes {
        place[axis] ^= place[axis - 1];
    }
    let carries = (1..bits).filter(|bit| place[axes - 1] >> bit & 1 == 1);
    let carry = carries.fold(0, |carry, bit| carry ^ ((1 << bit) - 1));
    let digits = (0..bits).rev().flat_map(|bit| (0..axes).map(move |axis| (axis, bit)));
    digits.fold(0, |key, (axis, bit)| key << 1 | u64::from((place[axis] ^ carry) >> bit & 1))
}
