//! Nodes that take the places of failed ones in running jobs (`--on-node-fail=replace`).
//!
//! A vacant place gets a spare node of the job, or else the next free node that fits, as near to the failed one as can be
//! and ahead of all pending jobs. Until then steps that need it wait.

use std::sync::Arc;

use squall_model::event::Event;
use squall_model::id::{JobId, NodeId};
use squall_model::job::network::Network;
use squall_model::places::{OnNodeFail, Vacancy};
use squall_model::reservation::Reservation;
use squall_model::set::NodeSet;
use squall_model::time::Time;
use squall_model::wire::node::Down;
use squall_sched::{Candidate, Given, Item, Nodes};

use crate::control::controller::Controller;
use crate::control::effects::billing;
use crate::control::index::facts;
use crate::control::index::lanes::request_of;
use crate::control::index::view::Sight;
use crate::control::port::Out;
use crate::control::state::State;
use crate::control::state::job::{Job, Phase, Run};
use crate::invariant::invariant;

/// Returns what happens to a running job when one of its nodes fails: what the job asked for, or else what its partition
/// or the cluster says, or else a requeue.
pub(crate) fn wanted(state: &State, job: &Job, run: &Run) -> OnNodeFail {
    let own = job.spec.options.get().and_then(|options| options.on_node_fail);
    let own = own.or(job.spec.no_kill.then_some(OnNodeFail::Shrink));
    let of_partition = || state.partition(&run.partition).and_then(|partition| partition.config.on_node_fail);
    let wanted = own.or_else(of_partition).or(state.config.on_node_fail).unwrap_or(OnNodeFail::Requeue);
    if wanted == OnNodeFail::Replace && is_placed(job) { OnNodeFail::Requeue } else { wanted }
}

/// Returns whether a job asked for positions in the network, which it would not have with another node.
pub(crate) fn is_placed(job: &Job) -> bool {
    job.spec.options.get().is_some_and(|options| options.network != Network::default())
}

/// Returns whether some node could take the place of a node of a running job now.
pub(crate) fn fits(c: &mut Controller, now: Time, id: JobId, node: NodeId) -> bool {
    let Some(vacancy) = c.state.held_on(now, id, node) else { return false };
    spare_for(c, id, node).is_some() || free_for(c, now, id, &vacancy).is_some()
}

/// Notes that a running job has got or lost vacant places.
pub(crate) fn changed(c: &mut Controller, id: JobId) {
    let vacant =
        matches!(c.state.jobs.get(&id).map(|job| &job.phase), Some(Phase::Running(run)) if !run.vacant().is_empty());
    if vacant {
        c.vacant.insert(id);
        c.queue.kick = true;
    } else {
        c.vacant.remove(&id);
    }
}

/// Gives vacant places of running jobs to nodes, as far as there are any.
pub(crate) fn fill(c: &mut Controller, now: Time, out: &mut Out) {
    for id in c.vacant.clone() {
        let Some(Phase::Running(run)) = c.state.jobs.get(&id).map(|job| &job.phase) else {
            invariant!("a job with a vacant place runs");
            continue;
        };
        for vacancy in run.vacant().to_vec() {
            if let Some(spare) = spare_for(c, id, vacancy.lost) {
                take(c, now, id, (vacancy.lost, spare), None, out);
            } else if let Some((node, given)) = free_for(c, now, id, &vacancy) {
                take(c, now, id, (vacancy.lost, node), Some(given), out);
            }
        }
    }
}

