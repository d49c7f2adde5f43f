//! Each fuzz target on its seeds, and on mutants of them: what cargo-fuzz does for hours is done here for a moment, with
//! the same choices each time.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

/// Mutants of each target.
const MUTANTS: u32 = 1000;

/// A change of some bytes.
#[derive(Clone, Debug)]
enum Edit {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize),
    Cut(Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        (at(), 0u8..8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        (at(), vec(any::<u8>(), 1..9)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (at(), 1usize..9).prop_map(|(at, count)| Edit::Remove(at, count)),
        (at(), 1usize..64).prop_map(|(at, count)| Edit::Repeat(at, count)),
        at().prop_map(Edit::Cut),
    ]
}

fn apply(bytes: &mut Vec<u8>, edit: &Edit) {
    let (Edit::Set(at, _)
    | Edit::Flip(at, _)
    | Edit::Insert(at, _)
    | Edit::Remove(at, _)
    | Edit::Repeat(at, _)
    | Edit::Cut(at)) = edit;
    if bytes.is_empty() {
        bytes.push(0);
    }
    let at = at.index(bytes.len());
    let end = |count: usize| (at + count).min(bytes.len());
    match edit {
        Edit::Set(_, byte) => bytes[at] = *byte,
        Edit::Flip(_, bit) => bytes[at] ^= 1 << bit,
        Edit::Insert(_, more) => drop(bytes.splice(at..at, more.iter().copied())),
        Edit::Remove(_, count) => drop(bytes.drain(at..end(*count))),
        Edit::Repeat(_, count) => {
            let again = bytes[at..end(*count)].to_vec();
            drop(bytes.splice(at..at, again));
        }
        Edit::Cut(_) => bytes.truncate(at),
    }
}

#[test]
fn no_mutant_breaks_a_target() {
    for (name, target) in crate::TARGETS {
        let mut seeds = crate::seeds(name);
        seeds.push(Vec::new());
        for (n, seed) in seeds.iter().enumerate() {
            let result = catch_unwind(AssertUnwindSafe(|| target(seed)));
            assert!(result.is_ok(), "{name}: seed {n}: {}", String::from_utf8_lossy(seed));
        }
        let strategy = (any::<Index>(), vec(edit(), 0..6));
        let mut runner = TestRunner::new_with_rng(
            Config { cases: MUTANTS, failure_persistence: None, ..Config::default() },
            TestRunner::deterministic().new_rng(),
        );
        let result = runner.run(&strategy, |(seed, edits)| {
            let mut bytes = seed.get(&seeds).clone();
            for edit in &edits {
                apply(&mut bytes, edit);
            }
            target(&bytes);
            Ok(())
        });
        assert!(result.is_ok(), "{name}: {}", result.err().map(|e| e.to_string()).unwrap_or_default());
    }
}

#[test]
fn cargo_fuzz_has_each_target() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("the fuzz targets' manifest");
    for (name, _) in crate::TARGETS {
        let text = std::fs::read_to_string(folder.join(format!("fuzz_targets/{name}.rs"))).unwrap_or_default();
        assert!(text.contains(&format!("squall_fuzz::run(\"{name}\", bytes)")), "fuzz/fuzz_targets/{name}.rs");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "fuzz/Cargo.toml: {name}");
    }
    assert_eq!(manifest.matches("[[bin]]").count(), crate::TARGETS.len());
}
