//! `invariant!("condition that must hold")` marks code that no input can reach, however late, duplicated or hostile.
//!
//! Tests and the simulator panic there. In production the machine ignores the input and counts: `sdiag` shows the
//! count, and daemons log the first place.

use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// An invariant that did not hold.
#[derive(Clone, Copy, Debug)]
pub struct Broken {
    /// Condition that should have held, as text.
    pub what: &'static str,
    /// Place in the source code where it was checked.
    pub place: &'static Location<'static>,
}

static COUNT: AtomicU64 = AtomicU64::new(0);
static FIRST: OnceLock<Broken> = OnceLock::new();

/// Counts a broken invariant; panics in debug builds.
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

/// Returns how many broken invariants this process has counted, and the first one.
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
