//! Free amount of one countable resource over time: a step function with a fast search for the earliest fit.

use std::cmp::Ordering;

use squall_model::time::{Span, Time};

/// Index that stands for no step of the function.
const NONE: u32 = u32::MAX;

/// A step of the function. Steps form a tree ordered by time, balanced by a hash of the time (a treap). Each stores
/// the totals of its subtree, so every query costs the depth of the tree.
#[derive(Clone, Copy, Debug)]
struct Step {
    time: Time,
    /// Amount that becomes free at this time; negative: becomes used.
    delta: i64,
    /// Sum of the changes of all steps in the subtree.
    sum: i64,
    /// Lowest level in the subtree, relative to the level before its first step; `high` is the highest level.
    low: i64,
    high: i64,
    left: u32,
    right: u32,
}

/// Free amount now and at every future time.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Free amount before the first step of the function.
    free: i64,
    steps: Vec<Step>,
    /// Indices in `steps` that are not used.
    spare: Vec<u32>,
    root: u32,
}

impl Timeline {
    /// Creates a timeline with a constant free amount.
    pub fn new(free: i64) -> Self {
        Self { free, steps: Vec::new(), spare: Vec::new(), root: NONE }
    }

    /// Returns the free amount now, before the first future step.
    pub fn free(&self) -> i64 {
        self.free
    }

    /// Changes the free amount by `delta` from now on.
    pub fn add_now(&mut self, delta: i64) {
        self.free += delta;
    }

    /// Changes the free amount by `delta` from `time` on, which must be in the future.
    pub fn add(&mut self, time: Time, delta: i64) {
        self.root = self.change(self.root, time, delta);
    }

    /// Reduces the free amount by `count` from `start` to `end`.
    pub fn take(&mut self, start: Time, end: Time, count: i64) {
        self.add(start, -count);
        self.add(end, count);
    }

    /// Advances the time: applies all steps up to `now`.
    pub fn advance(&mut self, now: Time) {
        while self.root != NONE {
            let mut first = self.root;
            while self.at(first).left != NONE {
                first = self.at(first).left;
            }
            let Step { time, delta, .. } = *self.at(first);
            if time > now {
                break;
            }
            self.free += delta;
            self.add(time, -delta);
        }
    }

    /// Returns whether `count` is free throughout `[start, end)`.
    pub fn fits(&self, start: Time, end: Time, count: i64) -> bool {
        self.below(start, count).is_none_or(|time| time >= end)
    }

    /// Returns the first time at or after `start` at which less than `count` is free. None: never.
    pub fn below(&self, start: Time, count: i64) -> Option<Time> {
        if self.level(start) < count { Some(start) } else { self.first_below(start, count) }
    }

    /// Returns the earliest time from `now` on at which `count` is free for `span`. None: never.
    pub fn earliest(&self, now: Time, span: Span, count: i64) -> Option<Time> {
        let mut start = now;
        if self.level(now) < count {
            start = self.first_reaching(now, count)?;
        }
        while let Some(below) = self.first_below(start, count).filter(|time| *time < start + span) {
            start = self.first_reaching(below, count)?;
        }
        Some(start)
    }

    /// Returns the free amount at a time.
    pub fn level(&self, time: Time) -> i64 {
        let (mut level, mut at) = (self.free, self.root);
        while at != NONE {
            let step = self.at(at);
            if step.time <= time {
                level += self.sum(step.left) + step.delta;
                at = step.right;
            } else {
                at = step.left;
            }
        }
        level
    }

    /// Returns the time of the first step after `from` at which less than `count` is free. None: there is none.
    fn first_below(&self, from: Time, count: i64) -> Option<Time> {
        self.search(self.root, self.free, from, &|low, _| low < count)
    }

    /// Returns the time of the first step after `from` at which at least `count` is free. None: there is none.
    fn first_reaching(&self, from: Time, count: i64) -> Option<Time> {
        self.search(self.root, self.free, from, &|_, high| high >= count)
    }

    /// Returns the time of the first step after `from` with a suitable level. `wanted` gets the lowest and highest
    /// level of a range, and returns whether the range may contain a suitable one. None: there is no such step.
    fn search(&self, at: u32, level: i64, from: Time, wanted: &impl Fn(i64, i64) -> bool) -> Option<Time> {
        if at == NONE {
            return None;
        }
        let step = self.at(at);
        if !wanted(level + step.low, level + step.high) {
            return None;
        }
        let here = level + self.sum(step.left) + step.delta;
        if step.time <= from {
            return self.search(step.right, here, from, wanted);
        }
        let earlier = self.search(step.left, level, from, wanted);
        let here_or_later = || {
            if wanted(here, here) { Some(step.time) } else { self.search(step.right, here, from, wanted) }
        };
        earlier.or_else(here_or_later)
    }

    fn at(&self, at: u32) -> &Step {
        &self.steps[at as usize]
    }

    fn sum(&self, at: u32) -> i64 {
        if at == NONE { 0 } else { self.at(at).sum }
    }

