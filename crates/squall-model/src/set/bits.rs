//! Sets of small integers as 64-bit words.

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use smallvec::SmallVec;

pub(super) type Words = SmallVec<[u64; 2]>;

/// Runs of consecutive members of a set. For each: number of integers between the run before and this one, and length.
pub(crate) type Gaps = SmallVec<[(u32, u32); 2]>;

/// A set of small integers, stored as 64-bit words. Only the words from the first to the last that is not zero are
/// stored. So equal sets have equal words, and a few members close to each other take one or two words at any position.
/// Encoded as all words from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitSet {
    /// Number of zero words before the first stored word; 0 if none is stored.
    base: usize,
    words: Words,
}

impl<C> Encode<C> for BitSet {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.array((self.base + self.words.len()) as u64)?;
        self.written().try_for_each(|word| e.u64(word)?.ok())
    }
}

impl<'b, C> Decode<'b, C> for BitSet {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Ok(d.array_iter()?.collect::<Result<Words, _>>()?.into())
    }
}

impl From<Words> for BitSet {
    fn from(words: Words) -> Self {
        let mut set = Self { base: 0, words };
        set.trim();
        set
    }
}

impl BitSet {
    /// Returns the empty set.
    pub fn new() -> Self {
        Self::default()
    }
    /// Returns the set {0, 1, …, `n`-1}.
    pub fn first(n: usize) -> Self {
        let mut set = Self::new();
        set.insert_run(0, n);
        set
    }
    /// Reads a set given as a hexadecimal number. The lowest bit stands for 0: `0x5` is the set of 0 and 2. `0x` may be
    /// left out. None: the text is no such number.
    pub fn from_hex(text: &str) -> Option<Self> {
        const DIGITS_MAX: usize = 1024;
        let digits = text.strip_prefix("0x").unwrap_or(text);
        if digits.is_empty() || digits.len() > DIGITS_MAX {
            return None;
        }
        let mut set = Self::new();
        for (at, digit) in digits.chars().rev().enumerate() {
            let digit = digit.to_digit(16)?;
            (0..4).filter(|bit| digit & (1 << bit) != 0).for_each(|bit| {
                set.insert(at * 4 + bit);
            });
        }
        Some(set)
    }
    /// Returns all words from 0 on, in the form in which the set is encoded.
    pub(super) fn written(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        (0..self.end()).map(|at| self.word(at))
    }
    /// Returns the index after that of the last stored word.
    fn end(&self) -> usize {
        self.base + self.words.len()
    }
    fn word(&self, at: usize) -> u64 {
        at.checked_sub(self.base).and_then(|at| self.words.get(at)).copied().unwrap_or(0)
    }
    /// Extends the stored words so that they include those with index `low` to `end`-1.
    fn cover(&mut self, low: usize, end: usize) {
        if self.words.is_empty() {
            self.base = low;
        } else if low < self.base {
            self.words.insert_many(0, std::iter::repeat_n(0, self.base - low));
            self.base = low;
        }
        if self.end() < end {
            self.words.resize(end - self.base, 0);
        }
    }
    /// Adds `i`. Returns true if it was not a member.
    pub fn insert(&mut self, i: usize) -> bool {
        self.cover(i / 64, i / 64 + 1);
        let word = &mut self.words[i / 64 - self.base];
        let fresh = *word & (1 << (i % 64)) == 0;
        *word |= 1 << (i % 64);
        fresh
    }
    /// Adds all integers from `first` up to but not including `end`.
    pub(super) fn insert_run(&mut self, first: usize, end: usize) {
        if first >= end {
            return;
        }
        let (low, high) = (first / 64, (end - 1) / 64);
        self.cover(low, high + 1);
        let base = self.base;
        for (at, word) in self.words[low - base..=high - base].iter_mut().enumerate() {
            let from = if at == 0 { u64::MAX << (first % 64) } else { u64::MAX };
            let to = if low + at == high { u64::MAX >> (63 - (end - 1) % 64) } else { u64::MAX };
            *word |= from & to;
        }
    }
    /// Removes `i`. Returns true if it was a member.
    pub fn remove(&mut self, i: usize) -> bool {
        let there = self.contains(i);
        if there {
            self.words[i / 64 - self.base] &= !(1 << (i % 64));
            self.trim();
        }
        there
    }
    /// Returns whether `i` is a member.
    pub fn contains(&self, i: usize) -> bool {
        self.word(i / 64) & (1 << (i % 64)) != 0
    }
    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }
    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
    /// Iterates over the members in rising order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(move |(at, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    (self.base + at) * 64 + bit
                })
            })
        })
    }
    /// Adds all members of `other`.
    pub fn union_with(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.cover(other.base, other.end());
        for (a, b) in self.words[other.base - self.base..].iter_mut().zip(&other.words) {
            *a |= b;
        }
    }
    /// Removes all members that are in `other`.
    pub fn subtract(&mut self, other: &Self) {
        let base = self.base;
        for (at, a) in self.words.iter_mut().enumerate() {
            *a &= !other.word(base + at);
        }
        self.trim();
    }
    /// Removes all members that are not in `other`.
    pub fn intersect_with(&mut self, other: &Self) {
        *self = self.intersection(other);
    }
    /// Returns the members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (low, end) = self.shared(other);
        let mut both = Self { base: low, words: (low..end).map(|at| self.word(at) & other.word(at)).collect() };
        both.trim();
        both
    }
    /// Returns the range of word indices (start, end) that both sets store.
    fn shared(&self, other: &Self) -> (usize, usize) {
        let low = self.base.max(other.base);
        (low, self.end().min(other.end()).max(low))
    }
    /// Returns whether the sets have no common member.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        let (low, end) = self.shared(other);
        (low..end).all(|at| self.word(at) & other.word(at) == 0)
    }
    /// Returns whether every member is also in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.iter().enumerate().all(|(at, word)| word & !other.word(self.base + at) == 0)
    }
    /// Returns the number of members lower than `i`.
    pub fn rank(&self, i: usize) -> usize {
        let (at, bit) = (i / 64, i % 64);
        let below = self.words.iter().take(at.saturating_sub(self.base)).map(|w| w.count_ones() as usize);
        below.sum::<usize>() + (self.word(at) & ((1 << bit) - 1)).count_ones() as usize
    }
    /// Returns the runs of consecutive members. For each: number of integers between the run before and this one, and
    /// length.
    pub(crate) fn runs(&self) -> Gaps {
        let mut runs = Gaps::new();
        let mut next = 0;
        for (at, &word) in self.words.iter().enumerate() {
            let (mut rest, mut i) = (word, (self.base + at) * 64);
            while rest != 0 {
                let gap = rest.trailing_zeros();
                rest >>= gap;
                let count = rest.trailing_ones();
                rest = rest.checked_shr(count).unwrap_or(0);
                i += gap as usize;
                match runs.last_mut() {
                    Some((_, before)) if i == next => *before += count,
                    _ => runs.push(((i - next) as u32, count)),
                }
                i += count as usize;
                next = i;
            }
        }
        runs
    }
    /// Returns the set of the lowest `n` members. None: the set has fewer.
    pub fn take(&self, n: usize) -> Option<Self> {
        let (mut left, mut taken) = (n, Self { base: self.base, words: Words::new() });
        for &word in &self.words {
            let count = word.count_ones() as usize;
            let more = left.min(count);
            let rest = if more == count { 0 } else { (0..more).fold(word, |rest, _| rest & (rest - 1)) };
            taken.words.push(word & !rest);
            left -= more;
        }
        taken.trim();
        (left == 0).then_some(taken)
    }
    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
        let zeros = self.words.iter().take_while(|word| **word == 0).count();
        if zeros > 0 {
            self.words.drain(..zeros);
        }
        self.base = if self.words.is_empty() { 0 } else { self.base + zeros };
    }
}

