//! Sets behave like the sets of a textbook.

use std::collections::BTreeSet;

use proptest::prelude::{Strategy, any, prop};
use proptest::{prop_assert, prop_assert_eq, proptest};
use squall_model::encoding::{ByteBuf, from_slice, to_vec};
use squall_model::id::{JobId, NodeId};
use squall_model::job::ArraySpec;
use squall_model::limits::NODES_MAX;
use squall_model::set::{BitSet, IndexSet, NodeSet};

fn numbers(max: u32) -> impl Strategy<Value = BTreeSet<u32>> {
    prop::collection::btree_set(0..max, 0..60)
}

fn members(set: &IndexSet) -> BTreeSet<u32> {
    set.iter().collect()
}

#[test]
fn node_sets_are_small_and_bounded() {
    let size = |set: NodeSet| to_vec(&set).len();
    assert_eq!(size((0..10_080).map(NodeId).collect()), 5);
    assert_eq!(size(NodeSet::one(NodeId(10_079))), 5);
    assert!(size((0..10_080).filter(|i| i % 3 == 0).map(NodeId).collect()) < 1600, "words where runs cost more");
    let read = |runs: &[(u32, u32)]| {
        let numbers: Vec<u32> = runs.iter().flat_map(|(gap, count)| [*gap, *count]).collect();
        from_slice::<NodeSet>(&to_vec(&numbers))
    };
    assert_eq!(read(&[(0, 1 << 20)]).unwrap().len(), NODES_MAX);
    for runs in [&[(1, 1 << 20)][..], &[(u32::MAX, 0)], &[(0, u32::MAX)], &[(5, 5), (1 << 20, 1)]] {
        assert!(read(runs).is_err(), "{runs:?}");
    }
    let words = |n: usize| from_slice::<NodeSet>(&to_vec(&ByteBuf::from(vec![1; 8 * n])));
    assert!(words(NODES_MAX / 64).is_ok() && words(NODES_MAX / 64 + 1).is_err());
}

