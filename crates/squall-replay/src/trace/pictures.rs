//! Pictures of a replayed trace: busy processors, pending jobs, waits, and a Gantt chart of its busiest days.

use std::collections::BTreeMap;
use std::path::Path;

use squall_text::picture::{Axis, Chart, Series, Stroke};

use super::Run;
use crate::{Trace, course, write_picture};

/// Maximum number of points of a line in a picture.
const POINTS: usize = 600;
/// Traces longer than this many days show a moving average of the utilisation.
const SMOOTH_DAYS: u64 = 14;
/// Number of points over which the utilisation of a long trace is averaged.
const WINDOW: usize = 13;
/// Number of days that a Gantt chart shows.
const GANTT_DAYS: u64 = 3;
const DAY_S: u64 = 86_400;
/// Traces shorter than this many days are shown in hours.
const HOURS_DAYS: u64 = 3;
/// Maximum number of rows of a Gantt chart. Of a larger machine this many processors are shown, evenly spread.
const ROWS: u32 = 300;
/// Number of different colours of boxes in a Gantt chart.
const COLORS: usize = 8;

/// Draws the pictures into a folder.
pub(super) fn draw(trace: &Trace, runs: &[Run], folder: &Path) -> Result<(), String> {
    let processors = f64::from(trace.processors.unwrap_or(1));
    let courses: Vec<_> = runs.iter().map(|run| course(&trace.jobs, &run.schedule.starts, POINTS)).collect();
    let span = courses.iter().flatten().map(|at| at.0).max().unwrap_or_default();
    let (unit, unit_s) = if span < HOURS_DAYS * DAY_S { ("hours", 3600.0) } else { ("days", DAY_S as f64) };
    let lines = |stroke, of: &dyn Fn(&(u64, u32, u32)) -> f64| -> Vec<Series> {
        let each = runs.iter().zip(&courses).enumerate();
        let points = |course: &Vec<(u64, u32, u32)>| course.iter().map(|at| (at.0 as f64 / unit_s, of(at))).collect();
        each.map(|(color, (run, course))| Series { name: run.policy.into(), stroke, color, points: points(course) })
            .collect()
    };
    let chart = |title: &str, x: Axis, y: &str, series| Chart {
        title: title.into(),
        x,
        y: Axis { label: y.into(), log: false },
        series,
    };
    let mut busy = lines(Stroke::Line, &|at| f64::from(at.1) / processors);
    let title = if span > SMOOTH_DAYS * DAY_S {
        for series in &mut busy {
            series.points = smoothed(&series.points);
        }
        format!(
            "Utilisation, moving average of {:.1} days",
            span as f64 * WINDOW as f64 / (POINTS as u64 * DAY_S) as f64
        )
    } else {
        "Utilisation".to_owned()
    };
    write_picture(&chart(&title, linear(unit), "share of processors in use", busy).svg(), folder, "utilisation")?;
    let queue = lines(Stroke::Steps, &|at| f64::from(at.2));
    write_picture(&chart("Pending jobs", linear(unit), "jobs", queue).svg(), folder, "queue")?;
    let waits = runs.iter().enumerate().map(|(color, run)| cumulated(trace, run, color)).collect();
    let seconds = Axis { label: "wait, seconds".into(), log: true };
    let title = "Waiting times, cumulative distribution";
    write_picture(&chart(title, seconds, "share of jobs that waited no longer", waits).svg(), folder, "waits")?;
    for run in runs {
        let (from, boxes) = gantt(trace, run);
        let day = (from - trace.jobs.first().map_or(from, |job| job.submit)) / DAY_S + 1;
        let title =
            format!("Gantt chart, {}: days {day} to {}, around the longest queue", run.policy, day + GANTT_DAYS);
        let gantt = chart(&title, linear(&format!("hours from day {day} on")), "processor", boxes);
        write_picture(&gantt.svg(), folder, &format!("gantt-{}", run.policy))?;
    }
    Ok(())
}

/// Returns points with the average of `WINDOW` points around each.
fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let around = |at: usize| &points[at.saturating_sub(WINDOW / 2)..points.len().min(at + WINDOW / 2 + 1)];
    let mean = |window: &[(f64, f64)]| window.iter().map(|point| point.1).sum::<f64>() / window.len() as f64;
    points.iter().enumerate().map(|(at, point)| (point.0, mean(around(at)))).collect()
}

fn linear(label: &str) -> Axis {
    Axis { label: label.into(), log: false }
}

/// Returns the share of jobs (0 to 1) that waited no longer than a given time, as a function of this time in seconds.
fn cumulated(trace: &Trace, run: &Run, color: usize) -> Series {
    let mut waits: Vec<u64> =
        run.schedule.starts.iter().zip(&trace.jobs).map(|(start, job)| start - job.submit).collect();
    waits.sort_unstable();
    let last = waits.len() - 1;
    let points = (0..=POINTS).map(|at| at * last / POINTS);
    let points = points.map(|at| (waits[at].max(1) as f64, (at + 1) as f64 / waits.len() as f64)).collect();
    Series { name: run.policy.into(), stroke: Stroke::Line, color, points }
}

