//! Resources of the cluster beside its nodes, and those of nodes that no job is given.

use minicbor::{Decode, Encode};

/// A license, and how much of it is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct LicenseInfo {
    /// Name of the license.
    #[n(0)]
    pub name: String,
    /// Number of this license that the cluster has.
    #[n(1)]
    pub total: u32,
    /// Number of this license held by jobs.
    #[n(2)]
    pub used: u32,
    /// Number of this license kept by reservations.
    #[n(3)]
    pub reserved: u32,
}

impl LicenseInfo {
    /// Returns the number of this license that no job holds.
    pub fn free(&self) -> u32 {
        self.total.saturating_sub(self.used)
    }
}

/// What of a node is kept for the system, and given to no job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct SpecResources {
    /// Number of cores.
    #[n(0)]
    pub cores: u32,
    /// Number of CPUs that these cores have.
    #[n(1)]
    pub cpus: u32,
    /// List of CPUs in the configuration that names the cores. Empty: their number is given.
    #[n(2)]
    pub cpu_list: String,
    /// Memory, MiB.
    #[n(3)]
    pub memory_mb: u64,
}
