//! The machine of the Blue Waters simulation: which job uses which nodes, and where the next job is placed.

use squall_sched::torus::{AXES_MAX, Ask, Board, Chooser, Coords, Frame, Order, Prism, Reservation, Shape, earliest};

use super::run::Spot;
use super::workload::{Job, SMALL_NODES};
use super::{MACHINE, Placement};
use squall_sim::Seed;

/// Number of routers with service nodes.
const SERVICE: usize = 108;

/// Shapes (routers along x, y, z) of the nodesets, largest first.
const NODESETS: [[u32; 3]; 7] = [[24, 6, 24], [12, 12, 12], [24, 3, 24], [12, 6, 12], [6, 6, 6], [6, 3, 6], [3, 3, 3]];
/// Shapes (routers along x, y, z) of an administrator's list. Each is placed only at multiples of its own size.
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

/// Routers along x, y and z of the block with GPU nodes; it begins at router (0, 0, 0).
const GPU_BLOCK: [u32; 3] = [15, 6, 24];
/// End time of usage that never ends, such as that of a part of the machine that is closed for all jobs.
const NEVER: u32 = u32::MAX;

/// Part of the machine that a job can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    WithoutGpus,
    WithGpus,
}

impl Part {
    /// Returns the prisms of the machine that are outside this part.
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

/// Nodes that are allocated to a job, at one or more routers.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    /// Routers of the nodes, as (router, number of nodes used there), in the order of the job's ranks.
    pub(super) cells: Vec<(usize, u32)>,
    /// The prism that the job occupies. None: its nodes are scattered.
    pub(super) prism: Option<Prism>,
}

/// State of the machine: its routers, its usage, and the placement algorithms.
pub(super) struct Machine {
    pub(super) frame: Frame,
    /// Current usage of all routers.
    pub(super) board: Board,
    /// Usage of all routers as seen by jobs that must not delay the first pending job: the prism reserved for that job
    /// counts as in use.
    barred: Board,
    placement: Placement,
    /// True while no job is placed in a prism: every job gets scattered nodes.
    scattering: bool,
    chooser: Chooser,
    barred_chooser: Chooser,
    order: Vec<usize>,
    /// Jobs at each router, by router index: (job number, latest end in seconds).
    occupants: Vec<Vec<(u32, u32)>>,
    reservation: Option<Reservation>,
}

/// Returns the indices of the routers with service nodes, drawn at random.
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
    /// Creates the given part of a machine, without the nodes of service routers.
    pub(super) fn new(placement: Placement, part: Part, service: &[usize]) -> Self {
        let frame = Frame::blue_waters(placement == Placement::Strict);
        let mut board = Board::new(frame.clone());
        for cell in service {
            board.retire(*cell, frame.per_router());
        }
        for prism in part.rest() {
            prism.cells(&frame).for_each(|cell| board.retire(cell, frame.per_router()));
            // Jobs of the other part send traffic over the links there, so prisms of this part must avoid them.
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

    /// Sets whether all jobs are scattered, including those that would otherwise get a prism.
    pub(super) fn scatter_all(&mut self, scattering: bool) {
        self.scattering = scattering;
    }

    /// Returns whether a job waits until it gets a prism.
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

    /// Reserves for the first pending job the prism that is free earliest. Among prisms that are free at that time it
    /// is the one that the job would be placed in. None: clears the reservation.
    pub(super) fn reserve(&mut self, head: Option<&Job>, now: u32) {
        self.reservation = head.and_then(|job| self.first_free(job, now));
        self.barred = self.board.clone();
        if let Some(reservation) = self.reservation {
            self.barred.close(&reservation.prism, reservation.from);
        }
        self.barred_chooser.renew();
    }

    /// Returns the prism that becomes free first for a job, with the time at which it is free. None: no prism for the
    /// job ever becomes free.
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

    /// Returns the permitted shapes for a job. None: this placement has no list of shapes.
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

    /// Returns free nodes for a job that would start now and end at `end`. `first`: the reservation is for this job.
    /// None: the job cannot start.
    pub(super) fn place(&mut self, job: &Job, end: u32, first: bool) -> Option<Seat> {
        let late = !first && self.reservation.is_some_and(|reservation| end > reservation.from);
        // As in production: a job that does not need a prism takes one if one is free.
        let needs = self.wants_prism(job);
        let may = self.placement == Placement::ExactScatter && job.nodes > 1 && !self.scattering;
        let tries = needs || may;
        let prism = if tries { self.free_prism(job, end, late) } else { None };
        if needs { prism } else { prism.or_else(|| self.scatter(job, late)) }
    }

    /// Returns a free prism for a job, or None. `late`: the job may not use the reserved prism.
    fn free_prism(&mut self, job: &Job, end: u32, late: bool) -> Option<Seat> {
        let sizes = self.shapes(job);
        let spaced = self.placement == Placement::Fixed;
        let board = if late { &self.barred } else { &self.board };
        let chooser = if late { &mut self.barred_chooser } else { &mut self.chooser };
        let ask = Ask { nodes: job.nodes, geometry: None, end };
        let prism = match sizes {
            None => chooser.prism(board, &ask)?.prism,
            // The smallest sufficient shape, at one of its permitted anchors.
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

    /// Returns the routers of the prism with the greatest bisection for a job, as if the machine were empty.
    pub(super) fn ideal(&self, job: &Job) -> Vec<usize> {
        let shapes = self.chooser.shapes_for(&self.frame, job.nodes, 10);
        let widest = shapes.iter().max_by_key(|shape| (shape.bisection, std::cmp::Reverse(shape.volume)));
        let size = widest.map_or(self.frame.size(), |shape| shape.size);
        let prism = Prism { at: [0; AXES_MAX], size };
        prism.cells(&self.frame).take(job.nodes.div_ceil(self.frame.per_router()) as usize).collect()
    }

    /// Returns the first free nodes along the placement order; None: too few are free. Placements with prisms use
    /// partly occupied routers and columns first. `late`: the job may not use the reserved prism.
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

    /// Returns the earliest time at which `nodes` nodes are free, in seconds, and the number of further nodes that are
    /// free then. `ends`: pairs (end of a running job, its nodes); `free`: nodes that are free now. `u32::MAX`: there
    /// are never enough.
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

    /// Allocates the nodes of `seat` to a job.
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

    /// Frees the nodes of a job that has ended.
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

    /// Returns the numbers of idle nodes: inside jobs' prisms, in the reserved prism, and elsewhere.
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

    /// Returns the use of each router at present, in the order of their indices.
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

/// Returns the first free prism of a shape; None: there is no free one. `spaced`: only at multiples of its size;
/// otherwise at multiples of half its size.
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
    use squall_sim::Seed;

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
