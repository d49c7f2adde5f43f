//! Where prisms of a shape are free: the cells along the last axis are the bits of a word, and a shape's anchors are
//! what is left of the open cells when they are eroded by its extents, in a logarithmic number of word operations.

use super::frame::{AXES_MAX, Coords, Frame};

/// Searches one set of open cells for many shapes. What shapes have in common is worked out once if they come sorted
/// by their last extent, then the one before, and so on.
#[derive(Debug, Default)]
pub struct Fits {
    /// Result of eroding the last axis, then the one before, …
    levels: Vec<Level>,
    spare: Vec<u64>,
}

#[derive(Debug, Default)]
struct Level {
    /// Extent for which `bits` hold; 0: none.
    extent: u32,
    bits: Vec<u64>,
    /// Whether no bit is left.
    none: bool,
}

impl Fits {
    /// Other cells are open now.
    pub fn renew(&mut self) {
        self.levels.iter_mut().for_each(|level| level.extent = 0);
    }

    /// The lowest corners of free prisms of that size among `open` cells, a bit for each cell. Along an axis that is
    /// filled all corners are the same, and only place 0 is named.
    pub fn anchors(&mut self, frame: &Frame, open: &[u64], size: &Coords) -> &[u64] {
        let axes = frame.axes().len();
        self.levels.resize_with(axes, Level::default);
        let mut valid = true;
        let mut last = axes - 1;
        for (depth, axis) in (0..axes).rev().enumerate() {
            valid &= self.levels[depth].extent == size[axis];
            if !valid {
                let (before, rest) = self.levels.split_at_mut(depth);
                let source = before.last().map_or(open, |level| &level.bits);
                let level = &mut rest[0];
                level.extent = size[axis];
                if depth == 0 {
                    erode_bits(source, &mut level.bits, frame, size[axis]);
                } else {
                    erode_axis(source, &mut level.bits, &mut self.spare, (frame, axis), size[axis]);
                }
                level.none = level.bits.iter().all(|word| *word == 0);
                rest[1..].iter_mut().for_each(|level| level.extent = 0);
            }
            if self.levels[depth].none {
                last = depth;
                break;
            }
        }
        &self.levels[last].bits
    }
}

/// Each bit stays if it and the following ones, as many as `extent` says, are set.
fn erode_bits(source: &[u64], bits: &mut Vec<u64>, frame: &Frame, extent: u32) {
    let axis = frame.axes()[frame.axes().len() - 1];
    let n = axis.extent;
    let mask = if n == 64 { u64::MAX } else { (1 << n) - 1 };
    bits.clear();
    bits.extend_from_slice(source);
    let mut shift = |l: u32| {
        if axis.wrap && l < n {
            for m in bits.iter_mut() {
                *m &= (*m >> l | *m << (n - l)) & mask;
            }
        } else {
            for m in bits.iter_mut() {
                *m &= *m >> l;
            }
        }
    };
    doubling(extent, &mut shift);
    if extent == n {
        for m in bits.iter_mut() {
            *m &= 1;
        }
    }
}

/// The same along another axis, whose neighbours are whole words away.
fn erode_axis(source: &[u64], bits: &mut Vec<u64>, spare: &mut Vec<u64>, (frame, at): (&Frame, usize), extent: u32) {
    let axes = frame.axes();
    let axis = axes[at];
    let n = axis.extent as usize;
    let stride: usize = axes[at + 1..axes.len() - 1].iter().map(|axis| axis.extent as usize).product();
    bits.resize(source.len(), 0);
    spare.resize(source.len(), 0);
    if extent == 1 {
        bits.copy_from_slice(source);
    }
    let mut first = true;
    let mut shift = |l: u32| {
        let from = if std::mem::take(&mut first) {
            source
        } else {
            std::mem::swap(bits, spare);
            &spare[..]
        };
        let (l, block) = (l as usize * stride, n * stride);
        for (from, to) in from.chunks_exact(block).zip(bits.chunks_exact_mut(block)) {
            let (inner, over) = to.split_at_mut(block - l);
            inner.iter_mut().zip(from).zip(&from[l..]).for_each(|((to, a), b)| *to = a & b);
            if axis.wrap {
                over.iter_mut().zip(&from[block - l..]).zip(from).for_each(|((to, a), b)| *to = a & b);
            } else {
                over.fill(0);
            }
        }
    };
    doubling(extent, &mut shift);
    if extent as usize == n {
        for block in bits.chunks_exact_mut(n * stride) {
            block[stride..].fill(0);
        }
    }
}

/// Shifts by 1, 2, 4, … and the rest, so that all of 0 .. extent are met.
fn doubling(extent: u32, shift: &mut impl FnMut(u32)) {
    let mut l = 1;
    while 2 * l <= extent {
        shift(l);
        l *= 2;
    }
    if l < extent {
        shift(extent - l);
    }
}

/// The corners named by bits, in the order of cells.
pub(crate) fn corners<'a>(frame: &'a Frame, anchors: &'a [u64]) -> impl Iterator<Item = Coords> + 'a {
    let last = frame.last() as usize;
    anchors.iter().enumerate().flat_map(move |(column, &word)| {
        let mut left = word;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(frame.coords(column * last + bit))
        })
    })
}

/// The sizes in an order in which [`Fits`] works out least.
pub(crate) fn by_last_axis(a: &Coords, b: &Coords) -> std::cmp::Ordering {
    (0..AXES_MAX)
        .rev()
        .map(|axis| a[axis].cmp(&b[axis]))
        .find(|order| order.is_ne())
        .unwrap_or(std::cmp::Ordering::Equal)
}
