//! The reason and priority of pending jobs as users see them.

use squall_model::id::JobId;
use squall_model::job::{ArrayTask, JobSpec, Owner, PendingReason};
use squall_model::time::Time;

use crate::control::controller::Controller;
use crate::control::index::pending::partitions_of;
use crate::control::index::reckon::Standee;
use crate::control::state::job::{Hold, Job, Queue};

/// A pending job, or the untouched tasks of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits<'a> {
    /// The id of the job or array.
    pub(crate) id: JobId,
    /// The user who submitted it.
    pub(crate) owner: &'a Owner,
    /// The specification.
    pub(crate) spec: &'a JobSpec,
    /// Hold, priority and other settings of updates.
    pub(crate) queue: &'a Queue,
    /// Array and index, if it is an array task.
    pub(crate) task: Option<ArrayTask>,
    /// The job; None: these are the untouched tasks of an array.
    pub(crate) job: Option<&'a Job>,
}

/// Returns the priority that users see, in the first partition that the job names; 0: held.
pub(crate) fn priority(c: &Controller, standee: &Standee<'_>, now: Time) -> u32 {
    let partition = partitions_of(&c.state, standee.spec).next().unwrap_or_default();
    match standee.standing.hold {
        Hold::No => c.queue.reckoning.priority(&c.state, standee, partition, now),
        _ => 0,
    }
}

/// Returns the first reason that keeps the job from running.
pub(crate) fn reason(c: &Controller, waits: &Waits<'_>, now: Time) -> PendingReason {
    c.queue.reason(&c.state, now, waits.item())
}
