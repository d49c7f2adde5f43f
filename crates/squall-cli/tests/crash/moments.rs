//! Random moments, from a seed that is printed: a failure can be tried again.

use std::time::Duration;

/// Random moments of a kill, from a seed that is printed.
pub(crate) struct Moments(u64);

impl Moments {
    pub(crate) fn seeded() -> Self {
        let seed = std::env::var("SQUALL_CRASH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| {
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64 | 1)
        });
        eprintln!("SQUALL_CRASH_SEED={seed}");
        Self(seed)
    }

    /// Up to 300 ms.
    pub(crate) fn next(&mut self) -> Duration {
        self.below_us(300_000)
    }

    /// Up to so many microseconds.
    pub(crate) fn below_us(&mut self, most: u32) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_micros(self.0 % u64::from(most))
    }
}
