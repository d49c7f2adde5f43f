//! Checks of nodes' faults: what a job lost there is recorded, so that it gets another node.

use squall_model::event::{Event, Record};
use squall_model::id::JobId;
use squall_model::job::{EndState, Outcome};
use squall_model::version::ClusterVersion;

use super::Judge;
use crate::coverage::Phase;

/// How the reason of a job's end begins if its node was at fault.
const LOSSES: [&str; 3] = ["node did not respond: ", "node fence passed: ", "node restarted: "];

impl Judge {
    /// Checks a record that became durable, before its events are counted: a job that ran and ends because its node was
    /// at fault leaves a fault of the node.
    pub(super) fn check_faults(&mut self, record: &Record) {
        if self.version() < ClusterVersion::NODE_FAULTS {
            return;
        }
        let is_recorded = |id: &JobId| {
            record.events.iter().any(|event| matches!(event, Event::NodeFault(fault) if fault.job == Some(*id)))
        };
        if let Some(id) = self.lost_runs(record).into_iter().find(|id| !is_recorded(id)) {
            self.violate("a node that costs a job has a fault", format!("job {id}"));
        }
    }

    /// Returns the jobs that ran and end because their node was at fault.
    pub(super) fn lost_runs(&self, record: &Record) -> Vec<JobId> {
        let lost = |event: &Event| match event {
            Event::JobEnding { id, outcome, .. } => (is_loss(outcome) && self.ran(*id)).then_some(*id),
            _ => None,
        };
        record.events.iter().filter_map(lost).collect()
    }

    /// Returns whether the start of a job is durable, and its end is not. Components of a heterogeneous job end with the
    /// one that lost its node.
    fn ran(&self, id: JobId) -> bool {
        let file = self.files.get(&id).filter(|_| self.het_of(id).is_none());
        file.is_some_and(|file| {
            matches!(file.phase, Phase::Starting | Phase::Running | Phase::Unreported)
                && !self.is_open(id, file.attempt)
        })
    }
}

fn is_loss(outcome: &Outcome) -> bool {
    let reason = outcome.reason.as_deref().unwrap_or_default();
    outcome.state == EndState::NodeFail && LOSSES.iter().any(|loss| reason.starts_with(loss))
}
