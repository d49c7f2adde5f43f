//! Connections of other machines that are not authenticated yet. They cost little, and no machine can take the place of
//! the others: of an address that has too many connections, the oldest one is ended.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

/// Handshakes that are calculated at once.
const HANDSHAKES_MAX: usize = 2;
/// First messages without a mark, as those of earlier releases, that are answered: this many at once, and so many each
/// second. Each costs a calculation with public keys, about 0.1 ms.
const UNMARKED_MAX: f64 = 400.0;
const UNMARKED_EACH_S: f64 = 200.0;
/// By how much fewer these are where every node is known to mark its first message: login hosts may be older.
const FEWER: f64 = 0.1;

/// The connections that are not authenticated yet.
#[derive(Clone, Debug)]
pub(crate) struct Strangers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Most connections, and most of one address.
    most: usize,
    most_of_one: usize,
    held: Mutex<Held>,
    handshakes: Semaphore,
}

#[derive(Debug)]
struct Held {
    count: usize,
    /// Number of the last connection.
    last: u64,
    /// Connections by address, oldest first. Dropping the sender ends the connection.
    of: BTreeMap<IpAddr, VecDeque<(u64, oneshot::Sender<()>)>>,
    unmarked: f64,
    refilled: Instant,
}

/// A connection that is not authenticated yet; it counts as long as this exists.
#[derive(Debug)]
pub(crate) struct Stranger {
    shared: Arc<Shared>,
    network: IpAddr,
    number: u64,
}

/// The end of a connection that has to make room for others.
#[derive(Debug)]
pub(crate) struct Ended(oneshot::Receiver<()>);

impl Strangers {
    /// Makes room for `most` connections, half of them of one address.
    pub(crate) fn new(most: usize) -> Self {
        let held = Held { count: 0, last: 0, of: BTreeMap::new(), unmarked: UNMARKED_MAX, refilled: Instant::now() };
        let (held, handshakes) = (Mutex::new(held), Semaphore::new(HANDSHAKES_MAX));
        Self { shared: Arc::new(Shared { most, most_of_one: (most / 2).max(1), held, handshakes }) }
    }

    /// Adds a connection. If there are too many of its address, or of all, an older one is ended.
    pub(crate) fn enter(&self, address: IpAddr) -> (Stranger, Ended) {
        let network = network_of(address);
        let (end, ended) = oneshot::channel();
        let mut held = self.shared.held();
        held.last += 1;
        let number = held.last;
        if held.of.get(&network).is_some_and(|own| own.len() >= self.shared.most_of_one) {
            held.end_oldest_of(network);
        } else if held.count >= self.shared.most
            && let Some(busiest) = held.of.iter().max_by_key(|(_, own)| own.len()).map(|(network, _)| *network)
        {
            held.end_oldest_of(busiest);
        }
        held.of.entry(network).or_default().push_back((number, end));
        held.count += 1;
        drop(held);
        (Stranger { shared: Arc::clone(&self.shared), network, number }, Ended(ended))
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn end_oldest_of(&mut self, network: IpAddr) {
        let number = self.of.get(&network).and_then(|own| own.front()).map(|(number, _)| *number);
        if let Some(number) = number {
            self.remove(network, number);
        }
    }

    fn remove(&mut self, network: IpAddr, number: u64) {
        let Some(own) = self.of.get_mut(&network) else { return };
        if let Ok(at) = own.binary_search_by_key(&number, |(number, _)| *number) {
            own.remove(at);
            self.count -= 1;
        }
        if own.is_empty() {
            self.of.remove(&network);
        }
    }
}

impl Ended {
    /// Returns the result of `meeting`, unless the connection has to end before.
    pub(crate) async fn or<T>(self, meeting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        tokio::select! {
            met = meeting => met,
            _ = self.0 => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

impl Stranger {
    /// Returns whether a first message without a mark may be answered now. `all_mark`: all nodes are known to make marks.
    pub(crate) fn may_be_unmarked(&self, all_mark: bool) -> bool {
        let mut held = self.shared.held();
        let now = Instant::now();
        let part = if all_mark { FEWER } else { 1.0 };
        let gained = now.duration_since(held.refilled).as_secs_f64() * UNMARKED_EACH_S * part;
        held.unmarked = (held.unmarked + gained).min(UNMARKED_MAX * part);
        held.refilled = now;
        let may = held.unmarked >= 1.0;
        if may {
            held.unmarked -= 1.0;
        }
        may
    }

    /// Waits for its turn to calculate a handshake.
    pub(crate) async fn turn(&self) -> io::Result<SemaphorePermit<'_>> {
        self.shared.handshakes.acquire().await.map_err(io::Error::other)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.shared.held().remove(self.network, self.number);
    }
}

/// Returns what counts as one address: an IPv4 address, or the first half of an IPv6 one, as a machine may have all of
/// the second half.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::{Ended, Stranger, Strangers, UNMARKED_MAX};

    fn is_ended((_, ended): &mut (Stranger, Ended)) -> bool {
        ended.0.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn a_machine_takes_no_places_of_others() {
        let strangers = Strangers::new(64);
        let [good, bad] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
        let mut first = strangers.enter(good);
        let mut floods: Vec<_> = (0..5000).map(|_| strangers.enter(bad)).collect();
        let mut second = strangers.enter(good);
        assert!(!is_ended(&mut first) && !is_ended(&mut second));
        let left = floods.iter_mut().map(is_ended).filter(|ended| !ended).count();
        assert_eq!(left, 32, "half of the places");
        assert!(!is_ended(floods.last_mut().unwrap()), "the oldest are ended");
        // Many machines together fill all places; then those with most connections lose some.
        let others: Vec<_> = (0..100_u8).map(|n| strangers.enter(format!("10.0.1.{n}").parse().unwrap())).collect();
        assert!(!is_ended(&mut first) || !is_ended(&mut second));
        drop((floods, others, first, second));
        assert_eq!(strangers.shared.held().count, 0);
        assert!(strangers.shared.held().of.is_empty());
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one() {
        let strangers = Strangers::new(4);
        let mut all: Vec<_> = (0..5).map(|n| strangers.enter(format!("2001:db8::{n}").parse().unwrap())).collect();
        assert_eq!(all.iter_mut().map(is_ended).filter(|ended| *ended).count(), 3);
        assert!(!is_ended(&mut strangers.enter("::ffff:10.0.0.1".parse().unwrap())));
    }

    #[test]
    fn first_messages_without_a_mark_are_limited() {
        let (stranger, _) = Strangers::new(4).enter("10.0.0.1".parse().unwrap());
        let answered = (0..10_000).filter(|_| stranger.may_be_unmarked(false)).count();
        assert!((UNMARKED_MAX as usize..1000).contains(&answered), "{answered}");
        let (stranger, _) = Strangers::new(4).enter("10.0.0.1".parse().unwrap());
        let answered = (0..10_000).filter(|_| stranger.may_be_unmarked(true)).count();
        assert!((UNMARKED_MAX as usize / 10..100).contains(&answered), "{answered}");
    }
}
