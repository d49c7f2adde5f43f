//! Where a job goes on from its checkpoint: on the nodes that have it, or, if all nodes share the checkpoints, on any that are
//! like them.
//!
//! The parts of a job with several nodes have different sizes unless each node has the same number of CPUs and tasks. Only
//! then each part fits on whatever node gets its place.

use squall_model::checkpoint::Asked;
use squall_model::hostlist::HostList;
use squall_model::id::JobId;
use squall_model::interface::{Interface, moved};
use squall_model::job::Need;
use squall_model::set::NodeSet;

use crate::control::state::State;
use crate::control::state::job::{Job, Run};

/// Returns the addresses of the nodes of a job, if it may go on from its checkpoint on others. None: it may not.
pub(crate) fn interfaces(state: &State, id: JobId, nodes: &NodeSet) -> Option<Vec<Vec<Interface>>> {
    let job = state.jobs.get(&id).filter(|_| state.config.checkpoint_shared)?;
    is_even(&job.spec.need, job.run()?).then(|| addresses(state, nodes))
}

/// Returns whether all nodes of a job have the same number of its CPUs and tasks.
fn is_even(need: &Need, run: &Run) -> bool {
    let nodes = run.alloc.nodes();
    let mut shares =
        nodes.iter().filter_map(|node| run.alloc.on(node)).map(|share| (share.cores.len(), share.memory_mb));
    let first = shares.next();
    let tasks = need.ntasks.is_none_or(|tasks| (tasks as usize).is_multiple_of(nodes.len().max(1)));
    tasks && shares.all(|share| Some(share) == first)
}

fn addresses(state: &State, nodes: &NodeSet) -> Vec<Vec<Interface>> {
    let of = |node| state.node(node).and_then(|node| node.hardware.interfaces.clone()).unwrap_or_default();
    nodes.iter().map(of).collect()
}

/// Returns the addresses that the parts of a job had at the checkpoint from which it goes on, and that are others now.
pub(crate) fn moves(state: &State, job: &Job, run: &Run) -> Option<Vec<(u128, u128)>> {
    let number = run.restore?.number;
    let from = job.checkpoints.as_ref()?.kept.iter().find(|one| one.number == number)?;
    let moved = moved(from.interfaces.as_ref()?, &addresses(state, &run.alloc.nodes()));
    Some(moved).filter(|moved| !moved.is_empty())
}

/// Returns whether a running job can leave its nodes to go on elsewhere, as far as is known before it has left them.
pub(crate) fn is_free(job: &Job) -> bool {
    job.run().is_some_and(|run| run.alloc.nodes().len() == 1 || is_even(&job.spec.need, run))
}

/// Returns what a job needs to go on from its checkpoint, which these nodes have. None: it has never had one.
pub(crate) fn need(state: &State, job: &Job, nodes: &NodeSet) -> Option<Need> {
    let all = job.checkpoints.as_deref()?;
    let Asked { nodelist, nodes_min, nodes_max, ntasks_per_node } = all.asked.clone()?;
    let need = Need { nodelist, nodes_min, nodes_max, ntasks_per_node, ..job.spec.need.clone() };
    let last = all.kept.last();
    let count = u32::try_from(nodes.len()).ok().filter(|count| *count > 0);
    let Some(count) = count else { return Some(need) };
    let free = last.is_some_and(|last| last.interfaces.is_some());
    let size = Some(count).filter(|count| *count > 1);
    let need = Need { nodes_min: size.or(nodes_min), nodes_max: size.or(nodes_max), ..need };
    if free {
        let tasks = need.ntasks.filter(|_| count > 1).map(|tasks| tasks / count);
        return Some(Need { ntasks_per_node: tasks.or(ntasks_per_node), ..need });
    }
    let names = nodes.iter().filter_map(|node| state.node(node)).map(|node| &node.name);
    let names = names.collect::<HostList>().as_str().to_owned();
    // A job that asks for nodes by name may have got further ones.
    let named = all.asked.as_ref().is_some_and(|asked| asked.nodelist.is_some());
    let nodelist = if named && count == 1 { need.nodelist.clone() } else { Some(names) };
    Some(Need { nodelist, ..need })
}
