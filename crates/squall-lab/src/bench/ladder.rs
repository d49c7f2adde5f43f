//! `bench throughput --ladder`: the same jobs again and again, each time with one optimisation more.

use serde_json::{Value, json};

/// Slots for each core of a real node: few, and so many that ends of several jobs share a flush of the journal.
const FEW_SLOTS: u32 = 2;
pub(super) const SLOTS_PER_CORE: u32 = 8;

/// A rung: an optimisation is there from it on.
pub(super) struct Rung {
    name: &'static str,
    /// Slots for each core of a real node.
    pub(super) slots: u32,
    /// Parts of the configuration.
    config: &'static [&'static str],
    /// The journal is flushed.
    pub(super) durable: bool,
    /// It concerns real processes only.
    real: bool,
    /// Controllers, behind a front if there are several. What comes after such a rung has one again, and is compared with
    /// the last that had one.
    pub(super) cells: u32,
}

const fn rung(name: &'static str, slots: u32, config: &'static [&'static str]) -> Rung {
    Rung { name, slots, config, durable: true, real: false, cells: 1 }
}

const FIFO: &str = "SchedulerType = \"sched/builtin\"";
/// A partition for short jobs: with this the headline is measured.
pub(super) const LEASES: &str = "[[partitions]]\nname = \"debug\"\nlease_jobs = 8\ndefault_time_s = 60\n";

/// What [`LEASES`] says of jobs in hand.
pub(super) fn in_hand() -> &'static str {
    LEASES.lines().find_map(|line| line.strip_prefix("lease_jobs = ")).unwrap_or_default()
}

const LADDER: [Rung; 7] = [
    Rung { real: true, ..rung("baseline: a step daemon for each job", FEW_SLOTS, &["own_step_daemons = true"]) },
    rung("one parent for all scripts of a node", FEW_SLOTS, &[]),
    Rung { real: true, ..rung("several ends to a flush", SLOTS_PER_CORE, &[]) },
    Rung { cells: 2, ..rung("aside: two cells behind a front", SLOTS_PER_CORE, &[]) },
    rung("eight jobs in hand behind each", SLOTS_PER_CORE, &[LEASES]),
    rung("first in, first out", SLOTS_PER_CORE, &[FIFO, LEASES]),
    Rung { durable: false, ..rung("no durability", SLOTS_PER_CORE, &[FIFO, LEASES]) },
];

impl Rung {
    /// The configuration.
    pub(super) fn config(&self) -> String {
        self.config.join("\n")
    }
}

/// Measures the rungs, of real or emulated nodes, in jobs per second: a row for each, with what it brings over the one
/// before.
pub(super) fn climb(real: bool, mut measure: impl FnMut(&Rung) -> Result<f64, String>) -> Result<Value, String> {
    let (mut rows, mut before) = (Vec::new(), None);
    for rung in LADDER.iter().filter(|rung| real || !rung.real) {
        let rate = measure(rung)?;
        let name = if before.is_none() && !real { "baseline" } else { rung.name };
        let step = before.map(|before: f64| format!("{:+.0} %", (rate / before - 1.0) * 100.0));
        rows.push(json!({ "rung": name, "jobs_per_s": super::round(rate), "step": step.unwrap_or_default() }));
        if rung.cells == 1 {
            before = Some(rate);
        }
    }
    Ok(Value::Array(rows))
}
