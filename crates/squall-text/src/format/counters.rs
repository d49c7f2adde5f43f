//! Figures that follow from the controller's counters.

use squall_model::wire::info::{Diag, FabricCounts};

/// Returns `total` divided by `count`; 0 if `count` is 0.
pub fn average(total: u64, count: u64) -> u64 {
    total.checked_div(count).unwrap_or(0)
}

/// Returns the length of the time that the counters cover, minutes.
pub fn minutes(diag: &Diag) -> u64 {
    diag.now.since(diag.since).secs() / 60
}

/// Returns how many messages to the controller carried 1, 2-3, 4-7, … merged reports; ranges without messages are
/// omitted.
pub fn windows(fabric: &FabricCounts) -> impl Iterator<Item = (String, u64)> {
    fabric.windows.iter().enumerate().filter(|(_, count)| **count > 0).map(|(power, count)| {
        let least = 1_u64 << power;
        (if power == 0 { "1".into() } else { format!("{least}-{}", 2 * least - 1) }, *count)
    })
}
