//! How much of one countable thing is free from now on: a step function that is asked for the earliest fit.

use std::cmp::Ordering;

use squall_model::time::{Span, Time};

/// No node.
const NONE: u32 = u32::MAX;

/// A step of the function. Steps form a tree ordered by time, balanced by a hash of it (a treap); each knows what its
/// subtree adds up to, so that every question costs the depth of the tree.
#[derive(Clone, Copy, Debug)]
struct Step {
    time: Time,
    /// What becomes free (or is taken) there.
    delta: i64,
    /// The sum over the subtree.
    sum: i64,
    /// Lowest and highest level within the subtree, reckoned from before its first step.
    low: i64,
    high: i64,
    left: u32,
    right: u32,
}

/// What is free now and at every time to come.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Before the first step.
    free: i64,
    steps: Vec<Step>,
    /// Places in `steps` that are not in use.
    spare: Vec<u32>,
    root: u32,
}

impl Timeline {
    /// So much is free for ever.
    pub fn new(free: i64) -> Self {
        Self { free, steps: Vec::new(), spare: Vec::new(), root: NONE }
    }

    /// What is free now: before the first step to come.
    pub fn free(&self) -> i64 {
        self.free
    }

    /// From now on so much more (or less) is free.
    pub fn add_now(&mut self, delta: i64) {
        self.free += delta;
    }

    /// From `time`, which is to come, on so much more (or less) is free.
    pub fn add(&mut self, time: Time, delta: i64) {
        self.root = self.change(self.root, time, delta);
    }

    /// So much less is free from `start` to `end`.
    pub fn take(&mut self, start: Time, end: Time, count: i64) {
        self.add(start, -count);
        self.add(end, count);
    }

    /// Time has come to `now`: steps until then have happened.
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

    /// Whether `count` is free throughout `[start, end)`.
    pub fn fits(&self, start: Time, end: Time, count: i64) -> bool {
        self.below(start, count).is_none_or(|time| time >= end)
    }

    /// From when on less than `count` is free, at `start` or later.
    pub fn below(&self, start: Time, count: i64) -> Option<Time> {
        if self.level(start) < count { Some(start) } else { self.first_below(start, count) }
    }

    /// The earliest time from `now` on from which `count` is free for so long; None: never.
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

    /// What is free at a time.
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

    /// The first step after `from` at which less than `count` is free.
    fn first_below(&self, from: Time, count: i64) -> Option<Time> {
        self.search(self.root, self.free, from, &|low, _| low < count)
    }

    /// The first step after `from` at which at least `count` is free.
    fn first_reaching(&self, from: Time, count: i64) -> Option<Time> {
        self.search(self.root, self.free, from, &|_, high| high >= count)
    }

    /// The first step after `from` whose level is wanted. `wanted` says of lowest and highest whether one in between may be.
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

    /// Adds to the step of that time below `at`, which is made, or goes if nothing is left of it. The new top.
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

    /// Whether a step belongs above the one of that time.
    fn rises(&self, at: u32, other: Time) -> bool {
        at != NONE && weight(self.at(at).time) > weight(other)
    }

    /// One tree of two, all of `left` before all of `right`.
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

    /// What a subtree adds up to, from its children.
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

/// Decides who stands above whom in the tree: a hash of the time (the finalizer of SplitMix64).
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

    /// What is taken: (from, for how long, how much).
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
