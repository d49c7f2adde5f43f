//! Durations and amounts of memory as users write and read them.

use std::fmt::{self, Write};

/// Error of reading a time limit given as a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text of the time limit is empty.
    #[error("it is empty")]
    Empty,
    /// The text has none of the forms `[days-]hours[:minutes[:seconds]]`, `minutes[:seconds]` and
    /// `hours:minutes:seconds`.
    #[error(
        "it is not minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes or days-hours:minutes:seconds"
    )]
    Malformed,
    /// The time limit has more minutes than Slurm can store (32 bits).
    #[error("it is too large")]
    TooLarge,
}

/// Reads a time limit (`m`, `m:s`, `h:m:s`, `d-h`, `d-h:m`, `d-h:m:s`) and returns it in seconds. None: UNLIMITED,
/// INFINITE or -1. Time limits of jobs are whole minutes: callers round with [`whole_minutes`].
pub fn parse_limit(text: &str) -> Result<Option<u64>, DurationError> {
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    if text == "-1" || text.eq_ignore_ascii_case("unlimited") || text.eq_ignore_ascii_case("infinite") {
        return Ok(None);
    }
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(number(days)?), clock),
        None => (None, text),
    };
    let mut fields = [0; 3];
    let mut count = 0;
    for field in clock.split(':') {
        *fields.get_mut(count).ok_or(DurationError::Malformed)? = number(field)?;
        count += 1;
    }
    let units: [u64; 3] = match (days.is_some(), count) {
        (true, _) | (false, 3) => [3600, 60, 1],
        (false, _) => [60, 1, 0],
    };
    let mut total = days.unwrap_or(0).checked_mul(86_400);
    for (field, unit) in fields.into_iter().zip(units) {
        total = total.and_then(|sum| sum.checked_add(field.checked_mul(unit)?));
    }
    // Slurm's limit: minutes in 32 bits.
    total.filter(|s| *s / 60 < u64::from(u32::MAX - 1)).map(Some).ok_or(DurationError::TooLarge)
}

fn number(text: &str) -> Result<u64, DurationError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(DurationError::Malformed);
    }
    text.parse().map_err(|_| DurationError::TooLarge)
}

/// Rounds a number of seconds up to whole minutes and returns it in seconds, as Slurm does for time limits of jobs.
pub fn whole_minutes(seconds: u64) -> u64 {
    seconds.div_ceil(60).saturating_mul(60)
}

/// Formats seconds as `[D-]HH:MM:SS`, as sacct and scontrol do.
pub fn format_elapsed(seconds: u64) -> String {
    let (d, h, m, s) = split(seconds);
    if d > 0 { format!("{d}-{h:02}:{m:02}:{s:02}") } else { format!("{h:02}:{m:02}:{s:02}") }
}

/// Formats seconds as `M:SS`, `H:MM:SS` or `D-HH:MM:SS`, as squeue and sinfo do.
pub fn format_short(seconds: u64) -> String {
    Short(seconds).to_string()
}

/// A number of seconds, displayed in the format of [`format_short`].
#[derive(Clone, Copy, Debug)]
pub struct Short(pub u64);

impl fmt::Display for Short {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match split(self.0) {
            (0, 0, 0, s @ 0..=9) => {
                to.write_str("0:0")?;
                to.write_char(char::from(b'0' + s as u8))
            }
            (0, 0, m, s) => write!(to, "{m}:{s:02}"),
            (0, h, m, s) => write!(to, "{h}:{m:02}:{s:02}"),
            (d, h, m, s) => write!(to, "{d}-{h:02}:{m:02}:{s:02}"),
        }
    }
}

/// Formats a time limit in seconds as scontrol and sacct do: `[D-]HH:MM:SS`, rounded up to minutes, or `UNLIMITED`.
pub fn format_limit(seconds: Option<u64>) -> String {
    seconds.map_or_else(|| "UNLIMITED".to_owned(), |s| format_elapsed(whole_minutes(s)))
}

fn split(seconds: u64) -> (u64, u64, u64, u64) {
    (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

/// Error of reading an amount of memory given as a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryError {
    /// The text is not a number with an optional unit.
    Malformed,
    /// The amount has more MiB than 64 bits can hold.
    TooLarge,
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "it is not a number followed by K, M, G or T",
            Self::TooLarge => "it is too large",
        })
    }
}

impl std::error::Error for MemoryError {}

/// Reads an amount of memory and returns it in MiB: a whole number with K, M, G, T or P (either case, `B` or `iB` may
/// follow); M if no unit is given. Kilobytes are rounded up.
pub fn parse_memory_mb(text: &str) -> Result<u64, MemoryError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (value, unit) = text.split_at(digits);
    if value.is_empty() {
        return Err(MemoryError::Malformed);
    }
    let value: u64 = value.parse().map_err(|_| MemoryError::TooLarge)?;
    let shift = match unit.to_ascii_uppercase().as_str() {
        "K" | "KB" | "KIB" => return Ok(value.div_ceil(1024)),
        "" | "M" | "MB" | "MIB" => 0,
        "G" | "GB" | "GIB" => 10,
        "T" | "TB" | "TIB" => 20,
        "P" | "PB" | "PIB" => 30,
        _ => return Err(MemoryError::Malformed),
    };
    value.checked_mul(1 << shift).ok_or(MemoryError::TooLarge)
}