/// Gives a vacant place to a node, which is told of the job unless it knows it as a spare.
fn take(c: &mut Controller, now: Time, id: JobId, (lost, node): (NodeId, NodeId), given: Option<Given>, out: &mut Out) {
    let found = c.state.jobs.get(&id).and_then(|job| Some((job.attempt, job.run()?)));
    let Some((attempt, run)) = found else { return invariant!("a job with a vacant place has resources") };
    let (mut alloc, boots) = (run.alloc.clone(), run.booting.is_some());
    // A job that waits until its nodes are up tells all of them together.
    let is_told = given.is_some() && !boots;
    let gres = given.map_or(Vec::new(), |given| {
        given.alloc.groups.into_iter().for_each(|group| alloc.add(group));
        given.gres
    });
    c.commit(now, Event::NodeReplaced { id, attempt, lost, node, alloc, gres }, out);
    billing::record(c, now, id, out);
    if is_told && let Some(facts) = facts::facts(&c.state, id) {
        // The node may be the lost one, which is back: it forgets its share of before, and then gets this one.
        c.links.acknowledge();
        c.links.put(&NodeSet::one(node), Down::StartJob { facts: Arc::new(facts), batch: None });
    }
}

/// Returns the spare of a job that is nearest to a failed node. None: the job has no spare that is up.
pub(crate) fn spare_for(c: &Controller, id: JobId, lost: NodeId) -> Option<NodeId> {
    let spares = c.state.jobs.get(&id)?.run()?.spares()?;
    let there = spares.iter().filter(|spare| c.queue.reachable.contains(*spare));
    there.min_by_key(|spare| c.state.index.topology.distance(lost, *spare))
}

/// Returns a free node that fits a vacant place, with what the job gets there. Nodes below the same switch or in the same
/// block as the failed one come first.
pub(crate) fn free_for(c: &mut Controller, now: Time, id: JobId, vacancy: &Vacancy) -> Option<(NodeId, Given)> {
    let job = c.state.jobs.get(&id)?;
    let run = job.run()?;
    let at = c.state.partitions.iter().position(|partition| partition.config.name == run.partition)?;
    let mut taken = run.alloc.nodes();
    taken.union_with(&run.left);
    let need = request_of(&c.state, &job.spec)?.of_replacement(vacancy, &taken);
    let left = facts::end_time(&c.state, id, job, run).map(|end| end.since(now).secs());
    let owner = Arc::clone(&job.owner);
    c.queue.look_around(&c.state, now);
    let sight = Sight { state: &c.state, queue: &c.queue, now };
    let mut room = Nodes::new(&sight, &mut c.scratch, now, c.state.config.scheduler_parameters.window());
    let all = &c.state.partitions[at].nodes;
    let mut near: Vec<NodeSet> = c.state.index.topology.domains().into_iter().map(|(_, _, nodes)| nodes).collect();
    near.retain(|nodes| nodes.contains(vacancy.lost));
    near.sort_by_key(NodeSet::len);
    near.push(all.clone());
    // Nodes with a fault from which the job suffered come last.
    let avoid = c.state.index.avoid.get(&id).cloned().unwrap_or_default();
    let sound = near.iter().map(|nodes| {
        let mut sound = nodes.clone();
        sound.subtract(&avoid);
        sound
    });
    let near: Vec<NodeSet> = sound.chain(near.iter().filter(|_| !avoid.is_empty()).cloned()).collect();
    // The partition's spare nodes come first.
    let spares = Some(Reservation::name_of_spares(&c.state.partitions[at].config.name));
    let spares = spares.filter(|name| c.state.reservations.contains_key(name));
    for (reservation, nodes) in
        spares.iter().map(Some).chain([None]).flat_map(|one| near.iter().map(move |of| (one, of)))
    {
        let mut need = need.clone();
        let mut far = all.clone();
        far.subtract(nodes);
        need.excluded.union_with(&far);
        if reservation.is_some() {
            need.reservation = reservation.cloned();
        }
        let candidate = Candidate {
            item: Item { id, array: false },
            priority: 0,
            need: &need,
            time_limit_s: Some(left),
            wish: need.wish,
            copies: 1,
            group: None,
            avoid: None,
            alone: false,
            others: &[],
            user: c.queue.user(&owner),
            reserves: true,
        };
        if let Some(given) = room.replacement(&candidate, at) {
            return given.alloc.nodes().first().map(|node| (node, given));
        }
    }
    None
}
