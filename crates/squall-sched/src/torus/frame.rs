//! The frame of a torus or mesh: axes, cells and prisms, and which prisms keep their traffic inside.

use std::fmt;

/// Most axes of a frame: as many as an option of a job may name.
pub const AXES_MAX: usize = squall_model::job::network::AXES_MAX;
/// Greatest extent of the last axis: its cells are the bits of a 64-bit word.
pub(crate) const LAST_AXIS_MAX: u32 = 64;
/// Maximum number of cells of a frame.
const CELLS_MAX: u64 = 1 << 24;

/// A position or extent on each axis of a frame, in cells; 0 or 1 on axes that the frame does not have.
pub type Coords = [u32; AXES_MAX];

/// An axis of a frame (a grid of routers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Number of routers along the axis.
    pub extent: u32,
    /// Whether the last router is a neighbour of the first.
    pub wrap: bool,
    /// Bandwidth of the axis's links relative to the other axes.
    pub weight: u32,
}

/// A grid of routers. A cell is a router with its nodes; the last axis varies fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    axes: Vec<Axis>,
    per_router: u32,
    strict: bool,
}

/// Reason why parameters are no valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFault {
    /// There is no axis, or there are too many.
    Axes,
    /// The axis with this number has an extent or a weight of 0.
    Empty(usize),
    /// The last axis, with this extent, is too long.
    LastAxis(u32),
    /// The frame has too many cells.
    Cells,
}

impl fmt::Display for FrameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Axes => write!(f, "a torus has 1 to {AXES_MAX} axes"),
            Self::Empty(axis) => write!(f, "axis {axis} has extent or weight 0"),
            Self::LastAxis(extent) => {
                write!(
                    f,
                    "the last axis has extent {extent}, at most {LAST_AXIS_MAX} is possible: name a shorter one last"
                )
            }
            Self::Cells => write!(f, "more than {CELLS_MAX} cells"),
        }
    }
}

impl Frame {
    /// Creates a frame. `strict`: prisms of half a ring's extent are illegal, as in the talk on Blue Waters. Error: the
    /// parameters are not valid.
    pub fn new(axes: Vec<Axis>, per_router: u32, strict: bool) -> Result<Self, FrameFault> {
        if axes.is_empty() || axes.len() > AXES_MAX {
            return Err(FrameFault::Axes);
        }
        if let Some(at) = axes.iter().position(|axis| axis.extent == 0 || axis.weight == 0) {
            return Err(FrameFault::Empty(at));
        }
        let last = axes[axes.len() - 1].extent;
        if last > LAST_AXIS_MAX {
            return Err(FrameFault::LastAxis(last));
        }
        let cells = axes.iter().try_fold(1_u64, |cells, axis| cells.checked_mul(axis.extent.into()));
        if cells.is_none_or(|cells| cells > CELLS_MAX) {
            return Err(FrameFault::Cells);
        }
        Ok(Self { axes, per_router: per_router.max(1), strict })
    }

    /// Creates a torus of these extents with equal links and one node at each router.
    pub fn torus(extents: &[u32]) -> Result<Self, FrameFault> {
        Self::new(extents.iter().map(|&extent| Axis { extent, wrap: true, weight: 1 }).collect(), 1, false)
    }

    /// Creates the network of Blue Waters: 24 x 24 x 24 routers with 2 nodes each, links along y half as fast.
    pub fn blue_waters(strict: bool) -> Self {
        let axis = |weight| Axis { extent: 24, wrap: true, weight };
        Self { axes: vec![axis(2), axis(1), axis(2)], per_router: 2, strict }
    }

