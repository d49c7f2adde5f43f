//! Jobs that share their cores with others, and when it is their turn.

use serde::{Deserialize, Serialize};
use squall_model::gang::Turn;
use squall_model::id::JobId;
use squall_model::time::{Span, Time};

use super::State;
use super::job::Phase;

/// A job in the matrix: running, suspended or completing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InTurn {
    /// Its place.
    pub turn: Turn,
    /// Since when.
    pub since: Time,
}

impl State {
    /// How long a job was out of turn since its place was changed last. Time for which it is suspended counts as that.
    pub(crate) fn idle_since(&self, id: JobId, now: Time) -> Span {
        let Some(InTurn { turn, since }) = self.gang.get(&id) else { return Span(0) };
        match self.jobs.get(&id).map(|job| &job.phase) {
            Some(Phase::Running(run)) if run.suspended.is_none() => turn.idle(now.since(*since)),
            _ => Span(0),
        }
    }
}
