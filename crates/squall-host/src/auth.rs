//! Who is at the other end of a local socket: what the kernel says, with names and groups.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use squall_engine::control::Who;
use squall_model::job::Owner;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sys::users;

/// How long names and groups are believed before they are looked up again.
const KEPT: Duration = Duration::from_mins(1);
/// Users remembered at most.
const USERS_MAX: usize = 4096;

/// Owners by user and group id, and when they were looked up.
type Known = HashMap<(u32, u32), (Instant, Arc<Owner>)>;

/// Looks users up and remembers them for a while. Lookups may block: not on the controller's own thread.
#[derive(Debug, Default)]
pub(crate) struct Authority {
    known: Mutex<Known>,
}

impl Authority {
    /// The peer with these ids, if it is known and fresh.
    pub(crate) fn known(&self, uid: u32, gid: u32) -> Option<Who> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, owner) = known.get(&(uid, gid))?;
        (since.elapsed() < KEPT).then(|| who(owner))
    }

    /// The peer with these ids, looked up.
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

/// Whether a user may act on everything: root, or who runs the cluster.
pub(crate) fn is_operator(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Requests of one user that may wait for a decision; more wait in their sockets.
const USER_REQUESTS_MAX: usize = 1024;
/// Bytes of one user's requests that may be half read, or wait for a decision.
const USER_READING_MAX: usize = 64 << 20;
/// Bytes of answers that one user may leave unread.
const USER_UNREAD_MAX: usize = 64 << 20;

/// How many connections each user has, and what they take up together.
type Accounts = HashMap<u32, (usize, Arc<Account>)>;

/// What each user takes up of a daemon that all users may call.
#[derive(Clone, Debug)]
pub(crate) struct Users {
    accounts: Arc<Mutex<Accounts>>,
    most: usize,
}

/// What one user takes up, over all connections.
#[derive(Debug)]
pub(crate) struct Account {
    /// Requests that may still come to be decided.
    requests: Arc<Semaphore>,
    /// Bytes that may still be read for them.
    reading: Arc<Semaphore>,
    /// Bytes of answers that were not taken yet.
    unread: AtomicUsize,
}

/// What a request takes of what its user may have read, or waiting for a decision, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim(#[expect(dead_code, reason = "held")] [OwnedSemaphorePermit; 2]);

impl Account {
    fn new() -> Self {
        let (requests, reading) = (Semaphore::new(USER_REQUESTS_MAX), Semaphore::new(USER_READING_MAX));
        Self { requests: Arc::new(requests), reading: Arc::new(reading), unread: AtomicUsize::new(0) }
    }

    /// Waits until there is room for one more request of so many bytes.
    pub(crate) async fn claim(&self, bytes: usize) -> Claim {
        let bytes = bytes.min(USER_READING_MAX) as u32;
        let reading = Arc::clone(&self.reading).acquire_many_owned(bytes).await;
        let request = Arc::clone(&self.requests).acquire_owned().await;
        Claim([request, reading].map(|permit| permit.expect("these semaphores are never closed")))
    }

    /// Counts bytes that wait to be taken. False: that is more than the user may leave unread.
    pub(crate) fn owe(&self, bytes: usize) -> bool {
        self.unread.fetch_add(bytes, Ordering::Relaxed) + bytes <= USER_UNREAD_MAX
    }

    /// Counts bytes that were taken, or are given up.
    pub(crate) fn settle(&self, bytes: usize) {
        self.unread.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Users {
    /// Nobody is there yet, and nobody but operators may have more than so many.
    pub(crate) fn new(most: usize) -> Self {
        Self { accounts: Arc::default(), most }
    }

    /// The same in a process that may open so many files: no user may have more than an eighth of them.
    pub(crate) fn within(most: usize, files: usize) -> Self {
        Self::new(most.min(files / 8).max(1))
    }

    /// Counts a connection until the result is dropped. None: the user has too many.
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

/// A counted connection.
#[derive(Debug)]
pub(crate) struct Entered {
    users: Users,
    uid: u32,
    account: Arc<Account>,
}

impl Entered {
    /// What its user takes up.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut accounts = self.users.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((count, account)) = accounts.get_mut(&self.uid) {
            *count -= 1;
            // What is still owed stays known: the map and this have an account that nobody else has.
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
    use super::Users;

    /// faults.md M8
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
