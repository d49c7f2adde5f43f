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
