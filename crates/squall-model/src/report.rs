//! What a node reports about the work it was given. Kept by the node until the controller has journaled it.

use serde::{Deserialize, Serialize};

use crate::id::StepKey;
use crate::job::{ExitCode, JobAttempt, Usage};
use crate::time::Time;

/// One report. The controller may see a report again after a lost connection; applying it twice changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// This node's tasks of a step have ended and nothing of the step is left here.
    StepEnded {
        /// The step.
        key: StepKey,
        /// How.
        end: StepEnd,
    },
    /// Nothing of the job is left on this node and its resources are free here. Follows every
    /// `StepEnded` of that attempt; for a batch job, the end of the script on its node leads to it.
    JobGone {
        /// The job and attempt.
        job: JobAttempt,
    },
    /// The job's batch script, or the tasks of a step, could not be started at all.
    LaunchFailed {
        /// The step.
        key: StepKey,
        /// Why, in words.
        error: String,
        /// The node's own fault (spool full, daemon missing): another try elsewhere makes sense.
        node_fault: bool,
    },
}

/// How one node's share of a step ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepEnd {
    /// The first failing task's exit, or the highest; `0:0` if all did well.
    pub exit: ExitCode,
    /// A task was ended for going over its memory.
    pub oom: bool,
    /// The exit status could not be learnt (step daemon and node daemon both died, on an old kernel).
    pub lost: bool,
    /// What the tasks used.
    pub usage: Usage,
    /// When the tasks started.
    pub started: Time,
    /// When the last of them ended.
    pub ended: Time,
    /// Something to tell: `0:53` could not open its output file, peak memory against limit, …
    pub note: Option<String>,
}

impl StepEnd {
    /// Whether the other node's share went the same way, so that [`StepEnd::merge`] tells all there is to tell of both.
    pub fn merges_with(&self, other: &Self) -> bool {
        let way = |end: &Self| (end.exit, end.oom, end.lost);
        way(self) == way(other) && self.note == other.note
    }
    /// Adds another node's share of the step: the highest exit, what any of them met with, the usage of both, from the
    /// first start to the last end, and of different notes the one that sorts first. Order and grouping don't matter.
    pub fn merge(&mut self, other: &Self) {
        self.exit = self.exit.max(other.exit);
        self.oom |= other.oom;
        self.lost |= other.lost;
        self.usage.absorb(&other.usage);
        self.started = self.started.min(other.started);
        self.ended = self.ended.max(other.ended);
        self.note = self.note.take().into_iter().chain(other.note.clone()).min();
    }
}
