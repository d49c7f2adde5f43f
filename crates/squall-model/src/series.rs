//! What a step uses over time: points of equal length since its start. When there are too many, two and two become one.

use minicbor::{Decode, Encode};

use crate::job::Usage;
use crate::limits::{LATELY_POINT_S, LATELY_POINTS, SERIES_KEPT, SERIES_MAX, SERIES_POINT_S};
use crate::time::Span;

/// Time without use of a CPU after which a step is marked as idle, seconds.
pub const IDLE_S: u64 = 1200;

/// Resources that the tasks of a step used over time, on one node or on all of them together.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Series {
    /// Length of a point, seconds: `SERIES_POINT_S` times a power of two.
    #[n(0)]
    pub point_s: u32,
    /// Number of nodes that are summed up here.
    #[n(1)]
    pub nodes: u32,
    /// The points, the first of which begins with the step, or later.
    #[n(2)]
    pub points: Vec<Point>,
    /// Number of points that are left out before the first.
    #[n(3)]
    #[cbor(default)]
    pub first: u32,
}

/// What was used in the time of one point. Order and grouping of what is summed up don't matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Point {
    /// Number of measurements, of all nodes together. 0: nothing was measured in this time.
    #[n(0)]
    pub samples: u32,
    /// CPU time, milliseconds.
    #[n(1)]
    pub cpu_ms: u64,
    /// Resident memory summed over the measurements, KiB.
    #[n(2)]
    pub rss_kb: u64,
    /// KiB read.
    #[n(3)]
    pub read_kb: u64,
    /// KiB written.
    #[n(4)]
    pub write_kb: u64,
    /// Use of GPUs summed over the measurements, percent of one.
    #[n(5)]
    pub gpu_percent: u64,
    /// Least use of CPUs by a node in a measurement, thousandths of a CPU.
    #[n(6)]
    pub low_milli: u32,
    /// Greatest use of CPUs by a node in a measurement, thousandths of a CPU.
    #[n(7)]
    pub high_milli: u32,
    /// Most resident memory of a node in a measurement, KiB.
    #[n(8)]
    pub high_kb: u64,
    /// Time between the measurements and those before them, summed over the nodes, milliseconds.
    #[n(9)]
    pub time_ms: u64,
}

/// One measurement of the tasks of a step on a node. Times and bytes are totals since the step's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// CPU time, microseconds.
    pub cpu_us: u64,
    /// Resident memory at this moment, KiB.
    pub rss_kb: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Use of GPUs at this moment, percent of one.
    pub gpu_percent: u64,
}

/// What the tasks of a running step have used so far on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// In all.
    pub usage: Usage,
    /// Over time. None: nothing was measured yet.
    pub series: Option<Box<Series>>,
}

impl Sample {
    /// Returns a point of what was used between an earlier measurement and this one, which is `span` later.
    fn since(&self, before: &Self, span: Span) -> Point {
        let less = |now: u64, before: u64| now.saturating_sub(before);
        let cpu_us = less(self.cpu_us, before.cpu_us);
        let milli = u32::try_from(cpu_us.saturating_mul(1000) / span.0.max(1)).unwrap_or(u32::MAX);
        Point {
            samples: 1,
            cpu_ms: cpu_us / 1000,
            rss_kb: self.rss_kb,
            read_kb: less(self.read_bytes, before.read_bytes) >> 10,
            write_kb: less(self.write_bytes, before.write_bytes) >> 10,
            gpu_percent: self.gpu_percent,
            low_milli: milli,
            high_milli: milli,
            high_kb: self.rss_kb,
            time_ms: span.0 / 1000,
        }
    }
}

impl Point {
    /// Adds what another node used in the same time, or the same nodes in the time after it.
    fn add(&mut self, other: &Self) {
        if other.samples == 0 {
            return;
        }
        let low_milli = if self.samples == 0 { other.low_milli } else { self.low_milli.min(other.low_milli) };
        *self = Self {
            samples: self.samples.saturating_add(other.samples),
            cpu_ms: self.cpu_ms.saturating_add(other.cpu_ms),
            rss_kb: self.rss_kb.saturating_add(other.rss_kb),
            read_kb: self.read_kb.saturating_add(other.read_kb),
            write_kb: self.write_kb.saturating_add(other.write_kb),
            gpu_percent: self.gpu_percent.saturating_add(other.gpu_percent),
            low_milli,
            high_milli: self.high_milli.max(other.high_milli),
            high_kb: self.high_kb.max(other.high_kb),
            time_ms: self.time_ms.saturating_add(other.time_ms),
        };
    }
}

