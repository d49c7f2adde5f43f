//! Identity of the peer of a local socket: user and group ids from the kernel, with the names and groups that belong to
//! them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use squall_engine::control::Who;
use squall_files::users;
use squall_model::job::Owner;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a looked-up user name and its groups are cached.
const KEPT: Duration = Duration::from_mins(1);
/// Number of users cached at most; at this number the cache is emptied.
const USERS_MAX: usize = 4096;

/// Cached owners by (user id, group id), each with the time of its lookup.
type OwnerCache = HashMap<(u32, u32), (Instant, Arc<Owner>)>;

/// Cache of user lookups. A lookup may block, so it must not run on the controller's own thread.
#[derive(Debug, Default)]
pub(crate) struct Authority {
    known: Mutex<OwnerCache>,
}

impl Authority {
    /// Returns the user and group with these ids from the cache; None: not cached, or cached for longer than `KEPT`.
    pub(crate) fn known(&self, uid: u32, gid: u32) -> Option<Who> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, owner) = known.get(&(uid, gid))?;
        (since.elapsed() < KEPT).then(|| who(owner))
    }

    /// Looks the peer with these ids up in the system's user database, and caches it. May block.
    pub(crate) fn look_up(&self, uid: u32, gid: u32) -> Who {
        let owner = Arc::new(owner(uid, gid));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= USERS_MAX {
            known.clear();
        }
        known.insert((uid, gid), (Instant::now(), Arc::clone(&owner)));
        who(&owner)
    }
}

/// Whether the user with this id may act on everything: root, or the user as which this daemon runs.
pub(crate) fn is_operator(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Most requests of one user that may wait for a decision; further ones are left unread in their sockets.
const USER_REQUESTS_MAX: usize = 1024;
/// Most bytes of one user's requests that may be partly read or waiting for a decision.
const USER_READING_MAX: usize = 64 << 20;
/// Most bytes of answers that may be queued for one user who does not read them.
const USER_UNREAD_MAX: usize = 64 << 20;

/// A machine that forwards its users' requests has the allowances of so many users, besides each user's own.
const HOST_USERS: usize = 4;

/// By guest: number of open connections, and the guest's allowances.
type Shares<K> = HashMap<K, (usize, Arc<Share>)>;

/// Limits connections and requests of each guest at a daemon that many may call.
#[derive(Clone, Debug)]
pub(crate) struct Guests<K> {
    shares: Arc<Mutex<Shares<K>>>,
    most: usize,
    /// The guest's allowances, as a multiple of a user's.
    users: usize,
}

/// Limits each user, by user id.
pub(crate) type Users = Guests<u32>;
/// Limits each machine that forwards its users' requests, by the machine's name.
pub(crate) type Hosts = Guests<Arc<str>>;

/// How many requests and bytes one guest may still have in this process, and the answers queued for the guest. All
/// connections of the guest share it.
#[derive(Debug)]
struct Share {
    /// One permit for each further request that may wait for a decision.
    requests: Arc<Semaphore>,
    /// One permit for each further byte of requests that may be read.
    reading: Arc<Semaphore>,
    /// Bytes of answers that are queued and not sent yet.
    unread: AtomicUsize,
    unread_max: usize,
}

/// Allowances that a connection uses: those of its user, and of the machine from which it comes.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    user: Arc<Share>,
    /// None: the user is on this machine.
    host: Option<Arc<Share>>,
}

/// The part of the allowances that one request takes: one request, and its bytes. Dropping it frees them.
#[derive(Debug)]
pub(crate) struct Claim(
    #[expect(dead_code, reason = "held")] [OwnedSemaphorePermit; 2],
    #[expect(dead_code, reason = "held")] Option<[OwnedSemaphorePermit; 2]>,
);

impl Share {
    fn new(users: usize) -> Self {
        let (requests, reading) = (Semaphore::new(users * USER_REQUESTS_MAX), Semaphore::new(users * USER_READING_MAX));
        let unread_max = users * USER_UNREAD_MAX;
        Self { requests: Arc::new(requests), reading: Arc::new(reading), unread: AtomicUsize::new(0), unread_max }
    }

    async fn claim(&self, bytes: usize) -> [OwnedSemaphorePermit; 2] {
        let bytes = bytes.min(USER_READING_MAX) as u32;
        let reading = Arc::clone(&self.reading).acquire_many_owned(bytes).await;
        let request = Arc::clone(&self.requests).acquire_owned().await;
        [request, reading].map(|permit| permit.expect("these semaphores are never closed"))
    }

    fn owe(&self, bytes: usize) -> bool {
        self.unread.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.unread_max
    }
}

impl Account {
    /// Returns the allowances of this user on a connection of the machine `host`.
    pub(crate) fn by(&self, host: &Admission<Arc<str>>) -> Self {
        Self { user: Arc::clone(&self.user), host: Some(Arc::clone(&host.account.user)) }
    }

