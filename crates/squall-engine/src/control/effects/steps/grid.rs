//! Steps with ranks that form a grid, or parallel groups: on a torus, neighbours in the grid are placed near each other; in
//! blocks and at switches, the ranks of a group.

use std::borrow::Cow;

use squall_model::id::{JobId, NodeId};
use squall_model::set::NodeSet;
use squall_model::step::Distribution;
use squall_model::wire::client::Refusal;
use squall_sched::layout::{Grid, assign};
use squall_sched::topology::Wish;
use squall_sched::topology::groups::{self, Groups};

use crate::control::index::desk::Waiting;
use crate::control::index::layout::{Placed, Room, Unplaced, Wanted, place, place_ranks, tasks_each};
use crate::control::state::State;

/// Finds a layout for a step on the nodes of its job. A step with a process grid (`--grid`) or groups (`--groups`) is placed
/// by them. A step that is the program for which the job asked for its grid or groups is placed by those.
pub(crate) fn place_step(
    state: &State,
    job: JobId,
    rooms: &[Room],
    request: &Waiting,
    wanted: Wanted<'_>,
) -> Result<Placed, Unplaced> {
    let spec = wanted.spec;
    let run = state.jobs.get(&job).and_then(|job| job.run());
    let is_whole_job = spec.nodes_min.is_none() && spec.ntasks.is_none() && spec.nodelist.is_none() && !spec.overlap;
    if is_whole_job && run.is_some_and(|run| !run.vacant().is_empty()) {
        // A step on all nodes of its job waits for the one that is to replace a failed one.
        return Err(Unplaced::Busy);
    }
    let packs = request.program.options.distribution.as_ref().and_then(|given| given.value.packs);
    let mut rooms = Cow::Borrowed(rooms);
    if let Some(packs) = packs {
        rooms.to_mut().iter_mut().for_each(|room| room.packs = packs);
    }
    let rooms = &*rooms;
    let asked = &request.program.options.network;
    let invalid = |option: &str, value: String, problem: String| {
        Unplaced::Never(Refusal::InvalidValue { option: option.to_owned(), value, problem })
    };
    let of_grid =
        |problem| invalid("grid", asked.grid.as_ref().map(|given| given.text.clone()).unwrap_or_default(), problem);
    let own = Wish::of(asked).map_err(|fault| {
        let problem = match fault.option {
            "groups" => "names and numbers of ranks like tp:8,pp:4,dp:16 are needed",
            _ => "extents like 8x8x8 are needed, and a stencil like 4,4,1 beside them",
        };
        invalid(fault.option, fault.value, problem.to_owned())
    })?;
    let Some(grid) = own.grid.map(|ranks| ranks.grid()) else {
        if let (Some(groups), Some(given)) = (own.groups, &asked.groups)
            && tasks_of(rooms, wanted) != groups.tasks()
        {
            let problem = format!("it has {} ranks, so --ntasks must be {0}", groups.tasks());
            return Err(invalid("groups", given.text.clone(), problem));
        }
        let of_job = grid_of(state, job).filter(|grid| is_whole(request, wanted.spec.ntasks, grid.tasks()));
        let ranks = of_job.and_then(|grid| ranks(state, rooms, wanted, &grid));
        return match ranks.or_else(|| grouped(state, job, rooms, request, (wanted, own.groups))) {
            Some(ranks) => place_ranks(rooms, wanted, &ranks),
            None => place(rooms, wanted),
        };
    };
    if spec.ntasks.map(|tasks| tasks as usize) != Some(grid.tasks()) {
        return Err(of_grid(format!("it has {} processes, so --ntasks must be {0}", grid.tasks())));
    }
    if state.index.topology.is_flat() {
        return place(rooms, wanted);
    }
    match ranks(state, rooms, wanted, &grid) {
        Some(ranks) => place_ranks(rooms, wanted, &ranks),
        None => Err(of_grid(format!("it does not lie on the {} nodes of the job", rooms.len()))),
    }
}

/// Returns the process grid that a job asked for; None: it asked for none.
fn grid_of(state: &State, job: JobId) -> Option<Grid> {
    let wish = Wish::of(&state.jobs.get(&job)?.spec.options.network).ok()?;
    Some(wish.grid?.grid())
}

/// Returns the number of a step's tasks on these nodes.
fn tasks_of(rooms: &[Room], wanted: Wanted<'_>) -> u32 {
    let each = wanted.spec.ntasks_per_node.unwrap_or(1);
    wanted.spec.ntasks.unwrap_or_else(|| each.saturating_mul(rooms.len() as u32))
}

/// Returns the node of each rank of a step with groups, or of a job with groups. None: it has none, or the ranks follow the
/// nodes.
fn grouped(
    state: &State,
    job: JobId,
    rooms: &[Room],
    request: &Waiting,
    (wanted, own): (Wanted<'_>, Option<Groups>),
) -> Option<Vec<NodeId>> {
    let of_job = || Wish::of(&state.jobs.get(&job)?.spec.options.network).ok()?.groups;
    let groups = own.or_else(of_job)?;
    if !is_whole(request, Some(tasks_of(rooms, wanted)), groups.tasks() as usize) {
        return None;
    }
    let nodes: Vec<NodeId> = rooms.iter().map(|room| room.node).collect();
    let order = groups::order(&state.index.topology, &nodes, &groups).filter(|order| *order != nodes)?;
    let each = groups.each_on(order.len()).filter(|each| *each <= tasks_each(rooms, wanted))?;
    Some(order.into_iter().flat_map(|node| std::iter::repeat_n(node, each as usize)).collect())
}

/// Returns whether a step of so many tasks is the program for which the job asked for its grid or groups: the step has as
/// many, on all nodes, with no distribution of its own.
fn is_whole(request: &Waiting, tasks: Option<u32>, wanted: usize) -> bool {
    let spec = &request.spec;
    let all_nodes = spec.nodelist.is_none() && spec.exclude.is_none() && spec.relative.is_none();
    tasks.map(|tasks| tasks as usize) == Some(wanted)
        && spec.distribution == Distribution::Block
        && all_nodes
        && spec.nodes_max.is_none()
}

/// Returns the node of each rank. Each node gets equally many ranks if the grid can be placed so, otherwise as many as
/// fit.
fn ranks(state: &State, rooms: &[Room], wanted: Wanted<'_>, grid: &Grid) -> Option<Vec<NodeId>> {
    let nodes: NodeSet = rooms.iter().map(|room| room.node).collect();
    let most = tasks_each(rooms, wanted);
    let even = (grid.tasks() as u32).div_ceil(rooms.len().max(1) as u32);
    let topology = &state.index.topology;
    let evenly = (even <= most).then(|| assign(topology, &nodes, grid, even)).flatten();
    evenly.or_else(|| assign(topology, &nodes, grid, most))
}
