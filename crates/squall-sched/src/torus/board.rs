//! Usage of a frame: usable and free nodes of each cell, prisms that are closed to other jobs, and when they end.

use super::frame::{Frame, Prism};
use super::sums::Sums;

/// A frame (the axes and extents of a torus) with the usage of its cells (routers).
#[derive(Clone, Debug)]
pub struct Board {
    frame: Frame,
    /// For each cell: number of its nodes that are neither down nor retired.
    usable: Vec<u32>,
    /// For each cell: number of its usable nodes that are free.
    free: Vec<u32>,
    /// For each cell: number of prisms closed to other jobs that contain it.
    closed: Vec<u32>,
    /// For each cell: time at which it becomes free, seconds; 0: it is free now.
    ends: Vec<u32>,
    /// A bit for each open cell: all its usable nodes are free, and no closed prism contains it.
    open: Vec<u64>,
}

/// Time, in seconds, that stands for the end of usage without end.
pub(crate) const NEVER: u32 = u32::MAX;

impl Board {
    /// Creates the usage of a frame on which all nodes are usable and free.
    pub fn new(frame: Frame) -> Self {
        let cells = frame.cells();
        let mask = if frame.last() == 64 { u64::MAX } else { (1 << frame.last()) - 1 };
        let open = vec![mask; frame.columns()];
        let nodes = vec![frame.per_router(); cells];
        Self { usable: nodes.clone(), free: nodes, closed: vec![0; cells], ends: vec![0; cells], open, frame }
    }
    /// Returns the frame, which has the torus's axes and extents.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }
    /// Returns the open cells, a bit for each cell: the input of [`super::Fits::anchors`].
    pub fn open(&self) -> &[u64] {
        &self.open
    }
    /// Returns whether a prism may contain the cell: all its usable nodes are free, and no closed prism contains it.
    pub fn is_open(&self, cell: usize) -> bool {
        self.free[cell] == self.usable[cell] && self.closed[cell] == 0
    }
    /// Returns the number of usable nodes of a cell.
    pub fn usable(&self, cell: usize) -> u32 {
        self.usable[cell]
    }
    /// Returns the number of free nodes of a cell.
    pub fn free(&self, cell: usize) -> u32 {
        self.free[cell]
    }
    /// Returns whether a closed prism contains the cell.
    pub fn is_closed(&self, cell: usize) -> bool {
        self.closed[cell] > 0
    }
    /// Returns the time at which a cell becomes free, seconds; 0: it is free now.
    pub fn end(&self, cell: usize) -> u32 {
        self.ends[cell]
    }
    /// Returns the number of usable nodes of all cells.
    pub fn usable_nodes(&self) -> u64 {
        self.usable.iter().map(|n| u64::from(*n)).sum()
    }
    /// Returns the number of free nodes of all cells.
    pub fn free_nodes(&self) -> u64 {
        self.free.iter().map(|n| u64::from(*n)).sum()
    }
    /// Takes free nodes of a cell out of service.
    pub fn retire(&mut self, cell: usize, nodes: u32) {
        self.usable[cell] = self.usable[cell].saturating_sub(nodes);
        self.free[cell] = self.free[cell].min(self.usable[cell]);
        self.look(cell);
    }
    /// Marks `nodes` free nodes of a cell as used until `end`, seconds.
    pub fn take(&mut self, cell: usize, nodes: u32, end: u32) {
        self.free[cell] = self.free[cell].saturating_sub(nodes);
        self.ends[cell] = self.ends[cell].max(end);
        self.look(cell);
    }
    /// Marks `nodes` nodes of a cell as free again. `end`: time at which the remaining usage of the cell ends, seconds.
    pub fn give(&mut self, cell: usize, nodes: u32, end: u32) {
        self.free[cell] = (self.free[cell] + nodes).min(self.usable[cell]);
        self.ends[cell] = end;
        self.look(cell);
    }
    /// Closes a prism to other jobs until `end`, seconds.
    pub fn close(&mut self, prism: &Prism, end: u32) {
        for index in 0..prism.volume() {
            let cell = self.frame.cell(&prism.place(index));
            self.closed[cell] += 1;
            self.ends[cell] = self.ends[cell].max(end);
            self.look(cell);
        }
    }
    /// Reopens the prism of a job to other jobs. The job has ended, and its nodes are all free again.
    pub fn reopen(&mut self, prism: &Prism) {
        for index in 0..prism.volume() {
            let cell = self.frame.cell(&prism.place(index));
            self.closed[cell] = self.closed[cell].saturating_sub(1);
            if self.closed[cell] == 0 && self.free[cell] == self.usable[cell] {
                self.ends[cell] = 0;
            }
            self.look(cell);
        }
    }
    /// Returns the usage as it will be at `time`, seconds, by the known ends and without further starts.
    #[must_use]
    pub fn at(&self, time: u32) -> Self {
        let mut board = self.clone();
        for cell in (0..self.ends.len()).filter(|cell| !self.is_open(*cell) && self.ends[*cell] <= time) {
            (board.free[cell], board.closed[cell], board.ends[cell]) = (self.usable[cell], 0, 0);
            board.look(cell);
        }
        board
    }
    fn look(&mut self, cell: usize) {
        let last = self.frame.last() as usize;
        let (word, bit) = (cell / last, 1_u64 << (cell % last));
        if self.is_open(cell) { self.open[word] |= bit } else { self.open[word] &= !bit }
    }
    /// Fills a summed-area table with the number of nodes that each cell has less than a full router.
    pub(crate) fn lacking(&self, sums: &mut Sums) {
        let full = self.frame.per_router();
        sums.build(&self.frame, self.usable.iter().map(|usable| (full - usable) as i32));
    }
    /// Fills a summed-area table with 1 for each cell that is not open, and 0 for the others.
    pub(crate) fn busy(&self, sums: &mut Sums) {
        let last = self.frame.last();
        let bits = self.open.iter().flat_map(|word| (0..last).map(move |bit| (!word >> bit & 1) as i32));
        sums.build(&self.frame, bits);
    }
}
