//! Times as users see them: local time, in the format of SLURM_TIME_FORMAT.

use jiff::Timestamp;
use jiff::Zoned;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;
use squall_model::time::{Span, Time};
use squall_model::wire::client::AccountingQuery;

/// Format in which times are printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Style {
    /// ISO format: `2026-11-21T08:03:44`.
    Standard,
    /// The closer to now, the shorter: `08:03:44` today, `Ystday 08:03`, `21 Nov 08:03`, …
    Relative,
    /// A pattern of strftime.
    Pattern(String),
}

impl Style {
    /// Parses the value of SLURM_TIME_FORMAT.
    pub fn from_variable(value: Option<&str>) -> Self {
        match value {
            None | Some("" | "standard") => Self::Standard,
            Some("relative") => Self::Relative,
            Some(pattern) => Self::Pattern(pattern.to_owned()),
        }
    }
}

/// Format, time zone and current time for printing times.
#[derive(Clone, Debug)]
pub struct Clock {
    /// The user's time zone.
    pub zone: TimeZone,
    /// Format in which times are printed.
    pub style: Style,
    /// The controller's current time.
    pub now: Time,
}

impl Clock {
    /// Returns the clock for this machine's time zone, with times in ISO format.
    pub fn here(now: Time) -> Self {
        Self { zone: TimeZone::system(), style: Style::Standard, now }
    }

    /// Returns the beginning of the present day. None: there is none in this time zone.
    pub fn midnight(&self) -> Option<Time> {
        let now = self.local(self.now);
        let midnight = now.start_of_day().ok()?;
        u64::try_from(midnight.timestamp().as_second()).ok().map(Time::from_secs)
    }

    /// Completes the period of a query of past jobs (sacct(1), `--starttime` and `--state`). Without a start it begins
    /// at midnight; with jobs, at the beginning of accounting; with states, at the present moment. With states and without
    /// an end, it ends at its start. Both ends are whole seconds and belong to the period.
    pub fn complete_period(&self, query: &mut AccountingQuery) {
        if query.start.is_some() {
            query.end = if query.states.is_empty() { query.end } else { query.end.or(query.start) };
        } else if query.ids.is_empty() && query.states.is_empty() {
            query.start = self.midnight();
        } else if query.ids.is_empty() {
            query.start = Some(self.now);
            query.end.get_or_insert(self.now);
        }
        query.start = query.start.map(|start| Time::from_secs(start.secs()));
        query.end = query.end.map(|end| Time::from_secs(end.secs()) + Span(999_999));
    }

    /// Formats a time in the user's format.
    pub fn show(&self, time: Time) -> String {
        let at = self.local(time);
        match &self.style {
            Style::Standard => standard(&at),
            Style::Relative => relative(&at, &self.local(self.now)),
            Style::Pattern(pattern) => {
                BrokenDownTime::from(&at).to_string(pattern.as_str()).unwrap_or_else(|_| standard(&at))
            }
        }
    }

    /// Formats a time in the user's format. Returns `none` if `time` is None or 0.
    pub fn show_or(&self, time: Option<Time>, none: &str) -> String {
        match time {
            Some(time) if time.0 > 0 => self.show(time),
            _ => none.to_owned(),
        }
    }

    /// Returns the current time for the head of long listings: `Sat Nov 21 08:03:44 2026`.
    pub fn long_now(&self) -> String {
        self.local(self.now).strftime("%a %b %d %H:%M:%S %Y").to_string()
    }

    /// Converts a time to the user's time zone.
    pub fn local(&self, time: Time) -> Zoned {
        local(time, &self.zone)
    }
}

/// Converts a time to a time zone.
pub fn local(time: Time, zone: &TimeZone) -> Zoned {
    let seconds = i64::try_from(time.secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX).to_zoned(zone.clone())
}

fn standard(at: &Zoned) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

/// Formats a time in Slurm's relative style: the closer to `now`, the shorter.
fn relative(at: &Zoned, now: &Zoned) -> String {
    let days = at.date().since(now.date()).map_or(i64::from(i32::MAX), |span| i64::from(span.get_days()));
    let pattern = match days {
        -1 => "Ystday %H:%M",
        0 => "%H:%M:%S",
        1 => "Tomorr %H:%M",
        2..=6 => "%a %H:%M",
        -365..=365 => "%-d %b %H:%M",
        _ => "%-d %b %Y",
    };
    at.strftime(pattern).to_string()
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use squall_model::id::JobId;
    use squall_model::time::{Span, Time};
    use squall_model::wire::client::{AccountingQuery, JobRef, StateFilter};

    use super::{Clock, Style};

    fn show(style: Style, at: u64) -> String {
        Clock { zone: TimeZone::UTC, style, now: Time::from_secs(1_795_248_000) }.show(Time::from_secs(at))
    }

    #[test]
    fn the_period_of_past_jobs_is_slurms() {
        let now = Time::from_secs(1_795_248_000);
        let clock = Clock { zone: TimeZone::UTC, style: Style::Standard, now };
        let (midnight, before) = (Time::from_secs(1_795_219_200), Time::from_secs(1_795_000_000));
        let period = |states: &[StateFilter], ids: &[JobRef], start: Option<Time>, end: Option<Time>| {
            let (states, ids) = (states.to_vec(), ids.to_vec());
            let mut query = AccountingQuery { states, ids, start, end, ..AccountingQuery::default() };
            clock.complete_period(&mut query);
            (query.start, query.end)
        };
        let whole = |second: Time| Some(second + Span(999_999));
        let (running, job) = ([StateFilter::Running], [JobRef::Job(JobId(1))]);
        assert_eq!(period(&[], &[], None, None), (Some(midnight), None));
        assert_eq!(period(&[], &job, None, None), (None, None), "a job is found whenever it ran");
        assert_eq!(period(&running, &[], None, None), (Some(now), whole(now)), "what runs now");
        assert_eq!(period(&running, &[], None, Some(before)), (Some(now), whole(before)), "an error");
        assert_eq!(period(&running, &[], Some(before), None), (Some(before), whole(before)));
        // faults.md P7: a job that ended in the second in which sacct was called has ended.
        let late = now + Span(400_000);
        assert_eq!(period(&[StateFilter::Completed], &[], Some(late), Some(late)), (Some(now), whole(now)));
        assert_eq!(period(&[], &[], Some(before), None), (Some(before), None));
    }

    #[test]
    fn every_style() {
        let noon = 1_795_248_000;
        assert_eq!(show(Style::Standard, noon), "2026-11-21T08:00:00");
        assert_eq!(show(Style::Relative, noon), "08:00:00");
        assert_eq!(show(Style::Relative, noon - 86_400), "Ystday 08:00");
        assert_eq!(show(Style::Relative, noon + 86_400), "Tomorr 08:00");
        assert_eq!(show(Style::Relative, noon + 3 * 86_400), "Tue 08:00");
        assert_eq!(show(Style::Relative, noon - 10 * 86_400), "11 Nov 08:00");
        assert_eq!(show(Style::Relative, noon - 800 * 86_400), "12 Sep 2024");
        assert_eq!(show(Style::Pattern("%d.%m.".into()), noon), "21.11.");
        assert_eq!(show(Style::Pattern("%".into()), noon), "2026-11-21T08:00:00");
        assert_eq!(show(Style::Standard, u64::MAX), show(Style::Standard, u64::MAX));
    }
}
