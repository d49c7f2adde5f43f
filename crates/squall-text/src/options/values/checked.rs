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

/// Checks `--gpu-freq`: `[memory=]{low|medium|high|highm1|MHZ}`, several separated by commas, and `verbose`.
pub fn gpu_frequency(text: &str) -> Result<(), String> {
    const NAMES: [&str; 4] = ["low", "medium", "highm1", "high"];
    let frequency = |word: &str| word.parse::<u32>().is_ok() || NAMES.iter().any(|n| n.eq_ignore_ascii_case(word));
    let known = |word: &str| word == "verbose" || frequency(word.strip_prefix("memory=").unwrap_or(word));
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
    use super::{gpu_frequency, memory_binding, sampling};

    #[test]
    fn values_are_checked_as_by_slurm() {
        for text in ["30", "task=5", "task=5,energy=10"] {
            assert!(sampling(text).is_ok(), "{text}");
        }
        for text in ["foo", "foo=5", "-1", "task=", ""] {
            assert_eq!(sampling(text), Err(format!("Invalid --acctg-freq specification: {text}")));
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
