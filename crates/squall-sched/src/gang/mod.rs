//! Gang scheduling: the Ousterhout matrix. Columns are cores of nodes, rows are slots of time; a job lies in one row, on
//! the cores that it holds, and runs when its row's turn comes.
//!
//! Space is shared out in each row as buddies: a wide job gets an aligned block of nodes, so that rows break at the same
//! places and holes in one are as wide as jobs of another. A hole in the row in force is filled by jobs of other rows
//! whose columns are free there (alternate scheduling). When a job ends, those behind it move up (re-packing); nobody
//! ever moves to other cores. Nodes that no chain of jobs connects have rounds of their own.

use std::collections::{BTreeMap, BTreeSet};

use squall_model::gang::{ROWS_MAX, Turn};
use squall_model::id::{JobId, NodeId};
use squall_model::resource::Alloc;
use squall_model::set::{CoreSet, NodeSet};

use crate::place::{Condition, place};
use crate::request::Request;
use crate::scratch::Scratch;
use crate::view::{Given, View};

/// Finds room for a job in the first of `rows` rows that has some.
pub(crate) fn place_in_rows(
    view: &impl View,
    scratch: &Scratch,
    request: &Request,
    nodes: &NodeSet,
    rows: u32,
) -> Option<Given> {
    (0..rows.min(ROWS_MAX)).find_map(|slot| {
        let mut row = row_books(view, scratch, nodes, slot);
        let given = buddies(view, &mut row, request, nodes)
            .or_else(|| place(view, &mut row, request, nodes, Condition::Now))?;
        Some(Given { slot: Some(slot), ..given })
    })
}

/// What is taken in one row, as a scratch of its own: cores by row, memory over all rows.
fn row_books(view: &impl View, scratch: &Scratch, nodes: &NodeSet, slot: u32) -> Scratch {
    let mut row = scratch.for_row();
    let usable = nodes.intersection(view.reachable());
    for id in usable.iter() {
        let node = view.node(id);
        let memory_mb = scratch.taken.get(&id).map_or(node.memory_mb, |(_, memory_mb)| *memory_mb);
        let mut cores = view.row(id, slot);
        let placed = scratch.placed.iter().filter(|(of, _)| of.is_none_or(|of| of == slot));
        placed.filter_map(|(_, alloc)| alloc.on(id)).for_each(|group| cores.union_with(&group.cores));
        if cores.len() < node.hardware.cpus as usize {
            row.open.insert(id);
        }
        row.taken.insert(id, (cores, memory_mb));
    }
    row
}

/// Room for a job of several nodes in an aligned block of as many, rounded up to a power of two: the block that is fullest
/// of those that have room.
fn buddies(view: &impl View, row: &mut Scratch, request: &Request, nodes: &NodeSet) -> Option<Given> {
    let size = (request.nodes_min as usize).next_power_of_two();
    if size < 2 || size >= nodes.len() || !request.required.is_empty() {
        return None;
    }
    let all: Vec<NodeId> = nodes.iter().collect();
    let room = |block: &[NodeId]| block.iter().filter(|id| row.open.contains(**id)).count();
    let mut blocks: Vec<(usize, usize)> = all.chunks(size).enumerate().map(|(at, block)| (room(block), at)).collect();
    blocks.retain(|(room, _)| *room >= request.nodes_min as usize);
    blocks.sort_unstable();
    let open = std::mem::take(&mut row.open);
    let found = blocks.into_iter().find_map(|(_, at)| {
        let block: NodeSet = all.chunks(size).nth(at)?.iter().copied().collect();
        row.open = open.intersection(&block);
        place(view, row, request, &block, Condition::Now)
    });
    row.open = open;
    found
}

/// A job in the matrix.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The job.
    pub job: JobId,
    /// Its row so far.
    pub slot: u32,
    /// The cores that it holds.
    pub alloc: &'a Alloc,
    /// Whether it wants time: not while it is suspended or on its way out.
    pub runs: bool,
}

