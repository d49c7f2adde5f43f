//! Nodes that are replaced before they fail, spare nodes of partitions, and checks of nodes after faults.

use squall_model::billing::BillingWeights;
use squall_model::config::PartitionConfig;
use squall_model::event::NodeAdmin;

use crate::setup::Setup;
use crate::world::World;
use crate::world::client::Wish;

impl Setup {
    /// Returns the number of spare nodes of the default partition.
    pub(crate) fn spares(&self) -> u32 {
        self.config.partitions.iter().find_map(|partition| partition.spare_nodes).unwrap_or(0)
    }

    /// Keeps nodes free in the default partition, which replace failed ones.
    pub(crate) fn keep_spares(&mut self, count: u32) {
        self.partition().spare_nodes = Some(count);
    }

    /// Has the partition bill so many units for each CPU.
    pub(crate) fn weigh_cpus(&mut self, units: u64) {
        self.partition().tres_billing_weights = BillingWeights::try_from(format!("CPU={units}")).unwrap_or_default();
    }

    /// Returns the first partition; without one it is made.
    fn partition(&mut self) -> &mut PartitionConfig {
        if self.config.partitions.is_empty() {
            self.config.partitions.push(PartitionConfig { default: true, ..PartitionConfig::default() });
        }
        &mut self.config.partitions[0]
    }

    /// Has nodes checked after faults, by a program that fails with this probability, in millionths.
    pub(crate) fn check_after_faults(&mut self, fails: u32) {
        "/check".clone_into(&mut self.config.health.after_fault);
        self.check_fails = fails;
    }
}

impl World {
    /// Now and then replaces nodes that an operator has just drained in the jobs that run there.
    pub(crate) fn replace_ahead(&mut self, nodes: &str, admin: NodeAdmin) {
        let Some(node) = self.nodes.iter().position(|node| node.name == nodes) else { return };
        if admin == NodeAdmin::Drain && self.workload.is_some() && self.chance.chance(500_000) {
            for order in self.judge.orders_on(node) {
                self.wish(Wish::Replace(order, node));
            }
        }
    }
}
