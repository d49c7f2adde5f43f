//! What has to happen at a time: one entry for each purpose, moved and removed at will.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::id::{JobId, NodeId};
use squall_model::time::Time;
use squall_sched::Item;

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A pending item may have become ready: begin time, wait after a requeue, `after:ID+MINUTES`.
    Ready(Item),
    /// A pending item could not end by its `--deadline` any more.
    Deadline(Item),
    /// The time limit of a running job.
    Limit(JobId),
    /// `--signal` before the time limit.
    Warn(JobId),
    /// `--immediate` of a pending allocation.
    Immediate(JobId),
    /// An allocation whose owner has not come back.
    Owner(JobId),
    /// A node that may have fallen silent.
    Silent(NodeId),
    /// A silent node whose jobs are given up.
    Lost(NodeId),
    /// A job that was told to make room has to go.
    Grace(JobId),
    /// A running job may be asked to make room from now on.
    Exempt(JobId),
    /// Priorities are to be reckoned anew.
    Reckon,
    /// Limits whose room changes with time are to be looked at.
    Budgets,
    /// A shutdown that waits for running jobs.
    ShutDown,
    /// A reservation begins or ends.
    Reservations,
}

/// All timers.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Time, Timer)>,
    times: BTreeMap<Timer, Time>,
}

impl Timers {
    /// Sets a timer, in place of the one that was set for the same purpose.
    pub(crate) fn set(&mut self, timer: Timer, time: Time) {
        if let Some(old) = self.times.insert(timer, time) {
            self.by_time.remove(&(old, timer));
        }
        self.by_time.insert((time, timer));
    }
    /// Removes a timer.
    pub(crate) fn clear(&mut self, timer: Timer) {
        if let Some(old) = self.times.remove(&timer) {
            self.by_time.remove(&(old, timer));
        }
    }
    /// The time for which a timer is set.
    pub(crate) fn time(&self, timer: Timer) -> Option<Time> {
        self.times.get(&timer).copied()
    }
    /// The next time.
    pub(crate) fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(time, _)| *time)
    }
    /// Takes a timer whose time has come.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        let (_, timer) = self.by_time.pop_first()?;
        self.times.remove(&timer);
        Some(timer)
    }
}
