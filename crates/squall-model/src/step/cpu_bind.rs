//! `--cpu-bind`: the CPUs to which a step's tasks are bound, as the user writes it.

use crate::set::CoreSet;

/// Limit of a list of `--cpu-bind` in items. The CPU numbers in `map_cpu` must be below it, too.
const CPUS_MAX: usize = 4096;

/// Parsed value of `--cpu-bind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuBind {
    /// `verbose`: every task prints its CPUs on standard error.
    pub verbose: bool,
    /// How tasks are bound to CPUs.
    pub way: BindMethod,
}

/// Way of binding tasks that `--cpu-bind` selects. Lists are indexed by a task's position on its node, and start again
/// when the node has more tasks than entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindMethod {
    /// The option is not set: every task may use all of the step's CPUs.
    Unsaid,
    /// `none`: every task may use all of the step's CPUs, by request.
    None,
    /// `rank`: the n-th task gets the n-th CPU.
    Rank,
    /// `map_cpu:LIST`: kernel numbers of CPUs, one for each task.
    Map(Vec<usize>),
    /// `mask_cpu:LIST`: sets of CPUs by their kernel numbers, one for each task.
    Mask(Vec<CoreSet>),
    /// `threads`, `cores`, `sockets`, `ldoms`: as many CPUs as a task needs, rounded up to whole units.
    Units(Unit),
}

/// Hardware unit to which tasks are bound as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Hardware threads, which the kernel calls CPUs.
    Threads,
    /// Cores with all their threads.
    Cores,
    /// Whole sockets, with all their cores.
    Sockets,
    /// Memory domains (NUMA nodes).
    Domains,
}

impl CpuBind {
    /// Parses `[{quiet|verbose},]TYPE[:LIST]`. Err: the first word that is not valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut bind = Self { verbose: false, way: BindMethod::Unsaid };
        for word in words(text) {
            let (name, list) = word.split_once([':', '=']).unwrap_or((word, ""));
            match (name.to_ascii_lowercase().as_str(), list.is_empty()) {
                ("v" | "verbose", true) => bind.verbose = true,
                ("q" | "quiet", true) => bind.verbose = false,
                ("no" | "none", true) => bind.way = BindMethod::None,
                ("rank", true) => bind.way = BindMethod::Rank,
                ("thread" | "threads", true) => bind.way = BindMethod::Units(Unit::Threads),
                ("core" | "cores", true) => bind.way = BindMethod::Units(Unit::Cores),
                ("socket" | "sockets", true) => bind.way = BindMethod::Units(Unit::Sockets),
                ("ldom" | "ldoms", true) => bind.way = BindMethod::Units(Unit::Domains),
                ("map_cpu" | "mapcpu", false) => bind.way = BindMethod::Map(items(list, cpu).ok_or(word)?),
                ("mask_cpu" | "maskcpu", false) => {
                    bind.way = BindMethod::Mask(items(list, CoreSet::from_hex).ok_or(word)?);
                }
                _ => return Err(word.to_owned()),
            }
        }
        Ok(bind)
    }
}

/// Splits an option's value at commas. A comma before a digit belongs to a list and does not split.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(',') {
        if !text[at + 1..].starts_with(|c: char| c.is_ascii_digit()) {
            words.push(&text[start..at]);
            start = at + 1;
        }
    }
    words.push(&text[start..]);
    words.into_iter().filter(|word| !word.is_empty()).collect()
}

/// Parses a list of items, each of which may be followed by `*` and a number of repetitions. None: not valid, or too
/// long.
fn items<T: Clone>(list: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let mut all = Vec::new();
    for text in list.split(',') {
        let (item, times) = text.split_once('*').unwrap_or((text, "1"));
        let times = times.parse().ok().filter(|times| (1..=CPUS_MAX).contains(times) && all.len() < CPUS_MAX)?;
        all.extend(std::iter::repeat_n(read(item)?, times));
    }
    Some(all)
}

fn cpu(text: &str) -> Option<usize> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => usize::from_str_radix(hex, 16).ok()?,
        None => text.parse().ok()?,
    };
    (number < CPUS_MAX).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::{BindMethod, CpuBind};

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, word) in [
            ("corse", "corse"),
            ("v,map_cpu", "map_cpu"),
            ("map_cpu:", "map_cpu:"),
            ("map_cpu:1,2x", "map_cpu:1,2x"),
            ("map_cpu:9999999999999999999999", "map_cpu:9999999999999999999999"),
            ("map_cpu:1*0", "map_cpu:1*0"),
            ("map_cpu:0*4096,0*4096,0*4096", "map_cpu:0*4096,0*4096,0*4096"),
            ("mask_cpu:0xg", "mask_cpu:0xg"),
            ("cores:1", "cores:1"),
            ("q,rank_ldom", "rank_ldom"),
        ] {
            assert_eq!(CpuBind::parse(text), Err(word.to_owned()), "{text}");
        }
        assert_eq!(CpuBind::parse("").map(|bind| bind.way), Ok(BindMethod::Unsaid));
    }
}
