//! Values that are numbers: whole numbers with Slurm's suffixes `k` and `m`, and node counts such as `2-4`.

/// Reads a number as Slurm does: digits, then optionally `k` (times 1024) or `m` (times 1048576). If `positive`, 0 is
/// an error. The error is Slurm's message.
pub fn count(option: &str, text: &str, positive: bool) -> Result<u32, String> {
    let invalid = || format!("Invalid numeric value \"{text}\" for --{option}.");
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1024),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let digits = digits.strip_prefix('+').unwrap_or(digits).trim_start();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid());
    }
    let value = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
    match value {
        Some(0) if positive => Err(invalid()),
        Some(n) if i32::try_from(n).is_ok() => Ok(n as u32),
        _ => Err(format!("Numeric argument ({text}) to big for --{option}.")),
    }
}

/// Reads a node count, `2`, `2-4` or `1k`, as minimum and maximum. Maximum None: only one number was given.
pub fn node_count(text: &str) -> Result<(u32, Option<u32>), String> {
    let invalid = |part: &str| format!("\"{part}\" is not a valid node count");
    let one = |part: &str| count("nodes", part, false).map_err(|_| invalid(part));
    match text.split_once('-') {
        Some((min, max)) => {
            let (low, high) = (one(min)?, one(max)?);
            if high < low {
                return Err(format!("Maximum node count {high} is less than minimum node count {low}"));
            }
            Ok((low, Some(high)))
        }
        None => Ok((one(text)?, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::{count, node_count};

    #[test]
    fn counts_as_slurm_reads_them() {
        for (text, value) in [("4", 4), ("1k", 1024), ("2K", 2048), ("1m", 1 << 20), ("+3", 3), ("007", 7)] {
            assert_eq!(count("ntasks", text, true), Ok(value), "{text}");
        }
        assert_eq!(count("mincpus", "0", false), Ok(0));
        for text in ["", "abc", "-5", "0", "4x", "k", "1.5", "4 "] {
            assert_eq!(
                count("ntasks", text, true),
                Err(format!("Invalid numeric value \"{text}\" for --ntasks.")),
                "{text}"
            );
        }
        assert!(count("ntasks", "99999999999999999999", true).is_err_and(|e| e.contains("to big for --ntasks")));
    }

    #[test]
    fn node_counts() {
        assert_eq!(node_count("2"), Ok((2, None)));
        assert_eq!(node_count("2-4"), Ok((2, Some(4))));
        assert_eq!(node_count("1k"), Ok((1024, None)));
        assert_eq!(node_count("x"), Err("\"x\" is not a valid node count".into()));
        assert_eq!(node_count("2-"), Err("\"\" is not a valid node count".into()));
        assert_eq!(node_count("4-2"), Err("Maximum node count 2 is less than minimum node count 4".into()));
    }
}
