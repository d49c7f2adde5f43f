//! Time as machines see it: an argument, never a clock.

use minicbor::{Decode, Encode};
use std::ops::{Add, Sub};

/// A point in time, microseconds since the Unix epoch. 0 stands for "never" where a time may be absent
/// in output structures; optional times inside machines are `Option<Time>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Time(#[n(0)] pub u64);

/// A length of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Span(#[n(0)] pub u64);

impl Time {
    /// From whole seconds since the Unix epoch.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }
    /// Whole seconds since the Unix epoch, rounded down.
    pub const fn secs(self) -> u64 {
        self.0 / 1_000_000
    }
    /// The same moment on a clock that is so many microseconds ahead. "Never" and "for ever" are no moments.
    #[must_use]
    pub const fn on_clock_ahead(self, us: i64) -> Self {
        match self.0 {
            0 | u64::MAX => self,
            time => Self(time.saturating_add_signed(us)),
        }
    }
    /// How long ago `earlier` was; zero if it lies ahead.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// From whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }
    /// From milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
    }
    /// Whole seconds, rounded down.
    pub const fn secs(self) -> u64 {
        self.0 / 1_000_000
    }
    /// Whole milliseconds, rounded down.
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
