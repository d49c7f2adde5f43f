//! Gang scheduling by the Ousterhout matrix. Columns are cores of nodes, rows are time slots. A job lies in one row,
//! on the cores of its allocation, and runs in that row's slot.
//!
//! In each row nodes are allocated in buddy blocks: a job of several nodes gets an aligned block. So rows are divided
//! at the same nodes, and a hole in one row is as wide as jobs of another. Jobs of other rows also run in a hole if
//! their columns are free there (alternate scheduling). When a job ends, later rows move up (re-packing); no job moves
//! to other cores. Groups of nodes that no chain of jobs connects have separate rounds.
//!
//! Where jobs suspend others there is a matrix for each rank, one above the other. A job has no slot while a job of a
//! higher rank that has slots lies on any of its cores. Nothing else suspends or resumes it.

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

/// Places a job in the first row of the gang matrix, of `rows` rows, in which it fits. None: it fits in none.
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

/// Returns the usage of one row of the gang matrix as a trial state: cores used in this row, memory used in all rows.
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

/// Places a job of several nodes in an aligned block of 2^k nodes: of the blocks in which it fits, the one with the
/// fewest free nodes. None: it fits in none.
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

/// A job in the gang matrix.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Id of the job.
    pub job: JobId,
    /// Row of the gang matrix in which the job is so far.
    pub slot: u32,
    /// Rank of the job, which suspends jobs of lower ranks on its cores.
    pub rank: u32,
    /// The job's allocation.
    pub alloc: &'a Alloc,
    /// Whether the job needs time slots; false while it is suspended or ending.
    pub runs: bool,
}

/// Packs the rows of the gang matrix again and returns the time slots of every job. `rotate` false: jobs that have
/// slots run all the time.
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

/// Divides jobs into groups that are connected by shared nodes, directly or through other jobs.
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

/// By node: the cores that jobs of one row use.
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

/// Returns each job's row in the gang matrix: the first in which its cores are free. No job gets a later row than
/// before.
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

/// Returns for each job the slots of a round in which it runs, as bits, and the number of slots. A job runs in its own
/// row's slot and in holes of others; jobs with the fewest slots get holes first.
fn rounds(open: &[Piece<'_>]) -> BTreeMap<JobId, (u64, u32)> {
    // Slots are bits of a u64. More rows come about only when a changed configuration merges two matrices.
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
