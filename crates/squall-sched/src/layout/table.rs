//! Comparison with the halo exchange of 32 x 32 x 32 tasks in the talk on Blue Waters, row by row.

use super::{Grid, Layout, Model, Site, best, grid_order, in_order};
use crate::torus::{AXES_MAX, Coords, Frame, Prism};

/// A row of the halo exchange table in the Blue Waters talk (2014): placement, prism and measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Talk {
    /// Method by which ranks were mapped.
    pub placement: Placement,
    /// Routers along x, y and z of the prism.
    pub size: [u32; 3],
    /// Measured time of a halo exchange, milliseconds.
    pub measured_ms: f64,
    /// Greatest load of a link divided by the link's weight, as the prism's geometry implies it.
    pub worst: f64,
}

/// Method by which ranks are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Ranks in order, without a task layout.
    Default,
    /// Ranks in the order of `grid_order -c 2,4,4`.
    GridOrder,
    /// A task layout made for the torus.
    Layout,
}

const fn row(placement: Placement, size: [u32; 3], measured_ms: f64, worst: f64) -> Talk {
    Talk { placement, size, measured_ms, worst }
}

/// Rows of the halo exchange table in the Blue Waters talk (2014).
pub const TALK: [Talk; 10] = [
    row(Placement::Default, [8, 8, 8], 11.315, 288.0),
    row(Placement::GridOrder, [8, 8, 8], 7.722, 256.0),
    row(Placement::Layout, [8, 8, 8], 2.771, 16.0),
    row(Placement::Layout, [11, 6, 11], 1.287, 9.0),
    row(Placement::Layout, [11, 8, 8], 1.147, 12.0),
    row(Placement::Layout, [8, 8, 11], 1.214, 12.0),
    row(Placement::Layout, [11, 7, 8], 1.782, 12.0),
    row(Placement::Layout, [8, 7, 11], 1.737, 12.0),
    row(Placement::Layout, [11, 8, 7], 1.580, 15.0),
    row(Placement::Layout, [7, 8, 11], 1.690, 15.0),
];

/// MILC in the Blue Waters talk (2014): its process grid, its prism, and the number of tasks on a node. The talk
/// measured 254.0 s with grid_order and 116.4 s with a layout.
pub const MILC: ([u32; 4], [u32; 3], u32) = ([21, 2, 21, 24], [21, 2, 21], 12);

/// Number of tasks on a node in the talk's table.
const PER_NODE: u32 = 32;
/// The orders in which a node list may vary the axes; that of the talk on Blue Waters is not known.
const WALKS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// A row of the talk's table, with the layout and the time calculated here.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The row in the Blue Waters talk (2014).
    pub talk: Talk,
    /// The layout that was calculated here.
    pub layout: Layout,
    /// Greatest load of a link divided by its weight; for `grid_order` the mean over the orders of the axes.
    pub worst: f64,
    /// Time of a halo exchange by the model, milliseconds.
    pub time_ms: f64,
}

/// Returns a prism with these extents at the frame's origin.
pub(super) fn prism(size: &[u32]) -> Prism {
    let mut extents: Coords = [1; AXES_MAX];
    extents[..size.len()].copy_from_slice(size);
    Prism { at: [0; AXES_MAX], size: extents }
}

/// Returns all rows of the comparison.
pub fn table(model: &Model, trials: u32) -> Vec<Row> {
    let frame = Frame::blue_waters(false);
    let grid = Grid { extents: vec![32; 3], periodic: false, weights: vec![1.0; 3] };
    let row = |talk: &Talk| {
        let site = Site::whole(&frame, prism(&talk.size), PER_NODE);
        let (layout, worst) = match talk.placement {
            Placement::Default => {
                let layout = in_order(&site, &grid, PER_NODE, &WALKS[0], model)?;
                let worst = layout.score.worst;
                (layout, worst)
            }
            Placement::GridOrder => {
                let ordered = |walk: &[usize; 3]| grid_order(&site, &grid, PER_NODE, &[2, 4, 4], walk, model);
                let all: Vec<Layout> = WALKS.iter().filter_map(ordered).collect();
                let mean = all.iter().map(|layout| layout.score.worst).sum::<f64>() / all.len() as f64;
                (all.into_iter().next()?, mean)
            }
            Placement::Layout => {
                let layout = best(&site, &grid, model, trials)?;
                let worst = layout.score.worst;
                (layout, worst)
            }
        };
        let time_ms = model.time_ms(layout.score.per_node, worst);
        Some(Row { talk: *talk, layout, worst, time_ms })
    };
    TALK.iter().filter_map(row).collect()
}
