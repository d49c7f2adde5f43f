//! States of a partition: whether it accepts and starts jobs.

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// Whether a partition accepts and starts jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cbor(index_only)]
#[serde(rename_all = "lowercase")]
pub enum PartitionState {
    /// The partition accepts and starts jobs.
    #[default]
    #[serde(alias = "UP")]
    #[n(0)]
    Up,
    /// The partition accepts jobs but does not start them.
    #[serde(alias = "DOWN")]
    #[n(1)]
    Down,
    /// The partition starts jobs but accepts no new ones.
    #[serde(alias = "DRAIN")]
    #[n(2)]
    Drain,
    /// The partition neither accepts nor starts jobs.
    #[serde(alias = "INACTIVE")]
    #[n(3)]
    Inactive,
}