    /// Waits until one more request, of `bytes` bytes, may wait for a decision.
    pub(crate) async fn claim(&self, bytes: usize) -> Claim {
        let user = self.user.claim(bytes).await;
        let Some(host) = &self.host else { return Claim(user, None) };
        Claim(user, Some(host.claim(bytes).await))
    }

    /// Counts `bytes` more of queued answers. False: that is more than may be left unread.
    pub(crate) fn owe(&self, bytes: usize) -> bool {
        let of_user = self.user.owe(bytes);
        self.host.as_ref().is_none_or(|host| host.owe(bytes)) && of_user
    }

    /// Counts `bytes` less of queued answers: they were sent or discarded.
    pub(crate) fn uncount(&self, bytes: usize) {
        for share in [Some(&self.user), self.host.as_ref()].into_iter().flatten() {
            share.unread.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl<K: Clone + Eq + Hash> Guests<K> {
    fn with(most: usize, users: usize) -> Self {
        Self { shares: Arc::default(), most, users }
    }

    /// Counts a connection until the result is dropped. None: the guest has as many connections as allowed, and isn't
    /// exempt from this.
    fn admit(&self, guest: K, exempt: bool) -> Option<Admission<K>> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, share) = shares.entry(guest.clone()).or_insert_with(|| (0, Arc::new(Share::new(self.users))));
        if *count >= self.most && !exempt {
            return None;
        }
        *count += 1;
        let account = Account { user: Arc::clone(share), host: None };
        Some(Admission { guests: self.clone(), guest, account })
    }
}

impl Users {
    /// Allows each user, except operators, at most `most` connections.
    pub(crate) fn new(most: usize) -> Self {
        Self::with(most, 1)
    }

    /// Like `new`, in a process that may open `files` files: no user may have more connections than an eighth of them.
    pub(crate) fn within(most: usize, files: usize) -> Self {
        Self::new(most.min(files / 8).max(1))
    }

    /// Counts a connection until the result is dropped. None: the user has as many connections as allowed.
    pub(crate) fn enter(&self, uid: u32) -> Option<Admission<u32>> {
        self.admit(uid, is_operator(uid))
    }
}

impl Hosts {
    /// Allows each machine at most `most` connections, and no more than a quarter of the `files` files that this
    /// process may open.
    pub(crate) fn of_machines(most: usize, files: usize) -> Self {
        Self::with(most.min(files / 4).max(1), HOST_USERS)
    }

    /// Allows the daemons of each machine at most `most` connections, and the allowances of one user.
    pub(crate) fn of_daemons(most: usize) -> Self {
        Self::with(most, 1)
    }

    /// Counts a connection until the result is dropped. None: the machine has as many connections as allowed.
    pub(crate) fn enter_from(&self, host: &Arc<str>) -> Option<Admission<Arc<str>>> {
        self.admit(Arc::clone(host), false)
    }
}

/// A counted connection; dropping it ends the count.
#[derive(Debug)]
pub(crate) struct Admission<K: Clone + Eq + Hash> {
    guests: Guests<K>,
    guest: K,
    account: Account,
}

impl Admission<u32> {
    /// Returns the allowances of the connection's user.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }
}

impl Admission<Arc<str>> {
    /// Returns the allowances of the machine.
    pub(crate) fn allowances(&self) -> &Account {
        &self.account
    }
}

impl<K: Clone + Eq + Hash> Drop for Admission<K> {
    fn drop(&mut self) {
        let mut shares = self.guests.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((count, share)) = shares.get_mut(&self.guest) {
            *count -= 1;
            // While answers are still queued, a third reference keeps the share and with it their count.
            if *count == 0 && Arc::strong_count(share) == 2 {
                shares.remove(&self.guest);
            }
        }
    }
}

fn who(owner: &Arc<Owner>) -> Who {
    Who { owner: Arc::clone(owner), operator: is_operator(owner.uid), by: None, job: None }
}

fn owner(uid: u32, gid: u32) -> Owner {
    let user = users::by_uid(uid);
    let groups = user.as_ref().map_or_else(|| vec![gid], |u| users::groups(&u.name, gid));
    Owner {
        uid,
        gid,
        groups,
        user: user.map_or_else(|| uid.to_string(), |u| u.name),
        group: users::group_name(gid).unwrap_or_else(|| gid.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use squall_model::codec::HEADER_BYTES;
    use squall_model::limits::FRAME_BYTES_MAX;
    use tokio::io::AsyncWriteExt;

    use super::{HOST_USERS, Hosts, USER_READING_MAX, USER_REQUESTS_MAX, USER_UNREAD_MAX, Users};
    use crate::link::{self, Outgoing};

    fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    /// Regression test of fault H3 in faults.md.
    #[test]
    fn h3_frames_half_read_take_a_users_share_of_memory_and_no_more() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let users = Users::new(2048);
            let (ann, bob) = (users.enter(1001).unwrap(), users.enter(1002).unwrap());
            let mut head = vec![0; HEADER_BYTES];
            head[..4].copy_from_slice(&(FRAME_BYTES_MAX as u32).to_le_bytes());
            let share = USER_READING_MAX / FRAME_BYTES_MAX;
            let mut connections = Vec::new();
            for _ in 0..share + 2 {
                let (mut far, near) = tokio::io::duplex(1024);
                far.write_all(&head).await.unwrap();
                connections.push((far, near));
            }
            let mut reads: Vec<_> =
                connections.iter_mut().map(|(_, near)| Box::pin(link::read_of::<u64>(near, ann.account()))).collect();
            for read in &mut reads {
                assert!(ready(read).is_none(), "only the head has come");
            }
            assert!(ready(ann.account().claim(1)).is_none(), "{share} connections have all that there is");
            assert!(ready(bob.account().claim(FRAME_BYTES_MAX)).is_some(), "and none of what others have");
            drop(reads);
            assert!(ready(ann.account().claim(USER_READING_MAX)).is_some(), "who gives up gives back");
        });
    }

