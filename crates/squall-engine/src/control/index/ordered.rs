//! The jobs of a partition in the order in which a scheduling pass looks at them.

use crate::control::index::lanes::Line;
use crate::control::index::lanes::Place;
use crate::control::index::lanes::Shape;
use crate::control::index::lanes::Want;
use crate::control::index::pending::pending;
use crate::control::index::view::Sight;
use squall_model::limits::UNLIMITED_S;
use squall_model::time::Span;
use squall_sched::{Candidate, Lanes, UNLIMITED, View as _};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, btree_map};
use std::iter::Peekable;
use std::ops::Bound::{Excluded, Unbounded};

/// A partition's jobs in order.
pub(crate) struct Ordered<'a> {
    sight: Sight<'a>,
    line: Option<&'a Line>,
    /// The time limit of jobs that say none, seconds; None: unlimited.
    default_s: Option<u64>,
    firsts: Option<Peekable<btree_map::Iter<'a, Place, Shape>>>,
    /// The next of those who want the same as one who has passed.
    again: BinaryHeap<Reverse<Next>>,
    /// Whom others follow.
    last: Option<Next>,
    /// Who wants this and may run longer than that is left out.
    closed: BTreeMap<Want, Span>,
}

/// Who is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Next {
    place: Place,
    shape: Shape,
    /// Behind the first of a lane comes that of another lane, too.
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
    /// How long a job may run, or unlimited ones are expected to.
    fn limit(&self, shape: Shape) -> Option<u64> {
        shape.limit_s.map_or(self.default_s, |limit| (limit != UNLIMITED_S).then_some(limit))
    }
    /// Whether nobody who wants the same for as long has found no room.
    fn is_open(&self, shape: Shape) -> bool {
        let longest = self.closed.get(&shape.want);
        longest.is_none_or(|longest| self.limit(shape).map_or(UNLIMITED, Span::from_secs) <= *longest)
    }
    /// Who comes behind one of the same lane, and of the same want.
    fn follow(&mut self, Next { place, shape, front }: Next) {
        let Some(line) = self.line else { return };
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
    /// The next front of a lane, of those who want the same and may find room. Looked for in two ways at once: by place
    /// from that one on, and among all that may run no longer; the shorter way counts.
    fn next_front(&self, line: &Line, behind: Place, want: Want) -> Option<Next> {
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
                avoid: if place.item.array { None } else { queue.avoid.get(&place.item.id) },
                alone: shape.want.het.is_some(),
                others: shape.want.het.map_or(&[], |leader| queue.others(leader)),
                user: shape.want.user,
            });
        }
    }
}

impl<'a> Lanes<Candidate<'a>> for Ordered<'a> {
    fn close(&mut self, longest: Span) {
        let Some(Next { shape, .. }) = self.last else { return };
        let closed = self.closed.entry(shape.want).or_insert(longest);
        *closed = longest.min(*closed);
    }
}