impl Default for Series {
    fn default() -> Self {
        Self { point_s: SERIES_POINT_S, nodes: 1, points: Vec::new(), first: 0 }
    }
}

impl Series {
    /// Adds a measurement `at` after the step's start. `before`: the measurement before it, and its time.
    pub fn push(&mut self, (at, sample): (Span, &Sample), (then, before): (Span, &Sample)) {
        // A measurement stands for the time since the one before it.
        let middle = Span(at.0.midpoint(then.0));
        let place = |series: &Self| middle.secs() / u64::from(series.point_s);
        while place(self) >= SERIES_MAX as u64 && self.thin() {}
        let place = place(self) as usize;
        if place >= SERIES_MAX {
            return;
        }
        if self.points.len() <= place {
            self.points.resize(place + 1, Point::default());
        }
        self.points[place].add(&sample.since(before, Span(at.0.saturating_sub(then.0))));
    }
    /// Makes one point of two and two. Returns false if they are as long as they can be.
    fn thin(&mut self) -> bool {
        let Some(point_s) = self.point_s.checked_mul(2) else { return false };
        // Pairs are counted from the step's start.
        let (alone, rest) = self.points.split_at(self.points.len().min(self.first as usize % 2));
        let pairs = alone.chunks(1).chain(rest.chunks(2)).map(|pair| {
            let mut sum = pair[0];
            pair[1..].iter().for_each(|second| sum.add(second));
            sum
        });
        self.points = pairs.collect();
        self.first /= 2;
        self.point_s = point_s;
        true
    }
    /// Returns what was used lately: the last points, so long that few bytes tell of half an hour.
    pub fn lately(&self) -> Box<Self> {
        let mut lately = self.clone();
        while lately.point_s < LATELY_POINT_S && lately.thin() {}
        let left_out = lately.points.len().saturating_sub(LATELY_POINTS);
        lately.points.drain(..left_out);
        lately.first = lately.first.saturating_add(left_out as u32);
        Box::new(lately)
    }
    /// Returns the series with few enough points to be kept with a step that has ended. None: there was one measurement at
    /// most.
    pub fn kept(&self) -> Option<Box<Self>> {
        let mut kept = self.clone();
        while kept.points.len() > SERIES_KEPT && kept.thin() {}
        (kept.points.iter().map(|point| point.samples).fold(0, u32::saturating_add) > 1).then(|| Box::new(kept))
    }
    /// Returns what is stored of a series that another machine has sent with a step's end: no more than a step may have.
    /// None: its numbers can't be those of a step.
    pub fn accepted(&self) -> Option<Box<Self>> {
        self.is_sound().then(|| self.kept()).flatten()
    }
    /// Returns whether the numbers can be those of a step: another machine may have sent anything.
    fn is_sound(&self) -> bool {
        let times = self.point_s / SERIES_POINT_S;
        self.point_s.is_multiple_of(SERIES_POINT_S)
            && times.is_power_of_two()
            && self.points.len().saturating_add(self.first as usize) <= SERIES_MAX
            && (self.first == 0 || !self.points.is_empty())
    }
    /// Adds what other nodes used.
    pub fn merge(&mut self, other: &Self) {
        if !other.is_sound() || !self.is_sound() {
            return;
        }
        let mut other = other.clone();
        while self.point_s < other.point_s && self.thin() {}
        while other.point_s < self.point_s && other.thin() {}
        let before = self.first.saturating_sub(other.first) as usize;
        self.points.splice(..0, vec![Point::default(); before]);
        self.first = self.first.min(other.first);
        let at = (other.first - self.first) as usize;
        if self.points.len() < at + other.points.len() {
            self.points.resize(at + other.points.len(), Point::default());
        }
        self.points[at..].iter_mut().zip(&other.points).for_each(|(own, point)| own.add(point));
        self.nodes = self.nodes.saturating_add(other.nodes);
    }
    /// Adds a series to one that may not be there.
    pub fn merge_into(sum: &mut Option<Box<Self>>, other: Option<&Self>) {
        match (sum.as_mut(), other) {
            (Some(sum), Some(other)) => sum.merge(other),
            (None, Some(other)) if other.is_sound() => *sum = Some(Box::new(other.clone())),
            _ => {}
        }
    }
    /// Returns the CPUs that were at work on average in each point. None: nothing was measured then.
    pub fn cpus(&self) -> Vec<Option<f64>> {
        let nodes = f64::from(self.nodes.max(1));
        let cpus = |point: &Point| point.cpu_ms as f64 / point.time_ms.max(1) as f64 * nodes;
        self.points.iter().map(|point| (point.samples > 0).then(|| cpus(point))).collect()
    }
    /// Returns the resident memory of all nodes together in each point, KiB. None: nothing was measured then.
    pub fn memory_kb(&self) -> Vec<Option<f64>> {
        self.mean_of(|point| point.rss_kb)
    }
    /// Returns the GPUs that were at work in each point. None: nothing was measured then.
    pub fn gpus(&self) -> Vec<Option<f64>> {
        self.mean_of(|point| point.gpu_percent).into_iter().map(|value| value.map(|percent| percent / 100.0)).collect()
    }
    fn mean_of(&self, value: impl Fn(&Point) -> u64) -> Vec<Option<f64>> {
        let nodes = f64::from(self.nodes.max(1));
        let mean = |point: &Point| (point.samples > 0).then(|| value(point) as f64 / f64::from(point.samples) * nodes);
        self.points.iter().map(mean).collect()
    }
    /// Returns for how long the step has used less than a hundredth of a CPU on each of its nodes at its end, seconds.
    pub fn idle_s(&self) -> u64 {
        let idle = |point: &&Point| point.samples == 0 || point.high_milli < 10;
        let length_ms = |point: &Point| match point.samples {
            0 => u64::from(self.point_s) * 1000,
            _ => point.time_ms / u64::from(self.nodes.max(1)),
        };
        self.points.iter().rev().take_while(idle).map(length_ms).fold(0, u64::saturating_add) / 1000
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, proptest};

