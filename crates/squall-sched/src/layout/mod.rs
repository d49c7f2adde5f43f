//! Task layout: maps the ranks of a process grid to a prism so that neighbours stay close and no link carries much
//! more than the others.

mod assign;
mod fold;
mod model;
mod polish;
mod score;
mod table;
mod within;

use std::fmt;

use squall_model::job::network::{DIMENSIONS_MAX, GridShape, weights};

use crate::torus::{Coords, Frame, Prism};

pub(crate) use assign::lies;
pub use assign::{Ranks, assign};
pub use model::Model;
pub use score::Score;
pub use table::{MILC, Row, TALK, Talk, table};
pub use within::sockets;

/// A Cartesian grid of processes; rank 0 is its first corner, and the last dimension counts fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Number of processes along each dimension.
    pub extents: Vec<u32>,
    /// Whether the last process along a dimension is a neighbour of the first.
    pub periodic: bool,
    /// Relative amounts of data that neighbours along each dimension exchange.
    pub weights: Vec<f64>,
}

/// Error in the text of a grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GridFault {
    /// The value of `--grid` is invalid.
    Grid(String),
    /// The value of `--stencil` is invalid.
    Stencil(String),
}

impl fmt::Display for GridFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grid(text) => {
                write!(f, "`{text}` is no grid: 1 to {DIMENSIONS_MAX} extents like 32x32x32, and :periodic")
            }
            Self::Stencil(text) => {
                write!(f, "`{text}` is no stencil: what neighbours exchange along each dimension, like 4,4,1")
            }
        }
    }
}

impl Grid {
    /// Parses a grid such as `32x32x32` or `32x32x32:periodic`, and a stencil such as `4,4,1`. An empty stencil or
    /// `halo` gives equal weights.
    pub fn parse(text: &str, stencil: &str) -> Result<Self, GridFault> {
        let GridShape { extents, periodic } = GridShape::parse(text).ok_or_else(|| GridFault::Grid(text.to_owned()))?;
        let mut weights = weights(stencil).ok_or_else(|| GridFault::Stencil(stencil.to_owned()))?;
        if weights.is_empty() {
            weights = vec![1.0; extents.len()];
        }
        if weights.len() != extents.len() {
            return Err(GridFault::Stencil(stencil.to_owned()));
        }
        Ok(Self { extents, periodic, weights })
    }
    /// Returns the number of processes of the grid.
    pub fn tasks(&self) -> usize {
        self.extents.iter().map(|n| *n as usize).product()
    }
    /// Returns the coordinates of a rank.
    pub fn coords(&self, rank: usize) -> [u32; DIMENSIONS_MAX] {
        let mut coords = [0; DIMENSIONS_MAX];
        let mut left = rank;
        for (at, n) in self.extents.iter().enumerate().rev() {
            coords[at] = (left % *n as usize) as u32;
            left /= *n as usize;
        }
        coords
    }
    /// Calls `each` once for every pair of neighbours: (rank, rank, amount that each sends to the other).
    pub(crate) fn pairs(&self, mut each: impl FnMut(usize, usize, f64)) {
        let mut stride = 1;
        for (dimension, &n) in self.extents.iter().enumerate().rev() {
            let n = n as usize;
            for rank in 0..self.tasks() {
                let at = rank / stride % n;
                if at + 1 < n {
                    each(rank, rank + stride, self.weights[dimension]);
                } else if self.periodic && n > 1 {
                    each(rank, rank - at * stride, self.weights[dimension]);
                }
            }
            stride *= n;
        }
    }
}

/// A prism of a network, with its usable nodes, to which ranks can be mapped.
#[derive(Clone, Debug)]
pub struct Site<'a> {
    /// The frame (axes, links) of the network.
    pub frame: &'a Frame,
    /// The prism (box of routers) to which ranks are mapped.
    pub prism: Prism,
    /// Number of usable nodes of each cell (router) of the prism, in the order of [`Prism::cells`].
    pub usable: Vec<u32>,
    /// Maximum number of tasks on a node.
    pub per_node: u32,
}

impl<'a> Site<'a> {
    /// Creates a site of a prism without unusable nodes.
    pub fn whole(frame: &'a Frame, prism: Prism, per_node: u32) -> Self {
        Self { frame, usable: vec![frame.per_router(); prism.volume()], prism, per_node }
    }
    /// Returns the extents of the prism.
    pub fn size(&self) -> &Coords {
        &self.prism.size
    }
}

/// A mapping of ranks to nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Short description of the way in which the layout was made.
    pub name: String,
    /// For each rank: number of its cell (router) in the prism.
    pub cells: Vec<u32>,
    /// For each rank: number of its node among those of its router.
    pub nodes: Vec<u32>,
    /// Cost of the layout.
    pub score: Score,
}

/// Maximum number of mappings for which the cost is calculated in full.
const SCORED: usize = 6;

