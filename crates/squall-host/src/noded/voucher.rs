//! Proxy for commands on a machine that has joined a cluster: the daemon forwards their requests to the controller, and
//! vouches for the user's identity as reported by the kernel. The controller accepts that from a login host, and from a
//! node for users who have a job there.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use squall_files::place::{Place, SocketPath};
use squall_model::encoding;
use squall_model::wire::join::{VOUCHED, Vouched};
use squall_model::wire::{Hello, Proof, Role};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::errands::Membership;
use crate::auth::{Users, is_operator};
use crate::sys::limits;
use crate::{hop, link};

/// Number of commands connected at once, at most.
const COMMANDS_MAX: usize = 1024;
/// Most commands of one user connected at once.
const COMMANDS_OF_USER_MAX: usize = COMMANDS_MAX / 8;
/// Time within which a command must send its greeting.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// Time within which a command must send its first request.
const FIRST_REQUEST_TIME: Duration = Duration::from_mins(1);

/// Listens on the controller's socket path for as long as the daemon runs.
pub(super) fn open(place: &Place, membership: &Membership) -> io::Result<()> {
    let path = place.controller_socket();
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(SocketPath::new(&path)?.as_path())?;
    let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
    let users = Users::within(COMMANDS_OF_USER_MAX, limits::open_files());
    tokio::task::spawn_local(accept(listener, membership.clone(), users));
    Ok(())
}

async fn accept(listener: UnixListener, membership: Membership, users: Users) {
    let seats = Arc::new(Semaphore::new(COMMANDS_MAX));
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (membership, users) = (membership.clone(), users.clone());
                tokio::task::spawn_local(async move {
                    // After an error the command sees the end of its connection, and tries again.
                    drop(serve(stream, &membership, &users).await);
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

async fn serve(stream: UnixStream, membership: &Membership, users: &Users) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    let root = rustix::process::geteuid().is_root();
    if !root && !is_operator(peer.uid()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let Some(_entered) = users.enter(peer.uid()) else { return Ok(()) };
    let (mut reader, mut writer) = hop::local(stream)?;
    let greeting = timeout(GREETING_TIME, link::read_greeting(&mut reader)).await;
    let hello = greeting.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let Some(hello @ Hello { role: Role::Client(_), .. }) = hello else { return Ok(()) };
    let node = membership.joined.name.clone();
    let vouched = Vouched { node, uid: peer.uid(), gid: peer.gid(), owner: !root };
    let bytes = encoding::to_vec(&vouched);
    let (mut from, mut to) = membership.call().await?;
    link::write(&mut to, &Hello { proof: Proof::Scheme(VOUCHED.to_owned(), bytes), ..hello }).await?;
    pass_on((&mut reader, &mut writer), (&mut from, &mut to), FIRST_REQUEST_TIME).await
}

/// Forwards between a command and the controller until either ends the connection. Err: the command sent no request in
/// `first_within`.
async fn pass_on(
    (reader, writer): (&mut (impl AsyncRead + Unpin), &mut (impl AsyncWrite + Unpin)),
    (from, to): (&mut (impl AsyncRead + Unpin), &mut (impl AsyncWrite + Unpin)),
    first_within: Duration,
) -> io::Result<()> {
    let asking = async {
        let mut first = [0];
        let asked = timeout(first_within, reader.read_exact(&mut first)).await;
        asked.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        to.write_all(&first).await?;
        copy(reader, to).await
    };
    // The end of either side ends both.
    tokio::select! {
        done = asking => done,
        done = copy(from, writer) => done,
    }
    .map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};

    use super::{COMMANDS_MAX, COMMANDS_OF_USER_MAX, pass_on};
    use crate::auth::Users;

    /// Regression test of fault M1 in faults.md.
    #[test]
    fn m1_a_users_idle_commands_leave_seats_for_others() {
        let users = Users::within(COMMANDS_OF_USER_MAX, 1 << 20);
        let seated = (0..1030).map_while(|_| users.enter(1001)).collect::<Vec<_>>();
        assert_eq!(seated.len(), COMMANDS_OF_USER_MAX);
        assert!(COMMANDS_MAX >= 2 * COMMANDS_OF_USER_MAX && users.enter(1002).is_some());
    }

    /// Regression test of fault M1 in faults.md.
    #[test]
    fn m1_a_command_that_asks_nothing_is_ended() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (command, near) = duplex(64);
            let (controller, far) = duplex(64);
            let ((mut reader, mut writer), (mut from, mut to)) = (split(near), split(far));
            let idle = pass_on((&mut reader, &mut writer), (&mut from, &mut to), Duration::from_millis(20)).await;
            assert_eq!(idle.map_err(|e| e.kind()), Err(ErrorKind::TimedOut));
            // A command that has sent a request may wait for the answer as long as that takes.
            let (mut command, mut controller) = (command, controller);
            command.write_all(b"ask").await.unwrap();
            let passed = pass_on((&mut reader, &mut writer), (&mut from, &mut to), Duration::from_millis(20));
            let talk = async {
                let mut heard = [0; 3];
                controller.read_exact(&mut heard).await.unwrap();
                controller.write_all(b"told").await.unwrap();
                let mut told = [0; 4];
                command.read_exact(&mut told).await.unwrap();
                drop(command);
                (heard, told)
            };
            let (ended, said) = tokio::join!(passed, talk);
            assert_eq!((ended.is_ok(), said), (true, (*b"ask", *b"told")));
        });
    }
}
