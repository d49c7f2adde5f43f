//! Names of users by their ids, remembered for a while: a lookup may take long.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use squall_files::users;

/// How long a name is remembered.
const KEPT: Duration = Duration::from_mins(5);
/// Most names remembered; at this number all are forgotten.
const NAMES_MAX: usize = 65_536;

static NAMES: LazyLock<Mutex<HashMap<u32, (Instant, String)>>> = LazyLock::new(Mutex::default);

/// Returns the name of a user, or the id as text if there is no such user.
pub(crate) fn name_of(uid: u32) -> String {
    let known = || NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((at, name)) = known().get(&uid)
        && at.elapsed() < KEPT
    {
        return name.clone();
    }
    let name = users::by_uid(uid).map_or_else(|| uid.to_string(), |user| user.name);
    let mut known = known();
    if known.len() >= NAMES_MAX {
        known.clear();
    }
    known.insert(uid, (Instant::now(), name.clone()));
    name
}