/// Returns the time at which the chart begins, and the boxes of jobs on processors in the days around the longest queue.
fn gantt(trace: &Trace, run: &Run) -> (u64, Vec<Series>) {
    let first = trace.jobs.first().map_or(0, |job| job.submit);
    let course = course(&trace.jobs, &run.schedule.starts, POINTS);
    let peak = course.iter().max_by_key(|at| at.2).map_or(0, |at| first + at.0);
    let from = peak.saturating_sub(GANTT_DAYS * DAY_S / 2).max(first);
    let until = from + GANTT_DAYS * DAY_S;
    let mut series: Vec<Series> = (0..COLORS)
        .map(|color| Series { name: String::new(), stroke: Stroke::Boxes, color, points: Vec::new() })
        .collect();
    let processors = trace.processors.unwrap_or(1);
    let mut floor = Floor::new(processors);
    let mut order: Vec<usize> = (0..trace.jobs.len()).collect();
    order.sort_by_key(|at| (run.schedule.starts[*at], *at));
    for at in order {
        let (job, start) = (&trace.jobs[at], run.schedule.starts[at]);
        let end = start + job.run;
        for (low, count) in floor.take(start, end, job.processors) {
            if let Some((low, high)) =
                rows(processors.div_ceil(ROWS), low, count).filter(|_| end > from && start < until)
            {
                let hours = |time: u64| (time.clamp(from, until) - from) as f64 / 3600.0;
                let corners = [(hours(start), f64::from(low)), (hours(end), f64::from(high))];
                series[at % COLORS].points.extend(corners);
            }
        }
    }
    (from, series)
}

/// Returns the processors covered by those rows of the chart (`height` processors each) that have their middle
/// processor among the `count` from `low` on, as (first, end). None: there is no such row.
fn rows(height: u32, low: u32, count: u32) -> Option<(u32, u32)> {
    let first = |at: u32| (at + height - 1 - height / 2) / height;
    let (from, to) = (first(low), first(low + count));
    (from < to).then_some((from * height, to * height))
}

/// Assignment of processors to jobs in a Gantt chart. The lowest free ones are taken first.
struct Floor {
    /// Ranges of free processors: first processor, number of processors.
    free: BTreeMap<u32, u32>,
    /// Ranges of processors in use (first, number), by the time at which they become free.
    ends: BTreeMap<u64, Vec<(u32, u32)>>,
}

impl Floor {
    fn new(processors: u32) -> Self {
        Self { free: [(0, processors)].into(), ends: BTreeMap::new() }
    }
    fn take(&mut self, start: u64, end: u64, processors: u32) -> Vec<(u32, u32)> {
        while let Some(ended) = self.ends.first_entry().filter(|ended| *ended.key() <= start) {
            ended.remove().into_iter().for_each(|(low, count)| self.give(low, count));
        }
        let (mut taken, mut left) = (Vec::new(), processors);
        while left > 0 {
            let Some((low, count)) = self.free.pop_first() else { break };
            let some = count.min(left);
            if some < count {
                self.free.insert(low + some, count - some);
            }
            taken.push((low, some));
            left -= some;
        }
        self.ends.entry(end).or_default().extend(&taken);
        taken
    }
    fn give(&mut self, low: u32, count: u32) {
        let (mut low, mut count) = (low, count);
        if let Some((&before, &length)) = self.free.range(..low).next_back()
            && before + length == low
        {
            self.free.remove(&before);
            (low, count) = (before, length + count);
        }
        if let Some(after) = self.free.remove(&(low + count)) {
            count += after;
        }
        self.free.insert(low, count);
    }
}

#[cfg(test)]
mod tests {
    use super::{Floor, rows};

    #[test]
    fn a_small_machine_is_drawn_whole_and_of_a_large_one_every_row() {
        assert_eq!(rows(1, 3, 2), Some((3, 5)));
        // Rows of 10: their middles are processors 5, 15 and so on.
        assert_eq!([rows(10, 0, 5), rows(10, 0, 6), rows(10, 5, 1)], [None, Some((0, 10)), Some((0, 10))]);
        assert_eq!([rows(10, 6, 30), rows(10, 6, 9)], [Some((10, 40)), None]);
        // However processors are divided among jobs, each row belongs to exactly one.
        let parts = [(0, 7), (7, 13), (20, 5), (25, 15)].map(|(low, count)| rows(10, low, count));
        assert_eq!(parts.into_iter().flatten().collect::<Vec<_>>(), [(0, 10), (10, 20), (20, 40)]);
    }

    #[test]
    fn processors_are_given_once_and_come_back_together() {
        let mut floor = Floor::new(8);
        assert_eq!(floor.take(0, 10, 3), [(0, 3)]);
        assert_eq!(floor.take(0, 5, 2), [(3, 2)]);
        assert_eq!(floor.take(0, 10, 3), [(5, 3)]);
        assert_eq!(floor.take(5, 20, 2), [(3, 2)]);
        assert_eq!(floor.take(10, 20, 6), [(0, 3), (5, 3)]);
        assert_eq!(floor.take(20, 30, 8), [(0, 8)]);
    }
}
