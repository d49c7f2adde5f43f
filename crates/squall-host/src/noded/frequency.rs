//! Frequencies of CPUs, which steps ask for by `--cpu-freq`: set before a step starts, and as before when it has ended.
//!
//! The kernel sets the frequency of a group of CPUs (a policy). Of several steps on one policy, the last that started
//! and still runs is obeyed. A file has what each policy was before, so that a later daemon can set it back.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use squall_files::durable;
use squall_model::id::StepKey;
use squall_model::job::frequency::{Frequency, Level};
use tracing::error;

use crate::spool::parse_key;

/// Folder of the kernel's CPUs.
pub(super) const CPUS: &str = "/sys/devices/system/cpu";

/// Distance of two frequencies of a CPU that does not list those that it has, kHz.
const STEP_KHZ: u32 = 100_000;

/// The policies of this machine with a frequency that steps asked for.
pub(super) struct Frequencies {
    /// Folder of the kernel's CPUs: [`CPUS`], but for tests.
    cpus: PathBuf,
    /// File that has the policies while steps change them.
    file: PathBuf,
    /// By the policy's folder.
    policies: BTreeMap<PathBuf, Policy>,
}

/// A policy with a frequency that steps asked for.
#[derive(Debug, PartialEq, Eq)]
struct Policy {
    /// What it was before the first of the steps.
    before: Setting,
    /// The steps that still run, the last to start at the end, each with its `--cpu-freq`.
    steps: Vec<(StepKey, String)>,
}

/// What the kernel can be told about a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    governor: String,
    /// Lowest and highest frequency, kHz.
    low: u32,
    high: u32,
    /// Frequency under the governor `userspace`, kHz; 0: not known.
    speed: u32,
}

impl Frequencies {
    /// Reads what an earlier daemon has left in `file`.
    pub(super) fn open(cpus: &Path, file: PathBuf) -> Self {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let policies = text.lines().filter_map(read_line).collect();
        Self { cpus: cpus.to_owned(), file, policies }
    }

    /// Gives the CPUs of a step the frequency that it asks for by `asked`. The error is a text for users.
    pub(super) fn set(&mut self, key: StepKey, cpus: &[usize], asked: &str) -> Result<(), String> {
        let asked_for = Frequency::parse(asked)?;
        let mut changes = BTreeMap::new();
        for cpu in cpus {
            let folder = self.cpus.join(format!("cpu{cpu}")).join("cpufreq");
            // Several CPUs may have the same policy.
            let folder = folder.canonicalize().map_err(|_| format!("CPU {cpu} has none that can be set (cpufreq)"))?;
            if let Entry::Vacant(entry) = changes.entry(folder) {
                let folder = entry.key();
                let now = Setting::read(folder).ok_or_else(|| format!("CPU {cpu} does not show its own"))?;
                let before = self.policies.get(folder).map_or(now, |policy| policy.before.clone());
                let wanted = before.changed(folder, asked_for)?;
                entry.insert((before, wanted));
            }
        }
        for (folder, (before, _)) in &changes {
            let policy = || Policy { before: before.clone(), steps: Vec::new() };
            let steps = &mut self.policies.entry(folder.clone()).or_insert_with(policy).steps;
            steps.retain(|(other, _)| *other != key);
            steps.push((key, asked.to_owned()));
        }
        let mut result = self.save();
        for (folder, (_, wanted)) in &changes {
            result = result.and_then(|()| wanted.write(folder));
        }
        result.inspect_err(|_| self.release(key))
    }

    /// Sets back what a step that has ended had changed.
    pub(super) fn release(&mut self, key: StepKey) {
        self.keep(|other| other != key);
    }

    /// Sets back what the steps had changed for which `runs` is false.
    pub(super) fn keep(&mut self, runs: impl Fn(StepKey) -> bool) {
        let mut changed = false;
        self.policies.retain(|folder, policy| {
            let last = policy.steps.last().map(|(key, _)| *key);
            let count = policy.steps.len();
            policy.steps.retain(|(key, _)| runs(*key));
            changed |= policy.steps.len() < count;
            if policy.steps.last().map(|(key, _)| *key) != last {
                let asked = policy.steps.last().and_then(|(_, asked)| Frequency::parse(asked).ok());
                let setting = asked.and_then(|asked| policy.before.changed(folder, asked).ok());
                if let Err(e) = setting.as_ref().unwrap_or(&policy.before).write(folder) {
                    error!(error = e, "the frequency of CPUs could not be set back");
                }
            }
            !policy.steps.is_empty()
        });
        if changed && let Err(e) = self.save() {
            error!(error = e, "the frequencies of CPUs could not be noted");
        }
    }

