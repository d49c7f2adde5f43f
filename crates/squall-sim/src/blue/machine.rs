//! The machine: who is where, and where the next one goes.

use squall_sched::torus::{AXES_MAX, Ask, Board, Chooser, Coords, Frame, Order, Prism, Reservation, Shape, earliest};

use super::run::Spot;
use super::workload::{Job, SMALL_NODES};
use super::{MACHINE, Placement};
use crate::Seed;

/// Routers with service nodes.
const SERVICE: usize = 108;

/// The shapes of nodesets.
const NODESETS: [[u32; 3]; 7] = [[24, 6, 24], [12, 12, 12], [24, 3, 24], [12, 6, 12], [6, 6, 6], [6, 3, 6], [3, 3, 3]];
/// Shapes of an administrator's list, each at anchors that are a shape apart.
const FIXED: [[u32; 3]; 10] = [
    [24, 12, 24],
    [24, 6, 24],
    [12, 12, 12],
    [12, 6, 12],
    [12, 3, 12],
    [6, 6, 6],
    [6, 3, 6],
    [3, 3, 3],
    [2, 2, 2],
    [2, 1, 2],
];

/// Nodes with GPUs are at the routers of this block, at the first corner.
const GPU_BLOCK: [u32; 3] = [15, 6, 24];
/// The end of what never ends.
const NEVER: u32 = u32::MAX;

/// Which nodes a job can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    WithoutGpus,
    WithGpus,
}

impl Part {
    /// What is not in it.
    fn rest(self) -> Vec<Prism> {
        let [x, y, z] = GPU_BLOCK;
        let prism = |at: [u32; 3], size: [u32; 3]| {
            let wide = |values: [u32; 3], fill| {
                let mut coords = [fill; AXES_MAX];
                coords[..3].copy_from_slice(&values);
                coords
            };
            Prism { at: wide(at, 0), size: wide(size, 1) }
        };
        match self {
            Self::Whole => Vec::new(),
            Self::WithoutGpus => vec![prism([0; 3], GPU_BLOCK)],
            Self::WithGpus => {
                let [all_x, all_y, _] = MACHINE;
                vec![prism([x, 0, 0], [all_x - x, y, z]), prism([0, y, 0], [all_x, all_y - y, z])]
            }
        }
    }
}

/// Where a job is.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    /// Nodes taken at each router, in the order of ranks.
    pub(super) cells: Vec<(usize, u32)>,
    /// The prism, if it has one.
    pub(super) prism: Option<Prism>,
}

/// Routers, lists, and what chooses among them.
pub(super) struct Machine {
    pub(super) frame: Frame,
    /// As it is.
    pub(super) board: Board,
    /// The same with the head's reservation closed.
    barred: Board,
    placement: Placement,
    /// Nobody gets a prism yet.
    scattering: bool,
    chooser: Chooser,
    barred_chooser: Chooser,
    order: Vec<usize>,
    /// Jobs at each router: (number, end at the latest).
    occupants: Vec<Vec<(u32, u32)>>,
    reservation: Option<Reservation>,
}

/// The routers with service nodes.
pub(super) fn service(random: &mut Seed) -> Vec<usize> {
    let cells = u64::from(MACHINE.iter().product::<u32>());
    let mut found = Vec::new();
    while found.len() < SERVICE {
        let cell = random.below(cells) as usize;
        if !found.contains(&cell) {
            found.push(cell);
        }
    }
    found
}

