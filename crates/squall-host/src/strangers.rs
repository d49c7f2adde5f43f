//! Connections of other machines that are not authenticated yet. They cost little, and no machine can take the place of
//! the others: of an address that has too many connections, the oldest one is ended.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use squall_files::seats::Seats;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

/// Handshakes that are calculated at once.
const HANDSHAKES_MAX: usize = 2;
/// First messages without a mark, as those of earlier releases, that are answered: this many at once, and so many each
/// second. Each costs a calculation with public keys, about 0.1 ms.
const UNMARKED_MAX: f64 = 400.0;
const UNMARKED_EACH_S: f64 = 200.0;
/// By how much fewer these are where every node is known to mark its first message: login hosts may be older.
const FEWER: f64 = 0.1;
/// Part of these that one network may use.
const UNMARKED_SHARE: f64 = 0.25;

/// The connections that are not authenticated yet.
#[derive(Clone, Debug)]
pub(crate) struct Strangers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    held: Mutex<StrangerState>,
    handshakes: Semaphore,
}

#[derive(Debug)]
struct StrangerState {
    /// Connections by network. Dropping the sender ends the connection.
    seats: Seats<IpAddr, oneshot::Sender<()>>,
    /// What is left for first messages without a mark: of all, and of networks that have used some of theirs.
    unmarked: Allowance,
    unmarked_of: BTreeMap<IpAddr, Allowance>,
}

/// What is left of an allowance that grows again.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    count: f64,
    at: Instant,
}

impl Allowance {
    /// Returns what is left now of the part `share` of the allowance for first messages without a mark.
    fn now(self, share: f64) -> f64 {
        (self.count + self.at.elapsed().as_secs_f64() * UNMARKED_EACH_S * share).min(UNMARKED_MAX * share)
    }
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
        let unmarked = Allowance { count: UNMARKED_MAX, at: Instant::now() };
        let held = StrangerState { seats: Seats::new(most, (most / 2).max(1)), unmarked, unmarked_of: BTreeMap::new() };
        let (held, handshakes) = (Mutex::new(held), Semaphore::new(HANDSHAKES_MAX));
        Self { shared: Arc::new(Shared { held, handshakes }) }
    }

    /// Adds a connection. If there are too many of its address, or of all, an older one is ended.
    pub(crate) fn enter(&self, address: IpAddr) -> (Stranger, Ended) {
        let network = network_of(address);
        let (end, ended) = oneshot::channel();
        let number = self.shared.held().seats.take(network, end);
        (Stranger { shared: Arc::clone(&self.shared), network, number }, Ended(ended))
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, StrangerState> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StrangerState {
    /// Whether a first message without a mark may be answered: there is something left for all, and for its network.
    /// `part`: part of the allowance that there is at the moment.
    fn takes_unmarked(&mut self, network: IpAddr, part: f64) -> bool {
        let (at, share) = (Instant::now(), part * UNMARKED_SHARE);
        let all = self.unmarked.now(part);
        if all < 1.0 {
            return false;
        }
        self.unmarked_of.retain(|_, left| left.now(share) < UNMARKED_MAX * share);
        let new = Allowance { count: UNMARKED_MAX * share, at };
        let own = self.unmarked_of.get(&network).unwrap_or(&new).now(share);
        if own < 1.0 {
            return false;
        }
        self.unmarked = Allowance { count: all - 1.0, at };
        self.unmarked_of.insert(network, Allowance { count: own - 1.0, at });
        true
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
        self.shared.held().takes_unmarked(self.network, if all_mark { FEWER } else { 1.0 })
    }

    /// Waits for its turn to calculate a handshake.
    pub(crate) async fn turn(&self) -> io::Result<SemaphorePermit<'_>> {
        self.shared.handshakes.acquire().await.map_err(io::Error::other)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // One that had to make room has no seat any more.
        drop(self.shared.held().seats.leave(self.network, self.number));
    }
}

/// Returns what counts as one address: an IPv4 address, or the first half of an IPv6 one, as a machine may have all of
/// the second half. The machines of a cluster often share one `/24`, and must not take each other's places.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::{Ended, Stranger, Strangers, UNMARKED_MAX, UNMARKED_SHARE};

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
        assert_eq!(strangers.shared.held().seats.count(), 0);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one() {
        let strangers = Strangers::new(4);
        let mut all: Vec<_> = (0..5).map(|n| strangers.enter(format!("2001:db8::{n}").parse().unwrap())).collect();
        assert_eq!(all.iter_mut().map(is_ended).filter(|ended| *ended).count(), 3);
        assert!(!is_ended(&mut strangers.enter("::ffff:10.0.0.1".parse().unwrap())));
    }

    #[test]
    fn first_messages_without_a_mark_are_limited_for_each_network_and_for_all() {
        let strangers = Strangers::new(4);
        let answered = |address: &str, all_mark| {
            let (stranger, _) = strangers.enter(address.parse().unwrap());
            (0..10_000).filter(|_| stranger.may_be_unmarked(all_mark)).count()
        };
        let share = (UNMARKED_MAX * UNMARKED_SHARE) as usize;
        let first = answered("10.0.0.1", false);
        assert!((share..2 * share).contains(&first), "{first}");
        assert!(answered("10.0.0.2", false) >= share, "another network has its own");
        let others: usize = (3..20).map(|n| answered(&format!("10.0.0.{n}"), false)).sum();
        assert!((share..4 * share).contains(&others), "but all together are limited, too: {others}");
        let (stranger, _) = Strangers::new(4).enter("10.0.0.1".parse().unwrap());
        let fewer = (0..10_000).filter(|_| stranger.may_be_unmarked(true)).count();
        assert!((share / 10..share / 2).contains(&fewer), "{fewer}");
    }
}
