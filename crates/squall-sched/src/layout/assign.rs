//! Mapping of a process grid to a job's nodes in the real network: the node of each rank, and whether the grid fits
//! there.

use squall_model::id::NodeId;
use squall_model::set::NodeSet;

use squall_model::job::network::{DIMENSIONS_MAX, GridShape};

use super::{Grid, Model, SCORED, Site, best, fold, within};
use crate::topology::{Topology, TopologyKind, Torus};
use crate::torus::{Prism, hull};

/// A requested process grid: [`Grid`] in a form that can be compared and copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranks {
    extents: [u32; DIMENSIONS_MAX],
    dimensions: u8,
    periodic: bool,
    /// Weights of the dimensions, thousandths: relative amounts of data that neighbours along each exchange.
    weights: [u32; DIMENSIONS_MAX],
}

impl Ranks {
    /// Makes a grid with its stencil (weights of the dimensions, thousandths). An empty stencil means equal weights.
    /// None: grid and stencil do not have the same number of dimensions.
    pub fn of(shape: &GridShape, stencil: &[u32]) -> Option<Self> {
        if !stencil.is_empty() && stencil.len() != shape.extents.len() {
            return None;
        }
        let mut ranks = Self { dimensions: shape.extents.len() as u8, periodic: shape.periodic, ..Self::default() };
        for (at, extent) in shape.extents.iter().enumerate() {
            (ranks.extents[at], ranks.weights[at]) = (*extent, stencil.get(at).copied().unwrap_or(1000));
        }
        Some(ranks)
    }
    /// Returns the grid in the form that layouts are calculated from.
    pub fn grid(&self) -> Grid {
        let count = usize::from(self.dimensions);
        Grid {
            extents: self.extents[..count].to_vec(),
            periodic: self.periodic,
            weights: self.weights[..count].iter().map(|weight| f64::from(*weight) / 1000.0).collect(),
        }
    }
}

/// Returns the usable part of a prism, and the usable nodes at each of its cells.
fn site(
    torus: &Torus,
    prism: Prism,
    per_node: u32,
    mut usable: impl FnMut(NodeId) -> bool,
) -> (Site<'_>, Vec<Vec<NodeId>>) {
    let nodes =
        prism.cells(&torus.frame).map(|cell| torus.cells[cell].iter().copied().filter(|id| usable(*id)).collect());
    let members: Vec<Vec<NodeId>> = nodes.collect();
    let usable = members.iter().map(|nodes| nodes.len() as u32).collect();
    (Site { frame: &torus.frame, prism, usable, per_node }, members)
}

/// Returns whether a grid fits on the usable nodes of a prism, with at most `per_node` ranks on each node.
pub(crate) fn lies(
    torus: &Torus,
    prism: Prism,
    usable: impl FnMut(NodeId) -> bool,
    grid: &Grid,
    per_node: u32,
) -> bool {
    let (site, _) = site(torus, prism, per_node, usable);
    let folds = fold::folds(&site, grid);
    folds
        .iter()
        .take(SCORED)
        .any(|fold| fold.placed(&site, grid).iter().any(|(_, cells)| within::nodes(&site, grid, cells).is_some()))
}

/// Returns the node of each rank, on nodes of a torus with at most `per_node` ranks each. None: the grid does not fit
/// there.
pub fn assign(topology: &Topology, nodes: &NodeSet, grid: &Grid, per_node: u32) -> Option<Vec<NodeId>> {
    let TopologyKind::Torus(tori) = &topology.kind else { return None };
    let places: Vec<(usize, usize)> = nodes.iter().map(|id| topology.place(id)).collect::<Option<_>>()?;
    let (at, _) = *places.first()?;
    if places.iter().any(|(other, _)| *other != at) {
        return None;
    }
    let prism = hull(&tori[at].frame, places.iter().map(|(_, cell)| *cell))?;
    let (site, members) = site(&tori[at], prism, per_node, |id| nodes.contains(id));
    let layout = best(&site, grid, &Model::default(), 0)?;
    let ranks = layout.cells.iter().zip(&layout.nodes);
    ranks.map(|(cell, node)| members.get(*cell as usize)?.get(*node as usize).copied()).collect()
}
