//! Why a pending job does not run, and with which priority it waits.

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
    /// Its id.
    pub(crate) id: JobId,
    /// Whose it is.
    pub(crate) owner: &'a Owner,
    /// What it asks for.
    pub(crate) spec: &'a JobSpec,
    /// What holds and updates made of it.
    pub(crate) queue: &'a Queue,
    /// Which array task it is.
    pub(crate) task: Option<ArrayTask>,
    /// The job, if it is one of its own.
    pub(crate) job: Option<&'a Job>,
}

/// The priority that users see, in the first partition that the job names; 0: held.
pub(crate) fn priority(c: &Controller, standee: &Standee<'_>, now: Time) -> u32 {
    let partition = partitions_of(&c.state, standee.spec).next().unwrap_or_default();
    match standee.standing.hold {
        Hold::No => c.queue.reckoning.priority(&c.state, standee, partition, now),
        _ => 0,
    }
}

/// The first reason that keeps the job from running.
pub(crate) fn reason(c: &Controller, waits: &Waits<'_>, now: Time) -> PendingReason {
    c.queue.reason(&c.state, now, waits.item())
}
