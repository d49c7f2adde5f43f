//! Callers to whom an answer is owed: soft state, lost with the connection or the controller.

use std::collections::BTreeMap;

use squall_model::id::JobId;

use crate::control::port::CallerId;

/// Who waits for what.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// For the end of a job or array.
    pub(crate) ends: BTreeMap<JobId, Vec<CallerId>>,
    /// The clients that allocations belong to.
    pub(crate) owners: BTreeMap<JobId, Owning>,
    /// What each connection waits for or owns.
    by_caller: BTreeMap<CallerId, Vec<JobId>>,
}

/// The client that an allocation belongs to.
#[derive(Debug)]
pub(crate) struct Owning {
    /// Its connection.
    pub(crate) caller: CallerId,
    /// It was told that the allocation runs.
    pub(crate) told: bool,
}

impl Waits {
    /// A caller waits for the end of a job.
    pub(crate) fn await_end(&mut self, job: JobId, caller: CallerId) {
        self.ends.entry(job).or_default().push(caller);
        self.by_caller.entry(caller).or_default().push(job);
    }
    /// An allocation belongs to a caller from now on.
    pub(crate) fn own(&mut self, job: JobId, caller: CallerId) {
        self.owners.insert(job, Owning { caller, told: false });
        self.by_caller.entry(caller).or_default().push(job);
    }
    /// An allocation belongs to nobody any more.
    pub(crate) fn disown(&mut self, job: JobId) -> Option<Owning> {
        self.owners.remove(&job)
    }
    /// A connection has ended: nobody waits there any more. Returns the allocations that it owned.
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
