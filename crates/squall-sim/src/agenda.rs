//! Queue of simulated events: one heap, ordered by time and, at equal times, by order of insertion.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use squall_model::time::Time;

/// Queue of future events, each with its simulated time.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    heap: BinaryHeap<Entry<T>>,
    sequence: u64,
}

#[derive(Debug)]
struct Entry<T> {
    time: Time,
    sequence: u64,
    what: T,
}

impl<T> Agenda<T> {
    /// Creates an empty queue of events.
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }
    /// Adds an event at `time`, after all events that were added for the same time before.
    pub(crate) fn at(&mut self, time: Time, what: T) {
        self.sequence += 1;
        self.heap.push(Entry { time, sequence: self.sequence, what });
    }
    /// Removes and returns the earliest event. None: there is none at or before `until`.
    pub(crate) fn pop(&mut self, until: Time) -> Option<(Time, T)> {
        if self.heap.peek()?.time > until {
            return None;
        }
        self.heap.pop().map(|entry| (entry.time, entry.what))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}
impl<T> Eq for Entry<T> {}
impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Entry<T> {
    /// Reversed order, because the heap returns its greatest entry first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.sequence).cmp(&(self.time, self.sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::{Agenda, Time};

    #[test]
    fn earlier_first_then_in_the_order_asked() {
        let mut agenda = Agenda::new();
        for (at, what) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b'), (9, 'e')] {
            agenda.at(Time(at), what);
        }
        let mut seen = String::new();
        while let Some((_, what)) = agenda.pop(Time(5)) {
            seen.push(what);
        }
        assert_eq!(seen, "abcd");
    }
}
