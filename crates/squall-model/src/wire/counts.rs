//! Counters of node daemons, and distributions of durations.

use minicbor::{Decode, Encode};

use crate::time::Span;

/// Distribution of durations, in buckets that double in width.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Histogram {
    /// Number of durations in each bucket. Bucket 0 has those up to 1 microsecond, bucket `i` those above 2^(i-1) and up
    /// to 2^i microseconds. Buckets after the last one that has a duration are omitted.
    #[n(0)]
    pub counts: Vec<u64>,
    /// All durations together, microseconds.
    #[n(1)]
    pub total_us: u64,
}

impl Histogram {
    /// Adds a duration.
    pub fn add(&mut self, took: Span) {
        let bucket = (u64::BITS - took.0.saturating_sub(1).leading_zeros()) as usize;
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total_us = self.total_us.saturating_add(took.0);
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the duration in microseconds that this share of the durations (in parts of 1000) does not exceed. Within
    /// a bucket the durations count as evenly distributed. None: there are no durations.
    pub fn quantile_us(&self, permille: u64) -> Option<u64> {
        let rank = (self.count() * permille).div_ceil(1000).max(1);
        let mut below = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            if below + count >= rank {
                let to = 1_u128 << bucket;
                let from = if bucket == 0 { 0 } else { to / 2 };
                let part = (to - from) * u128::from(rank - below) / u128::from(count);
                return u64::try_from(from + part).ok();
            }
            below += count;
        }
        None
    }

    /// Adds the durations of another distribution.
    pub fn merge(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
        self.total_us = self.total_us.saturating_add(other.total_us);
    }
}

/// Distributions of the durations that users and operators wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Latencies {
    /// From the arrival of a submission at the controller until its answer is sent.
    #[n(0)]
    pub submit: Histogram,
    /// From the time when a job could first have started, apart from dependencies, until its first start.
    #[n(1)]
    pub queue: Histogram,
    /// From the controller's start message for a step until its first task runs. Counted when the step ends, once for
    /// each step; not counted if the node's clock is behind the controller's.
    #[n(2)]
    pub launch: Histogram,
    /// Write and flush of the journal.
    #[n(3)]
    pub flush: Histogram,
    /// Scheduling passes.
    #[n(4)]
    pub pass: Histogram,
}

impl Latencies {
    /// Returns these distributions with the durations of another controller added.
    #[must_use]
    pub fn merged(mut self, other: &Self) -> Self {
        let Self { submit, queue, launch, flush, pass } = &mut self;
        let all = [submit, queue, launch, flush, pass];
        all.into_iter().zip(other.all()).for_each(|(sum, (_, more))| sum.merge(more));
        self
    }

    /// Returns all distributions with a name for each.
    pub const fn all(&self) -> [(&'static str, &Histogram); 5] {
        let Self { submit, queue, launch, flush, pass } = self;
        [("submit", submit), ("queue", queue), ("launch", launch), ("flush", flush), ("pass", pass)]
    }
}

/// Counters of a node daemon since its start, or sums of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct NodeCounts {
    /// Steps that the daemon started, batch scripts included.
    #[n(0)]
    pub steps: u64,
    /// Tasks of these steps on the node.
    #[n(1)]
    pub tasks: u64,
    /// Steps that could not be launched.
    #[n(2)]
    pub failed: u64,
    /// Steps that ended.
    #[n(3)]
    pub ended: u64,
    /// Steps of which the kernel killed processes because of a memory limit.
    #[n(4)]
    pub out_of_memory: u64,
    /// Steps that ended without a known exit status.
    #[n(5)]
    pub lost: u64,
    /// Reports about steps and jobs for the controller.
    #[n(6)]
    pub reports: u64,
    /// Reports that were sent again because a new session with the controller began before it had acknowledged them.
    #[n(7)]
    pub repeats: u64,
    /// Sessions with the controller.
    #[n(8)]
    pub sessions: u64,
}

impl NodeCounts {
    /// Returns the sum of these counters and of `counted`, as far as those exceed `before`.
    #[must_use]
    pub fn plus(mut self, counted: &Self, before: &Self) -> Self {
        for ((sum, counted), before) in self.each().into_iter().zip(counted.list()).zip(before.list()) {
            *sum = sum.saturating_add(counted.saturating_sub(before));
        }
        self
    }

    /// Raises each counter to that of `other`, if that is higher.
    pub fn raise(&mut self, other: &Self) {
        self.each().into_iter().zip(other.list()).for_each(|(own, other)| *own = other.max(*own));
    }

    fn each(&mut self) -> [&mut u64; 9] {
        let Self { steps, tasks, failed, ended, out_of_memory, lost, reports, repeats, sessions } = self;
        [steps, tasks, failed, ended, out_of_memory, lost, reports, repeats, sessions]
    }

    const fn list(&self) -> [u64; 9] {
        let Self { steps, tasks, failed, ended, out_of_memory, lost, reports, repeats, sessions } = *self;
        [steps, tasks, failed, ended, out_of_memory, lost, reports, repeats, sessions]
    }
}

#[cfg(test)]
mod tests {
    use super::{Histogram, NodeCounts};
    use crate::time::Span;

    #[test]
    fn a_bucket_includes_its_upper_bound() {
        let mut all = Histogram::default();
        for us in [0, 1, 2, 3, 4, 5, 8, u64::MAX] {
            all.add(Span(us));
        }
        assert_eq!(all.counts[..4], [2, 1, 2, 2]);
        assert_eq!((all.counts.len(), all.counts[64], all.count(), all.total_us), (65, 1, 8, u64::MAX));
    }

    #[test]
    fn quantiles_are_within_their_bucket() {
        let mut all = Histogram::default();
        assert_eq!(all.quantile_us(500), None);
        (0..98).for_each(|_| all.add(Span(100)));
        (0..2).for_each(|_| all.add(Span(5000)));
        let near = |permille| all.quantile_us(permille).unwrap();
        assert!((64..=128).contains(&near(500)) && (64..=128).contains(&near(980)), "{all:?}");
        assert!((4096..=8192).contains(&near(990)) && near(1000) == 8192, "{all:?}");
        let mut twice = all.clone();
        twice.merge(&all);
        assert_eq!((twice.count(), twice.quantile_us(990)), (200, all.quantile_us(990)));
        let mut longest = Histogram::default();
        longest.add(Span(u64::MAX));
        assert_eq!(longest.quantile_us(1), None, "no number is as high");
    }

    #[test]
    fn only_what_is_new_is_added() {
        let counted = |steps, lost| NodeCounts { steps, lost, ..NodeCounts::default() };
        let mut sum = counted(100, 0).plus(&counted(7, 3), &counted(5, 4));
        assert_eq!(sum, counted(102, 0));
        sum.raise(&counted(50, 1));
        assert_eq!(sum, counted(102, 1));
    }
}
