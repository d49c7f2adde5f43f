//! Shapes of nodes that suit a job, and the shape that it has, as text for its user.

use std::collections::BTreeSet;

use squall_model::job::Seat;
use squall_model::set::NodeSet;

use super::pick::Wish;
use super::{Topology, TopologyKind, Torus};
use crate::layout;
use crate::torus::{Chooser, Coords, Frame, Prism, hull, turned};

/// Greatest excess of a suggested prism over the requested number of nodes, percent.
const SLACK: u32 = 25;
/// Number of prism shapes that are compared for a process grid.
const GRID_TRIES: usize = 16;

/// Returns the first `most` prism shapes, as text, that suit this number of nodes, or a grid with `tasks_each` ranks on
/// a node. Empty: the network needs no shapes.
pub(crate) fn shapes(topology: &Topology, wish: &Wish, (nodes, tasks_each): (u32, u32), most: usize) -> Vec<String> {
    let TopologyKind::Torus(tori) = &topology.kind else { return Vec::new() };
    let mut found: Vec<String> = Vec::new();
    for torus in tori {
        let some = sizes(&torus.frame, wish, (nodes, tasks_each)).into_iter().map(|size| torus.frame.text(&size));
        some.for_each(|text| {
            if found.len() < most && !found.contains(&text) {
                found.push(text);
            }
        });
    }
    found
}

fn sizes(frame: &Frame, wish: &Wish, (nodes, tasks_each): (u32, u32)) -> Vec<Coords> {
    match (wish.geometry, wish.grid) {
        (Some(size), _) => turned(frame, &size),
        (None, Some(ranks)) => layout::shapes(frame, &ranks.grid(), tasks_each, None, GRID_TRIES),
        (None, None) => {
            let mut shapes = Chooser::new(frame).shapes_for(frame, nodes, SLACK);
            shapes.sort_by_key(|shape| shape.volume);
            shapes.into_iter().map(|shape| shape.size).collect()
        }
    }
}

impl Topology {
    /// Returns the positions of a job's nodes in the network, and the step of the choice by which they were found.
    /// None: all nodes are equivalent, or there is only one.
    pub fn seat(&self, nodes: &NodeSet, wish: &Wish) -> Option<Seat> {
        let places: Vec<(usize, usize)> = nodes.iter().filter_map(|node| self.place(node)).collect();
        let &(first, _) = places.first().filter(|_| nodes.len() > 1)?;
        let groups: BTreeSet<usize> = places.iter().map(|(group, _)| *group).collect();
        let named = |kind: &str, name: &dyn Fn(usize) -> String| {
            Some(Seat::Groups(kind.to_owned(), groups.iter().map(|group| name(*group)).collect()))
        };
        match &self.kind {
            TopologyKind::Flat => None,
            TopologyKind::Tree { switches, .. } => named("switch", &|at| switches[at].name.clone()),
            TopologyKind::Block { blocks, .. } => named("block", &|at| blocks[at].name.clone()),
            TopologyKind::Ring(rings) => named("ring", &|at| rings[at].name.clone()),
            TopologyKind::Torus(tori) => {
                let torus = &tori[first];
                let frame = &torus.frame;
                let order = || Seat::Order(torus.order.to_string());
                let Some(prism) = hull(frame, places.iter().map(|(_, cell)| *cell)).filter(|_| groups.len() == 1)
                else {
                    return Some(order());
                };
                let usable: usize = prism.cells(frame).map(|cell| torus.cells[cell].len()).sum();
                let text = torus.named(&prism);
                let full = frame.closed(&prism.size) && usable * 100 <= nodes.len() * (100 + SLACK as usize);
                let asked = wish.grid.is_some() || wish.geometry.is_some();
                Some(match () {
                    () if !full => order(),
                    () if asked => Seat::Asked(text),
                    () if torus.placements.contains(&prism.size) => Seat::Listed(text),
                    () => Seat::Prism(text),
                })
            }
        }
    }
    /// Returns the prism that only these nodes use, such as `4x4x2 at 0x0x2 of t`. None: they are in no such prism.
    pub fn prism_of(&self, nodes: &NodeSet) -> Option<String> {
        let TopologyKind::Torus(tori) = &self.kind else { return None };
        let (at, _) = self.place(nodes.first()?)?;
        if !self.closed(nodes) {
            return None;
        }
        let torus = &tori[at];
        let cells = nodes.iter().filter_map(|node| self.place(node)).map(|(_, cell)| cell);
        let prism = hull(&torus.frame, cells)?;
        Some(torus.named(&prism))
    }
}

impl Torus {
    /// Returns a prism as text for users.
    fn named(&self, prism: &Prism) -> String {
        format!("{} at {} of {}", self.frame.text(&prism.size), self.frame.text(&prism.at), self.name)
    }
}
