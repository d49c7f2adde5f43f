//! Run-length encoded sequences: 10,000 equal values, one for each node, are stored as one entry.

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use smallvec::SmallVec;

use crate::encoding::small;
use crate::limits::HOSTLIST_MAX;

/// A sequence of at most `HOSTLIST_MAX` (1,048,576) values, stored as runs of equal values with their lengths. Adjacent
/// runs have different values and no run is empty, so equal sequences have equal runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs<T>(Entries<T>);

/// The runs of a sequence: value and length of each. Most sequences have one run, which needs no allocation.
type Entries<T> = SmallVec<[(T, u32); 1]>;

impl<C, T: Encode<C>> Encode<C> for Runs<T> {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, ctx: &mut C) -> Result<(), encode::Error<W::Error>> {
        small::encode(&self.0, e, ctx)
    }
}

impl<'b, C, T: Decode<'b, C> + PartialEq> Decode<'b, C> for Runs<T> {
    fn decode(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Self, decode::Error> {
        small::decode(d, ctx).and_then(|runs: Entries<T>| runs.try_into().map_err(decode::Error::message))
    }
}

impl<T: PartialEq> TryFrom<Entries<T>> for Runs<T> {
    type Error = &'static str;

    /// Builds a sequence from runs that another process sent. Refuses runs that are not in the normal form, or too many
    /// values.
    fn try_from(runs: Entries<T>) -> Result<Self, Self::Error> {
        let total: u64 = runs.iter().map(|(_, count)| u64::from(*count)).sum();
        let folded = runs.iter().all(|(_, count)| *count > 0) && runs.windows(2).all(|w| w[0].0 != w[1].0);
        if folded && total <= HOSTLIST_MAX as u64 { Ok(Self(runs)) } else { Err("runs are not folded, or too long") }
    }
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self(Entries::new())
    }
}

impl<T> Runs<T> {
    /// Returns an empty sequence.
    pub fn new() -> Self {
        Self::default()
    }
    /// Returns the number of values, equal ones included.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(_, count)| *count as usize).sum()
    }
    /// Returns whether the sequence has no values.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Returns the value at index `i`. None: the sequence is shorter.
    pub fn get(&self, i: usize) -> Option<&T> {
        let mut left = i;
        self.0.iter().find_map(|(value, count)| match left.checked_sub(*count as usize) {
            None => Some(value),
            Some(rest) => {
                left = rest;
                None
            }
        })
    }
    /// Returns the first value. None: the sequence is empty.
    pub fn first(&self) -> Option<&T> {
        self.0.first().map(|(value, _)| value)
    }
    /// Iterates over all values, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|(value, count)| std::iter::repeat_n(value, *count as usize))
    }
    /// Iterates over the runs: a value and its number of repetitions.
    pub fn runs(&self) -> impl Iterator<Item = (&T, u32)> {
        self.0.iter().map(|(value, count)| (value, *count))
    }
}

impl<T: PartialEq> Runs<T> {
    /// Appends a value to the sequence.
    pub fn push(&mut self, value: T) {
        match self.0.last_mut() {
            Some((last, count)) if *last == value => *count += 1,
            _ => self.0.push((value, 1)),
        }
    }
}

impl<T: PartialEq> FromIterator<T> for Runs<T> {
    fn from_iter<I: IntoIterator<Item = T>>(iter: I) -> Self {
        let mut runs = Self::new();
        for value in iter {
            runs.push(value);
        }
        runs
    }
}

impl<T: PartialEq> From<Vec<T>> for Runs<T> {
    fn from(values: Vec<T>) -> Self {
        values.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, prop_assert_eq, proptest};

    use super::Runs;

    #[test]
    fn hostile_runs_are_refused() {
        let read = |runs: &[(u8, u32)]| crate::encoding::from_slice::<Runs<u8>>(&crate::encoding::to_vec(runs));
        assert_eq!(read(&[(1, 1 << 20)]).unwrap().len(), 1 << 20);
        for runs in [&[(1, (1 << 20) + 1)][..], &[(1, u32::MAX), (2, u32::MAX)], &[(1, 0)], &[(1, 2), (1, 2)]] {
            assert!(read(runs).is_err(), "{runs:?}");
        }
    }

    proptest! {
        #[test]
        fn runs_are_sequences(values in prop::collection::vec(0_u64..3, 0..40)) {
            let runs: Runs<u64> = values.iter().copied().collect();
            prop_assert_eq!(runs.iter().copied().collect::<Vec<_>>(), values.clone());
            prop_assert_eq!((runs.len(), runs.is_empty(), runs.first()), (values.len(), values.is_empty(), values.first()));
            for i in 0..=values.len() {
                prop_assert_eq!(runs.get(i), values.get(i));
            }
            prop_assert_eq!(runs.runs().map(|(_, n)| n as usize).sum::<usize>(), values.len());
            let read: Runs<u64> = crate::encoding::from_slice(&crate::encoding::to_vec(&runs)).unwrap();
            prop_assert_eq!(read, runs);
        }
    }
}
