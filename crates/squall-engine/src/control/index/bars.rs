//! Nodes that reservations keep from a job.

use squall_model::id::NodeId;
use squall_model::job::PendingReason;
use squall_model::reservation::{Flag, Reservation};
use squall_model::set::NodeSet;
use squall_model::time::{Span, Time};
use squall_sched::Bars;

use crate::control::state::State;

/// Returns which nodes of a partition are closed to a job that would start at `time`, because of reservations. `own`
/// lists the reservations that the job names; outside them all nodes are closed. If none of these is active, the result
/// is the reason why the job must wait. `limit_s` is the job's time limit, seconds; None: unlimited. `home`: the node that
/// alone has the job's checkpoint, which no partition keeps from it as a spare one: another node becomes spare then.
pub(crate) fn bars(
    state: &State,
    time: Time,
    own: Option<&str>,
    (limit_s, home): (Option<u64>, Option<NodeId>),
    nodes: &NodeSet,
) -> Bars {
    let named = |one: &Reservation| own.is_some_and(|own| own.split(',').any(|name| name == one.name));
    let known: Vec<&Reservation> = state.reservations.values().filter(|one| named(one)).collect();
    let on: Vec<&Reservation> = known.iter().filter(|own| own.is(Flag::Flex) || own.active(time)).copied().collect();
    let mut barred = NodeSet::new();
    let mut end = limit_s.map(|seconds| time + Span::from_secs(seconds));
    if own.is_some() && on.is_empty() {
        let why = if known.is_empty() { PendingReason::ReservationDeleted } else { PendingReason::Reservation };
        return Bars::Waits(why);
    }
    if own.is_some() && !on.iter().any(|own| own.is(Flag::Flex)) {
        barred.clone_from(nodes);
        for own in &on {
            barred.subtract(&own.nodes);
        }
        let last = on.iter().map(|own| own.end).max();
        end = end.into_iter().chain(last).min();
    }
    for other in state.reservations.values().filter(|other| !named(other)) {
        // A reservation with the flag overlap or maint was made to share its nodes with other reservations.
        let shared = on.iter().any(|own| own.is(Flag::Overlap) || own.is(Flag::Maint));
        if !shared && other.meets(time, end) {
            let home = home.filter(|home| other.spares_of().is_some() && !barred.contains(*home));
            barred.union_with(&other.nodes);
            home.map(|home| barred.remove(home));
        }
    }
    if barred.is_empty() { Bars::Open } else { Bars::Barred(barred) }
}
