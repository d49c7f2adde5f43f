//! Lines of several settings (nodes, partitions): which keys they have, and the defaults of `NAME=DEFAULT` lines.

use std::collections::BTreeMap;
use std::fmt::Display;

use squall_model::config::similar;

use super::keys::{Rule, named, read, same};
use super::parse::{Origin, Pair};
use super::report::{Fate, Report};

/// Why a value is moot that Squall lacks but always has.
pub(super) const ALWAYS: &str = "it is so anyway";

/// Settings of a line by their names in Slurm's spelling, with the values as they are written.
pub(super) type Settings = BTreeMap<&'static str, String>;

/// A line of several settings that begins with a name, as `NodeName=n[1-4] CPUs=8`.
pub(super) struct ConfigLine<'a> {
    pub(super) origin: &'a Origin,
    /// The first setting, as `NodeName=n[1-4]`.
    pub(super) head: String,
    pub(super) pairs: &'a [Pair],
}

impl<'a> ConfigLine<'a> {
    /// Returns the line with these settings; the first one names it.
    pub(super) fn new(origin: &'a Origin, pairs: &'a [Pair]) -> Self {
        let head = pairs.first().map(|pair| format!("{}={}", pair.key, pair.value)).unwrap_or_default();
        Self { origin, head, pairs: pairs.get(1..).unwrap_or_default() }
    }

    /// Adds a row to the report about a key of the line, or about the whole line if `key` is empty.
    pub(super) fn say(&self, report: &mut Report, key: &str, fate: Fate, text: impl Into<String>) {
        let blank = if key.is_empty() { "" } else { " " };
        report.add(self.origin, format!("{}{blank}{key}", self.head), fate, text);
    }

    /// Reads the line's settings by rows, and those that are the same in `table` of `squall.toml`. Reports those that are
    /// not taken. Returns those that are, and those with the rule [`Rule::Elsewhere`], which the caller must report
    /// itself.
    pub(super) fn settings(&self, keys: &'static [(&'static str, Rule)], table: &str, report: &mut Report) -> Settings {
        let mut settings = Settings::new();
        for pair in self.pairs {
            let Some((name, rule)) = named(keys, table, &pair.key) else {
                let names: Vec<&str> = keys.iter().copied().chain(same(table)).map(|(name, _)| name).collect();
                self.say(report, &pair.key, Fate::Unknown, unknown(&pair.key, &names));
                continue;
            };
            match rule.outcome(name, &pair.value) {
                Some(Ok(outcome)) if outcome.set.is_empty() => self.say(report, name, outcome.fate, outcome.text),
                Some(Err(problem)) => self.say(report, name, Fate::Wrong, problem),
                _ => drop(settings.insert(name, pair.value.clone())),
            }
        }
        settings
    }
}

/// Returns the fields that a table takes from settings: keys of `squall.toml` with their values as TOML.
pub(super) fn fields(
    keys: &'static [(&'static str, Rule)],
    table: &str,
    settings: &Settings,
) -> Vec<(&'static str, String)> {
    let taken = settings.iter().filter_map(|(name, value)| match named(keys, table, name)?.1 {
        Rule::Same(section, key) => {
            Some((if key.slurm.contains(name) { *name } else { key.name }, read(section, key, value).ok()?))
        }
        Rule::Taken(key, read) => Some((key, read(value).ok()?)),
        _ => None,
    });
    taken.collect()
}

/// Returns the fields without those of a key that stands again behind them.
pub(super) fn once(fields: Vec<(&'static str, String)>) -> Vec<(&'static str, String)> {
    let later: Vec<&str> = fields.iter().map(|(key, _)| *key).collect();
    let last = |(at, field): (usize, (&'static str, String))| (!later[at + 1..].contains(&field.0)).then_some(field);
    fields.into_iter().enumerate().filter_map(last).collect()
}

/// Returns what the report says of an unknown key.
pub(super) fn unknown(key: &str, names: &[&str]) -> String {
    let meant = similar(key, names).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    format!("Slurm has no key `{key}` here{meant}")
}

/// Returns fields as the report shows them: `CPUs = 4, Weight = 2`.
pub(super) fn shown(fields: &[(impl Display, String)]) -> String {
    fields.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ")
}
