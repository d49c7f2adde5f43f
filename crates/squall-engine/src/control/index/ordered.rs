//! The pending jobs of a partition in the order in which a scheduling pass examines them.

use crate::control::index::lanes::Place;
use crate::control::index::lanes::ReadyQueue;
use crate::control::index::lanes::Shape;
use crate::control::index::lanes::Want;
use crate::control::index::pending::pending;
use crate::control::index::view::Sight;
use crate::invariant::invariant;
use squall_model::limits::UNLIMITED_S;
use squall_model::time::Span;
use squall_sched::{Candidate, Lanes, UNLIMITED, View as _};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, btree_map};
use std::iter::Peekable;
use std::ops::Bound::{Excluded, Unbounded};

/// Iterator over a partition's jobs in order. It leaves out jobs with a request that was found not to fit in this pass.
pub(crate) struct Ordered<'a> {
    sight: Sight<'a>,
    line: Option<&'a ReadyQueue>,
    /// Default time limit of the partition, seconds; None: unlimited.
    default_s: Option<u64>,
    firsts: Option<Peekable<btree_map::Iter<'a, Place, Shape>>>,
    /// Candidates to return next that have the same request as one that was returned before.
    again: BinaryHeap<Reverse<Next>>,
    /// The candidate returned last; the candidates that follow it are looked up at the next call.
    last: Option<Next>,
    /// Requests that did not fit in this pass, each with the longest time limit with which its jobs are still examined.
    closed: BTreeMap<Want, Span>,
}

/// A job that may be returned next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Next {
    place: Place,
    shape: Shape,
    /// Whether the job is the first of its lane (jobs with equal request and time limit). If so, the first job of the
    /// next lane with this request is a candidate after it, too.
    front: bool,
}

impl<'a> Ordered<'a> {
    pub(crate) fn new(sight: Sight<'a>, partition: usize) -> Self {
        let line = sight.queue.line(partition);
        let firsts = line.map(|line| line.firsts.iter().peekable());
        let default_s = sight.partition(partition).time_default_s;
        Self { sight, line, default_s, firsts, again: BinaryHeap::new(), last: None, closed: BTreeMap::new() }
    }
    fn next_place(&mut self) -> Option<Next> {
        if let Some(last) = self.last.take() {
            self.follow(last);
        }
        loop {
            let firsts = self.firsts.as_mut()?;
            let first = firsts.peek().map(|(place, shape)| Next { place: **place, shape: **shape, front: true });
            let again = self.again.peek().map(|Reverse(next)| *next);
            let next = match (first, again) {
                (Some(first), Some(again)) => first.min(again),
                (first, again) => first.or(again)?,
            };
            if Some(next) == first {
                firsts.next();
            } else {
                self.again.pop();
            }
            if self.is_open(next.shape) {
                self.last = Some(next);
                return self.last;
            }
            self.follow(next);
        }
    }
    /// Returns the time limit of jobs with this request and limit setting, seconds; None: unlimited.
    fn limit(&self, shape: Shape) -> Option<u64> {
        shape.limit_s.map_or(self.default_s, |limit| (limit != UNLIMITED_S).then_some(limit))
    }
    /// Returns whether jobs of this request and time limit may still fit in this pass.
    fn is_open(&self, shape: Shape) -> bool {
        let longest = self.closed.get(&shape.want);
        longest.is_none_or(|longest| self.limit(shape).map_or(UNLIMITED, Span::from_secs) <= *longest)
    }
    /// Adds the candidates that follow a candidate. One is the next job of its lane (jobs with equal request and time
    /// limit). If the candidate is the first of its lane, the first job of the next lane with this request is another.
    fn follow(&mut self, Next { place, shape, front }: Next) {
        let Some(line) = self.line else { return invariant!("a candidate stands in a line") };
        if self.is_open(shape)
            && let Some(lane) = line.lanes.get(&shape)
            && let Some(next) = lane.places.range((Excluded(place), Unbounded)).next()
        {
            self.again.push(Reverse(Next { place: *next, shape, front: false }));
        }
        if front {
            self.again.extend(self.next_front(line, place, shape.want).map(Reverse));
        }
    }
    /// Returns the first job after the position `behind` that is the first of a lane with this request and may still
    /// fit in this pass. A lane has jobs with equal request and time limit. Two searches run in step, one by position
    /// and one through the lanes with a time limit that is short enough; the one that ends first decides.
    fn next_front(&self, line: &ReadyQueue, behind: Place, want: Want) -> Option<Next> {
        let longest = self.closed.get(&want).copied().unwrap_or(Span(u64::MAX));
        if longest == Span(0) {
            return None;
        }
        let most = if longest < UNLIMITED { longest.secs() } else { u64::MAX };
        let [least, most] = [None, Some(most)].map(|limit_s| Shape { want, limit_s });
        let mut lanes = line.lanes.range(least..=most);
        let mut first: Option<Next> = None;
        for (place, limit_s) in line.fronts_from(want, Some(behind)) {
            let shape = Shape { want, limit_s };
            if self.is_open(shape) {
                return Some(Next { place, shape, front: true });
            }
            let Some((shape, lane)) = lanes.next() else { return first };
            let front = lane.places.first().filter(|place| **place > behind && self.is_open(*shape));
            let next = front.map(|place| Next { place: *place, shape: *shape, front: true });
            first = [first, next].into_iter().flatten().min();
        }
        None
    }
}

impl<'a> Iterator for Ordered<'a> {
    type Item = Candidate<'a>;

    fn next(&mut self) -> Option<Candidate<'a>> {
        loop {
            let Next { place, shape, .. } = self.next_place()?;
            let Sight { state, queue, .. } = self.sight;
            let Some((pending, need)) = pending(state, place.item).zip(queue.kinds.request(shape.want.kind)) else {
                invariant!("a job in a line waits, and its request is known");
                continue;
            };
            return Some(Candidate {
                item: place.item,
                priority: place.key.0,
                need,
                time_limit_s: shape.limit_s.map(|limit| (limit != UNLIMITED_S).then_some(limit)),
                wish: queue.wish(state, &pending),
                copies: pending.copies(state),
                group: pending.group(state),
                avoid: if place.item.array { None } else { state.index.avoid.get(&place.item.id) },
                alone: shape.want.het.is_some(),
                others: shape.want.het.map_or(&[], |leader| queue.others(leader)),
                user: shape.want.user,
                reserves: !need.exempt.reserve,
            });
        }
    }
}

impl<'a> Lanes<Candidate<'a>> for Ordered<'a> {
    fn close(&mut self, longest: Span) {
        let Some(Next { shape, .. }) = self.last else {
            return invariant!("a lane is closed after one of its candidates was taken");
        };
        let closed = self.closed.entry(shape.want).or_insert(longest);
        *closed = longest.min(*closed);
    }
}
