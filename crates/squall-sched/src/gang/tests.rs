//! The matrix: what it must never do, and some of it by example.

use proptest::prelude::{Strategy, any, prop, proptest};
use proptest::{prop_assert, prop_assert_eq};
use squall_model::gang::Turn;
use squall_model::id::{JobId, NodeId};
use squall_model::resource::Alloc;

use super::{Piece, turns};

fn alloc(nodes: &[u32], cores: std::ops::Range<usize>) -> Alloc {
    let mut alloc = Alloc::default();
    for id in nodes {
        alloc.push(NodeId(*id), cores.clone().collect(), 0);
    }
    alloc
}

fn by_job(pieces: &[(u32, u32, &Alloc, bool)]) -> Vec<Turn> {
    let pieces: Vec<Piece<'_>> =
        pieces.iter().map(|&(job, slot, alloc, runs)| Piece { job: JobId(job), slot, alloc, runs }).collect();
    turns(&pieces, true).into_values().collect()
}

#[test]
fn holes_are_filled_by_others_and_rounds_are_as_long_as_need_be() {
    let (left, right, both) = (alloc(&[0], 0..2), alloc(&[1], 0..2), alloc(&[0, 1], 0..2));
    // Two rows: left and right beside each other, and both below.
    let turn = by_job(&[(1, 0, &left, true), (2, 1, &both, true), (3, 0, &right, true)]);
    assert_eq!(turn.iter().map(|turn| (turn.mask, turn.of)).collect::<Vec<_>>(), [(0b01, 2), (0b10, 2), (0b01, 2)]);
    // Right is missing: left's row has a hole that nobody fits into.
    let turn = by_job(&[(1, 0, &left, true), (2, 1, &both, true)]);
    assert_eq!(turn.iter().map(|turn| turn.mask).collect::<Vec<_>>(), [0b01, 0b10]);
    // Three rows on the left, one of which reaches right: right runs in the other two slots as well.
    let turn = by_job(&[(1, 0, &left, true), (2, 1, &left, true), (3, 2, &both, true), (4, 0, &right, true)]);
    assert_eq!(turn.iter().map(|turn| turn.mask).collect::<Vec<_>>(), [0b001, 0b010, 0b100, 0b011]);
    // Who shares no node with others has rounds of its own.
    let turn = by_job(&[(1, 0, &left, true), (2, 1, &left, true), (3, 0, &right, true)]);
    assert_eq!(turn.iter().map(|turn| turn.of).collect::<Vec<_>>(), [2, 2, 1]);
}

#[test]
fn those_behind_move_up_and_the_suspended_have_no_turn() {
    let all = alloc(&[0, 1], 0..2);
    let turn = by_job(&[(2, 1, &all, true), (3, 2, &all, true)]);
    assert_eq!(turn.iter().map(|turn| (turn.slot, turn.mask, turn.of)).collect::<Vec<_>>(), [(0, 1, 2), (1, 2, 2)]);
    let turn = by_job(&[(2, 0, &all, false), (3, 1, &all, true)]);
    assert_eq!(turn.iter().map(|turn| (turn.slot, turn.mask, turn.of)).collect::<Vec<_>>(), [(0, 0, 1), (1, 1, 1)]);
}

/// Jobs as they were started and ended in some order: rows that do not overlap.
fn matrices() -> impl Strategy<Value = Vec<(u32, Alloc, bool)>> {
    let job = (0_u32..5, 1_u32..4, 0_usize..3, 1_usize..3, any::<bool>(), any::<bool>());
    prop::collection::vec(job, 0..14).prop_map(|jobs| {
        let mut placed: Vec<(u32, Alloc, bool, bool)> = Vec::new();
        for (node, nodes, core, cores, runs, stays) in jobs {
            let nodes: Vec<u32> = (node..node + nodes).collect();
            let alloc = alloc(&nodes, core..core + cores);
            let overlaps = |other: &Alloc| {
                let both = other.nodes().intersection(&alloc.nodes());
                both.iter().any(|id| !other.on(id).unwrap().cores.is_disjoint(&alloc.on(id).unwrap().cores))
            };
            let free = |slot: &u32| !placed.iter().any(|(of, other, ..)| of == slot && overlaps(other));
            let slot = (0..14).find(free).unwrap();
            placed.push((slot, alloc, runs, stays));
        }
        placed.into_iter().filter(|job| job.3).map(|(slot, alloc, runs, _)| (slot, alloc, runs)).collect()
    })
}

proptest! {
    #[test]
    fn no_core_has_two_jobs_in_a_slot_and_all_have_turns(jobs in matrices()) {
        let pieces: Vec<Piece<'_>> = jobs.iter().enumerate().map(|(at, (slot, alloc, runs))| Piece {
            job: JobId(at as u32), slot: *slot, alloc, runs: *runs,
        }).collect();
        let turns = turns(&pieces, true);
        prop_assert_eq!(turns.len(), jobs.len());
        for (at, (slot, alloc, runs)) in jobs.iter().enumerate() {
            let turn = turns[&JobId(at as u32)];
            prop_assert!(turn.slot <= *slot, "nobody moves down");
            prop_assert_eq!(turn.mask != 0, *runs);
            prop_assert!(turn.mask >> turn.of == 0, "{turn:?}");
            for (other, (_, theirs, _)) in jobs.iter().enumerate().take(at) {
                let other = turns[&JobId(other as u32)];
                let both = theirs.nodes().intersection(&alloc.nodes());
                if both.iter().any(|id| !theirs.on(id).unwrap().cores.is_disjoint(&alloc.on(id).unwrap().cores)) {
                    prop_assert!(other.mask & turn.mask == 0 && other.slot != turn.slot, "{turn:?} {other:?}");
                    prop_assert_eq!(other.of, turn.of);
                }
            }
        }
    }
}