impl Machine {
    /// Routers of that part, but for those whose nodes serve others.
    pub(super) fn new(placement: Placement, part: Part, service: &[usize]) -> Self {
        let frame = Frame::blue_waters(placement == Placement::Strict);
        let mut board = Board::new(frame.clone());
        for cell in service {
            board.retire(*cell, frame.per_router());
        }
        for prism in part.rest() {
            prism.cells(&frame).for_each(|cell| board.retire(cell, frame.per_router()));
            // What others have there goes over its links: it is in no prism of this part.
            board.close(&prism, NEVER);
        }
        let order = match placement {
            Placement::Default => Order::Numeric(4),
            Placement::Snake(thickness) => Order::Snake(thickness),
            _ => Order::Hilbert,
        };
        let order = order.cells(&frame);
        Self {
            barred: board.clone(),
            chooser: Chooser::new(&frame),
            barred_chooser: Chooser::new(&frame),
            occupants: vec![Vec::new(); frame.cells()],
            reservation: None,
            board,
            scattering: false,
            placement,
            order,
            frame,
        }
    }

    /// From now on nobody gets a prism, or those who are to do.
    pub(super) fn scatter_all(&mut self, scattering: bool) {
        self.scattering = scattering;
    }

    /// Whether a job gets a prism or waits.
    pub(super) fn wants_prism(&self, job: &Job) -> bool {
        if self.scattering {
            return false;
        }
        match self.placement {
            Placement::Strict | Placement::Exact => job.nodes > 1,
            Placement::ExactScatter => job.sensitive,
            _ => self.placement.is_prisms() && job.nodes > SMALL_NODES,
        }
    }

    /// Keeps a prism for the job that waits first, from when on it is free; None: nothing is kept. Of those that are
    /// free then it is the one that it would get.
    pub(super) fn reserve(&mut self, head: Option<&Job>, now: u32) {
        self.reservation = head.and_then(|job| self.first_free(job, now));
        self.barred = self.board.clone();
        if let Some(reservation) = self.reservation {
            self.barred.close(&reservation.prism, reservation.from);
        }
        self.barred_chooser.renew();
    }

    /// The prism that is free first for a job.
    fn first_free(&mut self, job: &Job, now: u32) -> Option<Reservation> {
        let Some(list) = self.shapes(job) else {
            let shapes = self.chooser.shapes_for(&self.frame, job.nodes, 10);
            let first = earliest(&self.board, &shapes, job.nodes)?;
            self.barred_chooser.renew();
            let ask = Ask { nodes: job.nodes, geometry: None, end: first.from.max(now) + job.estimate_s };
            let placed = self.barred_chooser.prism(&self.board.at(first.from), &ask);
            return Some(placed.map_or(first, |placed| Reservation { prism: placed.prism, ..first }));
        };
        let shape =
            |size: Coords| Shape { size, volume: size.iter().product(), bisection: self.frame.bisection(&size) };
        earliest(&self.board, &list.into_iter().map(shape).collect::<Vec<_>>(), job.nodes)
    }

    /// The shapes that a list has for a job; None: there is no list.
    fn shapes(&self, job: &Job) -> Option<Vec<Coords>> {
        let list: &[[u32; 3]] = match self.placement {
            Placement::Nodesets => &NODESETS,
            Placement::Fixed => &FIXED,
            _ => return None,
        };
        let size = |shape: &[u32; 3]| {
            let mut size = [1; AXES_MAX];
            size[..3].copy_from_slice(shape);
            size
        };
        let enough = |size: &Coords| size.iter().product::<u32>() * self.frame.per_router() * 97 / 100 >= job.nodes;
        let mut sizes: Vec<Coords> = list.iter().map(size).filter(enough).collect();
        sizes.sort_by_key(|size| size.iter().product::<u32>());
        if sizes.is_empty() {
            sizes.push(self.frame.size());
        }
        Some(sizes)
    }

    /// A place for a job that would end at `end`, now. `first`: it is the one for which the reservation is.
    pub(super) fn place(&mut self, job: &Job, end: u32, first: bool) -> Option<Seat> {
        let late = !first && self.reservation.is_some_and(|reservation| end > reservation.from);
        // As in production: who need not have a prism takes one all the same, if there is one.
        let needs = self.wants_prism(job);
        let may = self.placement == Placement::ExactScatter && job.nodes > 1 && !self.scattering;
        let tries = needs || may;
        let prism = if tries { self.free_prism(job, end, late) } else { None };
        if needs { prism } else { prism.or_else(|| self.scatter(job, late)) }
    }

