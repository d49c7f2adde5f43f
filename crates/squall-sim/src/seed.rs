//! The only random number generator of the simulation: small, our own, with the same results on every platform and in
//! every version.

use squall_model::time::Span;

/// Random number generator xoshiro256**, seeded by splitmix64. Integers only: floating point may differ between
/// machines.
#[derive(Clone, Debug)]
pub struct Seed([u64; 4]);

impl Seed {
    /// Creates a generator; equal seeds give equal sequences.
    pub fn new(seed: u64) -> Self {
        let mut at = seed;
        Self(std::array::from_fn(|_| {
            at = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(at)
        }))
    }
    /// Returns 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }
    /// Returns a number from 0 to `n` - 1; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }
    /// Returns a time span from `low` to `high`, both included.
    pub fn span(&mut self, low: Span, high: Span) -> Span {
        Span(self.between(low.0, high.0))
    }
    /// Returns true with a probability of `ppm` millionths.
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }
    /// Returns a number from `low` to `high` with an evenly distributed order of magnitude: mostly small, sometimes
    /// huge.
    pub fn spread(&mut self, low: u64, high: u64) -> u64 {
        let bits = |n: u64| u64::from(u64::BITS - n.leading_zeros());
        let size = self.between(bits(low), bits(high));
        if size == 0 {
            return low;
        }
        let floor = 1u64 << (size - 1);
        (floor + self.below(floor)).clamp(low, high)
    }
    /// Returns a random index by the weights; 0 if there are none.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut at = self.below(weights.iter().map(|&w| u64::from(w)).sum());
        for (choice, &weight) in weights.iter().enumerate() {
            if at < u64::from(weight) {
                return choice;
            }
            at -= u64::from(weight);
        }
        0
    }
    /// Returns a random element; None if the slice is empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len() as u64) as usize)
    }
}

/// Returns the number mixed by the finalizer of splitmix64, which spreads it over 64 bits.
pub(crate) fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::Seed;

    #[test]
    fn the_sequence_never_changes() {
        let mut seed = Seed::new(1);
        let drawn: Vec<u64> = (0..3).map(|_| seed.next()).collect();
        assert_eq!(drawn, [12_966_619_160_104_079_557, 9_600_361_134_598_540_522, 10_590_380_919_521_690_900]);
    }

    #[test]
    fn draws_stay_in_bounds() {
        let mut seed = Seed::new(7);
        for _ in 0..10_000 {
            assert!((3..=9).contains(&seed.between(3, 9)));
            assert!((1..=1000).contains(&seed.spread(1, 1000)));
            assert!(seed.below(5) < 5);
            assert_ne!(seed.weighted(&[1, 0, 3]), 1);
        }
        assert_eq!(seed.below(0), 0);
        assert!(!seed.chance(0));
        assert!(seed.chance(1_000_000));
    }
}
