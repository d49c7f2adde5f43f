//! The network of the nodes, and how the distribution tree of node daemons follows it.

use serde::{Deserialize, Serialize};

/// How the distribution tree of node daemons is formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RoutePolicy {
    /// The tree follows the order of nodes in the configuration; each node has up to `tree_width` children.
    #[default]
    #[serde(rename = "route/default")]
    FanOut,
    /// The tree follows `switches`: reports of the nodes at one switch are combined there.
    #[serde(rename = "route/topology")]
    Topology,
}

/// A file that describes the network and the positions of nodes in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TopologyFile {
    /// Name of the topology file. Empty: there is none.
    pub name: String,
    /// Content of the topology file.
    pub text: String,
}

/// A leaf switch of the network, with its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwitchConfig {
    /// Name of the switch.
    #[serde(alias = "SwitchName")]
    pub name: String,
    /// Nodes connected to the switch, as a host list.
    #[serde(alias = "Nodes")]
    pub nodes: String,
}
