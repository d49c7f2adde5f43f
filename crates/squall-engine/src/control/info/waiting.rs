//! Why a pending job does not run, and with which priority it waits.

use squall_model::id::JobId;
use squall_model::job::{ArrayTask, JobSpec, Owner, PendingReason};
use squall_model::time::Time;

use crate::control::Controller;
use crate::control::depend::{Standing, standing};
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

/// Priority of jobs for which nobody set one.
const PRIORITY: u32 = 1_000_000;

/// The priority that users see; 0: held.
pub(crate) fn priority(queue: &Queue, spec: &JobSpec) -> u32 {
    if queue.hold != Hold::No {
        return 0;
    }
    let set = queue.priority.or(spec.priority);
    set.unwrap_or_else(|| u32::try_from((i64::from(PRIORITY) - i64::from(spec.nice)).max(1)).unwrap_or(u32::MAX))
}

/// The first reason that keeps the job from running.
pub(crate) fn reason(c: &Controller, waits: &Waits<'_>, now: Time) -> PendingReason {
    match waits.queue.hold {
        Hold::Admin => return PendingReason::JobHeldAdmin,
        Hold::Requeue if waits.job.is_some_and(|job| job.launch_failures > 0) => {
            return PendingReason::JobHoldMaxRequeue;
        }
        Hold::User | Hold::Requeue => return PendingReason::JobHeldUser,
        Hold::No => {}
    }
    match standing(&c.state, waits.waiter(), now) {
        Standing::Never => return PendingReason::DependencyNeverSatisfied,
        Standing::Waits(_) => return PendingReason::Dependency,
        Standing::Holds => {}
    }
    if waits.spec.begin.max(waits.queue.not_before).is_some_and(|time| time > now) {
        return PendingReason::BeginTime;
    }
    let array = waits.task.map_or(waits.id, |task| task.array);
    if let Some(array) = c.state.arrays.get(&array)
        && array.limit.is_some_and(|limit| array.tally.active >= limit)
    {
        return PendingReason::JobArrayTaskLimit;
    }
    PendingReason::Priority
}
