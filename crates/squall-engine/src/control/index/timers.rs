//! Timers of the controller: one entry for each purpose and job or node, which can be moved and removed.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::id::{JobId, NodeId};
use squall_model::time::{Span, Time};
use squall_sched::Item;

/// The purpose of a timer, with the job or node that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A pending job or array is examined, as it may be able to start: its begin time, its delay after a requeue or
    /// `after:ID+MINUTES` has come.
    Ready(Item),
    /// A pending job or array is ended, as it can't end by its `--deadline` any more.
    Deadline(Item),
    /// A running job reaches its time limit and is ended.
    Limit(JobId),
    /// A running job is sent its `--signal`, some time before its time limit.
    Warn(JobId),
    /// A pending allocation has not started in the time of `--immediate` and is refused.
    Immediate(JobId),
    /// The client of an allocation has not connected again in time after a restart of the controller, and the
    /// allocation is ended.
    Owner(JobId),
    /// A node may not have responded for too long and may have to be set down.
    Silent(NodeId),
    /// The jobs of a silent node may have to be given up.
    Lost(NodeId),
    /// The node fence of a job on a silent node may have passed.
    Fence(NodeId),
    /// A node that was ordered to reboot should be back.
    Reboot(NodeId),
    /// A node that is down or drained is resumed (`ResumeAfter`).
    Resume(NodeId),
    /// A node has been idle for `SuspendTime`, or should have come or gone.
    Power(NodeId),
    /// More nodes may be powered up or down without exceeding the rate.
    PowerRate,
    /// The grace time of a preempted job is over, and the job is ended.
    Grace(JobId),
    /// The controller checkpoints a running job (`--checkpoint`).
    Checkpoint(JobId),
    /// A running job has run so long that it can be preempted.
    Exempt(JobId),
    /// Priorities are recalculated.
    Reckon,
    /// Limits on usage over time are compared with the usage.
    Budgets,
    /// A shutdown no longer waits for running jobs.
    ShutDown,
    /// A reservation begins or ends.
    Reservations,
    /// A scheduling pass is made, which an earlier turn has put off.
    Pass,
}

/// All timers that are set.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Time, Timer)>,
    times: BTreeMap<Timer, Time>,
}

impl Timer {
    /// Returns whether the timer ends the patience with a node or a client that is silent.
    pub(crate) fn is_of_silence(self) -> bool {
        matches!(
            self,
            Self::Silent(_) | Self::Lost(_) | Self::Fence(_) | Self::Reboot(_) | Self::Power(_) | Self::Owner(_)
        )
    }
}

impl Timers {
    /// Sets a timer; it replaces one that is set for the same purpose and job or node.
    pub(crate) fn set(&mut self, timer: Timer, time: Time) {
        if let Some(old) = self.times.insert(timer, time) {
            self.by_time.remove(&(old, timer));
        }
        self.by_time.insert((time, timer));
    }
    /// Removes a timer, if it is set.
    pub(crate) fn clear(&mut self, timer: Timer) {
        if let Some(old) = self.times.remove(&timer) {
            self.by_time.remove(&(old, timer));
        }
    }
    /// Moves the timers for which `moves` holds by `span`, and no earlier than to `least`.
    pub(crate) fn postpone(&mut self, span: Span, least: Time, moves: impl Fn(Timer) -> bool) {
        let moved: Vec<(Timer, Time)> =
            self.times.iter().filter(|(timer, _)| moves(**timer)).map(|(&timer, &time)| (timer, time)).collect();
        for (timer, time) in moved {
            self.set(timer, (time + span).max(least));
        }
    }
    /// Returns the time for which a timer is set; None: it is not set.
    pub(crate) fn time(&self, timer: Timer) -> Option<Time> {
        self.times.get(&timer).copied()
    }
    /// Returns the time of the earliest timer; None: no timer is set.
    pub(crate) fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(time, _)| *time)
    }
    /// Removes and returns a timer that is due by `now`; None: there is none.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        let (_, timer) = self.by_time.pop_first()?;
        self.times.remove(&timer);
        Some(timer)
    }
}
