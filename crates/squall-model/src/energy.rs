//! By what a node measures the energy that it uses.

use minicbor::{Decode, Encode};

/// By what a node measures the energy that it uses, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct EnergySource {
    /// File that counts joules. Empty: the counters of its processors and memory (RAPL).
    #[n(0)]
    pub file: String,
    /// Seconds between two readings, at least 1.
    #[n(1)]
    pub every_s: u32,
}