    /// Returns the axes of the frame.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }
    /// Returns the number of nodes at each router.
    pub fn per_router(&self) -> u32 {
        self.per_router
    }
    /// Returns the number of cells (routers).
    pub fn cells(&self) -> usize {
        self.axes.iter().map(|axis| axis.extent as usize).product()
    }
    /// Returns the number of columns along the last axis, each of which is one word of bits.
    pub(crate) fn columns(&self) -> usize {
        self.cells() / self.last() as usize
    }
    /// Returns the extent of the last axis.
    pub(crate) fn last(&self) -> u32 {
        self.axes[self.axes.len() - 1].extent
    }
    /// Returns the coordinates of a cell.
    pub fn coords(&self, cell: usize) -> Coords {
        let mut coords = [0; AXES_MAX];
        let mut left = cell;
        for (at, axis) in self.axes.iter().enumerate().rev() {
            coords[at] = (left % axis.extent as usize) as u32;
            left /= axis.extent as usize;
        }
        coords
    }
    /// Returns the cell at these coordinates, modulo the extents.
    pub fn cell(&self, coords: &Coords) -> usize {
        let axes = self.axes.iter().zip(coords);
        axes.fold(0, |cell, (axis, at)| cell * axis.extent as usize + (at % axis.extent) as usize)
    }
    /// Returns whether, along this axis, all shortest paths between two cells of a prism with this extent stay inside
    /// the prism, and those between other cells stay outside. True for a whole ring or 2 (L - 1) < n (if strict: 2 L <
    /// n), with L = `extent` and n cells on the axis, and always on a mesh.
    pub fn legal(&self, axis: usize, extent: u32) -> bool {
        let Axis { extent: all, wrap, .. } = self.axes[axis];
        let most = if self.strict { extent * 2 < all } else { 2 * extent.saturating_sub(1) < all };
        extent >= 1 && extent <= all && (extent == all || !wrap || most || extent == 1)
    }
    /// Returns whether a prism with these extents is legal: it keeps the traffic between its nodes inside, and other
    /// traffic outside.
    pub fn closed(&self, size: &Coords) -> bool {
        (0..self.axes.len()).all(|axis| self.legal(axis, size[axis]))
    }
    /// Returns the bandwidth of the narrowest cut through the middle of a prism with these extents, in units of link
    /// weight.
    pub fn bisection(&self, size: &Coords) -> u64 {
        let volume: u64 = size[..self.axes.len()].iter().map(|n| u64::from(*n)).product();
        let cuts = self.axes.iter().zip(size).filter(|(_, n)| **n > 1).map(|(axis, &n)| {
            let ring = if axis.wrap && n == axis.extent && n > 2 { 2 } else { 1 };
            volume / u64::from(n) * u64::from(axis.weight) * ring
        });
        cuts.min().unwrap_or(u64::MAX)
    }
    /// Returns extents as text, such as `24x6x24`.
    pub fn text(&self, size: &Coords) -> String {
        size[..self.axes.len()].iter().map(u32::to_string).collect::<Vec<_>>().join("x")
    }
    /// Returns the extents of the whole frame.
    pub fn size(&self) -> Coords {
        let mut size = [1; AXES_MAX];
        for (n, axis) in size.iter_mut().zip(&self.axes) {
            *n = axis.extent;
        }
        size
    }
}

/// A box of cells, which may extend over the edge of a wrapping axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prism {
    /// Coordinates of the lowest corner.
    pub at: Coords,
    /// Extents of the prism along each axis, in cells.
    pub size: Coords,
}

impl Prism {
    /// Returns the number of cells of the prism.
    pub fn volume(&self) -> usize {
        self.size.iter().map(|n| *n as usize).product()
    }
    /// Returns the cells, the last axis varying fastest.
    pub fn cells<'a>(&'a self, frame: &'a Frame) -> impl Iterator<Item = usize> + 'a {
        (0..self.volume()).map(move |index| frame.cell(&self.place(index)))
    }
    /// Returns the coordinates of a cell by its number in the prism. They may exceed the frame's extents where the
    /// prism extends over its edge.
    pub fn place(&self, index: usize) -> Coords {
        let mut left = index;
        let mut coords = self.at;
        for axis in (0..AXES_MAX).rev() {
            coords[axis] += (left % self.size[axis] as usize) as u32;
            left /= self.size[axis] as usize;
        }
        coords
    }
    /// Returns whether the prism contains a cell.
    pub fn contains(&self, frame: &Frame, coords: &Coords) -> bool {
        frame.axes.iter().enumerate().all(|(a, axis)| {
            let off = (coords[a] + axis.extent - self.at[a] % axis.extent) % axis.extent;
            off < self.size[a]
        })
    }
    /// Returns whether two prisms have a cell in common.
    pub fn meets(&self, other: &Self, frame: &Frame) -> bool {
        frame.axes.iter().enumerate().all(|(a, axis)| {
            let n = axis.extent;
            let off = |from: u32, to: u32| (to + n - from % n) % n;
            off(self.at[a], other.at[a]) < self.size[a] || off(other.at[a], self.at[a]) < other.size[a]
        })
    }
}

/// Returns the smallest prism with legal extents around some cells, which contains all their traffic. None: there are
/// no cells.
pub fn hull(frame: &Frame, cells: impl Iterator<Item = usize>) -> Option<Prism> {
    let mut used: Vec<Vec<bool>> = frame.axes.iter().map(|axis| vec![false; axis.extent as usize]).collect();
    let mut any = false;
    for cell in cells {
        any = true;
        let coords = frame.coords(cell);
        for (used, at) in used.iter_mut().zip(coords) {
            used[at as usize] = true;
        }
    }
    if !any {
        return None;
    }
    let mut prism = Prism { at: [0; AXES_MAX], size: [1; AXES_MAX] };
    for (a, (axis, used)) in frame.axes.iter().zip(&used).enumerate() {
        (prism.at[a], prism.size[a]) = span(axis, used);
        if !frame.legal(a, prism.size[a]) {
            (prism.at[a], prism.size[a]) = (0, axis.extent);
        }
    }
    Some(prism)
}

/// Returns start and length of the shortest run of positions that contains all used ones.
fn span(axis: &Axis, used: &[bool]) -> (u32, u32) {
    let places: Vec<u32> = used.iter().enumerate().filter(|(_, used)| **used).map(|(at, _)| at as u32).collect();
    let (Some(&first), Some(&last)) = (places.first(), places.last()) else { return (0, 1) };
    let mut best = (first, last - first + 1);
    if axis.wrap {
        for pair in places.windows(2) {
            let len = axis.extent - (pair[1] - pair[0]) + 1;
            if len < best.1 {
                best = (pair[1], len);
            }
        }
    }
    best
}
