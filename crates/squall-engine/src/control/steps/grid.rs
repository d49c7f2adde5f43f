//! Steps whose ranks are a grid: on a torus each goes where its neighbours are near.

use squall_model::gres;
use squall_model::id::JobId;
use squall_model::set::NodeSet;
use squall_model::step::Distribution;
use squall_model::wire::client::Refusal;
use squall_sched::layout::{Grid, assign};
use squall_sched::topology::Wish;

use super::Waiting;
use crate::control::layout::{Placed, Room, Unplaced, place, place_ranks, tasks_each};
use crate::control::state::State;

/// Finds a place for a step in the allocation of its job.
pub(super) fn place_step(
    state: &State,
    job: JobId,
    rooms: &[Room],
    request: &Waiting,
    gres: Option<&gres::Ask>,
) -> Result<Placed, Unplaced> {
    let spec = &request.spec;
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
        let ranks = of_job.and_then(|grid| Some((ranks(state, rooms, request, gres, &grid)?, grid)));
        return match ranks {
            Some((ranks, _)) => place_ranks(rooms, spec, gres, &ranks),
            None => place(rooms, spec, gres),
        };
    };
    if spec.ntasks.map(|tasks| tasks as usize) != Some(grid.tasks()) {
        return Err(of_grid(format!("it has {} processes, so --ntasks must be {0}", grid.tasks())));
    }
    if state.index.topology.is_flat() {
        return place(rooms, spec, gres);
    }
    match ranks(state, rooms, request, gres, &grid) {
        Some(ranks) => place_ranks(rooms, spec, gres, &ranks),
        None => Err(of_grid(format!("it does not lie on the {} nodes of the job", rooms.len()))),
    }
}

/// The grid that a job asked for.
fn grid_of(state: &State, job: JobId) -> Option<Grid> {
    let wish = Wish::of(&state.jobs.get(&job)?.spec.options.network).ok()?;
    Some(wish.grid?.grid())
}

/// Whether a step is the program for which the job's grid is meant.
fn is_whole(request: &Waiting, grid: &Grid) -> bool {
    let spec = &request.spec;
    let all_nodes = spec.nodelist.is_none() && spec.exclude.is_none() && spec.relative.is_none();
    spec.ntasks.map(|tasks| tasks as usize) == Some(grid.tasks())
        && spec.distribution == Distribution::Block
        && all_nodes
        && spec.nodes_max.is_none()
}

/// The node of each rank: as many on each node as on the others if the grid can lie so, else on some as many as fit.
fn ranks(
    state: &State,
    rooms: &[Room],
    request: &Waiting,
    gres: Option<&gres::Ask>,
    grid: &Grid,
) -> Option<Vec<squall_model::id::NodeId>> {
    let nodes: NodeSet = rooms.iter().map(|room| room.node).collect();
    let most = tasks_each(rooms, &request.spec, gres);
    let even = (grid.tasks() as u32).div_ceil(rooms.len().max(1) as u32);
    let topology = &state.index.topology;
    let evenly = (even <= most).then(|| assign(topology, &nodes, grid, even)).flatten();
    evenly.or_else(|| assign(topology, &nodes, grid, most))
}
