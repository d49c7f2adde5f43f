//! Times in sacct's options: the formats of `--begin`, but in the past.

use jiff::{ToSpan, Zoned};
use squall_model::time::Time;

use crate::options::values::when::{model_time, when};

/// Parses a time. If a time of day, or a day without a year, would be in the future, the last such time in the past is
/// meant. None: malformed.
pub fn looking_back(text: &str, now: &Zoned) -> Option<Time> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("epoch") || text == "0" {
        return Some(Time(0));
    }
    let text = spelled_out(text);
    let at = when(&text, now)?;
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let at = if at <= *now || lower.starts_with("now") || lower.starts_with("tomorrow") || lower.starts_with("uts") {
        at
    } else if words.iter().all(|w| is_clock(w)) {
        at.checked_sub(1.day()).ok()?
    } else if words.first().is_some_and(|w| w.split(['/', '.']).count() == 2 && !w.contains('-')) {
        at.checked_sub(1.year()).ok()?
    } else {
        at
    };
    Some(model_time(at.timestamp()))
}

/// Rewrites formats that only sacct accepts as formats of `--begin`: `2026-11-21-08:00`, `11/21-08:00`, `1121`.
fn spelled_out(text: &str) -> String {
    if text.len() == 4 && text.bytes().all(|b| b.is_ascii_digit()) {
        return format!("{}/{}", &text[..2], &text[2..]);
    }
    match text.rsplit_once('-') {
        Some((date, clock))
            if clock.contains(':')
                && clock.bytes().all(|b| b.is_ascii_digit() || b == b':')
                && !date.starts_with("now") =>
        {
            format!("{date} {clock}")
        }
        _ => text.to_owned(),
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
            ("16:00", "2026-11-20T16:00:00"),
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