proptest! {
    #[test]
    fn index_sets_are_sets(a in numbers(100), b in numbers(100), i in 0u32..110) {
        let (x, y): (IndexSet, IndexSet) = (a.iter().copied().collect(), b.iter().copied().collect());
        prop_assert_eq!(&members(&x), &a);
        prop_assert_eq!(x.len(), a.len());
        prop_assert_eq!(x.contains(i), a.contains(&i));
        prop_assert_eq!(x.rank(i) as usize, a.range(..i).count());
        prop_assert_eq!(x.at(i), a.iter().nth(i as usize).copied());
        prop_assert_eq!(members(&x.intersection(&y)), &a & &b);
        prop_assert_eq!(members(&x.difference(&y)), &a - &b);
        let mut union = x.clone();
        union.union_with(&y);
        prop_assert_eq!(members(&union), &a | &b);
        let (mut with, mut without) = (x.clone(), x.clone());
        prop_assert_eq!(with.insert(i), !a.contains(&i));
        prop_assert_eq!(without.remove(i), a.contains(&i));
        prop_assert!(with.contains(i) && !without.contains(i));
        for set in [&x, &union, &with, &without, &x.difference(&y)] {
            prop_assert!(set.ranges().windows(2).all(|w| w[0].last + 1 < w[1].first), "{set:?} is not canonical");
            let again: IndexSet = set.iter().collect();
            prop_assert_eq!(&again, set);
        }
    }

    #[test]
    fn node_sets_are_written_and_read(a in numbers(300), far in numbers(1 << 20), runs in prop::collection::vec((0u32..2000, 0u32..2000), 0..5)) {
        let runs = runs.iter().flat_map(|(first, count)| *first..first + count).collect();
        for ids in [a, far, runs] {
            let set: NodeSet = ids.iter().copied().map(NodeId).collect();
            let bytes = to_vec(&set);
            prop_assert!(bytes.len() <= 3 + ids.len() * 6);
            prop_assert_eq!(from_slice::<NodeSet>(&bytes).unwrap(), set.clone());
            for (place, id) in ids.iter().enumerate() {
                prop_assert_eq!(set.rank(NodeId(*id)), place);
            }
        }
    }

    #[test]
    fn hostile_node_sets_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(set) = from_slice::<NodeSet>(&bytes) {
            prop_assert!(set.iter().all(|node| node.index() < NODES_MAX));
            let again: NodeSet = set.iter().collect();
            prop_assert_eq!(again, set);
        }
    }

    #[test]
    fn bit_sets_are_sets(a in numbers(300), b in numbers(300), i in 0usize..310) {
        let set = |s: &BTreeSet<u32>| s.iter().map(|&i| i as usize).collect::<BitSet>();
        let (x, y) = (set(&a), set(&b));
        prop_assert_eq!(x.iter().map(|i| i as u32).collect::<BTreeSet<_>>(), a.clone());
        prop_assert_eq!(x.len(), a.len());
        prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        let (mut union, mut rest, mut both) = (x.clone(), x.clone(), x.clone());
        union.union_with(&y);
        rest.subtract(&y);
        both.intersect_with(&y);
        prop_assert_eq!(union, set(&(&a | &b)));
        prop_assert_eq!(rest, set(&(&a - &b)));
        prop_assert_eq!(both, set(&(&a & &b)));
        let mut removed = x.clone();
        removed.insert(i);
        removed.remove(i);
        prop_assert!(!removed.contains(i));
    }

    #[test]
    fn an_arrays_ids_and_ranks_are_one_to_one(indices in prop::collection::btree_set(0u32..500, 1..60), base in 1u32..1000) {
        let spec = ArraySpec { indices: indices.iter().copied().collect(), limit: None, text: String::new() };
        let count = indices.len() as u32;
        let ids: BTreeSet<JobId> = (0..count).map(|rank| spec.task_id(JobId(base), rank)).collect();
        prop_assert_eq!(ids.len() as u32, count);
        prop_assert_eq!(ids.first().copied(), Some(JobId(base)));
        prop_assert_eq!(ids.last().copied(), Some(JobId(base + count - 1)));
        for rank in 0..count {
            prop_assert_eq!(spec.rank_of(JobId(base), spec.task_id(JobId(base), rank)), Some(rank));
        }
        prop_assert_eq!(spec.rank_of(JobId(base), JobId(base + count)), None);
    }

    #[test]
    fn index_sets_from_elsewhere_are_checked(words in prop::collection::vec(0u32..50, 0..12)) {
        let ranges: Vec<(u32, u32)> = words.chunks_exact(2).map(|w| (w[0], w[1])).collect();
        let bytes = to_vec(&ranges);
        if let Ok(set) = from_slice::<IndexSet>(&bytes) {
            let again: IndexSet = set.iter().collect();
            prop_assert_eq!(again, set);
        }
    }

    #[test]
    fn decoders_take_hostile_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        use squall_model::{codec, event::Record, wire};
        // Whatever comes, there is an answer; with a right checksum too.
        drop(codec::take::<Record>(&bytes));
        let crc = crc32c::crc32c(&bytes);
        drop(codec::decode::<Record>(&bytes, crc));
        drop(codec::decode::<wire::client::Request>(&bytes, crc));
        drop(codec::decode::<wire::client::Answer>(&bytes, crc));
        drop(codec::decode::<wire::fabric::UpFrame>(&bytes, crc));
        drop(codec::decode::<wire::fabric::DownFrame>(&bytes, crc));
        drop(codec::decode::<wire::fabric::Put>(&bytes, crc).map(|put| put.parcel.open()));
        drop(wire::sealed::Sealed::<wire::fabric::Parcel>::Bytes(bytes.clone().into()).open());
        drop(codec::decode::<wire::stepd::FromStepd>(&bytes, crc));
        drop(codec::decode::<squall_model::step::FromStep>(&bytes, crc));
        drop(codec::decode::<squall_model::step::ToStep>(&bytes, crc));
        drop(codec::decode::<wire::Hello>(&bytes, crc));
        drop(codec::decode::<wire::join::Question>(&bytes, crc));
        drop(codec::decode::<wire::join::JoinAnswer>(&bytes, crc));
        drop(from_slice::<wire::join::Vouched>(&bytes));
    }
}
