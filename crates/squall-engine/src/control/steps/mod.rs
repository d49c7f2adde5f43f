//! Steps: requests that wait for cores, programs of running steps, callers to be told of their end.

use squall_model::id::{JobId, NodeId, StepKey};
use squall_model::time::Time;

use super::{CallerId, Controller, Out};

/// Soft state of steps.
#[derive(Debug, Default)]
pub(crate) struct Desk {}

/// Something happened to a job (a step ended, it is ending, it has ended, it was requeued): tell who waits for
/// its steps, start steps that wait for cores, refuse what can't come any more. Called once in each turn for each
/// job that an event of the turn touched; must cost little for jobs without steps.
pub(crate) fn settle(c: &mut Controller, now: Time, job: JobId, out: &mut Out) {
    let _ = (c, now, job, out);
}

/// A client's connection has ended: nobody waits on it any more.
pub(crate) fn hangup(c: &mut Controller, now: Time, caller: CallerId, out: &mut Out) {
    let _ = (c, now, caller, out);
}

/// A node registered and knows these steps. For steps of running jobs that should run there: send `StartStep`
/// again if the program is at hand, else wait for the client's retry; end what it knows and should not
/// (`EndStep`). Jobs that the node should not have at all are dealt with by the caller.
pub(crate) fn registered(c: &mut Controller, now: Time, node: NodeId, known: &[StepKey], out: &mut Out) {
    let _ = (c, now, node, known, out);
}

/// When [`timers`] must be called; None: not needed.
pub(crate) fn deadline(c: &Controller) -> Option<Time> {
    let _ = c;
    None
}

/// Time limits of steps, patience with clients that vanished.
pub(crate) fn timers(c: &mut Controller, now: Time, out: &mut Out) {
    let _ = (c, now, out);
}
