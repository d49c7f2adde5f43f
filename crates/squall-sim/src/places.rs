//! Spare nodes of partitions, and checks of nodes after faults.

use squall_model::config::PartitionConfig;

use crate::world::Setup;

impl Setup {
    /// Returns the number of spare nodes of the default partition.
    pub(crate) fn spares(&self) -> u32 {
        self.config.partitions.iter().find_map(|partition| partition.spare_nodes).unwrap_or(0)
    }

    /// Keeps nodes free in the default partition, which replace failed ones.
    pub(crate) fn keep_spares(&mut self, count: u32) {
        if self.config.partitions.is_empty() {
            self.config.partitions.push(PartitionConfig { default: true, ..PartitionConfig::default() });
        }
        self.config.partitions[0].spare_nodes = Some(count);
    }

    /// Has nodes checked after faults, by a program that fails with this probability, in millionths.
    pub(crate) fn check_after_faults(&mut self, fails: u32) {
        "/check".clone_into(&mut self.config.health.after_fault);
        self.check_fails = fails;
    }
}
