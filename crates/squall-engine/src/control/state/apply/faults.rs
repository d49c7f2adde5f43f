//! Faults of nodes.

use squall_model::fault::{self, Fault, NodeFault};
use squall_model::id::{JobId, NodeId};
use squall_model::set::NodeSet;
use squall_model::time::Time;

use crate::control::state::State;

impl State {
    pub(super) fn node_fault(&mut self, time: Time, found: NodeFault) {
        // because a journal of another version may name a node that is not counted here
        let Some(node) = self.nodes.get_mut(found.node.index()) else { return };
        let before = jobs_of(&node.faults);
        fault::note(&mut node.faults, time, found.kind, found.job);
        let after = jobs_of(&node.faults);
        for job in before.iter().filter(|job| !after.contains(job)) {
            if let Some(nodes) = self.index.avoid.get_mut(job) {
                nodes.remove(found.node);
                if nodes.is_empty() {
                    self.index.avoid.remove(job);
                }
            }
        }
        self.count_faults_of(found.node, &after);
    }

    /// Finds which nodes have faults, and which jobs avoid them.
    pub(in crate::control::state) fn count_faults(&mut self) {
        self.index.faulty = NodeSet::new();
        self.index.avoid.clear();
        for at in 0..self.nodes.len() {
            if !self.nodes[at].faults.is_empty() {
                let jobs = jobs_of(&self.nodes[at].faults);
                self.count_faults_of(NodeId(at as u32), &jobs);
            }
        }
    }

    fn count_faults_of(&mut self, node: NodeId, jobs: &[JobId]) {
        self.index.faulty.insert(node);
        for job in jobs {
            self.index.avoid.entry(*job).or_default().insert(node);
        }
    }
}

/// Returns the jobs that suffered from faults.
fn jobs_of(faults: &[Fault]) -> Vec<JobId> {
    faults.iter().flat_map(|fault| fault.jobs.iter().copied()).collect()
}
