//! `invariant!("what must hold")` marks places that no input can reach, however late, doubled or hostile.
//!
//! The simulator and tests stop there. In production the machine goes on as if nothing had come, and counts: `sdiag`
//! shows how often, and daemons log the first place.

use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A place that was reached all the same.
#[derive(Clone, Copy, Debug)]
pub struct Broken {
    /// What does not hold.
    pub what: &'static str,
    /// Where that was seen.
    pub place: &'static Location<'static>,
}

static COUNT: AtomicU64 = AtomicU64::new(0);
static FIRST: OnceLock<Broken> = OnceLock::new();

/// Counts that an invariant does not hold, or stops.
#[track_caller]
pub(crate) fn broken(what: &'static str) {
    if cfg!(debug_assertions) {
        stop(what);
    }
    FIRST.get_or_init(|| Broken { what, place: Location::caller() });
    COUNT.fetch_add(1, Ordering::Relaxed);
}

#[track_caller]
fn stop(what: &str) -> ! {
    panic!("an invariant is broken: {what}");
}

/// How often an invariant was broken since this process began, and where first.
pub fn so_far() -> (u64, Option<Broken>) {
    (COUNT.load(Ordering::Relaxed), FIRST.get().copied())
}

macro_rules! invariant {
    ($what:literal) => {
        $crate::invariant::broken($what)
    };
}
pub(crate) use invariant;

#[cfg(test)]
mod tests {
    #[test]
    #[should_panic = "an invariant is broken: a job that ends is known"]
    fn tests_stop_where_an_invariant_is_broken() {
        invariant!("a job that ends is known");
    }
}
