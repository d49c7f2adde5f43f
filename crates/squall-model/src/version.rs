//! Version of a cluster: which additions to events and messages its daemons may use.

use std::fmt;

use minicbor::{Decode, Encode};

/// Version of a cluster, raised by an operator when all daemons are of a release that can work with it. It is never
/// lowered. What an older release can't read or would misread is used only from a certain version on (see
/// `docs/decisions/015-cluster-version.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub struct ClusterVersion(#[n(0)] pub u16);

impl ClusterVersion {
    /// The version of a cluster that no operator has raised, and the one of releases that announce none.
    pub const FIRST: Self = Self(1);
    /// From this version on, scripts and environments are encrypted for the node that runs them. Earlier nodes do not
    /// know [`crate::wire::fabric::Closed`].
    pub const SCRIPTS_ENCRYPTED: Self = Self(2);
    /// The newest version that this release can work with.
    pub const OWN: Self = Self(3);
    /// The version from which on jobs wait for programs of the controller's host, and nodes reboot by order.
    pub const PROGRAMS: Self = Self(2);
    /// From this version on, every node marks the first message of a connection.
    pub const MARKED: Self = Self(2);
    /// The version from which on the controllers' keys can be rotated. Earlier nodes do not know
    /// [`crate::wire::node::Down::Keys`].
    pub const KEYS_ROTATE: Self = Self(2);
    /// The version from which on jobs have node fences. Earlier nodes do not end them.
    pub const NODE_FENCES: Self = Self(3);
    /// The version from which on operators create and remove nodes.
    pub const NODES_COME_AND_GO: Self = Self(2);
    /// The version from which on nodes of running jobs are replaced, and jobs have spare nodes.
    pub const NODES_REPLACED: Self = Self(3);
    /// The version from which on faults of nodes are recorded, and nodes are checked after them.
    pub const NODE_FAULTS: Self = Self(3);
    /// The version from which on partitions bill by weights. Earlier controllers do not know
    /// [`crate::event::Event::JobBilled`], nor limits on billing.
    pub const BILLING: Self = Self(3);
    /// The version from which on jobs are checkpointed. Earlier nodes do not know
    /// [`crate::wire::node::Down::Checkpoint`].
    pub const CHECKPOINTS: Self = Self(3);
}

impl Default for ClusterVersion {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for ClusterVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Error: a daemon is older than the version of its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the version of the cluster is {cluster}, and this controller can work with version {} at most: install the release that \
     the other controllers have, and start it again",
    ClusterVersion::OWN
)]
pub struct TooOld {
    /// Version of the cluster.
    pub cluster: ClusterVersion,
}
