//! Cost of a layout: messages are routed, and the most loaded link decides.

use std::cmp::Ordering;

use super::model::Model;
use super::{Grid, Site};
use crate::torus::{AXES_MAX, Link, Loads, route};

/// Cost of a layout: link loads, hops and estimated time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Greatest load of a link divided by the link's weight.
    pub worst: f64,
    /// The link with the greatest load. None: no link is used.
    pub link: Option<Link>,
    /// Greatest load of a link along each axis.
    pub most: [f64; AXES_MAX],
    /// Greatest number of hops between two routers that exchange messages.
    pub hops_max: u32,
    /// Mean number of hops between routers that exchange messages, weighted by the amount of data.
    pub hops_mean: f64,
    /// Greatest number of tasks on a node.
    pub per_node: u32,
    /// Number of routers that have at least one rank.
    pub routers: u32,
    /// Time of a halo exchange by the model, milliseconds.
    pub time_ms: f64,
}

impl Score {
    /// Compares two costs: the greater one is worse.
    pub fn worse(&self, other: &Self) -> Ordering {
        let time = self.time_ms.total_cmp(&other.time_ms);
        time.then(self.worst.total_cmp(&other.worst)).then(self.hops_mean.total_cmp(&other.hops_mean))
    }
}

/// Returns the pairs of routers that exchange messages: (cell, cell, amount each way), with cell numbers in the prism.
pub(super) fn flows(grid: &Grid, cells: &[u32]) -> Vec<(u32, u32, f64)> {
    let mut flows = Vec::new();
    grid.pairs(|a, b, weight| {
        let (a, b) = (cells[a], cells[b]);
        if a != b {
            flows.push((a.min(b), a.max(b), weight));
        }
    });
    flows.sort_unstable_by_key(|(a, b, _)| (*a, *b));
    flows.dedup_by(|next, kept| {
        let same = (next.0, next.1) == (kept.0, kept.1);
        if same {
            kept.2 += next.2;
        }
        same
    });
    flows
}

/// Calculates the cost of a layout.
pub(super) fn score(site: &Site<'_>, grid: &Grid, cells: &[u32], nodes: &[u32], model: &Model) -> Score {
    let frame = site.frame;
    let places: Vec<usize> = site.prism.cells(frame).collect();
    let mut loads = Loads::new(frame);
    let (mut hops_max, mut hops_sum, mut weight_sum) = (0, 0.0, 0.0);
    for (a, b, amount) in flows(grid, cells) {
        let (a, b) = (places[a as usize], places[b as usize]);
        loads.add(a, b, amount);
        loads.add(b, a, amount);
        let mut hops = 0;
        route(frame, a, b, true, |_| hops += 1);
        hops_max = hops_max.max(hops);
        hops_sum += f64::from(hops) * amount;
        weight_sum += amount;
    }
    let per_router = frame.per_router() as usize;
    let mut tasks = vec![0_u32; site.prism.volume() * per_router];
    for (cell, node) in cells.iter().zip(nodes) {
        tasks[*cell as usize * per_router + *node as usize] += 1;
    }
    let per_node = tasks.iter().copied().max().unwrap_or_default();
    let worst = loads.worst();
    let load = worst.map_or(0.0, |(_, load)| load);
    Score {
        worst: load,
        link: worst.map(|(link, _)| link),
        most: loads.most(),
        hops_max,
        hops_mean: if weight_sum > 0.0 { hops_sum / weight_sum } else { 0.0 },
        per_node,
        routers: tasks.chunks(per_router).filter(|router| router.iter().any(|tasks| *tasks > 0)).count() as u32,
        time_ms: model.time_ms(per_node, load),
    }
}
