//! Nodes that have less hardware than the configuration states.

use super::NodeConfig;
use crate::gres;
use crate::resource::Hardware;

/// First word of the reason for which a node is drained if it has less hardware than configured.
pub const LOW: &str = "Low ";

/// A value of hardware (as CPUs or memory) of which a node has less than the configuration states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// Key of the value in the configuration, as `cpus`.
    pub key: &'static str,
    /// The value in the configuration.
    pub configured: u64,
    /// The value that the node reported.
    pub found: u64,
    /// Reason for which the node is drained, in Slurm's words.
    pub reason: String,
}

/// Name of the resource of which devices are found.
const GPU: &str = "gpu";

impl NodeConfig {
    /// Returns the first value of which `has`, a node's hardware, is less than this entry states. None: the hardware is
    /// enough, or the entry needn't match real hardware (`force`, `emulated`).
    pub fn lack(&self, has: &Hardware) -> Option<Lack> {
        if self.force || self.emulated {
            return None;
        }
        let cores = "Low socket*core*thread count";
        let keys = [
            ("sockets", self.sockets, has.sockets, cores),
            ("cores_per_socket", self.cores_per_socket, has.cores_per_socket, cores),
            ("threads_per_core", self.threads_per_core, has.threads_per_core, cores),
            ("cpus", self.cpus, has.cpus, "Low socket*core*thread count, Low CPUs"),
        ];
        let low = keys.into_iter().find_map(|(key, configured, found, reason)| {
            let (configured, found) = (u64::from(configured?), u64::from(found));
            (found < configured).then(|| Lack { key, configured, found, reason: reason.to_owned() })
        });
        let low = low.or_else(|| self.lacks_devices(has));
        let memory = self.memory_mb.filter(|memory| has.memory_mb < *memory);
        low.or_else(|| {
            let (configured, found) = (memory?, has.memory_mb);
            let reason = format!("Low RealMemory (reported:{found} < 100.00% of configured:{configured})");
            Some(Lack { key: "memory_mb", configured, found, reason })
        })
    }

    /// Returns a resource of which the node has found fewer devices than this entry states. None: it has enough, or does
    /// not look for any.
    fn lacks_devices(&self, has: &Hardware) -> Option<Lack> {
        let found = has.devices.as_ref()?.iter().filter(|device| device.name == GPU).count() as u64;
        let counts = gres::parse(&self.gres).unwrap_or_default().into_iter().filter(|count| count.name == GPU);
        let configured = counts.map(|count| u64::from(count.count)).sum();
        let reason = format!("Low gres/{GPU} count (reported:{found} < configured:{configured})");
        (found < configured).then_some(Lack { key: "gres", configured, found, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::{Hardware, NodeConfig};
    use crate::found::FoundDevice;

    // faults.md D5
    #[test]
    fn d5_less_than_configured_has_slurms_reason_unless_forced() {
        let has = Hardware {
            cpus: 2,
            sockets: 1,
            cores_per_socket: 2,
            threads_per_core: 1,
            memory_mb: 900,
            ..Hardware::default()
        };
        let lack = |node: NodeConfig| node.lack(&has).map(|lack| (lack.key, lack.reason));
        let cpus = NodeConfig { cpus: Some(8), ..NodeConfig::default() };
        assert_eq!(lack(NodeConfig { force: true, ..cpus.clone() }), None);
        assert_eq!(lack(cpus), Some(("cpus", "Low socket*core*thread count, Low CPUs".to_owned())));
        let memory = NodeConfig { cpus: Some(1), memory_mb: Some(1000), ..NodeConfig::default() };
        assert_eq!(
            lack(memory),
            Some(("memory_mb", "Low RealMemory (reported:900 < 100.00% of configured:1000)".to_owned()))
        );
        assert_eq!(lack(NodeConfig { cpus: Some(2), memory_mb: Some(900), ..NodeConfig::default() }), None);
        let node = NodeConfig { gres: "gpu:a:1,gpu:2,fpga:9".into(), ..NodeConfig::default() };
        assert_eq!(node.lack(&has), None, "it does not look");
        let found = |count| Hardware { devices: Some(vec![FoundDevice::gpu(); count]), ..has.clone() };
        assert_eq!(node.lack(&found(3)), None);
        assert_eq!(node.lack(&found(1)).unwrap().reason, "Low gres/gpu count (reported:1 < configured:3)");
    }
}
