//! Seats of a server: as many guests as there are seats, each counted for a user, a network or a machine. Nobody is
//! turned away. When all seats are taken, the oldest guest of whoever has most of them has to leave.

use std::collections::{BTreeMap, VecDeque};

/// Guests by what they are counted by (`K`), oldest first. Dropping what a guest brought (`E`) tells it to leave.
#[derive(Debug)]
pub struct Seats<K, E> {
    most: usize,
    most_of_one: usize,
    count: usize,
    /// Number of the last guest.
    last: u64,
    of: BTreeMap<K, VecDeque<(u64, E)>>,
}

impl<K: Ord + Copy, E> Seats<K, E> {
    /// Makes `most` seats, of which one user, network or machine has `most_of_one` at most.
    pub fn new(most: usize, most_of_one: usize) -> Self {
        Self { most, most_of_one, count: 0, last: 0, of: BTreeMap::new() }
    }

    /// Seats a guest; returns its number. If there are too many of its kind, or of all, an older one has to leave.
    pub fn take(&mut self, key: K, end: E) -> u64 {
        self.last += 1;
        if self.of.get(&key).is_some_and(|own| own.len() >= self.most_of_one) {
            self.end_oldest_of(key);
        } else if self.count >= self.most
            && let Some(busiest) = self.of.iter().max_by_key(|(_, own)| own.len()).map(|(key, _)| *key)
        {
            self.end_oldest_of(busiest);
        }
        self.of.entry(key).or_default().push_back((self.last, end));
        self.count += 1;
        self.last
    }

    /// Frees a guest's seat, and returns what it brought. None: it had to leave before.
    pub fn leave(&mut self, key: K, number: u64) -> Option<E> {
        let own = self.of.get_mut(&key)?;
        let at = own.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        let (_, end) = own.remove(at)?;
        self.count -= 1;
        if own.is_empty() {
            self.of.remove(&key);
        }
        Some(end)
    }

    /// Returns the number of guests.
    pub fn count(&self) -> usize {
        self.count
    }

    fn end_oldest_of(&mut self, key: K) {
        if let Some((number, _)) = self.of.get(&key).and_then(VecDeque::front) {
            let number = *number;
            self.leave(key, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::Seats;

    #[test]
    fn the_busiest_makes_room_and_nobody_is_turned_away() {
        let mut seats = Seats::new(8, 4);
        let guest = Rc::new(());
        let seated = |seats: &Seats<char, Rc<()>>, key| seats.of.get(&key).map_or(0, std::collections::VecDeque::len);
        let first = seats.take('a', Rc::clone(&guest));
        for _ in 0..100 {
            seats.take('b', Rc::clone(&guest));
        }
        assert_eq!((seated(&seats, 'a'), seated(&seats, 'b'), seats.count()), (1, 4, 5));
        for _ in 0..100 {
            seats.take('c', Rc::clone(&guest));
        }
        assert_eq!((seated(&seats, 'a'), seated(&seats, 'b') + seated(&seats, 'c'), seats.count()), (1, 7, 8));
        assert!(seats.leave('a', first).is_some() && seats.leave('a', first).is_none(), "who has few is left alone");
        assert_eq!(Rc::strong_count(&guest), 8, "7 seated ones and the original");
        drop(seats);
        assert_eq!(Rc::strong_count(&guest), 1);
    }
}
