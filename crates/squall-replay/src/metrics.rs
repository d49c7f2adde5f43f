//! Metrics of a schedule: waiting times, slowdowns and utilisation.

use crate::swf::TraceJob;

/// Waiting times, slowdowns and utilisation of a schedule. Times are in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// Number of jobs in the schedule.
    pub jobs: usize,
    /// Sum of all jobs' waiting times, seconds.
    pub sum_wait: u64,
    /// Mean of all jobs' waiting times, seconds.
    pub mean_wait: f64,
    /// Median of all jobs' waiting times, seconds.
    pub median_wait: u64,
    /// 95th percentile of all jobs' waiting times, seconds.
    pub p95_wait: u64,
    /// Longest waiting time of a job, seconds.
    pub max_wait: u64,
    /// Mean bounded slowdown with a floor of 10 s: (wait + run) / max(run, 10), at least 1.
    pub avebsld10: f64,
    /// Mean bounded slowdown with a floor of 60 s: (wait + run) / max(run, 60), at least 1.
    pub avebsld60: f64,
    /// Time from the first submission to the last end, seconds.
    pub makespan: u64,
    /// Share of the machine that was busy during the makespan, from 0 to 1.
    pub util: f64,
    /// FNV-1a hash over number and start of each job: equal for equal schedules.
    pub starts_fnv64: u64,
}

impl Metrics {
    /// Returns the metrics of a schedule on a machine of `processors` processors.
    pub fn of(jobs: &[TraceJob], starts: &[u64], processors: u32) -> Self {
        let mut waits: Vec<u64> = starts.iter().zip(jobs).map(|(start, job)| start - job.submit).collect();
        let sum_wait: u64 = waits.iter().sum();
        let count = jobs.len().max(1) as f64;
        let bounded = |floor: u64| {
            let each = waits.iter().zip(jobs).map(|(wait, job)| {
                let slowdown = (wait + job.run) as f64 / job.run.max(floor) as f64;
                slowdown.max(1.0)
            });
            each.sum::<f64>() / count
        };
        let (avebsld10, avebsld60) = (bounded(10), bounded(60));
        let first = jobs.iter().map(|job| job.submit).min().unwrap_or_default();
        let last = starts.iter().zip(jobs).map(|(start, job)| start + job.run).max().unwrap_or_default();
        let work: f64 = jobs.iter().map(|job| job.run as f64 * f64::from(job.processors)).sum();
        let makespan = last - first;
        waits.sort_unstable();
        let share = |share: f64| {
            let at = (share * waits.len() as f64) as usize;
            waits.get(at.min(waits.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        Self {
            jobs: jobs.len(),
            sum_wait,
            mean_wait: sum_wait as f64 / count,
            median_wait: share(0.5),
            p95_wait: share(0.95),
            max_wait: waits.last().copied().unwrap_or_default(),
            avebsld10,
            avebsld60,
            makespan,
            util: work / (f64::from(processors) * makespan.max(1) as f64),
            starts_fnv64: hash(jobs, starts),
        }
    }
}

/// Returns the FNV-1a hash over (number, start) of each job, little-endian.
fn hash(jobs: &[TraceJob], starts: &[u64]) -> u64 {
    let numbers = starts.iter().zip(jobs).flat_map(|(start, job)| [job.id, *start as i64]);
    numbers
        .flat_map(i64::to_le_bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns a time series of at most `points` points: (seconds, processors in use, pending jobs).
pub fn course(jobs: &[TraceJob], starts: &[u64], points: usize) -> Vec<(u64, u32, u32)> {
    let mut changes: Vec<(u64, i64, i64)> = Vec::with_capacity(jobs.len() * 3);
    for (job, &start) in jobs.iter().zip(starts) {
        let held = i64::from(job.processors);
        changes.extend([(job.submit, 0, 1), (start, held, -1), (start + job.run, -held, 0)]);
    }
    changes.sort_unstable_by_key(|(time, ..)| *time);
    let (Some(first), Some(last)) = (changes.first().map(|c| c.0), changes.last().map(|c| c.0)) else {
        return Vec::new();
    };
    let step = ((last - first) / points.max(1) as u64).max(1);
    let (mut held, mut waiting, mut at) = (0, 0, 0);
    let mut course = Vec::new();
    for time in (first..=last).step_by(step as usize) {
        // Each point has the mean of the processors in use and the maximum of pending jobs in its interval.
        let (mut area, mut most, mut since) = (0, waiting, time);
        while let Some(&(when, more, queued)) = changes.get(at).filter(|(when, ..)| *when < time + step) {
            area += held * (when - since) as i64;
            since = when;
            held += more;
            waiting += queued;
            // A job that starts when it is submitted does not count as pending.
            if changes.get(at + 1).is_none_or(|next| next.0 > when) {
                most = most.max(waiting);
            }
            at += 1;
        }
        area += held * (time + step - since) as i64;
        course.push((time - first, (area / step as i64) as u32, most as u32));
    }
    course
}

#[cfg(test)]
mod tests {
    use super::{Metrics, course};
    use crate::swf::TraceJob;

    #[expect(clippy::float_cmp, reason = "these values are exact")]
    #[test]
    fn figures_by_hand() {
        let job = |id, submit, run, processors| TraceJob { id, submit, run, estimate: run, processors, spec: None };
        let jobs = [job(1, 100, 50, 4), job(2, 110, 5, 2), job(3, 120, 20, 2)];
        let starts = [100, 150, 150];
        let metrics = Metrics::of(&jobs, &starts, 4);
        assert_eq!((metrics.sum_wait, metrics.max_wait, metrics.median_wait, metrics.p95_wait), (70, 40, 30, 40));
        assert_eq!((metrics.makespan, metrics.util), (70, 250.0 / 280.0));
        assert_eq!(metrics.avebsld10, (1.0 + 4.5 + 2.5) / 3.0);
        assert_eq!(
            course(&jobs, &starts, 7),
            [(0, 4, 0), (10, 4, 1), (20, 4, 2), (30, 4, 2), (40, 4, 2), (50, 3, 2), (60, 2, 0), (70, 0, 0)]
        );
    }
}