    use super::{IDLE_S, Point, Sample, Series};
    use crate::encoding::size;
    use crate::limits::{SERIES_KEPT, SERIES_MAX, SERIES_POINT_S};
    use crate::time::Span;

    /// A series of a task that uses two CPUs and 1 MiB, measured each 10 s.
    fn steady(seconds: u64) -> Series {
        let mut series = Series::default();
        let mut before = (Span(0), Sample::default());
        for second in (10..=seconds).step_by(10) {
            let sample = Sample { cpu_us: second * 2_000_000, rss_kb: 1024, ..Sample::default() };
            let at = Span::from_secs(second - 1);
            series.push((at, &sample), (before.0, &before.1));
            before = (at, sample);
        }
        series
    }

    #[test]
    fn it_thins_itself_and_keeps_its_sums() {
        let series = steady(4 * 24 * 3600);
        assert!(series.points.len() <= SERIES_MAX && series.points.len() > SERIES_MAX / 2, "{}", series.points.len());
        assert_eq!(series.points.iter().map(|point| point.cpu_ms).sum::<u64>(), 4 * 24 * 3600 * 2000);
        let kept = series.kept().expect("it has points");
        assert!(kept.points.len() <= SERIES_KEPT && size(&*kept) <= 4096, "{}", size(&*kept));
        assert!(kept.cpus().iter().flatten().all(|cpus| (1.9..2.4).contains(cpus)), "{:?}", kept.cpus());
        assert_eq!(kept.memory_kb()[3], Some(1024.0));
    }

    #[test]
    fn a_short_step_has_none_and_an_idle_one_says_so() {
        assert_eq!(steady(10).kept(), None);
        assert_eq!(steady(100).idle_s(), 0);
        let mut series = steady(100);
        let still = Sample { cpu_us: 200_000_000, rss_kb: 1024, ..Sample::default() };
        (10..=20).for_each(|n| series.push((Span::from_secs(n * 10), &still), (Span::from_secs(n * 10 - 10), &still)));
        assert_eq!(series.idle_s(), 100);
    }