/// Formats MiB as Slurm does, in the largest unit that divides them: `512M`, `1G`, `1536M`; `0`.
pub fn format_memory_mb(mb: u64) -> String {
    format_units(mb, 'M')
}

/// Formats KiB as Slurm does, in the largest unit that divides them: `900K`, `1M`; `0`.
pub fn format_memory_kb(kb: u64) -> String {
    format_units(kb, 'K')
}

fn format_units(value: u64, unit: char) -> String {
    const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
    if value == 0 {
        return "0".to_owned();
    }
    let mut value = value;
    let mut at = UNITS.iter().position(|u| *u == unit).unwrap_or(0);
    while value.is_multiple_of(1024) && at + 1 < UNITS.len() {
        value /= 1024;
        at += 1;
    }
    format!("{value}{}", UNITS[at])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{
        DurationError, MemoryError, format_elapsed, format_limit, format_memory_kb, format_memory_mb, format_short,
        parse_limit, parse_memory_mb, whole_minutes,
    };

    #[test]
    fn every_form_of_a_limit() {
        for (text, seconds) in [
            ("1", 60),
            ("90", 5400),
            ("0:30", 30),
            ("1:30", 90),
            ("1:00:00", 3600),
            ("2-0", 172_800),
            ("2-12", 216_000),
            ("1-2:3", 93_780),
            ("1-02:03:04", 93_784),
            ("0", 0),
        ] {
            assert_eq!(parse_limit(text), Ok(Some(seconds)), "{text}");
        }
        for text in ["UNLIMITED", "unlimited", "INFINITE", "infinite", "-1"] {
            assert_eq!(parse_limit(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn what_is_no_limit() {
        assert_eq!(parse_limit(""), Err(DurationError::Empty));
        for text in ["x", "1:", ":1", "1-", "-5", "1:2:3:4", "1-2:3:4:5", "1-2-3", "1h", " 5", "1.5", "+5"] {
            assert_eq!(parse_limit(text), Err(DurationError::Malformed), "{text}");
        }
        for text in ["99999999999999999999", "18446744073709551615", "4294967294"] {
            assert_eq!(parse_limit(text), Err(DurationError::TooLarge), "{text}");
        }
    }

    #[test]
    fn times_print_as_slurm_prints_them() {
        assert_eq!(format_elapsed(0), "00:00:00");
        assert_eq!(format_elapsed(93_784), "1-02:03:04");
        assert_eq!(format_short(5), "0:05");
        assert_eq!(format_short(3600), "1:00:00");
        assert_eq!(format_short(93_784), "1-02:03:04");
        assert_eq!(format_limit(None), "UNLIMITED");
        assert_eq!(format_limit(Some(61)), "00:02:00");
        assert_eq!(whole_minutes(61), 120);
        assert_eq!(whole_minutes(60), 60);
    }

    #[test]
    fn memory_in_every_unit() {
        for (text, mb) in
            [("1", 1), ("1K", 1), ("1025k", 2), ("500M", 500), ("2g", 2048), ("1T", 1 << 20), ("4GB", 4096)]
        {
            assert_eq!(parse_memory_mb(text), Ok(mb), "{text}");
        }
        for text in ["", "G", "-1", "1.5G", "1X", "1GG", " 1"] {
            assert_eq!(parse_memory_mb(text), Err(MemoryError::Malformed), "{text}");
        }
        assert_eq!(parse_memory_mb("99999999999999P"), Err(MemoryError::TooLarge));
        assert_eq!(format_memory_mb(0), "0");
        assert_eq!(format_memory_mb(1000), "1000M");
        assert_eq!(format_memory_mb(1024), "1G");
        assert_eq!(format_memory_mb(1536), "1536M");
        assert_eq!(format_memory_kb(2048), "2M");
        assert_eq!(format_memory_kb(2047), "2047K");
    }

    proptest! {
        #[test]
        fn limits_come_back(seconds in 0_u64..4_000_000_000) {
            prop_assert_eq!(parse_limit(&format_elapsed(seconds)), Ok(Some(seconds)));
            prop_assert_eq!(parse_limit(&format_short(seconds)), Ok(Some(seconds)));
        }

        #[test]
        fn memory_comes_back(mb in 0_u64..1 << 40) {
            prop_assert_eq!(parse_memory_mb(&format_memory_mb(mb)), Ok(mb));
        }

        #[test]
        fn hostile_text_is_an_answer(text in any::<String>(), near in "[0-9:-]{0,30}[KMGTPB]{0,2}") {
            for text in [text, near] {
                let _ = (parse_limit(&text), parse_memory_mb(&text));
            }
        }
    }
}
