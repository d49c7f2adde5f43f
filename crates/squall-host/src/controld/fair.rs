//! Fair queue of the controller's arrivals: nodes first, then users by the time that their requests have taken so far,
//! and the connections of a user in rotation. A user with many requests delays only that user.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// Queue of arrivals, each of a node or of a user's connection. Those of one connection stay in order.
#[derive(Debug)]
pub(super) struct Fair<T> {
    first: VecDeque<T>,
    users: HashMap<u32, User<T>>,
    /// Users with queued arrivals, as (nanoseconds used, user id): the first is served next.
    order: BTreeSet<(u64, u32)>,
    /// Time used, ns, by the user served last. A returning user is counted at least this much, so that idle time is no
    /// credit.
    floor: u64,
    len: usize,
}

#[derive(Debug)]
struct User<T> {
    /// Processing time that the user's requests have taken so far, ns.
    had: u64,
    /// Connections with queued arrivals, the next one to serve first.
    turns: VecDeque<u64>,
    waiting: HashMap<u64, VecDeque<T>>,
}

impl<T> Default for Fair<T> {
    fn default() -> Self {
        Self { first: VecDeque::new(), users: HashMap::new(), order: BTreeSet::new(), floor: 0, len: 0 }
    }
}

impl<T> Fair<T> {
    /// Returns the number of queued arrivals.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Queues an arrival that precedes those of all users.
    pub(super) fn push_first(&mut self, arrival: T) {
        self.first.push_back(arrival);
        self.len += 1;
    }

    /// Queues an arrival from a user's connection.
    pub(super) fn push(&mut self, uid: u32, connection: u64, arrival: T) {
        let floor = self.floor;
        let new = || User { had: floor, turns: VecDeque::new(), waiting: HashMap::new() };
        let user = self.users.entry(uid).or_insert_with(new);
        if user.turns.is_empty() {
            user.had = user.had.max(floor);
            self.order.insert((user.had, uid));
        }
        let own = user.waiting.entry(connection).or_default();
        if own.is_empty() {
            user.turns.push_back(connection);
        }
        own.push_back(arrival);
        self.len += 1;
    }

    /// Takes the next arrival, with its user; the user is None for a node's.
    pub(super) fn pop(&mut self) -> Option<(Option<u32>, T)> {
        if let Some(arrival) = self.first.pop_front() {
            self.len -= 1;
            return Some((None, arrival));
        }
        let &(had, uid) = self.order.first()?;
        let user = self.users.get_mut(&uid)?;
        let connection = user.turns.pop_front()?;
        let own = user.waiting.get_mut(&connection)?;
        let arrival = own.pop_front()?;
        if own.is_empty() {
            user.waiting.remove(&connection);
        } else {
            user.turns.push_back(connection);
        }
        if user.turns.is_empty() {
            self.order.remove(&(had, uid));
        }
        self.floor = self.floor.max(had);
        self.len -= 1;
        Some((Some(uid), arrival))
    }

    /// Adds `took` to the time used by a user.
    pub(super) fn charge(&mut self, uid: u32, took: Duration) {
        let Some(user) = self.users.get_mut(&uid) else { return };
        let before = (user.had, uid);
        user.had = user.had.saturating_add((took.as_nanos() as u64).max(1));
        if self.order.remove(&before) {
            self.order.insert((user.had, uid));
        } else if user.had <= self.floor {
            // A user with no more time than the floor needs no entry.
            self.users.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Fair;

    const SLOW: Duration = Duration::from_millis(60);
    const QUICK: Duration = Duration::from_micros(10);

    /// Regression test of fault H2 in faults.md.
    #[test]
    fn h2_who_asks_for_much_keeps_nobody_else_waiting() {
        let mut fair = Fair::default();
        (0..5500).for_each(|_| fair.push(1, 10, "slow"));
        let (mut answered, mut slow) = (0, 0);
        for round in 0..200 {
            if round % 2 == 0 {
                fair.push(2, 20 + round, "quick");
            }
            let (uid, _) = fair.pop().unwrap();
            let quick = uid == Some(2);
            fair.charge(uid.unwrap(), if quick { QUICK } else { SLOW });
            answered += usize::from(quick);
            slow += usize::from(!quick);
        }
        assert_eq!((answered, slow), (100, 100), "each quick one waits for one slow one at most");
        fair.push_first("node");
        assert_eq!(fair.pop(), Some((None, "node")));
    }

    #[test]
    fn h2_connections_of_a_user_take_turns_and_keep_their_order() {
        let mut fair = Fair::default();
        for (connection, arrival) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (2, "b2")] {
            fair.push(7, connection, arrival);
        }
        let mut order = Vec::new();
        while let Some((uid, arrival)) = fair.pop() {
            fair.charge(uid.unwrap(), QUICK);
            order.push(arrival);
        }
        assert_eq!(order, ["a1", "b1", "a2", "b2", "a3"]);
        assert_eq!(fair.len(), 0);
    }

    #[test]
    fn h2_nobody_saves_up_time() {
        let mut fair = Fair::default();
        fair.push(1, 1, ());
        fair.push(2, 2, ());
        while fair.pop().map(|(uid, ())| fair.charge(uid.unwrap(), SLOW)).is_some() {}
        for _ in 0..50 {
            fair.push(1, 1, ());
            fair.pop();
            fair.charge(1, SLOW);
        }
        (0..10).for_each(|_| fair.push(1, 1, ()));
        (0..10).for_each(|_| fair.push(2, 2, ()));
        let mut first = Vec::new();
        for _ in 0..6 {
            let (uid, ()) = fair.pop().unwrap();
            fair.charge(uid.unwrap(), SLOW);
            first.push(uid.unwrap());
        }
        assert!(first.iter().filter(|uid| **uid == 1).count() >= 2, "{first:?}");
    }
}
