//! Small model of Blue Waters: a synthetic workload on its torus under different placements. It measures utilisation
//! and the run time that applications lose to other jobs' traffic, and reports them separately.

mod course;
mod machine;
mod run;
mod traffic;
mod workload;

pub(crate) use course::{Act, Course, course, torus};
pub(crate) use run::{Outcome, Spot, run};

/// Routers along x, y and z of the simulated machine.
pub(crate) const MACHINE: [u32; 3] = [24, 24, 24];

/// Algorithm by which jobs are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// First free nodes along the default list of ALPS: slabs of 4 in x.
    Default,
    /// First free nodes along slabs of this thickness in y, in routers.
    Snake(u32),
    /// First free nodes along a Hilbert curve.
    Hilbert,
    /// First free prism of a fixed list of overlapping prisms.
    Nodesets,
    /// Fixed shapes at positions that are multiples of the shape's size, as in Slurm's torus3d plugin.
    Fixed,
    /// Any legal prism (one that its routes never leave) for every job of more than a node, by the strict rule of the
    /// talk on Blue Waters: extents are less than half a ring.
    Strict,
    /// Any legal prism (one that its routes never leave) for every job of more than a node, by the exact routing rule.
    Exact,
    /// Any legal prism by the exact rule for jobs that other jobs' traffic slows down; other jobs are scattered when no
    /// prism is free.
    ExactScatter,
}

impl Placement {
    /// All placements, in the order of the comparison tables.
    pub(crate) const ALL: [Self; 9] = [
        Self::Default,
        Self::Snake(2),
        Self::Snake(4),
        Self::Hilbert,
        Self::Nodesets,
        Self::Fixed,
        Self::Strict,
        Self::Exact,
        Self::ExactScatter,
    ];
    /// Returns the placement's name for tables.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Default => "default order".into(),
            Self::Snake(t) => format!("{t}Y order"),
            Self::Hilbert => "Hilbert order".into(),
            Self::Nodesets => "nodesets".into(),
            Self::Fixed => "fixed shapes (torus3d-like)".into(),
            Self::Strict => "prisms, strict rule".into(),
            Self::Exact => "prisms, exact rule".into(),
            Self::ExactScatter => "prisms, exact, insensitive scattered".into(),
        }
    }
    /// Returns whether larger jobs are placed in prisms.
    fn is_prisms(self) -> bool {
        !matches!(self, Self::Default | Self::Snake(_) | Self::Hilbert)
    }
}

/// Settings of one simulation of Blue Waters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Algorithm by which jobs are placed.
    pub(crate) placement: Placement,
    /// Seed of the workload and of the positions of service routers.
    pub(crate) seed: u64,
    /// Number of pending jobs that the workload keeps in the queue.
    pub(crate) backlog: usize,
    /// Warm-up before measurements begin, seconds.
    pub(crate) warm_up_s: u32,
    /// Length of the measured time, seconds.
    pub(crate) window_s: u32,
    /// True: most jobs run equally long, as in the test of the talk on Blue Waters. False: run times vary.
    pub(crate) equal_runs: bool,
    /// Whether a block of 15 x 6 x 24 routers has nodes with GPUs. If so, each job requests either these nodes or the
    /// others.
    pub(crate) gpu_block: bool,
    /// True: MILC exchanges halos in four dimensions and Changa with random partners. False: both exchange halos in
    /// three dimensions.
    pub(crate) patterns: bool,
    /// Whether all jobs are scattered in the first hour, so that the machine is fragmented when prisms are first
    /// requested.
    pub(crate) fragmented: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            placement: Placement::Exact,
            seed: 1,
            backlog: 300,
            warm_up_s: 2 * 3600,
            window_s: 8 * 3600,
            equal_runs: false,
            gpu_block: false,
            patterns: false,
            fragmented: false,
        }
    }
}

#[cfg(test)]
mod tests;
