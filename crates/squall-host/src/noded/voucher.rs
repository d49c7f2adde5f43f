//! Proxy for commands on a machine without a controller that runs: the daemon forwards their requests to the controller
//! that leads, and vouches for the user's identity as reported by the kernel. The controller accepts that from a login
//! host, from a node for users who have a job there, and from a head, which has the controllers' own key.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use squall_files::place::SocketPath;
use squall_model::wire::client::Refusal;
use squall_model::wire::join::Vouched;
use squall_model::wire::{Hello, Proof, Role};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::errands::Membership;
use crate::auth::{Users, is_operator};
use crate::cgroup::member;
use crate::leader::Controllers;
use crate::sys::limits;
use crate::trust::Trust;
use crate::{hop, link, proxy};

/// Number of commands connected at once, at most.
const COMMANDS_MAX: usize = 1024;
/// Most commands of one user connected at once.
const COMMANDS_OF_USER_MAX: usize = COMMANDS_MAX / 8;
/// Time within which a command must send its greeting.
const GREETING_TIME: Duration = Duration::from_secs(10);

/// The way from this machine to the controller that leads; may be cloned.
#[derive(Clone)]
pub(super) struct Way {
    /// Name of this machine in the cluster.
    pub(super) name: String,
    pub(super) controllers: Controllers,
    /// The keys of a head, which calls as one of the controllers. None: this machine is none.
    pub(super) head: Option<Trust>,
}

impl Way {
    /// Returns the way of a machine that has joined a cluster.
    pub(super) fn of(membership: &Membership) -> Self {
        Self { name: membership.name().to_owned(), controllers: membership.controllers.clone(), head: None }
    }
}

/// Listens on a socket of this path for as long as the daemon runs.
pub(super) fn open(path: &Path, way: Way) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(SocketPath::new(path)?.as_path())?;
    let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    let users = Users::within(COMMANDS_OF_USER_MAX, limits::open_files());
    tokio::task::spawn_local(accept(listener, way, users));
    Ok(())
}

async fn accept(listener: UnixListener, way: Way, users: Users) {
    let seats = Arc::new(Semaphore::new(COMMANDS_MAX));
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (way, users) = (way.clone(), users.clone());
                tokio::task::spawn_local(async move {
                    // After an error the command sees the end of its connection, and tries again.
                    drop(serve(stream, &way, &users).await);
                    drop(seat);
                });
            }
            Err(e) => {
                tracing::error!(error = %e, "cannot accept a command's connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(stream: UnixStream, way: &Way, users: &Users) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    let root = rustix::process::geteuid().is_root();
    if !root && !is_operator(peer.uid()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let Some(_entered) = users.enter(peer.uid()) else { return Ok(()) };
    let (mut reader, mut writer) = hop::local(stream)?;
    let greeting = timeout(GREETING_TIME, link::read_greeting(&mut reader)).await;
    let hello = greeting.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    // It vouches for the peer and nobody else: not for the user of a token.
    let Some(hello) = hello.filter(|hello| hello.proof == Proof::Peer) else { return Ok(()) };
    if let Some(trust) = &way.head {
        // The controllers' keys may have been rotated.
        let keys = trust.controller_key()?;
        if keys.public != way.controllers.key() {
            way.controllers.rekey(&keys);
        }
    }
    match hello.role {
        Role::Client(_) => {}
        Role::Reader(_) => {
            link::write(&mut writer, &Hello::new(Role::Controller)).await?;
            let problem = "no controller runs on this host: leave out --from-standby".to_owned();
            return link::deny(&mut reader, &mut writer, Refusal::NotSupported(problem)).await;
        }
        _ => return Ok(()),
    }
    let (node, job) = (way.name.clone(), member::job_of(peer.pid())?);
    let vouched = Vouched { node, uid: peer.uid(), gid: peer.gid(), owner: !root, over_http: false, job };
    proxy::command(&way.controllers, (&mut reader, &mut writer), hello, &vouched, false).await
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS_MAX, COMMANDS_OF_USER_MAX};
    use crate::auth::Users;

    /// Regression test of fault M1 in faults.md.
    #[test]
    fn m1_a_users_idle_commands_leave_seats_for_others() {
        let users = Users::within(COMMANDS_OF_USER_MAX, 1 << 20);
        let seated = (0..1030).map_while(|_| users.enter(1001)).collect::<Vec<_>>();
        assert_eq!(seated.len(), COMMANDS_OF_USER_MAX);
        assert!(COMMANDS_MAX >= 2 * COMMANDS_OF_USER_MAX && users.enter(1002).is_some());
    }
}
