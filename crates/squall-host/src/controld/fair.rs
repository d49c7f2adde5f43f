//! Fair queue of the controller's arrivals. Nodes together and users together have half of the time each, as long as both
//! have something queued. Among nodes, and among users, whoever has used the least time is the next; the connections of one
//! take turns. So whoever sends much delays itself alone.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// Whoever has caused an arrival, and is charged for the time that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The node whose connection it came by, with those below it in the tree.
    Node(Arc<str>),
    /// A user, by id.
    User(u32),
}

/// Queue of arrivals, each of a node's or of a user's connection. Those of one connection stay in order.
#[derive(Debug)]
pub(super) struct Fair<T> {
    /// Arrivals of the controller itself, which precede all others.
    own: VecDeque<T>,
    nodes: Turns<Arc<str>, T>,
    users: Turns<u32, T>,
}

/// The arrivals of guests of one kind.
#[derive(Debug)]
struct Turns<K, T> {
    guests: HashMap<K, Waiting<T>>,
    /// Guests with queued arrivals, as (nanoseconds used, guest): the first is served next.
    order: BTreeSet<(u64, K)>,
    /// Time used, ns, by the guest served last. A returning guest is counted at least this much, so that idle time is no
    /// credit.
    floor: u64,
    /// Time used by all of them, ns.
    had: u64,
    len: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    /// Processing time that the guest's arrivals have taken so far, ns.
    had: u64,
    /// Connections with queued arrivals, the next one to serve first.
    turns: VecDeque<u64>,
    by_connection: HashMap<u64, VecDeque<T>>,
}

impl<T> Default for Fair<T> {
    fn default() -> Self {
        Self { own: VecDeque::new(), nodes: Turns::default(), users: Turns::default() }
    }
}

impl<K, T> Default for Turns<K, T> {
    fn default() -> Self {
        Self { guests: HashMap::new(), order: BTreeSet::new(), floor: 0, had: 0, len: 0 }
    }
}

impl<T> Fair<T> {
    /// Returns the number of queued arrivals.
    pub(super) fn len(&self) -> usize {
        self.own.len() + self.nodes.len + self.users.len
    }

    /// Returns the number of queued arrivals of nodes.
    pub(super) const fn of_nodes(&self) -> usize {
        self.nodes.len
    }

    /// Returns the number of queued arrivals of users.
    pub(super) const fn of_users(&self) -> usize {
        self.users.len
    }

    /// Queues an arrival from a guest's connection. None for the guest: the controller itself.
    pub(super) fn push(&mut self, guest: Option<Source>, connection: u64, arrival: T) {
        match guest {
            None => self.own.push_back(arrival),
            Some(Source::Node(name)) => self.nodes.push(name, connection, arrival, self.users.had),
            Some(Source::User(uid)) => self.users.push(uid, connection, arrival, self.nodes.had),
        }
    }

    /// Takes the next arrival, with its guest. None for the guest: the controller itself.
    pub(super) fn pop(&mut self) -> Option<(Option<Source>, T)> {
        if let Some(arrival) = self.own.pop_front() {
            return Some((None, arrival));
        }
        if self.users.len == 0 || (self.nodes.len > 0 && self.nodes.had <= self.users.had) {
            return self.nodes.pop().map(|(name, arrival)| (Some(Source::Node(name)), arrival));
        }
        self.users.pop().map(|(uid, arrival)| (Some(Source::User(uid)), arrival))
    }

    /// Adds `took` to the time used by a guest.
    pub(super) fn charge(&mut self, guest: Option<Source>, took: Duration) {
        match guest {
            None => {}
            Some(Source::Node(name)) => self.nodes.charge(name, took),
            Some(Source::User(uid)) => self.users.charge(uid, took),
        }
    }
}

/// Returns the estimated time for reading and decoding a frame of this length, which happens on the same thread.
pub(super) const fn reading(bytes: usize) -> Duration {
    Duration::from_nanos(bytes as u64 * 8)
}

impl<K: Clone + Ord + Hash, T> Turns<K, T> {
    /// `other_had`: time used by those of the other kind.
    fn push(&mut self, guest: K, connection: u64, arrival: T, other_had: u64) {
        if self.len == 0 {
            self.had = self.had.max(other_had);
        }
        let floor = self.floor;
        let new = || Waiting { had: floor, turns: VecDeque::new(), by_connection: HashMap::new() };
        let waiting = self.guests.entry(guest.clone()).or_insert_with(new);
        if waiting.turns.is_empty() {
            waiting.had = waiting.had.max(floor);
            self.order.insert((waiting.had, guest));
        }
        let own = waiting.by_connection.entry(connection).or_default();
        if own.is_empty() {
            waiting.turns.push_back(connection);
        }
        own.push_back(arrival);
        self.len += 1;
    }

    fn pop(&mut self) -> Option<(K, T)> {
        let (had, guest) = self.order.first().cloned()?;
        let waiting = self.guests.get_mut(&guest)?;
        let connection = waiting.turns.pop_front()?;
        let own = waiting.by_connection.get_mut(&connection)?;
        let arrival = own.pop_front()?;
        if own.is_empty() {
            waiting.by_connection.remove(&connection);
        } else {
            waiting.turns.push_back(connection);
        }
        if waiting.turns.is_empty() {
            self.order.pop_first();
        }
        self.floor = self.floor.max(had);
        self.len -= 1;
        Some((guest, arrival))
    }

