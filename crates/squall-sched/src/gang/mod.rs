//! Gang scheduling: the Ousterhout matrix. Columns are cores of nodes, rows are slots of time; a job lies in one row, on
//! the cores that it holds, and runs when its row's turn comes.
//!
//! Space is shared out in each row as buddies: a wide job gets an aligned block of nodes, so that rows break at the same
//! places and holes in one are as wide as jobs of another. A hole in the row in force is filled by jobs of other rows
//! whose columns are free there (alternate scheduling). When a job ends, those behind it move up (re-packing); nobody
//! ever moves to other cores. Nodes that no chain of jobs connects have rounds of their own.
//!
//! Where jobs are suspended for others there is a matrix for each rank, one above the other: a job has no turn while one
//! of a higher rank that has turns lies on any of its cores. Nothing else suspends or resumes it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use squall_model::gang::{ROWS_MAX, Turn};
use squall_model::id::{JobId, NodeId};
use squall_model::resource::Alloc;
use squall_model::set::{CoreSet, NodeSet};

use crate::place::{Condition, place};
use crate::request::Request;
use crate::scratch::Scratch;
use crate::view::{Given, Row, View};

/// Finds room for a job in the first of `rows` rows that has some.
pub(crate) fn place_in_rows(
    view: &impl View,
    scratch: &Scratch,
    request: &Request,
    nodes: &NodeSet,
    (rank, rows): (u32, u32),
) -> Option<Given> {
    (0..rows.min(ROWS_MAX)).find_map(|slot| {
        let mut row = row_books(view, scratch, nodes, Row { rank, slot: Some(slot) });
        let given = buddies(view, &mut row, request, nodes)
            .or_else(|| place(view, &mut row, request, nodes, Condition::Now))?;
        Some(Given { slot: Some(slot), ..given })
    })
}

/// What is taken in one row, as a scratch of its own: cores by row, memory over all rows.
pub(crate) fn row_books(view: &impl View, scratch: &Scratch, nodes: &NodeSet, of: Row) -> Scratch {
    let mut row = scratch.for_row();
    let usable = nodes.intersection(view.reachable());
    for id in usable.iter() {
        let node = view.node(id);
        let memory_mb = scratch.taken.get(id).map_or(node.memory_mb, |(_, memory_mb)| *memory_mb);
        let cores = scratch.row(view, id, of, &BTreeSet::new());
        if cores.len() < node.hardware.cpus as usize {
            row.open.insert(id);
        }
        row.taken.set(id, (cores, memory_mb));
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
    /// It stops those of a lower rank that hold its cores.
    pub rank: u32,
    /// The cores that it holds.
    pub alloc: &'a Alloc,
    /// Whether it wants time: not while it is suspended or on its way out.
    pub runs: bool,
}

/// Packs all rows anew and gives every job its turn. `rotate` false: who has turns runs all the time.
pub fn turns(pieces: &[Piece<'_>], rotate: bool) -> BTreeMap<JobId, Turn> {
    let mut turns = BTreeMap::new();
    for mut group in components(pieces) {
        group.sort_unstable_by_key(|piece| (Reverse(piece.rank), piece.slot, piece.job));
        let mut open: Vec<Piece<'_>> = Vec::new();
        let mut shade = Columns::default();
        for rank in group.chunk_by(|one, other| one.rank == other.rank) {
            for (piece, slot) in rank.iter().zip(pack(rank)) {
                turns.insert(piece.job, Turn { slot, mask: 0, of: 1 });
            }
            let above = open.len();
            open.extend(rank.iter().filter(|piece| piece.runs && shade.has_room(piece.alloc)));
            open[above..].iter().for_each(|piece| shade.take(piece.alloc));
        }
        open.sort_unstable_by_key(|piece| (piece.slot, piece.job));
        let always = |piece: &Piece<'_>| (piece.job, (1, 1));
        let of_group = if rotate { rounds(&open) } else { open.iter().map(always).collect() };
        for (job, (mask, of)) in of_group {
            turns.entry(job).and_modify(|turn| (turn.mask, turn.of) = (mask, of));
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
struct Columns(BTreeMap<NodeId, CoreSet>);

impl Columns {
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

/// Each piece's row: the first in which its columns are free, so none behind the one in which it was.
fn pack(group: &[Piece<'_>]) -> Vec<u32> {
    let mut rows: Vec<Columns> = Vec::new();
    let place = |piece: &Piece<'_>| {
        let at = rows.iter().position(|row| row.has_room(piece.alloc)).unwrap_or_else(|| {
            rows.push(Columns::default());
            rows.len() - 1
        });
        rows[at].take(piece.alloc);
        at as u32
    };
    group.iter().map(place).collect()
}

/// Who runs in which slot of a round, and how many slots it has: its own row's, and in holes of others those with the least
/// time first.
fn rounds(open: &[Piece<'_>]) -> BTreeMap<JobId, (u64, u32)> {
    // Slots are bits. More rows than that come about only if a configuration makes two matrices one.
    let rows: Vec<usize> = pack(open).into_iter().map(|row| row.min(ROWS_MAX - 1) as usize).collect();
    let of = rows.iter().max().map_or(1, |last| last + 1);
    let mut masks: BTreeMap<JobId, u64> = BTreeMap::new();
    let mut slots: Vec<Columns> = (0..of).map(|_| Columns::default()).collect();
    for (piece, row) in open.iter().zip(rows) {
        slots[row].take(piece.alloc);
        masks.insert(piece.job, 1 << row);
    }
    let mut others: Vec<&Piece<'_>> = open.iter().collect();
    for (bit, taken) in slots.iter_mut().enumerate() {
        let time = |job: &JobId| masks.get(job).map_or(0, |mask| mask.count_ones());
        others.sort_by_key(|piece| (time(&piece.job), piece.job));
        for piece in &others {
            if taken.has_room(piece.alloc) {
                taken.take(piece.alloc);
                masks.entry(piece.job).and_modify(|mask| *mask |= 1 << bit);
            }
        }
    }
    masks.into_iter().map(|(job, mask)| (job, (mask, of as u32))).collect()
}

#[cfg(test)]
mod tests;
