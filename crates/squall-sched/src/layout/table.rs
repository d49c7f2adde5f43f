//! The talk's halo exchange of 32 x 32 x 32 tasks on Blue Waters, row by row, beside what is found here.

use super::{Grid, Layout, Model, Site, best, grid_order, in_order};
use crate::torus::{AXES_MAX, Coords, Frame, Prism};

/// A row of the talk's table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Talk {
    /// How ranks were placed.
    pub placement: Placement,
    /// Routers.
    pub size: [u32; 3],
    /// Milliseconds measured.
    pub measured_ms: f64,
    /// Most load of a link by its weight that the geometry implies.
    pub worst: f64,
}

/// How ranks were placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In order.
    Default,
    /// By `grid_order -c 2,4,4`.
    GridOrder,
    /// By layout.
    Layout,
}

const fn row(placement: Placement, size: [u32; 3], measured_ms: f64, worst: f64) -> Talk {
    Talk { placement, size, measured_ms, worst }
}

/// The talk's rows.
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

/// MILC's grid in the talk, its prism and tasks of a node: 254.0 s with grid_order, 116.4 s with a layout.
pub const MILC: ([u32; 4], [u32; 3], u32) = ([21, 2, 21, 24], [21, 2, 21], 12);

/// Tasks of a node.
const PER_NODE: u32 = 32;
/// The orders in which a list of nodes may walk the axes; which one it was is not known.
const WALKS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// A row as found here.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The talk's.
    pub talk: Talk,
    /// The layout.
    pub layout: Layout,
    /// Most load of a link by its weight; of `grid_order` the mean over the orders of the axes.
    pub worst: f64,
    /// What the model says.
    pub time_ms: f64,
}

/// A prism with these extents at the frame's first corner.
pub(super) fn prism(size: &[u32]) -> Prism {
    let mut extents: Coords = [1; AXES_MAX];
    extents[..size.len()].copy_from_slice(size);
    Prism { at: [0; AXES_MAX], size: extents }
}

/// All rows.
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
