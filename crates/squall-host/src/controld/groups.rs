//! Groups of users who have jobs, looked up again and again. A job that has waited for weeks starts with the groups that
//! its user has then, and not with one that was taken away.

use std::time::Duration;

use squall_files::users;
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;

use super::connection::Arrival;

/// Time between two looks, that of Slurm's `GroupUpdateTime`.
const LOOK_EVERY: Duration = Duration::from_mins(10);

/// Looks groups up until the controller ends, the first time at once.
pub(super) async fn look_up(arrivals: Sender<Arrival>) {
    loop {
        let (users, sought) = oneshot::channel();
        if arrivals.send(Arrival::UsersSought { users }).await.is_err() {
            return;
        }
        // A directory service may be slow.
        let Ok(uids) = sought.await else { return };
        let Ok(users) = tokio::task::spawn_blocking(move || uids.into_iter().filter_map(of).collect()).await else {
            return;
        };
        if arrivals.send(Arrival::Groups { users }).await.is_err() {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Returns the groups of a user. None: there is no such user on this machine.
fn of(uid: u32) -> Option<(u32, Vec<u32>)> {
    let user = users::by_uid(uid)?;
    Some((uid, users::groups(&user.name, user.gid)))
}
