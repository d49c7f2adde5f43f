//! Callers to whom an answer is owed: soft state, lost with the connection or the controller.

use std::collections::BTreeMap;

use squall_model::id::JobId;
use squall_model::time::Time;

use super::CallerId;

/// Who waits for what.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// For the end of a job or array.
    pub(crate) ends: BTreeMap<JobId, Vec<CallerId>>,
    /// For the start of an allocation, and its owner from then on.
    pub(crate) owners: BTreeMap<JobId, Owning>,
    /// The allocations of a connection.
    pub(crate) owned: BTreeMap<CallerId, Vec<JobId>>,
}

/// The client that an allocation belongs to.
#[derive(Debug)]
pub(crate) struct Owning {
    /// Its connection.
    pub(crate) caller: CallerId,
    /// It was told that the allocation runs.
    pub(crate) told: bool,
    /// Give up if it has not started by then.
    pub(crate) until: Option<Time>,
}
