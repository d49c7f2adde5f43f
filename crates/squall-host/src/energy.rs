//! Reads the energy that this machine uses: by the kernel's counters of processors and memory (RAPL), or by a file that
//! counts joules.

#[cfg(test)]
pub(crate) mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use squall_model::energy::EnergySource;

/// Microjoules of a joule.
const UJ: u64 = 1_000_000;

/// Counts the energy that this machine has used since it was opened.
#[derive(Debug)]
pub(crate) struct EnergyMeter {
    counters: Vec<Counter>,
    /// What was used and not taken yet, microjoules.
    used_uj: u64,
    every: Duration,
    /// When the counters are read again, so that none passes its end twice.
    next: Instant,
}

/// A file with a number that grows.
#[derive(Debug)]
struct Counter {
    file: PathBuf,
    /// Highest number, after which it begins at 0 again. None: it has none, and begins at 0 when it is set back.
    range_uj: Option<u64>,
    last_uj: u64,
}

impl EnergyMeter {
    /// Begins to count. `root`: the folder with `sys`, which is the root but for tests. Err: there is no counter, or it
    /// can't be read.
    pub(crate) fn open(root: &Path, source: &EnergySource) -> io::Result<Self> {
        let found = if source.file.is_empty() {
            zones(&root.join("sys/class/powercap"))?
        } else {
            vec![(root.join(source.file.trim_start_matches('/')), None)]
        };
        let open = |(file, range_uj): (PathBuf, Option<u64>)| {
            let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", file.display()));
            let last_uj = read(&file, range_uj.is_some()).map_err(named)?;
            Ok(Counter { file, range_uj, last_uj })
        };
        let counters = found.into_iter().map(open).collect::<io::Result<Vec<_>>>()?;
        if counters.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the kernel has no counters of processors"));
        }
        let every = Duration::from_secs(source.every_s.max(1).into());
        Ok(Self { counters, used_uj: 0, every, next: Instant::now() + every })
    }

    /// Reads the counters if it is time.
    pub(crate) fn keep_up(&mut self) {
        if self.next <= Instant::now() {
            self.read();
        }
    }

    fn read(&mut self) {
        self.next = Instant::now() + self.every;
        for counter in &mut self.counters {
            self.used_uj = self.used_uj.saturating_add(counter.more());
        }
    }

    /// Returns the whole joules that were used and not taken yet.
    pub(crate) fn used_j(&mut self) -> u64 {
        self.read();
        self.used_uj / UJ
    }

    /// Takes the whole joules that were used, and leaves the rest.
    pub(crate) fn take_j(&mut self) -> u64 {
        let whole = self.used_j();
        self.used_uj %= UJ;
        whole
    }
}

impl Counter {
    /// Returns by how much the counter has grown since the last call. One that can't be read now has not.
    fn more(&mut self) -> u64 {
        let Ok(now) = read(&self.file, self.range_uj.is_some()) else { return 0 };
        let last = std::mem::replace(&mut self.last_uj, now);
        match self.range_uj {
            _ if now >= last => now - last,
            Some(range) => range.saturating_sub(last).saturating_add(now),
            None => now,
        }
    }
}

/// Returns the counters of processors and of memory beside them, with their ranges. A processor's own counter has that of
/// its cores in it; that of the whole machine (`psys`) would count twice.
fn zones(powercap: &Path) -> io::Result<Vec<(PathBuf, Option<u64>)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(powercap)?.flatten() {
        let zone = entry.path();
        if !entry.file_name().as_encoded_bytes().starts_with(b"intel-rapl:") {
            continue;
        }
        let text = |name: &str| fs::read_to_string(zone.join(name)).unwrap_or_default();
        let name = text("name");
        if name.starts_with("package") || name.trim() == "dram" {
            let range = text("max_energy_range_uj").trim().parse().unwrap_or(u64::from(u32::MAX));
            found.push((zone.join("energy_uj"), Some(range)));
        }
    }
    found.sort();
    Ok(found)
}

/// Reads a counter, in microjoules. `micro`: that is what the file has; otherwise it has its unit, or joules.
fn read(file: &Path, micro: bool) -> io::Result<u64> {
    let text = fs::read_to_string(file)?;
    let number = if micro { text.trim().parse().ok() } else { microjoules(&text) };
    number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it has no number of joules"))
}

/// Reads a text such as `12345 J 1700000 us`, `12345` or `12.5 kJ`. None: it is no amount of energy.
fn microjoules(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace();
    let number: f64 = words.next()?.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)?;
    let unit = match words.next() {
        None | Some("J") => UJ as f64,
        Some("kJ") => 1e9,
        Some("mJ") => 1e3,
        Some("uJ") => 1.0,
        Some("Wh") => 3.6e9,
        Some(_) => return None,
    };
    Some((number * unit) as u64)
}
