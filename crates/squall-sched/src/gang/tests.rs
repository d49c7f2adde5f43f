//! Tests of the gang matrix: invariants, and examples.

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
    let piece = |&(job, slot, alloc, runs)| Piece { job: JobId(job), slot, rank: 0, alloc, runs };
    let pieces: Vec<Piece<'_>> = pieces.iter().map(piece).collect();
    turns(&pieces, true).into_values().collect()
}

#[test]
fn holes_are_filled_by_others_and_rounds_are_as_long_as_need_be() {
    let (left, right, both) = (alloc(&[0], 0..2), alloc(&[1], 0..2), alloc(&[0, 1], 0..2));
    // Two rows: left and right in one, both below.
    let turn = by_job(&[(1, 0, &left, true), (2, 1, &both, true), (3, 0, &right, true)]);
    assert_eq!(turn.iter().map(|turn| (turn.mask, turn.of)).collect::<Vec<_>>(), [(0b01, 2), (0b10, 2), (0b01, 2)]);
    // Without right, left's row has a hole that fits no other job.
    let turn = by_job(&[(1, 0, &left, true), (2, 1, &both, true)]);
    assert_eq!(turn.iter().map(|turn| turn.mask).collect::<Vec<_>>(), [0b01, 0b10]);
    // Three rows on the left node, one of which includes the right node: right also runs in the other two slots.
    let turn = by_job(&[(1, 0, &left, true), (2, 1, &left, true), (3, 2, &both, true), (4, 0, &right, true)]);
    assert_eq!(turn.iter().map(|turn| turn.mask).collect::<Vec<_>>(), [0b001, 0b010, 0b100, 0b011]);
    // A job that shares no node with others has its own rounds.
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

#[test]
fn who_is_of_a_higher_rank_leaves_no_turn_to_those_below() {
    let (left, right, both) = (alloc(&[0], 0..2), alloc(&[1], 0..2), alloc(&[0, 1], 0..2));
    let ranked = |pieces: &[(u32, u32, &Alloc, bool)]| {
        let pieces = pieces.iter().enumerate().map(|(at, &(slot, rank, alloc, runs))| Piece {
            job: JobId(at as u32),
            slot,
            rank,
            alloc,
            runs,
        });
        let pieces: Vec<Piece<'_>> = pieces.collect();
        turns(&pieces, true).into_values().map(|turn| (turn.slot, turn.mask, turn.of)).collect::<Vec<_>>()
    };
    // The wide job of the lower rank stops although only half of its cores are needed. Its neighbour then runs all the
    // time.
    assert_eq!(
        ranked(&[(0, 1, &both, true), (1, 1, &right, true), (0, 2, &left, true)]),
        [(0, 0, 1), (1, 1, 1), (0, 1, 1)]
    );
    // A job that is stopped or suspended stops no other job.
    assert_eq!(
        ranked(&[(0, 1, &right, true), (0, 2, &both, true), (0, 3, &left, true)]),
        [(0, 1, 1), (0, 0, 1), (0, 1, 1)]
    );
    assert_eq!(ranked(&[(0, 1, &left, true), (0, 2, &both, false)]), [(0, 1, 1), (0, 0, 1)]);
}

/// Generates jobs as left over from starts and ends in some order: no two in one row overlap.
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
    fn who_has_no_turn_is_stopped_by_somebody_who_has(jobs in matrices(), ranks in prop::collection::vec(0_u32..3, 14)) {
        let pieces: Vec<Piece<'_>> = jobs.iter().zip(&ranks).enumerate().map(|(at, ((slot, alloc, runs), rank))| Piece {
            job: JobId(at as u32), slot: *slot, rank: *rank, alloc, runs: *runs,
        }).collect();
        let turns = turns(&pieces, true);
        for own in &pieces {
            let meets = |other: &&Piece<'_>| {
                let both = own.alloc.nodes().intersection(&other.alloc.nodes());
                both.iter().any(|id| !own.alloc.on(id).unwrap().cores.is_disjoint(&other.alloc.on(id).unwrap().cores))
            };
            let mask = |piece: &Piece<'_>| turns[&piece.job].mask;
            let mut above = pieces.iter().filter(|other| other.rank > own.rank && mask(other) != 0).filter(meets);
            prop_assert_eq!(mask(own) == 0, !own.runs || above.next().is_some());
            let others = pieces.iter().filter(|other| other.job != own.job).filter(meets);
            for other in others {
                prop_assert!(mask(own) & mask(other) == 0, "{own:?} {other:?}");
                prop_assert!(other.rank != own.rank || turns[&own.job].slot != turns[&other.job].slot);
            }
        }
    }

    #[test]
    fn no_core_has_two_jobs_in_a_slot_and_all_have_turns(jobs in matrices()) {
        let pieces: Vec<Piece<'_>> = jobs.iter().enumerate().map(|(at, (slot, alloc, runs))| Piece {
            job: JobId(at as u32), slot: *slot, rank: 0, alloc, runs: *runs,
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
                    prop_assert!(other.of == turn.of || other.mask == 0 || turn.mask == 0, "{turn:?} {other:?}");
                }
            }
        }
    }
}
