//! Steps with ranks that form a grid: on a torus, neighbours in the grid are placed near each other.

use std::borrow::Cow;

use squall_model::id::JobId;
use squall_model::set::NodeSet;
use squall_model::step::Distribution;
use squall_model::wire::client::Refusal;
use squall_sched::layout::{Grid, assign};
use squall_sched::topology::Wish;

use crate::control::index::desk::Waiting;
use crate::control::index::layout::{Placed, Room, Unplaced, Wanted, place, place_ranks, tasks_each};
use crate::control::state::State;

/// Finds a layout for a step on the nodes of its job. A step with a process grid (`--grid`) is placed by it. A step
/// that is the program for which the job asked for its grid is placed by that one.
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
        let problem = "extents like 8x8x8 are needed, and a stencil like 4,4,1 beside them".to_owned();
        invalid(fault.option, fault.value, problem)
    })?;
    let Some(grid) = own.grid.map(|ranks| ranks.grid()) else {
        let of_job = grid_of(state, job).filter(|grid| is_whole(request, grid));
        let ranks = of_job.and_then(|grid| Some((ranks(state, rooms, wanted, &grid)?, grid)));
        return match ranks {
            Some((ranks, _)) => place_ranks(rooms, wanted, &ranks),
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

/// Returns whether a step is the program for which the job asked for its grid: the step has as many tasks, on all
/// nodes, with no distribution of its own.
fn is_whole(request: &Waiting, grid: &Grid) -> bool {
    let spec = &request.spec;
    let all_nodes = spec.nodelist.is_none() && spec.exclude.is_none() && spec.relative.is_none();
    spec.ntasks.map(|tasks| tasks as usize) == Some(grid.tasks())
        && spec.distribution == Distribution::Block
        && all_nodes
        && spec.nodes_max.is_none()
}

/// Returns the node of each rank. Each node gets equally many ranks if the grid can be placed so, otherwise as many as
/// fit.
fn ranks(state: &State, rooms: &[Room], wanted: Wanted<'_>, grid: &Grid) -> Option<Vec<squall_model::id::NodeId>> {
    let nodes: NodeSet = rooms.iter().map(|room| room.node).collect();
    let most = tasks_each(rooms, wanted);
    let even = (grid.tasks() as u32).div_ceil(rooms.len().max(1) as u32);
    let topology = &state.index.topology;
    let evenly = (even <= most).then(|| assign(topology, &nodes, grid, even)).flatten();
    evenly.or_else(|| assign(topology, &nodes, grid, most))
}
