//! Dimension-ordered routing: the links that a message uses, and the load of links.

use super::frame::{AXES_MAX, Coords, Frame};

/// A link from a router to its neighbour along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// Number of the router (cell) at which the link begins.
    pub cell: usize,
    /// Index of the link's axis.
    pub axis: usize,
    /// Whether the link leads to higher positions.
    pub up: bool,
}

/// Calls `each` for the links from one cell to another: axis by axis, each the shorter way round. If both ways are
/// equally short, `tie_up` selects one.
pub fn route(frame: &Frame, from: usize, to: usize, tie_up: bool, mut each: impl FnMut(Link)) {
    let (mut here, there) = (frame.coords(from), frame.coords(to));
    for (axis, along) in frame.axes().iter().enumerate() {
        let (steps, up, _) = across(here[axis], there[axis], along.extent, along.wrap, tie_up);
        for _ in 0..steps {
            each(Link { cell: frame.cell(&here), axis, up });
            here[axis] = step(here[axis], along.extent, up);
        }
    }
}

/// Returns the number of steps from one position on an axis to another, whether they lead to higher positions, and
/// whether both ways round a ring are equally short (then `tie_up` has chosen).
pub fn across(from: u32, to: u32, extent: u32, wrap: bool, tie_up: bool) -> (u32, bool, bool) {
    if !wrap {
        return (from.abs_diff(to), to > from, false);
    }
    let up = (to + extent - from) % extent;
    let down = extent - up;
    if up == 0 {
        (0, true, false)
    } else if 2 * up == extent {
        (up, tie_up, true)
    } else {
        (up.min(down), up < down, false)
    }
}

fn step(at: u32, extent: u32, up: bool) -> u32 {
    if up { (at + 1) % extent } else { (at + extent - 1) % extent }
}

/// Load of every link of a frame: the sum of the messages that use it.
#[derive(Clone, Debug)]
pub struct Loads<'a> {
    frame: &'a Frame,
    /// Load of each link, ordered by axis, direction and cell.
    carried: Vec<f64>,
    cells: usize,
}

impl<'a> Loads<'a> {
    /// Creates loads that are 0 on every link.
    pub fn new(frame: &'a Frame) -> Self {
        let cells = frame.cells();
        Self { frame, carried: vec![0.0; cells * frame.axes().len() * 2], cells }
    }
    fn at(&self, link: Link) -> usize {
        (link.axis * 2 + usize::from(link.up)) * self.cells + link.cell
    }
    /// Adds a message of this amount to the links of its path. If two ways are equally short, half of it takes each.
    pub fn add(&mut self, from: usize, to: usize, amount: f64) {
        let (here, there) = (self.frame.coords(from), self.frame.coords(to));
        self.spread(here, &there, 0, amount);
    }
    fn spread(&mut self, mut here: Coords, there: &Coords, axis: usize, amount: f64) {
        let Some(&along) = self.frame.axes().get(axis) else { return };
        let (steps, up, tie) = across(here[axis], there[axis], along.extent, along.wrap, true);
        let ways: &[(bool, f64)] = if tie { &[(true, 0.5), (false, 0.5)] } else { &[(up, 1.0)] };
        let from = here[axis];
        for &(up, share) in ways {
            here[axis] = from;
            for _ in 0..steps {
                let at = self.at(Link { cell: self.frame.cell(&here), axis, up });
                self.carried[at] += amount * share;
                here[axis] = step(here[axis], along.extent, up);
            }
        }
        // Both ways end at the same cell.
        self.spread(here, there, axis + 1, amount);
    }
    /// Returns the load of this link.
    pub fn of(&self, link: Link) -> f64 {
        self.carried[self.at(link)]
    }
    /// Returns the links with a load above 0, each with this load.
    pub fn used(&self) -> impl Iterator<Item = (Link, f64)> + '_ {
        let cells = self.cells;
        let named = self.carried.iter().enumerate().filter(|(_, load)| **load > 0.0);
        named.map(move |(at, &load)| {
            let (way, cell) = (at / cells, at % cells);
            (Link { cell, axis: way / 2, up: way % 2 == 1 }, load)
        })
    }
    /// Returns the link with the greatest load divided by its weight, and that quotient. None: no link has a load.
    pub fn worst(&self) -> Option<(Link, f64)> {
        let weighted = self.used().map(|(link, load)| (link, load / f64::from(self.frame.axes()[link.axis].weight)));
        weighted.fold(None, |worst: Option<(Link, f64)>, (link, load)| match worst {
            Some((_, most)) if most >= load => worst,
            _ => Some((link, load)),
        })
    }
    /// Returns the greatest load of a link along each axis.
    pub fn most(&self) -> [f64; AXES_MAX] {
        let mut most = [0.0_f64; AXES_MAX];
        for (link, load) in self.used() {
            most[link.axis] = most[link.axis].max(load);
        }
        most
    }
}
