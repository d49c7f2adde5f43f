//! Mapping inside a router: the node of each rank, and inside a node the socket, with the least traffic between them.

use squall_model::job::network::DIMENSIONS_MAX;

use super::{Grid, Site};

/// Returns the node of each rank at its router. None: some node would have too many ranks.
pub(super) fn nodes(site: &Site<'_>, grid: &Grid, cells: &[u32]) -> Option<Vec<u32>> {
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); site.prism.volume()];
    for (rank, cell) in cells.iter().enumerate() {
        members[*cell as usize].push(rank as u32);
    }
    let (mut nodes, mut side) = (vec![0; cells.len()], vec![false; cells.len()]);
    for (cell, ranks) in members.iter().enumerate().filter(|(_, ranks)| !ranks.is_empty()) {
        let parts = site.usable[cell];
        if ranks.len() > parts as usize * site.per_node as usize {
            return None;
        }
        let parts = vec![1; parts as usize];
        for (node, part) in split(grid, ranks.clone(), &parts, &mut side).into_iter().enumerate() {
            for rank in part {
                nodes[rank as usize] = node as u32;
            }
        }
    }
    Some(nodes)
}

/// Returns the socket of each of a node's ranks, which are divided in proportion to the sockets' `sizes`.
pub fn sockets(grid: &Grid, ranks: &[u32], sizes: &[u32]) -> Vec<usize> {
    let mut side = vec![false; grid.tasks()];
    let mut found = vec![0; ranks.len()];
    for (socket, part) in split(grid, ranks.to_vec(), sizes, &mut side).into_iter().enumerate() {
        ranks.iter().zip(&mut found).filter(|(rank, _)| part.contains(rank)).for_each(|(_, of)| *of = socket);
    }
    found
}

/// Splits ranks into parts of these sizes, each time across the dimension in which the fewest neighbours are
/// separated.
fn split(grid: &Grid, mut ranks: Vec<u32>, sizes: &[u32], side: &mut [bool]) -> Vec<Vec<u32>> {
    if sizes.len() <= 1 {
        return vec![ranks];
    }
    let (left, right) = sizes.split_at(sizes.len() / 2);
    let sum = |sizes: &[u32]| sizes.iter().map(|size| *size as usize).sum::<usize>();
    let count = (ranks.len() * sum(left)).div_ceil(sum(sizes).max(1));
    let mut best: Option<(f64, Vec<u32>)> = None;
    for dimension in 0..grid.extents.len() {
        let mut sorted = ranks.clone();
        sorted.sort_by_cached_key(|rank| {
            let coords = grid.coords(*rank as usize);
            let mut key = [0; DIMENSIONS_MAX + 1];
            key[0] = coords[dimension];
            key[1..].copy_from_slice(&coords);
            key
        });
        let cut = cut(grid, &sorted, count, side);
        if best.as_ref().is_none_or(|(least, _)| cut < *least) {
            best = Some((cut, sorted));
        }
    }
    if let Some((_, sorted)) = best {
        ranks = sorted;
    }
    let others = ranks.split_off(count);
    let mut found = split(grid, ranks, left, side);
    found.extend(split(grid, others, right, side));
    found
}

/// Returns the traffic between the first `count` ranks and the others. `side` is false everywhere, before and after.
fn cut(grid: &Grid, ranks: &[u32], count: usize, side: &mut [bool]) -> f64 {
    let (first, second) = ranks.split_at(count);
    for &rank in second {
        side[rank as usize] = true;
    }
    let (mut crossing, mut stride) = (0.0, 1);
    for (dimension, &n) in grid.extents.iter().enumerate().rev() {
        for &rank in first {
            let (rank, at) = (rank as usize, rank as usize / stride % n as usize);
            let up = at + 1 < n as usize && side[rank + stride];
            let down = at > 0 && side[rank - stride];
            crossing += grid.weights[dimension] * f64::from(u8::from(up) + u8::from(down));
        }
        stride *= n as usize;
    }
    for &rank in second {
        side[rank as usize] = false;
    }
    crossing
}