/// Packs all rows anew and gives every job its turn. `rotate` false: all run all the time.
pub fn turns(pieces: &[Piece<'_>], rotate: bool) -> BTreeMap<JobId, Turn> {
    let mut turns = BTreeMap::new();
    for mut group in components(pieces) {
        group.sort_unstable_by_key(|piece| (piece.slot, piece.job));
        let rows = pack(&group);
        let mut of_group = if rotate { rounds(&group, &rows) } else { BTreeMap::new() };
        for (piece, slot) in group.iter().zip(rows) {
            let turn = of_group.remove(&piece.job).unwrap_or(Turn { slot, mask: u64::from(piece.runs), of: 1 });
            turns.insert(piece.job, Turn { slot, ..turn });
        }
    }
    turns
}

/// Pieces that share nodes, if only by way of others, stand together.
fn components<'a>(pieces: &[Piece<'a>]) -> Vec<Vec<Piece<'a>>> {
    let mut groups: Vec<(NodeSet, Vec<Piece<'a>>)> = Vec::new();
    for piece in pieces {
        let (mut nodes, mut members) = (piece.alloc.nodes(), vec![*piece]);
        let mut at = 0;
        while at < groups.len() {
            if groups[at].0.is_disjoint(&nodes) {
                at += 1;
            } else {
                let (others, more) = groups.swap_remove(at);
                nodes.union_with(&others);
                members.extend(more);
            }
        }
        groups.push((nodes, members));
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// The cores of a row that are taken.
#[derive(Default)]
struct Row(BTreeMap<NodeId, CoreSet>);

impl Row {
    fn has_room(&self, alloc: &Alloc) -> bool {
        alloc.groups.iter().all(|group| {
            group.nodes.iter().all(|node| self.0.get(&node).is_none_or(|taken| taken.is_disjoint(&group.cores)))
        })
    }

    fn take(&mut self, alloc: &Alloc) {
        for group in &alloc.groups {
            group.nodes.iter().for_each(|node| self.0.entry(node).or_default().union_with(&group.cores));
        }
    }
}

/// Each piece's row: the first in which its columns are free, so none below the one in which it was.
fn pack(group: &[Piece<'_>]) -> Vec<u32> {
    let mut rows: Vec<Row> = Vec::new();
    let place = |piece: &Piece<'_>| {
        let at = rows.iter().position(|row| row.has_room(piece.alloc)).unwrap_or_else(|| {
            rows.push(Row::default());
            rows.len() - 1
        });
        rows[at].take(piece.alloc);
        at as u32
    };
    group.iter().map(place).collect()
}

/// Who runs in which slot of a round: the row that it is for, and in its holes others, those with the least time first.
fn rounds(group: &[Piece<'_>], rows: &[u32]) -> BTreeMap<JobId, Turn> {
    let running = || group.iter().zip(rows).filter(|(piece, _)| piece.runs);
    let live: BTreeSet<u32> = running().map(|(_, row)| *row).collect();
    let of = live.len().clamp(1, ROWS_MAX as usize) as u32;
    let mut turns: BTreeMap<JobId, Turn> =
        group.iter().map(|piece| (piece.job, Turn { slot: piece.slot, mask: 0, of })).collect();
    let mut slots: Vec<Row> = Vec::new();
    for (bit, row) in live.into_iter().enumerate() {
        let mut taken = Row::default();
        for (piece, _) in running().filter(|(_, of)| **of == row) {
            taken.take(piece.alloc);
            turns.entry(piece.job).and_modify(|turn| turn.mask |= 1 << bit);
        }
        slots.push(taken);
    }
    for (bit, taken) in slots.iter_mut().enumerate() {
        let mut others: Vec<&Piece<'_>> = running().map(|(piece, _)| piece).collect();
        others.sort_by_key(|piece| (turns.get(&piece.job).map_or(0, |turn| turn.active()), piece.job));
        for piece in others {
            if taken.has_room(piece.alloc) {
                taken.take(piece.alloc);
                turns.entry(piece.job).and_modify(|turn| turn.mask |= 1 << bit);
            }
        }
    }
    turns
}

#[cfg(test)]
mod tests;
