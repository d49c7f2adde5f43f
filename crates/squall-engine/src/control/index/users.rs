//! `--exclusive=user`: a job shares its nodes only with jobs of the same user. `--exclusive=topo`: it shares its blocks
//! with no other job.
//!
//! Without such a job the queue ignores users, at no cost. The first such job makes the queue distinguish users. A
//! rebuild of the queue when there is no such job ends that.

use std::collections::BTreeMap;

use squall_model::id::{JobId, NodeId};
use squall_model::job::Owner;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_sched::Claim;

use crate::control::index::queue::Queue;
use crate::control::state::State;

/// Returns whether some job that has not ended keeps other users off its nodes, or other jobs off its blocks.
pub(crate) fn keeps_apart(state: &State) -> bool {
    let jobs = state.jobs.iter().filter(|(_, job)| !job.is_ended()).map(|(_, job)| &job.spec);
    let arrays = state.arrays.values().filter(|array| !array.tally.untouched.is_empty()).map(|array| &array.spec);
    jobs.chain(arrays).any(|spec| spec.keeps_others_off() || spec.keeps_blocks())
}

impl Queue {
    /// Returns the uid of a job's user, if the queue distinguishes users; otherwise None.
    pub(crate) fn user(&self, owner: &Owner) -> Option<u32> {
        self.keeps_apart.then_some(owner.uid)
    }

    /// Records the user, nodes and expected end of each running job in `claims`.
    pub(crate) fn look_at_users(&mut self, state: &State) {
        self.claims.clear();
        if !self.keeps_apart {
            return;
        }
        let mut held: BTreeMap<JobId, NodeSet> = BTreeMap::new();
        for (at, node) in state.nodes.iter().enumerate() {
            for job in &node.jobs {
                held.entry(*job).or_default().insert(NodeId(at as u32));
            }
        }
        let claims = held.into_iter().filter_map(|(id, nodes)| {
            let job = state.jobs.get(&id)?;
            let until = self.end_of.get(&id).copied().unwrap_or(Time(u64::MAX));
            let (user, alone) = (job.owner.uid, job.spec.keeps_others_off());
            let blocks = job.spec.keeps_blocks();
            Some(Claim { job: id, user, alone, blocks, nodes, from: Time(0), until })
        });
        self.claims = claims.collect();
    }
}
