//! Clients that wait for an answer about a job. Soft state, lost with the connection or the controller.

use std::collections::BTreeMap;

use squall_model::checkpoint::{CheckpointOrder, Made};
use squall_model::id::JobId;
use squall_model::set::NodeSet;

use crate::control::port::CallerId;

/// The clients that wait for jobs or own allocations.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// Connections of the clients that wait for the end of a job or array, by its id.
    pub(crate) ends: BTreeMap<JobId, Vec<CallerId>>,
    /// Clients that own an allocation, by its job.
    pub(crate) owners: BTreeMap<JobId, Owning>,
    /// Orders to checkpoint jobs that nodes have not answered, by job.
    pub(crate) checkpoints: BTreeMap<JobId, Ordered>,
    /// Nodes that have restored their part of a job and wait for the others, by job.
    pub(crate) restored: BTreeMap<JobId, NodeSet>,
    /// Jobs that each connection waits for or owns.
    by_caller: BTreeMap<CallerId, Vec<JobId>>,
}

/// An order to the nodes of a job to checkpoint it, and the client that waits for it.
#[derive(Debug)]
pub(crate) struct Ordered {
    /// The connection of the client that waits. None: the controller gave the order by itself.
    pub(crate) caller: Option<CallerId>,
    /// Whether the job is preempted, so that it leaves its node in one way or another when the answer comes.
    pub(crate) preempts: bool,
    /// The nodes that have not answered.
    pub(crate) left: NodeSet,
    /// The order.
    pub(crate) order: CheckpointOrder,
    /// What the others have made, together. None: nothing.
    pub(crate) made: Option<Made>,
    /// How often the parts of all nodes were made before and did not fit together.
    pub(crate) tries: u32,
}

/// The client that owns an allocation.
#[derive(Debug)]
pub(crate) struct Owning {
    /// The client's connection.
    pub(crate) caller: CallerId,
    /// Whether the client was sent the answer that the allocation runs.
    pub(crate) told: bool,
}

impl Waits {
    /// Records that a client waits for the end of a job.
    pub(crate) fn await_end(&mut self, job: JobId, caller: CallerId) {
        self.ends.entry(job).or_default().push(caller);
        self.by_caller.entry(caller).or_default().push(job);
    }
    /// Records that a client owns an allocation.
    pub(crate) fn own(&mut self, job: JobId, caller: CallerId) {
        self.owners.insert(job, Owning { caller, told: false });
        self.by_caller.entry(caller).or_default().push(job);
    }
    /// Returns whether a job is preempted and its node was ordered to checkpoint it.
    pub(crate) fn preempts(&self, job: JobId) -> bool {
        self.checkpoints.get(&job).is_some_and(|ordered| ordered.preempts)
    }
    /// Records that no client owns an allocation any more. Returns the client that owned it, if there was one.
    pub(crate) fn disown(&mut self, job: JobId) -> Option<Owning> {
        self.owners.remove(&job)
    }
    /// Removes a connection that has ended. Returns the allocations that its client owned.
    pub(crate) fn hangup(&mut self, caller: CallerId) -> Vec<JobId> {
        let mut owned = Vec::new();
        for job in self.by_caller.remove(&caller).unwrap_or_default() {
            if let Some(callers) = self.ends.get_mut(&job) {
                callers.retain(|waiting| *waiting != caller);
                if callers.is_empty() {
                    self.ends.remove(&job);
                }
            }
            if self.owners.get(&job).is_some_and(|owning| owning.caller == caller) {
                self.owners.remove(&job);
                owned.push(job);
            }
        }
        owned
    }
}
