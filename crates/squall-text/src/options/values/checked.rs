//! Checks of values without effect, or with effect only for some: frequencies, sampling intervals, memory binding.
//! Errors are the lines that Slurm prints.

/// Checks `--acctg-freq`: seconds, or `task=30,energy=10,network=0,filesystem=0`.
pub fn sampling(text: &str) -> Result<(), String> {
    const KINDS: [&str; 4] = ["task", "energy", "network", "filesystem"];
    let seconds = |text: &str| text.parse::<u32>().is_ok();
    let known = |word: &str| match word.split_once('=') {
        Some((kind, interval)) => KINDS.contains(&kind.to_ascii_lowercase().as_str()) && seconds(interval),
        None => seconds(word),
    };
    if text.split(',').all(known) { Ok(()) } else { Err(format!("Invalid --acctg-freq specification: {text}")) }
}

/// Checks `--cpu-freq`: `P1[-P2[:GOVERNOR]]`, or a governor alone.
pub fn cpu_frequency(text: &str) -> Result<(), String> {
    const GOVERNORS: [&str; 6] = ["conservative", "ondemand", "performance", "powersave", "schedutil", "userspace"];
    let governor = |word: &str| GOVERNORS.contains(&word.to_ascii_lowercase().as_str());
    if governor(text) {
        return Ok(());
    }
    let unknown = |word: &str| format!("unrecognized --cpu-freq argument \"{word}\"");
    let (range, named) = text.split_once(':').map_or((text, None), |(range, named)| (range, Some(named)));
    let (first, last) = range.split_once('-').map_or((range, None), |(first, last)| (first, Some(last)));
    let low = frequency(first).ok_or_else(|| unknown(first))?;
    match (last, named) {
        (None, Some(named)) => return Err(format!("gov on cpu-frec ({named}) illegal without max")),
        (_, Some(named)) if !governor(named) => return Err(unknown(named)),
        _ => {}
    }
    let Some(last) = last else { return Ok(()) };
    let high = frequency(last).ok_or_else(|| unknown(last))?;
    if low.0 == high.0 && low.1 > high.1 {
        return Err(format!("min cpu-frec ({first}) must be < max cpu-freq ({last})"));
    }
    Ok(())
}

/// Reads a frequency: (true, index of the name in the list of names), or (false, kHz). None: malformed.
fn frequency(word: &str) -> Option<(bool, u32)> {
    const NAMES: [&str; 4] = ["low", "medium", "highm1", "high"];
    match NAMES.iter().position(|name| name.eq_ignore_ascii_case(word)) {
        Some(at) => Some((true, at as u32)),
        None => word.parse().ok().map(|khz| (false, khz)),
    }
}

/// Checks `--gpu-freq`: `[memory=]{low|medium|high|highm1|MHZ}`, several separated by commas, and `verbose`.
pub fn gpu_frequency(text: &str) -> Result<(), String> {
    let known = |word: &str| word == "verbose" || frequency(word.strip_prefix("memory=").unwrap_or(word)).is_some();
    let list = text.strip_prefix("gpu:").unwrap_or(text);
    if list.split(',').all(known) { Ok(()) } else { Err(format!("Invalid --gpu-freq argument: gpu:{text}")) }
}

/// Reads `--mem-bind`. Returns whether it requests another binding than the one that tasks have anyway.
pub fn memory_binding(text: &str) -> Result<bool, String> {
    let mut other = false;
    let mut in_list = false;
    for word in text.split(',') {
        let lower = word.to_ascii_lowercase();
        let (name, list) = lower.split_once([':', '=']).unwrap_or((&lower, ""));
        match name {
            "q" | "quiet" | "v" | "verbose" | "no" | "none" | "local" | "p" | "prefer" | "nosort" => in_list = false,
            "sort" | "rank" => (other, in_list) = (true, false),
            "map_mem" | "mapmem" | "mask_mem" | "maskmem" if !list.is_empty() => (other, in_list) = (true, true),
            // A further item of the list that an earlier word began.
            item if in_list && is_number(item) => {}
            _ => return Err(format!("unrecognized --mem-bind argument \"{word}\"")),
        }
    }
    Ok(other)
}

/// Returns whether the text is a number of hexadecimal digits, with or without `0x`.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    !digits.is_empty() && digits.len() <= 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::{cpu_frequency, gpu_frequency, memory_binding, sampling};

    #[test]
    fn values_are_checked_as_by_slurm() {
        for text in ["30", "task=5", "task=5,energy=10"] {
            assert!(sampling(text).is_ok(), "{text}");
        }
        for text in ["foo", "foo=5", "-1", "task=", ""] {
            assert_eq!(sampling(text), Err(format!("Invalid --acctg-freq specification: {text}")));
        }
        for text in ["low", "2000000", "low-high:OnDemand", "1-2", "performance", "highm1"] {
            assert!(cpu_frequency(text).is_ok(), "{text}");
        }
        for (text, line) in [
            ("foo", "unrecognized --cpu-freq argument \"foo\""),
            ("high-low", "min cpu-frec (high) must be < max cpu-freq (low)"),
            ("1:foo", "gov on cpu-frec (foo) illegal without max"),
            ("1-2:foo", "unrecognized --cpu-freq argument \"foo\""),
            ("2-1", "min cpu-frec (2) must be < max cpu-freq (1)"),
        ] {
            assert_eq!(cpu_frequency(text), Err(line.to_owned()), "{text}");
        }
        for text in ["low", "medium,memory=high", "700,verbose"] {
            assert!(gpu_frequency(text).is_ok(), "{text}");
        }
        assert_eq!(gpu_frequency("foo=1"), Err("Invalid --gpu-freq argument: gpu:foo=1".to_owned()));
    }

    #[test]
    fn bindings_that_are_not_done_are_told_from_those_that_are_nonsense() {
        for text in ["none", "local", "v,local", "quiet"] {
            assert_eq!(memory_binding(text), Ok(false), "{text}");
        }
        for text in ["rank", "map_mem:0,1", "v,mask_mem:0x1,0x2", "sort"] {
            assert_eq!(memory_binding(text), Ok(true), "{text}");
        }
        assert_eq!(memory_binding("foo"), Err("unrecognized --mem-bind argument \"foo\"".to_owned()));
    }
}
