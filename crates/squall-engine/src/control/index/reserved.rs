//! Which nodes a reservation can have: those that neither other reservations nor jobs need while it lasts.

use squall_model::id::NodeId;
use squall_model::reservation::{Flag, Reservation};
use squall_model::set::NodeSet;
use squall_sched::Constraint;

use crate::control::index::facts;
use crate::control::state::State;
use crate::control::state::node::Node;

/// Returns the nodes among `within` that a reservation could have in addition, those with the fewest jobs first.
pub(crate) fn free_nodes(state: &State, new: &Reservation, within: &NodeSet) -> Vec<NodeId> {
    let constraint = new.features.as_deref().and_then(Constraint::parse);
    let fits = |id: &NodeId| {
        // because a node that is down is in no reservation that chooses its nodes
        let Some(node) = state.node(*id).filter(|node| node.usable()) else { return false };
        let one = Reservation { nodes: NodeSet::one(*id), ..new.clone() };
        constraint.as_ref().is_none_or(|wanted| wanted.holds(&node.hardware.features))
            && overlapped(state, &one).is_none()
            && !has_jobs(state, &one, &one.nodes, None)
    };
    let mut free: Vec<NodeId> = within.iter().filter(fits).collect();
    free.sort_by_key(|id| (state.node(*id).map_or(0, |node| node.jobs.len()), *id));
    free
}

/// Returns the name of another reservation that shares nodes and time with this one, unless one of them allows that.
pub(crate) fn overlapped<'a>(state: &'a State, new: &Reservation) -> Option<&'a str> {
    let shares = |one: &Reservation| one.is(Flag::Overlap) || one.is(Flag::Maint);
    if shares(new) {
        return None;
    }
    // Spare nodes of a partition give way to other reservations.
    let counts = |one: &&Reservation| one.name != new.name && !shares(one) && one.spares_of().is_none();
    let mut others = state.reservations.values().filter(counts);
    let other = others.find(|one| !one.nodes.is_disjoint(&new.nodes) && one.ever_meets(new))?;
    Some(&other.name)
}

/// Returns whether jobs on these nodes may still run when a reservation begins. Jobs in the reservation itself may.
pub(crate) fn has_jobs(state: &State, new: &Reservation, nodes: &NodeSet, known: Option<&Reservation>) -> bool {
    let jobs = |node: &Node| -> bool {
        node.jobs.iter().filter_map(|&id| Some((id, state.jobs.get(&id)?))).any(|(id, job)| {
            let own = known.is_some_and(|known| job.spec.reservations().any(|name| name == known.name));
            let end = job.run().and_then(|run| facts::end_time(state, id, job, run));
            !own && end.is_none_or(|end| end > new.start)
        })
    };
    !new.is(Flag::IgnoreJobs) && nodes.iter().filter_map(|id| state.node(id)).any(jobs)
}

/// Returns the nodes from which a reservation is chosen: those of its partition, or all.
pub(crate) fn within(state: &State, partition: Option<&str>) -> Option<NodeSet> {
    match partition {
        None => Some(state.present().filter(|id| state.node(*id).is_some_and(|node| node.removed.is_none())).collect()),
        Some(name) => Some(state.partition(name)?.nodes.clone()),
    }
}
