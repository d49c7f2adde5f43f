//! Which shapes of nodes a job could do with, and which it has, to be told to its user.

use std::collections::BTreeSet;

use squall_model::job::Seat;
use squall_model::set::NodeSet;

use super::pick::Wish;
use super::{Kind, Topology, Torus};
use crate::layout;
use crate::torus::{Chooser, Coords, Frame, Prism, hull, turned};

/// So much larger than asked for a prism may be that is named, percent.
const SLACK: u32 = 25;
/// As many shapes are compared for a grid.
const GRID_TRIES: usize = 16;

/// The prisms that would do for so many nodes, or the ranks of a grid of which a node takes so many; the first few, as
/// text. None: it is no matter of shapes.
pub(crate) fn shapes(topology: &Topology, wish: &Wish, (nodes, tasks_each): (u32, u32), most: usize) -> Vec<String> {
    let Kind::Torus(tori) = &topology.kind else { return Vec::new() };
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
    /// How a job's nodes stand, and by which step of the choice they were found. None: all nodes are alike, or there is
    /// only one.
    pub fn seat(&self, nodes: &NodeSet, wish: &Wish) -> Option<Seat> {
        let places: Vec<(usize, usize)> = nodes.iter().filter_map(|node| self.place(node)).collect();
        let &(first, _) = places.first().filter(|_| nodes.len() > 1)?;
        let groups: BTreeSet<usize> = places.iter().map(|(group, _)| *group).collect();
        let named = |kind: &str, name: &dyn Fn(usize) -> String| {
            Some(Seat::Groups(kind.to_owned(), groups.iter().map(|group| name(*group)).collect()))
        };
        match &self.kind {
            Kind::Flat => None,
            Kind::Tree { switches, .. } => named("switch", &|at| switches[at].name.clone()),
            Kind::Block { blocks, .. } => named("block", &|at| blocks[at].name.clone()),
            Kind::Ring(rings) => named("ring", &|at| rings[at].name.clone()),
            Kind::Torus(tori) => {
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
    /// The prism of a torus in which these nodes are alone: `4x4x2 at 0x0x2 of t`.
    pub fn prism_of(&self, nodes: &NodeSet) -> Option<String> {
        let Kind::Torus(tori) = &self.kind else { return None };
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
    /// A prism as users read it.
    fn named(&self, prism: &Prism) -> String {
        format!("{} at {} of {}", self.frame.text(&prism.size), self.frame.text(&prism.at), self.name)
    }
}
