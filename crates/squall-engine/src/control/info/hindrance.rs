//! Reasons to refuse an allocation that can't start soon.

use squall_model::id::JobId;
use squall_model::job::PendingReason;
use squall_model::time::{Span, Time};
use squall_model::wire::client::Refusal;
use squall_sched::Item;

use crate::control::controller::Controller;

/// `--immediate` with at most this many seconds means that the allocation must start at once.
pub(crate) const AT_ONCE_S: u32 = 1;

/// Returns the refusal for a pending reason that the user of an allocation should see. None: the allocation may start
/// soon.
pub(crate) fn hindrance(c: &Controller, id: JobId, reason: &PendingReason) -> Option<Refusal> {
    match reason {
        PendingReason::JobHeldUser
        | PendingReason::JobHeldAdmin
        | PendingReason::RequeuedHeld
        | PendingReason::SpecialExit => Some(Refusal::Held),
        PendingReason::PartitionDown => {
            let named = c.state.jobs.get(&id).and_then(|job| job.spec.partition.clone());
            Some(Refusal::PartitionDown(named.unwrap_or_default()))
        }
        PendingReason::ReqNodeNotAvail => Some(Refusal::NodeNotAvailable),
        _ => None,
    }
}

/// Returns why an allocation is refused when its `--immediate` time is over.
pub(crate) fn too_late(c: &Controller, now: Time, id: JobId) -> Refusal {
    let at_once = c.state.jobs.get(&id).is_some_and(|job| now < job.submit + Span::from_secs(AT_ONCE_S.into()));
    let reason = c.queue.reason(&c.state, now, Item { id, array: false });
    match (hindrance(c, id, &reason), reason) {
        // If the user allowed some time, the refusal says only that resources are busy.
        _ if !at_once => Refusal::Busy,
        (Some(Refusal::Held), _) | (_, PendingReason::Dependency | PendingReason::BeginTime) => {
            Refusal::DependencyProblem
        }
        (hindrance, _) => hindrance.unwrap_or(Refusal::Busy),
    }
}
