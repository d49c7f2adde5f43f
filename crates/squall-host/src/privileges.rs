//! Giving up privileges, for daemons that need none once their sockets are open.

use squall_files::place::Place;
use squall_files::users;

use crate::sys::identity::{Identity, become_user};
use crate::sys::limits;

/// Niceness of a process without privileges: it serves people who look, and yields to controller and nodes.
const NICENESS: i32 = 19;

/// Makes this process an ordinary one: it becomes the user of this name if it is root, yields to other processes, and
/// may open as many files as the system allows. Returns the state folder as the process can still reach it.
pub fn give_up(user: &str, place: &Place) -> Result<Place, String> {
    limits::raise_open_files();
    // Fails only where something else has already lowered what may be set.
    let _ = rustix::process::nice(NICENESS);
    if !users::is_root() {
        return Ok(place.clone());
    }
    let found = users::by_name(user).ok_or_else(|| format!("[rest] user: there is no user `{user}`"))?;
    if found.uid == 0 {
        return Err("[rest] user: the HTTP server does not run as root: name another user".to_owned());
    }
    let dir = place.dir();
    std::env::set_current_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let identity = Identity { uid: found.uid, gid: found.gid, groups: users::groups(&found.name, found.gid) };
    become_user(&identity).map_err(|e| e.to_string())?;
    Ok(Place::current())
}
