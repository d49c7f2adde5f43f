//! What a running job uses lately: the numbers behind bars in lists of jobs.

use squall_model::duration::format_short;
use squall_model::series::{IDLE_S, Series};

/// Most running steps of which a list asks; a job with more has no bars.
pub const STEPS_MAX: usize = 8;

/// Shortest time between two questions about the same job, seconds: what is asked is in the answer for minutes.
pub const EVERY_S: u64 = 60;

/// What the running steps of a job use together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lately {
    /// CPUs that were at work in the last minutes.
    pub cpus: f64,
    /// Resident memory, KiB.
    pub memory_kb: u64,
    /// For how long no step has used a CPU, seconds.
    pub idle_s: u64,
}

impl Lately {
    /// Sums up steps. A step without a series has not been measured yet. None: no step has.
    pub fn of<'a>(steps: impl IntoIterator<Item = Option<&'a Series>>) -> Option<Self> {
        let last = |values: Vec<Option<f64>>| values.into_iter().flatten().last().unwrap_or(0.0);
        let (mut sum, mut idle_s) = (None, u64::MAX);
        for step in steps {
            idle_s = idle_s.min(step.map_or(0, Series::idle_s));
            let Some(series) = step else { continue };
            let sum = sum.get_or_insert(Self { cpus: 0.0, memory_kb: 0, idle_s: 0 });
            sum.cpus += last(series.cpus());
            sum.memory_kb = sum.memory_kb.saturating_add(last(series.memory_kb()) as u64);
        }
        sum.map(|sum| Self { idle_s, ..sum })
    }

    /// Returns for how long the job is idle, for a mark: `25:00`. None: it is at work, or not idle for long.
    pub fn idle(&self) -> Option<String> {
        (self.idle_s >= IDLE_S).then(|| format_short(self.idle_s))
    }
}

#[cfg(test)]
mod tests {
    use squall_model::series::{Point, Series};

    use super::Lately;

    fn series(points: u32, cpu_ms: u64) -> Series {
        let milli = (cpu_ms / 320) as u32;
        let point =
            Point { samples: 32, cpu_ms, time_ms: 320_000, rss_kb: 32 << 10, high_milli: milli, ..<_>::default() };
        Series { point_s: 320, points: vec![point; points as usize], ..Series::default() }
    }

    #[test]
    fn a_job_is_as_idle_as_the_busiest_of_its_steps() {
        let (script, busy) = (series(5, 0), series(3, 480_000));
        let both = Lately::of([Some(&script), Some(&busy)]).expect("it was measured");
        assert_eq!((both.cpus, both.memory_kb, both.idle()), (1.5, 2048, None));
        let idle = Lately::of([Some(&script)]).expect("it was measured");
        assert_eq!((idle.cpus, idle.idle().as_deref()), (0.0, Some("26:40")));
        // A step that has just begun may be at work.
        assert_eq!(Lately::of([Some(&script), None]).and_then(|lately| lately.idle()), None);
        assert_eq!(Lately::of([None]), None);
        assert_eq!(Lately::of([Some(&series(3, 0))]).and_then(|lately| lately.idle()), None);
    }
}
