//! Reports of a node about its jobs and steps. The node repeats a report until the controller has journaled it.

use crate::id::StepKey;
use crate::job::{EndState, ExitCode, JobAttempt, Outcome, Usage};
use crate::series::Series;
use crate::time::Time;
use minicbor::{Decode, Encode};

/// One report of a node to the controller. It may arrive twice after a lost connection; applying it again has no
/// effect.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Report {
    /// This node's tasks of a step have ended and none of its processes is left on the node.
    #[n(0)]
    StepEnded {
        /// Step that ended.
        #[n(0)]
        key: StepKey,
        /// How the tasks ended.
        #[n(1)]
        end: StepEnd,
    },
    /// The job has no processes left on this node and its resources here are free. Sent after every `StepEnded` of that
    /// attempt. On the node of a batch job's script, the end of the script leads to this report.
    #[n(1)]
    JobGone {
        /// Job, and the attempt that is gone.
        #[n(0)]
        job: JobAttempt,
    },
    /// The job's batch script, or the tasks of a step, could not be started.
    #[n(2)]
    LaunchFailed {
        /// Step or batch script that was not started.
        #[n(0)]
        key: StepKey,
        /// Cause of the failure, as a text for users.
        #[n(1)]
        error: String,
        /// Whether the cause lies with the node (spool full, daemon missing), so that another attempt elsewhere may
        /// succeed.
        #[n(2)]
        node_fault: bool,
    },
}

/// How the tasks of a step on one node ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct StepEnd {
    /// Exit of the first task that died by a signal, otherwise the highest exit code; `0:0` if all succeeded. Tasks
    /// that the step daemon killed don't count.
    #[n(0)]
    pub exit: ExitCode,
    /// Whether a task was killed for exceeding its memory limit.
    #[n(1)]
    pub oom: bool,
    /// Whether the exit code is unknown, because step daemon and node daemon both crashed (on an old kernel).
    #[n(2)]
    pub lost: bool,
    /// Resources that the tasks used.
    #[n(3)]
    pub usage: Usage,
    /// Start of the first task.
    #[n(4)]
    pub started: Time,
    /// End of the last task.
    #[n(5)]
    pub ended: Time,
    /// A text for the user, such as the cause of exit code `0:53` (output file could not be opened), or the peak memory
    /// compared with the limit.
    #[n(6)]
    pub note: Option<String>,
    /// What the tasks used over time. None: the step was too short.
    #[n(7)]
    pub series: Option<Box<Series>>,
}

/// Note of a script that ended because it got the signal to end.
const TOLD_TO: &str = "ended when it was told to";
const SIGKILL: u8 = 9;
const SIGTERM: u8 = 15;

/// Beginning of the note of a script that was ended because a dump of it was killed.
const DAMAGED: &str = "ended as a dump was killed: ";

/// Note on a step that the node fence has ended.
const FENCED: &str = "ended by the node fence: the controller could not be heard";

