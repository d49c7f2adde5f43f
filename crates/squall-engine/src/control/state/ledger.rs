//! Usage of associations and QOS: resource seconds (of CPUs, MiB of memory, nodes or GPUs) that halve with each
//! half-life. An entry is recalculated only when something changes.

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};
use squall_model::config::Config;
use squall_model::policy::{Real, ResetPeriod};
use squall_model::time::Time;

/// Usage of one kind of resource by the number of the association or QOS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Ledger(#[n(0)] BTreeMap<u32, Usage>);

/// Usage of one kind of resource by one association or QOS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
struct Usage {
    /// Resource seconds used until time `at`, decayed.
    #[n(0)]
    cpu_s: Real,
    /// Run time of the jobs of the association or QOS until time `at`, seconds, decayed.
    #[n(1)]
    wall_s: Real,
    /// Amount of the resource, such as CPUs, that running jobs of the association or QOS hold, weighted by their QOS.
    #[n(2)]
    cpus: Real,
    /// Number of running jobs of the association or QOS.
    #[n(3)]
    jobs: u64,
    /// The time for which `cpu_s` and `wall_s` were calculated.
    #[n(4)]
    at: Time,
}

/// How usage decays with time: by half-life and by resets.
#[derive(Clone, Copy, Debug)]
pub struct Decay {
    half_life_s: f64,
    reset: ResetPeriod,
}

impl Decay {
    /// No decay: usage is never forgotten.
    pub const NEVER: Self = Self { half_life_s: 0.0, reset: ResetPeriod::None };

    /// Returns the decay that the configuration sets.
    pub fn of(config: &Config) -> Self {
        Self { half_life_s: config.priority_decay_half_life_s.0 as f64, reset: config.priority_usage_reset_period }
    }

    /// Returns two factors for a time of `seconds`: what is left at its end of a usage of 1, and the usage from a
    /// steady rate of 1 per second in that time.
    fn over(self, seconds: f64) -> (f64, f64) {
        if self.half_life_s <= 0.0 {
            return (1.0, seconds);
        }
        let left = halved(seconds / self.half_life_s);
        (left, self.half_life_s / std::f64::consts::LN_2 * (1.0 - left))
    }

    /// Returns when usage was last reset by the configured period, at or before `now`; None: it never is.
    fn forgotten(self, now: Time) -> Option<Time> {
        const DAY_S: u64 = 86_400;
        let day = now.secs() / DAY_S;
        let (year_day, month_day, month) = calendar(day);
        let first = match self.reset {
            ResetPeriod::None => return None,
            ResetPeriod::Daily => day,
            // Day 0 was a Thursday; weeks begin on Sundays.
            ResetPeriod::Weekly => day.saturating_sub((day + 4) % 7),
            ResetPeriod::Monthly => day - month_day,
            ResetPeriod::Quarterly => {
                let begun = (0..=month % 3).fold(day + 1, |day, _| (day - 1) - calendar(day - 1).1);
                begun.min(day)
            }
            ResetPeriod::Yearly => day - year_day,
        };
        Some(Time::from_secs(first * DAY_S))
    }
}

/// Returns days since the year began, days since the month began, and the month, all counted from 0. `day` counts from
/// 1970-01-01; Gregorian calendar.
fn calendar(day: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut left) = (1970, day);
    loop {
        let length = 365 + u64::from(leap(year));
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let year_day = left;
    for (month, days) in
        [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31].into_iter().enumerate()
    {
        if left < days {
            return (year_day, left, month as u64);
        }
        left -= days;
    }
    (year_day, left, 11)
}

/// Returns 2 to the power of -x. Every machine gets the same result to the last bit, as only roots and products are
/// used.
fn halved(x: f64) -> f64 {
    const EXPONENT_MAX: f64 = 1000.0;
    if x >= EXPONENT_MAX {
        return 0.0;
    }
    let whole = x.floor();
    let mut value = f64::from_bits((1023 - whole as u64) << 52);
    let (mut rest, mut root) = (x - whole, 0.5_f64);
    for _ in 0..50 {
        rest *= 2.0;
        root = root.sqrt();
        if rest >= 1.0 {
            rest -= 1.0;
            value *= root;
        }
    }
    value
}

impl Usage {
    fn settled(self, now: Time, decay: Decay) -> Self {
        let forgotten = decay.forgotten(now).filter(|time| *time > self.at);
        let since = forgotten.unwrap_or(self.at);
        let (left, grown) = decay.over(now.since(since).0 as f64 / 1e6);
        let before = |value: Real| if forgotten.is_some() { 0.0 } else { value.0 * left };
        Self {
            cpu_s: Real(before(self.cpu_s) + self.cpus.0 * grown),
            wall_s: Real(before(self.wall_s) + self.jobs as f64 * grown),
            at: self.at.max(now),
            ..self
        }
    }
}

