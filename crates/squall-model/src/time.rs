//! Points in time and durations for the state machines, which get them as arguments and never read a clock.

use minicbor::{Decode, Encode};
use std::ops::{Add, Sub};

/// A point in time, in microseconds since the Unix epoch. 0 means "never" in output structures; elsewhere an optional
/// time is an `Option<Time>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Time(#[n(0)] pub u64);

/// A length of time, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Span(#[n(0)] pub u64);

impl Time {
    /// Returns the time that is this many seconds after the Unix epoch.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }
    /// Returns whole seconds since the Unix epoch, rounded down.
    pub const fn secs(self) -> u64 {
        self.0 / 1_000_000
    }
    /// Returns the same moment on a clock that is `us` microseconds ahead. 0 ("never") and the highest value
    /// ("unlimited") are not changed.
    #[must_use]
    pub const fn on_clock_ahead(self, us: i64) -> Self {
        match self.0 {
            0 | u64::MAX => self,
            time => Self(time.saturating_add_signed(us)),
        }
    }
    /// Returns the time passed since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// Returns a length of time of this many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }
    /// Returns a length of time of this many milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
    }
    /// Returns the length in whole seconds, rounded down.
    pub const fn secs(self) -> u64 {
        self.0 / 1_000_000
    }
    /// Returns the length in whole milliseconds, rounded down.
    pub const fn millis(self) -> u64 {
        self.0 / 1_000
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Time {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}
