//! The controllers of a cluster that has several, as `scontrol show controllers` shows them.

use minicbor::{Decode, Encode};

use crate::time::Time;
use crate::version::ClusterVersion;

/// What is known of one of several controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ControllerInfo {
    /// Name of the controller.
    #[n(0)]
    pub name: String,
    /// Where other machines reach it, `HOST:PORT`.
    #[n(1)]
    pub address: String,
    /// What it does at the moment.
    #[n(2)]
    pub role: ControllerRole,
    /// Since when it does that, by the wall clock. None: it does not run, as far as is known.
    #[n(3)]
    pub since: Option<Time>,
    /// Number of the last record of the log that its state has. None: not known.
    #[n(4)]
    pub applied: Option<u64>,
    /// Number of the last record of the log that it holds durably. None: not known.
    #[n(5)]
    pub durable: Option<u64>,
    /// Number of records that its state lacks. None: not known.
    #[n(6)]
    pub behind: Option<u64>,
    /// Version of the program. None: not known.
    #[n(7)]
    pub version: Option<String>,
    /// The newest version of a cluster that it can work with. None: not known.
    #[n(8)]
    pub speaks: Option<ClusterVersion>,
}

/// What one of several controllers does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum ControllerRole {
    /// It does not run, or can't be reached.
    #[default]
    #[n(0)]
    Down,
    /// It leads.
    #[n(1)]
    Leader,
    /// It follows, and can take over.
    #[n(2)]
    Standby,
    /// It follows, but its state is not complete yet: it can't take over.
    #[n(3)]
    Joining,
}
