//! The times until the first acknowledgement, by kind of fault.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::faults::{Fault, From};

/// Times of all faults of a run.
#[derive(Debug, Default)]
pub(crate) struct Figures(BTreeMap<Fault, Vec<Duration>>);

impl Figures {
    pub(crate) fn add(&mut self, fault: Fault, time: Duration) {
        self.0.entry(fault).or_default().push(time);
    }

    /// Prints a row for each kind.
    pub(crate) fn print(&mut self) {
        eprintln!("ms until the next acknowledged submission     since   times    min  median    p99    max");
        for (fault, times) in &mut self.0 {
            times.sort_unstable();
            let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize].as_millis();
            let since = match fault.counts_from() {
                From::Fault => "fault",
                From::Repair => "repair",
            };
            eprintln!(
                "{:<45} {since:<7} {:>5} {:>6} {:>7} {:>6} {:>6}",
                fault.name(),
                times.len(),
                at(0.0),
                at(0.5),
                at(0.99),
                at(1.0)
            );
        }
    }
}