impl StepEnd {
    /// Sets the note of a script that ended because it got the signal to end. An earlier note stays, because it gives
    /// another cause.
    pub fn note_told(&mut self) {
        self.note.get_or_insert_with(|| TOLD_TO.to_owned());
    }
    /// Marks the end of a step that the node fence has ended: as with a node that failed, its job may run again.
    pub fn note_fenced(&mut self) {
        self.lost = true;
        self.note = Some(FENCED.to_owned());
    }
    /// Returns whether the node fence has ended the step.
    pub fn is_fenced(&self) -> bool {
        self.note.as_deref() == Some(FENCED)
    }
    /// Marks the end of a script that was ended because a dump of it was killed. What it did since counts for nothing, and
    /// neither does its exit code.
    pub fn note_damaged(&mut self, error: &str) {
        self.note = Some(format!("{DAMAGED}{error}"));
    }
    /// Returns why a dump of the script was killed. None: none was.
    pub fn damage(&self) -> Option<&str> {
        self.note.as_deref()?.strip_prefix(DAMAGED)
    }
    /// Returns whether a script ended by itself although its end had been requested, as far as is known. A script ended
    /// by TERM or KILL did not, even if the daemons that signalled it have crashed since.
    pub fn is_own(&self) -> bool {
        let by_signal = !self.oom && [SIGTERM, SIGKILL].contains(&self.exit.signal);
        !self.lost && !by_signal && self.note.as_deref() != Some(TOLD_TO) && self.damage().is_none()
    }
    /// Returns the outcome of a job with a batch script that ended like this and was not told to end.
    pub fn outcome(&self) -> Outcome {
        let (state, exit) = match () {
            () if self.oom => (EndState::OutOfMemory, ExitCode::OUT_OF_MEMORY),
            () if self.lost => (EndState::NodeFail, self.exit),
            () if self.exit.is_ok() => (EndState::Completed, self.exit),
            () => (EndState::Failed, self.exit),
        };
        let unknown = self.lost.then(|| "the exit status of the script could not be learnt".to_owned());
        Outcome { state, exit, reason: self.note.clone().or(unknown) }
    }
    /// Returns the state of a step that has ended like this on all of its nodes. `cut`: how the controller has ended the
    /// step; None: it has not. `cancelled_by`: the user who cancelled the whole job; None: no user did. As in Slurm, a
    /// step that a signal ended counts as cancelled, whoever sent the signal.
    pub fn step_state(
        exit: ExitCode,
        (oom, lost): (bool, bool),
        cut: Option<EndState>,
        cancelled_by: Option<u32>,
    ) -> EndState {
        match () {
            () if oom => EndState::OutOfMemory,
            () if cut == Some(EndState::Timeout) => EndState::Timeout,
            () if lost => EndState::NodeFail,
            () if exit.is_ok() => EndState::Completed,
            () if exit.signal == 0 => EndState::Failed,
            () => cut.unwrap_or(EndState::Cancelled { by: cancelled_by.unwrap_or(EndState::NOBODY) }),
        }
    }
    /// Returns whether the other node's tasks ended in the same way, so that [`StepEnd::merge`] loses nothing.
    pub fn merges_with(&self, other: &Self) -> bool {
        let way = |end: &Self| (end.exit, end.oom, end.lost);
        way(self) == way(other) && self.note == other.note
    }
    /// Combines this with another node's end of the step: highest exit code, problems of either, usage of both, first
    /// start, last end, and of different notes the one that sorts first. Order and grouping don't matter.
    pub fn merge(&mut self, other: &Self) {
        self.exit = self.exit.max(other.exit);
        self.oom |= other.oom;
        self.lost |= other.lost;
        self.usage.absorb(&other.usage);
        Series::merge_into(&mut self.series, other.series.as_deref());
        self.started = self.started.min(other.started);
        self.ended = self.ended.max(other.ended);
        self.note = self.note.take().into_iter().chain(other.note.clone()).min();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, proptest};

    use super::StepEnd;
    use crate::job::{ExitCode, Usage};
    use crate::time::{Span, Time};

    fn end() -> impl Strategy<Value = StepEnd> {
        let how = (0_u8..3, 0_u8..2, any::<bool>(), any::<bool>());
        let note = prop::option::of(prop::sample::select(vec!["a", "b"]));
        let used = (any::<u64>(), 0_u64..3, 0_u32..9, 0_u64..9);
        (how, note, used, 0_u64..50, 50_u64..99).prop_map(|((code, signal, oom, lost), note, used, started, ended)| {
            StepEnd {
                exit: ExitCode { code, signal },
                oom,
                lost,
                usage: Usage {
                    user: Span(used.0),
                    max_rss_kb: used.1,
                    max_rss_task: used.2,
                    total_rss_kb: used.3,
                    read_bytes: used.0,
                    energy_j: (used.1 > 0).then_some(used.3),
                    ..Usage::default()
                },
                started: Time(started),
                ended: Time(ended),
                note: note.map(str::to_owned),
                series: None,
            }
        })
    }

    fn merged<'a>(ends: impl IntoIterator<Item = &'a StepEnd>) -> StepEnd {
        let mut ends = ends.into_iter();
        let mut sum = ends.next().unwrap().clone();
        ends.for_each(|end| sum.merge(end));
        sum
    }

    proptest! {
        #[test]
        fn order_and_grouping_do_not_matter(
            (ends, mixed) in prop::collection::vec(end(), 1..9).prop_flat_map(|ends| (Just(ends.clone()), Just(ends).prop_shuffle())),
            at in 1_usize..9,
        ) {
            let whole = merged(&ends);
            prop_assert_eq!(&merged(&mixed), &whole);
            let (left, right) = mixed.split_at(at.min(mixed.len()));
            let grouped: Vec<StepEnd> = [left, right].iter().filter(|g| !g.is_empty()).map(|g| merged(*g)).collect();
            prop_assert_eq!(&merged(&grouped), &whole);
        }

        #[test]
        fn those_of_a_kind_stay_of_that_kind(a in end(), b in end()) {
            if a.merges_with(&b) {
                let both = merged([&a, &b]);
                prop_assert!(both.merges_with(&a) && both.merges_with(&b));
            }
        }
    }
}
