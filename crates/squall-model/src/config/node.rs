//! Nodes as the configuration describes them.

use serde::{Deserialize, Serialize};

use super::local::Local;
use super::words;

/// Nodes of the same kind. Unset values are detected. If a machine has less than is set, `squall up` refuses to start,
/// and a node that registers is drained, unless `force` is set (for trials: `cpus = 8` with `force = true` on a
/// laptop).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeConfig {
    /// Names of the nodes, as a host list.
    #[serde(alias = "NodeName")]
    pub name: String,
    /// CPUs of each node on which jobs may run. None: detected.
    #[serde(alias = "CPUs")]
    pub cpus: Option<u32>,
    /// Sockets of each node. None: detected.
    #[serde(alias = "Sockets")]
    pub sockets: Option<u32>,
    /// Cores per socket. None: detected.
    #[serde(alias = "CoresPerSocket")]
    pub cores_per_socket: Option<u32>,
    /// Threads per core. None: detected.
    #[serde(alias = "ThreadsPerCore")]
    pub threads_per_core: Option<u32>,
    /// Memory of each node, MiB. None: detected.
    #[serde(alias = "RealMemory")]
    pub memory_mb: Option<u64>,
    /// Number of cores of each node that are kept for the system, and given to no job. Written only if set, as are
    /// `cpu_spec_list` and `mem_spec_limit_mb`, so that earlier releases can read the configuration.
    #[serde(alias = "CoreSpecCount", skip_serializing_if = "Option::is_none")]
    pub core_spec_count: Option<u32>,
    /// CPUs of which the cores are kept for the system, instead of `core_spec_count`, as `0-3,16`.
    #[serde(alias = "CpuSpecList", alias = "CPUSpecList", skip_serializing_if = "String::is_empty")]
    pub cpu_spec_list: String,
    /// Memory of each node that is kept for the system, MiB. Default 0.
    #[serde(alias = "MemSpecLimit", skip_serializing_if = "words::is_zero")]
    pub mem_spec_limit_mb: u64,
    /// Scratch space of each node, MiB. None: detected. Written only if set.
    #[serde(alias = "TmpDisk", skip_serializing_if = "Option::is_none")]
    pub tmp_disk_mb: Option<u64>,
    /// Names of features that the nodes have, for `--constraint`.
    #[serde(alias = "Feature", alias = "Features", deserialize_with = "words::names")]
    pub features: Vec<String>,
    /// Weight of the nodes. Nodes of lower weight are allocated first. None: 1.
    #[serde(alias = "Weight")]
    pub weight: Option<u32>,
    /// Whether to use the values as they are, even if the machine has less.
    pub force: bool,
    /// Generic resources of each node, as `gpu:a100:4`.
    #[serde(alias = "Gres")]
    pub gres: String,
    /// Whether the nodes are emulated: many nodes in one process, with timers instead of tasks.
    pub emulated: bool,
    /// Whether each node runs on a machine of its own. This host does not start such nodes; they register by
    /// themselves.
    pub remote: Local<bool>,
    /// What the nodes are before they register. Written only if it is not the usual, so that earlier releases can read
    /// the configuration.
    #[serde(alias = "State", skip_serializing_if = "NodeStart::is_usual")]
    pub state: NodeStart,
}

/// What a node is before it registers for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeStart {
    /// A node of the cluster that is shown as unknown, and for which jobs wait.
    #[default]
    #[serde(rename = "UNKNOWN", alias = "unknown")]
    Unknown,
    /// A node that may join some day: it is not shown, and no job can wait for it.
    #[serde(rename = "FUTURE", alias = "future")]
    Future,
    /// A node that is powered down until a job needs it, and again when it is idle. This host does not start it.
    #[serde(rename = "CLOUD", alias = "cloud")]
    Cloud,
}

impl NodeConfig {
    /// Returns whether `squall up` starts a daemon of its own for each of these nodes, if they are on its machine.
    pub fn starts_here(&self) -> bool {
        !self.emulated && !self.remote.0 && self.state == NodeStart::Unknown
    }
}

impl NodeStart {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    fn is_usual(&self) -> bool {
        *self == Self::Unknown
    }
}
