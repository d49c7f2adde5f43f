//! Figures of a workload that has run: utilisation over time, waits, efficiency, and broken rules. Pure.

/// A job that has run. Times in seconds since the first submission, by the cluster's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ran {
    pub(crate) nodes: u32,
    /// Whether the job took the whole machine: no other may start between its submission and its start.
    pub(crate) full: bool,
    pub(crate) submit_s: f64,
    pub(crate) start_s: f64,
    /// Time at which the controller recorded the job's end.
    pub(crate) end_s: f64,
    /// Time at which the job had durably left all nodes, so that waiting clients were told.
    pub(crate) done_s: f64,
    /// Time that the job's tasks ran, seconds.
    pub(crate) run_s: f64,
}

/// Returns the seconds from the first submission to the last durable end.
pub(crate) fn elapsed_s(runs: &[Ran]) -> f64 {
    runs.iter().fold(0.0, |last, run| run.done_s.max(last))
}

/// Returns quantiles (`shares`) of the jobs' overhead: milliseconds from start to durable end, without the run time.
pub(crate) fn overheads_ms(runs: &[Ran], shares: [f64; 3]) -> [f64; 3] {
    let mut all: Vec<f64> = runs.iter().map(|run| 1e3 * (run.done_s - run.start_s - run.run_s)).collect();
    all.sort_by(f64::total_cmp);
    shares.map(|share| {
        let place = (share * all.len() as f64).ceil() as usize;
        all.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
    })
}

/// Returns utilisation over time: (seconds, percent of `nodes` in use from then on).
pub(crate) fn utilisation(runs: &[Ran], nodes: u32) -> Vec<(f64, f64)> {
    let change = |run: &Ran| [(run.start_s, i64::from(run.nodes)), (run.end_s, -i64::from(run.nodes))];
    let mut changes: Vec<(f64, i64)> = runs.iter().flat_map(change).collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut points: Vec<(f64, f64)> = vec![(0.0, 0.0)];
    let mut used = 0;
    for (at, by) in changes {
        used += by;
        let point = (at, 100.0 * used as f64 / f64::from(nodes.max(1)));
        match points.last_mut().filter(|last| last.0.total_cmp(&at).is_eq()) {
            Some(last) => *last = point,
            None => points.push(point),
        }
    }
    points
}

/// Returns the mean of [`utilisation`] until the last end, in percent.
pub(crate) fn mean_utilisation(runs: &[Ran], nodes: u32) -> f64 {
    let busy: f64 = runs.iter().map(|run| (run.end_s - run.start_s) * f64::from(run.nodes)).sum();
    100.0 * busy / (elapsed_s(runs) * f64::from(nodes)).max(f64::MIN_POSITIVE)
}

/// Returns waits in seconds in ascending order, each with the percentage of jobs that waited no longer.
pub(crate) fn wait_cdf(runs: &[Ran]) -> Vec<(f64, f64)> {
    let mut waits: Vec<f64> = runs.iter().map(wait_s).collect();
    waits.sort_by(f64::total_cmp);
    let share = 100.0 / waits.len().max(1) as f64;
    std::iter::once((0.0, 0.0))
        .chain(waits.into_iter().zip(1_u32..).map(|(wait, n)| (wait, f64::from(n) * share)))
        .collect()
}

/// Returns the mean of the jobs' waits, seconds.
pub(crate) fn mean_wait_s(runs: &[Ran]) -> f64 {
    runs.iter().map(wait_s).sum::<f64>() / runs.len().max(1) as f64
}

fn wait_s(run: &Ran) -> f64 {
    (run.start_s - run.submit_s).max(0.0)
}

/// Counts jobs that started while a job for the whole machine was pending. A correct scheduler gives 0.
pub(crate) fn overtakers(runs: &[Ran]) -> usize {
    let waiting = |at: f64| runs.iter().any(|z| z.full && z.submit_s < at && at < z.start_s);
    runs.iter().filter(|run| !run.full && waiting(run.start_s)).count()
}

#[cfg(test)]
mod tests {
    use super::{Ran, elapsed_s, mean_utilisation, mean_wait_s, overheads_ms, overtakers, utilisation, wait_cdf};

    fn ran(nodes: u32, submit_s: f64, start_s: f64, end_s: f64) -> Ran {
        Ran { nodes, full: nodes == 10, submit_s, start_s, end_s, done_s: end_s, run_s: end_s - start_s }
    }

    #[test]
    fn overheads_are_what_is_not_run_time() {
        let late = |ms: u32| Ran { done_s: 3.0 + f64::from(ms) / 1e3, ..ran(1, 0.0, 1.0, 3.0) };
        let runs: Vec<Ran> = (1..=100).rev().map(late).collect();
        let found = overheads_ms(&runs, [0.5, 0.99, 1.0]).map(f64::round);
        assert_eq!(found.map(|ms| ms as u32), [50, 99, 100]);
        assert_eq!(overheads_ms(&[], [0.5, 0.99, 1.0]).map(|ms| ms as u32), [0, 0, 0]);
    }

    #[expect(clippy::float_cmp, reason = "these values are exact")]
    #[test]
    fn utilisation_and_waits() {
        let runs = [ran(5, 0.0, 1.0, 3.0), ran(5, 0.0, 3.0, 5.0), ran(2, 1.0, 1.0, 3.0)];
        assert_eq!(utilisation(&runs, 10), [(0.0, 0.0), (1.0, 70.0), (3.0, 50.0), (5.0, 0.0)]);
        assert_eq!(elapsed_s(&runs), 5.0);
        assert!((mean_utilisation(&runs, 10) - 48.0).abs() < 1e-9);
        let cdf = wait_cdf(&runs);
        assert_eq!(cdf.iter().map(|p| p.0).collect::<Vec<_>>(), [0.0, 0.0, 1.0, 3.0]);
        assert!((cdf[3].1 - 100.0).abs() < 1e-9);
        assert!((mean_wait_s(&runs) - 4.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn who_overtakes_a_job_for_the_whole_machine_is_seen() {
        let z = ran(10, 2.0, 6.0, 7.0);
        assert_eq!(overtakers(&[z, ran(5, 0.0, 1.0, 6.0), ran(5, 0.0, 7.0, 8.0)]), 0);
        assert_eq!(overtakers(&[z, ran(5, 0.0, 1.0, 6.0), ran(5, 0.0, 2.5, 3.0)]), 1);
    }
}