    /// Regression test of fault H3 in faults.md.
    #[test]
    fn h3_requests_that_wait_for_a_decision_are_counted() {
        let users = Users::new(2048);
        let (ann, bob) = (users.enter(1001).unwrap(), users.enter(1002).unwrap());
        let mut claims: Vec<_> = (0..USER_REQUESTS_MAX).map(|_| ready(ann.account().claim(1)).unwrap()).collect();
        assert!(ready(ann.account().claim(1)).is_none() && ready(bob.account().claim(1)).is_some());
        claims.pop();
        assert!(ready(ann.account().claim(1)).is_some());
    }

    /// Regression test of fault H3 in faults.md.
    #[test]
    fn h3_answers_that_a_user_does_not_take_cut_off_that_user_alone() {
        let users = Users::new(2048);
        let (ann, bob) = (users.enter(1001).unwrap(), users.enter(1002).unwrap());
        // A frame adds its header to these bytes.
        let answer = squall_model::encoding::ByteBuf::from(vec![0; (4 << 20) - 64]);
        let most = USER_UNREAD_MAX >> 22;
        let takes = |queue: &Outgoing| queue.push(&answer).is_ok() && !queue.is_closed();
        // Spread over many connections of the same user.
        let queues: Vec<Outgoing> = (0..=most).map(|_| Outgoing::of(ann.account())).collect();
        assert_eq!(queues.iter().filter(|queue| takes(queue)).count(), most);
        assert!(takes(&Outgoing::of(bob.account())));
        drop((ann, queues));
        let again = users.enter(1001).unwrap();
        assert!(again.account().owe(1), "what is given up is not owed");
    }

    /// Regression test of fault M8 in faults.md.
    #[test]
    fn m8_a_user_has_an_eighth_of_the_files_at_most() {
        for (files, most) in [(1024, 128), (1 << 20, 2048), (usize::MAX, 2048), (4, 1)] {
            let users = Users::within(2048, files);
            let entered: Vec<_> = (0..=most).map_while(|_| users.enter(4321)).collect();
            assert_eq!(entered.len(), most, "of {files}");
        }
    }

    #[test]
    fn a_machine_has_limits_of_its_own_besides_those_of_its_users() {
        let (users, hosts) = (Users::new(2048), Hosts::of_machines(2, 1 << 20));
        let name: Arc<str> = "login1".into();
        let first = hosts.enter_from(&name).unwrap();
        let second = hosts.enter_from(&name);
        assert!(second.is_some() && hosts.enter_from(&name).is_none() && hosts.enter_from(&"login2".into()).is_some());
        drop(second);
        assert!(hosts.enter_from(&name).is_some(), "a connection that has ended is not counted");
        // More users than the machine may have requests for.
        let entered: Vec<_> = (0..=HOST_USERS as u32).map(|n| users.enter(2000 + n).unwrap()).collect();
        let accounts: Vec<_> = entered.iter().map(|user| user.account().by(&first)).collect();
        let claims: Vec<_> = accounts[1..]
            .iter()
            .flat_map(|account| (0..USER_REQUESTS_MAX).map(|_| ready(account.claim(1)).unwrap()))
            .collect();
        assert!(ready(accounts[0].claim(1)).is_none(), "the machine has all its requests under way");
        assert!(ready(entered[0].account().claim(1)).is_some(), "the user has not, elsewhere");
        drop(claims);
        assert!(ready(accounts[0].claim(1)).is_some());
        // Answers that are not taken count for user and machine.
        assert!(accounts[1..].iter().all(|account| account.owe(USER_UNREAD_MAX)) && !accounts[0].owe(1));
        accounts[1].uncount(USER_UNREAD_MAX);
        assert!(accounts[0].owe(1));
    }

    #[test]
    fn nobody_takes_the_places_of_others() {
        let users = Users::new(2);
        let first: Vec<_> = (0..2).map(|_| users.enter(4321).unwrap()).collect();
        assert!(users.enter(4321).is_none() && users.enter(4322).is_some());
        let operators = (0..5).map(|_| users.enter(0)).collect::<Option<Vec<_>>>();
        assert!(operators.is_some_and(|all| all.len() == 5));
        drop(first);
        assert!(users.enter(4321).is_some());
    }
}
