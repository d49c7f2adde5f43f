//! Values that are points in time: `now+1hour`, `16:00`, `tomorrow`, `teatime`, `2026-11-21T09:00`, `11/21/26 9am`.

use jiff::civil::{Date, Time as Clock};
use jiff::{Span, Timestamp, ToSpan, Zoned};
use squall_model::time::Time;

/// Hint for users whose value can't be read as a time.
pub const REMEDY: &str = "use now+COUNT[seconds|minutes|hours|days|weeks], HH:MM[:SS], YYYY-MM-DD[THH:MM[:SS]], \
     MM/DD[/YY], today, tomorrow, midnight, noon, fika or teatime";

/// Reads a point in time relative to this machine's clock and time zone. None: malformed.
pub fn when_here(text: &str) -> Option<Time> {
    when(text, &Zoned::now()).map(|at| model_time(at.timestamp()))
}

/// Converts a timestamp to microseconds since the epoch; times before the epoch give 0.
pub fn model_time(at: Timestamp) -> Time {
    Time(u64::try_from(at.as_microsecond()).unwrap_or(0))
}

/// Reads a point in time relative to `now`. A time of day that has passed means tomorrow. None: malformed.
pub fn when(text: &str, now: &Zoned) -> Option<Zoned> {
    let text = text.trim().to_ascii_lowercase();
    if let Some(offset) = text.strip_prefix("now") {
        return now.checked_add(offset_span(offset)?).ok();
    }
    if let Some(seconds) = text.strip_prefix("uts") {
        let at = Timestamp::from_second(seconds.parse().ok()?).ok()?;
        return Some(at.to_zoned(now.time_zone().clone()));
    }
    let mut found = Moment::default();
    let mut any = false;
    for word in dashed(&text).split_whitespace() {
        // As in Slurm, `tomorrow-noon` is two words, but a date with dashes is one.
        let words: Vec<&str> = if word.contains(|c: char| c.is_ascii_digit()) {
            named_first(word).into_iter().filter(|part| !part.is_empty()).collect()
        } else {
            word.split('-').filter(|part| !part.is_empty()).collect()
        };
        for word in words {
            found.word(word, now)?;
            any = true;
        }
    }
    if any { found.resolve(now) } else { None }
}

/// Separates a date from a time of day with a dash before it: `2026-11-21-08:00`, `11/21-08:00`.
fn dashed(text: &str) -> String {
    match text.rsplit_once('-') {
        Some((date, clock))
            if clock.contains(':')
                && clock.bytes().all(|b| b.is_ascii_digit() || b == b':')
                && date.starts_with(|c: char| c.is_ascii_digit()) =>
        {
            format!("{date} {clock}")
        }
        _ => text.to_owned(),
    }
}

/// Splits `tomorrow-9:00` or `todayt16:00` into the name of the day (empty: none) and the rest.
fn named_first(word: &str) -> [&str; 2] {
    let day = ["tomorrow", "today"].into_iter().find(|day| word.starts_with(day)).map_or(0, str::len);
    let (name, rest) = word.split_at(day);
    [name, if day > 0 { rest.trim_start_matches(['-', 't']) } else { rest }]
}

