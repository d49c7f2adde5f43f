//! Search for free prisms of a shape. The cells along the last axis are the bits of a word. A shape's anchors are the
//! open cells eroded by its extents, in a logarithmic number of word operations.

use super::frame::{AXES_MAX, Coords, Frame};

/// Searches one set of open cells for many shapes. Results that shapes have in common are calculated once if the
/// shapes come sorted by their last extent, then the one before, and so on.
///
/// A shape is searched by eroding the open cells along each axis, in any order. The erosion along the first axis is
/// split: by the power of two in its extent before the axes between, and by the rest at the end. Shapes of about the
/// same volume have different first extents, so all but the last part of that work is shared, too.
#[derive(Debug, Default)]
pub struct Fits {
    last: Level,
    /// Erosions along the first axis by 2, 4, 8 and so on cells, each made from the one before.
    powers: Vec<Level>,
    /// Index in `powers` of the erosion from which the erosions in `between` were made.
    power: usize,
    /// Erosions along the axes between first and last, starting with the last of these axes.
    between: Vec<Level>,
    first: Level,
    spare: Vec<u64>,
}

/// Open cells left after an erosion along one axis, a bit for each cell.
#[derive(Debug, Default)]
struct Level {
    /// Extent for which `bits` are valid; 0: none.
    extent: u32,
    bits: Vec<u64>,
    /// Whether no bit of `bits` is set.
    none: bool,
}

impl Fits {
    /// Discards all results. Must be called when the open cells have changed.
    pub fn renew(&mut self) {
        self.last.extent = 0;
    }

    /// Returns the lowest corners of free prisms of this size among `open` cells, a bit for each cell. Along an axis
    /// that the prism fills all corners are equivalent, and only position 0 is set.
    pub fn anchors(&mut self, frame: &Frame, open: &[u64], size: &Coords) -> &[u64] {
        let axes = frame.axes().len();
        let size = size.map(|extent| extent.max(1));
        self.powers.resize_with(u32::BITS as usize, Level::default);
        self.between.resize_with(axes.saturating_sub(2), Level::default);
        let Self { last, powers, power, between, first, spare } = self;
        let mut stale = last.erode(open, spare, (frame, axes - 1), (1, size[axes - 1]));
        if stale {
            for level in powers.iter_mut() {
                level.extent = 0;
            }
        }
        if last.none || axes == 1 {
            return &last.bits;
        }
        let log = size[0].ilog2() as usize;
        stale |= std::mem::replace(power, log) != log;
        for at in 0..log {
            let (before, rest) = powers.split_at_mut(at);
            let source = before.last().unwrap_or(last);
            rest[0].erode(&source.bits, spare, (frame, 0), (1 << at, 2 << at));
        }
        let mut source = powers[..log].last().unwrap_or(last);
        for (level, axis) in between.iter_mut().zip((1..axes - 1).rev()) {
            if stale {
                level.extent = 0;
            }
            stale |= !source.none && level.erode(&source.bits, spare, (frame, axis), (1, size[axis]));
            if !source.none {
                source = level;
            }
        }
        if stale {
            first.extent = 0;
        }
        // The extent is the power itself, so nothing is left to do unless the prism fills the axis.
        let done = size[0] == 1 << log && size[0] != frame.axes()[0].extent;
        if !source.none && !done {
            first.erode(&source.bits, spare, (frame, 0), (1 << log, size[0]));
            source = first;
        }
        &source.bits
    }
}

