//! Identity of the peer of a local socket: user and group ids from the kernel, with the names and groups that belong to
//! them.

use std::collections::HashMap;
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
type Known = HashMap<(u32, u32), (Instant, Arc<Owner>)>;

/// Cache of user lookups. A lookup may block, so it must not run on the controller's own thread.
#[derive(Debug, Default)]
pub(crate) struct Authority {
    known: Mutex<Known>,
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

/// By user id: number of open connections, and the user's allowances.
type Accounts = HashMap<u32, (usize, Arc<Account>)>;

/// Limits each user's connections and requests at a daemon that all users may call.
#[derive(Clone, Debug)]
pub(crate) struct Users {
    accounts: Arc<Mutex<Accounts>>,
    most: usize,
}

/// How many requests and bytes one user may still have in this process, and the answers queued for the user. All
/// connections of the user share it.
#[derive(Debug)]
pub(crate) struct Account {
    /// One permit for each further request that may wait for a decision.
    requests: Arc<Semaphore>,
    /// One permit for each further byte of requests that may be read.
    reading: Arc<Semaphore>,
    /// Bytes of answers that are queued and not sent yet.
    unread: AtomicUsize,
}

/// The part of a user's allowances that one request takes: one request, and its bytes. Dropping it frees them.
#[derive(Debug)]
pub(crate) struct Claim(#[expect(dead_code, reason = "held")] [OwnedSemaphorePermit; 2]);

impl Account {
    fn new() -> Self {
        let (requests, reading) = (Semaphore::new(USER_REQUESTS_MAX), Semaphore::new(USER_READING_MAX));
        Self { requests: Arc::new(requests), reading: Arc::new(reading), unread: AtomicUsize::new(0) }
    }

    /// Waits until the user may have one more request, of `bytes` bytes, waiting for a decision.
    pub(crate) async fn claim(&self, bytes: usize) -> Claim {
        let bytes = bytes.min(USER_READING_MAX) as u32;
        let reading = Arc::clone(&self.reading).acquire_many_owned(bytes).await;
        let request = Arc::clone(&self.requests).acquire_owned().await;
        Claim([request, reading].map(|permit| permit.expect("these semaphores are never closed")))
    }

    /// Counts `bytes` more of answers queued for the user. False: that is more than the user may leave unread.
    pub(crate) fn owe(&self, bytes: usize) -> bool {
        self.unread.fetch_add(bytes, Ordering::Relaxed) + bytes <= USER_UNREAD_MAX
    }

    /// Counts `bytes` less of answers queued for the user: they were sent or discarded.
    pub(crate) fn settle(&self, bytes: usize) {
        self.unread.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Users {
    /// Allows each user, except operators, at most `most` connections.
    pub(crate) fn new(most: usize) -> Self {
        Self { accounts: Arc::default(), most }
    }

    /// Like `new`, in a process that may open `files` files: no user may have more connections than an eighth of them.
    pub(crate) fn within(most: usize, files: usize) -> Self {
        Self::new(most.min(files / 8).max(1))
    }

    /// Counts a connection until the result is dropped. None: the user has as many connections as allowed.
    pub(crate) fn enter(&self, uid: u32) -> Option<Entered> {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, account) = accounts.entry(uid).or_insert_with(|| (0, Arc::new(Account::new())));
        if *count >= self.most && !is_operator(uid) {
            return None;
        }
        *count += 1;
        Some(Entered { users: self.clone(), uid, account: Arc::clone(account) })
    }
}

/// A counted connection; dropping it ends the count.
#[derive(Debug)]
pub(crate) struct Entered {
    users: Users,
    uid: u32,
    account: Arc<Account>,
}

impl Entered {
    /// Returns the allowances of the connection's user.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut accounts = self.users.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((count, account)) = accounts.get_mut(&self.uid) {
            *count -= 1;
            // While answers are still queued, a third reference keeps the account and with it their count.
            if *count == 0 && Arc::strong_count(account) == 2 {
                accounts.remove(&self.uid);
            }
        }
    }
}

fn who(owner: &Arc<Owner>) -> Who {
    Who { owner: Arc::clone(owner), operator: is_operator(owner.uid) }
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
    use std::task::{Context, Poll, Waker};

    use squall_model::codec::HEADER_BYTES;
    use squall_model::limits::FRAME_BYTES_MAX;
    use tokio::io::AsyncWriteExt;

    use super::{USER_READING_MAX, USER_REQUESTS_MAX, USER_UNREAD_MAX, Users};
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
