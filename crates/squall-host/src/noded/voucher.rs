//! Commands on a machine that has joined a cluster: the node daemon passes on what they say to the controller, and says
//! who they are, as the kernel says. The controller believes that of users who have a job on the node.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use squall_model::wire::join::{VOUCHED, Vouched};
use squall_model::wire::{Hello, Proof, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::reach::Reach;
use crate::auth::{Users, is_operator};
use crate::logging::say;
use crate::place::SocketPath;
use crate::sys::limits;
use crate::{hop, link};

/// Commands at once.
const COMMANDS_MAX: usize = 1024;
/// Commands of one user at once.
const COMMANDS_OF_USER_MAX: usize = COMMANDS_MAX / 8;
/// A command must greet within this time.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// A command must ask its first question within this time.
const FIRST_REQUEST_TIME: Duration = Duration::from_mins(1);

/// Listens in the controller's place for as long as the daemon runs.
pub(super) fn open(reach: &Reach) -> io::Result<()> {
    let path = reach.place().controller_socket();
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(SocketPath::new(&path)?.as_path())?;
    let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
    let users = Users::within(COMMANDS_OF_USER_MAX, limits::open_files());
    tokio::task::spawn_local(accept(listener, reach.clone(), users));
    Ok(())
}

async fn accept(listener: UnixListener, reach: Reach, users: Users) {
    let seats = Arc::new(Semaphore::new(COMMANDS_MAX));
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (reach, users) = (reach.clone(), users.clone());
                tokio::task::spawn_local(async move {
                    // The command sees that nobody answers, and tries again.
                    drop(serve(stream, &reach, &users).await);
                    drop(seat);
                });
            }
            Err(e) => {
                say(&format!("cannot accept a command's connection: {e}"));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(stream: UnixStream, reach: &Reach, users: &Users) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    let root = rustix::process::geteuid().is_root();
    if !root && !is_operator(peer.uid()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let Some(_entered) = users.enter(peer.uid()) else { return Ok(()) };
    let (mut reader, mut writer) = hop::local(stream)?;
    let greeting = timeout(GREETING_TIME, link::read_greeting::<Hello>(&mut reader)).await;
    let hello = greeting.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let Some(hello @ Hello { role: Role::Client(_), .. }) = hello else { return Ok(()) };
    let vouched = Vouched { node: reach.name().to_owned(), uid: peer.uid(), gid: peer.gid(), owner: !root };
    let bytes = postcard::to_stdvec(&vouched).map_err(io::Error::other)?;
    let (mut from, mut to) = reach.call_controller().await?;
    link::write(&mut to, &Hello { proof: Proof::Scheme(VOUCHED.to_owned(), bytes), ..hello }).await?;
    let asking = async {
        let mut first = [0];
        let asked = timeout(FIRST_REQUEST_TIME, reader.read_exact(&mut first)).await;
        asked.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        to.write_all(&first).await?;
        copy(&mut reader, &mut to).await
    };
    // Whichever side ends it ends it.
    tokio::select! {
        done = asking => done,
        done = copy(&mut from, &mut writer) => done,
    }
    .map(drop)
}