impl FromIterator<usize> for BitSet {
    fn from_iter<I: IntoIterator<Item = usize>>(iter: I) -> Self {
        let mut set = Self::new();
        for i in iter {
            set.insert(i);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::BitSet;

    fn members() -> impl Strategy<Value = BTreeSet<usize>> {
        let near = prop::collection::btree_set(0_usize..200, 0..40);
        (near, 0_usize..5).prop_map(|(set, far)| set.into_iter().map(|i| i + far * 300).collect())
    }

    fn listed(set: &BitSet) -> BTreeSet<usize> {
        set.iter().collect()
    }

    proptest! {
        #[test]
        fn a_set_is_what_a_list_of_its_members_is(a in members(), b in members(), i in 0_usize..1600) {
            let (x, y): (BitSet, BitSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            prop_assert_eq!(listed(&x), a.clone());
            let mut union = x.clone();
            union.union_with(&y);
            prop_assert_eq!(&union, &a.union(&b).copied().collect::<BitSet>());
            let mut left = x.clone();
            left.subtract(&y);
            prop_assert_eq!(&left, &a.difference(&b).copied().collect::<BitSet>());
            prop_assert_eq!(&x.intersection(&y), &a.intersection(&b).copied().collect::<BitSet>());
            prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
            let n = i % 50;
            prop_assert_eq!(x.take(n), (n <= a.len()).then(|| a.iter().copied().take(n).collect()));
            prop_assert_eq!(left.is_subset(&x) && x.is_subset(&union), true);
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!((x.len(), x.contains(i), x.rank(i)), (a.len(), a.contains(&i), a.range(..i).count()));
            let (mut more, mut fewer) = (x.clone(), x.clone());
            prop_assert_eq!((more.insert(i), fewer.remove(i)), (!a.contains(&i), a.contains(&i)));
            prop_assert!(more.contains(i) && !fewer.contains(i));
            more.remove(i);
            fewer.insert(i);
            prop_assert_eq!(if a.contains(&i) { fewer } else { more }, x.clone());
            let mut runs = BitSet::new();
            let mut next = 0;
            for (gap, count) in x.runs() {
                next += gap as usize;
                runs.insert_run(next, next + count as usize);
                next += count as usize;
            }
            prop_assert_eq!(&runs, &x);
            let words: super::Words = x.written().collect();
            let bytes = crate::encoding::to_vec(&x);
            prop_assert_eq!(&bytes, &crate::encoding::to_vec(&words.to_vec()));
            prop_assert_eq!(crate::encoding::from_slice::<BitSet>(&bytes).unwrap(), x);
        }
    }
}