/// Reads the offset after `now`: `+1hour`, `-30` (seconds), `+ 2 days`, or nothing. None: malformed.
fn offset_span(text: &str) -> Option<Span> {
    let text: String = text.split_whitespace().collect();
    if text.is_empty() {
        return Some(Span::new());
    }
    let (sign, rest) = match text.as_bytes()[0] {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let count: i64 = rest[..digits].parse().ok()?;
    let seconds = match &rest[digits..] {
        "" => 1,
        unit if is_unit(unit, "seconds") => 1,
        unit if is_unit(unit, "minutes") => 60,
        unit if is_unit(unit, "hours") => 3600,
        unit if is_unit(unit, "days") => 86_400,
        unit if is_unit(unit, "weeks") => 604_800,
        _ => return None,
    };
    Span::new().try_seconds(count.checked_mul(seconds)?.checked_mul(sign)?).ok()
}

/// Returns whether `text` is a unit's name or an abbreviation of it: `h`, `hour`, `hours`.
fn is_unit(text: &str, unit: &str) -> bool {
    !text.is_empty() && unit.starts_with(text)
}

#[derive(Default)]
struct Moment {
    date: Option<Date>,
    clock: Option<Clock>,
}

impl Moment {
    fn word(&mut self, word: &str, now: &Zoned) -> Option<()> {
        let clock = |hour| Clock::new(hour, 0, 0, 0).ok();
        match word {
            "today" => self.date = Some(now.date()),
            "tomorrow" => self.date = Some(now.date().tomorrow().ok()?),
            "midnight" => self.clock = clock(0),
            "noon" => self.clock = clock(12),
            "elevenses" => self.clock = clock(11),
            "fika" => self.clock = clock(15),
            "teatime" => self.clock = clock(16),
            "am" | "pm" => self.clock = Some(half_day(self.clock?, word)?),
            _ => self.numbers(word, now)?,
        }
        Some(())
    }

    fn numbers(&mut self, word: &str, now: &Zoned) -> Option<()> {
        if let Some((date, clock)) = word.split_once('t') {
            self.date = Some(date_of(date, now)?);
            self.clock = Some(clock_of(clock)?);
        } else if word.contains(':') || word.ends_with("am") || word.ends_with("pm") {
            self.clock = Some(clock_of(word)?);
        } else {
            self.date = Some(date_of(word, now)?);
        }
        Some(())
    }

    fn resolve(self, now: &Zoned) -> Option<Zoned> {
        let clock = self.clock.unwrap_or(Clock::midnight());
        let at = self.date.unwrap_or(now.date()).to_datetime(clock).to_zoned(now.time_zone().clone()).ok()?;
        if self.date.is_none() && at < *now { at.checked_add(1.day()).ok() } else { Some(at) }
    }
}

/// Reads a time of day: `HH:MM`, `HH:MM:SS`, each optionally with am or pm, or `9am`. None: malformed.
fn clock_of(word: &str) -> Option<Clock> {
    for half in ["am", "pm"] {
        if let Some(rest) = word.strip_suffix(half) {
            return half_day(clock_of(rest)?, half);
        }
    }
    let mut fields = [0i8; 3];
    for (at, part) in word.split(':').enumerate() {
        *fields.get_mut(at)? = number(part)?;
    }
    Clock::new(fields[0], fields[1], fields[2], 0).ok()
}

fn half_day(clock: Clock, half: &str) -> Option<Clock> {
    let hour = match (clock.hour(), half) {
        (12, "am") => 0,
        (hour @ 1..=11, "pm") => hour + 12,
        (hour @ 1..=12, _) => hour,
        _ => return None,
    };
    Clock::new(hour, clock.minute(), clock.second(), 0).ok()
}

/// Reads a date: `YYYY-MM-DD`, `MM-DD`, `MM/DD`, `MM/DD/YY`, `MM/DD/YYYY`, `MM.DD.YY`, `MMDD` or `MMDDYY`. None:
/// malformed.
fn date_of(word: &str, now: &Zoned) -> Option<Date> {
    let parts: Vec<&str> = word.split(['-', '/', '.']).collect();
    match parts.as_slice() {
        [year, month, day] if word.contains('-') => Date::new(year_of(year)?, number(month)?, number(day)?).ok(),
        [month, day, year] => Date::new(year_of(year)?, number(month)?, number(day)?).ok(),
        [month, day] => day_of_year(month, day, now),
        [all] if all.len() == 4 && all.is_ascii() => day_of_year(&all[..2], &all[2..], now),
        [all] if all.len() == 6 && all.is_ascii() => {
            Date::new(year_of(&all[4..])?, number(&all[..2])?, number(&all[2..4])?).ok()
        }
        _ => None,
    }
}

/// Reads a day without a year. A day of this year that has passed means the next year.
fn day_of_year(month: &str, day: &str, now: &Zoned) -> Option<Date> {
    let date = Date::new(now.year(), number(month)?, number(day)?).ok()?;
    if date < now.date() { Date::new(now.year() + 1, date.month(), date.day()).ok() } else { Some(date) }
}

fn year_of(text: &str) -> Option<i16> {
    let year: i16 = number(text)?;
    if text.len() == 2 { Some(2000 + year) } else { Some(year).filter(|y| *y >= 1970) }
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) { None } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    use jiff::Zoned;

    use super::when;

    fn seen(text: &str) -> String {
        let now: Zoned = "2026-11-20T14:30:00+01:00[Europe/Berlin]".parse().expect("a time");
        when(text, &now).map_or("none".into(), |at| at.strftime("%Y-%m-%dT%H:%M:%S").to_string())
    }

    #[test]
    fn forms_of_times() {
        for (text, at) in [
            ("now", "2026-11-20T14:30:00"),
            ("now+1hour", "2026-11-20T15:30:00"),
            ("now+90", "2026-11-20T14:31:30"),
            ("now + 2 days", "2026-11-22T14:30:00"),
            ("now-5minutes", "2026-11-20T14:25:00"),
            ("now+1w", "2026-11-27T14:30:00"),
            ("16:00", "2026-11-20T16:00:00"),
            ("9:15", "2026-11-21T09:15:00"),
            ("4:00pm", "2026-11-20T16:00:00"),
            ("4:00 PM", "2026-11-20T16:00:00"),
            ("12am", "2026-11-21T00:00:00"),
            ("midnight", "2026-11-21T00:00:00"),
            ("noon", "2026-11-21T12:00:00"),
            ("fika", "2026-11-20T15:00:00"),
            ("teatime", "2026-11-20T16:00:00"),
            ("elevenses", "2026-11-21T11:00:00"),
            ("today", "2026-11-20T00:00:00"),
            ("tomorrow", "2026-11-21T00:00:00"),
            ("tomorrow noon", "2026-11-21T12:00:00"),
            ("noon-tomorrow", "2026-11-21T12:00:00"),
            ("tomorrow-teatime", "2026-11-21T16:00:00"),
            ("tomorrow-9:15", "2026-11-21T09:15:00"),
            ("tomorrowT09:15", "2026-11-21T09:15:00"),
            ("today-16:00", "2026-11-20T16:00:00"),
            ("noon-yesterday", "none"),
            ("2027-01-20T12:34:00", "2027-01-20T12:34:00"),
            ("2027-01-20t12:34", "2027-01-20T12:34:00"),
            ("2027-01-20", "2027-01-20T00:00:00"),
            ("2027-01-20 08:00", "2027-01-20T08:00:00"),
            ("01/20/27", "2027-01-20T00:00:00"),
            ("01/20/2027", "2027-01-20T00:00:00"),
            ("01.20.27", "2027-01-20T00:00:00"),
            ("012027", "2027-01-20T00:00:00"),
            ("12/24", "2026-12-24T00:00:00"),
            ("12/24-16:00", "2026-12-24T16:00:00"),
            ("1224", "2026-12-24T00:00:00"),
            ("2027-01-20-12:34:56", "2027-01-20T12:34:56"),
            ("012027-12:34", "2027-01-20T12:34:00"),
            ("01/02", "2027-01-02T00:00:00"),
            ("uts86400", "1970-01-02T01:00:00"),
        ] {
            assert_eq!(seen(text), at, "{text}");
        }
    }

    #[test]
    fn what_is_no_time() {
        for text in [
            "",
            " ",
            "x",
            "now+",
            "now+x",
            "nowish",
            "25:00",
            "12:60",
            "13pm",
            "2027-13-01",
            "1/2/3/4",
            "t",
            "12:00:00:00",
            "now+99999999999999999999",
        ] {
            assert_eq!(seen(text), "none", "{text}");
        }
    }
}
