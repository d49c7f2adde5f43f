//! Times in sacct's options: the formats of `--begin`, but in the past.

use jiff::Zoned;
use squall_model::time::Time;

use crate::options::values::when::{model_time, when};

/// Parses a time of the past, by Slurm's rules: a time of day is of today even if it is still to come, and a day without
/// a year is of the last year if its month is still to come. None: malformed.
pub fn looking_back(text: &str, now: &Zoned) -> Option<Time> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("epoch") || text == "0" {
        return Some(Time(0));
    }
    let at = when(text, now)?;
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let at = if lower.starts_with("now") {
        at
    } else if words.iter().all(|w| is_clock(w)) {
        now.date().to_datetime(at.time()).to_zoned(now.time_zone().clone()).ok()?
    } else if words.first().is_some_and(|w| is_day(w)) {
        let year = if at.month() > now.month() { now.year() - 1 } else { now.year() };
        at.with().year(year).build().ok()?
    } else {
        at
    };
    Some(model_time(at.timestamp()))
}

/// Returns whether a word is a day without a year, with or without a time: `11/21`, `11.21`, `1121`, `11/21-08:00`.
fn is_day(word: &str) -> bool {
    let date = word.split('-').next().unwrap_or(word);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match date.split_once(['/', '.']) {
        Some((month, day)) => digits(month) && digits(day),
        None => date.len() == 4 && digits(date) && word.matches('-').count() < 2,
    }
}

fn is_clock(word: &str) -> bool {
    let half = matches!(word, "am" | "pm" | "midnight" | "noon" | "elevenses" | "fika" | "teatime");
    half || ((word.contains(':') || word.ends_with("am") || word.ends_with("pm"))
        && !word.contains(['/', '-', '.', 't']))
}

#[cfg(test)]
mod tests {
    use jiff::Zoned;
    use jiff::tz::TimeZone;
    use proptest::prelude::{any, proptest};

    use super::looking_back;
    use crate::format::clock::local;

    fn now() -> Zoned {
        "2026-11-21T14:30:00+00:00[UTC]".parse().unwrap()
    }

    fn seen(text: &str) -> String {
        looking_back(text, &now())
            .map_or("none".into(), |t| local(t, &TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S").to_string())
    }

    #[test]
    fn forms_of_times() {
        for (text, at) in [
            ("now", "2026-11-21T14:30:00"),
            ("now-1hour", "2026-11-21T13:30:00"),
            ("now-2days", "2026-11-19T14:30:00"),
            ("2026-11-01", "2026-11-01T00:00:00"),
            ("2026-11-01T12:00", "2026-11-01T12:00:00"),
            ("2026-11-01T12:00:01", "2026-11-01T12:00:01"),
            ("1970-01-01-00:00:01", "1970-01-01T00:00:01"),
            ("08:00", "2026-11-21T08:00:00"),
            ("16:00", "2026-11-21T16:00:00"),
            ("midnight", "2026-11-21T00:00:00"),
            ("11/25", "2026-11-25T00:00:00"),
            ("12/01-10:00", "2025-12-01T10:00:00"),
            ("1120", "2026-11-20T00:00:00"),
            ("1224", "2025-12-24T00:00:00"),
            ("11/20", "2026-11-20T00:00:00"),
            ("11/20-10:00", "2026-11-20T10:00:00"),
            ("012026", "2026-01-20T00:00:00"),
            ("today", "2026-11-21T00:00:00"),
            ("midnight", "2026-11-21T00:00:00"),
            ("tomorrow", "2026-11-22T00:00:00"),
            ("2027-01-01", "2027-01-01T00:00:00"),
            ("epoch", "1970-01-01T00:00:00"),
        ] {
            assert_eq!(seen(text), at, "{text}");
        }
        for text in ["", "x", "2026-13-01", "25:00"] {
            assert_eq!(seen(text), "none", "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>(), near in "[0-9:/.T-]{0,20}") {
            let _ = (looking_back(&text, &now()), looking_back(&near, &now()));
        }
    }
}
