//! Improvement of a layout: the ranks of two routers are exchanged if that relieves the most loaded links.

use super::model::Model;
use super::score::{flows, score};
use super::{Grid, Layout, Site, within};
use crate::torus::{Loads, across};

/// Exponent of the link loads in the sum to be minimized: high, so that the most loaded links dominate.
const POWER: i32 = 6;

/// Tries `trials` exchanges of two routers' ranks and keeps those that reduce the sum of the link loads' powers.
pub(super) fn polish(site: &Site<'_>, grid: &Grid, model: &Model, layout: Layout, trials: u32) -> Layout {
    let volume = site.prism.volume();
    let mut used = vec![0_usize; volume];
    layout.cells.iter().for_each(|cell| used[*cell as usize] += 1);
    // Only routers with equal numbers of tasks can be exchanged without moving other ranks.
    let routers: Vec<u32> = (0..volume as u32).filter(|cell| site.usable[*cell as usize] > 0).collect();
    let mut sum = Sum::new(site, grid, &layout.cells);
    let mut at: Vec<u32> = (0..volume as u32).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut pick = |n: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((random >> 33) as usize) % n.max(1)
    };
    for _ in 0..trials {
        let (a, b) = (routers[pick(routers.len())], routers[pick(routers.len())]);
        let fits =
            |tasks: usize, cell: u32| tasks <= (site.usable[at[cell as usize] as usize] * site.per_node) as usize;
        if a == b || !fits(used[a as usize], b) || !fits(used[b as usize], a) {
            continue;
        }
        let before = sum.total;
        sum.exchange(&mut at, a, b);
        if sum.total >= before {
            sum.exchange(&mut at, a, b);
        }
    }
    let cells: Vec<u32> = layout.cells.iter().map(|cell| at[*cell as usize]).collect();
    let Some(nodes) = within::nodes(site, grid, &cells) else { return layout };
    let score = score(site, grid, &cells, &nodes, model);
    if score.worst < layout.score.worst {
        Layout { name: layout.name + "; polished", cells, nodes, score }
    } else {
        layout
    }
}

/// The sum of powers of all links' loads, updated incrementally.
struct Sum<'a> {
    site: &'a Site<'a>,
    places: Vec<usize>,
    /// For each router: the routers that it exchanges messages with, each with the amount.
    flows: Vec<Vec<(u32, f64)>>,
    loads: Vec<f64>,
    total: f64,
}

impl<'a> Sum<'a> {
    fn new(site: &'a Site<'a>, grid: &Grid, cells: &[u32]) -> Self {
        let volume = site.prism.volume();
        let mut lists = vec![Vec::new(); volume];
        for (a, b, amount) in flows(grid, cells) {
            lists[a as usize].push((b, amount));
            lists[b as usize].push((a, amount));
        }
        let frame = site.frame;
        let places = site.prism.cells(frame).collect();
        let links = frame.cells() * frame.axes().len() * 2;
        let mut sum = Self { site, places, flows: lists, loads: vec![0.0; links], total: 0.0 };
        let at: Vec<u32> = (0..volume as u32).collect();
        for a in 0..volume as u32 {
            for (b, amount) in sum.flows[a as usize].clone() {
                sum.add(at[a as usize], at[b as usize], amount);
            }
        }
        debug_assert!(Loads::new(frame).worst().is_none(), "nothing is loaded at first");
        sum
    }

    /// Exchanges the positions of the ranks of routers `a` and `b`.
    fn exchange(&mut self, at: &mut [u32], a: u32, b: u32) {
        self.apply(at, a, b, -1.0);
        at.swap(a as usize, b as usize);
        self.apply(at, a, b, 1.0);
    }

    /// Adds (`sign` 1) or subtracts (-1) all messages of routers `a` and `b` to or from the link loads.
    fn apply(&mut self, at: &[u32], a: u32, b: u32, sign: f64) {
        for (here, other) in [(a, b), (b, a)] {
            for index in 0..self.flows[here as usize].len() {
                let (there, amount) = self.flows[here as usize][index];
                self.add(at[here as usize], at[there as usize], amount * sign);
                if there != other {
                    self.add(at[there as usize], at[here as usize], amount * sign);
                }
            }
        }
    }

    /// Adds a message between two cells of the prism to the link loads. Where both ways round a ring are equally short,
    /// half goes each way.
    fn add(&mut self, from: u32, to: u32, amount: f64) {
        let frame = self.site.frame;
        let (from, to) = (self.places[from as usize], self.places[to as usize]);
        let (mut here, there) = (frame.coords(from), frame.coords(to));
        for (axis, along) in frame.axes().iter().enumerate() {
            let (steps, up, tie) = across(here[axis], there[axis], along.extent, along.wrap, true);
            let start = here[axis];
            let ways: &[(bool, f64)] = if tie { &[(true, 0.5), (false, 0.5)] } else { &[(up, 1.0)] };
            for &(up, share) in ways {
                here[axis] = start;
                for _ in 0..steps {
                    let link = (frame.cell(&here) * frame.axes().len() + axis) * 2 + usize::from(up);
                    let weight = f64::from(along.weight);
                    let before = self.loads[link];
                    let after = before + amount * share;
                    self.loads[link] = after;
                    self.total += (after / weight).powi(POWER) - (before / weight).powi(POWER);
                    here[axis] = (here[axis] + if up { 1 } else { along.extent - 1 }) % along.extent;
                }
            }
        }
    }
}