    fn charge(&mut self, guest: K, took: Duration) {
        let took = (took.as_nanos() as u64).max(1);
        self.had = self.had.saturating_add(took);
        let Some(waiting) = self.guests.get_mut(&guest) else { return };
        let before = (waiting.had, guest.clone());
        waiting.had = waiting.had.saturating_add(took);
        if self.order.remove(&before) {
            self.order.insert((waiting.had, guest));
        } else if waiting.had <= self.floor {
            // A guest with no more time than the floor needs no entry.
            self.guests.remove(&guest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Fair, Source};

    const SLOW: Duration = Duration::from_millis(60);
    const QUICK: Duration = Duration::from_micros(10);

    #[expect(clippy::unnecessary_wraps, reason = "a turn's source is optional")]
    fn user(uid: u32) -> Option<Source> {
        Some(Source::User(uid))
    }

    /// Regression test of fault H2 in faults.md.
    #[test]
    fn h2_who_asks_for_much_keeps_nobody_else_waiting() {
        let mut fair = Fair::default();
        (0..5500).for_each(|_| fair.push(user(1), 10, "slow"));
        let (mut answered, mut slow) = (0, 0);
        for round in 0..200 {
            if round % 2 == 0 {
                fair.push(user(2), 20 + round, "quick");
            }
            let (guest, _) = fair.pop().unwrap();
            let quick = guest == user(2);
            fair.charge(guest, if quick { QUICK } else { SLOW });
            answered += usize::from(quick);
            slow += usize::from(!quick);
        }
        assert_eq!((answered, slow), (100, 100), "each quick one waits for one slow one at most");
        fair.push(None, 0, "timer");
        assert_eq!(fair.pop(), Some((None, "timer")));
    }

    /// attack-trial.md A7: a node that sends reports without end delays users by one of them, and other nodes, too.
    #[test]
    fn a7_a_node_that_reports_much_keeps_nobody_else_waiting() {
        let (mut fair, node) = (Fair::default(), |name: &str| Some(Source::Node(name.into())));
        (0..50_000).for_each(|_| fair.push(node("n4"), 4, "flood"));
        let (mut served, mut waited) = (Vec::new(), 0);
        for round in 0..300 {
            match round % 3 {
                0 => fair.push(node("n1"), 1, "n1"),
                1 => fair.push(user(7), 20, "ann"),
                _ => {}
            }
            let (guest, what) = fair.pop().unwrap();
            fair.charge(guest, if what == "flood" { SLOW } else { QUICK });
            served.push(what);
            waited = waited.max(fair.len() - (50_000 - served.iter().filter(|what| **what == "flood").count()));
        }
        for quick in ["n1", "ann"] {
            assert!(served.iter().filter(|what| **what == quick).count() >= 98, "{quick}");
        }
        assert!(waited <= 2, "{waited} others wait at a time");
        // Two kinds that both want more than there is have half of the time each.
        let mut fair = Fair::default();
        let (mut of_nodes, mut of_users) = (0, 0);
        for name in ["n1", "n2", "n3", "n4"] {
            (0..1000).for_each(|_| fair.push(node(name), 1, ()));
        }
        (0..1000).for_each(|_| fair.push(user(1), 2, ()));
        for _ in 0..1000 {
            let (guest, ()) = fair.pop().unwrap();
            match guest {
                Some(Source::Node(_)) => of_nodes += 1,
                _ => of_users += 1,
            }
            fair.charge(guest, QUICK);
        }
        assert!((495..=505).contains(&of_nodes), "{of_nodes} and {of_users}");
    }

    #[test]
    fn h2_connections_of_a_user_take_turns_and_keep_their_order() {
        let mut fair = Fair::default();
        for (connection, arrival) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (2, "b2")] {
            fair.push(user(7), connection, arrival);
        }
        let mut order = Vec::new();
        while let Some((guest, arrival)) = fair.pop() {
            fair.charge(guest, QUICK);
            order.push(arrival);
        }
        assert_eq!(order, ["a1", "b1", "a2", "b2", "a3"]);
        assert_eq!(fair.len(), 0);
    }

    #[test]
    fn h2_nobody_saves_up_time() {
        let mut fair = Fair::default();
        let (one, two) = (user(1), user(2));
        fair.push(one.clone(), 1, ());
        fair.push(two.clone(), 2, ());
        while fair.pop().map(|(guest, ())| fair.charge(guest, SLOW)).is_some() {}
        for _ in 0..50 {
            fair.push(one.clone(), 1, ());
            fair.pop();
            fair.charge(one.clone(), SLOW);
        }
        (0..10).for_each(|_| fair.push(one.clone(), 1, ()));
        (0..10).for_each(|_| fair.push(two.clone(), 2, ()));
        let mut first = Vec::new();
        for _ in 0..6 {
            let (guest, ()) = fair.pop().unwrap();
            fair.charge(guest.clone(), SLOW);
            first.push(guest);
        }
        assert!(first.iter().filter(|guest| **guest == one).count() >= 2, "{first:?}");
    }
}
