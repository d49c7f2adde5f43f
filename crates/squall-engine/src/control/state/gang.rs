//! Jobs that share their cores with others, and when it is their turn.

use minicbor::{Decode, Encode};
use squall_model::gang::Turn;
use squall_model::id::JobId;
use squall_model::time::{Span, Time};

use crate::control::state::State;
use crate::control::state::job::Phase;

/// A job in the matrix: running, suspended or completing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct InTurn {
    /// Its place.
    #[n(0)]
    pub turn: Turn,
    /// Since when.
    #[n(1)]
    pub since: Time,
}

impl State {
    /// Whether jobs of some partition are stopped for those of a higher tier.
    pub(crate) fn is_ranked(&self) -> bool {
        self.partitions.iter().any(|partition| self.config.suspends(&partition.config))
    }

    /// The rank of a partition's jobs in the matrix, where there are ranks: its tier.
    pub(crate) fn rank(&self, partition: &str) -> u32 {
        self.partition(partition).map_or(0, |partition| partition.config.priority_tier)
    }

    /// Whether a running job is stopped for another.
    pub(crate) fn is_covered(&self, id: JobId) -> bool {
        self.gang.get(&id).is_some_and(|place| place.turn.mask == 0) && self.is_to_run(id)
    }

    /// Whether a job runs, is not suspended, and not stopped for another: it uses what it holds.
    pub(crate) fn works(&self, id: JobId) -> bool {
        self.is_to_run(id) && !self.is_covered(id)
    }

    fn is_to_run(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| matches!(&job.phase, Phase::Running(run) if run.suspended.is_none()))
    }

    /// How long a job was out of turn since its place was changed last. Time for which it is suspended counts as that.
    pub(crate) fn idle_since(&self, id: JobId, now: Time) -> Span {
        let Some(InTurn { turn, since }) = self.gang.get(&id) else { return Span(0) };
        match self.jobs.get(&id).map(|job| &job.phase) {
            Some(Phase::Running(run)) if run.suspended.is_none() => turn.idle(now.since(*since)),
            _ => Span(0),
        }
    }
}
