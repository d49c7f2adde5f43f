//! Gang scheduling: jobs that share their cores with other jobs, each in its own time slices.

use minicbor::{Decode, Encode};
use squall_model::gang::Turn;
use squall_model::id::JobId;
use squall_model::time::{Span, Time};

use crate::control::state::State;
use crate::control::state::job::Phase;

/// The place in the gang scheduling matrix of a job that is running, suspended or completing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct InTurn {
    /// The row of the matrix and the time slices in which the job runs.
    #[n(0)]
    pub turn: Turn,
    /// When the job got this place, or was last suspended or resumed, whichever is later.
    #[n(1)]
    pub since: Time,
}

impl State {
    /// Returns whether jobs of some partition are suspended for jobs of a partition with a higher tier.
    pub(crate) fn is_ranked(&self) -> bool {
        self.partitions.iter().any(|partition| self.config.suspends(&partition.config))
    }

    /// Returns the rank of a partition's jobs in the gang scheduling matrix, which is the partition's priority tier.
    pub(crate) fn rank(&self, partition: &str) -> u32 {
        self.partition(partition).map_or(0, |partition| partition.config.priority_tier)
    }

    /// Returns whether a running job stands still (has no time slice), because a job of a higher tier uses its cores.
    pub(crate) fn is_covered(&self, id: JobId) -> bool {
        self.gang.get(&id).is_some_and(|place| place.turn.mask == 0) && self.is_to_run(id)
    }

    /// Returns whether a job uses what it holds: it runs, is not suspended, and does not stand still for a job of a
    /// higher tier.
    pub(crate) fn works(&self, id: JobId) -> bool {
        self.is_to_run(id) && !self.is_covered(id)
    }

    fn is_to_run(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| matches!(&job.phase, Phase::Running(run) if run.suspended.is_none()))
    }

    /// Returns how long a running job has stood still in other jobs' time slices since its place in the matrix last
    /// changed. Returns 0 for a suspended job: that time counts as suspension.
    pub(crate) fn idle_since(&self, id: JobId, now: Time) -> Span {
        let Some(InTurn { turn, since }) = self.gang.get(&id) else { return Span(0) };
        match self.jobs.get(&id).map(|job| &job.phase) {
            Some(Phase::Running(run)) if run.suspended.is_none() => turn.idle(now.since(*since)),
            _ => Span(0),
        }
    }
}
