//! Spare nodes of partitions (`spare_nodes`): a reservation keeps them free, and they replace failed nodes of running jobs.

use std::cmp::Reverse;

use squall_model::event::Event;
use squall_model::id::NodeId;
use squall_model::reservation::Reservation;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_sched::UNLIMITED;

use crate::control::controller::Controller;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::node::{Node, Partition};

/// User of the reservations: no job runs in them.
const OWNER: &str = "root";

/// Makes, changes or removes the reservations of spare nodes after jobs or nodes have changed.
pub(crate) fn keep(c: &mut Controller, now: Time, out: &mut Out) {
    let wanted = |partition: &Partition| partition.config.spare_nodes.is_some_and(|count| count > 0);
    if c.state.reservations.is_empty() && !c.state.partitions.iter().any(wanted) {
        return;
    }
    let kept = c.state.reservations.values().filter_map(|one| Some((one.spares_of()?, one)));
    let idle = |name: &str| !c.state.partitions.iter().any(|one| wanted(one) && one.config.name == name);
    let mut events: Vec<Event> = Vec::new();
    events
        .extend(kept.filter(|(name, _)| idle(name)).map(|(_, one)| Event::ReservationGone { name: one.name.clone() }));
    for partition in c.state.partitions.iter().filter(|partition| wanted(partition)) {
        let name = Reservation::name_of_spares(&partition.config.name);
        let known = c.state.reservations.get(&name);
        let nodes = chosen(c, now, partition, known);
        match known {
            Some(known) if known.nodes == nodes && known.start <= now => {}
            Some(_) if nodes.is_empty() => events.push(Event::ReservationGone { name }),
            None if nodes.is_empty() => {}
            _ => {
                let fresh = || Reservation {
                    name,
                    start: now,
                    end: now + UNLIMITED,
                    partition: Some(partition.config.name.clone()),
                    users: vec![OWNER.to_owned()],
                    ..Reservation::default()
                };
                let known = known.cloned().unwrap_or_else(fresh);
                // The clock may have been set back.
                let reservation = Reservation { nodes, start: known.start.min(now), ..known };
                events.push(Event::ReservationSet { reservation: Box::new(reservation) });
            }
        }
    }
    for event in events {
        c.commit(now, event, out);
    }
}

/// Chooses the spare nodes of a partition: idle ones, less a node for each that is down. Those that are spare already stay;
/// the others are taken from the end of the partition, where jobs come last, and without recent faults if that can be.
fn chosen(c: &Controller, now: Time, partition: &Partition, known: Option<&Reservation>) -> NodeSet {
    let state = &c.state;
    let is_down = |id: &NodeId| state.node(*id).is_none_or(|node| !node.usable());
    let down = partition.nodes.iter().filter(is_down).count();
    let count = (partition.config.spare_nodes.unwrap_or(0) as usize).saturating_sub(down);
    if count == 0 {
        return NodeSet::new();
    }
    let stays = |id: &NodeId| known.is_some_and(|known| known.nodes.contains(*id));
    let is_free = |id: &NodeId| {
        let idle = state.node(*id).is_some_and(|node| node.jobs.is_empty());
        // A spare node stays one until it is down, as all nodes are away for a moment when a controller starts.
        let is_there = c.queue.reachable.contains(*id) || (stays(id) && !is_down(id));
        idle && is_there && !is_reserved(state, partition, *id)
    };
    let faulty = |node: &Node| node.faults.last().is_some_and(|fault| fault.is_recent(now));
    let mut free: Vec<NodeId> = partition.nodes.iter().filter(is_free).collect();
    free.sort_by_key(|id| (!stays(id), state.node(*id).is_some_and(faulty), Reverse(*id)));
    free.into_iter().take(count).collect()
}

/// Returns whether a node is in a reservation other than that of the partition's spare nodes.
fn is_reserved(state: &State, partition: &Partition, id: NodeId) -> bool {
    let own = |one: &&Reservation| one.spares_of() != Some(partition.config.name.as_str());
    state.reservations.values().filter(own).any(|one| one.nodes.contains(id))
}
