//! `bench throughput --ladder`: the same jobs repeatedly, each time with one more optimisation.

use serde_json::{Value, json};

/// Slots (jobs at a time) for each core of a real node: few.
const FEW_SLOTS: u32 = 2;
/// Slots (jobs at a time) for each core of a real node: enough for the ends of several jobs to share a flush of the
/// journal.
pub(super) const SLOTS_PER_CORE: u32 = 8;

/// A step of the comparison (rung of the ladder): it adds one optimisation to those of the rung before.
pub(super) struct Rung {
    name: &'static str,
    /// Slots (jobs at a time) for each core of a real node.
    pub(super) slots: u32,
    /// Lines of configuration that turn the optimisations on.
    config: &'static [&'static str],
    /// Whether the journal is flushed.
    pub(super) durable: bool,
    /// Whether the optimisation concerns real processes only.
    real: bool,
    /// Number of cells; several cells are behind a front. A rung with several cells is an exception: the rung after it
    /// has a single cell again, and is compared with the rung before it.
    pub(super) cells: u32,
}

const fn rung(name: &'static str, slots: u32, config: &'static [&'static str]) -> Rung {
    Rung { name, slots, config, durable: true, real: false, cells: 1 }
}

const FIFO: &str = "SchedulerType = \"sched/builtin\"";
/// Configuration of a partition for short jobs, with leases. The main figure of throughput is measured with it.
pub(super) const LEASES: &str = "[[partitions]]\nname = \"debug\"\nlease_jobs = 8\ndefault_time_s = 60\n";

/// Returns the number of leased jobs for each running one that [`LEASES`] configures, as text.
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
    /// Returns the rung's configuration as text.
    pub(super) fn config(&self) -> String {
        self.config.join("\n")
    }
}

/// Measures jobs per second on each rung, on real or emulated nodes; returns a row for each, with its gain over the
/// rung before.
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