    /// Changes the step at a time in the subtree `at`; creates or removes it as needed. Returns the new root of the
    /// subtree.
    fn change(&mut self, at: u32, time: Time, delta: i64) -> u32 {
        if at == NONE {
            return if delta == 0 { NONE } else { self.insert(time, delta) };
        }
        let Step { time: here, delta: before, left, right, .. } = *self.at(at);
        match time.cmp(&here) {
            Ordering::Equal if before + delta == 0 => {
                self.spare.push(at);
                return self.join(left, right);
            }
            Ordering::Equal => self.steps[at as usize].delta = before + delta,
            Ordering::Less => {
                let left = self.change(left, time, delta);
                self.steps[at as usize].left = left;
                if self.rises(left, here) {
                    self.steps[at as usize].left = self.at(left).right;
                    self.steps[left as usize].right = at;
                    self.reckon(at);
                    self.reckon(left);
                    return left;
                }
            }
            Ordering::Greater => {
                let right = self.change(right, time, delta);
                self.steps[at as usize].right = right;
                if self.rises(right, here) {
                    self.steps[at as usize].right = self.at(right).left;
                    self.steps[right as usize].left = at;
                    self.reckon(at);
                    self.reckon(right);
                    return right;
                }
            }
        }
        self.reckon(at);
        at
    }

    /// Returns whether the step `at` belongs above the step of the time `other` in the tree.
    fn rises(&self, at: u32, other: Time) -> bool {
        at != NONE && weight(self.at(at).time) > weight(other)
    }

    /// Joins two trees, all steps of `left` being before all of `right`. Returns the root.
    fn join(&mut self, left: u32, right: u32) -> u32 {
        if left == NONE || right == NONE {
            return if left == NONE { right } else { left };
        }
        if weight(self.at(left).time) > weight(self.at(right).time) {
            let joined = self.join(self.at(left).right, right);
            self.steps[left as usize].right = joined;
            self.reckon(left);
            left
        } else {
            let joined = self.join(left, self.at(right).left);
            self.steps[right as usize].left = joined;
            self.reckon(right);
            right
        }
    }

    fn insert(&mut self, time: Time, delta: i64) -> u32 {
        let step = Step { time, delta, sum: delta, low: delta, high: delta, left: NONE, right: NONE };
        if let Some(at) = self.spare.pop() {
            self.steps[at as usize] = step;
            return at;
        }
        self.steps.push(step);
        self.steps.len() as u32 - 1
    }

    /// Updates a step's subtree totals from its children.
    fn reckon(&mut self, at: u32) {
        let Step { delta, left, right, .. } = *self.at(at);
        let here = self.sum(left) + delta;
        let (mut sum, mut low, mut high) = (here, here, here);
        if left != NONE {
            low = low.min(self.at(left).low);
            high = high.max(self.at(left).high);
        }
        if right != NONE {
            sum += self.at(right).sum;
            low = low.min(here + self.at(right).low);
            high = high.max(here + self.at(right).high);
        }
        let step = &mut self.steps[at as usize];
        (step.sum, step.low, step.high) = (sum, low, high);
    }
}

/// Returns a step's rank in the tree; higher ranks are above. It is a hash of the time (the finalizer of SplitMix64).
fn weight(time: Time) -> u64 {
    let mixed = (time.0 ^ (time.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::{Strategy, prop, proptest};
    use proptest::prop_assert_eq;
    use squall_model::time::{Span, Time};

    use super::Timeline;

    /// Generates used amounts: (from, duration, amount).
    fn taken() -> impl Strategy<Value = Vec<(u64, u64, i64)>> {
        prop::collection::vec((1..60_u64, 1..20_u64, 1..8_i64), 0..60)
    }

    proptest! {
        #[test]
        fn it_answers_as_a_list_of_all_times_would(
            taken in taken(),
            given_back in prop::collection::vec(0..60_usize, 0..30),
            passed in 0..30_u64,
            asks in prop::collection::vec((0..80_u64, 1..25_u64, 1..40_i64), 1..10),
        ) {
            let mut timeline = Timeline::new(30);
            let mut deltas: BTreeMap<u64, i64> = BTreeMap::new();
            for &(from, span, count) in &taken {
                timeline.take(Time(from), Time(from + span), count);
                *deltas.entry(from).or_default() -= count;
                *deltas.entry(from + span).or_default() += count;
            }
            let mut again: Vec<usize> = given_back.into_iter().filter(|at| *at < taken.len()).collect();
            again.sort_unstable();
            again.dedup();
            for (from, span, count) in again.into_iter().map(|at| taken[at]) {
                timeline.take(Time(from), Time(from + span), -count);
                *deltas.entry(from).or_default() += count;
                *deltas.entry(from + span).or_default() -= count;
            }
            let level = |time: u64| 30 + deltas.range(..=time).map(|(_, delta)| delta).sum::<i64>();
            timeline.advance(Time(passed));
            prop_assert_eq!(timeline.free(), level(passed));
            for (start, span, count) in asks {
                let start = start.max(passed);
                let fits = |from: u64| (from..from + span).all(|time| level(time) >= count);
                prop_assert_eq!(timeline.level(Time(start)), level(start));
                prop_assert_eq!(timeline.fits(Time(start), Time(start + span), count), fits(start));
                let earliest = (start..200).find(|from| fits(*from)).map(Time);
                prop_assert_eq!(timeline.earliest(Time(start), Span(span), count), earliest);
            }
        }
    }
}
