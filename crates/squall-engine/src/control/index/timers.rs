//! Timers: one entry for each purpose, which can be moved and removed.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::id::{JobId, NodeId};
use squall_model::time::Time;
use squall_sched::Item;

/// The purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A pending item may be able to start: begin time, delay after a requeue, or `after:ID+MINUTES`.
    Ready(Item),
    /// A pending item can't end by its `--deadline` any more.
    Deadline(Item),
    /// A running job's time limit.
    Limit(JobId),
    /// A running job's `--signal` before its time limit.
    Warn(JobId),
    /// The end of `--immediate` of a pending allocation.
    Immediate(JobId),
    /// The end of the time in which an allocation's client may connect again.
    Owner(JobId),
    /// A node that may not have responded for too long.
    Silent(NodeId),
    /// A silent node whose jobs may have to be given up.
    Lost(NodeId),
    /// The end of a preempted job's grace time.
    Grace(JobId),
    /// The end of the time in which a running job can't be preempted.
    Exempt(JobId),
    /// Recalculation of priorities.
    Reckon,
    /// Check of limits on usage over time.
    Budgets,
    /// The end of a shutdown's wait for running jobs.
    ShutDown,
    /// The next begin or end of a reservation.
    Reservations,
}

/// All timers that are set.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Time, Timer)>,
    times: BTreeMap<Timer, Time>,
}

impl Timers {
    /// Sets a timer; it replaces one that is set for the same purpose.
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
    /// Returns the time for which a timer is set.
    pub(crate) fn time(&self, timer: Timer) -> Option<Time> {
        self.times.get(&timer).copied()
    }
    /// Returns the time of the first timer.
    pub(crate) fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(time, _)| *time)
    }
    /// Removes and returns a timer whose time has come.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        let (_, timer) = self.by_time.pop_first()?;
        self.times.remove(&timer);
        Some(timer)
    }
}