impl Level {
    /// Erodes along one axis: keeps each bit of `source` for which the following ones along the axis are set, `extent`
    /// in all. `eroded` of these are known to be set already. Returns false if the result of the last call is still
    /// valid.
    fn erode(
        &mut self,
        source: &[u64],
        spare: &mut Vec<u64>,
        (frame, axis): (&Frame, usize),
        (eroded, extent): (u32, u32),
    ) -> bool {
        if self.extent == extent {
            return false;
        }
        let mut again = self.extent == 0 || extent < self.extent;
        let mut done = if again { eroded } else { self.extent };
        self.extent = extent;
        if self.none && !again {
            return true;
        }
        if again && done == extent {
            self.bits.clear();
            self.bits.extend_from_slice(source);
            self.none = source.iter().all(|word| *word == 0);
        }
        while done < extent {
            let by = done.min(extent - done);
            self.none = shift(if again { source } else { &self.bits }, spare, (frame, axis), by);
            std::mem::swap(&mut self.bits, spare);
            (done, again) = (done + by, false);
        }
        if extent == frame.axes()[axis].extent {
            only_first(&mut self.bits, frame, axis);
        }
        true
    }
}

/// Keeps each bit for which the one `by` positions further along an axis is set, too. Returns whether none is left.
fn shift(from: &[u64], to: &mut Vec<u64>, (frame, at): (&Frame, usize), by: u32) -> bool {
    let axis = frame.axes()[at];
    to.resize(from.len(), 0);
    if at + 1 == frame.axes().len() {
        let n = axis.extent;
        let mask = if n == 64 { u64::MAX } else { (1 << n) - 1 };
        let over = |m: u64| if axis.wrap && by < n { m << (n - by) & mask } else { 0 };
        return to.iter_mut().zip(from).fold(0, |any, (to, m)| {
            *to = m & (m >> by | over(*m));
            any | *to
        }) == 0;
    }
    let (stride, block) = blocks(frame, at);
    let by = by as usize * stride;
    let mut any = 0;
    for (from, to) in from.chunks_exact(block).zip(to.chunks_exact_mut(block)) {
        let (inner, over) = to.split_at_mut(block - by);
        any |= both(inner, from, &from[by..]);
        if axis.wrap {
            any |= both(over, &from[block - by..], from);
        } else {
            over.fill(0);
        }
    }
    any == 0
}

/// Stores the bits that are set in both `a` and `b`, and returns all of them combined in one word. Compiled for the
/// widest words of the machine, because a search spends most of its time here.
#[multiversion::multiversion(targets("x86_64+avx2"))]
fn both(to: &mut [u64], a: &[u64], b: &[u64]) -> u64 {
    to.iter_mut().zip(a).zip(b).fold(0, |any, ((to, a), b)| {
        *to = a & b;
        any | *to
    })
}

/// Keeps only the bits at position 0 along an axis that the prism fills.
fn only_first(bits: &mut [u64], frame: &Frame, at: usize) {
    if at + 1 == frame.axes().len() {
        return bits.iter_mut().for_each(|m| *m &= 1);
    }
    let (stride, block) = blocks(frame, at);
    bits.chunks_exact_mut(block).for_each(|block| block[stride..].fill(0));
}

/// Returns the distance, in words, of neighbouring positions along an axis other than the last, and the number of words
/// that all positions of the axis take.
fn blocks(frame: &Frame, at: usize) -> (usize, usize) {
    let axes = frame.axes();
    let stride: usize = axes[at + 1..axes.len() - 1].iter().map(|axis| axis.extent as usize).product();
    (stride, stride * axes[at].extent as usize)
}

/// Returns the number of prism positions (lowest corners) that [`Fits::anchors`] found.
#[multiversion::multiversion(targets("x86_64+avx2+popcnt"))]
pub fn count_corners(anchors: &[u64]) -> u32 {
    anchors.iter().map(|word| word.count_ones()).sum()
}

/// Returns the coordinates of the lowest corners that have their bits set, in the order of cells.
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

/// Compares prism sizes for the order in which [`Fits`] needs the least work.
pub(crate) fn by_last_axis(a: &Coords, b: &Coords) -> std::cmp::Ordering {
    (0..AXES_MAX)
        .rev()
        .map(|axis| a[axis].cmp(&b[axis]))
        .find(|order| order.is_ne())
        .unwrap_or(std::cmp::Ordering::Equal)
}