    /// A free prism for a job.
    fn free_prism(&mut self, job: &Job, end: u32, late: bool) -> Option<Seat> {
        let sizes = self.shapes(job);
        let spaced = self.placement == Placement::Fixed;
        let board = if late { &self.barred } else { &self.board };
        let chooser = if late { &mut self.barred_chooser } else { &mut self.chooser };
        let ask = Ask { nodes: job.nodes, geometry: None, end };
        let prism = match sizes {
            None => chooser.prism(board, &ask)?.prism,
            // The smallest shape that suffices, at one of its anchors.
            Some(sizes) => {
                let size = sizes.first()?;
                anchored(board, size, job.nodes, spaced)?
            }
        };
        let mut left = job.nodes;
        let mut cells = Vec::new();
        for cell in prism.cells(&self.frame) {
            let nodes = board.usable(cell).min(left);
            if nodes > 0 {
                cells.push((cell, nodes));
                left -= nodes;
            }
        }
        (left == 0).then_some(Seat { cells, prism: Some(prism) })
    }

    /// The routers of the widest prism for a job, if nobody were there.
    pub(super) fn ideal(&self, job: &Job) -> Vec<usize> {
        let shapes = self.chooser.shapes_for(&self.frame, job.nodes, 10);
        let widest = shapes.iter().max_by_key(|shape| (shape.bisection, std::cmp::Reverse(shape.volume)));
        let size = widest.map_or(self.frame.size(), |shape| shape.size);
        let prism = Prism { at: [0; AXES_MAX], size };
        prism.cells(&self.frame).take(job.nodes.div_ceil(self.frame.per_router()) as usize).collect()
    }

    /// The first free nodes along the list; with prisms into routers and columns that are broken already.
    fn scatter(&self, job: &Job, late: bool) -> Option<Seat> {
        if self.board.free_nodes() < u64::from(job.nodes) {
            return None;
        }
        let kept = |cell: usize| {
            let reservation = self.reservation.filter(|_| late && self.placement.is_prisms());
            reservation.is_some_and(|kept| kept.prism.contains(&self.frame, &self.frame.coords(cell)))
        };
        let mut order: Vec<usize> =
            self.order.iter().copied().filter(|cell| self.board.free(*cell) > 0 && !kept(*cell)).collect();
        if self.placement.is_prisms() {
            order.sort_by_key(|&cell| (self.board.is_open(cell), self.board.open()[cell / 24].count_ones()));
        }
        let mut left = job.nodes;
        let mut cells = Vec::new();
        for cell in order {
            let nodes = self.board.free(cell).min(left);
            cells.push((cell, nodes));
            left -= nodes;
            if left == 0 {
                break;
            }
        }
        (left == 0).then_some(Seat { cells, prism: None })
    }

    /// When so many nodes are free at the latest, by count: for lists. (time, nodes to spare then)
    pub(super) fn count_reservation(ends: &mut [(u32, u32)], free: u64, nodes: u32) -> (u32, u64) {
        ends.sort_unstable();
        let mut free = free;
        for (end, more) in ends.iter() {
            free += u64::from(*more);
            if free >= u64::from(nodes) {
                return (*end, free - u64::from(nodes));
            }
        }
        (u32::MAX, 0)
    }

    /// A job sits down.
    pub(super) fn seat(&mut self, job: &Job, seat: &Seat, end: u32) {
        for board in [&mut self.board, &mut self.barred] {
            for &(cell, nodes) in &seat.cells {
                board.take(cell, nodes, end);
            }
            if let Some(prism) = &seat.prism {
                board.close(prism, end);
            }
        }
        for cell in self.cells_of(seat) {
            self.occupants[cell].push((job.number, end));
        }
    }