    /// Writes the file, or removes it if no step has changed anything.
    fn save(&self) -> Result<(), String> {
        let mut text = String::new();
        for (folder, Policy { before, steps }) in &self.policies {
            let Setting { governor, low, high, speed } = before;
            let _ = write!(text, "{} {governor} {low} {high} {speed}", folder.display());
            for (key, asked) in steps {
                let _ = write!(text, " {key}={asked}");
            }
            text.push('\n');
        }
        let saved = if text.is_empty() && self.file.exists() {
            durable::remove(&self.file)
        } else if text.is_empty() {
            Ok(())
        } else {
            durable::write(&self.file, text.as_bytes(), 0o600)
        };
        saved.map_err(|e| format!("{}: {e}", self.file.display()))
    }
}

/// Reads a line of the file. None: it is damaged.
fn read_line(line: &str) -> Option<(PathBuf, Policy)> {
    let mut words = line.split(' ');
    let (folder, governor) = (PathBuf::from(words.next()?), words.next()?.to_owned());
    let mut number = || words.next()?.parse().ok();
    let before = Setting { governor, low: number()?, high: number()?, speed: number()? };
    let step = |word: &str| {
        let (key, asked) = word.split_once('=')?;
        Some((parse_key(key)?, asked.to_owned()))
    };
    Some((folder, Policy { before, steps: words.map(step).collect::<Option<_>>()? }))
}

impl Setting {
    /// Reads what a policy is now. None: the kernel does not show it.
    fn read(folder: &Path) -> Option<Self> {
        let word = |name: &str| Some(fs::read_to_string(folder.join(name)).ok()?.trim().to_owned());
        let number = |name: &str| word(name)?.parse().ok();
        Some(Self {
            governor: word("scaling_governor")?,
            low: number("scaling_min_freq")?,
            high: number("scaling_max_freq")?,
            speed: number("scaling_setspeed").unwrap_or(0),
        })
    }

    /// Returns this setting with what a step asks for. The error is a text for users.
    fn changed(&self, folder: &Path, asked: Frequency) -> Result<Self, String> {
        let list = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let governors = list("scaling_available_governors");
        let has = |governor: &str| governors.split_whitespace().any(|word| word == governor);
        let mut changed = self.clone();
        if let Some(governor) = asked.governor {
            if !has(governor) {
                return Err(format!("there is no governor {governor}, but {}", governors.trim()));
            }
            governor.clone_into(&mut changed.governor);
        }
        let Some(low) = asked.low else { return Ok(changed) };
        let known = known(folder).ok_or("the frequencies that it can have are not known")?;
        let low = khz(low, &known);
        match asked.high {
            Some(high) => (changed.low, changed.high) = (low, khz(high, &known)),
            // One frequency: by the governor for that, or by limits that leave no other.
            None if has("userspace") => {
                "userspace".clone_into(&mut changed.governor);
                (changed.low, changed.high) = (self.low.min(low), self.high.max(low));
                changed.speed = low;
            }
            None => (changed.low, changed.high) = (low, low),
        }
        if changed.low > changed.high {
            return Err(format!("{} kHz is not below {} kHz", changed.low, changed.high));
        }
        Ok(changed)
    }

    /// Tells the kernel. The error is a text for users.
    fn write(&self, folder: &Path) -> Result<(), String> {
        let write = |name: &str, value: &dyn std::fmt::Display| {
            let file = folder.join(name);
            fs::write(&file, format!("{value}\n")).map_err(|e| format!("{}: {e}", file.display()))
        };
        write("scaling_governor", &self.governor)?;
        // The kernel refuses limits of which the lower is above the higher, also in between.
        let now_high = Self::read(folder).map_or(0, |now| now.high);
        if self.low > now_high {
            write("scaling_max_freq", &self.high)?;
        }
        write("scaling_min_freq", &self.low)?;
        write("scaling_max_freq", &self.high)?;
        if self.governor == "userspace" && self.speed > 0 {
            write("scaling_setspeed", &self.speed)?;
        }
        Ok(())
    }
}

/// Returns the frequencies that a policy can have, kHz, in ascending order. None: the kernel does not show them.
fn known(folder: &Path) -> Option<BTreeSet<u32>> {
    let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let listed = text("scaling_available_frequencies");
    let listed: BTreeSet<u32> = listed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    if !listed.is_empty() {
        return Some(listed);
    }
    let bound = |name: &str| text(name).trim().parse::<u32>().ok();
    let (low, high) = (bound("cpuinfo_min_freq")?, bound("cpuinfo_max_freq")?);
    Some((low..high).step_by(STEP_KHZ as usize).chain([high]).collect())
}

/// Returns a frequency in kHz. Of the `known` ones, a number means the next that is not below it.
fn khz(level: Level, known: &BTreeSet<u32>) -> u32 {
    let at = |place: usize| known.iter().nth(place).copied().unwrap_or_default();
    let highest = known.len() - 1;
    match level {
        Level::Low => at(0),
        Level::Medium => at(highest / 2),
        Level::HighMinusOne => at(highest.saturating_sub(1)),
        Level::High => at(highest),
        Level::Khz(number) => known.range(number..).next().copied().unwrap_or_else(|| at(highest)),
    }
}

#[cfg(test)]
mod tests;