impl Ledger {
    /// Returns the resource seconds and the run time in seconds that an association or QOS has used, decayed to `now`.
    pub fn used(&self, association: u32, now: Time, decay: Decay) -> (f64, f64) {
        self.0.get(&association).map_or((0.0, 0.0), |usage| {
            let Usage { cpu_s, wall_s, .. } = usage.settled(now, decay);
            (cpu_s.0, wall_s.0)
        })
    }

    /// Records that a job of an association or QOS starts to use `cpus` CPUs (or other resource), or stops.
    pub(in crate::control) fn run(&mut self, association: u32, cpus: f64, starts: bool, now: Time, decay: Decay) {
        let usage = self.0.entry(association).or_insert(Usage { at: now, ..Usage::default() });
        *usage = usage.settled(now, decay);
        if starts {
            usage.jobs += 1;
            usage.cpus.0 += cpus;
        } else {
            usage.jobs = usage.jobs.saturating_sub(1);
            usage.cpus.0 = if usage.jobs == 0 { 0.0 } else { (usage.cpus.0 - cpus).max(0.0) };
        }
    }

    /// Calculates all entries up to `now` and sets the resources that their jobs hold to 0. Entries for which `decay`
    /// returns None are dropped.
    pub(in crate::control) fn close(&mut self, now: Time, decay: impl Fn(u32) -> Option<Decay>) {
        self.0.retain(|id, usage| {
            let Some(decay) = decay(*id) else { return false };
            *usage = Usage { cpus: Real(0.0), jobs: 0, ..usage.settled(now, decay) };
            true
        });
    }

    /// Resets the usage of an association or QOS to 0 (`sacctmgr modify … set rawusage=0`).
    pub(in crate::control) fn forget(&mut self, association: u32, now: Time) {
        if let Some(usage) = self.0.get_mut(&association) {
            *usage = Usage { cpu_s: Real(0.0), wall_s: Real(0.0), at: now, ..*usage };
        }
    }
}

#[cfg(test)]
mod tests {
    use squall_model::config::Config;
    use squall_model::policy::{ResetPeriod, Seconds};
    use squall_model::time::Time;

    use crate::control::state::ledger::{Decay, Ledger, calendar, halved};

    fn decay(half_life_s: u64, reset: ResetPeriod) -> Decay {
        Decay::of(&Config {
            priority_decay_half_life_s: Seconds(half_life_s),
            priority_usage_reset_period: reset,
            ..Config::default()
        })
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-9)
    }

    #[test]
    fn halves_are_halves() {
        for x in [0.0, 0.25, 0.5, 1.0, 3.7, 60.125, 999.0] {
            assert!(near(halved(x), (-x).exp2()), "{x}");
        }
    }

    #[test]
    fn usage_grows_while_jobs_run_and_decays_after() {
        let (mut ledger, forever) = (Ledger::default(), decay(0, ResetPeriod::None));
        ledger.run(1, 4.0, true, Time::from_secs(100), forever);
        assert_eq!(ledger.used(1, Time::from_secs(110), forever), (40.0, 10.0));
        ledger.run(1, 4.0, false, Time::from_secs(120), forever);
        assert_eq!(ledger.used(1, Time::from_secs(500), forever), (80.0, 20.0));
        let hour = decay(3600, ResetPeriod::None);
        let (cpu_s, _) = ledger.used(1, Time::from_secs(120 + 7200), hour);
        assert!(near(cpu_s, 20.0), "{cpu_s}");
    }

    #[test]
    fn the_way_in_which_it_is_reckoned_does_not_matter() {
        let hour = decay(3600, ResetPeriod::None);
        let (mut often, mut once) = (Ledger::default(), Ledger::default());
        once.run(1, 2.0, true, Time::from_secs(0), hour);
        often.run(1, 2.0, true, Time::from_secs(0), hour);
        for t in 1..100 {
            often.run(1, 0.0, true, Time::from_secs(t * 60), hour);
        }
        let at = Time::from_secs(10_000);
        assert!(near(often.used(1, at, hour).0, once.used(1, at, hour).0));
    }

    #[test]
    fn what_is_forgotten_by_the_calendar() {
        let day = |n: u64| Time::from_secs(n * 86_400);
        assert_eq!(calendar(0), (0, 0, 0));
        // 2026-11-21, a Saturday.
        assert_eq!(calendar(20_778), (324, 20, 10));
        let forgotten = |reset| decay(0, reset).forgotten(day(20_778));
        assert_eq!(forgotten(ResetPeriod::Weekly), Some(day(20_772)));
        assert_eq!(forgotten(ResetPeriod::Monthly), Some(day(20_758)));
        assert_eq!(forgotten(ResetPeriod::Quarterly), Some(day(20_727)));
        assert_eq!(forgotten(ResetPeriod::Yearly), Some(day(20_454)));
        let mut ledger = Ledger::default();
        ledger.run(1, 1.0, true, day(20_777), decay(0, ResetPeriod::Daily));
        assert!(ledger.used(1, day(20_778), decay(0, ResetPeriod::Daily)).0.abs() < 1e-6);
        assert!((ledger.used(1, day(20_778), decay(0, ResetPeriod::Monthly)).0 - 86_400.0).abs() < 1e-6);
    }
}