    /// A job leaves.
    pub(super) fn leave(&mut self, number: u32, seat: &Seat) {
        let cells = self.cells_of(seat);
        for &cell in &cells {
            self.occupants[cell].retain(|(other, _)| *other != number);
        }
        for board in [&mut self.board, &mut self.barred] {
            for &(cell, nodes) in &seat.cells {
                board.give(cell, nodes, 0);
            }
            if let Some(prism) = &seat.prism {
                board.reopen(prism);
            }
            for &cell in &cells {
                let end = self.occupants[cell].iter().map(|(_, end)| *end).max().unwrap_or_default();
                board.give(cell, 0, end);
            }
        }
        self.chooser.renew();
    }

    /// Nodes that nobody uses: in prisms, kept for the first that waits, and elsewhere.
    pub(super) fn idle(&self) -> [u32; 3] {
        let mut idle = [0; 3];
        for cell in (0..self.frame.cells()).filter(|cell| self.board.free(*cell) > 0) {
            let kept = |kept: Reservation| kept.prism.contains(&self.frame, &self.frame.coords(cell));
            let kind = match self.board.is_closed(cell) {
                true => 0,
                false if self.reservation.is_some_and(kept) => 1,
                false => 2,
            };
            idle[kind] += self.board.free(cell);
        }
        idle
    }

    /// Who is at each router.
    pub(super) fn map(&self) -> Vec<Spot> {
        let spot = |(cell, jobs): (usize, &Vec<(u32, u32)>)| match jobs.first() {
            _ if self.board.usable(cell) == 0 => Spot::Service,
            Some((job, _)) => Spot::Job(*job),
            None => Spot::Free,
        };
        self.occupants.iter().enumerate().map(spot).collect()
    }

    fn cells_of(&self, seat: &Seat) -> Vec<usize> {
        match &seat.prism {
            Some(prism) => prism.cells(&self.frame).collect(),
            None => seat.cells.iter().map(|(cell, _)| *cell).collect(),
        }
    }
}

/// The first free place of a shape; `spaced`: only at anchors that are a shape apart, else every third.
fn anchored(board: &Board, size: &Coords, nodes: u32, spaced: bool) -> Option<Prism> {
    let frame = board.frame();
    let step = |axis: usize| if spaced { size[axis] } else { size[axis].div_ceil(2) };
    let places = |axis: usize| (0..frame.axes()[axis].extent).step_by(step(axis) as usize).collect::<Vec<u32>>();
    for x in places(0) {
        for y in places(1) {
            for z in places(2) {
                let mut at = [0; AXES_MAX];
                (at[0], at[1], at[2]) = (x, y, z);
                let prism = Prism { at, size: *size };
                let inside = (0..3).all(|axis| prism.at[axis] + size[axis] <= frame.axes()[axis].extent);
                if !inside || !prism.cells(frame).all(|cell| board.is_open(cell) || board.usable(cell) == 0) {
                    continue;
                }
                if prism.cells(frame).map(|cell| board.usable(cell)).sum::<u32>() >= nodes {
                    return Some(prism);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::Placement;
    use super::super::workload::{Job, NODES_MAX};
    use super::{Machine, Part, service};
    use crate::Seed;

    #[test]
    fn every_job_of_a_part_finds_a_place_there_if_nobody_is() {
        let service = service(&mut Seed::new(1));
        for (part, largest) in [(Part::WithGpus, NODES_MAX * 4320 / 27_648), (Part::WithoutGpus, NODES_MAX * 27 / 32)] {
            for placement in [Placement::Strict, Placement::Exact] {
                let mut machine = Machine::new(placement, part, &service);
                for nodes in (2..=largest).step_by(31).chain([largest]) {
                    let (number, application) = (1, 0);
                    let job = Job { number, nodes, run_s: 1.0, estimate_s: 1, application, sensitive: true };
                    assert!(machine.place(&job, 1, true).is_some(), "{part:?} {placement:?}: {nodes} nodes");
                }
            }
        }
    }
}