/// Returns good layouts of a grid on a site, the best first; empty: the grid does not fit.
pub fn layouts(site: &Site<'_>, grid: &Grid, model: &Model) -> Vec<Layout> {
    let mut folds = fold::folds(site, grid);
    folds.truncate(SCORED);
    let mut found: Vec<Layout> = Vec::new();
    for fold in &folds {
        for (skip, cells) in fold.placed(site, grid) {
            let nodes = within::nodes(site, grid, &cells);
            let Some(nodes) = nodes else { continue };
            let score = score::score(site, grid, &cells, &nodes, model);
            found.push(Layout { name: fold.name(site.frame, skip), cells, nodes, score });
        }
    }
    found.sort_by(|a, b| a.score.worse(&b.score));
    found
}

/// Returns the best layout, improved by `trials` exchanges of routers. None: the grid does not fit.
pub fn best(site: &Site<'_>, grid: &Grid, model: &Model, trials: u32) -> Option<Layout> {
    let best = layouts(site, grid, model).into_iter().next()?;
    if trials == 0 { Some(best) } else { Some(polish::polish(site, grid, model, best, trials)) }
}

/// Returns the layout without optimization: ranks in order, `per_node` on each node, over the nodes of cells in order.
/// `walk`: order of the axes, the last varies fastest.
pub fn in_order(site: &Site<'_>, grid: &Grid, per_node: u32, walk: &[usize], model: &Model) -> Option<Layout> {
    listed(site, grid, per_node, walk, &mut (0..grid.tasks()), model, "ranks in order")
}

/// Returns the layout that `grid_order -c BOX` makes: ranks in order of boxes, filled into nodes one after the other.
/// `cut`: extents of a box.
pub fn grid_order(
    site: &Site<'_>,
    grid: &Grid,
    per_node: u32,
    cut: &[u32],
    walk: &[usize],
    model: &Model,
) -> Option<Layout> {
    let mut ranks: Vec<usize> = (0..grid.tasks()).collect();
    ranks.sort_by_cached_key(|&rank| {
        let coords = grid.coords(rank);
        let outer: Vec<u32> = cut.iter().zip(coords).map(|(n, at)| at / n).collect();
        let inner: Vec<u32> = cut.iter().zip(coords).map(|(n, at)| at % n).collect();
        (outer, inner)
    });
    listed(site, grid, per_node, walk, &mut ranks.into_iter(), model, "grid_order")
}

/// Returns the layout of ranks in the given order, filled into the nodes of one cell after the other. `walk`: order of
/// the axes, the last varies fastest.
fn listed(
    site: &Site<'_>,
    grid: &Grid,
    per_node: u32,
    walk: &[usize],
    ranks: &mut dyn Iterator<Item = usize>,
    model: &Model,
    name: &str,
) -> Option<Layout> {
    let mut order: Vec<usize> = (0..site.prism.volume()).collect();
    order.sort_by_cached_key(|&cell| {
        let place = site.prism.place(cell);
        walk.iter().map(|&axis| place[axis]).collect::<Vec<u32>>()
    });
    let slots = order.into_iter().flat_map(|cell| {
        (0..site.usable[cell]).flat_map(move |node| std::iter::repeat_n((cell as u32, node), per_node as usize))
    });
    let (mut cells, mut nodes) = (vec![0; grid.tasks()], vec![0; grid.tasks()]);
    let mut placed = 0;
    for (rank, (cell, node)) in ranks.zip(slots) {
        (cells[rank], nodes[rank]) = (cell, node);
        placed += 1;
    }
    if placed < grid.tasks() {
        return None;
    }
    let score = score::score(site, grid, &cells, &nodes, model);
    Some(Layout { name: name.to_owned(), cells, nodes, score })
}

/// Returns prism sizes on which a grid fits well, the best first, for a request to the scheduler. `nodes`: number of
/// nodes; None: any suitable number. `tries`: number of sizes that are compared, the smallest first.
pub fn shapes(frame: &Frame, grid: &Grid, per_node: u32, nodes: Option<u32>, tries: usize) -> Vec<Coords> {
    let all = crate::torus::Shapes::new(frame);
    let least = (grid.tasks() as u64).div_ceil(u64::from(per_node.max(1)) * u64::from(frame.per_router()));
    let (least, most) = match nodes {
        Some(nodes) => (nodes.div_ceil(frame.per_router()), nodes.div_ceil(frame.per_router())),
        None => (least as u32, (least * 3 / 2 + 1) as u32),
    };
    let mut sizes = all.between(least, most);
    sizes.sort_by_key(|shape| shape.volume);
    let fitting = sizes.into_iter().filter_map(|shape| {
        let prism = Prism { at: [0; crate::torus::AXES_MAX], size: shape.size };
        let site = Site::whole(frame, prism, per_node);
        fold::folds(&site, grid).first().map(|fold| (fold.guess, shape.volume, shape.size))
    });
    let mut found: Vec<(f64, u32, Coords)> = fitting.take(tries).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    found.into_iter().map(|(_, _, size)| size).collect()
}

#[cfg(test)]
mod tests;