    #[test]
    fn what_no_node_can_have_measured_is_left_out() {
        let mut series = steady(100);
        let before = series.clone();
        let long = vec![Point { samples: 1, ..Point::default() }; SERIES_MAX + 1];
        series.merge(&Series { points: long, ..Series::default() });
        series.merge(&Series { point_s: 0, ..steady(50) });
        series.merge(&Series { point_s: 7, ..steady(50) });
        assert_eq!(series, before);
        let long = vec![Point { samples: 1, ..Point::default() }; SERIES_MAX + 1];
        assert_eq!(Series { points: long, ..Series::default() }.accepted(), None);
        assert!(steady(2000).accepted().is_some_and(|stored| stored.points.len() <= SERIES_KEPT));
    }

    #[test]
    fn what_was_used_lately_is_told_in_few_bytes() {
        let mut series = steady(5000);
        let still = Sample { cpu_us: 10_000_000_000, rss_kb: 2048, ..Sample::default() };
        let at = |n: u64| Span::from_secs(5000 + n * 10);
        (1..=180).for_each(|n| series.push((at(n), &still), (at(n - 1), &still)));
        let lately = series.lately();
        assert!(size(&*lately) <= 300, "{} bytes, at most once in 30 s", size(&*lately));
        assert!((IDLE_S..=1920).contains(&lately.idle_s()), "{}", lately.idle_s());
        assert_eq!(lately.memory_kb().last(), Some(&Some(2048.0)));
        // Another node is busy to the end.
        let mut both = steady(6800).lately();
        both.merge(&lately);
        assert_eq!((both.nodes, both.idle_s()), (2, 0));
        assert_eq!(steady(100).lately().cpus().len(), 1);
    }

    fn any_series() -> impl Strategy<Value = Series> {
        let point = (0_u32..3, any::<u64>(), 0_u64..99, 0_u32..9).prop_map(|(samples, cpu_ms, rss_kb, low_milli)| {
            if samples == 0 {
                Point::default()
            } else {
                Point { samples, cpu_ms, rss_kb, low_milli, ..Point::default() }
            }
        });
        (0_u32..4, prop::collection::vec(point, 0..9), 0_u32..9).prop_map(|(k, points, first)| Series {
            // Nothing is left out before no point.
            first: if points.is_empty() { 0 } else { first },
            point_s: SERIES_POINT_S << k,
            nodes: 1,
            points,
        })
    }

    fn merged<'a>(all: impl IntoIterator<Item = &'a Series>) -> Option<Box<Series>> {
        let mut sum = None;
        all.into_iter().for_each(|one| Series::merge_into(&mut sum, Some(one)));
        sum
    }

    proptest! {
        #[test]
        fn order_and_grouping_do_not_matter(
            (all, mixed) in prop::collection::vec(any_series(), 1..6).prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
            at in 1_usize..6,
        ) {
            let whole = merged(&all);
            prop_assert_eq!(&merged(&mixed), &whole);
            let (left, right) = mixed.split_at(at.min(mixed.len()));
            let groups: Vec<Series> = [left, right].iter().filter_map(|group| merged(*group)).map(|one| *one).collect();
            prop_assert_eq!(merged(&groups), whole);
        }

        #[test]
        fn no_bytes_do_harm(point_s in any::<u32>(), nodes in any::<u32>(), first in any::<u32>(), own in any_series()) {
            let mut sum = own;
            sum.merge(&Series { point_s, nodes, points: vec![Point { samples: u32::MAX, cpu_ms: u64::MAX, ..Point::default() }; 3], first });
            prop_assert!(sum.points.len() <= SERIES_MAX);
            let all = [sum.cpus(), sum.memory_kb(), sum.gpus()];
            prop_assert!(all.iter().all(|values| values.len() == sum.points.len()));
            prop_assert!(sum.idle_s() < u64::MAX && sum.kept().is_none_or(|kept| kept.points.len() <= SERIES_KEPT));
        }
    }
}
