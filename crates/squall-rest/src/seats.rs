//! Seats for connections, so that no user and no network can keep others out. A connection of this machine counts for the
//! user whose process has it, by the kernel's word; one of another machine for its network, until a request on it has
//! come with a token; then for the token's user.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use squall_files::callers::{Callers, network_of};
use squall_files::seats::Seats as Held;
use tokio::sync::oneshot;

/// Most connections of users at once, and most of one user.
const USERS_MAX: usize = 6144;
const OF_USER_MAX: usize = 2048;
/// Most connections at once from other machines without a token, and most of one network of these.
const STRANGERS_MAX: usize = 2048;
const OF_NETWORK_MAX: usize = 512;

/// What a connection is counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Origin {
    /// A user: of this machine, or whose token has come.
    User(u32),
    /// A network, of which nothing more is known.
    Network(IpAddr),
}

impl Origin {
    /// Returns where a connection over TCP comes from.
    pub(crate) fn of(callers: &Callers, local: Option<SocketAddr>, peer: SocketAddr) -> Self {
        let uid = local.and_then(|local| callers.uid(local, peer).ok().flatten());
        uid.map_or_else(|| Self::Network(network_of(peer.ip())), Self::User)
    }
}

/// The connections, by what they are counted by. Dropping a sender ends its connection.
#[derive(Debug)]
struct All {
    users: Held<u32, oneshot::Sender<()>>,
    strangers: Held<IpAddr, oneshot::Sender<()>>,
}

impl All {
    fn take(&mut self, origin: Origin, end: oneshot::Sender<()>) -> u64 {
        match origin {
            Origin::User(uid) => self.users.take(uid, end),
            Origin::Network(network) => self.strangers.take(network, end),
        }
    }

    fn leave(&mut self, origin: Origin, number: u64) -> Option<oneshot::Sender<()>> {
        match origin {
            Origin::User(uid) => self.users.leave(uid, number),
            Origin::Network(network) => self.strangers.leave(network, number),
        }
    }
}

/// Counts connections by where they come from.
#[derive(Clone, Debug)]
pub(crate) struct Seats(Arc<Mutex<All>>);

impl Default for Seats {
    fn default() -> Self {
        let (users, strangers) = (Held::new(USERS_MAX, OF_USER_MAX), Held::new(STRANGERS_MAX, OF_NETWORK_MAX));
        Self(Arc::new(Mutex::new(All { users, strangers })))
    }
}

/// A counted connection; dropping it ends the count.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Seats,
    at: Mutex<(Origin, u64)>,
    /// Where the connection comes from, whoever it is counted for.
    from: Origin,
}

impl Seats {
    /// Counts a connection. It has to end when the receiver does: others need its seat.
    pub(crate) fn take(&self, origin: Origin) -> (Arc<Seat>, oneshot::Receiver<()>) {
        let (end, ended) = oneshot::channel();
        let number = self.all().take(origin, end);
        (Arc::new(Seat { seats: self.clone(), at: Mutex::new((origin, number)), from: origin }), ended)
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Returns where the connection comes from.
    pub(crate) fn from(&self) -> Origin {
        self.from
    }

    /// From now on the connection counts for a user, as whom a request on it was made.
    pub(crate) fn belongs_to(&self, uid: u32) {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let (origin, number) = *at;
        if origin == Origin::User(uid) {
            return;
        }
        let mut all = self.seats.all();
        // A connection that has to end meanwhile has no seat any more.
        if let Some(end) = all.leave(origin, number) {
            *at = (Origin::User(uid), all.take(Origin::User(uid), end));
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let (origin, number) = *self.at.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(self.seats.all().leave(origin, number));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
    use std::sync::Arc;

    use squall_files::callers::{Callers, network_of};
    use tokio::sync::oneshot::Receiver;

    use super::{OF_NETWORK_MAX, OF_USER_MAX, Origin, STRANGERS_MAX, Seat, Seats, USERS_MAX};

    fn stands((_, ended): &mut (Arc<Seat>, Receiver<()>)) -> bool {
        ended.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty)
    }

    fn standing(all: &mut [(Arc<Seat>, Receiver<()>)]) -> usize {
        all.iter_mut().map(stands).filter(|stands| *stands).count()
    }

    // Regression test of attack A5: a user called from 127.0.0.2 to .5.
    #[test]
    fn a5_connections_within_this_machine_count_for_their_user() {
        let own = Origin::User(rustix::process::geteuid().as_raw());
        for (bound, called) in
            [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.7"), ("::", "127.0.0.9"), ("::1", "::1")]
        {
            let Ok(listener) = TcpListener::bind((bound, 0)) else { continue };
            let _caller = TcpStream::connect((called, listener.local_addr().unwrap().port())).unwrap();
            let (here, peer) = listener.accept().unwrap();
            assert_eq!(Origin::of(&Callers::open(), here.local_addr().ok(), peer), own, "{bound} {called}");
        }
        let far = "192.0.2.7:4".parse().unwrap();
        let network = Origin::Network("192.0.2.0".parse().unwrap());
        assert_eq!(Origin::of(&Callers::open(), "192.0.2.8:5".parse().ok(), far), network);
    }

    #[test]
    fn a5_one_user_leaves_seats_for_others() {
        let seats = Seats::default();
        let mut ann = seats.take(Origin::User(1001));
        let mut bobs: Vec<_> = (0..USERS_MAX + 100).map(|_| seats.take(Origin::User(1002))).collect();
        assert!(stands(&mut ann) && standing(&mut bobs) == OF_USER_MAX && stands(bobs.last_mut().unwrap()));
        // Users together may fill all seats; then those with most lose some.
        let mut others: Vec<_> =
            (2000..2010).flat_map(|uid| (0..1000).map(move |_| uid)).map(|uid| seats.take(Origin::User(uid))).collect();
        let mut last = seats.take(Origin::User(1003));
        assert!(stands(&mut ann) && stands(&mut last));
        assert_eq!(standing(&mut bobs) + standing(&mut others) + 2, USERS_MAX);
        drop((bobs, others, last));
        assert_eq!(seats.all().users.count(), 1);
    }

    #[test]
    fn a5_networks_without_a_token_share_their_part_and_leave_it_with_one() {
        let seats = Seats::default();
        let network = |n: u32| Origin::Network(network_of(IpAddr::from(Ipv4Addr::from_bits(10 << 24 | n << 8 | 1))));
        let mut user = seats.take(network(1));
        let mut same: Vec<_> = (0..600).map(|_| seats.take(network(1))).collect();
        assert!(!stands(&mut user) && standing(&mut same) == OF_NETWORK_MAX, "the oldest of its network");
        let mut user = seats.take(network(2));
        user.0.belongs_to(1001);
        let mut floods: Vec<_> = (100..5100).map(|n| seats.take(network(n))).collect();
        assert!(stands(&mut user), "who has come with a token is not counted with strangers");
        assert_eq!(standing(&mut floods) + standing(&mut same), STRANGERS_MAX);
        assert!(stands(&mut seats.take(network(3))));
        assert_eq!(user.0.from(), network(2));
        drop((floods, same, user));
        let all = seats.all();
        assert_eq!((all.users.count(), all.strangers.count()), (0, 0));
    }
}
