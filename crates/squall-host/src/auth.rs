//! Who is at the other end of a local socket: what the kernel says, with names and groups.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use squall_engine::control::Who;
use squall_model::job::Owner;

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

/// How many connections each user has, of a daemon that all users may call.
#[derive(Clone, Debug)]
pub(crate) struct Users {
    counts: Arc<Mutex<HashMap<u32, usize>>>,
    most: usize,
}

impl Users {
    /// Nobody is there yet, and nobody but operators may have more than so many.
    pub(crate) fn new(most: usize) -> Self {
        Self { counts: Arc::default(), most }
    }

    /// The same in a process that may open so many files: no user may have more than an eighth of them.
    pub(crate) fn within(most: usize, files: usize) -> Self {
        Self::new(most.min(files / 8).max(1))
    }

    /// Counts a connection until the result is dropped. None: the user has too many.
    pub(crate) fn enter(&self, uid: u32) -> Option<Entered> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(uid).or_default();
        if *count >= self.most && !is_operator(uid) {
            return None;
        }
        *count += 1;
        Some(Entered { users: self.clone(), uid })
    }
}

/// A counted connection.
#[derive(Debug)]
pub(crate) struct Entered {
    users: Users,
    uid: u32,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut counts = self.users.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.uid);
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
