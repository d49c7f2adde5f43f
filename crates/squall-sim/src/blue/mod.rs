//! Blue Waters in the small: a synthetic workload on its torus under different placements, with what applications lose
//! to others' traffic, so that utilisation and what users get of it can be told apart.

mod course;
mod machine;
mod run;
mod traffic;
mod workload;

pub use course::{Act, Course, course, torus};
pub use run::{Outcome, Spot, run};

/// Routers along x, y and z.
pub const MACHINE: [u32; 3] = [24, 24, 24];

/// How jobs are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// First free nodes along the default list of ALPS: slabs of 4 in x.
    Default,
    /// First free nodes along slabs of so many in y.
    Snake(u32),
    /// First free nodes along a Hilbert curve.
    Hilbert,
    /// The first free of a fixed list of overlapping prisms.
    Nodesets,
    /// Fixed shapes at anchors that are a shape apart, as Slurm's torus3d.
    Fixed,
    /// Any legal prism for every job of more than a node, by the talk's rule (less than half a ring).
    Strict,
    /// Any legal prism, by the exact rule.
    Exact,
    /// The same for sensitive jobs; the others are scattered where they find none.
    ExactScatter,
}

impl Placement {
    /// All, as they are compared.
    pub const ALL: [Self; 9] = [
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
    /// Its name in tables.
    pub fn name(self) -> String {
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
    /// Whether larger jobs get prisms.
    fn is_prisms(self) -> bool {
        !matches!(self, Self::Default | Self::Snake(_) | Self::Hilbert)
    }
}

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How jobs are placed.
    pub placement: Placement,
    /// The seed of workload and holes.
    pub seed: u64,
    /// Jobs that wait at any time.
    pub backlog: usize,
    /// Seconds before anything counts.
    pub warm_up_s: u32,
    /// Seconds that count.
    pub window_s: u32,
    /// Most jobs run equally long, as in the talk's test; otherwise hardly two do.
    pub equal_runs: bool,
    /// A block of 15 x 6 x 24 routers has nodes with GPUs: jobs ask for these or for the others.
    pub gpu_block: bool,
    /// MILC exchanges halos in four dimensions, Changa with anybody; otherwise both in three.
    pub patterns: bool,
    /// In the first hour all jobs are scattered, so that prisms find the machine in pieces.
    pub fragmented: bool,
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
